//! The reasons why a group is unavailable.

use std::path::PathBuf;

use super::files::FileError;
use super::log::error::Unreached;

/// The reason why a group is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The group is not stored yet.
    #[error("group {0} is not stored yet")]
    NotYet(u64),
    /// The group was dropped together with history that was too old.
    #[error("group {0} is no longer kept")]
    Gone(u64),
    /// The group was stored, but its bytes have changed since.
    #[error("group {n} is damaged, in {} at offset {offset}", path.display())]
    Damaged {
        /// The group.
        n: u64,
        /// The segment's file.
        path: PathBuf,
        /// The group's offset in the file.
        offset: u64,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The log that contains the group does not answer.
    #[error(transparent)]
    Log(Unreached),
    /// The log contains something else where the group should be.
    #[error("group {0} is damaged in the journal's log")]
    LogDamaged(u64),
}
