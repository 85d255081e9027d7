//! The lock that keeps two processes out of one data directory.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::file::{Context, FileError, create_directory};

/// Holds a data directory for this process until it is dropped.
#[derive(Debug)]
pub struct DataLock {
    /// The lock goes with the open file; also when the process dies.
    _file: File,
}

/// The data directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process serves from it.
    #[error("{} is in use by process {pid}: stop that first", path.display())]
    Held {
        /// The lock's file.
        path: PathBuf,
        /// What the file says of its owner.
        pid: String,
    },
    /// The lock's file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DataLock {
    /// Makes the directory if it is not there, and takes its lock.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn acquire(data: &Path) -> Result<Self, LockError> {
        create_directory(data)?;
        let path = data.join("LOCK");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .context("open", &path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path).unwrap_or_default();
                let pid = match pid.trim() {
                    "" => "of unknown number".to_owned(),
                    number => number.to_owned(),
                };
                return Err(LockError::Held { path, pid });
            }
            Err(TryLockError::Error(error)) => Err(error).context("lock", &path)?,
        }
        file.set_len(0).context("write", &path)?;
        writeln!(file, "{}", std::process::id()).context("write", &path)?;
        Ok(Self { _file: file })
    }
}
