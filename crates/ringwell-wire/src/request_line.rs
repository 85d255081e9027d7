//! Request lines of clients that do not escape their query: PHP's `file_get_contents` sends a URL
//! unchanged.
//!
//! A line is repaired only if it can be read in just one way: the query of a single allocation in
//! which only raw spaces, quotes and similar characters are wrong. Every other line stays
//! unchanged, and the HTTP library refuses it. Source: docs/decisions/031-raw-bytes-in-a-query.md.

use memchr::memchr;
use memchr::memmem;

use crate::route::{Route, route};

/// A request line ends with one of these.
const VERSIONS: [&[u8]; 2] = [b" HTTP/1.1", b" HTTP/1.0"];

/// The line with its query percent-encoded; `None` if it must stay unchanged. `line` includes its
/// CRLF.
#[must_use]
pub fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let inside = line.strip_suffix(b"\r\n")?;
    let target_and_version = inside.strip_prefix(b"GET ").or(inside.strip_prefix(b"HEAD "))?;
    let target = VERSIONS.iter().find_map(|version| target_and_version.strip_suffix(*version))?;
    let (path, query) = target.split_at_checked(memchr(b'?', target)?)?;
    let is_single = matches!(route(str::from_utf8(path).ok()?), Ok(Route::Allocate { .. }));
    // A second version means that a proxy in front may have ended the line elsewhere.
    let is_ambiguous = memmem::find(query, b" HTTP/").is_some();
    if !is_single || is_ambiguous || !path.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    if query.iter().any(u8::is_ascii_control) || !query.iter().any(|byte| is_raw(*byte)) {
        return None;
    }
    let start = line.len() - target_and_version.len() - b"\r\n".len() + path.len();
    let mut out = Vec::with_capacity(line.len() + 2 * query.len());
    out.extend_from_slice(&line[..start]);
    for byte in query {
        if is_raw(*byte) {
            let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble & 15)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(*byte)]);
        } else {
            out.push(*byte);
        }
    }
    out.extend_from_slice(&line[start + query.len()..]);
    Some(out)
}

/// The characters that a URL's query must not contain, except control characters.
const fn is_raw(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80..)
}

#[cfg(test)]
mod tests;
