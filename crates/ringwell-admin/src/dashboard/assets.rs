//! The files that pages load: a style sheet, a script, an icon, and a library for charts.
//!
//! Owns the files' contents, and sets how long browsers cache them. The address of each file
//! contains a digest of all files, so that changed files get new addresses. The chart library is an
//! unmodified copy of uPlot; see `assets/uplot.LICENSE`.

use std::io::Write;
use std::sync::OnceLock;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// A file. Its compressed form is created when a client first requests it.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    gzip: OnceLock<Vec<u8>>,
}

const ICON: &[u8] = b"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\">\
    <circle cx=\"8\" cy=\"8\" r=\"6\" fill=\"none\" stroke=\"#0a58ca\" stroke-width=\"3\"/></svg>";

static ASSETS: [Asset; 5] = [
    asset("app.css", "text/css; charset=utf-8", include_bytes!("assets/app.css")),
    asset("app.js", "text/javascript; charset=utf-8", include_bytes!("assets/app.js")),
    asset("uplot.css", "text/css; charset=utf-8", include_bytes!("assets/uplot.css")),
    asset("uplot.js", "text/javascript; charset=utf-8", include_bytes!("assets/uplot.js")),
    asset("icon.svg", "image/svg+xml", ICON),
];

const fn asset(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Asset {
    Asset { name, kind, bytes, gzip: OnceLock::new() }
}

/// The digest of all files. It is part of each file's address.
pub(super) fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut digest = Sha256::new();
        for asset in &ASSETS {
            digest.update(asset.bytes);
        }
        let bytes: [u8; 32] = digest.finalize().into();
        let first = bytes.first_chunk().copied().map_or(0, u32::from_be_bytes);
        format!("{first:08x}")
    })
}

/// Serves the file `name`.
pub(super) fn get(name: &str, headers: &HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let accepts = headers.get(header::ACCEPT_ENCODING).and_then(|field| field.to_str().ok());
    let is_gzip = accepts.is_some_and(|accepts| {
        accepts.split(',').any(|coding| coding.split(';').next().unwrap_or("").trim() == "gzip")
    });
    let bytes: &'static [u8] =
        if is_gzip { asset.gzip.get_or_init(|| gzip(asset.bytes)) } else { asset.bytes };
    let mut response = bytes.into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    fields.insert(header::CACHE_CONTROL, kept);
    fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_gzip {
        fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
#[test]
fn all_files_together_take_at_most_80_kb() {
    let bytes: usize = ASSETS.iter().map(|asset| gzip(asset.bytes).len()).sum();
    assert!(bytes <= 80_000, "{bytes}");
    assert!(gzip(include_bytes!("assets/app.js")).len() < 3_000);
}
