//! A bulk request, read from bytes into rows.
//!
//! A batch is read in one pass ([`crate::scan`]), without copying unless its JSON contains escapes.
//! The JSON library reads invalid or unusual batches again ([`crate::relaxed`]). All rows are read
//! before the first number is allocated. A `Batch` is reused for the next request. It allocates
//! memory only to grow, and for decoded text.

use bytes::{Buf as _, Bytes};

use crate::ask;
use crate::error_class::{InputFault, RequestError, RowError};
use crate::row::{Limits, Row};
use crate::{legacy, relaxed, scan};

/// The UTF-8 byte order mark, which some Windows clients send before their JSON.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A batch, with the text that its rows refer to.
#[derive(Debug, Default)]
pub struct Batch {
    text: Bytes,
    rows: Vec<Row>,
}

impl Batch {
    /// Reads a body. Skips a byte order mark at its beginning.
    ///
    /// # Errors
    /// [`RequestError`] if the body is not a batch. A fault in a single row is recorded in that
    /// row.
    pub fn parse(&mut self, mut body: Bytes, limits: &Limits) -> Result<(), RequestError> {
        if body.starts_with(BYTE_ORDER_MARK) {
            body.advance(BYTE_ORDER_MARK.len());
        }
        self.rows.clear();
        let mut queries_from = 0;
        if let Some(scanned) = scan::scan(&body, limits, &mut self.rows) {
            let is_plain = scanned.decoded.is_empty();
            self.text = if is_plain { body } else { scanned.decoded.into() };
            queries_from = scanned.queries_from;
        } else {
            self.rows.clear();
            self.text = relaxed::parse(&body, limits, &mut self.rows)?;
        }
        if self.rows.is_empty() {
            return Err(RequestError::NoRows);
        }
        self.settle(queries_from);
        if limits.strict_params {
            self.require_params();
        }
        Ok(())
    }

    /// Reads the pool and the query of a single allocation, as a batch of one row.
    pub fn parse_single(&mut self, pool: &str, query: &str, strict_params: bool) {
        let (text, ask) = legacy::parse(pool, query, strict_params);
        self.text = text.into();
        self.rows.clear();
        self.rows.push(Row { request_id: None, ask });
    }

    /// The text that the rows' spans refer to: the body, or a buffer that contains decoded strings.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The rows, in request order.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Drops the text, and keeps the memory for rows.
    pub fn clear(&mut self) {
        self.text = Bytes::new();
        self.rows.clear();
    }

    /// Searches the rows' queries for visitors and repeated keys. Few batches contain either. For
    /// all other rows, a single search of the text from the offset `from` onward shows that none of
    /// them needs to be searched.
    fn settle(&mut self, from: usize) {
        if !ask::has_mark(self.text.get(from..).unwrap_or_default()) {
            return;
        }
        let mut is_escaped = false;
        for ask in self.rows.iter_mut().filter_map(|row| row.ask.as_mut().ok()) {
            ask.settle(&self.text);
            is_escaped |= ask.key_is_escaped;
        }
        if is_escaped {
            let mut text = std::mem::take(&mut self.text).into();
            for ask in self.rows.iter_mut().filter_map(|row| row.ask.as_mut().ok()) {
                ask.decode_key(&mut text);
            }
            self.text = text.into();
        }
    }

    fn require_params(&mut self) {
        for row in &mut self.rows {
            if row.ask.is_ok_and(|ask| !ask.has_params(&self.text)) {
                row.ask = Err(RowError::InvalidInput(InputFault::NoParameter));
            }
        }
    }
}

#[cfg(test)]
mod tests;
