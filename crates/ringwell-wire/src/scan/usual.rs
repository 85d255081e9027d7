//! A row as nearly every client writes it, read in one walk, eight bytes at a time.
//!
//! `{"api_suffix":"ID/allocate_number.json?ring_pool_key=KEY…","request_id":"…"}`, the last member
//! perhaps left out, without white space, escapes and what only looks like them. Everything else
//! is for the other ways.
//! Invariant: what it accepts, [`crate::ask::parse_suffix`] reads as the same row.

use ringwell_core::PoolId;

use crate::ask::Ask;
use crate::batch::{Limits, Row};
use crate::span::Span;

const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// What stands in a key is no less: `"`, `%`, `&` and `+` are.
const FIRST_OF_KEY: u8 = b',';
/// What stands in a string is no less, but for blanks and `!`: control characters and `"` are.
const FIRST_OF_TEXT: u8 = b'#';

/// The row at the beginning of `rest`, which ends the body, and what follows it.
#[expect(
    clippy::inline_always,
    reason = "as `parse_row`, where it is measured: a call copies the row"
)]
#[inline(always)]
pub(super) fn read<'a>(body: &[u8], rest: &'a [u8], limits: &Limits) -> Option<(Row, &'a [u8])> {
    let place = |rest: &[u8]| body.len() - rest.len();
    let suffix = rest.strip_prefix(br#"{"api_suffix":""#)?;
    let (pool, digits) = parse_pool(suffix)?;
    let tail = suffix.get(digits..)?.strip_prefix(b"/allocate_number.json?")?;
    let query = place(tail);
    let key = tail.strip_prefix(b"ring_pool_key=")?;
    let (after_key, stop) = pass_text(key, FIRST_OF_KEY)?;
    let (end, params) = match stop {
        b'"' => (after_key, place(after_key)),
        b'&' => {
            let params = place(after_key) + 1;
            (pass_text(after_key.get(1..)?, FIRST_OF_TEXT)?.0, params)
        }
        _ => return None,
    };
    let (start, end_at) = (place(suffix), place(end));
    let ask = Ask {
        pool,
        pool_text: Span::new(start, start + digits),
        key: Span::new(place(key), place(after_key)),
        params: [Span::new(query, query), Span::new(params, end_at)],
        visitor: None,
        key_is_escaped: false,
    };
    if end_at - start > limits.suffix_bytes_max {
        return None;
    }
    let (request_id, behind) = request_id(end.strip_prefix(b"\"")?, place)?;
    let is_short = request_id.is_none_or(|id| id.len() <= limits.request_id_bytes_max);
    is_short.then_some((Row { request_id, ask: Ok(ask) }, behind))
}

/// The id with its quotes, if there is one; and what follows the row.
#[inline]
fn request_id(rest: &[u8], place: impl Fn(&[u8]) -> usize) -> Option<(Option<Span>, &[u8])> {
    let Some(id) = rest.strip_prefix(br#","request_id":""#) else {
        return Some((None, rest.strip_prefix(b"}")?));
    };
    let (end, _) = pass_word(id, FIRST_OF_TEXT)?;
    let behind = end.strip_prefix(b"\"}")?;
    Some((Some(Span::new(place(id) - 1, place(end) + 1)), behind))
}

/// A number of one to seven digits, and how many they are.
#[inline]
fn parse_pool(text: &[u8]) -> Option<(PoolId, usize)> {
    let digits = word(*text.first_chunk()?) ^ (ONES * u64::from(b'0'));
    // High bits mark what is no digit, and perhaps what follows it: the first is right.
    let others = (digits.wrapping_add(ONES * 0x76) | digits) & HIGHS;
    let count = others.trailing_zeros() / 8;
    if count == 0 || others == 0 {
        return None;
    }
    // The last digit in the highest byte, zeros before the first; then pairs, fours, all eight.
    let digits = digits << (64 - 8 * count);
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_FFFF_0000_FFFF;
    let all = fours.wrapping_mul(10_000 << 32 | 1) >> 32;
    Some((PoolId(all), count as usize))
}

/// As [`pass_word`], for what is long: thirty-two bytes at a time as far as nothing stops.
#[expect(clippy::inline_always, reason = "a part of `read`, with `first` known")]
#[inline(always)]
fn pass_text(text: &[u8], first: u8) -> Option<(&[u8], u8)> {
    let mut rest = text;
    while let Some((block, behind)) = rest.split_first_chunk::<32>() {
        let stops = |byte: &u8| *byte < first || *byte == b'\\' || !byte.is_ascii();
        // Without an early end, so that many are looked at at once.
        if block.iter().fold(false, |any, byte| any | stops(byte)) {
            break;
        }
        rest = behind;
    }
    pass_word(rest, first)
}

/// Passes ASCII that is neither less than `first` nor a backslash; gives the rest and what stops it.
#[expect(clippy::inline_always, reason = "as `pass_text`")]
#[inline(always)]
fn pass_word(text: &[u8], first: u8) -> Option<(&[u8], u8)> {
    let mut rest = text;
    while let Some((bytes, behind)) = rest.split_first_chunk() {
        let word = word(*bytes);
        let less = word.wrapping_sub(ONES * u64::from(first));
        let escapes = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
        // High bits mark bytes that stop, and perhaps bytes behind them: the first is right.
        let stops = (less | escapes | word) & HIGHS;
        if stops != 0 {
            rest = rest.get((stops.trailing_zeros() / 8) as usize..)?;
            return Some((rest, *rest.first()?));
        }
        rest = behind;
    }
    let stops = |byte: &u8| *byte < first || *byte == b'\\' || !byte.is_ascii();
    rest = rest.get(rest.iter().position(stops)?..)?;
    Some((rest, *rest.first()?))
}

#[inline]
fn word(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}
