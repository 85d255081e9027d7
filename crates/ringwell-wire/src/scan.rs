//! The fast way through a body: the documented shape, in any style of JSON, read in one pass.
//!
//! Rows as most clients write them point into the body ([`usual`]); a row of another style is read
//! out of line, its escapes decoded behind the body ([`row`]); a row that is unusual beyond that is
//! read by the JSON library, alone. Gives up only where the body is not well-formed, no batch, or
//! names its rows by an escape or twice: [`crate::relaxed`] then reads it again and finds the
//! words. Invariant: `relaxed` reads every body that it accepts as the same rows.

mod row;
mod text;
mod usual;

use crate::batch::{Limits, Row};
use crate::relaxed;
use text::{after, blanks, plain};

/// A member of the body is within the body's object.
const MEMBER_DEPTH: usize = 1;

/// The body's members beside the rows.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// The text that the rows point into: the body, and behind it the decoded strings. Empty if
    /// nothing was: then they point into the body itself.
    pub(crate) decoded: Vec<u8>,
    /// Before this place no query has to be looked through for our parameters.
    pub(crate) queries_from: usize,
}

/// Reads the rows of one body.
struct Scanner<'a> {
    body: &'a [u8],
    limits: &'a Limits,
    usual: usual::Reader<'a>,
    rows: &'a mut Vec<Row>,
    /// See [`Scanned::decoded`]; longer, so that whole blocks can be written.
    decoded: Vec<u8>,
    /// The end of the decoded strings.
    decoded_end: usize,
    /// A suffix had an escape: the next one is decoded at once.
    has_escapes: bool,
    /// A suffix that is in the body has to be looked through for our parameters.
    is_unsettled: bool,
}

/// Reads `body` into `rows`; `None` if it is not for this reader, with some rows read perhaps.
pub(crate) fn scan(body: &[u8], limits: &Limits, rows: &mut Vec<Row>) -> Option<Scanned> {
    let usual = usual::Reader::new(body, limits)?;
    let mut scanner = Scanner {
        body,
        limits,
        usual,
        rows,
        decoded: Vec::new(),
        decoded_end: 0,
        has_escapes: false,
        is_unsettled: false,
    };
    scanner.body()?;
    scanner.decoded.truncate(scanner.decoded_end);
    let queries_from = if scanner.is_unsettled { 0 } else { body.len() };
    Some(Scanned { decoded: scanner.decoded, queries_from })
}

impl<'a> Scanner<'a> {
    fn body(&mut self) -> Option<()> {
        let mut rest = after(blanks(self.body), b"{")?;
        let mut has_rows = false;
        loop {
            let name = after(blanks(rest), b"\"")?;
            let behind = plain(name)?;
            let name = &name[..name.len() - behind.len()];
            // A name with an escape may mean anything.
            rest = blanks(after(blanks(after(behind, b"\"")?), b":")?);
            rest = match name {
                b"requests" | b"request" if has_rows => return None,
                b"requests" | b"request" => {
                    has_rows = true;
                    self.rows(rest)?
                }
                _ => row::scalar(rest)
                    .or_else(|| relaxed::raw(rest, MEMBER_DEPTH).map(|(_, behind)| behind))?,
            };
            match blanks(rest) {
                [b',', behind @ ..] => rest = behind,
                [b'}', behind @ ..] => {
                    return (has_rows && blanks(behind).is_empty()).then_some(());
                }
                _ => return None,
            }
        }
    }

    fn rows(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let mut rest = after(rest, b"[")?;
        loop {
            // The careful way reports the error, also if the count is not the only one.
            if self.rows.len() == self.limits.rows_max {
                return None;
            }
            // Clients escape all rows or none.
            let usual = if self.has_escapes { None } else { self.usual.read(rest) };
            rest = match usual {
                Some((row, behind)) => {
                    self.is_unsettled |= matches!(&row.ask, Ok(ask) if !ask.is_settled);
                    self.rows.push(row);
                    behind
                }
                None => self.any_row(rest)?,
            };
            match blanks(rest) {
                [b',', behind @ ..] => rest = behind,
                [b']', behind @ ..] => return Some(behind),
                _ => return None,
            }
        }
    }
}
