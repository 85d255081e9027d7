//! Reads the request in a row's `api_suffix`, or in a single allocation's query.
//!
//! Accepts the variants that clients of the published API send: `16/…`, `ring_pools/16/…`, or a
//! whole path or URL. The extension may be `.json`, `.xml`, `.csv` or absent, and parameters may
//! have any escaping or none. If a parameter occurs twice, the last one counts, as in the published
//! API.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memchr3};
use ringwell_core::PoolId;
use wide::i8x16;

use crate::error_class::{InputFault, RowError};
use crate::format::Format;
use crate::params::{self, KEY_NAME, VISITOR_BYTES_MAX, VISITOR_NAME};
use crate::route::is_date;
use crate::scan::text::{BLOCK, FIRST_OF_KEY, pass};
use crate::span::Span;

/// A row's request: the pool, the key and the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The pool.
    pub pool: PoolId,
    /// The pool's id as sent.
    pub pool_text: Span,
    /// The key, or an empty span if it is missing.
    pub key: Span,
    /// The raw query without the key, as the part before the key and the part after it.
    pub params: [Span; 2],
    /// The value of `ringwell_visitor`, which identifies the visitor who requests or keeps a
    /// number.
    pub visitor: Option<Span>,
    /// Whether the key contains `%` or `+`, so that it must be decoded before it is compared.
    pub(crate) key_is_escaped: bool,
    /// Whether the whole query was searched for `ring_pool_key` and `ringwell_visitor`. If not, the
    /// key is the query's first parameter, and a later key may override it.
    pub(crate) is_settled: bool,
}

impl Ask {
    /// Decodes an escaped key, and appends the decoded key to `text`.
    pub(crate) fn decode_key(&mut self, text: &mut Vec<u8>) {
        if self.key_is_escaped {
            let decoded = params::decode_bytes(self.key.of(text));
            let start = text.len();
            text.extend_from_slice(&decoded);
            self.key = Span::new(start, text.len());
            self.key_is_escaped = false;
        }
    }

    /// Searches the whole query for `ring_pool_key` and `ringwell_visitor`, unless this has already
    /// been done.
    pub(crate) fn settle(&mut self, text: &[u8]) {
        if !self.is_settled {
            let query = Span::new(self.params[0].start(), self.params[1].end());
            *self = parse_query(text, query, self.pool, self.pool_text);
        }
    }

    /// Whether the query contains any parameter other than `ring_pool_key` and `ringwell_visitor`.
    pub(crate) fn has_params(&self, text: &[u8]) -> bool {
        let pairs = |part: &Span| part.of(text).split(|byte| *byte == b'&');
        let is_param = |pair: &[u8]| {
            let is_ours = [KEY_NAME, VISITOR_NAME].map(|name| value_of(pair, name).is_some());
            !pair.is_empty() && is_ours == [false; 2]
        };
        self.params.iter().flat_map(pairs).any(is_param)
    }
}

/// The `&` before a parameter, and the bytes that both `ring_pool_key` and `ringwell_visitor` begin
/// with.
const MARK: &[u8] = b"&ring";
static FIND_MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MARK));

/// Whether any query in `text` may contain `ring_pool_key` or `ringwell_visitor` after its first
/// parameter. One search covers a whole batch, so that its rows need not be searched one by one.
pub(crate) fn has_mark(text: &[u8]) -> bool {
    FIND_MARK.find(text).is_some()
}

/// Reads the `api_suffix` at `at` in `text`.
pub(crate) fn parse_suffix(text: &[u8], at: Span) -> Result<Ask, RowError> {
    let bad = RowError::InvalidInput(InputFault::Suffix);
    let suffix = at.of(text);
    let end = at.start() + suffix.trim_ascii_end().len();
    let suffix = suffix.trim_ascii();
    let rest = pool_path(suffix);
    let start = end - rest.len();
    let (pool, digits) = parse_pool(rest).ok_or(bad)?;
    let rest = rest[digits..].strip_prefix(b"/allocate_number").ok_or(bad)?;
    let length = memchr(b'?', rest).unwrap_or(rest.len());
    let (extension, query) = rest.split_at(length);
    let is_known = match extension.strip_suffix(b"/").unwrap_or(extension) {
        [] => true,
        [b'.', extension @ ..] => Format::of_extension(extension).is_some(),
        _ => false,
    };
    let query = Span::new((end - query.len() + 1).min(end), end);
    let pool_text = Span::new(start, start + digits);
    if is_known { Ok(parse_query(text, query, pool, pool_text)) } else { Err(bad) }
}

/// Returns the part of `suffix` that begins with the pool's id. The optional prefixes before it are
/// a scheme and a host, `/api/<date>/`, and `ring_pools/`.
pub(crate) fn pool_path(suffix: &[u8]) -> &[u8] {
    let mut rest = suffix;
    if let Some(host) = behind_scheme(suffix) {
        rest = memchr(b'/', host).map_or(&[], |length| &host[length..]);
    }
    while let Some(behind) = rest.strip_prefix(b"/") {
        rest = behind;
    }
    if let Some((version, behind)) =
        rest.strip_prefix(b"api/").and_then(<[u8]>::split_first_chunk::<10>)
        && is_date(version)
    {
        rest = behind.strip_prefix(b"/").unwrap_or(rest);
    }
    rest.strip_prefix(b"ring_pools/").unwrap_or(rest)
}

/// Returns the part after `http://` or `https://`, which may be in upper or lower case.
fn behind_scheme(suffix: &[u8]) -> Option<&[u8]> {
    let (first, rest) = suffix.split_first_chunk::<4>()?;
    if !first.eq_ignore_ascii_case(b"http") {
        return None;
    }
    rest.strip_prefix(b"s").or_else(|| rest.strip_prefix(b"S")).unwrap_or(rest).strip_prefix(b"://")
}

/// Returns the pool's id and the count of its digits.
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

/// Reads the query at `at` in `text`, and separates its last `ring_pool_key` from the other
/// parameters.
pub(crate) fn parse_query(text: &[u8], at: Span, pool: PoolId, pool_text: Span) -> Ask {
    let end = at.end();
    let (key, visitor) = find_ours(text, at);
    let mut ask = Ask {
        pool,
        pool_text,
        key: Span::EMPTY,
        params: [at, Span::EMPTY],
        visitor: None,
        key_is_escaped: false,
        is_settled: true,
    };
    if let Some(start) = key {
        let from = start + KEY_NAME.len() + 1;
        let value = &text[from..end];
        // A single search finds the end of nearly every key, and shows that the key needs no
        // decoding. The search covers at most one block after the query, because it could otherwise
        // run through the text of many later rows.
        let near = &text[from..text.len().min(end + BLOCK)];
        let usual = pass(near, FIRST_OF_KEY).map(|rest| from + near.len() - rest.len());
        let usual = usual.filter(|stop| *stop >= end || text[*stop] == b'&');
        let stop = usual.unwrap_or_else(|| {
            let stop = memchr3(b'&', b'%', b'+', value);
            ask.key_is_escaped = stop.is_some_and(|stop| value[stop] != b'&');
            let stop = if ask.key_is_escaped { memchr(b'&', value) } else { stop };
            stop.map_or(end, |length| from + length)
        });
        let stop = stop.min(end);
        ask.key = Span::new(from, stop);
        // The `&` before the key belongs neither to the key nor to the parameters before it.
        let before = Span::new(at.start(), start.saturating_sub(1).max(at.start()));
        ask.params = [before, Span::new((stop + 1).min(end), end)];
    }
    ask.visitor = visitor
        .map(|start| start + VISITOR_NAME.len() + 1)
        .map(|from| {
            let length = memchr(b'&', &text[from..end]);
            Span::new(from, length.map_or(end, |length| from + length))
        })
        .filter(|visitor| (1..=VISITOR_BYTES_MAX).contains(&visitor.len()));
    ask
}

/// Returns the offsets of the last `ring_pool_key` and of the last `ringwell_visitor`.
fn find_ours(text: &[u8], at: Span) -> (Option<usize>, Option<usize>) {
    let (mut key, mut visitor) = (None, None);
    let (mut start, end) = (at.start(), at.end());
    loop {
        let pairs = &text[start..end];
        if value_of(pairs, KEY_NAME).is_some() {
            key = Some(start);
        } else if value_of(pairs, VISITOR_NAME).is_some() {
            visitor = Some(start);
        }
        let Some(next) = next_mark(text, start, end) else { return (key, visitor) };
        start = next + 1;
    }
}

/// Returns the offset of the next `&` in `from..end` after which `ring_pool_key` or
/// `ringwell_visitor` may begin. Queries are short, so setting up a search for [`MARK`] would cost
/// more than this loop.
#[inline]
fn next_mark(text: &[u8], from: usize, end: usize) -> Option<usize> {
    let is = |block: [u8; 16], byte: u8| {
        i8x16::new(block.map(u8::cast_signed)).simd_eq(i8x16::splat(byte.cast_signed()))
    };
    let mut at = from;
    while at < end {
        // More text nearly always follows the query.
        let Some(window) = text[at..].first_chunk::<17>() else {
            let is_mark = |pair: &[u8]| pair == &MARK[..2];
            return text[at..end].windows(2).position(is_mark).map(|length| at + length);
        };
        let (first, second) = (window.first_chunk()?, window.last_chunk()?);
        let hits = (is(*first, MARK[0]) & is(*second, MARK[1])).to_bitmask();
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize).filter(|hit| *hit < end);
        }
        at += first.len();
    }
    None
}

/// Returns the part after `NAME=`.
#[inline]
fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pair.strip_prefix(name)?.strip_prefix(b"=")
}
