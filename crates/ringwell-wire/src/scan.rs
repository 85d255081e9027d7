//! The fast reader of a body. It accepts the documented form in any style of JSON, and reads the
//! body in one pass.
//!
//! Rows in the style that most clients use refer to the body itself ([`usual`]). A separate
//! function reads rows in other styles, and appends their decoded strings to a copy of the body
//! ([`row`]). The JSON library reads the few remaining rows one by one. This reader gives up if the
//! body is malformed, is not a batch, or has too many rows. It also gives up if the name of the
//! member that contains the rows occurs twice or contains an escape. In all these cases,
//! [`crate::relaxed`] reads the body again, and produces the error if there is one. Invariant:
//! `relaxed` reads the same rows from every body that this reader accepts.

mod row;
mod scanner;
pub(crate) mod text;
mod usual;

use crate::relaxed;
use crate::row::{Limits, Row};
use scanner::Scanner;
use text::{after, blanks, plain};

/// The nesting depth of the body's members, which are within one object.
const MEMBER_DEPTH: usize = 1;

/// The result of reading a body, except for the rows.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// The text that the rows refer to: the body followed by the decoded strings. If nothing was
    /// decoded, this text is empty and the rows refer to the body itself.
    pub(crate) decoded: Vec<u8>,
    /// The offset before which queries need not be searched for `ring_pool_key` and
    /// `ringwell_visitor`.
    pub(crate) queries_from: usize,
}

/// Reads `body` into `rows`. Returns `None` if this reader cannot read the body, in which case some
/// rows may already have been added.
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
            // A name that contains an escape could stand for any name.
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
            // Leaves this error to the slow reader, because other errors in the body take
            // precedence over too many rows.
            if self.rows.len() == self.limits.rows_max {
                return None;
            }
            // Clients usually escape either all rows or none.
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
