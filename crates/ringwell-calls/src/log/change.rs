//! A change to one call: a provider's report, or the result of the attribution.

use ringwell_core::Millis;
use serde_json::json;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::database::LogTransaction;
use super::group::{Group, GroupCall, Places, ROWS_MAX};
use super::query::{self, CallRow};
use super::{LogError, event_id, ms};
use crate::attribution::{Attributed, Attribution};
use crate::call::{CallEvent, CallState};
use crate::caller::Caller;
use crate::digest;
use crate::provider::Stir;

/// A provider's report, and the time at which it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedEvent {
    /// The report.
    pub event: CallEvent,
    /// The time at which the report arrived.
    pub received: Millis,
}

/// New facts about one call. If several changes contain a value for the same field, the first value
/// is kept, because these facts do not change. Events are combined by [`crate::call::Facts::join`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallChange {
    /// The account that reported the call.
    pub account: String,
    /// The account's provider.
    pub provider: String,
    /// The provider's id for the call.
    pub provider_call: String,
    /// The events that the report contains.
    pub events: Vec<ReportedEvent>,
    /// The arrival time of a report without an event. Such a report shows that the call existed at
    /// that time.
    pub seen: Option<Millis>,
    /// The called number in E.164 format, with `+`.
    pub number: Option<String>,
    /// The caller. `None` if this change does not contain the caller.
    pub caller: Option<Caller>,
    /// The destination that answered.
    pub destination: Option<String>,
    /// The telephone network's verdict on whether the caller's number is genuine.
    pub stir: Option<Stir>,
    /// The result of the attribution, if the look-up has been completed.
    pub attribution: Option<Attribution>,
    /// The number and the time for which `attribution` was looked up. If the call's number or time
    /// has changed since the look-up, the attribution is ignored.
    pub looked_up: Option<(Option<String>, Millis)>,
    /// If the call was refused, the id of the matching entry in the list of blocked callers.
    pub blocked: Option<String>,
}

/// The result of applying a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Ringwell's id for the call.
    pub call: String,
    /// The called number and the time of the call, if the call must still be attributed.
    pub unattributed: Option<(Option<String>, Millis)>,
    /// Whether the change contained anything new.
    pub is_new: bool,
}

impl CallChange {
    /// Ringwell's id for the call. It is the same for all reports about the call.
    #[must_use]
    pub fn id(&self) -> String {
        call_id(&self.account, &self.provider_call)
    }
}

/// Derives Ringwell's id for a call from the account and the provider's id.
#[must_use]
pub(crate) fn call_id(account: &str, provider_call: &str) -> String {
    let hash = digest::sha256_hex(format!("{account}\n{provider_call}").as_bytes());
    format!("c_{}", &hash[..26])
}

/// An event to write and send.
pub(crate) struct NewEvent {
    pub(crate) kind: &'static str,
    pub(crate) call: Option<String>,
    pub(crate) at: Millis,
    pub(crate) data: serde_json::Value,
}

/// Marks a call whose published events are outdated: they contain a visitor who was looked up
/// before the call's number was added or its beginning was corrected.
const OUTDATED: char = 'o';

impl CallRow {
    /// The number and the time for which the visitor is looked up.
    fn to_look_up(&self) -> (Option<String>, Millis) {
        (self.number.clone(), self.facts.started_at())
    }

    /// Marks the published events as outdated.
    fn outdated(&mut self) {
        if self.published.contains('s') && !self.published.contains(OUTDATED) {
            self.published.push(OUTDATED);
        }
    }
}

/// The marks that record which of a call's events were published.
struct Published<'a>(&'a mut String);

impl Published<'_> {
    /// Sets `mark`. Returns whether it was not set before.
    fn add(&mut self, mark: char) -> bool {
        let is_new = !self.0.contains(mark);
        if is_new {
            self.0.push(mark);
        }
        is_new
    }
}

/// Applies `change` to its call in `group`, and adds the resulting events to the group.
pub(super) async fn apply(
    group: &mut Group,
    tx: &mut LogTransaction,
    now: Millis,
    change: &CallChange,
) -> Result<Applied, LogError> {
    let applied = apply_in(group, tx, now, change).await;
    tx.judge(applied)
}

async fn apply_in(
    group: &mut Group,
    db: &mut AnyConnection,
    now: Millis,
    change: &CallChange,
) -> Result<Applied, LogError> {
    let id = change.id();
    let known = group.take(&id);
    let is_first = known.is_none();
    if is_first && change.events.is_empty() && change.seen.is_none() {
        // The call was removed from the log before its attribution was completed.
        return Ok(Applied { call: id, unattributed: None, is_new: false });
    }
    let mut call = known.unwrap_or_else(|| GroupCall::new(CallRow::new(&id, change)));
    let row = &mut call.row;
    let looked_up = row.to_look_up();
    let mut is_new = is_first;
    if let Some(at) = change.seen {
        is_new |= row.facts.seen(at);
    }
    for report in &change.events {
        is_new |= row.facts.join(&report.event);
        group.report(&id, report);
    }
    is_new |= fill(&mut row.number, change.number.clone());
    is_new |= fill(&mut row.destination, change.destination.clone());
    is_new |= fill(&mut row.stir, change.stir.clone());
    is_new |= fill(&mut row.blocked, change.blocked.clone());
    if let Some(caller) = change.caller.clone().filter(|it| *it != Caller::Withheld)
        && row.caller == Caller::Withheld
        && row.redacted_at.is_none()
    {
        row.caller = caller;
        is_new = true;
    }
    // If the number was added or the beginning of the call was corrected, the attribution may
    // contain the wrong visitor.
    let is_outdated =
        row.to_look_up() != looked_up && row.redacted_at.is_none() && row.attribution.is_known();
    let before = is_outdated.then(|| std::mem::take(&mut row.attribution));
    let was_pending = row.attribution.outcome == Attributed::Pending;
    let fits = change.looked_up.as_ref().is_none_or(|it| *it == row.to_look_up());
    if let Some(attribution) = change.attribution.clone().filter(|_| fits)
        && was_pending
    {
        row.attribution = attribution;
        if row.redacted_at.is_some() {
            row.attribution.redact();
        }
        is_new = true;
    }
    if before.is_some_and(|before| !before.names_the_same(&row.attribution)) {
        row.outdated();
    }
    if row.first_time.is_none() && row.caller != Caller::Withheld {
        row.first_time = Some(!group.has_called_before(row));
    }
    if is_new && row.redacted_at.is_none() {
        row.robocall = Some(group.robocall(db, row).await?);
    }
    let is_pending = row.attribution.outcome == Attributed::Pending;
    let unattributed = is_pending.then(|| row.to_look_up());
    if is_new {
        row.sequence += 1;
        let events = events(row, now);
        group.put(call, events);
    } else {
        group.put_back(call);
    }
    if was_pending {
        group.look_for_leak(db, &id, now).await?;
    }
    Ok(Applied { call: id, unattributed, is_new })
}

fn fill<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let is_new = place.is_none() && value.is_some();
    if is_new {
        *place = value;
    }
    is_new
}

/// The events to publish for the current state of `row`. Until the attribution is known, no events
/// are published.
fn events(row: &mut CallRow, now: Millis) -> Vec<NewEvent> {
    if row.attribution.outcome == Attributed::Pending {
        return Vec::new();
    }
    let state = row.facts.state();
    let mut marks = std::mem::take(&mut row.published);
    let mut published = Published(&mut marks);
    let mut kinds = Vec::new();
    let was_completed = published.0.contains('c');
    if published.add('s') {
        kinds.push("call.started");
    }
    if row.facts.answered_at().is_some() && published.add('a') {
        kinds.push("call.answered");
    }
    if state == CallState::Ended && published.add('c') {
        kinds.push("call.completed");
    }
    if was_completed || published.0.contains(OUTDATED) {
        kinds.push("call.updated");
        published.0.retain(|mark| mark != OUTDATED);
    }
    row.published = marks;
    let event = |kind| NewEvent { kind, call: Some(row.id.clone()), at: now, data: row.to_json() };
    kinds.into_iter().map(event).collect()
}

pub(super) fn text(value: &impl serde::Serialize) -> Result<String, LogError> {
    serde_json::to_string(value).map_err(|error| LogError::Damaged(error.to_string()))
}

/// Writes events, and for each one a delivery to every endpoint that subscribes to its type.
/// Returns the ids of the events.
pub(crate) async fn publish(
    db: &mut AnyConnection,
    events: Vec<NewEvent>,
) -> Result<Vec<String>, LogError> {
    let (events, has_endpoints) = placed(db, events).await?;
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(Vec::new()) };
    let places = (first.0, last.0);
    let ids = write(db, events).await?;
    if !has_endpoints {
        return Ok(ids);
    }
    // Deliveries to a disabled endpoint are held, so that missed events can be replayed.
    let query = sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint, event, state, attempts, next_ms) \
         SELECT e.id, v.place, CASE WHEN e.state = 'enabled' THEN 'pending' ELSE 'held' END, \
         0, v.at_ms FROM webhook_endpoints e, call_events v WHERE v.place >= $1 AND v.place <= $2 \
         AND (e.types = '' OR e.types LIKE ('% ' || v.type || ' %'))",
    );
    query.bind(places.0).bind(places.1).execute(db).await?;
    Ok(ids)
}

/// Writes an event for one endpoint only. Returns the event's id.
pub(crate) async fn publish_to(
    db: &mut AnyConnection,
    event: NewEvent,
    endpoint: &str,
) -> Result<String, LogError> {
    let at = event.at;
    let (events, _) = placed(db, vec![event]).await?;
    let places: Vec<i64> = events.iter().map(|(place, _)| *place).collect();
    let ids = write(db, events).await?;
    for place in places {
        let query = sqlx::query(
            "INSERT INTO webhook_deliveries (endpoint, event, state, attempts, next_ms) \
             VALUES ($1, $2, 'pending', 0, $3)",
        );
        query.bind(endpoint.to_owned()).bind(place).bind(ms(at)).execute(&mut *db).await?;
    }
    Ok(ids.concat())
}

/// Assigns places to the events, and returns whether there are webhook endpoints. All places come
/// from a counter in one row, so transactions assign them one at a time. Events therefore become
/// visible in the order of their places, and a reader that continues after the last place it has
/// read misses none.
async fn placed(
    db: &mut AnyConnection,
    events: Vec<NewEvent>,
) -> Result<(Vec<(i64, NewEvent)>, bool), LogError> {
    if events.is_empty() {
        return Ok((Vec::new(), false));
    }
    let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
    let query = "UPDATE call_counter SET last_place = last_place + $1 \
         RETURNING last_place, (SELECT COUNT(*) FROM webhook_endpoints)";
    let row = sqlx::query(query).bind(count).fetch_one(db).await?;
    let (last, endpoints): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(((last - count + 1..).zip(events).collect(), endpoints > 0))
}

/// Writes the events with their places. Returns their ids.
async fn write(
    db: &mut AnyConnection,
    events: Vec<(i64, NewEvent)>,
) -> Result<Vec<String>, LogError> {
    let mut ids = Vec::with_capacity(events.len());
    for part in events.chunks(ROWS_MAX) {
        let statement = format!(
            "INSERT INTO call_events (place, id, type, call, at_ms, body) VALUES {}",
            Places::of(db).rows(part.len(), 6)
        );
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for (place, event) in part {
            let id = event_id(event.at)?;
            let body = text(&json!({
                "type": event.kind,
                "timestamp": query::moment(event.at),
                "data": event.data,
            }))?;
            query = query.bind(*place).bind(id.clone()).bind(event.kind);
            query = query.bind(event.call.clone()).bind(ms(event.at)).bind(body);
            ids.push(id);
        }
        query.execute(&mut *db).await?;
    }
    Ok(ids)
}
