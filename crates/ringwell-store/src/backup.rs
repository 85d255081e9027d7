//! Copies a SQLite database that other processes may be using.

use std::path::Path;

use sqlx::{AnyConnection, Connection, Row};

use crate::database::{create_private, sqlite_url};
use crate::file::examine_side_files;
use crate::{FileFault, StoreError};

/// Copies the SQLite database at `from`, as of a single point in time, to the new file `to`, and
/// checks the copy. Readers and writers of `from` are not blocked. The schema of `from` may be from
/// another release, and is not upgraded.
///
/// # Errors
/// [`StoreError`] if `from` cannot be read, `to` is not empty, or the copy is damaged.
pub async fn copy_sqlite(from: &Path, to: &Path) -> Result<(), StoreError> {
    sqlx::any::install_default_drivers();
    examine_side_files(from)?;
    // SQLite treats an empty file as a new database, so the target can be created with private
    // permissions first.
    create_private(to)?;
    let copied = async {
        let mut source = AnyConnection::connect(&sqlite_url(from, "rw")).await?;
        sqlx::query("PRAGMA busy_timeout = 10000").execute(&mut source).await?;
        let target = to.to_string_lossy().into_owned();
        sqlx::query("VACUUM INTO $1").bind(target).execute(&mut source).await?;
        source.close().await
    };
    copied.await.map_err(|error| FileFault::of_sqlite(from, error))?;
    check_sqlite(to).await
}

/// Reads the whole SQLite database at `path` and checks its structure.
///
/// # Errors
/// [`StoreError::File`] if the database cannot be read or is damaged.
pub async fn check_sqlite(path: &Path) -> Result<(), StoreError> {
    sqlx::any::install_default_drivers();
    let checked = async {
        let mut copy = AnyConnection::connect(&sqlite_url(path, "ro")).await?;
        let row = sqlx::query("PRAGMA integrity_check").fetch_one(&mut copy).await?;
        let verdict: String = row.try_get(0)?;
        copy.close().await?;
        Ok(verdict)
    };
    let what = checked.await.map_err(|error| FileFault::of_sqlite(path, error))?;
    if what == "ok" {
        return Ok(());
    }
    Err(FileFault::Damaged { path: path.to_owned(), what }.into())
}
