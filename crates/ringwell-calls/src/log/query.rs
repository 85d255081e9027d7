//! The readable parts of the log: calls, their timelines, events, endpoints.
//!
//! Lists are read in pages: a cursor names the last line read.

use std::fmt::Write as _;

use jiff::Timestamp;
use ringwell_core::Millis;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::change::CallChange;
use super::group::calls_of;
use super::{Log, LogError, from_ms, ms, to_db};
use crate::attribution::{Attributed, Attribution};
use crate::call::{CallState, Facts, Outcome};
use crate::caller::Caller;
use crate::provider::Stir;
use crate::robocall::Robocall;

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// Ringwell's id of the call.
    pub id: String,
    /// The account that has reported it.
    pub account: String,
    /// The account's provider.
    pub provider: String,
    /// The provider's id for it.
    pub provider_call: String,
    /// The count of its changes.
    pub sequence: u64,
    /// The facts: state, outcome, times and durations.
    pub facts: Facts,
    /// The called number, E.164 with `+`.
    pub number: Option<String>,
    /// The caller.
    pub caller: Caller,
    /// Whether this is the caller's first call; `None` for callers without a number.
    pub first_time: Option<bool>,
    /// The destination that answered.
    pub destination: Option<String>,
    /// The visitor who was shown the number.
    pub attribution: Attribution,
    /// The network's verdict on the caller's number.
    pub stir: Option<Stir>,
    /// The time when its caller and visitor were removed.
    pub redacted_at: Option<Millis>,
    /// The entry of the block list that refused it.
    pub blocked: Option<String>,
    /// The score for a robot as the caller; `None` until it is computed.
    pub robocall: Option<Robocall>,
    pub(super) published: String,
}

/// One call with its whole history.
#[derive(Clone, Debug, PartialEq)]
pub struct CallDetail {
    /// The call.
    pub call: CallRow,
    /// Reports of the provider, in the order of their times.
    pub timeline: Vec<TimelineRow>,
    /// The results reported for it.
    pub outcomes: Vec<OutcomeRow>,
    /// Its events.
    pub events: Vec<EventRow>,
    /// The deliveries of its events.
    pub deliveries: Vec<DeliveryRow>,
}

/// One report of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineRow {
    /// `started`, `ringing`, `answered`, `leg_ended` or `ended`.
    pub kind: String,
    /// The outcome that it reports, if any.
    pub outcome: Option<String>,
    /// The time, by the provider's clock if it has one.
    pub at: Millis,
    /// The time when the report arrived.
    pub received: Millis,
}

/// A result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeRow {
    /// Its kind, for example `sale`.
    pub kind: String,
    /// Its value, as a decimal number.
    pub value: Option<String>,
    /// Its currency.
    pub currency: Option<String>,
    /// The time.
    pub at: Millis,
    /// The sender's id for it.
    pub external_id: String,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Its place among all events.
    pub place: u64,
    /// Its id, the same for each delivery.
    pub id: String,
    /// For example `call.completed`.
    pub kind: String,
    /// The call that it belongs to.
    pub call: Option<String>,
    /// The time when it was written.
    pub at: Millis,
    /// The body that endpoints receive, as JSON.
    pub body: String,
}

/// A receiver of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRow {
    /// Its id.
    pub id: String,
    /// Its URL.
    pub url: String,
    /// The types of events that it receives; empty for all.
    pub types: Vec<String>,
    /// Whether events are sent to it.
    pub is_enabled: bool,
    /// The reason why it is disabled.
    pub reason: Option<String>,
    /// The time since which no delivery has succeeded, if the last one failed.
    pub failing_since: Option<Millis>,
    /// The time of its creation.
    pub created_at: Millis,
    /// The count of pending deliveries.
    pub pending: u64,
    /// The count of abandoned deliveries.
    pub failed: u64,
}

/// The delivery of one event to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The endpoint.
    pub endpoint: String,
    /// The event.
    pub event: String,
    /// `pending`, `delivered`, `failed` or `held`.
    pub state: String,
    /// The count of attempts.
    pub attempts: u32,
    /// The time of the next attempt.
    pub next_at: Millis,
    /// The time of the last attempt.
    pub last_at: Option<Millis>,
    /// The endpoint's last answer.
    pub last_status: Option<u16>,
    /// The reason why there was no answer.
    pub last_error: Option<String>,
}

/// The filter of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Calls that began at or after this time.
    pub since: Option<Millis>,
    /// Calls that began before this time.
    pub until: Option<Millis>,
    /// Calls to this pool.
    pub pool: Option<u64>,
    /// Calls to this number, E.164 with `+`.
    pub number: Option<String>,
    /// Calls by this caller, in the log's form.
    pub caller: Option<Caller>,
    /// Calls in this state.
    pub state: Option<CallState>,
    /// Calls with this end.
    pub outcome: Option<Outcome>,
    /// Calls with this outcome of the attribution.
    pub attributed: Option<Attributed>,
    /// Calls that the list of blocked callers refused, or did not refuse.
    pub blocked: Option<bool>,
    /// Calls with at least this score for robocalls.
    pub robocall: Option<u8>,
}

/// The last line of a page of a list.
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

    /// Reads the form that [`Self`] is displayed in.
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

/// The columns of [`CallRow::read`].
pub(super) const CALL: &str = "SELECT id, account, provider, provider_call_id, sequence, number, \
                               caller, first_time, destination, attribution, stir, facts, \
                               published, redacted_ms, blocked, robocall, robocall_reasons \
                               FROM calls ";

impl CallRow {
    pub(super) fn new(id: &str, change: &CallChange) -> Self {
        Self {
            id: id.to_owned(),
            account: change.account.clone(),
            provider: change.provider.clone(),
            provider_call: change.provider_call.clone(),
            sequence: 0,
            facts: Facts::default(),
            number: None,
            caller: Caller::Withheld,
            first_time: None,
            destination: None,
            attribution: Attribution::default(),
            stir: None,
            redacted_at: None,
            blocked: None,
            robocall: None,
            published: String::new(),
        }
    }

    /// The call as `change` alone describes it.
    pub(crate) fn of(change: &CallChange) -> Self {
        let mut row = Self::new(&change.id(), change);
        for reported in &change.events {
            row.facts.join(&reported.event);
        }
        row.number.clone_from(&change.number);
        row.caller = change.caller.clone().unwrap_or_default();
        row.destination.clone_from(&change.destination);
        row.stir.clone_from(&change.stir);
        row.blocked.clone_from(&change.blocked);
        row.attribution = change.attribution.clone().unwrap_or_default();
        row
    }

    pub(super) fn read(row: &AnyRow) -> Result<Self, LogError> {
        let caller: Option<String> = row.try_get("caller")?;
        let sequence: i64 = row.try_get("sequence")?;
        let first_time: Option<i64> = row.try_get("first_time")?;
        Ok(Self {
            id: row.try_get("id")?,
            account: row.try_get("account")?,
            provider: row.try_get("provider")?,
            provider_call: row.try_get("provider_call_id")?,
            sequence: u64::try_from(sequence).unwrap_or_default(),
            facts: parsed(Some(row.try_get("facts")?))?.unwrap_or_default(),
            number: row.try_get("number")?,
            caller: Caller::from_column(caller.as_deref()),
            first_time: first_time.map(|it| it != 0),
            destination: row.try_get("destination")?,
            attribution: parsed(row.try_get("attribution")?)?.unwrap_or_default(),
            stir: parsed(row.try_get("stir")?)?,
            redacted_at: row.try_get::<Option<i64>, _>("redacted_ms")?.map(from_ms),
            blocked: row.try_get("blocked")?,
            robocall: robocall(row)?,
            published: row.try_get("published")?,
        })
    }

    /// The call in the form of the API and webhooks.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let facts = &self.facts;
        let caller = match &self.caller {
            Caller::Withheld if self.redacted_at.is_some() => {
                json!({ "withheld": true, "erased": true })
            }
            Caller::Withheld => json!({ "withheld": true }),
            Caller::E164(number) => json!({ "e164": number }),
            Caller::Sip(address) => json!({ "sip": address }),
            Caller::Hash(hash) => json!({ "hash": hash }),
        };
        json!({
            "id": self.id,
            "account": self.account,
            "provider": self.provider,
            "provider_call_id": self.provider_call,
            "direction": "inbound",
            "to": self.number,
            "from": caller,
            "started_at": moment(facts.started_at()),
            "answered_at": facts.answered_at().map(moment),
            "ended_at": facts.ended_at().map(moment),
            "state": facts.state().name(),
            "outcome": facts.outcome().map(Outcome::name),
            "ring_seconds": facts.ring().map(|ring| ring.0 / 1000),
            "talk_seconds": facts.talk_seconds(),
            "destination": self.destination,
            "pool": self.attribution.pool,
            "attribution": self.shown_attribution(),
            "stir": self.stir,
            "first_time_caller": self.first_time,
            "blocked": self.blocked,
            "robocall": self.robocall.as_ref().map(|it| json!({
                "score": it.score, "reasons": it.reasons,
            })),
            "sequence": self.sequence,
        })
    }

    fn shown_attribution(&self) -> Value {
        let it = &self.attribution;
        let shown = |allocation: &crate::attribution::Allocation| {
            let parameters: serde_json::Map<String, Value> =
                allocation.parameters.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
            json!({
                "allocated_at": moment(Millis(allocation.allocated_ms)),
                "locked_until": moment(Millis(allocation.locked_until_ms)),
                "late": allocation.late,
                "tapped_at": allocation.tapped_ms.map(|tap| moment(Millis(tap))),
                "probability": allocation.probability,
                "parameters": parameters,
            })
        };
        let mut value = json!({ "outcome": it.outcome.name() });
        if let (Some(members), Some(allocation)) = (value.as_object_mut(), &it.allocation)
            && let Value::Object(more) = shown(allocation)
        {
            members.extend(more);
            members.remove("probability");
            members.insert("confidence".to_owned(), json!(it.confidence));
            let earlier: Vec<Value> = it.earlier.iter().map(shown).collect();
            members.insert("earlier".to_owned(), Value::Array(earlier));
        }
        if let (Some(members), Some(problem)) = (value.as_object_mut(), &it.problem) {
            members.insert("problem".to_owned(), json!(problem));
        }
        value
    }
}

impl Log {
    /// Calls that match `filter`, the newest first, starting after `after`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn calls(
        &self,
        filter: &CallFilter,
        after: Option<&Cursor>,
        most: u32,
    ) -> Result<Vec<CallRow>, LogError> {
        let (statement, numbers, texts) = statement(filter);
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement));
        for value in numbers {
            query = query.bind(value);
        }
        for value in texts {
            query = query.bind(value);
        }
        let query = query.bind(after.map_or(i64::MAX, |cursor| ms(cursor.started)));
        let query = query.bind(after.map_or_else(String::new, |cursor| cursor.id.clone()));
        let mut tx = self.database.read().await?;
        let rows = query.bind(i64::from(most)).fetch_all(&mut *tx).await?;
        rows.iter().map(CallRow::read).collect()
    }

    /// One call with its whole history.
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

    /// Events after the place `after`, in their order.
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

    /// The receivers of events.
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
              WHERE d.endpoint = e.id AND d.state = 'failed') AS failed \
             FROM webhook_endpoints e ORDER BY created_ms, id",
        );
        query.fetch_all(&mut *tx).await?.iter().map(EndpointRow::read).collect()
    }

    /// Calls whose attribution is still to be looked up: name and provider of the account, the
    /// provider's id of the call, number and beginning.
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

/// The statement that lists calls, and its arguments: first numbers, then texts, then the time and
/// id of the previous page's last line, and the count of lines.
pub(super) fn statement(filter: &CallFilter) -> (String, Vec<i64>, Vec<String>) {
    // The statement contains only the given filters. With optional conditions, no database would
    // use the index that is needed for a million calls.
    let mut texts: Vec<(&str, String)> = Vec::new();
    texts.extend(filter.number.clone().map(|number| ("number", number)));
    // A caller without a number matches no call.
    let caller = filter.caller.as_ref().map(|it| it.to_column().unwrap_or("-".to_owned()));
    texts.extend(caller.map(|caller| ("caller", caller)));
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
    let texts = texts.into_iter().map(|(_, value)| value).collect();
    (statement, numbers, texts)
}

fn robocall(row: &AnyRow) -> Result<Option<Robocall>, LogError> {
    let score: Option<i64> = row.try_get("robocall")?;
    let reasons: Option<String> = row.try_get("robocall_reasons")?;
    let reasons = reasons.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect();
    let score = score.and_then(|score| u8::try_from(score).ok());
    Ok(score.map(|score| Robocall { score, reasons }))
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
        "SELECT type, value, currency, at_ms, external_id FROM call_outcomes WHERE call = $1 \
         ORDER BY at_ms, external_id",
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

fn parsed<T: serde::de::DeserializeOwned>(text: Option<String>) -> Result<Option<T>, LogError> {
    let read = |text: String| serde_json::from_str(&text);
    text.map(read).transpose().map_err(|error| LogError::Damaged(error.to_string()))
}

/// A moment as the API shows it, in UTC.
#[must_use]
pub(crate) fn moment(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}
