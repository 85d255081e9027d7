//! A bulk request: bytes in, rows out.
//!
//! A batch is read in one pass ([`crate::scan`]), without copying unless its JSON has escapes;
//! invalid or unusual batches are read again by the JSON library ([`crate::relaxed`]). All rows are
//! read before any row is applied. A batch is reused for the next request: it allocates only to
//! grow, and for decoded text.

use bytes::{Buf as _, Bytes};

use crate::ask::{self, Ask};
use crate::error_class::{InputFault, RequestError, RowError};
use crate::span::Span;
use crate::{legacy, relaxed, scan};

/// The limits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most rows in a batch.
    pub rows_max: usize,
    /// The maximum number of bytes of one `api_suffix`.
    pub suffix_bytes_max: usize,
    /// The maximum number of bytes of one `request_id`, as JSON.
    pub request_id_bytes_max: usize,
    /// Whether to refuse rows without a parameter other than the key.
    pub strict_params: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rows_max: 500,
            suffix_bytes_max: 8192,
            request_id_bytes_max: 256,
            strict_params: false,
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The JSON value as sent, to be echoed unchanged.
    pub request_id: Option<Span>,
    /// Its request.
    pub ask: Result<Ask, RowError>,
}

/// Some Windows clients begin their JSON with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A batch, and the text that its rows refer to.
#[derive(Debug, Default)]
pub struct Batch {
    text: Bytes,
    rows: Vec<Row>,
}

impl Batch {
    /// Reads a body and skips a byte order mark before it.
    ///
    /// # Errors
    /// [`RequestError`] if it is not a batch. A fault in one row is recorded in the row.
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

    /// Reads the pool and the query of a single allocation as a batch of one row.
    pub fn parse_single(&mut self, pool: &str, query: &str, strict_params: bool) {
        let (text, ask) = legacy::parse(pool, query, strict_params);
        self.text = text.into();
        self.rows.clear();
        self.rows.push(Row { request_id: None, ask });
    }

    /// The text that the rows' spans point into: the body, or its decoded strings.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The rows, in request order.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Drops the text; keeps the memory for rows.
    pub fn clear(&mut self) {
        self.text = Bytes::new();
        self.rows.clear();
    }

    /// Few batches have visitors or repeated keys. One search of the whole text spares the other
    /// batches a search per row. The search begins at `from` in the text.
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

/// Reads one row's suffix within the limits.
#[expect(clippy::inline_always, reason = "measured: a call copies the row, 7 ns of 43")]
#[inline(always)]
pub(crate) fn parse_row(
    text: &[u8],
    request_id: Option<Span>,
    suffix: Option<Span>,
    limits: &Limits,
) -> Row {
    if request_id.is_some_and(|id| id.len() > limits.request_id_bytes_max) {
        let ask = Err(RowError::InvalidInput(InputFault::RequestId));
        return Row { request_id: None, ask };
    }
    let ask = match suffix {
        None => Err(RowError::InvalidInput(InputFault::NoSuffix)),
        Some(suffix) if suffix.len() > limits.suffix_bytes_max => {
            Err(RowError::InvalidInput(InputFault::SuffixLength))
        }
        Some(suffix) => ask::parse_suffix(text, suffix),
    };
    Row { request_id, ask }
}

#[cfg(test)]
mod tests;
