//! The reasons why an operation on the call log fails.

use std::borrow::Cow;
use std::path::PathBuf;

use ringwell_store::{FileFault, StoreError, trouble};
use sqlx::error::DatabaseError;

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
    /// The stored data is damaged: it cannot be parsed.
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
    pub(super) fn is_unreachable(&self) -> bool {
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

    /// The database's code for the error.
    fn code(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Database(error) => error.as_database_error().and_then(DatabaseError::code),
            _ => None,
        }
    }

    /// Whether the operation has waited too long for another change to end.
    pub(super) fn is_busy(&self) -> bool {
        // PostgreSQL's lock_not_available, and SQLite's BUSY.
        self.code().is_some_and(|code| matches!(&*code, "55P03" | "5"))
    }

    /// The reason for clients of the API, and the remedy. The server's log has the details, which
    /// may name addresses and users.
    #[must_use]
    pub fn for_clients(&self) -> &'static str {
        match self.code().as_deref() {
            _ if self.is_full() => {
                "the disk of the call log is full: free some space, then try again"
            }
            // PostgreSQL's read_only_sql_transaction, and SQLite's READONLY.
            Some("25006" | "8") => {
                "the database of the call log is read-only: let it accept changes, or set the \
                 address of the primary server, then try again"
            }
            Some("42P01" | "42703") => {
                "a table or a column of the call log is missing: wait until a restore has ended, \
                 or restart the server, then try again"
            }
            Some("42501") => {
                "the database user of the call log lacks a right: grant it, or connect as the \
                 owner of the tables, then try again"
            }
            _ if self.is_busy() => "another change of the call log takes too long; try again later",
            _ => "the call log is unavailable: the server's log states the reason; try again",
        }
    }

    /// Whether the log's file is damaged or is not a database.
    pub(super) const fn is_damage(&self) -> bool {
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
    // A five-character code is a PostgreSQL SQLSTATE. The listed classes are, in order: unsupported
    // features, data, constraints, syntax and names, and limits.
    if code.len() == 5 {
        // A table or column is missing, or this user may not use it. During a restore, this is
        // temporary.
        let is_being_restored = matches!(code, "42P01" | "42703" | "42501");
        return !is_being_restored && ["0A", "22", "23", "42", "54"].contains(&&code[..2]);
    }
    // The low byte of SQLite's result codes is the primary code. The listed codes are ERROR,
    // TOOBIG, CONSTRAINT, MISMATCH and RANGE.
    code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 1 | 18 | 19 | 20 | 25))
}

#[cfg(test)]
#[test]
fn only_errors_about_a_statement_or_its_values_make_a_change_useless() {
    // SQLite errors: constraint, unique index, value too big. PostgreSQL: data, constraint, limit.
    for code in ["19", "2067", "18", "1", "22021", "23505", "54000"] {
        assert!(is_about_statement(code), "{code}");
    }
    // SQLite errors: disk full, read or write error, busy, locked. PostgreSQL: disk full, shutdown,
    // deadlock, too many clients; during a restore, a missing table, column or right.
    for code in "13 10 778 5 517 6 53100 57P01 40P01 53300 42P01 42703 42501".split(' ') {
        assert!(!is_about_statement(code), "{code}");
    }
}
