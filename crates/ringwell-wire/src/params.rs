//! Decodes parameters into names and values. This happens when an allocation is looked up or
//! erased, not when a number is allocated.

use std::collections::BTreeSet;

use percent_encoding::percent_decode;

/// Ringwell's own parameter, which identifies the visitor who requests or keeps a number.
pub(crate) const VISITOR_NAME: &[u8] = b"ringwell_visitor";

/// The maximum length in bytes of the value of `ringwell_visitor`. Longer values are ignored.
pub const VISITOR_BYTES_MAX: usize = 128;

pub(crate) const KEY_NAME: &[u8] = b"ring_pool_key";

/// The names of the parameters that are never shown: `ring_pool_key`, whose value may be a secret,
/// and `ringwell_visitor`.
const HIDDEN: [&[u8]; 2] = [KEY_NAME, VISITOR_NAME];

/// A byte that no request contains, because requests are UTF-8. Erased parameters begin with this
/// byte, or have it after `ringwell_visitor=`. Source: docs/spec/journal.md, "Erasure".
const ERASED: u8 = 0xFF;

/// Splits a query into its parameters, in order, and decodes escapes such as `%20` and `+`. If a
/// name occurs several times, the last value counts. Invalid UTF-8 becomes replacement characters,
/// and broken escapes stay unchanged. Omits Ringwell's own `ringwell_visitor`. Also omits a
/// `ring_pool_key` that occurred a second time, because it may be a secret. Returns nothing for
/// erased parameters.
#[must_use]
pub fn decode(raw: &[u8]) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut parameters = decode_each(raw);
    parameters.reverse();
    parameters.retain(|(name, _)| seen.insert(name.clone()));
    parameters.reverse();
    parameters
}

/// Like [`decode`], but returns every value of a name that occurs several times.
#[must_use]
pub fn decode_each(raw: &[u8]) -> Vec<(String, String)> {
    if is_erased(raw) { Vec::new() } else { decode_all(raw).collect() }
}

/// Like [`decode_each`], but also returns the remains of erased parameters.
pub fn decode_all(raw: &[u8]) -> impl Iterator<Item = (String, String)> {
    raw.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let cut = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            (decode_text(&pair[..cut]), decode_text(pair.get(cut + 1..).unwrap_or_default()))
        })
        .filter(|(name, _)| !HIDDEN.contains(&name.as_bytes()))
}

/// Whether an erasure has overwritten these parameters.
#[must_use]
pub fn is_erased(raw: &[u8]) -> bool {
    let value = raw.strip_prefix(VISITOR_NAME).and_then(|rest| rest.strip_prefix(b"="));
    value.unwrap_or(raw).first() == Some(&ERASED)
}

/// Returns the decoded form of an escaped text. Broken escapes stay unchanged.
pub(crate) fn decode_bytes(raw: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_decode(&spaced).collect()
}

fn decode_text(raw: &[u8]) -> String {
    String::from_utf8_lossy(&decode_bytes(raw)).into_owned()
}

#[cfg(test)]
mod tests;
