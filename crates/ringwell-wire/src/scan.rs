//! The fast way through a body: the documented shape, read in one pass without copying.
//!
//! Takes any white space and any order of members. Gives up on whatever is unusual (an escape,
//! a member that it does not know with more than a simple value, a key that must be decoded, any
//! fault at all): the careful way then reads the whole body again and finds the words for it.
//! Invariant: what it accepts, `relaxed` reads as the same rows.

use memchr::memchr2;

use crate::batch::{Limits, Row, parse_row};
use crate::span::Span;

/// What became of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All rows were read.
    Read,
    /// The rest was not read.
    TooManyRows,
    /// Not for this reader.
    Unusual,
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
    /// Control characters stand somewhere: strings must be searched for them.
    has_control: bool,
}

/// A value that may be skipped or echoed.
enum Scalar {
    Text(Span),
    Other(Span),
}

/// Reads `body` into `rows`.
pub(crate) fn scan(body: &[u8], limits: &Limits, rows: &mut Vec<Row>) -> Verdict {
    if std::str::from_utf8(body).is_err() {
        return Verdict::Unusual;
    }
    // Without an early end, so that many bytes are looked at at once.
    let has_control = body.iter().filter(|byte| **byte < 0x20).count() > 0;
    let mut scanner = Scanner { body, at: 0, has_control };
    scanner.body(limits, rows).unwrap_or(Verdict::Unusual)
}

impl Scanner<'_> {
    fn body(&mut self, limits: &Limits, rows: &mut Vec<Row>) -> Option<Verdict> {
        self.expect(b'{')?;
        let name = self.string()?;
        if name.of(self.body) != b"requests" {
            return None;
        }
        self.expect(b':')?;
        self.expect(b'[')?;
        if self.next()? == b']' {
            return None;
        }
        loop {
            if rows.len() == limits.rows_max {
                return Some(Verdict::TooManyRows);
            }
            rows.push(self.row(limits)?);
            match self.next()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
        }
        self.at += 1;
        self.expect(b'}')?;
        self.skip_white();
        (self.at == self.body.len()).then_some(Verdict::Read)
    }

    fn row(&mut self, limits: &Limits) -> Option<Row> {
        self.expect(b'{')?;
        let (mut suffix, mut request_id) = (None, None);
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            let value = self.scalar()?;
            match (name.of(self.body), value) {
                (b"api_suffix", Scalar::Text(value)) if suffix.is_none() => suffix = Some(value),
                (b"request_id", value) if request_id.is_none() => {
                    request_id = Some(match value {
                        // With its quotes.
                        Scalar::Text(text) => Span::new(text.start() - 1, text.end() + 1),
                        Scalar::Other(raw) => raw,
                    });
                }
                // Unknown members, doubled ones, and a suffix that is no string.
                _ => return None,
            }
            match self.next()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        self.at += 1;
        let row = parse_row(self.body, request_id, suffix, limits);
        // A key that must be decoded before it can be compared.
        let needs_decoding = |byte: &u8| matches!(byte, b'%' | b'+');
        let key = row.ask.map(|ask| ask.key).unwrap_or_default();
        (!key.of(self.body).iter().any(needs_decoding)).then_some(row)
    }

    #[inline]
    fn scalar(&mut self) -> Option<Scalar> {
        match self.next()? {
            b'"' => self.string().map(Scalar::Text),
            b'0'..=b'9' => self.integer().map(Scalar::Other),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<Scalar> {
        let start = self.at;
        self.at += word.len();
        (self.body.get(start..self.at)? == word).then(|| Scalar::Other(Span::new(start, self.at)))
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
        let length = memchr2(b'"', b'\\', &self.body[start..])?;
        let end = start + length;
        if self.body[end] == b'\\' {
            return None;
        }
        if self.has_control && self.body[start..end].iter().any(|byte| *byte < 0x20) {
            return None;
        }
        self.at = end + 1;
        Some(Span::new(start, end))
    }

    /// The next byte that is not white space; stays on it.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        self.skip_white();
        self.body.get(self.at).copied()
    }

    #[inline]
    fn expect(&mut self, wanted: u8) -> Option<()> {
        let is_there = self.next()? == wanted;
        self.at += 1;
        is_there.then_some(())
    }

    #[inline]
    fn skip_white(&mut self) {
        while matches!(self.body.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }
}
