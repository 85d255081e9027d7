//! Calls on files whose errors name the file and what was tried.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Who may use what is made: its owner alone. Parameters of visitors and keys are in these files.
pub(super) const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A call on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the operating system says.
    pub source: io::Error,
}

impl FileError {
    /// Whether the file system, a quota on it, or the table of open files is full: what was tried
    /// has not begun, and trying again later can help.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let full = [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE];
        let full = full.map(Errno::raw_os_error);
        self.source.raw_os_error().is_some_and(|code| full.contains(&code))
    }
}

/// Names the file and the action in an error.
pub(super) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { action, path: path.to_owned(), source })
    }
}

/// Makes a directory and those above it, durably, for its owner alone.
///
/// One that is there is made durable too: the start that made it may have ended before that.
///
/// # Errors
/// [`FileError`]
pub fn create_directory(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return match path.parent().map_or(Ok(()), sync_directory) {
            // Then somebody else made it.
            Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            flushed => flushed,
        };
    }
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        create_directory(above)?;
    }
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => {
            made.context("create", path)?;
            // Whatever the umask says.
            let private = Permissions::from_mode(DIRECTORY_MODE);
            fs::set_permissions(path, private).context("restrict", path)?;
        }
    }
    path.parent().map_or(Ok(()), sync_directory)
}

/// A sentence for the operator if others than its owner may look into the data directory.
#[must_use]
pub fn warn_of_mode(data: &Path) -> Option<String> {
    let mode = fs::metadata(data).ok()?.permissions().mode() & 0o777;
    let data = data.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "the data directory {data} has mode {mode:04o}: others on this machine may read visitors' \
             parameters and keys; run `chmod -R go= {data}`"
        )
    })
}

/// Makes what was created, renamed or removed in a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), FileError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let directory = File::open(path).context("open", path)?;
    directory.sync_all().context("flush", path)
}

/// Makes a new file.
pub(super) fn create(path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE).open(path).context("create", path)
}

/// Reads a file of JSON; `None` if there is none.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FileError> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.context("read", path)?,
    };
    serde_json::from_slice(&text).map(Some).map_err(io::Error::from).context("read", path)
}

/// Replaces the file `name` in `folder` by this as JSON, durably. The file before stays if that fails.
pub(super) fn write_json(
    folder: &Path,
    name: &str,
    value: &impl Serialize,
) -> Result<(), FileError> {
    let path = folder.join(name);
    let text = serde_json::to_vec(value).map_err(io::Error::from).context("write", &path)?;
    write_whole(&path, &text)
}

/// Opens a file for writing in place.
pub(super) fn open_write(path: &Path) -> Result<File, FileError> {
    OpenOptions::new().write(true).open(path).context("open", path)
}

/// Opens a file for writing past the page cache (`O_DIRECT|O_DSYNC`): a write is on the disk when
/// it returns. Memory, offset and length must be aligned to blocks.
pub(super) fn open_direct(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECT | OFlags::DSYNC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// Whether a file system opens files for direct writes and then does not do them.
pub(super) fn refuses_direct(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// Renames a file, durably.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).context("rename", from)?;
    to.parent().map_or(Ok(()), sync_directory)
}

/// Writes a file so that a crash leaves the old one or the new one.
///
/// # Errors
/// [`FileError`]; the file before stays then.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".tmp");
    let unfinished = PathBuf::from(unfinished);
    // Left by a process that was killed.
    let _ = fs::remove_file(&unfinished);
    let mut file = create(&unfinished)?;
    file.write_all(bytes).context("write", &unfinished)?;
    file.sync_all().context("flush", &unfinished)?;
    rename(&unfinished, path)
}

/// Removes a file, durably.
pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    fs::remove_file(path).context("remove", path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Reads from `offset` until `out` is full or the file ends; returns how much there was.
pub(super) fn read_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read_at(&mut out[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
