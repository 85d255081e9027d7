//! Parameters as names and values: read when somebody asks, not when a number goes out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use percent_encoding::percent_decode;

use crate::ask::VISITOR_NAME;

/// Decodes a query: `%20` and `+`, the first of parameters with one name, in their order. What is
/// no UTF-8 becomes replacement characters; broken escapes stay as they are. Our own
/// `ringwell_visitor` is left out.
#[must_use]
pub fn decode(raw: &[u8]) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    raw.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let cut = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (decode_text(&pair[..cut]), decode_text(pair.get(cut + 1..).unwrap_or_default()))
        })
        .filter(|(name, _)| name.as_bytes() != VISITOR_NAME && seen.insert(name.clone()))
        .collect()
}

fn decode_text(raw: &[u8]) -> String {
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    let bytes: Cow<'_, [u8]> = percent_decode(&spaced).into();
    String::from_utf8_lossy(&bytes).into_owned()
}
