//! The operating system's files. Errors name the file and the operation.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringwell_driver::store::{Access, FileError, Files};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::platform;

/// New files are accessible only to their owner, because they contain visitors' parameters and
/// keys.
pub(crate) const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// This machine's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFiles;

/// An open file, with the path at which it was opened.
#[derive(Debug)]
pub struct OsFile {
    file: File,
    path: PathBuf,
    /// Whether the data of each write is on the disk when the write returns.
    is_direct: bool,
}

/// Adds the file and the action to an error.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| {
            let has_no_room = is_full(&source);
            FileError { action, path: path.to_owned(), source, has_no_room }
        })
    }
}

/// Whether the error means that the file system, a quota or the table of open files is full.
fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE];
    error.raw_os_error().is_some_and(|code| full.map(Errno::raw_os_error).contains(&code))
}

impl Files for OsFiles {
    type File = OsFile;

    fn create(&self, path: &Path) -> Result<OsFile, FileError> {
        create(path).map(|file| OsFile::new(file, path))
    }

    fn open(&self, path: &Path, access: Access) -> Result<OsFile, FileError> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            // Opening a named pipe would block startup forever.
            let error = io::Error::other("it is not a regular file: move it away");
            return Err(error).context("open", path);
        }
        let file = match access {
            Access::Read | Access::Fresh => File::open(path),
            Access::Write => OpenOptions::new().write(true).open(path),
            Access::Direct => open_direct(path),
        };
        let file = file.context("open", path)?;
        if access == Access::Fresh {
            platform::read_past_cache(&file);
        }
        let is_direct = access == Access::Direct && platform::DIRECT.is_some();
        Ok(OsFile { is_direct, ..OsFile::new(file, path) })
    }

    fn read_at(&self, file: &OsFile, offset: u64, out: &mut [u8]) -> Result<usize, FileError> {
        let mut filled = 0;
        while filled < out.len() {
            match file.file.read_at(&mut out[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("read", &file.path),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, file: &mut OsFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let mut written = file.file.write_all_at(bytes, offset);
        if file.is_direct && written.as_ref().is_err_and(refuses_direct) {
            *file = self.open(&file.path, Access::Write)?;
            written = file.file.write_all_at(bytes, offset);
        }
        written.context("write", &file.path)
    }

    fn flush(&self, file: &OsFile) -> Result<(), FileError> {
        file.file.sync_all().context("flush", &file.path)
    }

    fn flush_data(&self, file: &OsFile) -> Result<(), FileError> {
        if file.is_direct {
            return Ok(());
        }
        file.file.sync_data().context("flush", &file.path)
    }

    fn set_len(&self, file: &OsFile, len: u64) -> Result<(), FileError> {
        file.file.set_len(len).context("cut", &file.path)
    }

    fn len(&self, file: &OsFile) -> Result<u64, FileError> {
        Ok(file.file.metadata().context("look at", &file.path)?.len())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        fs::rename(from, to).context("rename", from)
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        fs::remove_file(path).context("remove", path)
    }

    fn flush_names(&self, directory: &Path) -> Result<(), FileError> {
        let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let directory = File::open(path).context("open", path)?;
        directory.sync_all().context("flush", path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>, FileError> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context("list", directory)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 is skipped, because another program created the file.
            names.extend(entry.context("list", directory)?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn make_directory(&self, path: &Path) -> Result<(), FileError> {
        create_directory(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn mount_of(&self, path: &Path) -> Option<u64> {
        platform::mount_of(path)
    }

    fn random(&self, path: &Path) -> Result<[u8; 16], FileError> {
        random().context("get random bytes for", path)
    }

    fn moment(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
    }
}

impl OsFile {
    fn new(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), is_direct: false }
    }
}

/// Creates a directory and its ancestors durably, accessible only to their owner.
///
/// An existing directory is made durable too, because the process that created it may have ended
/// before making it durable.
///
/// # Errors
/// [`FileError`]
pub fn create_directory(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return match path.parent().map_or(Ok(()), sync_names) {
            // This process has no permission to read the parent directory, so another user created
            // the directory.
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
            // Sets the intended mode, regardless of the umask.
            let private = Permissions::from_mode(DIRECTORY_MODE);
            fs::set_permissions(path, private).context("restrict", path)?;
        }
    }
    path.parent().map_or(Ok(()), sync_names)
}

/// Returns a warning for the operator if accounts other than the owner can read the data directory.
#[must_use]
pub fn warn_of_mode(data: &Path) -> Option<String> {
    let mode = fs::metadata(data).ok()?.permissions().mode() & 0o777;
    let data = data.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "the data directory {data} has mode {mode:04o}: other users may be able to read \
             keys and visitors' parameters in this directory; run `chmod -R go= {data}`"
        )
    })
}

fn sync_names(path: &Path) -> Result<(), FileError> {
    OsFiles.flush_names(path)
}

/// Makes a new file.
pub(crate) fn create(path: &Path) -> Result<File, FileError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE).open(path).context("create", path)
}

/// Opens a file for writes that bypass the page cache, if the operating system supports this. The
/// data of each write is then on the disk when the write returns. For each write, the buffer's
/// address, the file offset and the length must be aligned to blocks.
fn open_direct(path: &Path) -> io::Result<File> {
    let flags = platform::DIRECT.unwrap_or_default();
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// Whether the error comes from a file system that opens files for direct writes but cannot perform
/// them.
fn refuses_direct(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// Returns random bytes that cannot be guessed.
///
/// # Errors
/// Fails if the operating system provides no random bytes.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
