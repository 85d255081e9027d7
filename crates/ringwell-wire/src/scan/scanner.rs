//! The state of the fast reader.

use super::usual::Reader;
use crate::row::{Limits, Row};

/// Reads the rows of one body.
pub(super) struct Scanner<'a> {
    pub(super) body: &'a [u8],
    pub(super) limits: &'a Limits,
    pub(super) usual: Reader<'a>,
    pub(super) rows: &'a mut Vec<Row>,
    /// See [`super::Scanned::decoded`]. This buffer is longer than its contents, so that whole blocks can
    /// be written.
    pub(super) decoded: Vec<u8>,
    /// The end of the decoded strings in `decoded`.
    pub(super) decoded_end: usize,
    /// Whether a suffix contained an escape. If so, the next suffix is decoded without trying the
    /// fast path first.
    pub(super) has_escapes: bool,
    /// Whether suffixes in the body must be searched for `ring_pool_key` and `ringwell_visitor`.
    pub(super) is_unsettled: bool,
}
