//! Visitors' taps on numbers on web pages. A tap is evidence of who made a call.
//!
//! Invariant: at most one tap per number and minute is stored.

use ringwell_core::Millis;
use sqlx::{AssertSqlSafe, Row};

use super::Log;
use super::error::LogError;
use super::values::{from_ms, ms};

/// The maximum number of taps to read for one number.
const TAPS_MAX: i64 = 100;

/// A visitor's tap on a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// The number in E.164 format, with `+`.
    pub number: String,
    /// The time of the tap.
    pub at: Millis,
}

impl Log {
    /// Stores taps. If a number was tapped several times in a minute, keeps the last tap.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn store_taps(&self, taps: &[Tap]) -> Result<(), LogError> {
        let mut tx = self.database.write().await?;
        for Tap { number, at } in taps {
            let query = sqlx::query(
                "INSERT INTO number_taps (number, minute, at_ms) VALUES ($1, $2, $3) \
                 ON CONFLICT (number, minute) DO UPDATE SET at_ms = excluded.at_ms",
            );
            let query = query.bind(number.clone()).bind(ms(*at) / 60_000).bind(ms(*at));
            query.execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The times at which `number` was tapped, from `since` until just before `until`, newest
    /// first.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn taps(
        &self,
        number: &str,
        since: Millis,
        until: Millis,
    ) -> Result<Vec<Millis>, LogError> {
        // If the limit were an argument, SQLite would prepare the statement again for each value.
        let statement = format!(
            "SELECT at_ms FROM number_taps WHERE number = $1 AND minute >= $2 AND at_ms >= $3 \
             AND at_ms < $4 ORDER BY minute DESC LIMIT {TAPS_MAX}",
        );
        let query = sqlx::query(AssertSqlSafe(statement)).bind(number.to_owned());
        let query = query.bind(ms(since) / 60_000).bind(ms(since)).bind(ms(until));
        let rows = self.database.read_rows(query).await?;
        rows.iter().map(|row| Ok(from_ms(row.try_get(0)?))).collect()
    }
}
