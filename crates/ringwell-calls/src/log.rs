//! The call log: calls, their timelines, events and webhooks in SQLite or PostgreSQL.
//!
//! Owns the tables. Does not depend on providers or HTTP. Functions that need the current time
//! receive it as an argument. Invariants: each call has exactly one row. An event is written in the
//! same transaction as the change that causes it. Events become visible in the order of their
//! `place`.

mod backlog;
mod blocks;
mod change;
mod database;
mod group;
mod leaks;
mod outcome;
mod privacy;
mod query;
mod ringing;
mod taps;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use database::LogDatabase;
use ringwell_core::Millis;
use ringwell_store::{FileFault, Location, Schema, Step, StoreError, trouble};

pub use backlog::examine_waiting;
pub use blocks::Blocked;
pub use change::{Applied, CallChange, ReportedEvent};
pub(crate) use change::{NewEvent, call_id, publish, publish_to};
pub use outcome::{OutcomeCursor, OutcomeFilter, Recorded};
pub use privacy::{Erased, ErasedAllocation, Removed, Whom, fingerprint};
pub(crate) use query::moment;
pub use query::{
    CallDetail, CallFilter, CallRow, Cursor, DeliveryRow, EndpointRow, EventRow, OutcomeRow,
    TimelineRow,
};
pub(crate) use ringing::NO_DESTINATION;
pub use taps::Tap;
pub(crate) use writer::Submitted;
pub use writer::{Waiting, Writer, WriterFull};

/// The time to wait for the database at startup.
const OPEN_MAX: Duration = Duration::from_secs(3);

/// The tables of the call log.
pub const SCHEMA: Schema = Schema {
    version_table: "calls_schema_version",
    steps: &[
        Step { both: include_str!("log/1.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/2.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/3.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/4.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/5.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/6.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/7.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/8.sql"), sqlite: "", postgres: "" },
        Step {
            both: "",
            sqlite: include_str!("log/9.sqlite.sql"),
            postgres: include_str!("log/9.postgres.sql"),
        },
    ],
};

/// The call log.
#[derive(Clone, Debug)]
pub struct Log {
    database: Arc<LogDatabase>,
}

/// The reason why an operation on the log failed. The log is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The database cannot be reached, or it failed. A later attempt may succeed.
    #[error("the call log's database {}", trouble(.0))]
    Database(#[from] sqlx::Error),
    /// The log's database could not be opened.
    #[error("the call log cannot be used: {}", unusable(.0))]
    Open(StoreError),
    /// The database file was removed. A new one is created after some time.
    #[error(
        "the call log's file {} is missing: put the file back now; otherwise, a new file will be \
        created within seconds",
        .0.display()
    )]
    Missing(PathBuf),
    /// The stored data are damaged: they cannot be parsed.
    #[error("the call log is damaged: {0}")]
    Damaged(String),
    /// The operating system provides no random bytes for ids and secrets.
    #[error("the operating system provides no random bytes")]
    NoRandomness,
}

fn unusable(error: &StoreError) -> String {
    match error {
        StoreError::File(fault) => fault.of_calls(),
        StoreError::Silent => "its database has not answered in time".to_owned(),
        error => error.to_string(),
    }
}

impl From<StoreError> for LogError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Database(error) => Self::Database(error),
            error => Self::Open(error),
        }
    }
}

impl LogError {
    /// Whether the database cannot be reached, or is still starting.
    fn is_unreachable(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut) => true,
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| code == "57P03")
            }
            Self::Database(_)
            | Self::Open(_)
            | Self::Missing(_)
            | Self::Damaged(_)
            | Self::NoRandomness => false,
        }
    }

    /// Whether the database's disk is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Database(error) if ringwell_store::is_full(error))
    }

    /// Whether the log's file is damaged or is not a database.
    const fn is_damage(&self) -> bool {
        matches!(self, Self::Open(StoreError::File(fault)) if !matches!(fault, FileFault::Replaced(_)))
    }

    /// Whether a background task should not report this error. Damage was already reported when it
    /// was found. A closed log needs no report, because the log is closed only at shutdown, or
    /// briefly while it is reopened.
    #[must_use]
    pub fn is_said(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::PoolClosed)
            | Self::Open(StoreError::File(_))
            | Self::Missing(_) => true,
            Self::Database(error) => ringwell_store::is_damage(error),
            Self::Open(_) | Self::Damaged(_) | Self::NoRandomness => false,
        }
    }

    /// Whether a later attempt may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(error)) => {
                !error.code().is_some_and(|code| is_about_statement(&code))
            }
            Self::Damaged(_) => false,
            Self::Database(_) | Self::Open(_) | Self::Missing(_) | Self::NoRandomness => true,
        }
    }
}

/// Whether an error with this code is caused by the statement or its values, so that it would occur
/// again on every retry. Errors such as a full disk, a lock, a failed read or a server shutdown are
/// temporary.
fn is_about_statement(code: &str) -> bool {
    // A code of five characters is an SQLSTATE of PostgreSQL. The listed classes are, in order:
    // unsupported features, data, constraints, syntax and names, and limits.
    if code.len() == 5 {
        // A table or column is missing, or this user may not use it. During a restore, this passes.
        let is_being_restored = matches!(code, "42P01" | "42703" | "42501");
        return !is_being_restored && ["0A", "22", "23", "42", "54"].contains(&&code[..2]);
    }
    // The low byte of SQLite's result codes is the primary code. The listed codes are ERROR,
    // TOOBIG, CONSTRAINT, MISMATCH and RANGE.
    code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 1 | 18 | 19 | 20 | 25))
}

impl Log {
    /// Opens the log and updates its schema.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn open(location: &Location) -> Result<Self, LogError> {
        let database = LogDatabase::unopened(location, &SCHEMA)?;
        database.open().await?;
        Ok(Self { database: Arc::new(database) })
    }

    /// Opens the log for a server, which connects calls even without the log. If the database does
    /// not answer or its file is damaged, later operations try again to open the log.
    ///
    /// # Errors
    /// [`LogError`] if the database answers but this program cannot use it.
    pub async fn open_or_later(location: &Location) -> Result<Self, LogError> {
        let reason = match tokio::time::timeout(OPEN_MAX, Self::open(location)).await {
            Ok(Err(error)) if error.is_unreachable() || error.is_damage() => error.to_string(),
            Ok(Err(error)) if error.is_full() => format!("its disk is full: {error}"),
            Ok(opened) => return opened,
            Err(_) => format!("the call log's database has not answered in {OPEN_MAX:?}"),
        };
        tracing::error!(
            reason,
            "the call log is unavailable: calls are still connected, and will be logged when it is \
             available"
        );
        Ok(Self { database: Arc::new(LogDatabase::unopened(location, &SCHEMA)?) })
    }

    /// Waits until all operations have ended, then closes the log.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Reports the damage that `error` shows, if any. Returns true if a background task should not
    /// report `error`.
    pub(crate) fn reports(&self, error: &LogError) -> bool {
        self.database.report_damage(error);
        error.is_said()
    }

    pub(crate) fn database(&self) -> &LogDatabase {
        &self.database
    }
}

/// Converts a value to the database's integer type.
pub(crate) fn to_db(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn ms(at: Millis) -> i64 {
    to_db(at.0)
}

pub(crate) fn from_ms(value: i64) -> Millis {
    Millis(u64::try_from(value).unwrap_or_default())
}

/// Creates an id: `prefix` followed by 32 random hexadecimal digits.
pub(crate) fn random_id(prefix: &str) -> Result<String, LogError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| LogError::NoRandomness)?;
    Ok(format!("{prefix}{}", crate::digest::hex(&bytes)))
}

/// Creates an id for an event at `at`. The id begins with the time, so that the index of ids grows
/// only at its end. With random ids, each event would change a different page of the index.
fn event_id(at: Millis) -> Result<String, LogError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| LogError::NoRandomness)?;
    // Six bytes of milliseconds suffice for 8,900 years.
    bytes[..6].copy_from_slice(&at.0.to_be_bytes()[2..]);
    Ok(format!("evt_{}", crate::digest::hex(&bytes)))
}

#[cfg(test)]
mod tests;
