//! Creates, changes and tests endpoints, and replays missed events.

use ringwell_core::Millis;
use serde_json::json;
use sqlx::{AnyConnection, Row};

use super::sign;
use crate::log::{Log, LogError, NewEvent, from_ms, ms, publish, publish_to, random_id};

/// The period after a rotation in which the previous secret is also used for signing.
const ROTATION: Millis = Millis(24 * 60 * 60 * 1000);
/// The longest time for which a previous secret can still be used. It is a little longer than
/// [`ROTATION`], because the clocks of several servers on one database differ a little. A longer
/// time means that the clock was ahead at the rotation.
const ROTATION_MAX: Millis = Millis(ROTATION.0 + 20_000);
/// All types of events.
pub const TYPES: [&str; 10] = [
    "call.started",
    "call.answered",
    "call.completed",
    "call.updated",
    "conversion.recorded",
    "conversion.removed",
    "number.leaking",
    "pool.exhausting",
    "endpoint.disabled",
    "webhook.test",
];

/// An endpoint to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewEndpoint {
    /// The endpoint's URL, which must have been checked.
    pub url: String,
    /// The types of events to send. Empty means all types.
    pub types: Vec<String>,
    /// The key for an additional signature header in `CallRail`'s format. `None` for no such
    /// header.
    pub company_key: Option<String>,
}

/// A new endpoint, or an endpoint with a new secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The endpoint's id.
    pub id: String,
    /// The new secret, which is shown only once.
    pub secret: String,
}

/// The result of rotating a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotated {
    /// The secret was replaced.
    Made(Made),
    /// There is no such endpoint.
    Unknown,
    /// The secret was not replaced, because two earlier secrets are still used for signing. The
    /// older one expires at the given time.
    TooSoon(Millis),
}

/// A request to send events again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Only events that were written at or after this time.
    pub since: Option<Millis>,
    /// Only events that were written before this time.
    pub until: Option<Millis>,
    /// The types of events to send. Empty means all events that were not accepted or, with
    /// [`Which::All`], the types that the endpoint has selected, without tests.
    pub types: Vec<String>,
    /// The id of the only event to send. `None` for all events.
    pub event: Option<String>,
    /// Whether to include events that were delivered.
    pub which: Which,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The count of events that are sent again.
    pub count: u64,
    /// Whether the endpoint is enabled. Otherwise, new events are still held back.
    pub is_enabled: bool,
}

/// The deliveries to replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// Deliveries that were abandoned, that were held while the endpoint was disabled, or that wait
    /// for another attempt after a failed one.
    #[default]
    Failed,
    /// All deliveries, including successful ones.
    All,
}

fn new_secret() -> Result<String, LogError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|_| LogError::NoRandomness)?;
    Ok(sign::secret(random))
}

/// Whether a previous secret that is used until `until` is still in use.
pub(super) fn is_in_use(until: Millis, now: Millis) -> bool {
    now < until && until <= now + ROTATION_MAX
}

/// Joins the types with spaces, and adds a space at each end.
fn joined(types: &[String]) -> String {
    if types.is_empty() { String::new() } else { format!(" {} ", types.join(" ")) }
}

impl Log {
    /// Creates an endpoint. Only events that are written after its creation are sent to it.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn create_endpoint(&self, new: &NewEndpoint, now: Millis) -> Result<Made, LogError> {
        let (id, secret) = (random_id("we_")?, new_secret()?);
        let mut tx = self.database().write().await?;
        let query = sqlx::query(
            "INSERT INTO webhook_endpoints (id, url, types, secret, company_key, state, \
             created_ms) VALUES ($1, $2, $3, $4, $5, 'enabled', $6)",
        );
        let query = query.bind(id.clone()).bind(new.url.clone()).bind(joined(&new.types));
        let query = query.bind(secret.clone()).bind(new.company_key.clone()).bind(ms(now));
        query.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(Made { id, secret })
    }

    /// Removes an endpoint and its deliveries, but no events. Returns `false` if the endpoint does
    /// not exist.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn remove_endpoint(&self, id: &str) -> Result<bool, LogError> {
        let mut tx = self.database().write().await?;
        let query = sqlx::query("DELETE FROM webhook_deliveries WHERE endpoint = $1");
        query.bind(id.to_owned()).execute(&mut *tx).await?;
        let query = sqlx::query("DELETE FROM webhook_endpoints WHERE id = $1");
        let removed = query.bind(id.to_owned()).execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        Ok(removed > 0)
    }

    /// Replaces an endpoint's secret. Requests are also signed with each previous secret for a day.
    /// At most two previous secrets can be in use at the same time.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn rotate_secret(&self, id: &str, now: Millis) -> Result<Rotated, LogError> {
        let secret = new_secret()?;
        let mut tx = self.database().write().await?;
        let query = sqlx::query(
            "UPDATE webhook_endpoints SET older_secret = old_secret, \
             older_secret_until_ms = old_secret_until_ms, old_secret = secret, \
             old_secret_until_ms = $1, secret = $2 \
             WHERE id = $3 AND NOT COALESCE(older_secret_until_ms > $4 \
             AND older_secret_until_ms <= $5, FALSE)",
        );
        let query = query.bind(ms(now + ROTATION)).bind(secret.clone()).bind(id.to_owned());
        let query = query.bind(ms(now)).bind(ms(now + ROTATION_MAX));
        let changed = query.execute(&mut *tx).await?.rows_affected();
        if changed > 0 {
            tx.commit().await?;
            return Ok(Rotated::Made(Made { id: id.to_owned(), secret }));
        }
        let query = sqlx::query(
            "SELECT COALESCE(older_secret_until_ms, 0) FROM webhook_endpoints WHERE id = $1",
        );
        let row = query.bind(id.to_owned()).fetch_optional(&mut *tx).await?;
        Ok(match row {
            None => Rotated::Unknown,
            Some(row) => Rotated::TooSoon(from_ms(row.try_get(0)?)),
        })
    }

    /// The URL of an endpoint.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn endpoint_url(&self, id: &str) -> Result<Option<String>, LogError> {
        let mut tx = self.database().read().await?;
        let query = sqlx::query("SELECT url FROM webhook_endpoints WHERE id = $1");
        let row = query.bind(id.to_owned()).fetch_optional(&mut *tx).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Enables an endpoint. Does not send missed events; use [`Self::replay`] for that.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn enable_endpoint(&self, id: &str) -> Result<bool, LogError> {
        let mut tx = self.database().write().await?;
        let query = sqlx::query(
            "UPDATE webhook_endpoints SET state = 'enabled', reason = NULL, \
             failing_since_ms = NULL WHERE id = $1",
        );
        let changed = query.bind(id.to_owned()).execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        Ok(changed > 0)
    }

    /// Writes a test event for one endpoint. Returns the event's id, or `None` if the endpoint does
    /// not exist.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn test_endpoint(&self, id: &str, now: Millis) -> Result<Option<String>, LogError> {
        let mut tx = self.database().write().await?;
        if !exists(&mut tx, id).await? {
            return Ok(None);
        }
        let data = json!({ "endpoint": id, "message": "Ringwell can reach this endpoint." });
        let event = NewEvent { kind: "webhook.test", call: None, at: now, data };
        let written = publish_to(&mut tx, event, id).await?;
        tx.commit().await?;
        Ok(Some(written))
    }

    /// Schedules events to be sent to an endpoint again, with the same ids. A disabled endpoint
    /// gets them too, and stays disabled. Returns `None` if the endpoint does not exist.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn replay(
        &self,
        id: &str,
        replay: &Replay,
        now: Millis,
    ) -> Result<Option<Replayed>, LogError> {
        let mut tx = self.database().write().await?;
        let Some((selected, is_enabled)) = types_of(&mut tx, id).await? else { return Ok(None) };
        let is_any = !replay.types.is_empty() || replay.event.is_some();
        // Every delivery that was not accepted can be replayed, including a test delivery.
        let types = match replay.which {
            Which::All if !is_any => selected,
            Which::All | Which::Failed => joined(&replay.types),
        };
        let wanted = "at_ms >= $3 AND at_ms < $4 AND ($5 = '' OR $5 LIKE '% ' || type || ' %') \
                      AND ($6 = '' OR id = $6)";
        let statement = match replay.which {
            Which::Failed => format!(
                "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, next_ms = $2, \
                 last_ms = NULL WHERE endpoint = $1 \
                 AND (state IN ('failed', 'held') OR state = 'pending' AND attempts > 0) \
                 AND event IN (SELECT place FROM call_events WHERE {wanted})"
            ),
            Which::All => format!(
                "INSERT INTO webhook_deliveries (endpoint, event, state, attempts, next_ms) \
                 SELECT $1, place, 'pending', 0, $2 FROM call_events WHERE {wanted} \
                 AND (type <> 'webhook.test' OR $6 <> '') \
                 ON CONFLICT (endpoint, event) DO UPDATE SET state = 'pending', attempts = 0, \
                 next_ms = $2, last_ms = NULL"
            ),
        };
        let query = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(id.to_owned()).bind(ms(now));
        let query = query.bind(replay.since.map_or(0, ms));
        let query = query.bind(replay.until.map_or(i64::MAX, ms)).bind(types);
        let query = query.bind(replay.event.clone().unwrap_or_default());
        let count = query.execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        Ok(Some(Replayed { count, is_enabled }))
    }
}

/// Returns the types of events that an endpoint has selected, in the form of [`joined`], and
/// whether the endpoint is enabled. Returns `None` if the endpoint does not exist.
async fn types_of(db: &mut AnyConnection, id: &str) -> Result<Option<(String, bool)>, LogError> {
    let query = sqlx::query("SELECT types, state FROM webhook_endpoints WHERE id = $1");
    let Some(row) = query.bind(id.to_owned()).fetch_optional(db).await? else { return Ok(None) };
    Ok(Some((row.try_get(0)?, row.try_get::<String, _>(1)? == "enabled")))
}

async fn exists(db: &mut AnyConnection, id: &str) -> Result<bool, LogError> {
    let query = sqlx::query("SELECT COUNT(*) FROM webhook_endpoints WHERE id = $1");
    let row = query.bind(id.to_owned()).fetch_one(db).await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}

/// Disables an endpoint and holds its pending deliveries. Writes an event that reports this to the
/// other endpoints.
pub(super) async fn disable(
    db: &mut AnyConnection,
    id: &str,
    reason: &str,
    now: Millis,
) -> Result<(), LogError> {
    let query = sqlx::query(
        "UPDATE webhook_endpoints SET state = 'disabled', reason = $1 \
         WHERE id = $2 AND state = 'enabled'",
    );
    let query = query.bind(reason.to_owned()).bind(id.to_owned());
    if query.execute(&mut *db).await?.rows_affected() == 0 {
        return Ok(());
    }
    let query = sqlx::query(
        "UPDATE webhook_deliveries SET state = 'held' WHERE endpoint = $1 AND state = 'pending'",
    );
    query.bind(id.to_owned()).execute(&mut *db).await?;
    tracing::error!(endpoint = id, reason, "a webhook endpoint is disabled");
    let data = json!({ "endpoint": id, "reason": reason });
    let event = NewEvent { kind: "endpoint.disabled", call: None, at: now, data };
    publish(db, vec![event]).await.map(drop)
}
