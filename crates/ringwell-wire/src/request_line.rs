//! Repairs the request lines of clients that do not escape their query. PHP's `file_get_contents`,
//! for example, sends a URL unchanged.
//!
//! A line is repaired only if it can be read in just one way: it must be a single allocation whose
//! query is valid except for raw spaces, quotes and similar characters. Every other line stays
//! unchanged, and the HTTP library refuses it if it is invalid. Source:
//! docs/decisions/031-raw-bytes-in-a-query.md.

use memchr::memchr;
use memchr::memmem;

use crate::route::{Route, route};

/// The possible ends of a request line.
const VERSIONS: [&[u8]; 2] = [b" HTTP/1.1", b" HTTP/1.0"];

/// Returns the line with its query percent-encoded, or `None` if the line must stay unchanged.
/// `line` includes the CRLF at its end.
#[must_use]
pub fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let inside = line.strip_suffix(b"\r\n")?;
    let target_and_version = inside.strip_prefix(b"GET ").or(inside.strip_prefix(b"HEAD "))?;
    let target = VERSIONS.iter().find_map(|version| target_and_version.strip_suffix(*version))?;
    let (path, query) = target.split_at_checked(memchr(b'?', target)?)?;
    let is_single = matches!(route(str::from_utf8(path).ok()?), Ok(Route::Allocate { .. }));
    // If the query contains another HTTP version, a proxy in front of the server may have taken it
    // for the end of the line.
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

/// Whether `byte` must be escaped in a URL's query. Returns `false` for control characters, which
/// are never repaired.
const fn is_raw(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80..)
}

#[cfg(test)]
mod tests;
