//! The call log: calls, their timelines, events and webhooks in SQLite or PostgreSQL.
//!
//! Owns the tables. Does not depend on providers or HTTP. Functions that need the current time
//! receive it as an argument. Invariants: each call has exactly one row. An event is written in the
//! same transaction as the change that causes it. Events become visible in the order of their
//! `place`.

mod age;
mod apply;
mod backlog;
mod blocks;
mod change;
mod database;
mod error;
mod group;
mod leaks;
mod outcome;
mod places;
mod privacy;
mod publish;
mod query;
mod ringing;
mod row;
mod taps;
mod values;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use age::AgeClock;
use database::LogDatabase;
use ringwell_core::Millis;
use ringwell_store::{Location, Schema, Step};

pub use backlog::examine_waiting;
pub use blocks::Blocked;
pub(crate) use change::call_id;
pub use change::{Applied, CallChange, ReportedEvent};
pub use error::LogError;
pub use outcome::{OutcomeCursor, OutcomeFilter, Recorded, Withdrawn};
pub use privacy::{Erased, ErasedAllocation, Removed, Whom, fingerprint};
pub(crate) use publish::{NewEvent, publish, publish_to};
pub use query::{
    CallDetail, CallFilter, Cursor, DeliveryRow, EndpointCounts, EndpointRow, EventRow, OutcomeRow,
    TimelineRow,
};
pub(crate) use ringing::NO_DESTINATION;
pub use row::CallRow;
pub use taps::Tap;
pub(crate) use values::{from_ms, ms, random_id};
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
        Step { both: include_str!("log/10.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/11.sql"), sqlite: "", postgres: "" },
        Step { both: include_str!("log/12.sql"), sqlite: "", postgres: "" },
    ],
};

/// The call log.
#[derive(Clone, Debug)]
pub struct Log {
    database: Arc<LogDatabase>,
    age: Arc<AgeClock>,
}

impl Log {
    /// Opens the log and updates its schema.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn open(location: &Location) -> Result<Self, LogError> {
        let database = LogDatabase::unopened(location, &SCHEMA)?;
        database.open().await?;
        Ok(Self { database: Arc::new(database), age: Arc::default() })
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
        let database = LogDatabase::unopened(location, &SCHEMA)?;
        Ok(Self { database: Arc::new(database), age: Arc::default() })
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

    /// The reference time for ages when the wall clock shows `wall`. Never later than `wall`. Until
    /// [`Self::note_age_time`] has succeeded once, nothing is old.
    #[must_use]
    pub fn age_time(&self, wall: Millis) -> Millis {
        self.age.time(wall)
    }

    /// Like [`Self::age_time`], but also stores the time for later processes. Must be called often,
    /// because downtime is counted from the last invocation.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn note_age_time(&self, wall: Millis) -> Result<Millis, LogError> {
        self.age.note(&self.database, wall).await
    }

    pub(crate) fn database(&self) -> &LogDatabase {
        &self.database
    }
}

#[cfg(test)]
mod tests;
