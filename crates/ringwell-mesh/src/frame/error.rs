//! The reason why a frame was refused.

use super::VERSION;

/// The first rule that a frame breaks. The texts are for an operator's log and never contain a
/// client's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another release wrote it. Nothing after the first byte was examined.
    #[error(
        "frame of link version {found}, but this release speaks versions 1 to {VERSION}: upgrade \
         the older of the two nodes"
    )]
    Version {
        /// The value in the frame.
        found: u8,
    },
    /// The frame has another kind.
    #[error("frame of kind {found} instead of kind {wanted}")]
    Kind {
        /// The value in the frame.
        found: u8,
        /// The field being read.
        wanted: u8,
    },
    /// It ends too early.
    #[error("frame is cut short: it ends after {bytes} bytes, within or before: {field}")]
    CutShort {
        /// Its length.
        bytes: usize,
        /// The field that could not be read.
        field: &'static str,
    },
    /// More rows, or numbers, than allowed.
    #[error("frame of {rows} rows; at most {rows_max} are accepted")]
    TooManyRows {
        /// The value in the frame.
        rows: u64,
        /// The limit.
        rows_max: usize,
    },
    /// A row's parameters are too long.
    #[error("row {row} has {bytes} bytes of parameters; at most {bytes_max} are accepted")]
    ParamsTooLong {
        /// The row's index in its batch.
        row: u16,
        /// The length of both parts and their separator.
        bytes: u64,
        /// The limit.
        bytes_max: usize,
    },
    /// A value that the field cannot have, or a second encoding of a valid value.
    #[error("frame has an impossible value before byte {offset}: {field}")]
    OutOfRange {
        /// The field with the value.
        field: &'static str,
        /// The offset after the value.
        offset: usize,
    },
    /// Bytes follow after the end of the frame.
    #[error("frame has {bytes} bytes too many")]
    LeftOver {
        /// The count.
        bytes: usize,
    },
    /// An answer with a different count of rows than requested.
    #[error("answer with {found} rows to a request with {wanted}")]
    RowCount {
        /// The value in the frame.
        found: u64,
        /// The requested count.
        wanted: usize,
    },
}
