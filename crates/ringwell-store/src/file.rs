//! Checks that a file can be a SQLite database before SQLite opens it.
//!
//! Only reads the header and changes nothing, so that a file that is not a database stays as it is.
//! The lock file beside the database shows whether a server has used the database. If so, an empty
//! database file is damaged, not new. Source: <https://www.sqlite.org/fileformat2.html>, "The
//! Database Header".

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// The bytes at the beginning of every database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The text in the lock file of a database that has been used.
const USED: &str = "A server has used this database.\n";
/// The size of the header in bytes, plus one byte for the type of the first page.
const HEAD_BYTES: usize = 101;

/// The reason why a file cannot be used as a database.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// The path leads to a directory, a device or a socket.
    #[error(
        "{} is not a file: set the path of a file (the server creates the file if it is missing)",
        .0.display()
    )]
    NotAFile(PathBuf),
    /// The file does not begin with the header of a SQLite database.
    #[error(
        "{}: set another path, or restore the file from a backup (`ringwell restore`), or {}",
        not_a_database(.0),
        move_away(.0)
    )]
    NotADatabase(PathBuf),
    /// The database in the file is damaged.
    #[error(
        "{}: restore the file from a backup (`ringwell restore`), or {}",
        damaged(.path, .what),
        move_away(.path)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// The file at the path is not the file that was opened.
    #[error(
        "{} was removed or replaced while in use, so the server no longer reads or changes this \
            database: put the original file back. If you restart the server instead, it opens the \
            file that is now at this path, or creates a new file",
        .0.display()
    )]
    Replaced(PathBuf),
    /// The file cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file that SQLite keeps beside the database cannot be used.
    #[error("cannot use the database's file {}: {error}", .path.display())]
    Side {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

fn not_a_database(path: &Path) -> String {
    format!("{} is not a SQLite database, or its beginning is damaged", path.display())
}

fn damaged(path: &Path, what: &str) -> String {
    format!("{} is damaged ({what})", path.display())
}

fn move_away(path: &Path) -> String {
    let path = path.display();
    format!("move the file away together with {path}-wal and {path}-shm")
}

impl FileFault {
    /// Describes the fault, without its remedy, if the file is damaged or not a database.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        match self {
            Self::NotADatabase(path) => Some(not_a_database(path)),
            Self::Damaged { path, what } => Some(damaged(path, what)),
            Self::NotAFile(_) | Self::Replaced(_) | Self::Unreadable { .. } | Self::Side { .. } => {
                None
            }
        }
    }

    /// The message to show if the file is a call log. A damaged call log is repaired separately,
    /// because restoring the whole data directory would replace the journals with older ones.
    #[must_use]
    pub fn of_calls(&self) -> String {
        let path = match self {
            Self::NotADatabase(path) | Self::Damaged { path, .. } => path,
            Self::Replaced(path) => {
                let path = path.display();
                return format!(
                    "{path} was removed or replaced while in use: the server continues with the \
                     file now at this path, or with a new one"
                );
            }
            Self::NotAFile(_) | Self::Unreadable { .. } | Self::Side { .. } => {
                return self.to_string();
            }
        };
        let damage = self.damage().unwrap_or_default();
        let other = match self {
            Self::NotADatabase(_) => "set another path, or ",
            _ => "",
        };
        format!(
            "{damage}: {other}{}. Then, if you have a backup, copy its calls.sqlite to {}. Leave \
             all other files as they are",
            move_away(path),
            path.display()
        )
    }

    /// Converts a SQLite error about the file at `path` to a fault.
    pub(crate) fn of_sqlite(path: &Path, error: sqlx::Error) -> Self {
        Self::of_damage(path, &error).unwrap_or_else(|| Self::Unreadable {
            path: path.to_owned(),
            error: io::Error::other(error),
        })
    }

    /// Returns the fault if a SQLite error shows that the content of the file at `path` is damaged.
    #[must_use]
    pub fn of_damage(path: &Path, error: &sqlx::Error) -> Option<Self> {
        if !is_damage(error) {
            return None;
        }
        let what = error.as_database_error()?.message().to_owned();
        Some(Self::Damaged { path: path.to_owned(), what })
    }
}

/// Whether a SQLite error reports damage to the content of the file.
#[must_use]
pub fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    // SQLite's codes for damage are 11 (CORRUPT) and 26 (NOTADB). An extended code contains one of
    // them in its low byte. PostgreSQL's codes have five characters or more.
    let code = code.filter(|code| code.len() < 5).and_then(|code| code.parse::<u32>().ok());
    code.is_some_and(|code| [11, 26].contains(&(code & 0xff)))
}

/// Returns the path with all links resolved, even if the file does not exist.
#[must_use]
pub fn place(path: &Path) -> PathBuf {
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    fs::canonicalize(path).unwrap_or_else(|_| {
        let folder = fs::canonicalize(folder);
        folder.map_or_else(|_| path.to_owned(), |folder| folder.join(name.unwrap_or_default()))
    })
}

/// Returns the path of the file that a server locks for the database at `path`. The file is beside
/// the database file itself, regardless of any links in `path`.
#[must_use]
pub fn lock_of(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

/// Returns the path of the database with all links resolved and `ending` appended.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = place(path).into_os_string();
    name.push(ending);
    name.into()
}

/// Records in the lock file, if there is one, whether the database at `path` has been used.
pub(crate) fn mark(path: &Path, is_used: bool) -> io::Result<()> {
    let lock = lock_of(path);
    if was_used(path) == is_used || !lock.exists() {
        return Ok(());
    }
    fs::write(lock, if is_used { USED } else { "" })
}

fn was_used(path: &Path) -> bool {
    fs::metadata(lock_of(path)).is_ok_and(|found| found.len() > 0)
}

/// Whether there is a file at `path`. Anything other than a file is refused, because opening it may
/// block forever. For example, opening a named pipe blocks until another process opens its other
/// end.
///
/// # Errors
/// If the path leads to something other than a file, or its metadata cannot be read. The error
/// names the path.
pub fn file_exists(path: &Path) -> io::Result<bool> {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if fs::symlink_metadata(path).is_err() {
                return Ok(false);
            }
            let text = format!(
                "{shown} is a link to a missing file: mount the volume that contains the file"
            );
            Err(io::Error::other(text))
        }
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot read {shown}: {error}"))),
        Ok(found) if found.is_file() => Ok(true),
        Ok(_) => Err(io::Error::other(format!("{shown} is not a file: move it away"))),
    }
}

/// Checks the beginning of the database at `path`, and whether SQLite can write to the files beside
/// it. A missing file passes, and so does an empty one: SQLite creates the database in it. An empty
/// file counts as damaged if a server has used the database before.
///
/// # Errors
/// [`FileFault`].
pub fn examine(path: &Path) -> Result<(), FileFault> {
    let unreadable = |error| FileFault::Unreadable { path: path.to_owned(), error };
    let length = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            examine_link(path).map_err(unreadable)?;
            return examine_side_files(path);
        }
        Err(error) => return Err(unreadable(error)),
        Ok(found) if !found.is_file() => return Err(FileFault::NotAFile(path.to_owned())),
        Ok(found) => found.len(),
    };
    examine_side_files(path)?;
    let damaged = |what: &str| FileFault::Damaged { path: path.to_owned(), what: what.to_owned() };
    if length == 0 && was_used(path) {
        return Err(damaged("the file is empty, although a server has used it"));
    }
    if length == 0 {
        return Ok(());
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let file = File::open(path).map_err(unreadable)?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    if !head.starts_with(MAGIC) {
        return Err(FileFault::NotADatabase(path.to_owned()));
    }
    let Ok(head) = <[u8; HEAD_BYTES]>::try_from(head) else {
        return Err(damaged("the file ends within its header"));
    };
    // The first page must be an ordinary b-tree page: an interior page or a leaf.
    if ![0x05, 0x0d].contains(&head[100]) {
        return Err(damaged("the first page is not a database page"));
    }
    let page_bytes = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let pages = u32::from_be_bytes([head[28], head[29], head[30], head[31]]);
    // The page count is valid if the last writer of the file also wrote the count. While the
    // write-ahead log is copied into the file, the first page, which contains the count, may be
    // written before the last page.
    let is_counted = head[24..28] == head[92..96] && !has_changes(path);
    if is_counted && length < page_bytes * u64::from(pages) {
        return Err(damaged("the end of the file is missing"));
    }
    Ok(())
}

/// Checks the files beside the database, any of which may be missing. Does not open them: closing
/// any file descriptor of `-shm` would release the locks that SQLite holds in this process.
pub(crate) fn examine_side_files(path: &Path) -> Result<(), FileFault> {
    let lock = lock_of(path);
    for side in ["-wal", "-shm", "-journal", ".lock"].map(|ending| beside(path, ending)) {
        let Ok(found) = fs::symlink_metadata(&side) else { continue };
        let is_file = match file_exists(&side) {
            _ if found.is_file() => Ok(true),
            // The lock file may be a link. SQLite does not follow links to the other files.
            found if side == lock => found,
            _ => Err(io::Error::other("it is not a regular file: move it away")),
        };
        let fault = match (is_file, access(&side, Access::READ_OK | Access::WRITE_OK)) {
            (Err(fault), _) => fault.to_string(),
            (Ok(_), Ok(()) | Err(Errno::NOENT)) => continue,
            (Ok(_), Err(error)) => {
                let error = io::Error::from(error);
                format!(
                    "{error}: give the server's account write access (`chown`), and do not delete \
                    the file"
                )
            }
        };
        return Err(FileFault::Side { path: side, error: io::Error::other(fault) });
    }
    Ok(())
}

/// If `path` is a link, checks that the directory of its target exists, so that SQLite can create
/// the target.
fn examine_link(path: &Path) -> io::Result<()> {
    let Ok(target) = fs::read_link(path) else { return Ok(()) };
    let target = path.parent().unwrap_or(Path::new("")).join(target);
    if target.parent().is_some_and(Path::is_dir) {
        return Ok(());
    }
    let text = format!(
        "it is a link to {}, whose directory is missing: mount the volume that contains this \
         directory",
        target.display()
    );
    Err(io::Error::other(text))
}

/// Whether the write-ahead log beside the database contains changes.
fn has_changes(path: &Path) -> bool {
    fs::metadata(wal_of(path)).is_ok_and(|log| log.len() > 0)
}

/// Returns the paths of the write-ahead log and of its index, `-shm`.
pub(crate) fn side_files(path: &Path) -> [PathBuf; 2] {
    [wal_of(path), beside(path, "-shm")]
}

/// Returns the path of the write-ahead log of the database at `path`.
pub(crate) fn wal_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{Database, Location, Schema};

    static EMPTY: Schema = Schema { version_table: "test_schema_version", steps: &[] };

    async fn database(folder: &TempDir) -> PathBuf {
        let path = folder.path().join("a.sqlite");
        let database = Database::open(&Location::File(path.clone()), &EMPTY).await.unwrap();
        database.close().await;
        path
    }

    fn fault(path: &Path) -> String {
        examine(path).map_or_else(|fault| fault.to_string(), |()| "none".to_owned())
    }

    #[tokio::test]
    async fn damage_and_files_that_are_no_database_are_found_before_they_are_opened() {
        let folder = TempDir::new().unwrap();
        let path = database(&folder).await;
        assert_eq!(fault(&path), "none");
        assert_eq!(fault(&folder.path().join("missing")), "none");
        assert!(fault(folder.path()).contains("is not a file"));
        let good = fs::read(&path).unwrap();
        for (bytes, expected) in [
            (&b""[..], "none"),
            (b"notes of an operator, not a database", "is not a SQLite database"),
            (&[0; 4096], "is not a SQLite database"),
            (&good[..50], "ends within its header"),
            (&good[..good.len() - 1], "the end of the file is missing"),
        ] {
            fs::write(&path, bytes).unwrap();
            assert!(fault(&path).contains(expected), "{expected}: {}", fault(&path));
        }
        let mut bytes = good.clone();
        bytes[100] = 0;
        fs::write(&path, bytes).unwrap();
        assert!(fault(&path).contains("first page"));
    }

    /// An empty file that a server has used is damaged: a power failure can leave a file empty, and
    /// so can copying it to a full disk.
    #[tokio::test]
    async fn an_empty_file_is_a_new_database_unless_a_server_has_used_it() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.sqlite");
        fs::write(&path, "").unwrap();
        fs::write(lock_of(&path), "").unwrap();
        assert_eq!(fault(&path), "none");
        assert_eq!(database(&folder).await, path);
        assert_eq!(fault(&path), "none");
        fs::write(&path, "").unwrap();
        assert!(fault(&path).contains("the file is empty"), "{}", fault(&path));
        // The database file is missing, as if an operator had moved it. A startup that is
        // interrupted may then leave an empty file.
        fs::remove_file(&path).unwrap();
        assert_eq!(fault(&path), "none");
        mark(&path, false).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(fault(&path), "none");
    }

    /// The error names the file, because SQLite's own message does not.
    #[tokio::test]
    async fn a_file_beside_the_database_that_cannot_be_opened_is_named() {
        let folder = TempDir::new().unwrap();
        let path = database(&folder).await;
        for ending in ["-wal", "-shm"] {
            let side = beside(&path, ending);
            let _ = fs::remove_file(&side);
            fs::create_dir(&side).unwrap();
            let fault = fault(&path);
            let expected = format!("a.sqlite{ending}: it is not a regular file");
            assert!(fault.contains(&expected), "{fault}");
            fs::remove_dir(&side).unwrap();
        }
        assert_eq!(fault(&path), "none");
    }

    /// A damaged database is refused immediately. Without an explicit check, the connection pool
    /// would retry until its timeout expires.
    #[tokio::test]
    async fn a_damaged_database_is_refused_at_once() {
        let folder = TempDir::new().unwrap();
        let path = database(&folder).await;
        let mut bytes = fs::read(&path).unwrap();
        // The schema's b-tree page now claims to contain more cells than fit into it.
        bytes[103..105].fill(0xff);
        fs::write(&path, bytes).unwrap();
        assert_eq!(fault(&path), "none");
        let began = std::time::Instant::now();
        let error = Database::open(&Location::File(path.clone()), &EMPTY).await.unwrap_err();
        assert!(error.to_string().contains("is damaged"), "{error}");
        assert!(began.elapsed() < std::time::Duration::from_secs(5));
    }
}
