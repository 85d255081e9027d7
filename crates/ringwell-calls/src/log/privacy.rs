//! What is forgotten: calls after their retention, callers and visitors sooner or on request.

use ringwell_core::Millis;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::change::text;
use super::query::call;
use super::{Log, LogError, ms};
use crate::caller::Caller;
use crate::digest;

/// Calls that are redacted or removed in one transaction.
const CALLS_MAX: u32 = 500;

impl Log {
    /// The key by which callers of `month`, as in `2026-11`, are hashed; made if there is none.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn caller_key(&self, month: &str) -> Result<Vec<u8>, LogError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|_| LogError::NoRandomness)?;
        let mut tx = self.database().write().await?;
        let query = sqlx::query(
            "INSERT INTO caller_keys (month, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        );
        let query = query.bind(month.to_owned()).bind(digest::hex(&random));
        query.execute(&mut *tx).await?;
        let query = sqlx::query("SELECT secret FROM caller_keys WHERE month = $1");
        let row = query.bind(month.to_owned()).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(row.try_get::<String, _>(0)?.into_bytes())
    }

    /// Removes caller and visitor from calls that began before `before`; how many. At most a few
    /// hundred: ask again until there are none.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn redact_before(&self, before: Millis, now: Millis) -> Result<u64, LogError> {
        let query = sqlx::query(
            "SELECT id FROM calls WHERE started_ms < $1 AND redacted_ms IS NULL \
             ORDER BY started_ms LIMIT $2",
        );
        let mut tx = self.database().write().await?;
        let query = query.bind(ms(before)).bind(i64::from(CALLS_MAX));
        let rows = query.fetch_all(&mut *tx).await?;
        let count = redact(&mut tx, &rows, now).await?;
        tx.commit().await?;
        Ok(count)
    }

    /// Removes everything that identifies `caller` from all calls; how many there were. What it leaves
    /// in the files of SQLite is overwritten.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn erase_caller(&self, caller: &Caller, now: Millis) -> Result<u64, LogError> {
        let Some(column) = caller.to_column() else { return Ok(0) };
        let mut tx = self.database().write().await?;
        let query = sqlx::query("SELECT id FROM calls WHERE caller = $1");
        let rows = query.bind(column).fetch_all(&mut *tx).await?;
        let count = redact(&mut tx, &rows, now).await?;
        tx.commit().await?;
        self.database().overwrite_deleted().await?;
        Ok(count)
    }

    /// Removes calls that began before `before`, with all that belongs to them, and events older than
    /// `events`; how many calls. At most a few hundred: ask again until there are none.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn remove_before(&self, before: Millis, events: Millis) -> Result<u64, LogError> {
        let mut tx = self.database().write().await?;
        let query =
            sqlx::query("SELECT id FROM calls WHERE started_ms < $1 ORDER BY started_ms LIMIT $2");
        let query = query.bind(ms(before)).bind(i64::from(CALLS_MAX));
        let rows = query.fetch_all(&mut *tx).await?;
        for row in &rows {
            let id: String = row.try_get(0)?;
            for statement in [
                "DELETE FROM webhook_deliveries WHERE event IN \
                 (SELECT place FROM call_events WHERE call = $1)",
                "DELETE FROM call_events WHERE call = $1",
                "DELETE FROM call_timeline WHERE call = $1",
                "DELETE FROM call_outcomes WHERE call = $1",
                "DELETE FROM calls WHERE id = $1",
            ] {
                sqlx::query(statement).bind(id.clone()).execute(&mut *tx).await?;
            }
        }
        let query = sqlx::query("DELETE FROM number_taps WHERE at_ms < $1");
        query.bind(ms(before)).execute(&mut *tx).await?;
        for statement in [
            "DELETE FROM webhook_deliveries WHERE event IN \
             (SELECT place FROM call_events WHERE at_ms < $1)",
            "DELETE FROM call_events WHERE at_ms < $1",
        ] {
            sqlx::query(statement).bind(ms(events)).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }
}

/// Removes callers, parameters and verdicts; times, pool and outcome stay. Events keep their places.
async fn redact(db: &mut AnyConnection, rows: &[AnyRow], now: Millis) -> Result<u64, LogError> {
    for row in rows {
        let id: String = row.try_get(0)?;
        let Some(mut found) = call(db, &id).await? else { continue };
        found.attribution.redact();
        let attribution = found.attribution.is_known().then(|| text(&found.attribution));
        let query = sqlx::query(
            "UPDATE calls SET caller = NULL, first_time = NULL, stir = NULL, attribution = $1, \
             redacted_ms = $2 WHERE id = $3",
        );
        let query = query.bind(attribution.transpose()?).bind(ms(now)).bind(id.clone());
        query.execute(&mut *db).await?;
        let body = text(&serde_json::json!({ "data": { "id": id, "redacted": true } }))?;
        let query = sqlx::query("UPDATE call_events SET body = $1 WHERE call = $2");
        query.bind(body).bind(id).execute(&mut *db).await?;
    }
    Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
}
