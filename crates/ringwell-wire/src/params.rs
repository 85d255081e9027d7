//! Parameters as names and values: decoded for a look-up, not during an allocation.

use std::collections::BTreeSet;

use percent_encoding::percent_decode;

use crate::ask::{KEY_NAME, VISITOR_NAME};

/// Decodes a query, including `%20` and `+`, into parameters in their order; of equal names the
/// last one counts. Invalid UTF-8 becomes replacement characters; broken escapes stay unchanged.
/// Omits our own `ringwell_visitor`, and a `ring_pool_key` that occurred twice, because it may be a
/// secret.
#[must_use]
pub fn decode(raw: &[u8]) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut parameters: Vec<_> = raw
        .rsplit(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let cut = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            (decode_text(&pair[..cut]), decode_text(pair.get(cut + 1..).unwrap_or_default()))
        })
        .filter(|(name, _)| ![KEY_NAME, VISITOR_NAME].contains(&name.as_bytes()))
        .filter(|(name, _)| seen.insert(name.clone()))
        .collect();
    parameters.reverse();
    parameters
}

/// The decoded form of an escaped text. Broken escapes stay unchanged.
pub(crate) fn decode_bytes(raw: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    percent_decode(&spaced).collect()
}

fn decode_text(raw: &[u8]) -> String {
    String::from_utf8_lossy(&decode_bytes(raw)).into_owned()
}

#[cfg(test)]
mod tests;
