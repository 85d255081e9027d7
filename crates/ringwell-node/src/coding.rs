//! Decodes request bodies in the content codings gzip and deflate, and compresses answers with
//! gzip.

use std::io::{Read, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;
use hyper::Response;
use hyper::header::{self, HeaderMap, HeaderValue};
use ringwell_wire::RequestError;

use crate::fields::values;
use crate::response::AnswerBody;

/// Answers that are shorter than this are not worth compressing.
const ENCODED_BYTES_MIN: usize = 1024;

/// A body may decode to at most this many times its compressed size. Batches of 1,000 rows that
/// differ only in their ids compress to between 1/32 (short rows) and 1/41 (rows of 250 bytes) of
/// their size. Batches with click ids compress to 1/3. A malicious body can decode to 1,000 times
/// its size.
const INFLATION_MAX: usize = 64;

/// Any body may decode to this many bytes, no matter how small it is. Decoding so few bytes costs
/// little, and short batches of identical rows compress better than [`INFLATION_MAX`] allows.
const INFLATED_BYTES_MIN: usize = 64 << 10;

/// Decodes the body according to its `Content-Encoding`. The result is limited to `limit` bytes and
/// to a multiple of the compressed size, because bodies are decoded before any key is checked.
///
/// # Errors
/// Returns [`RequestError::Coding`] if the coding is not supported or there is more than one, and
/// [`RequestError::TooLarge`], [`RequestError::Inflated`] or [`RequestError::Undecodable`] if
/// decoding fails.
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
    let most = body.len().saturating_mul(INFLATION_MAX).max(INFLATED_BYTES_MIN);
    let excess = if most < limit {
        RequestError::Inflated { limit: most }
    } else {
        RequestError::TooLarge { limit }
    };
    let read = |from: &mut dyn Read| read(from, most.min(limit), excess);
    // Deflate data should have a zlib header, but some clients omit it.
    let has_header = matches!(*body, [0x78, second, ..] if (0x7800 + u16::from(second)) % 31 == 0);
    match () {
        () if is("gzip") || is("x-gzip") => read(&mut MultiGzDecoder::new(&*body)),
        () if is("deflate") && has_header => read(&mut ZlibDecoder::new(&*body)),
        () if is("deflate") => read(&mut DeflateDecoder::new(&*body)),
        () => Err(RequestError::Coding),
    }
}

/// Reads at most `limit` bytes, so that a small body cannot decode to a huge one. If there are more
/// bytes, fails with `excess`.
fn read(from: impl Read, limit: usize, excess: RequestError) -> Result<Bytes, RequestError> {
    let mut out = Vec::new();
    let read = from.take(limit as u64 + 1).read_to_end(&mut out);
    read.map_err(|_| RequestError::Undecodable)?;
    if out.len() > limit { Err(excess) } else { Ok(out.into()) }
}

/// Compresses the answer with gzip, if the client accepts gzip and the answer is long enough.
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
    // Writing to memory cannot fail.
    if let Ok(shorter) = encoder.write_all(bytes).and_then(|()| encoder.finish()) {
        *response.body_mut() = AnswerBody::from(shorter);
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const LIMIT: usize = 1 << 20;

    /// Compresses `body` at the highest level, and decodes the result.
    fn decoded(body: &[u8]) -> Result<Bytes, RequestError> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).unwrap();
        let gzip = HeaderValue::from_static("gzip");
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, gzip)]);
        decode(&headers, encoder.finish().unwrap().into(), LIMIT)
    }

    /// Builds a batch whose rows differ only in their ids.
    fn batch(rows: usize, more: &str) -> Vec<u8> {
        let mut body = "{\"requests\":[".to_owned();
        for row in 0..rows {
            let comma = if row == 0 { "" } else { "," };
            write!(
                body,
                "{comma}{{\"request_id\":\"row-{row:06}\",\"api_suffix\":\"12345/\
                 allocate_number.json?ring_pool_key=key-one-aaaa1111{more}&session={row}\"}}"
            )
            .unwrap();
        }
        body.push_str("]}");
        body.into_bytes()
    }

    #[test]
    fn batches_of_similar_rows_decode() {
        let utm = "&utm_source=google&utm_medium=cpc&utm_campaign=summer_sale_2026&utm_term=\
                   plumber+near+me&landing=https%3A%2F%2Fexample.com%2Fservices%2Femergency";
        for (rows, more) in [(1, ""), (100, ""), (1_000, ""), (1_000, utm), (3_000, utm)] {
            let body = batch(rows, more);
            assert_eq!(decoded(&body), Ok(Bytes::from(body.clone())), "{rows} rows {more}");
        }
        // Identical rows compress by a larger factor than [`INFLATION_MAX`], but a short body with
        // such rows is still accepted.
        let row = r#"{"api_suffix":"1/allocate_number.json?ring_pool_key=key"},"#;
        let body = format!(r#"{{"requests":[{}"#, row.repeat(1_000));
        assert!(decoded(body.as_bytes()).is_ok());
    }

    #[test]
    fn a_body_that_grows_more_than_rows_do_is_refused() {
        let body = b"\"a\":1,".repeat(140_000);
        let Err(RequestError::Inflated { limit }) = decoded(&body) else {
            panic!("it was decoded")
        };
        assert!((INFLATED_BYTES_MIN..body.len() / 8).contains(&limit), "{limit}");
        let limit = INFLATED_BYTES_MIN;
        assert!(decoded(&vec![b' '; limit]).is_ok());
        assert_eq!(decoded(&vec![b' '; limit + 1]), Err(RequestError::Inflated { limit }));
        // This body exceeds both [`LIMIT`] and the limit that depends on the compressed size.
        assert_eq!(decoded(&vec![b' '; 8 << 20]).unwrap_err().status(), 413);
    }
}
