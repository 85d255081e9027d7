//! The reference time for the age of calls, events and failures.
//!
//! Data that is redacted or removed because of its age cannot be restored. Therefore, a wall clock
//! that has leapt is not trusted for a day. The same rule applies to the history in the journal.
//! Until then, the reference time advances only while a process runs. It is stored, so that a
//! restart does not make the clock trusted again. Source: docs/operations.md, "The wall clock is
//! wrong, or was set".

use std::sync::{Mutex, PoisonError};

use ringwell_core::Millis;
use sqlx::{AnyConnection, Row};
use tokio::time::Instant;

use super::database::LogDatabase;
use super::error::LogError;
use super::values::{from_ms, ms};

/// The largest difference between the wall clock and the expected time that does not count as a
/// leap. While no process runs, no time is expected to pass, so a longer downtime looks like a
/// leap.
const LEAP_MIN: Millis = Millis(60 * 60 * 1000);
/// The running time after which a clock that has leapt is trusted.
const TRUST_AFTER: Millis = Millis(24 * 60 * 60 * 1000);

/// The time, and whether the wall clock is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Age {
    at: Millis,
    /// The running time for which the wall clock has been in doubt. `None` if it is trusted.
    doubted: Option<Millis>,
}

/// The time in memory, and the moment when it was computed. `None` before it was read from the log.
#[derive(Debug, Default)]
pub(super) struct AgeClock(Mutex<Option<(Age, Instant)>>);

impl Age {
    /// The state after a process has run for `passed`, when the wall clock shows `wall`.
    fn after(self, passed: Millis, wall: Millis) -> Self {
        let expected = self.at + passed;
        let doubted = self.doubted.map_or(Millis::ZERO, |it| it + passed);
        if wall.0.abs_diff(expected.0) <= LEAP_MIN.0 || doubted >= TRUST_AFTER {
            return Self { at: wall, doubted: None };
        }
        Self { at: expected, doubted: Some(doubted) }
    }

    /// The reference time for ages when the wall clock shows `wall`.
    fn time(self, wall: Millis) -> Millis {
        self.at.min(wall)
    }
}

impl AgeClock {
    fn get(&self) -> Option<(Age, Instant)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, age: Age) {
        let now = Some((age, Instant::now()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// The reference time for ages: see [`Log::age_time`](super::Log::age_time).
    pub(super) fn time(&self, wall: Millis) -> Millis {
        let Some((age, since)) = self.get() else { return Millis::ZERO };
        let passed = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        age.after(Millis(passed), wall).time(wall)
    }

    /// Like [`Self::time`], but also stores the time in `database`.
    pub(super) async fn note(
        &self,
        database: &LogDatabase,
        wall: Millis,
    ) -> Result<Millis, LogError> {
        let mut tx = database.write().await?;
        let (before, passed) = match self.get() {
            Some((age, since)) => (age, since.elapsed().as_millis()),
            None => (stored(&mut tx).await?.unwrap_or(Age { at: wall, doubted: None }), 0),
        };
        let age = before.after(Millis(u64::try_from(passed).unwrap_or(u64::MAX)), wall);
        self.set(age);
        if age.doubted.is_some() && before.doubted.is_none() {
            tracing::warn!(
                "the wall clock has leapt, or the server was stopped for more than an hour: for 24 \
                 hours, calls and events age as if the skipped time had not passed"
            );
        }
        let query = sqlx::query("UPDATE call_counter SET age_ms = $1, doubted_ms = $2");
        let query = query.bind(ms(age.at)).bind(age.doubted.map(ms));
        query.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(age.time(wall))
    }
}

async fn stored(db: &mut AnyConnection) -> Result<Option<Age>, LogError> {
    let row = sqlx::query("SELECT age_ms, doubted_ms FROM call_counter").fetch_one(db).await?;
    let at: Option<i64> = row.try_get(0)?;
    let doubted: Option<i64> = row.try_get(1)?;
    Ok(at.map(|at| Age { at: from_ms(at), doubted: doubted.map(from_ms) }))
}

#[cfg(test)]
mod tests;
