//! Reads a row in the form that nearly every client writes, in one pass, sixteen bytes at a time.
//!
//! The form is `{"api_suffix":"ID/allocate_number.json?ring_pool_key=KEY…","request_id":…}`,
//! without white space or escapes. The last member may be missing; if present, it must be a string
//! or an integer. All other rows are left to [`super::row`], which reads suffixes of this form with
//! [`Reader::suffix`]. Invariant: [`crate::ask::parse_suffix`] reads the same request from every
//! suffix that this reader accepts.

use ringwell_core::PoolId;

use super::text::{FIRST_OF_KEY, after, pass, pass_params};
use crate::ask::Ask;
use crate::row::{Limits, Row};
use crate::span::Span;

/// The lowest byte that is skipped in a string. Control characters and `"` are lower and must not
/// be skipped. Spaces and `!` are lower too, although they could be skipped.
pub(super) const FIRST_OF_TEXT: u8 = b'#';

/// The text between the pool and the key. It is split into two pieces, so that each comparison is
/// inlined.
const BEFORE_KEY: (&[u8; 32], &[u8; 4]) = (b"/allocate_number.json?ring_pool_", b"key=");
/// The length of the part of [`BEFORE_KEY`] that precedes the query.
const BEFORE_QUERY: u32 = 22;

/// Reads the rows of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    limits: &'a Limits,
    /// The length of the body. An offset in the body is this length minus the length of the
    /// remaining text.
    end: u32,
}

impl<'a> Reader<'a> {
    /// Returns `None` if the body is longer than a span can express.
    pub(super) fn new(body: &[u8], limits: &'a Limits) -> Option<Self> {
        Some(Self { limits, end: u32::try_from(body.len()).ok()? })
    }

    /// Returns the offset of `rest`, which must extend to the end of the body.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`rest` is a part of the body, whose length fits into a u32"
    )]
    pub(super) fn place(self, rest: &[u8]) -> u32 {
        self.end.wrapping_sub(rest.len() as u32)
    }

    /// Returns the row at the beginning of `rest`, which extends to the end of the body. Also
    /// returns the text after the row.
    #[expect(
        clippy::inline_always,
        reason = "without inlining, each call copies the row, as measured for `parse_row`"
    )]
    #[inline(always)]
    pub(super) fn read(self, rest: &[u8]) -> Option<(Row, &[u8])> {
        let suffix = after(rest, br#"{"api_suffix":""#)?;
        let (ask, end) = self.suffix::<InBody>(suffix)?;
        let (request_id, behind) = self.request_id(end)?;
        Some((Row { request_id, ask: Ok(ask) }, behind))
    }

    /// Returns the request in the `api_suffix` at the beginning of `suffix`, and the text from its
    /// closing quote onward. `suffix` must extend to the end of the text.
    #[expect(clippy::inline_always, reason = "called for each row by `read`")]
    #[inline(always)]
    pub(super) fn suffix<P: Params>(self, suffix: &[u8]) -> Option<(Ask, &[u8])> {
        let (pool, digits) = parse_pool(suffix)?;
        let after_pool = suffix.get(digits..)?;
        let key = after(after(after_pool, BEFORE_KEY.0)?, BEFORE_KEY.1)?;
        let after_key = pass(key, FIRST_OF_KEY)?;
        let key_end = self.place(after_key);
        let (end, params, may_be_ours) = match after_key.first()? {
            b'"' => (after_key, key_end, false),
            b'&' => {
                let (end, may_be_ours) = P::pass(after_key)?;
                (end, key_end.wrapping_add(1), may_be_ours)
            }
            _ => return None,
        };
        if suffix.len() - end.len() > self.limits.suffix_bytes_max || end.first()? != &b'"' {
            return None;
        }
        let pool_end = self.place(after_pool);
        let query = pool_end.wrapping_add(BEFORE_QUERY);
        let ask = Ask {
            pool,
            pool_text: Span::between(self.place(suffix), pool_end),
            key: Span::between(self.place(key), key_end),
            params: [Span::between(query, query), Span::between(params, self.place(end))],
            visitor: None,
            key_is_escaped: false,
            is_settled: !may_be_ours,
        };
        Some((ask, end))
    }

    /// Returns the id as it was sent, if there is one, and the text after the row. `rest` must
    /// begin where the suffix ends.
    #[expect(clippy::inline_always, reason = "called for each row by `read`")]
    #[inline(always)]
    pub(super) fn request_id(self, rest: &[u8]) -> Option<(Option<Span>, &[u8])> {
        let Some(id) = after(rest, br#"","request_id":"#) else {
            return Some((None, after(rest, b"\"}")?));
        };
        let (end, behind) = match id.first()? {
            b'"' => {
                let end = pass(id.get(1..)?, FIRST_OF_TEXT)?;
                let behind = after(end, b"\"}")?;
                (self.place(end) + 1, behind)
            }
            b'1'..=b'9' => {
                let digits = id.iter().position(|byte| !byte.is_ascii_digit())?;
                let end = id.get(digits..)?;
                (self.place(end), after(end, b"}")?)
            }
            _ => return None,
        };
        let id = Span::between(self.place(id), end);
        (id.len() <= self.limits.request_id_bytes_max).then_some((Some(id), behind))
    }
}

/// A way of skipping parameters. This is a trait because closures and function pointers would be
/// called instead of inlined.
pub(super) trait Params {
    /// Skips the parameters at the beginning of `text`, which begins with the `&` before them. Also
    /// returns whether one of the parameters may be `ring_pool_key` or `ringwell_visitor`.
    fn pass(text: &[u8]) -> Option<(&[u8], bool)>;
}

/// Skips unescaped parameters in the body.
struct InBody;

impl Params for InBody {
    #[expect(clippy::inline_always, reason = "called for each row by `suffix`")]
    #[inline(always)]
    fn pass(text: &[u8]) -> Option<(&[u8], bool)> {
        pass_params(text, FIRST_OF_TEXT)
    }
}

/// Returns the pool's id, of one to seven digits, and the count of its digits.
#[inline]
pub(super) fn parse_pool(text: &[u8]) -> Option<(PoolId, usize)> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let digits = u64::from_le_bytes(*text.first_chunk()?) ^ (ONES * u64::from(b'0'));
    // The high bits mark the bytes that are not digits. They may also mark digits after such a
    // byte, so only the first mark counts.
    let others = (digits.wrapping_add(ONES * 0x76) | digits) & HIGHS;
    let count = others.trailing_zeros() / 8;
    if count == 0 || others == 0 {
        return None;
    }
    // Moves the last digit to the highest byte and fills the lower bytes with zeros. Then joins
    // digits into pairs, pairs into fours, and the fours into the whole id.
    let digits = digits << (64 - 8 * count);
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_FFFF_0000_FFFF;
    let all = fours.wrapping_mul(10_000 << 32 | 1) >> 32;
    Some((PoolId(all), count as usize))
}
