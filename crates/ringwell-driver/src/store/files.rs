//! The file operations that a store needs, and the few sequences of them that all stores share.
//!
//! `ringwell-os` implements [`Files`] over the operating system. The simulator implements [`Files`]
//! over a disk that tears, drops and loses writes. Simulations therefore test the same code that a
//! server runs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::canary::{Bug, planted};

/// A file system. All calls block until they are done.
///
/// Creating, renaming or removing a file is durable once [`Self::flush_names`] has returned.
/// Written bytes are durable once [`Self::flush`] or [`Self::flush_data`] has returned. Any of
/// these changes may become durable earlier.
pub trait Files: Clone + fmt::Debug + Send + Sync + 'static {
    /// An open file.
    type File: fmt::Debug + Send + 'static;

    /// Creates a new file for writing. Fails if the file already exists.
    ///
    /// # Errors
    /// [`FileError`]
    fn create(&self, path: &Path) -> Result<Self::File, FileError>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// [`FileError`]
    fn open(&self, path: &Path, access: Access) -> Result<Self::File, FileError>;

    /// Reads from `offset` until `out` is full or the file ends, and returns the number of bytes
    /// read.
    ///
    /// # Errors
    /// [`FileError`]
    fn read_at(&self, file: &Self::File, offset: u64, out: &mut [u8]) -> Result<usize, FileError>;

    /// Writes all of `bytes`. After a failure, part of the bytes may have been written.
    ///
    /// # Errors
    /// [`FileError`]
    fn write_at(&self, file: &mut Self::File, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Makes the written bytes and the file's length durable.
    ///
    /// # Errors
    /// Returns [`FileError`]; after that, the contents of the disk are unknown.
    fn flush(&self, file: &Self::File) -> Result<(), FileError>;

    /// Makes the written bytes durable, together with the metadata needed to read them again. For a
    /// file that was opened with [`Access::Direct`], they may already be durable.
    ///
    /// # Errors
    /// Returns [`FileError`]; after that, the contents of the disk are unknown.
    fn flush_data(&self, file: &Self::File) -> Result<(), FileError>;

    /// Truncates a file to `len` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// [`FileError`]
    fn set_len(&self, file: &Self::File, len: u64) -> Result<(), FileError>;

    /// A file's length.
    ///
    /// # Errors
    /// [`FileError`]
    fn len(&self, file: &Self::File) -> Result<u64, FileError>;

    /// Renames a file. If a file with the new name exists, it is replaced.
    ///
    /// # Errors
    /// [`FileError`]
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError>;

    /// Removes a file.
    ///
    /// # Errors
    /// [`FileError`]
    fn remove(&self, path: &Path) -> Result<(), FileError>;

    /// Makes the creation, renaming and removal of files in a directory durable.
    ///
    /// # Errors
    /// [`FileError`]
    fn flush_names(&self, directory: &Path) -> Result<(), FileError>;

    /// Returns the names in a directory, in any order. Returns no names if the directory does not
    /// exist.
    ///
    /// # Errors
    /// [`FileError`]
    fn list(&self, directory: &Path) -> Result<Vec<String>, FileError>;

    /// Durably creates a directory and its missing parents. Only their owner can access them.
    ///
    /// # Errors
    /// [`FileError`]
    fn make_directory(&self, path: &Path) -> Result<(), FileError>;

    /// Whether a file with this name exists.
    fn exists(&self, path: &Path) -> bool;

    /// Returns an id of the current mount of `path`'s file system. The id changes when the file
    /// system is unmounted and mounted again, even within one boot. All bind mounts of the file
    /// system have the same id. Returns `None` if the operating system does not report an id.
    fn mount_of(&self, path: &Path) -> Option<u64>;

    /// Returns unguessable bytes for use in the file at `path`.
    ///
    /// # Errors
    /// [`FileError`]
    fn random(&self, path: &Path) -> Result<[u8; 16], FileError>;

    /// Returns the time since some origin, to measure the duration of calls.
    fn moment(&self) -> Duration;
}

/// The purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading a file from beginning to end as it is on the disk; cached bytes are dropped first,
    /// if possible. This matters after a failed flush, when the cache may hold bytes that the disk
    /// does not.
    Fresh,
    /// Writing in place.
    Write,
    /// Writing that bypasses all caches. The memory, offset and length of each write are aligned to
    /// blocks. A file system that does not support such writes may refuse the call, or write as
    /// with [`Self::Write`].
    Direct,
}

/// A failed call on a file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}{}", path.display(), room_advice(source))]
pub struct FileError {
    /// The attempted operation.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error that the operating system reported.
    pub source: io::Error,
    /// The result of [`Self::is_full`].
    pub has_no_room: bool,
}

fn room_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space on its disk"
        }
        _ => "",
    }
}

impl FileError {
    /// Creates the error for a call that failed for a reason other than a full disk.
    #[must_use]
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source, has_no_room: false }
    }

    /// Whether the call failed because the file system, a quota on it, or the table of open files
    /// is full. In that case, the operation did not begin, and a later attempt may succeed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.has_no_room
    }

    /// Adds another failure, which this error caused, to the message.
    pub(crate) fn and(self, consequence: &str) -> Self {
        let source = io::Error::new(self.source.kind(), format!("{}; {consequence}", self.source));
        Self { source, ..self }
    }

    /// Changes the path in the error, for a file that has been renamed.
    pub(super) fn of(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }
}

/// Renames a file, durably.
pub(super) fn rename(files: &impl Files, from: &Path, to: &Path) -> Result<(), FileError> {
    files.rename(from, to)?;
    if planted(Bug::NoNameFlush) {
        return Ok(());
    }
    to.parent().map_or(Ok(()), |directory| files.flush_names(directory))
}

/// Makes the names of the files in `directory` durable, if there are any. A killed process may have
/// left names that are only in the cache. Without this call, a power cut could remove a file that
/// this process has already read and acted on.
///
/// # Errors
/// [`FileError`]
pub fn flush_found_names(files: &impl Files, directory: &Path) -> Result<(), FileError> {
    if files.list(directory)?.is_empty() || planted(Bug::FoundNamesUnflushed) {
        return Ok(());
    }
    files.flush_names(directory)
}

/// Removes a file, durably.
pub(super) fn remove(files: &impl Files, path: &Path) -> Result<(), FileError> {
    files.remove(path)?;
    path.parent().map_or(Ok(()), |directory| files.flush_names(directory))
}

/// Writes a file atomically: after a crash, the file has either the old contents or the new ones.
///
/// # Errors
/// Returns [`FileError`]; the old file then remains.
pub fn write_whole(files: &impl Files, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let (unfinished, file) = write_unfinished(files, path, bytes)?;
    files.flush(&file)?;
    rename(files, &unfinished, path)
}

/// Writes `bytes` to a temporary file beside `path`. Returns the temporary file's path, and the
/// file.
fn write_unfinished<F: Files>(
    files: &F,
    path: &Path,
    bytes: &[u8],
) -> Result<(PathBuf, F::File), FileError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".tmp");
    let unfinished = PathBuf::from(unfinished);
    // A process that was killed may have left this file behind.
    if files.exists(&unfinished) {
        let _ = files.remove(&unfinished);
    }
    let mut file = files.create(&unfinished)?;
    files.write_at(&mut file, 0, bytes)?;
    Ok((unfinished, file))
}

/// Reads a whole file, or returns `None` if it does not exist.
///
/// # Errors
/// [`FileError`]
pub fn read_whole(files: &impl Files, path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let file = match files.open(path, Access::Read) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let len = usize::try_from(files.len(&file)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len];
    let got = files.read_at(&file, 0, &mut bytes)?;
    bytes.truncate(got);
    Ok(Some(bytes))
}

/// Reads a JSON file, or returns `None` if it does not exist.
pub(super) fn read_json<T: DeserializeOwned>(
    files: &impl Files,
    path: &Path,
) -> Result<Option<T>, FileError> {
    let Some(text) = read_whole(files, path)? else { return Ok(None) };
    let read = serde_json::from_slice(&text).map(Some);
    read.map_err(|error| {
        let text = format!("{error}: {}", remedy(path));
        FileError::new("read", path, io::Error::new(io::ErrorKind::InvalidData, text))
    })
}

/// Replaces the file `name` in `folder` with `value` as JSON, durably. If that fails, the old file
/// remains.
pub(super) fn write_json(
    files: &impl Files,
    folder: &Path,
    name: &str,
    value: &impl Serialize,
) -> Result<(), FileError> {
    let path = folder.join(name);
    write_whole(files, &path, &json(&path, value)?)
}

/// Like [`write_json`], but not durably: after the file system is unmounted, the old file may
/// reappear.
pub(super) fn write_json_to_cache(
    files: &impl Files,
    folder: &Path,
    name: &str,
    value: &impl Serialize,
) -> Result<(), FileError> {
    let path = folder.join(name);
    let (unfinished, _) = write_unfinished(files, &path, &json(&path, value)?)?;
    files.rename(&unfinished, &path)
}

fn json(path: &Path, value: &impl Serialize) -> Result<Vec<u8>, FileError> {
    serde_json::to_vec(value).map_err(|error| FileError::new("write", path, error.into()))
}

/// Returns the files in `directory` whose names consist of a number and `extension`, in numerical
/// order. Returns none if the directory does not exist.
pub(super) fn numbered(
    files: &impl Files,
    directory: &Path,
    extension: &str,
) -> Result<Vec<(u64, PathBuf)>, FileError> {
    let mut found = Vec::new();
    for name in files.list(directory)? {
        let Some((stem, end)) = name.rsplit_once('.') else { continue };
        if let Some(number) = stem.parse().ok().filter(|_| end == extension) {
            found.push((number, directory.join(name)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns advice for the operator about a file that cannot be read.
fn remedy(path: &Path) -> String {
    let moved = format!("move the file away (`mv {0} {0}.bad`), and start", path.display());
    let restored = "with `ringwell serve --restored`: all pools then answer with overflow numbers \
                    for the longest lifetime";
    match path.file_name().and_then(|name| name.to_str()) {
        Some("peers.json") => {
            format!("{moved} again; the server then records the other nodes' journals again")
        }
        Some("gaps.json") => format!(
            "{moved} again; calls from periods without history may then be attributed to an \
             earlier visitor"
        ),
        Some("overflow-numbers.json") => format!("while the other nodes run, {moved} again"),
        Some("overflow-periods.json") => "it is replaced".to_owned(),
        Some("cluster-map.json") => format!("while the other nodes run, {moved} {restored}"),
        Some("identity.json") => {
            format!(
                "if a newer version has served this data, start that version; if not, {moved} \
                 {restored}"
            )
        }
        _ => format!("{moved} {restored}"),
    }
}
