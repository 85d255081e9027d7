//! Reads a row in the form that nearly every client writes, in one pass, sixteen bytes at a time.
//!
//! The form is `{"api_suffix":"ID/allocate_number.json?ring_pool_key=KEY…","request_id":…}`,
//! without white space and escapes; the last member may be absent and is otherwise a string or an
//! integer. Everything else is left to [`super::row`], which reads the same suffixes with
//! [`Reader::suffix`]. Invariant: for every suffix that this reader accepts,
//! [`crate::ask::parse_suffix`] returns the same request.

use ringwell_core::PoolId;

use super::text::{FIRST_OF_KEY, after, pass, pass_params};
use crate::ask::Ask;
use crate::batch::{Limits, Row};
use crate::span::Span;

/// Skipped bytes of a string are at least this, except for spaces and `!`: control characters and
/// `"` are less.
pub(super) const FIRST_OF_TEXT: u8 = b'#';

/// The text between the pool and the key, in two pieces that are each compared without a call.
const BEFORE_KEY: (&[u8; 32], &[u8; 4]) = (b"/allocate_number.json?ring_pool_", b"key=");
/// The length of its part before the query.
const BEFORE_QUERY: u32 = 22;

/// Reads the rows of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    limits: &'a Limits,
    /// The end of the body: offsets in it are computed from the length of the rest.
    end: u32,
}

impl<'a> Reader<'a> {
    /// `None` if the body is longer than spans can express.
    pub(super) fn new(body: &[u8], limits: &'a Limits) -> Option<Self> {
        Some(Self { limits, end: u32::try_from(body.len()).ok()? })
    }

    /// The offset of `rest`, which reaches to the end of the body.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it is no longer than the body")]
    pub(super) fn place(self, rest: &[u8]) -> u32 {
        self.end.wrapping_sub(rest.len() as u32)
    }

    /// The row at the beginning of `rest`, which reaches to the end of the body, and the text after
    /// it.
    #[expect(
        clippy::inline_always,
        reason = "as `parse_row`, where it is measured: a call copies the row"
    )]
    #[inline(always)]
    pub(super) fn read(self, rest: &[u8]) -> Option<(Row, &[u8])> {
        let suffix = after(rest, br#"{"api_suffix":""#)?;
        let (ask, end) = self.suffix::<InBody>(suffix)?;
        let (request_id, behind) = self.request_id(end)?;
        Some((Row { request_id, ask: Ok(ask) }, behind))
    }

    /// The request of the suffix at the beginning of `suffix`, which reaches to the end of the
    /// text; and the text after it, which begins with its closing quote.
    #[expect(clippy::inline_always, reason = "a part of `read`")]
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

    /// The id as sent, if there is one; and the text after the row. `rest` begins where the suffix
    /// ends.
    #[expect(clippy::inline_always, reason = "a part of `read`")]
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

/// Ways of skipping parameters. A trait rather than a closure or function pointer, because those
/// would be called instead of inlined.
pub(super) trait Params {
    /// Skips the parameters at the beginning of `text`, from the `&` before them on; also reports
    /// whether one of them may be ours.
    fn pass(text: &[u8]) -> Option<(&[u8], bool)>;
}

/// Unescaped parameters in the body.
struct InBody;

impl Params for InBody {
    #[expect(clippy::inline_always, reason = "a part of `read`")]
    #[inline(always)]
    fn pass(text: &[u8]) -> Option<(&[u8], bool)> {
        pass_params(text, FIRST_OF_TEXT)
    }
}

/// A number of one to seven digits, and the count of its digits.
#[inline]
pub(super) fn parse_pool(text: &[u8]) -> Option<(PoolId, usize)> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let digits = u64::from_le_bytes(*text.first_chunk()?) ^ (ONES * u64::from(b'0'));
    // High bits mark bytes that are not digits, and possibly also bytes after them: the first mark
    // is right.
    let others = (digits.wrapping_add(ONES * 0x76) | digits) & HIGHS;
    let count = others.trailing_zeros() / 8;
    if count == 0 || others == 0 {
        return None;
    }
    // Moves the last digit to the highest byte, after zeros; joins pairs, then fours, then all.
    let digits = digits << (64 - 8 * count);
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_FFFF_0000_FFFF;
    let all = fours.wrapping_mul(10_000 << 32 | 1) >> 32;
    Some((PoolId(all), count as usize))
}
