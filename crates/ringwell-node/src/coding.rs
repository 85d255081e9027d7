//! Bodies in the codings gzip and deflate.

use std::io::{Read, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;
use hyper::Response;
use hyper::header::{self, HeaderMap, HeaderValue};
use ringwell_wire::RequestError;

use crate::http::{AnswerBody, values};

/// Shorter answers are not worth compressing.
const ENCODED_BYTES_MIN: usize = 1024;

/// Decodes the body by its `Content-Encoding`, to at most `limit` bytes.
///
/// # Errors
/// [`RequestError::Coding`] for any other coding, or several; [`RequestError::TooLarge`] and
/// [`RequestError::Undecodable`] for the result.
pub(crate) fn decode(
    headers: &HeaderMap,
    body: Bytes,
    limit: usize,
) -> Result<Bytes, RequestError> {
    let mut codings = values(headers, &header::CONTENT_ENCODING);
    let Some(coding) = codings.next() else { return Ok(body) };
    let is = |name: &str| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    if codings.next().is_some() {
        return Err(RequestError::Coding);
    }
    if is("identity") || is("") {
        return Ok(body);
    }
    // Deflate data should have a zlib header, but some clients omit it.
    let has_header = matches!(*body, [0x78, second, ..] if (0x7800 + u16::from(second)) % 31 == 0);
    match () {
        () if is("gzip") || is("x-gzip") => read(MultiGzDecoder::new(&*body), limit),
        () if is("deflate") && has_header => read(ZlibDecoder::new(&*body), limit),
        () if is("deflate") => read(DeflateDecoder::new(&*body), limit),
        () => Err(RequestError::Coding),
    }
}

/// Reads at most `limit` bytes, so that a small body cannot become a large one.
fn read(from: impl Read, limit: usize) -> Result<Bytes, RequestError> {
    let mut out = Vec::new();
    let read = from.take(limit as u64 + 1).read_to_end(&mut out);
    read.map_err(|_| RequestError::Undecodable)?;
    if out.len() > limit { Err(RequestError::TooLarge { limit }) } else { Ok(out.into()) }
}

/// Compresses the answer with gzip, if the client accepts that and it is long enough.
pub(crate) fn encode(
    headers: &HeaderMap,
    mut response: Response<AnswerBody>,
) -> Response<AnswerBody> {
    let takes_gzip = |accepted: &HeaderValue| {
        accepted.as_bytes().split(|byte| *byte == b',').any(|coding| {
            let mut parts = coding.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"gzip"));
            is_gzip
                && parts.all(|weight| !matches!(weight, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"))
        })
    };
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let is_long = matches!(
        response.body(), AnswerBody::Whole(Some(bytes)) if bytes.len() > ENCODED_BYTES_MIN);
    if !is_long || !values(headers, &header::ACCEPT_ENCODING).any(takes_gzip) {
        return response;
    }
    let AnswerBody::Whole(Some(bytes)) = response.body() else { return response };
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    // Writing to memory does not fail.
    if let Ok(shorter) = encoder.write_all(bytes).and_then(|()| encoder.finish()) {
        *response.body_mut() = AnswerBody::from(shorter);
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    }
    response
}
