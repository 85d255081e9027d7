//! The fast way through a body: the documented shape, read in one pass without copying.
//!
//! Takes any white space, any order of members, and one stranger with a simple value among them.
//! Gives up on whatever is unusual (an escape, more strangers, a key that must be decoded, any
//! fault at all): the careful way then reads the whole body again and finds the words for it.
//! Invariant: what it accepts, `relaxed` reads as the same rows.

mod usual;

use memchr::memchr2;

use crate::batch::{Limits, Row, parse_row};
use crate::span::Span;

/// What is less must be escaped in a JSON string.
const FIRST_TEXT: u8 = 0x20;

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
    usual: usual::Reader<'a>,
}

/// What a member of a row is called.
enum Name {
    Suffix,
    RequestId,
    Other,
}

/// Reads `body` into `rows`; `None` if it is not for this reader, with some rows read perhaps.
pub(crate) fn scan(body: &[u8], limits: &Limits, rows: &mut Vec<Row>) -> Option<()> {
    let usual = usual::Reader::new(body, limits)?;
    Scanner { body, at: 0, usual }.body(limits, rows)
}

/// Whether this may stand in a string: UTF-8 without control characters. What stands between strings
/// is looked at byte by byte.
fn is_text(text: &[u8]) -> bool {
    // Without an early end, so that many are looked at at once.
    let (least, greatest) = text
        .iter()
        .fold((u8::MAX, 0), |(least, greatest), byte| (least.min(*byte), greatest.max(*byte)));
    least >= FIRST_TEXT && (greatest.is_ascii() || std::str::from_utf8(text).is_ok())
}

/// Where a string ends, or its first escape begins. Short strings are over before the wide search
/// of long ones has begun: their first eight bytes are looked at on the spot.
#[inline]
fn find_end(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    // High bits mark the bytes that are zero, and perhaps some that follow: the first is right.
    let zeroes = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    if let Some(bytes) = text.first_chunk() {
        let word = u64::from_le_bytes(*bytes);
        let ends = zeroes(word ^ u64::from_le_bytes([b'"'; 8]))
            | zeroes(word ^ u64::from_le_bytes([b'\\'; 8]));
        if ends != 0 {
            return Some((ends.trailing_zeros() / 8) as usize);
        }
    }
    memchr2(b'"', b'\\', text)
}

impl Scanner<'_> {
    fn body(&mut self, limits: &Limits, rows: &mut Vec<Row>) -> Option<()> {
        let (mut has_rows, mut has_other) = (false, false);
        self.expect(b'{')?;
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            match name.of(self.body) {
                b"requests" if !has_rows => {
                    self.rows(limits, rows)?;
                    has_rows = true;
                }
                b"requests" | b"request" => return None,
                // One stranger cannot be there twice.
                _ if !has_other => {
                    self.scalar()?;
                    has_other = true;
                }
                _ => return None,
            }
            if !self.goes_on(b'}')? {
                break;
            }
        }
        (has_rows && self.next().is_none()).then_some(())
    }

    fn rows(&mut self, limits: &Limits, rows: &mut Vec<Row>) -> Option<()> {
        self.expect(b'[')?;
        loop {
            // The careful way says what is wrong, also if more is wrong than the count.
            if rows.len() == limits.rows_max {
                return None;
            }
            self.row(limits, rows)?;
            if !self.goes_on(b']')? {
                return Some(());
            }
        }
    }

    #[inline]
    fn row(&mut self, limits: &Limits, rows: &mut Vec<Row>) -> Option<()> {
        if let Some((row, behind)) = self.usual.read(self.body.get(self.at..)?) {
            self.at = self.body.len() - behind.len();
            rows.push(row);
            return Some(());
        }
        let (suffix, request_id) = self.any_row()?;
        let row = parse_row(self.body, request_id, suffix, limits);
        let is_escaped = row.ask.as_ref().is_ok_and(|ask| ask.key_is_escaped);
        rows.push(row);
        (!is_escaped).then_some(())
    }

    fn any_row(&mut self) -> Option<(Option<Span>, Option<Span>)> {
        self.expect(b'{')?;
        let (mut suffix, mut request_id, mut has_other) = (None, None, false);
        loop {
            match self.name()? {
                // A suffix that is no string is for the careful way, like members there twice.
                Name::Suffix if suffix.is_none() => suffix = Some(self.string()?),
                Name::RequestId if request_id.is_none() => request_id = Some(self.scalar()?),
                Name::Other if !has_other => {
                    self.scalar()?;
                    has_other = true;
                }
                _ => return None,
            }
            if !self.goes_on(b'}')? {
                return Some((suffix, request_id));
            }
        }
    }

    /// The name of a row's member, with its colon.
    fn name(&mut self) -> Option<Name> {
        let name = self.string()?;
        self.expect(b':')?;
        Some(match name.of(self.body) {
            b"api_suffix" => Name::Suffix,
            b"request_id" => Name::RequestId,
            _ => Name::Other,
        })
    }

    /// Passes the comma before another member, or the `end` after the last.
    #[inline]
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        let next = self.next()?;
        self.at += 1;
        (next == b',' || next == end).then_some(next == b',')
    }

    /// A simple value as it stands there, a string with its quotes.
    #[inline]
    fn scalar(&mut self) -> Option<Span> {
        match self.next()? {
            b'"' => self.string().map(|text| Span::new(text.start() - 1, text.end() + 1)),
            b'0'..=b'9' => self.integer(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<Span> {
        let start = self.at;
        self.at += word.len();
        (self.body.get(start..self.at)? == word).then(|| Span::new(start, self.at))
    }

    /// Digits without a leading zero; other numbers are for the careful way.
    fn integer(&mut self) -> Option<Span> {
        let start = self.at;
        let digits = self.body[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        let is_plain = digits == 1 || self.body[start] != b'0';
        let ends = !matches!(self.body.get(self.at), Some(b'.' | b'e' | b'E'));
        (is_plain && ends).then(|| Span::new(start, self.at))
    }

    /// A string without escapes; the span is without the quotes.
    #[inline]
    fn string(&mut self) -> Option<Span> {
        self.expect(b'"')?;
        let start = self.at;
        let rest = &self.body[start..];
        let length = find_end(rest)?;
        let text = &rest[..length];
        if rest[length] == b'\\' || !is_text(text) {
            return None;
        }
        let end = start + length;
        self.at = end + 1;
        Some(Span::new(start, end))
    }

    /// The next byte that is not white space; stays on it.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.body.get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, wanted: u8) -> Option<()> {
        let is_there = self.next()? == wanted;
        self.at += 1;
        is_there.then_some(())
    }
}
