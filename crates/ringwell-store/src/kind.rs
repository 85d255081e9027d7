//! The kinds of databases.

/// The kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SQLite inside the process.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl Kind {
    /// Returns the statement that begins a change. `IMMEDIATE` takes SQLite's only write lock at
    /// once. Without it, a transaction that reads first would be aborted at its first write if
    /// another writer held the lock.
    pub(crate) const fn begin_write(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    pub(crate) const fn begin_read(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// The statements to run on each new connection.
    pub(crate) const fn greeting(self) -> &'static str {
        match self {
            // Readers do not wait for a writer, and a change is on the disk when it is confirmed.
            // The undo data of a long change stays in memory, because without this setting, an
            // import of 10,000 lines wrote 580 MB of it to a file. Changed pages stay in memory too
            // until the change is complete. The write-ahead log is copied into the database once it
            // reaches 64 MB, instead of 4 MB. Each copy flushes many pages, and flushes of
            // allocations on the same disk must wait for it.
            Self::Sqlite => {
                "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; \
                 PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
                 PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16384; \
                 PRAGMA wal_autocheckpoint = 16384; PRAGMA secure_delete = ON"
            }
            // A node that is paused in a transaction must not keep its locks for long.
            Self::Postgres => {
                "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '20s'"
            }
        }
    }
}
