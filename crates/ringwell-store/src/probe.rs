//! Checks a database before a server uses it, without changing it.

use std::path::Path;
use std::time::Duration;

use ringwell_directory::RingPool;
use sqlx::{AnyConnection, Connection, Row};

use crate::database::sqlite_url;
use crate::file::{side_files, wal_of};
use crate::kind::Kind;
use crate::schema::DIRECTORY;
use crate::schema::found_version;
use crate::store::load_pools;
use crate::{FileFault, Location, Schema, StoreError};

/// The time limit for an answer from PostgreSQL.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The time limit for reading all pools.
const POOLS_MAX: Duration = Duration::from_mins(1);

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
    let Some(mode) = mode_of(path) else { return Ok(false) };
    let wal = wal_of(path).exists();
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

/// Returns a mode that lets SQLite read the file at `path` without creating files beside it; `None`
/// if there is no such mode.
fn mode_of(path: &Path) -> Option<&'static str> {
    let [wal, shm] = side_files(path).map(|side| side.exists());
    match (wal, shm) {
        // No server uses the file, and no server has ended without closing it.
        (false, _) => Some("ro&immutable=true"),
        (true, true) => Some("ro"),
        (true, false) => None,
    }
}

/// Reads the ring pools of the directory at `location`, which a server may be using. Returns `None`
/// if the first start will create or upgrade the tables, or if SQLite would have to create files.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Damaged`] if a pool breaks a rule, and
/// [`StoreError::NewerSchema`] if a newer program has upgraded the database.
pub async fn probe_pools(location: &Location) -> Result<Option<Vec<RingPool>>, StoreError> {
    sqlx::any::install_default_drivers();
    let (kind, url) = match location {
        Location::Url(url) => (Kind::Postgres, url.clone()),
        Location::File(path) if !path.is_file() => return Ok(None),
        Location::File(path) => match mode_of(path) {
            Some(mode) => (Kind::Sqlite, sqlite_url(path, mode)),
            None => return Ok(None),
        },
    };
    let opened = async {
        let mut connection = AnyConnection::connect(&url).await?;
        let version = found_version(DIRECTORY.version_table, kind, &mut connection).await?;
        Ok::<_, sqlx::Error>((connection, version))
    };
    let opened = tokio::time::timeout(ANSWER_MAX, opened).await;
    let (mut connection, version) = opened.map_err(|_| StoreError::Silent)??;
    let known = DIRECTORY.steps.len();
    match version.and_then(|version| usize::try_from(version).ok()) {
        Some(found) if found > known => return Err(StoreError::NewerSchema { found, known }),
        Some(found) if found == known => {}
        _ => return Ok(None),
    }
    let read = async {
        let mut tx = connection.begin_with(kind.begin_read()).await?;
        load_pools(&mut tx).await
    };
    tokio::time::timeout(POOLS_MAX, read).await.map_err(|_| StoreError::Silent)?.map(Some)
}
