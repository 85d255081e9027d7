//! The reason why a frame was refused.

use super::version::VERSION;

/// The first rule that a frame breaks. The error texts are meant for the operator's log, and never
/// contain a client's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame's version is not one that this release reads. Nothing after the first byte was
    /// checked.
    #[error(
        "frame of link version {found}, but this release speaks versions 1 to {VERSION}: upgrade \
         the older of the two nodes"
    )]
    Version {
        /// The version of the frame.
        found: u8,
    },
    /// The frame is not of the expected kind.
    #[error("frame of kind {found} instead of kind {wanted}")]
    Kind {
        /// The kind of the frame.
        found: u8,
        /// The kind that was expected.
        wanted: u8,
    },
    /// The frame ends too early.
    #[error(
        "frame is cut short: it ends after {bytes} bytes, before the end of this field: {field}"
    )]
    CutShort {
        /// Its length.
        bytes: usize,
        /// The field that could not be read.
        field: &'static str,
    },
    /// The frame has more rows, or numbers, than allowed.
    #[error("frame of {rows} rows; at most {rows_max} are accepted")]
    TooManyRows {
        /// The number of rows in the frame.
        rows: u64,
        /// The limit.
        rows_max: usize,
    },
    /// A row's parameters are too long.
    #[error("row {row} has {bytes} bytes of parameters; at most {bytes_max} are accepted")]
    ParamsTooLong {
        /// The row's index in its batch.
        row: u16,
        /// The length of the row's parameters: both parts, and the separator between them.
        bytes: u64,
        /// The limit.
        bytes_max: usize,
    },
    /// A value that the field cannot have, or a valid value in a longer encoding than necessary.
    #[error("frame has an invalid value, detected at byte {offset}: {field}")]
    OutOfRange {
        /// The field that contains the value.
        field: &'static str,
        /// The offset in the frame just after the value.
        offset: usize,
    },
    /// There are bytes after the end of the frame.
    #[error("frame has {bytes} bytes too many")]
    LeftOver {
        /// The count.
        bytes: usize,
    },
    /// The number of rows in the answer differs from that in the request.
    #[error("answer with {found} rows to a request with {wanted}")]
    RowCount {
        /// The number of rows in the answer.
        found: u64,
        /// The requested count.
        wanted: usize,
    },
}
