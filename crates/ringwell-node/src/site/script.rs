//! The script for web pages, and the two paths at which it is available.
//!
//! The path `/rw.js` always returns the newest version. The other path contains a hash of the
//! script. The content at that path never changes, so a page may require an integrity check, and
//! browsers may cache the content forever.

use std::sync::OnceLock;

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use sha2::{Digest, Sha384};

use crate::response::{AnswerBody, whole};

/// The script that was built from `web/snippet`.
const TEXT: &str = include_str!("../../../../web/snippet/dist/rw.js");
/// The path of the newest version of the script.
const PATH: &str = "/rw.js";
/// The number of bytes of the hash in the path.
const PATH_BYTES: usize = 8;

/// The script that this program serves to web pages.
#[derive(Debug)]
pub struct Script {
    /// The path whose contents never change: `/rw.`, hexadecimal digits and `.js`.
    pub path: String,
    /// The value for the attribute `integrity` of the page's script tag.
    pub integrity: String,
}

/// The script that this program serves to web pages.
pub fn script() -> &'static Script {
    static SCRIPT: OnceLock<Script> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let hash = Sha384::digest(TEXT);
        let short = hash.iter().take(PATH_BYTES).fold(0, |all, byte| all << 8 | u64::from(*byte));
        let integrity = format!("sha384-{}", base64(&hash));
        Script { path: format!("/rw.{short:016x}.js"), integrity }
    })
}

/// Whether `path` is one of the script's two paths.
pub(super) fn is_at(path: &str) -> bool {
    path == PATH || path == script().path
}

/// Answers a page's request for `path` with the script.
pub(super) fn answer(path: &str) -> Response<AnswerBody> {
    let mut response = whole(StatusCode::OK, "text/javascript; charset=utf-8", TEXT.into());
    let kept =
        if path == PATH { "public, max-age=300" } else { "public, max-age=31536000, immutable" };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// Encodes bytes as base64. The number of bytes must be a multiple of three; a SHA-384 hash has 48
/// bytes.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |three: &[u8]| {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63]))
    };
    bytes.chunks_exact(3).flat_map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
        assert_eq!(script().integrity.len(), "sha384-".len() + 64);
    }
}
