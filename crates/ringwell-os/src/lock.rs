//! Locks that prevent two processes from changing a data directory at the same time.
//!
//! One lock is on the directory itself. The other is on a file in the directory; the file contains
//! the process ID of the owner. The lock on the file alone is not enough: if the file were removed,
//! the next process would create and lock another file.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ringwell_driver::store::FileError;
use rustix::fs::OFlags;

use crate::files::{Context, FILE_MODE, create_directory};

/// The lock's file.
const NAME: &str = "LOCK";

/// The directory in a data directory that marks an unfinished restore. It is created before the
/// copy is read. The journals are restored last.
pub const RESTORING: &str = ".restoring";

/// The maximum length of the lock file, which contains a process ID.
const PID_BYTES_MAX: usize = 20;

/// The maximum number of times that an empty lock file is read again, and the pause before each
/// attempt.
const READS_MAX: usize = 20;
const READ_AGAIN: Duration = Duration::from_millis(5);

/// Locks a data directory for this process until the value is dropped.
#[derive(Debug)]
pub struct DataLock {
    path: PathBuf,
    /// The operating system releases the locks when the files are closed, even if the process dies.
    file: File,
    /// `None` if the file system cannot lock directories.
    _directory: Option<File>,
}

/// The reason why the data directory cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process uses the data directory.
    #[error("{} is in use by process {pid}: stop that process first", path.display())]
    Held {
        /// The lock's file.
        path: PathBuf,
        /// The process ID from the lock file, or a phrase saying that it is unknown.
        pid: String,
    },
    /// The file at the lock file's path is not a Ringwell lock file.
    #[error(
        "{} is not a Ringwell lock file, which is a regular file that contains only a process ID. \
         The file was not changed; move it away",
        path.display()
    )]
    Foreign {
        /// The file that was found.
        path: PathBuf,
    },
    /// A restore was interrupted.
    #[error(
        "{}: a restore was interrupted, and this data directory does not contain all files of the \
         copy. Run `ringwell restore` again with the same copy. To start without the copy instead, \
         remove {} and start the server once with `ringwell serve --restored`",
        data.display(),
        data.join(RESTORING).display()
    )]
    Incomplete {
        /// The data directory.
        data: PathBuf,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DataLock {
    /// Creates the directory if it is missing, and locks it. A symlink in place of the lock file is
    /// not followed, and a file that is not a lock file is not changed.
    ///
    /// # Errors
    /// [`LockError`]
    pub fn acquire(data: &Path) -> Result<Self, LockError> {
        let lock = Self::acquire_to_restore(data)?;
        // Checked while the lock is held, because a restore holds the lock while it sets and
        // removes its mark.
        if is_incomplete(data) {
            return Err(LockError::Incomplete { data: data.to_owned() });
        }
        Ok(lock)
    }

    /// Like [`Self::acquire`], but also locks a directory that an interrupted restore left behind.
    ///
    /// # Errors
    /// Any [`LockError`] except [`LockError::Incomplete`].
    pub fn acquire_to_restore(data: &Path) -> Result<Self, LockError> {
        create_directory(data)?;
        let path = data.join(NAME);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(no_follow())
            .open(&path);
        let is_other = || fs::symlink_metadata(&path).is_ok_and(|there| !there.is_file());
        let mut file = match opened {
            Err(_) if is_other() => return Err(LockError::Foreign { path }),
            opened => opened.context("open", &path)?,
        };
        let directory = File::open(data).context("open", data)?;
        let directory = match directory.try_lock() {
            Ok(()) => Some(directory),
            Err(TryLockError::WouldBlock) => return Err(held(path, &mut file)),
            Err(TryLockError::Error(_)) => None,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(path, &mut file)),
            Err(TryLockError::Error(error)) => Err(error).context("lock", &path)?,
        }
        let metadata = file.metadata().context("look at", &path)?;
        if !metadata.is_file() || metadata.nlink() > 1 || pid_in(&mut file).is_none() {
            return Err(LockError::Foreign { path });
        }
        // The text always has the same length, so the file need not be truncated. The text is
        // padded with newlines, which `$(cat LOCK)` drops.
        let pid = format!("{:\n<PID_BYTES_MAX$}", std::process::id());
        file.write_all_at(pid.as_bytes(), 0).context("write", &path)?;
        let lock = Self { path, file, _directory: directory };
        // Another process may have removed the file before this process locked it.
        if lock.is_held() { Ok(lock) } else { Err(LockError::Foreign { path: lock.path }) }
    }

    /// Whether the file at the lock's path is still the file that this process locked. If it is
    /// not, another process may be using the data directory.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let same = |ours: Metadata, there: Metadata| {
            ours.dev() == there.dev() && ours.ino() == there.ino()
        };
        let there = fs::symlink_metadata(&self.path);
        self.file.metadata().and_then(|ours| there.map(|there| same(ours, there))).unwrap_or(false)
    }

    /// The lock's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Keeps servers out of a data directory that this process only reads, until the value is dropped.
#[derive(Debug)]
pub struct ReadLock {
    /// The directory, and the lock file if there is one.
    _files: [Option<File>; 2],
}

impl ReadLock {
    /// Takes a shared lock, so that other readers can lock the directory too. Nothing is changed.
    /// The lock file may be missing, and the file system need not support locks.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if a server uses the directory, and [`LockError::File`] if the
    /// directory or the lock file cannot be read.
    pub fn acquire(data: &Path) -> Result<Self, LockError> {
        let path = data.join(NAME);
        let directory = File::open(data).context("open", data)?;
        // Only a regular file can be a lock file. Opening a pipe would block until there is a
        // writer.
        let is_file = fs::symlink_metadata(&path).is_ok_and(|there| there.is_file());
        let mut file = if is_file { Some(File::open(&path).context("open", &path)?) } else { None };
        let has_server =
            |file: &File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        if has_server(&directory) || file.as_ref().is_some_and(has_server) {
            let pid = file.as_mut().and_then(pid_in);
            return Err(LockError::Held { path, pid: shown(pid) });
        }
        Ok(Self { _files: [Some(directory), file] })
    }
}

/// Whether a restore of the data directory is unfinished.
#[must_use]
pub fn is_incomplete(data: &Path) -> bool {
    data.join(RESTORING).is_dir() && !data.join("journal").exists()
}

/// Checks, without a lock, that no restore of the data directory was interrupted or is running.
///
/// # Errors
/// [`LockError::Held`] if the restore is running, and [`LockError::Incomplete`] if it was
/// interrupted.
pub fn check_complete(data: &Path) -> Result<(), LockError> {
    if !is_incomplete(data) {
        return Ok(());
    }
    let _no_restore = ReadLock::acquire(data)?;
    Err(LockError::Incomplete { data: data.to_owned() })
}

/// Checks that a server could lock the data directory if no other server used it. Changes nothing.
///
/// # Errors
/// Returns any [`LockError`] except [`LockError::Held`].
pub fn check_lock(data: &Path) -> Result<(), LockError> {
    let path = data.join(NAME);
    let Ok(there) = fs::symlink_metadata(&path) else { return Ok(()) };
    let is_lock = there.is_file() && there.nlink() == 1 && {
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        pid_in(&mut opened.context("open", &path)?).is_some()
    };
    if is_lock { Ok(()) } else { Err(LockError::Foreign { path }) }
}

fn no_follow() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

fn held(path: PathBuf, file: &mut File) -> LockError {
    let mut pid = pid_in(file);
    // The owner may have locked the file but not yet written its process ID.
    for _ in 0..READS_MAX {
        if pid.as_deref() != Some("") || file.rewind().is_err() {
            break;
        }
        thread::sleep(READ_AGAIN);
        pid = pid_in(file);
    }
    LockError::Held { path, pid: shown(pid) }
}

fn shown(pid: Option<String>) -> String {
    pid.filter(|pid| !pid.is_empty()).unwrap_or_else(|| "(unknown ID)".to_owned())
}

/// Returns the process ID in a lock file, or an empty string if the file is empty; `None` if the
/// file contains anything else.
fn pid_in(file: &mut File) -> Option<String> {
    let mut text = String::new();
    let read: io::Result<usize> = file.take(PID_BYTES_MAX as u64 + 1).read_to_string(&mut text);
    let is_pid = read.is_ok()
        && text.len() <= PID_BYTES_MAX
        && text.trim_ascii().bytes().all(|byte| byte.is_ascii_digit());
    is_pid.then(|| text.trim_ascii().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests report failures by panicking")]

    use super::*;

    #[test]
    fn an_owner_that_has_not_written_its_number_yet_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let owner = File::create(&path).unwrap();
        owner.lock().unwrap();
        let writer = thread::spawn(move || {
            thread::sleep(4 * READ_AGAIN);
            owner.write_all_at(b"4711\n", 0).unwrap();
            owner
        });
        let refused = DataLock::acquire(folder.path()).unwrap_err();
        assert!(refused.to_string().contains("in use by process 4711"), "{refused}");
        drop(writer.join().unwrap());
        DataLock::acquire(folder.path()).unwrap();
    }
}
