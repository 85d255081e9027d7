//! The header fields of requests.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// Returns the values of a header field, in order. Requests have few fields, so comparing each name
/// is cheaper than a look-up by hash.
pub(crate) fn values<'a>(
    headers: &'a HeaderMap,
    wanted: &HeaderName,
) -> impl Iterator<Item = &'a HeaderValue> {
    headers.iter().filter(move |(name, _)| *name == wanted).map(|(_, value)| value)
}

/// Returns the first value of a header field, if it is text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
