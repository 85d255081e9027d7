//! Determines which request of the published API a path selects.

use memchr::memchr;

use crate::error_class::RequestError;
use crate::format::Format;

/// A recognized path under `/api/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/api/<date>/bulk.json`
    Bulk,
    /// `/api/<date>/ring_pools/<id>/allocate_number.<format>`
    Allocate {
        /// The pool's id as it was sent.
        pool: &'a str,
        /// The format of the answer.
        format: Format,
    },
}

/// Returns the part of a path after `/api/`, or `None` if the path is not in the published API. The
/// path may begin with several slashes, because some base URLs end with a slash.
#[must_use]
pub fn api_path(path: &str) -> Option<&str> {
    let mut path = path;
    while path.starts_with("//") {
        path = &path[1..];
    }
    path.strip_prefix("/api/")
}

/// Reads a path. Accepts a trailing slash, and extensions in capitals.
///
/// # Errors
/// [`RequestError::BadVersion`] if the second part of the path is not a date, or
/// [`RequestError::NotFound`] if the path does not exist.
pub fn route(path: &str) -> Result<Route<'_>, RequestError> {
    let rest = api_path(path).ok_or(RequestError::NotFound)?;
    let slash = memchr(b'/', rest.as_bytes()).ok_or(RequestError::NotFound)?;
    let (version, rest) = (&rest[..slash], &rest[slash + 1..]);
    if !is_date(version.as_bytes()) {
        return Err(RequestError::BadVersion);
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.eq_ignore_ascii_case("bulk.json") {
        return Ok(Route::Bulk);
    }
    let allocate = rest.strip_prefix("ring_pools/").and_then(|rest| {
        let (pool, action) = rest.split_once('/')?;
        let format = Format::of_extension(action.strip_prefix("allocate_number.")?.as_bytes())?;
        Some(Route::Allocate { pool, format })
    });
    allocate.ok_or(RequestError::NotFound)
}

/// Whether `text` has the form `YYYY-MM-DD`, with a month from 1 to 12 and a day from 1 to 31.
pub(crate) fn is_date(text: &[u8]) -> bool {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return false };
    let digits = [y1, y2, y3, y4, m1, m2, d1, d2];
    let two = |tens: u8, ones: u8| (tens - b'0') * 10 + (ones - b'0');
    digits.iter().all(u8::is_ascii_digit)
        && (1..=12).contains(&two(m1, m2))
        && (1..=31).contains(&two(d1, d2))
}

#[cfg(test)]
mod tests;
