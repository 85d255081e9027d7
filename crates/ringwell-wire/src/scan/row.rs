//! Reads rows that are not in the usual style: with spaces, members in another order, unknown
//! members or escapes.
//!
//! A suffix with escapes is decoded, and the result is appended to the body's copy in
//! [`Scanner::decoded`]. The decoded suffix is then read like any other suffix. A row that this
//! reader cannot read is passed to [`crate::relaxed::row`], so that the JSON library reads only
//! this row and not the whole body. Invariant: `relaxed::row` reads the same row from every text
//! that this reader accepts.

use super::scanner::Scanner;
use super::text::{BLOCK, after, blanks, decode, number, pass, plain, string};
use super::usual::{self, FIRST_OF_TEXT, Params};
use crate::ask::{Ask, parse_query, parse_suffix, pool_path};
use crate::error_class::{InputFault, RowError};
use crate::relaxed;
use crate::row::{Limits, Row};
use crate::span::Span;

/// The maximum length in bytes of the prefix before the pool's id, in a suffix that is a path or
/// URL. Slower code reads longer prefixes.
const PREFIX_BYTES_MAX: usize = 256;
/// The nesting depth of a row, which is within an object and an array.
const ROW_DEPTH: usize = 2;
/// The bytes after a decoded suffix when it is read: an end mark, and padding that completes the
/// block with the mark.
const SENTINEL: [u8; BLOCK] = *b"\"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

impl<'a> Scanner<'a> {
    /// Reads the row at the beginning of `rest`, which extends to the end of the body. Returns the
    /// text after the row.
    #[inline(never)]
    pub(super) fn any_row(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let (rest, decoded_before) = (blanks(rest), self.decoded_end);
        let ask = Err(RowError::InvalidInput(InputFault::NoSuffix));
        let mut row = Row { request_id: None, ask };
        let behind = self.plain_row(rest, &mut row).or_else(|| {
            if decoded_before > 0 {
                self.decoded_end = decoded_before;
            }
            self.strange_row(rest, &mut row)
        });
        self.rows.push(row);
        behind
    }

    #[expect(clippy::inline_always, reason = "there is only one caller")]
    #[inline(always)]
    fn plain_row(&mut self, rest: &'a [u8], row: &mut Row) -> Option<&'a [u8]> {
        let mut rest = if let Some(text) = after(rest, br#"{"api_suffix":""#) {
            let end = self.suffix(text, &mut row.ask)?;
            if let Some((request_id, behind)) = self.usual.request_id(end) {
                row.request_id = request_id;
                return Some(behind);
            }
            end.get(1..)?
        } else {
            self.member(after(rest, b"{")?, row)?
        };
        loop {
            rest = match blanks(rest) {
                [b',', behind @ ..] => self.member(behind, row)?,
                [b'}', behind @ ..] => {
                    rest = behind;
                    break;
                }
                _ => return None,
            };
        }
        if row.request_id.is_some_and(|id| id.len() > self.limits.request_id_bytes_max) {
            let ask = Err(RowError::InvalidInput(InputFault::RequestId));
            *row = Row { request_id: None, ask };
        }
        Some(rest)
    }

    /// Reads one member, and the separators around it. If a member occurs twice, the last one
    /// counts.
    fn member(&mut self, rest: &'a [u8], row: &mut Row) -> Option<&'a [u8]> {
        let rest = blanks(rest);
        if let Some(behind) = after(rest, b"\"api_suffix\"") {
            return self.suffix(after(value(behind)?, b"\"")?, &mut row.ask)?.get(1..);
        }
        if let Some(behind) = after(rest, b"\"request_id\"") {
            let id = value(behind)?;
            let behind = after(id, b"\"").and_then(plain).and_then(|end| after(end, b"\""));
            let behind = behind.or_else(|| scalar(id))?;
            row.request_id = Some(Span::between(self.usual.place(id), self.usual.place(behind)));
            return Some(behind);
        }
        // A name that contains an escape may stand for a known name.
        let name = plain(after(rest, b"\"")?)?;
        let value = value(after(name, b"\"")?)?;
        scalar(value).or_else(|| Some(relaxed::raw(value, ROW_DEPTH + 1)?.1))
    }

    /// Reads the suffix at the beginning of `rest`. Returns the text from the suffix's closing
    /// quote onward.
    #[inline(never)]
    fn suffix(&mut self, rest: &'a [u8], ask: &mut Result<Ask, RowError>) -> Option<&'a [u8]> {
        if !self.has_escapes {
            if let Some((found, end)) = suffix::<Plain>(self.usual, self.limits, rest) {
                self.is_unsettled |= !found.is_settled;
                *ask = Ok(found);
                return Some(end);
            }
            if let Some((found, end)) = self.ordinary_suffix(rest) {
                *ask = Ok(found);
                return Some(end);
            }
            let end = plain(rest)?;
            if *end.first()? == b'"' {
                let span = Span::between(self.usual.place(rest), self.usual.place(end));
                *ask = self.parse_suffix(span);
                return Some(end);
            }
        }
        self.has_escapes = true;
        self.decoded();
        let start = self.decoded_end;
        let (behind, end) = decode(rest, &mut self.decoded, start)?;
        self.decoded_end = end;
        self.decoded.get_mut(end..)?.first_chunk_mut().map(|behind| *behind = SENTINEL)?;
        let text = &self.decoded[..end + SENTINEL.len()];
        let usual = usual::Reader::new(text, self.limits)?;
        match suffix::<Decoded>(usual, self.limits, &text[start..]) {
            Some((found, behind)) if behind.len() == SENTINEL.len() => *ask = Ok(found),
            _ => *ask = self.parse_suffix(Span::new(start, end)),
        }
        Some(behind)
    }

    /// Reads a suffix whose key may be anywhere in the query. The extension need not be `.json`,
    /// and the suffix may be a path or URL. The suffix must have no spaces around it.
    #[expect(clippy::inline_always, reason = "there is only one caller")]
    #[inline(always)]
    fn ordinary_suffix(&self, suffix: &'a [u8]) -> Option<(Ask, &'a [u8])> {
        let end = plain(suffix)?;
        let text = &suffix[..suffix.len() - end.len()];
        if *end.first()? != b'"' || !self.is_within_limits(text) {
            return None;
        }
        let has_pool_first = text.first().is_some_and(u8::is_ascii_digit);
        let bare = if has_pool_first { text } else { pool_path(text) };
        let (pool, digits) = usual::parse_pool(bare)?;
        let after_pool = bare.get(digits..)?;
        let behind = after(after_pool, b"/allocate_number")?;
        let query = after(behind, b".json?")
            .or_else(|| after(behind, b".xml?"))
            .or_else(|| after(behind, b".csv?"))
            .or_else(|| after(behind, b"?"))?;
        let text_end = Span::between(self.usual.place(suffix), self.usual.place(end)).end();
        let place = |rest: &[u8]| text_end - rest.len();
        let pool_text = Span::new(place(bare), place(after_pool));
        let ask = parse_query(self.body, Span::new(place(query), text_end), pool, pool_text);
        (!ask.key_is_escaped).then_some((ask, end))
    }

    /// Whether a suffix is short enough and does not end with a space, which would have to be
    /// ignored.
    fn is_within_limits(&self, suffix: &[u8]) -> bool {
        let has_blank = suffix.last().is_none_or(u8::is_ascii_whitespace);
        suffix.len() <= self.limits.suffix_bytes_max && !has_blank
    }

    /// Like [`crate::ask::parse_suffix`], but checks the limits and decodes the key.
    #[inline(never)]
    fn parse_suffix(&mut self, at: Span) -> Result<Ask, RowError> {
        if at.len() > self.limits.suffix_bytes_max {
            return Err(RowError::InvalidInput(InputFault::SuffixLength));
        }
        let text = if self.decoded.is_empty() { self.body } else { &self.decoded };
        let mut ask = parse_suffix(text, at)?;
        if ask.key_is_escaped {
            self.append(|text| ask.decode_key(text));
        }
        Ok(ask)
    }

    /// Reads one row with the JSON library.
    #[inline(never)]
    fn strange_row(&mut self, rest: &'a [u8], row: &mut Row) -> Option<&'a [u8]> {
        let (raw, behind) = relaxed::raw(rest, ROW_DEPTH)?;
        let limits = self.limits;
        *row = self.append(|text| relaxed::row(raw, limits, text));
        Some(behind)
    }

    /// Copies the body to the beginning of [`Scanner::decoded`], if that buffer is still empty.
    #[inline]
    fn decoded(&mut self) {
        if self.decoded.is_empty() {
            self.decoded.reserve(2 * self.body.len());
            self.decoded.extend_from_slice(self.body);
            self.decoded_end = self.body.len();
        }
    }

    /// Lets `write` append to the decoded text.
    fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.decoded();
        self.decoded.truncate(self.decoded_end);
        let written = write(&mut self.decoded);
        self.decoded_end = self.decoded.len();
        written
    }
}

/// Skips parameters in plain text.
struct Plain;

impl Params for Plain {
    #[inline]
    fn pass(text: &[u8]) -> Option<(&[u8], bool)> {
        Some((plain(text)?, true))
    }
}

/// Skips decoded parameters, which end at the sentinel.
struct Decoded;

impl Params for Decoded {
    #[inline]
    fn pass(text: &[u8]) -> Option<(&[u8], bool)> {
        Some((text.get(text.len().checked_sub(SENTINEL.len())?..)?, true))
    }
}

/// Reads a suffix in the usual form, which may have a prefix before the pool's id.
#[expect(clippy::inline_always, reason = "a call would copy the result")]
#[inline(always)]
fn suffix<'a, P: Params>(
    usual: usual::Reader<'_>,
    limits: &Limits,
    text: &'a [u8],
) -> Option<(Ask, &'a [u8])> {
    let bare = match text.first()? {
        b'0'..=b'9' => text,
        b'r' => after(text, b"ring_pools/")?,
        _ => behind_prefix(text)?,
    };
    let (ask, end) = usual.suffix::<P>(bare)?;
    let text = &text[..text.len() - end.len()];
    // Slower code removes the spaces at the end of a suffix.
    let is_usual = text.len() <= limits.suffix_bytes_max && !text.last()?.is_ascii_whitespace();
    is_usual.then_some((ask, end))
}

/// Skips the prefix before the pool's id, and returns the rest. Returns `None` if the prefix
/// contains an escape or if the string ends with the prefix.
#[inline(never)]
fn behind_prefix(text: &[u8]) -> Option<&[u8]> {
    let head = text.get(..PREFIX_BYTES_MAX).unwrap_or(text);
    let prefix = head.len() - pool_path(head).len();
    if prefix == head.len() {
        return None;
    }
    // Whole blocks can be checked, because the pool's id and the rest of the path follow the
    // prefix.
    let head = text.get(..prefix.next_multiple_of(BLOCK))?;
    if pass(head, FIRST_OF_TEXT).is_some() { None } else { text.get(prefix..) }
}

/// Returns the text after a member's name, the colon and the spaces around the colon.
#[inline]
fn value(rest: &[u8]) -> Option<&[u8]> {
    after(blanks(rest), b":").map(blanks)
}

/// Skips a value that is neither an object nor an array.
pub(super) fn scalar(rest: &[u8]) -> Option<&[u8]> {
    match rest.first()? {
        b'"' => string(&rest[1..]),
        b't' => after(rest, b"true"),
        b'f' => after(rest, b"false"),
        b'n' => after(rest, b"null"),
        _ => number(rest),
    }
}
