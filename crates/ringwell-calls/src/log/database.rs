//! The database of the call log. It is reopened if its file was replaced or damaged.
//!
//! If the file is unlinked, SQLite continues to use it, and its contents are lost when the last
//! connection is closed. Invariants: a change is reported as stored only if it is in the file at
//! the configured path. A new file is created only after the file has been missing for some time,
//! because an operator may be copying a file there. Source: docs/spec/calls.md.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use ringwell_store::{Database, FileFault, Location, Repeated, Schema, StoreError};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Transaction};
use tokio::time::Instant;

use super::error::LogError;

/// The time to wait before a missing file is created again, because an operator may be replacing
/// it.
const MISSING_MIN: Duration = Duration::from_secs(3);
/// The time after which a damaged file is reopened if it has not been replaced.
const DAMAGED_MIN: Duration = Duration::from_secs(5);
/// The time limit for operations that still use the previous file when the database is reopened.
const CLOSE_MAX: Duration = Duration::from_secs(2);

static DAMAGED: Repeated = Repeated::new();

/// The database, which is opened when it is first used.
#[derive(Debug)]
pub(crate) struct LogDatabase {
    location: Location,
    schema: &'static Schema,
    current: RwLock<Opened>,
    /// Locked while the database is reopened.
    reopening: tokio::sync::Mutex<()>,
    /// The time at which the file was found missing. `None` while the file exists.
    missing_since: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug)]
struct Opened {
    database: Database,
    since: Instant,
    /// Whether the process is ending.
    is_closed: bool,
}

/// A write transaction.
#[derive(Debug)]
pub(crate) struct LogTransaction {
    tx: Transaction<'static, Any>,
    database: Database,
}

impl LogDatabase {
    pub(super) fn unopened(location: &Location, schema: &'static Schema) -> Result<Self, LogError> {
        let database = Database::unopened(location, schema)?;
        let opened = Opened { database, since: Instant::now(), is_closed: false };
        Ok(Self {
            location: location.clone(),
            schema,
            current: RwLock::new(opened),
            reopening: tokio::sync::Mutex::default(),
            missing_since: Mutex::default(),
        })
    }

    /// Opens the database and updates its schema.
    pub(super) async fn open(&self) -> Result<(), LogError> {
        Ok(self.current().database.ready().await?)
    }

    /// The path of the SQLite file. `None` for PostgreSQL.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.location {
            Location::File(path) => Some(path),
            Location::Url(_) => None,
        }
    }

    /// Begins a write transaction. Waits until other write transactions have ended.
    pub(crate) async fn write(&self) -> Result<LogTransaction, LogError> {
        let database = self.ready().await?;
        let mut tx = until_damaged(&database, database.write()).await?;
        if self.file().is_none() {
            // Without this lock, several nodes could read a call at the same time, and each would
            // overwrite the changes of the others.
            let lock = sqlx::query("SELECT last_place FROM call_counter FOR UPDATE");
            lock.fetch_one(&mut *tx).await?;
        }
        Ok(LogTransaction { tx, database })
    }

    /// Begins a read transaction. All its reads see the same state.
    pub(crate) async fn read(&self) -> Result<Transaction<'static, Any>, LogError> {
        let database = self.ready().await?;
        until_damaged(&database, database.read()).await
    }

    /// Runs `query` and returns its rows: see [`Database::read_rows`].
    pub(crate) async fn read_rows(
        &self,
        query: Query<'_, Any, AnyArguments>,
    ) -> Result<Vec<AnyRow>, LogError> {
        let database = self.ready().await?;
        until_damaged(&database, database.read_rows(query)).await
    }

    /// Overwrites deleted data in the files: see [`Database::overwrite_deleted`].
    pub(crate) async fn overwrite_deleted(&self) -> Result<(), LogError> {
        let database = self.ready().await?;
        until_damaged(&database, database.overwrite_deleted()).await
    }

    /// Waits until all operations have ended, then closes the database. The process must end after
    /// this: see [`Database::close_keeping_files`].
    pub(super) async fn close(&self) {
        let database = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            current.is_closed = true;
            current.database.clone()
        };
        database.close_keeping_files().await;
    }

    /// If `error` shows damage, records and reports it.
    pub(super) fn report_damage(&self, error: &LogError) {
        let LogError::Database(error) = error else { return };
        let Some(fault) = self.current().database.note_damage(error) else { return };
        report(&fault);
    }

    fn current(&self) -> Opened {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the open database. Reopens it if its file was replaced or damaged.
    async fn ready(&self) -> Result<Database, LogError> {
        self.wait_for_file()?;
        let opened = self.current();
        match opened.database.ready().await {
            Ok(()) if opened.database.damage().is_none() => Ok(opened.database),
            Ok(()) | Err(StoreError::File(FileFault::Replaced(_))) => self.reopen(&opened).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if the file has been missing for less than [`MISSING_MIN`].
    fn wait_for_file(&self) -> Result<(), LogError> {
        let Some(path) = self.file() else { return Ok(()) };
        let mut since = self.missing_since.lock().unwrap_or_else(PoisonError::into_inner);
        if path.exists() {
            *since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() < MISSING_MIN {
            return Err(LogError::Missing(path.to_owned()));
        }
        Ok(())
    }

    async fn reopen(&self, old: &Opened) -> Result<Database, LogError> {
        let _one = self.reopening.lock().await;
        let Opened { database, since, is_closed } = self.current();
        if is_closed {
            return Err(sqlx::Error::PoolClosed.into());
        }
        if since != old.since {
            database.ready().await?;
            return Ok(database);
        }
        let is_replaced = database.ready().await.is_err();
        if let Some(fault) = database.damage()
            && !is_replaced
            && since.elapsed() < DAMAGED_MIN
        {
            return Err(StoreError::File(fault).into());
        }
        if is_replaced && database.damage().is_none() {
            // Overwriting deleted data also moves all changes from the write-ahead log into the
            // previous file, and truncates the write-ahead log.
            let _ = tokio::time::timeout(CLOSE_MAX, database.overwrite_deleted()).await;
        }
        let closed = tokio::time::timeout(CLOSE_MAX, database.close()).await;
        // Reopening is not safe while the previous database is in use. An unfinished change could
        // be written to the write-ahead log, which the previous file and the new one would share.
        // Examining the file would also release the locks that SQLite holds on it.
        if closed.is_err() {
            return Err(self.in_use().into());
        }
        let new = Database::unopened(&self.location, self.schema)?;
        {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            (current.database, current.since) = (new.clone(), Instant::now());
        }
        if is_replaced {
            let file = self.file().unwrap_or(Path::new("")).display();
            tracing::warn!(%file, "the call log's file was removed or replaced while in use: the \
                server opens the file that is now at this path, or creates a new one");
        }
        new.ready().await?;
        Ok(new)
    }

    fn in_use(&self) -> StoreError {
        let path = self.file().map(Path::to_owned).unwrap_or_default();
        let text = "requests in progress still use the file that was opened earlier";
        let error = std::io::Error::other(text);
        StoreError::File(FileFault::Unreadable { path, error })
    }
}

/// Returns the result of `work`. Returns early if the file is found to be damaged.
async fn until_damaged<T>(
    database: &Database,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, LogError> {
    let done = tokio::select! {
        biased;
        done = work => done,
        fault = database.damaged() => return Err(StoreError::File(fault).into()),
    };
    done.map_err(|error| judged(database, error.into()))
}

/// Returns `error`, or a [`FileFault`] if `error` shows that the file is damaged.
fn judged(database: &Database, error: LogError) -> LogError {
    let fault = match &error {
        LogError::Database(error) => database.note_damage(error),
        _ => None,
    };
    fault.map_or(error, |fault| LogError::Open(StoreError::File(fault)))
}

fn report(fault: &FileFault) {
    if let Some(left_out) = DAMAGED.pass() {
        tracing::error!(error = fault.of_calls(), left_out, "the call log is damaged");
    }
}

impl LogTransaction {
    /// Commits the transaction.
    ///
    /// # Errors
    /// [`LogError`]. If the file was removed or replaced during the transaction, the transaction is
    /// lost.
    pub(crate) async fn commit(self) -> Result<(), LogError> {
        let Self { tx, database } = self;
        let stored = tx.commit().await;
        stored.map_err(|error| judged(&database, error.into()))?;
        Ok(database.ready().await?)
    }

    /// Returns `result`. If an error shows that the file is damaged, it is converted to a
    /// [`FileFault`].
    pub(crate) fn judge<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        result.map_err(|error| judged(&self.database, error))
    }
}

impl Deref for LogTransaction {
    type Target = AnyConnection;

    fn deref(&self) -> &Self::Target {
        &self.tx
    }
}

impl DerefMut for LogTransaction {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.tx
    }
}
