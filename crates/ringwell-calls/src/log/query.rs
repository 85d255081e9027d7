//! Queries the log for calls, their timelines, events and endpoints.
//!
//! Lists are read in pages. A cursor refers to the last entry of the previous page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ringwell_core::Millis;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::Log;
use super::error::LogError;
use super::row::{CALL, CallRow, calls_of};
use super::values::{from_ms, ms, to_db};
use crate::attribution::Attributed;
use crate::call::{CallState, Outcome};
use crate::caller::Caller;

/// A call with its whole history.
#[derive(Clone, Debug, PartialEq)]
pub struct CallDetail {
    /// The call.
    pub call: CallRow,
    /// The provider's reports, ordered by time.
    pub timeline: Vec<TimelineRow>,
    /// The reported results of the call.
    pub outcomes: Vec<OutcomeRow>,
    /// The events about the call.
    pub events: Vec<EventRow>,
    /// The deliveries of the call's events.
    pub deliveries: Vec<DeliveryRow>,
}

/// A report from a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineRow {
    /// `started`, `ringing`, `answered`, `leg_ended` or `ended`.
    pub kind: String,
    /// The outcome that the provider reported, if any.
    pub outcome: Option<String>,
    /// The time according to the provider, or the arrival time if the report has no time.
    pub at: Millis,
    /// The time at which the report arrived.
    pub received: Millis,
}

/// A result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeRow {
    /// The type of the result, such as `sale`.
    pub kind: String,
    /// The value, as a decimal number.
    pub value: Option<String>,
    /// The currency of the value.
    pub currency: Option<String>,
    /// The time of the result.
    pub at: Millis,
    /// The time at which the result was recorded.
    pub recorded_at: Millis,
    /// The id that the sender assigned to the result.
    pub external_id: String,
}

/// An event in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// The event's place in the order of all events.
    pub place: u64,
    /// The event's id, which is the same in each delivery.
    pub id: String,
    /// The event's type, such as `call.completed`.
    pub kind: String,
    /// The call that the event is about, if any.
    pub call: Option<String>,
    /// The time at which the event was written.
    pub at: Millis,
    /// The body that endpoints receive, as JSON.
    pub body: String,
}

/// An endpoint that receives events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRow {
    /// The endpoint's id.
    pub id: String,
    /// The endpoint's URL.
    pub url: String,
    /// The types of events to send. Empty means all types.
    pub types: Vec<String>,
    /// Whether events are sent to the endpoint.
    pub is_enabled: bool,
    /// The reason why the endpoint is disabled.
    pub reason: Option<String>,
    /// The time of the first failure since the last successful delivery, if the last delivery
    /// failed.
    pub failing_since: Option<Millis>,
    /// The time at which the endpoint was created.
    pub created_at: Millis,
    /// The count of pending deliveries.
    pub pending: u64,
    /// The count of abandoned deliveries.
    pub failed: u64,
    /// The count of deliveries that are held back because the endpoint is disabled.
    pub held: u64,
}

/// The counts of endpoints by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Endpoints that accepted the last event, or have not been sent any yet.
    pub accepting: u64,
    /// Enabled endpoints whose last delivery failed.
    pub failing: u64,
    /// Disabled endpoints: their events are held back.
    pub disabled: u64,
}

/// The delivery of one event to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The endpoint's id.
    pub endpoint: String,
    /// The event's id.
    pub event: String,
    /// `pending`, `delivered`, `failed` or `held`.
    pub state: String,
    /// The count of attempts.
    pub attempts: u32,
    /// The time of the next attempt.
    pub next_at: Millis,
    /// The time of the last attempt.
    pub last_at: Option<Millis>,
    /// The HTTP status of the last answer.
    pub last_status: Option<u16>,
    /// The reason why the last attempt got no answer.
    pub last_error: Option<String>,
}

/// A filter for calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Calls that began at or after this time.
    pub since: Option<Millis>,
    /// Calls that began before this time.
    pub until: Option<Millis>,
    /// Calls to this pool's numbers.
    pub pool: Option<u64>,
    /// Calls to this number in E.164 format, with `+`.
    pub number: Option<String>,
    /// Calls by this caller.
    pub caller: Option<Caller>,
    /// Calls in this state.
    pub state: Option<CallState>,
    /// Calls with this outcome.
    pub outcome: Option<Outcome>,
    /// Calls whose attribution has this result.
    pub attributed: Option<Attributed>,
    /// `true` selects calls that were refused because the caller is blocked, `false` all other
    /// calls.
    pub blocked: Option<bool>,
    /// Calls with a robocall score of at least this value.
    pub robocall: Option<u8>,
}

/// The position after the last call of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    started: Millis,
    id: String,
}

impl Cursor {
    /// The cursor after `call`.
    #[must_use]
    pub fn after(call: &CallRow) -> Self {
        Self { started: call.facts.started_at(), id: call.id.clone() }
    }

    /// Parses a cursor from its text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (started, id) = text.split_once('.')?;
        let is_plain = id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_plain.then_some(())?;
        Some(Self { started: Millis(started.parse().ok()?), id: id.to_owned() })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.started.0, self.id)
    }
}

impl Log {
    /// Lists the calls that match `filter`, newest first. Begins after the cursor `after`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn calls(
        &self,
        filter: &CallFilter,
        after: Option<&Cursor>,
        most: u32,
    ) -> Result<Vec<CallRow>, LogError> {
        let mut tx = self.database.read().await?;
        let callers = match &filter.caller {
            Some(caller) => columns_of(&mut tx, caller).await?,
            None => Vec::new(),
        };
        let (statement, numbers, texts) = statement(filter, callers);
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement));
        for value in numbers {
            query = query.bind(value);
        }
        for value in texts {
            query = query.bind(value);
        }
        let query = query.bind(after.map_or(i64::MAX, |cursor| ms(cursor.started)));
        let query = query.bind(after.map_or_else(String::new, |cursor| cursor.id.clone()));
        let rows = query.bind(i64::from(most)).fetch_all(&mut *tx).await?;
        rows.iter().map(CallRow::read).collect()
    }

    /// Reads a call with its whole history.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn call(&self, id: &str) -> Result<Option<CallDetail>, LogError> {
        let mut tx = self.database.read().await?;
        let Some(call) = call(&mut tx, id).await? else { return Ok(None) };
        let timeline = timeline(&mut tx, id).await?;
        let outcomes = outcomes(&mut tx, id).await?;
        let query = sqlx::query(
            "SELECT place, id, type, call, at_ms, body FROM call_events WHERE call = $1 \
             ORDER BY place",
        );
        let rows = query.bind(id.to_owned()).fetch_all(&mut *tx).await?;
        let events = rows.iter().map(EventRow::read).collect::<Result<_, _>>()?;
        let query = sqlx::query(
            "SELECT endpoint, id, state, attempts, next_ms, last_ms, last_status, last_error \
             FROM webhook_deliveries, call_events WHERE event = place AND call = $1 \
             ORDER BY place, endpoint",
        );
        let rows = query.bind(id.to_owned()).fetch_all(&mut *tx).await?;
        let deliveries = rows.iter().map(DeliveryRow::read).collect::<Result<_, _>>()?;
        Ok(Some(CallDetail { call, timeline, outcomes, events, deliveries }))
    }

    /// Lists the events after the place `after`, in order.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn events(&self, after: u64, most: u32) -> Result<Vec<EventRow>, LogError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query(
            "SELECT place, id, type, call, at_ms, body FROM call_events WHERE place > $1 \
             ORDER BY place LIMIT $2",
        );
        let query = query.bind(to_db(after)).bind(i64::from(most));
        query.fetch_all(&mut *tx).await?.iter().map(EventRow::read).collect()
    }

    /// Lists the endpoints that receive events.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn endpoints(&self) -> Result<Vec<EndpointRow>, LogError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query(
            "SELECT id, url, types, state, reason, failing_since_ms, created_ms, \
             (SELECT COUNT(*) FROM webhook_deliveries d \
              WHERE d.endpoint = e.id AND d.state = 'pending') AS pending, \
             (SELECT COUNT(*) FROM webhook_deliveries d \
              WHERE d.endpoint = e.id AND d.state = 'failed') AS failed, \
             (SELECT COUNT(*) FROM webhook_deliveries d \
              WHERE d.endpoint = e.id AND d.state = 'held') AS held \
             FROM webhook_endpoints e ORDER BY created_ms, id",
        );
        query.fetch_all(&mut *tx).await?.iter().map(EndpointRow::read).collect()
    }

    /// Counts the endpoints that receive events.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn count_endpoints(&self) -> Result<EndpointCounts, LogError> {
        let query = sqlx::query("SELECT state, failing_since_ms FROM webhook_endpoints");
        let mut counts = EndpointCounts::default();
        for row in self.database.read_rows(query).await? {
            let failing: Option<i64> = row.try_get("failing_since_ms")?;
            let count = match (row.try_get::<String, _>("state")?.as_str(), failing) {
                ("enabled", None) => &mut counts.accepting,
                ("enabled", Some(_)) => &mut counts.failing,
                _ => &mut counts.disabled,
            };
            *count += 1;
        }
        Ok(counts)
    }

    /// Lists at most `most` calls that must still be attributed, newest first.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn unattributed(&self, most: u32) -> Result<Vec<CallRow>, LogError> {
        let mut tx = self.database.read().await?;
        let statement =
            format!("{CALL} WHERE attributed = 'pending' ORDER BY started_ms DESC LIMIT $1");
        let query = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(i64::from(most));
        query.fetch_all(&mut *tx).await?.iter().map(CallRow::read).collect()
    }
}

/// The values of the column `caller` that stand for `caller`: the caller itself, a SIP address's
/// spellings from earlier builds, and a hash for each month in which callers were hashed. There are
/// none if the caller has no number or address.
pub(super) async fn columns_of(
    db: &mut AnyConnection,
    caller: &Caller,
) -> Result<Vec<String>, LogError> {
    let mut columns = BTreeSet::from_iter(caller.to_column());
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    if let Caller::Sip(_) = caller {
        let query = "SELECT DISTINCT caller FROM calls WHERE caller LIKE 'sip:%' \
                     OR caller LIKE 'sips:%'";
        for row in sqlx::query(query).fetch_all(&mut *db).await? {
            let stored: String = row.try_get(0)?;
            if Caller::read(&stored) == *caller {
                columns.insert(stored);
            }
        }
    }
    for row in sqlx::query("SELECT secret FROM caller_keys").fetch_all(db).await? {
        let key: String = row.try_get(0)?;
        columns.extend(caller.hashed(key.as_bytes()).to_column());
    }
    Ok(columns.into_iter().collect())
}

/// The statement that lists calls, and its first arguments: numbers, then strings. The remaining
/// arguments are the cursor's time and id, and the maximum number of calls. `callers` is the result
/// of [`columns_of`] for the filter's caller.
pub(super) fn statement(
    filter: &CallFilter,
    callers: Vec<String>,
) -> (String, Vec<i64>, Vec<String>) {
    // The statement contains conditions only for the given filters. With optional conditions,
    // databases would not use the indexes, and a list of a million calls would be slow.
    let mut texts: Vec<(&str, String)> = Vec::new();
    texts.extend(filter.number.clone().map(|number| ("number", number)));
    texts.extend(filter.state.map(|state| ("state", state.name().to_owned())));
    texts.extend(filter.outcome.map(|outcome| ("outcome", outcome.name().to_owned())));
    texts.extend(filter.attributed.map(|it| ("attributed", it.name().to_owned())));
    let mut numbers = vec![("started_ms >=", filter.since.map_or(0, ms))];
    numbers.push(("started_ms <", filter.until.map_or(i64::MAX, ms)));
    numbers.extend(filter.pool.map(|pool| ("pool =", to_db(pool))));
    numbers.extend(filter.robocall.map(|score| ("robocall >=", i64::from(score))));
    let mut statement = format!("{CALL} WHERE ");
    let mut place = 0;
    for (condition, _) in &numbers {
        place += 1;
        let _ = write!(statement, "{condition} ${place} AND ");
    }
    for (column, _) in &texts {
        place += 1;
        let _ = write!(statement, "{column} = ${place} AND ");
    }
    if filter.caller.is_some() {
        let places = (place + 1..=place + callers.len()).map(|place| format!("${place}"));
        // A filter for a caller without a number must match no calls.
        let _ = write!(statement, "caller IN ({}) AND ", places.collect::<Vec<_>>().join(", "));
        place += callers.len();
    }
    if let Some(is_blocked) = filter.blocked {
        statement += if is_blocked { "blocked IS NOT NULL AND " } else { "blocked IS NULL AND " };
    }
    let (at, id, limit) = (place + 1, place + 2, place + 3);
    let _ = write!(
        statement,
        "started_ms <= ${at} AND (started_ms < ${at} OR id < ${id}) \
         ORDER BY started_ms DESC, id DESC LIMIT ${limit}"
    );
    let numbers = numbers.into_iter().map(|(_, value)| value).collect();
    let texts = texts.into_iter().map(|(_, value)| value).chain(callers).collect();
    (statement, numbers, texts)
}

pub(super) async fn call(db: &mut AnyConnection, id: &str) -> Result<Option<CallRow>, LogError> {
    Ok(calls_of(db, &[id.to_owned()]).await?.pop())
}

async fn timeline(db: &mut AnyConnection, id: &str) -> Result<Vec<TimelineRow>, LogError> {
    let query = sqlx::query(
        "SELECT kind, outcome, at_ms, received_ms FROM call_timeline WHERE call = $1 \
         ORDER BY at_ms, received_ms, report",
    );
    let read = |row: &AnyRow| {
        Ok(TimelineRow {
            kind: row.try_get("kind")?,
            outcome: row.try_get("outcome")?,
            at: from_ms(row.try_get("at_ms")?),
            received: from_ms(row.try_get("received_ms")?),
        })
    };
    query.bind(id.to_owned()).fetch_all(db).await?.iter().map(read).collect()
}

async fn outcomes(db: &mut AnyConnection, id: &str) -> Result<Vec<OutcomeRow>, LogError> {
    let query = sqlx::query(
        "SELECT type, value, currency, at_ms, recorded_ms, external_id FROM call_outcomes \
         WHERE call = $1 ORDER BY at_ms, external_id",
    );
    query.bind(id.to_owned()).fetch_all(db).await?.iter().map(OutcomeRow::read).collect()
}

impl EventRow {
    pub(super) fn read(row: &AnyRow) -> Result<Self, LogError> {
        let place: i64 = row.try_get("place")?;
        Ok(Self {
            place: u64::try_from(place).unwrap_or_default(),
            id: row.try_get("id")?,
            kind: row.try_get("type")?,
            call: row.try_get("call")?,
            at: from_ms(row.try_get("at_ms")?),
            body: row.try_get("body")?,
        })
    }
}

impl EndpointRow {
    fn read(row: &AnyRow) -> Result<Self, LogError> {
        let (types, state): (String, String) = (row.try_get("types")?, row.try_get("state")?);
        let count = |name: &str| row.try_get::<i64, _>(name).map(|n| u64::try_from(n).unwrap_or(0));
        Ok(Self {
            id: row.try_get("id")?,
            url: row.try_get("url")?,
            types: types.split_whitespace().map(str::to_owned).collect(),
            is_enabled: state == "enabled",
            reason: row.try_get("reason")?,
            failing_since: row.try_get::<Option<i64>, _>("failing_since_ms")?.map(from_ms),
            created_at: from_ms(row.try_get("created_ms")?),
            pending: count("pending")?,
            failed: count("failed")?,
            held: count("held")?,
        })
    }
}

impl DeliveryRow {
    fn read(row: &AnyRow) -> Result<Self, LogError> {
        let attempts: i64 = row.try_get("attempts")?;
        let status: Option<i64> = row.try_get("last_status")?;
        Ok(Self {
            endpoint: row.try_get("endpoint")?,
            event: row.try_get("id")?,
            state: row.try_get("state")?,
            attempts: u32::try_from(attempts).unwrap_or_default(),
            next_at: from_ms(row.try_get("next_ms")?),
            last_at: row.try_get::<Option<i64>, _>("last_ms")?.map(from_ms),
            last_status: status.and_then(|status| u16::try_from(status).ok()),
            last_error: row.try_get("last_error")?,
        })
    }
}
