//! The connection to SQLite or PostgreSQL: where the database is, how it is opened, and how
//! transactions begin.
//!
//! Does not depend on particular tables. Each statement is written once, in the dialect that both
//! databases understand: `$1` for arguments, and BIGINT, TEXT and NULL for values.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::any::{AnyArguments, AnyPoolOptions, AnyRow};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AnyPool, Connection, Executor, Row, Transaction};
use tokio::sync::{OnceCell, watch};

use crate::file::{self, FileFault};
use crate::kind::Kind;
use crate::schema::{self, Schema};
use crate::{Repeated, StoreError};

/// The maximum time that a change waits for another change to end.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The maximum count of connections. Each change that waits for a long change occupies one, and
/// readers need some too.
const CONNECTIONS_MAX: u32 = 16;
/// The maximum count of connections for short reads. It is more than one, so that a short read that
/// waits for the disk does not delay all other short reads.
const SHORT_READS_MAX: u32 = 2;

static UNUSABLE: Repeated = Repeated::new();

/// The location of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A SQLite file, created if it is missing.
    File(PathBuf),
    /// A PostgreSQL database, as in `postgres://user:secret@host/ringwell`.
    Url(String),
}

/// An open database, whose schema is up to date.
#[derive(Clone, Debug)]
pub struct Database {
    kind: Kind,
    pool: AnyPool,
    /// The connections that changes use. With SQLite there is only one connection. The pages in its
    /// cache stay valid, because only its own changes replace them.
    writers: AnyPool,
    /// The connections that [`Self::read_rows`] uses.
    short_reads: AnyPool,
    /// SQLite's file.
    file: Option<PathBuf>,
    /// The database file that was opened, and its write-ahead log.
    opened: Arc<OnceCell<[OpenedFile; 2]>>,
    /// Whether the write-ahead log is still the one that was opened. SQLite may remove the log when
    /// an unusable connection is closed.
    keeps_log: Arc<AtomicBool>,
    schema: &'static Schema,
    /// Set once the schema is up to date.
    is_ready: Arc<OnceCell<()>>,
    /// SQLite's error message, once an error has shown that the file is damaged.
    damage: watch::Sender<Option<String>>,
}

/// Creates a missing file so that only its owner can read it. SQLite gives the files beside it the
/// same mode. These files contain keys and token hashes.
pub(crate) fn create_private(path: &Path) -> Result<(), StoreError> {
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::Database(sqlx::Error::Io(error)))
        }
        Err(_) | Ok(_) => Ok(()),
    }
}

/// Whether a connection that was returned to the connection pool may be used again. If a
/// transaction was dropped, it is rolled back first. If the disk was full, SQLite has already
/// rolled the transaction back. The driver's own rollback then fails, and the driver refuses every
/// later transaction on that connection.
async fn is_reusable(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

async fn greet(connection: &mut AnyConnection, kind: Kind) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::raw_sql(kind.greeting())).await.map(|_| ())
}

/// Converts a SQLite error about the content of the file at `path` into a [`FileFault`].
fn of_damage(path: &Path, error: StoreError) -> StoreError {
    let StoreError::Database(inner) = &error else { return error };
    FileFault::of_damage(path, inner).map_or(error, StoreError::File)
}

/// Keeps the first error that shows damage.
fn note(damage: &watch::Sender<Option<String>>, error: &sqlx::Error) {
    let Some(what) = error.as_database_error().filter(|_| file::is_damage(error)) else { return };
    damage.send_if_modified(|damage| {
        let is_first = damage.is_none();
        damage.get_or_insert_with(|| what.message().to_owned());
        is_first
    });
}

/// The identity of a file when it was opened.
#[derive(Debug)]
struct OpenedFile {
    path: PathBuf,
    /// The device and the inode.
    inode: Option<(u64, u64)>,
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the driver's URL for the file at `path`, opened in `mode`.
pub(crate) fn sqlite_url(path: &Path, mode: &str) -> String {
    let path = path.to_string_lossy();
    let parts = path.split('/').map(|part| utf8_percent_encode(part, NON_ALPHANUMERIC));
    let path: Vec<_> = parts.map(|part| part.to_string()).collect();
    format!("sqlite://{}?mode={mode}", path.join("/"))
}

impl Database {
    /// Opens the database, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Database`], or [`StoreError::NewerSchema`].
    pub async fn open(location: &Location, schema: &'static Schema) -> Result<Self, StoreError> {
        let database = Self::unopened(location, schema)?;
        database.ready().await?;
        Ok(database)
    }

    /// Like [`Self::open`], but does not connect: the first read or change connects and brings the
    /// schema up to date. As long as this fails, every read and change fails.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the location is invalid.
    pub fn unopened(location: &Location, schema: &'static Schema) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let (kind, url, file) = match location {
            Location::Url(url) => (Kind::Postgres, url.clone(), None),
            Location::File(path) => (Kind::Sqlite, sqlite_url(path, "rwc"), Some(path.clone())),
        };
        let damage = watch::Sender::new(None);
        let (found, path) = (damage.clone(), file.clone());
        let options = AnyPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(WAIT_MAX)
            // A database server may have closed a connection, so each connection is tested before
            // use. With a file, this cannot happen.
            .test_before_acquire(kind == Kind::Postgres)
            .after_connect(move |connection, _| {
                let (found, path) = (found.clone(), path.clone());
                Box::pin(async move {
                    // If this fails, the connection pool retries until its timeout expires, and
                    // then reports no reason.
                    greet(connection, kind).await.inspect_err(|error| {
                        note(&found, error);
                        if let Some(left_out) = UNUSABLE.pass() {
                            let file = path.unwrap_or_default();
                            let file = file.display();
                            tracing::error!(%error, %file, left_out, "a new connection to a \
                                database cannot be used");
                        }
                    })
                })
            });
        let short = options.clone().max_connections(SHORT_READS_MAX);
        let keeps_log = Arc::new(AtomicBool::new(true));
        let keeps = Arc::clone(&keeps_log);
        let options = options.after_release(move |connection, _| {
            let keeps = Arc::clone(&keeps);
            Box::pin(async move {
                let is_reusable = is_reusable(connection).await;
                if !matches!(is_reusable, Ok(true)) {
                    keeps.store(false, Ordering::Relaxed);
                }
                is_reusable
            })
        });
        let pool = options.clone().connect_lazy(&url)?;
        let (writers, short_reads) = match kind {
            Kind::Sqlite => {
                // SQLite's write-ahead log exists as long as this connection does.
                let writer = options.max_connections(1).idle_timeout(None).max_lifetime(None);
                (writer.connect_lazy(&url)?, short.connect_lazy(&url)?)
            }
            Kind::Postgres => (pool.clone(), pool.clone()),
        };
        let (opened, is_ready) = (Arc::default(), Arc::default());
        Ok(Self {
            kind,
            pool,
            writers,
            short_reads,
            file,
            opened,
            keeps_log,
            schema,
            is_ready,
            damage,
        })
    }

    /// Connects if this is the first use. Every read or change begins with this call. Later calls
    /// return an error if the file was removed or replaced. SQLite would otherwise continue with
    /// the old file, and the changes would be lost when the last connection is closed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.is_ready.get_or_try_init(|| self.prepare()).await?;
        let watched = if self.keeps_log.load(Ordering::Relaxed) { 2 } else { 1 };
        let opened = self.opened.get().into_iter().flatten().take(watched);
        match opened.into_iter().find(|file| inode(&file.path) != file.inode) {
            Some(file) => Err(FileFault::Replaced(file.path.clone()).into()),
            None => Ok(()),
        }
    }

    /// Connects, and brings the schema up to date.
    async fn prepare(&self) -> Result<(), StoreError> {
        let Some(path) = &self.file else {
            let connection = &mut *self.writers.acquire().await?;
            return schema::upgrade(self.schema, self.kind, connection).await;
        };
        file::examine(path)?;
        if !path.exists() {
            // If the attempt to create the database fails, it leaves an empty file. The lock file
            // then shows that this file was never used, so it does not count as damaged.
            file::mark(path, false)
                .map_err(|error| FileFault::Unreadable { path: file::lock_of(path), error })?;
        }
        create_private(path)?;
        let first = async {
            // A connection pool would retry a failed connection until its timeout expires, and
            // would hide the reason.
            let mut first = AnyConnection::connect(&sqlite_url(path, "rwc")).await?;
            greet(&mut first, self.kind).await?;
            schema::upgrade(self.schema, self.kind, &mut first).await?;
            Ok(first)
        };
        let first = first.await.map_err(|error| of_damage(path, error))?;
        // The database works even if the lock file does not record that the database has been used.
        if let Err(error) = file::mark(path, true) {
            tracing::warn!(%error, "cannot write the lock file of the database {}", path.display());
        }
        // SQLite copies the write-ahead log into the database when the last connection closes,
        // which may take a long time.
        let mut second = self.writers.acquire().await?;
        // After this query, the second connection keeps the write-ahead log open.
        second.execute("SELECT count(*) FROM sqlite_schema").await?;
        first.close().await?;
        let opened =
            [path.clone(), file::wal_of(path)].map(|path| OpenedFile { inode: inode(&path), path });
        self.opened.get_or_init(async || opened).await;
        drop(second);
        Ok(())
    }

    /// The path of SQLite's file, or `None` for PostgreSQL.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Records that the file is damaged, if `error` shows damage.
    #[must_use]
    pub fn note_damage(&self, error: &sqlx::Error) -> Option<FileFault> {
        let fault = FileFault::of_damage(self.file.as_deref()?, error)?;
        note(&self.damage, error);
        Some(fault)
    }

    /// The damage that a SQLite error has shown since the file was opened.
    #[must_use]
    pub fn damage(&self) -> Option<FileFault> {
        let what = self.damage.borrow().clone()?;
        Some(FileFault::Damaged { path: self.file.clone()?, what })
    }

    /// Waits until an error shows that the file is damaged. This is needed because the connection
    /// pool reports failed connections only when its timeout expires, and gives no reason.
    pub async fn damaged(&self) -> FileFault {
        // The sending end of the channel stays open as long as `self` exists.
        let _ = self.damage.subscribe().wait_for(Option::is_some).await;
        match self.damage() {
            Some(fault) => fault,
            None => std::future::pending().await,
        }
    }

    /// Begins a change. With SQLite, waits until all other changes have ended.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn write(&self) -> Result<Transaction<'static, Any>, StoreError> {
        self.ready().await?;
        Ok(self.writers.begin_with(self.kind.begin_write()).await?)
    }

    /// Whether another change uses SQLite's only connection for changes.
    pub(crate) fn is_changing(&self) -> bool {
        self.kind == Kind::Sqlite && self.writers.size() > 0 && self.writers.num_idle() == 0
    }

    /// Whether the database refuses all changes, as a standby of PostgreSQL does.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn is_read_only(&self) -> Result<bool, StoreError> {
        if self.kind == Kind::Sqlite {
            return Ok(false);
        }
        let query = sqlx::query("SELECT current_setting('transaction_read_only') = 'on'");
        let rows = self.read_rows(query).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
    }

    /// Begins a read transaction. All reads in it see the same state.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn read(&self) -> Result<Transaction<'static, Any>, StoreError> {
        self.ready().await?;
        Ok(self.pool.begin_with(self.kind.begin_read()).await?)
    }

    /// Returns the rows of a single short read. Runs a single statement. A transaction would need
    /// two more statements, and checking its connection would need a third.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn read_rows(
        &self,
        query: Query<'_, Any, AnyArguments>,
    ) -> Result<Vec<AnyRow>, StoreError> {
        self.ready().await?;
        let mut connection = self.short_reads.acquire().await?;
        let rows = query.fetch_all(&mut *connection).await;
        if rows.is_err() {
            // Connections for short reads are not checked before their next use, so a failed one is
            // closed.
            connection.close_on_drop();
        }
        Ok(rows?)
    }

    /// Makes SQLite overwrite the deleted or changed data in its files, unless readers prevent
    /// this.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn overwrite_deleted(&self) -> Result<(), StoreError> {
        if self.kind == Kind::Sqlite {
            let mut connection = self.writers.acquire().await?;
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
        }
        Ok(())
    }

    /// Like [`Self::close`], for a process that ends now: SQLite's files beside the database stay.
    /// SQLite would remove them when the last connection closes, and if the disk is full at the
    /// next startup, it could not create them again. The write-ahead log is copied into the
    /// database and emptied.
    pub async fn close_keeping_files(&self) {
        let is_open = self.kind == Kind::Sqlite && self.is_ready.initialized();
        let is_kept = is_open && self.ready().await.is_ok();
        let last = if is_kept { self.writers.acquire().await.ok() } else { None };
        let last = last.map(PoolConnection::detach);
        self.close().await;
        let Some(mut last) = last else { return };
        let copied = last.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
        if let (Err(error), Some(file)) = (copied, &self.file) {
            tracing::warn!(
                %error,
                "the write-ahead log of {} could not be copied into the database: the next startup \
                 does this",
                file.display()
            );
        }
        // This connection closes when the process ends.
        std::mem::forget(last);
    }

    /// Waits until all operations have ended, and closes the database.
    pub async fn close(&self) {
        self.pool.close().await;
        self.short_reads.close().await;
        self.writers.close().await;
    }
}

#[cfg(test)]
mod tests;
