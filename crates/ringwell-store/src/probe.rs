//! Checks a database before a server uses it, without changing it.

use std::path::Path;
use std::time::Duration;

use sqlx::{AnyConnection, Connection, Row};

use crate::database::sqlite_url;
use crate::file::{side_files, wal_of};
use crate::kind::Kind;
use crate::schema::found_version;
use crate::{FileFault, Schema, StoreError};

/// The time limit for an answer from PostgreSQL.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The longest SQLite file that is read, in bytes. Reading a longer one takes too long.
const FILE_MAX: u64 = 1 << 30;

/// The state of a PostgreSQL database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The version of the schema in the database, or `None` if its tables do not exist yet.
    pub version: Option<usize>,
    /// Whether the user may create tables.
    pub can_create: bool,
    /// Whether the user may change the tables. `true` if they do not exist yet.
    pub can_write: bool,
    /// Whether the server refuses all changes, as a standby does.
    pub is_read_only: bool,
}

/// Connects to the PostgreSQL database at `url`, and looks for the tables of `schema`.
///
/// # Errors
/// [`StoreError`]; [`StoreError::NewerSchema`] if a newer program has upgraded the database.
pub async fn probe_postgres(url: &str, schema: &Schema) -> Result<Probed, StoreError> {
    sqlx::any::install_default_drivers();
    let found = tokio::time::timeout(ANSWER_MAX, read_schema(url, schema.version_table)).await;
    let (version, [can_create, can_write, is_read_only]) =
        found.map_err(|_| StoreError::Silent)??;
    let version = version
        .map(|version| {
            let text = || format!("{} has the version {version}", schema.version_table);
            usize::try_from(version).map_err(|_| StoreError::Damaged(text()))
        })
        .transpose()?;
    match (version, schema.steps.len()) {
        (Some(found), known) if found > known => Err(StoreError::NewerSchema { found, known }),
        _ => Ok(Probed { version, can_create, can_write, is_read_only }),
    }
}

async fn read_schema(url: &str, table: &str) -> Result<(Option<i64>, [bool; 3]), sqlx::Error> {
    let mut connection = AnyConnection::connect(url).await?;
    let version = found_version(table, Kind::Postgres, &mut connection).await?;
    let query = "SELECT COALESCE(has_schema_privilege(current_schema(), 'CREATE'), FALSE), \
                 COALESCE(has_table_privilege(to_regclass($1), 'INSERT') \
                 AND has_table_privilege(to_regclass($1), 'UPDATE') \
                 AND has_table_privilege(to_regclass($1), 'DELETE'), TRUE), \
                 current_setting('transaction_read_only') = 'on'";
    let row = sqlx::query(query).bind(table.to_owned()).fetch_one(&mut connection).await?;
    let found = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
    connection.close().await?;
    Ok((version, found))
}

/// Reads the SQLite database at `path`, which a server may be using, and checks its structure.
/// Returns `false` if the file is too long, or if SQLite would have to create files beside it.
///
/// # Errors
/// [`FileFault`] if the database cannot be read or is damaged.
pub async fn probe_sqlite(path: &Path) -> Result<bool, FileFault> {
    sqlx::any::install_default_drivers();
    let unreadable = |error| FileFault::Unreadable { path: path.to_owned(), error };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_MAX {
        return Ok(false);
    }
    let [wal, shm] = side_files(path).map(|side| side.exists());
    let mode = match (wal, shm) {
        // No server uses the file, and no server has ended without closing it.
        (false, _) => "ro&immutable=true",
        (true, true) => "ro",
        (true, false) => return Ok(false),
    };
    let checked = async {
        let mut connection = AnyConnection::connect(&sqlite_url(path, mode)).await?;
        let row = sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut connection).await?;
        let verdict: String = row.try_get(0)?;
        connection.close().await?;
        Ok(verdict)
    };
    match checked.await {
        Ok(what) if what == "ok" => Ok(true),
        // A server has just begun to use the file.
        _ if !wal && wal_of(path).exists() => Ok(false),
        Ok(what) => Err(FileFault::Damaged { path: path.to_owned(), what }),
        Err(error) => Err(FileFault::of_sqlite(path, error)),
    }
}
