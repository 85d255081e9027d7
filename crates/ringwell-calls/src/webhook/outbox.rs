//! Reads due deliveries, and records their results.

use ringwell_core::Millis;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::endpoint::{disable, is_in_use};
use super::schedule;
use crate::log::{Log, LogError, from_ms, ms};

/// The duration of a delivery's lease. No attempt can take this long. If a process is killed, its
/// leases soon end, so that another process can send its deliveries.
pub const LEASE: Millis = Millis(20_000);

/// The maximum length of a stored error text.
const ERROR_BYTES_MAX: usize = 1_024;

/// A delivery that is due.
#[derive(Clone, PartialEq, Eq)]
pub struct Due {
    /// The endpoint's id.
    pub endpoint: String,
    /// The endpoint's URL.
    pub url: String,
    /// The signing secrets: the current one, and those that were replaced within the last day.
    pub secrets: Vec<String>,
    /// The key for the additional signature header. `None` for no such header.
    pub company_key: Option<String>,
    /// The event's place in the order of all events.
    pub place: i64,
    /// The event's id.
    pub event: String,
    /// The body to send.
    pub body: String,
    /// The count of earlier attempts.
    pub attempts: u32,
}

/// Leaves out secrets and bodies.
impl std::fmt::Debug for Due {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Due");
        shown.field("endpoint", &self.endpoint).field("event", &self.event);
        shown.finish_non_exhaustive()
    }
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The endpoint answered.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The pause that the endpoint requested before the next attempt.
        retry_after: Option<Millis>,
    },
    /// The endpoint did not answer, for the given reason.
    Failed(String),
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Result {
    /// The endpoint's id.
    pub endpoint: String,
    /// The event's place in the order of all events.
    pub place: i64,
    /// The count of attempts, including this one.
    pub attempts: u32,
    /// The outcome of the attempt.
    pub ended: Ended,
    /// A random number that varies the time of the next attempt.
    pub random: u32,
}

impl Ended {
    /// Whether the endpoint answered with a 2xx status.
    #[must_use]
    pub const fn is_delivered(&self) -> bool {
        matches!(self, Self::Answered { status: 200..300, .. })
    }

    /// The reason why the event was not delivered. `None` if it was delivered.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Answered { status: 200..300, .. } => None,
            Self::Answered { status: status @ 300..400, .. } => {
                Some(format!("the endpoint answered {status}; redirects are not followed"))
            }
            Self::Answered { status, .. } => Some(format!("the endpoint answered {status}")),
            Self::Failed(error) => Some(crate::caller::cut(error, ERROR_BYTES_MAX).to_owned()),
        }
    }
}

impl Log {
    /// Reschedules deliveries to `now` if they were planned before the clock was set back.
    /// Otherwise, they would wait until the clock reaches the planned time again. A delivery is
    /// planned when an attempt begins or ends, or when its event is written. If that time is later
    /// than `now`, the clock was set back. Differences of up to a [`LEASE`] are ignored, because
    /// the clocks of several servers on one database differ a little.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn plan_again(&self, now: Millis) -> std::result::Result<u64, LogError> {
        let query = sqlx::query(
            "UPDATE webhook_deliveries SET next_ms = $1, \
             last_ms = CASE WHEN last_ms > $1 THEN $1 ELSE last_ms END \
             WHERE state = 'pending' AND COALESCE(last_ms, next_ms) > $2",
        );
        let query = query.bind(ms(now)).bind(ms(now + LEASE));
        let mut tx = self.database().write().await?;
        let count = query.execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        Ok(count)
    }

    /// The ids of endpoints with deliveries that are due at `now`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn due_endpoints(&self, now: Millis) -> std::result::Result<Vec<String>, LogError> {
        let query = sqlx::query(
            "SELECT DISTINCT endpoint FROM webhook_deliveries \
             WHERE state = 'pending' AND next_ms <= $1",
        );
        let rows = self.database().read_rows(query.bind(ms(now))).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Claims the deliveries for `endpoint` that are due at `now`, longest overdue first. During
    /// the [`LEASE`], no other worker on the same database gets these deliveries. Their results
    /// must be recorded before the lease ends.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn claim(
        &self,
        endpoint: &str,
        now: Millis,
        most: u32,
    ) -> std::result::Result<Vec<Due>, LogError> {
        let mut tx = self.database().write().await?;
        // If two workers select the same row, PostgreSQL evaluates the `WHERE` clause again before
        // the second worker's update.
        let query = sqlx::query(
            "UPDATE webhook_deliveries SET next_ms = $1, last_ms = $3 \
             WHERE endpoint = $2 AND state = 'pending' AND next_ms <= $3 AND event IN \
             (SELECT event FROM webhook_deliveries WHERE endpoint = $2 AND state = 'pending' \
              AND next_ms <= $3 ORDER BY next_ms, event LIMIT $4) RETURNING event",
        );
        let query = query.bind(ms(now + LEASE)).bind(endpoint.to_owned()).bind(ms(now));
        let mut places: Vec<i64> = Vec::new();
        for row in query.bind(i64::from(most)).fetch_all(&mut *tx).await? {
            places.push(row.try_get(0)?);
        }
        places.sort_unstable();
        let mut all = Vec::with_capacity(places.len());
        for place in places {
            let query = sqlx::query(
                "SELECT d.endpoint, url, secret, old_secret, old_secret_until_ms, older_secret, \
                 older_secret_until_ms, company_key, place, v.id AS event, body, attempts FROM webhook_deliveries d \
                 JOIN webhook_endpoints e ON e.id = d.endpoint \
                 JOIN call_events v ON v.place = d.event WHERE d.endpoint = $1 AND d.event = $2",
            );
            let row = query.bind(endpoint.to_owned()).bind(place).fetch_optional(&mut *tx).await?;
            all.extend(row.map(|row| Due::read(&row, now)).transpose()?);
        }
        tx.commit().await?;
        Ok(all)
    }

    /// Records the results of attempts that ended at `now`, all in one transaction. The duration of
    /// an endpoint's failure is measured with `age_time` (see [`Self::age_time`]).
    ///
    /// # Errors
    /// [`LogError`]. In this case, no result is recorded, and the events are sent again, even if
    /// they were delivered.
    pub async fn record(
        &self,
        results: &[Result],
        now: Millis,
        age_time: Millis,
    ) -> std::result::Result<(), LogError> {
        let mut tx = self.database().write().await?;
        for result in results {
            note(&mut tx, result, now, age_time).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

impl Due {
    fn read(row: &AnyRow, now: Millis) -> std::result::Result<Self, LogError> {
        let mut secrets: Vec<String> = vec![row.try_get("secret")?];
        for (secret, until) in
            [("old_secret", "old_secret_until_ms"), ("older_secret", "older_secret_until_ms")]
        {
            let until: Option<i64> = row.try_get(until)?;
            let secret: Option<String> = row.try_get(secret)?;
            let is_in_use = until.is_some_and(|until| is_in_use(from_ms(until), now));
            secrets.extend(secret.filter(|_| is_in_use));
        }
        let attempts: i64 = row.try_get("attempts")?;
        Ok(Self {
            endpoint: row.try_get("endpoint")?,
            url: row.try_get("url")?,
            secrets,
            company_key: row.try_get("company_key")?,
            place: row.try_get("place")?,
            event: row.try_get("event")?,
            body: row.try_get("body")?,
            attempts: u32::try_from(attempts).unwrap_or_default(),
        })
    }
}

async fn note(
    db: &mut AnyConnection,
    result: &Result,
    now: Millis,
    age_time: Millis,
) -> std::result::Result<(), LogError> {
    let (status, asked) = match &result.ended {
        Ended::Answered { status, retry_after } => (Some(*status), *retry_after),
        Ended::Failed(_) => (None, None),
    };
    let error = result.ended.reason();
    let next = schedule::next(now, result.attempts, result.random, asked);
    let state = match (result.ended.is_delivered(), next) {
        (true, _) => "delivered",
        (false, Some(_)) => "pending",
        (false, None) => "failed",
    };
    // If the endpoint was disabled during the attempt, the delivery stays in the state `held`,
    // unless the attempt succeeded.
    let query = sqlx::query(
        "UPDATE webhook_deliveries SET state = CASE WHEN state = 'pending' OR $1 = 'delivered' \
         THEN $1 ELSE state END, attempts = $2, next_ms = $3, last_ms = $4, last_status = $5, \
         last_error = $6 WHERE endpoint = $7 AND event = $8",
    );
    let query = query.bind(state).bind(i64::from(result.attempts)).bind(ms(next.unwrap_or(now)));
    let query = query.bind(ms(now)).bind(status.map(i64::from)).bind(error.clone());
    query.bind(result.endpoint.clone()).bind(result.place).execute(&mut *db).await?;
    if result.ended.is_delivered() {
        let query = sqlx::query(
            "UPDATE webhook_endpoints SET failing_since_ms = NULL, \
             reason = CASE WHEN state = 'enabled' THEN NULL ELSE reason END \
             WHERE id = $1 AND failing_since_ms IS NOT NULL",
        );
        query.bind(result.endpoint.clone()).execute(db).await?;
        return Ok(());
    }
    let query = sqlx::query(
        "UPDATE webhook_endpoints SET \
         failing_since_ms = CASE WHEN failing_since_ms < $1 THEN failing_since_ms ELSE $1 END, \
         reason = CASE WHEN state = 'enabled' THEN $2 ELSE reason END \
         WHERE id = $3 RETURNING failing_since_ms",
    );
    let query = query.bind(ms(now)).bind(error.clone()).bind(result.endpoint.clone());
    let Some(row) = query.fetch_optional(&mut *db).await? else { return Ok(()) };
    let since = from_ms(row.try_get(0)?);
    if status == Some(410) {
        let reason = "the endpoint answered 410 (Gone): it no longer exists";
        return disable(db, &result.endpoint, reason, now).await;
    }
    if age_time.0.saturating_sub(since.0) >= schedule::DISABLE_AFTER.0 {
        let last = error.unwrap_or_default();
        let reason = format!("no delivery has succeeded for five days; the last error: {last}");
        disable(db, &result.endpoint, &reason, now).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
