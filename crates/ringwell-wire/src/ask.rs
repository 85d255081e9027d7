//! What a row asks for: reads `api_suffix`, and the query of a single allocation.
//!
//! Lenient as the published API's clients need it: `16/…`, `ring_pools/16/…`, a leading `/`, any
//! of the three extensions, parameters escaped in any way or not at all.

use memchr::{memchr, memchr3};
use ringwell_core::PoolId;

use crate::error_class::{InputFault, RowError};
use crate::params;
use crate::span::Span;

/// A row that names a pool and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The pool.
    pub pool: PoolId,
    /// The pool as it was written.
    pub pool_text: Span,
    /// The key; empty if there is none.
    pub key: Span,
    /// The raw query without the key: what stood before it, and after it.
    pub params: [Span; 2],
    /// The visitor who wants to keep the number.
    pub visitor: Option<Span>,
    /// Has `%` or `+`: the key must be decoded before anyone compares it.
    pub(crate) key_is_escaped: bool,
}

impl Ask {
    /// Makes the key what it means, if it was escaped: its text is then at the end of `text`.
    pub(crate) fn decode_key(&mut self, text: &mut Vec<u8>) {
        if self.key_is_escaped {
            let decoded = params::decode_bytes(self.key.of(text));
            let start = text.len();
            text.extend_from_slice(&decoded);
            self.key = Span::new(start, text.len());
            self.key_is_escaped = false;
        }
    }

    /// Whether there is any parameter beside the keys and our own.
    pub(crate) fn has_params(&self, text: &[u8]) -> bool {
        let pairs = |part: &Span| part.of(text).split(|byte| *byte == b'&');
        let is_param = |pair: &[u8]| {
            let is_ours = [KEY_NAME, VISITOR_NAME].map(|name| value_of(pair, name).is_some());
            !pair.is_empty() && is_ours == [false; 2]
        };
        self.params.iter().flat_map(pairs).any(is_param)
    }
}

/// Our own parameter: the visitor who wants to keep the number.
pub(crate) const VISITOR_NAME: &[u8] = b"ringwell_visitor";

/// A visitor's name may be this long; longer ones are ignored.
pub const VISITOR_BYTES_MAX: usize = 128;

pub(crate) const KEY_NAME: &[u8] = b"ring_pool_key";

/// Reads `api_suffix`, which stands at `at` in `text`.
#[expect(clippy::inline_always, reason = "measured: a call copies what was read, 4 ns of 43")]
#[inline(always)]
pub(crate) fn parse_suffix(text: &[u8], at: Span) -> Result<Ask, RowError> {
    let bad = RowError::InvalidInput(InputFault::Suffix);
    let suffix = at.of(text);
    let mut rest = suffix.strip_prefix(b"/").unwrap_or(suffix);
    rest = rest.strip_prefix(b"ring_pools/").unwrap_or(rest);
    let start = at.start() + (suffix.len() - rest.len());
    let (pool, digits) = parse_pool(rest).ok_or(bad)?;
    rest = rest[digits..].strip_prefix(b"/allocate_number.").ok_or(bad)?;
    rest = rest
        .strip_prefix(b"json")
        .or_else(|| rest.strip_prefix(b"xml"))
        .or_else(|| rest.strip_prefix(b"csv"))
        .ok_or(bad)?;
    let pool_text = Span::new(start, start + digits);
    match rest.split_first() {
        None => Ok(parse_query(text, Span::EMPTY, pool, pool_text)),
        Some((b'?', query)) => {
            let query = Span::new(at.end() - query.len(), at.end());
            Ok(parse_query(text, query, pool, pool_text))
        }
        Some(_) => Err(bad),
    }
}

/// The pool's id and how many digits it has.
#[inline]
pub(crate) fn parse_pool(text: &[u8]) -> Option<(PoolId, usize)> {
    let mut id: u64 = 0;
    let mut digits = 0;
    for byte in text.iter().take_while(|byte| byte.is_ascii_digit()) {
        id = id.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        digits += 1;
    }
    (digits > 0).then_some((PoolId(id), digits))
}

/// Reads the query that stands at `at` in `text`: takes the first `ring_pool_key` out of it.
#[expect(clippy::inline_always, reason = "measured: a call copies what was read, 12 ns of 43")]
#[inline(always)]
pub(crate) fn parse_query(text: &[u8], at: Span, pool: PoolId, pool_text: Span) -> Ask {
    let no_key = Ask {
        pool,
        pool_text,
        key: Span::EMPTY,
        params: [at, Span::EMPTY],
        visitor: None,
        key_is_escaped: false,
    };
    let (mut start, end) = (at.start(), at.end());
    while start < end {
        let pair = &text[start..end];
        let Some(value) = value_of(pair, KEY_NAME) else {
            start += memchr(b'&', pair).map_or(pair.len(), |length| length + 1);
            continue;
        };
        let from = end - value.len();
        // One search finds the end of nearly every key, and that it need not be decoded.
        let stop = memchr3(b'&', b'%', b'+', value);
        let key_is_escaped = stop.is_some_and(|stop| value[stop] != b'&');
        let stop = if key_is_escaped { memchr(b'&', value) } else { stop };
        let stop = stop.map_or(end, |length| from + length);
        // Without the `&` that stands between a part and the key.
        let before = Span::new(at.start(), start.saturating_sub(1).max(at.start()));
        let params = [before, Span::new((stop + 1).min(end), end)];
        return Ask { key: Span::new(from, stop), params, key_is_escaped, ..no_key };
    }
    no_key
}

/// What follows `NAME=`.
#[inline]
fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pair.strip_prefix(name)?.strip_prefix(b"=")
}

/// Looks for the visitor among the parameters: the first one counts, also if it is of no use, and
/// on whichever side of the key it stands.
pub(crate) fn find_visitor(text: &[u8], params: [Span; 2]) -> Option<Span> {
    let first = params.into_iter().find_map(|part| {
        let (mut start, end) = (part.start(), part.end());
        while start < end {
            let stop = memchr(b'&', &text[start..end]).map_or(end, |length| start + length);
            if let Some(value) = value_of(&text[start..stop], VISITOR_NAME) {
                return Some(Span::new(stop - value.len(), stop));
            }
            start = stop + 1;
        }
        None
    });
    first.filter(|visitor| (1..=VISITOR_BYTES_MAX).contains(&visitor.len()))
}
