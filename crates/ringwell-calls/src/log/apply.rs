//! Applies a report's change to a call, and derives the events to publish.

use ringwell_core::Millis;
use sqlx::AnyConnection;

use super::change::{Applied, CallChange};
use super::database::LogTransaction;
use super::error::LogError;
use super::group::{Group, GroupCall};
use super::privacy::fingerprint;
use super::publish::NewEvent;
use super::row::CallRow;
use crate::attribution::{Attributed, Attribution};
use crate::call::{CallEvent, CallState, Facts};
use crate::caller::Caller;

// The marks in the column `published`. Call logs contain them, so their values must not change.

/// Marks a call whose event `call.started` was published.
const STARTED: char = 's';
/// Marks a call whose event `call.answered` was published.
const ANSWERED: char = 'a';
/// Marks a call whose event `call.completed` was published.
const COMPLETED: char = 'c';
/// Marks a call whose published events are outdated: they contain a visitor who was looked up
/// before the call's number was added or its beginning was corrected.
const OUTDATED: char = 'o';

impl CallRow {
    /// The number and the time to look up the visitor for.
    fn to_look_up(&self) -> (Option<String>, Millis) {
        (self.number.clone(), self.facts.started_at())
    }

    /// Sets the result of a look-up. If the call is erased, keeps only the hash of the visitor's
    /// parameters.
    fn attribute(&mut self, found: Attribution) {
        let before = std::mem::replace(&mut self.attribution, found);
        self.attribution.succeed(before.former);
        if self.redacted_at.is_some() {
            let own = self.attribution.allocation.as_ref();
            let own = own.filter(|it| !it.parameters.is_empty());
            let unlisted = own.map(|it| fingerprint(&it.parameters));
            self.attribution.redact();
            self.attribution.unlisted = unlisted;
        }
    }

    /// Marks the published events as outdated.
    fn outdated(&mut self) {
        if self.published.contains(STARTED) && !self.published.contains(OUTDATED) {
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
        return Ok(Applied { call: id, unattributed: None, is_new: false, attributed: None });
    }
    let mut call = known.unwrap_or_else(|| GroupCall::new(CallRow::new(&id, change)));
    let row = &mut call.row;
    let looked_up = row.to_look_up();
    let was_started = row.facts.is_start_reported();
    let mut is_new = join(&mut row.facts, change, now) || is_first;
    for report in &change.events {
        group.report(&id, report);
    }
    is_new |= fill(&mut row.number, change.number.clone());
    is_new |= fill(&mut row.destination, change.destination.clone());
    let is_erased = row.redacted_at.is_some();
    is_new |= fill(&mut row.stir, change.stir.clone().filter(|_| !is_erased));
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
    let is_outdated = row.to_look_up() != looked_up && row.attribution.is_known();
    let again = row.attribution.to_repeat();
    let before = is_outdated.then(|| std::mem::replace(&mut row.attribution, again));
    let was_pending = row.attribution.outcome == Attributed::Pending;
    let fits = change.looked_up.as_ref().is_none_or(|it| *it == row.to_look_up());
    if let Some(attribution) = change.attribution.clone().filter(|_| fits)
        && was_pending
    {
        row.attribute(attribution);
        is_new = true;
    }
    if before.is_some_and(|before| !before.names_the_same(&row.attribution)) {
        row.outdated();
    }
    let is_moved = row.to_look_up().1 != looked_up.1 && row.redacted_at.is_none();
    if (row.first_time.is_none() || is_moved) && row.caller != Caller::Withheld {
        row.first_time = Some(!group.has_called_before(row));
    }
    if is_new && row.redacted_at.is_none() {
        row.robocall = Some(group.robocall(db, row).await?);
    }
    // Until the beginning is reported, the visitor may be wrong.
    let is_started = row.facts.is_start_reported();
    let is_pending = row.attribution.outcome == Attributed::Pending;
    let unattributed = is_pending.then(|| row.to_look_up());
    let is_of_pool = row.attribution.pool.is_some();
    let attributed = (was_pending && !is_pending && is_of_pool).then_some(row.attribution.outcome);
    if is_new {
        row.sequence += 1;
        let events = events(row, now);
        group.put(call, events);
    } else {
        group.put_back(call);
    }
    if is_started && (was_pending || !was_started) {
        group.look_for_leak(db, &id, now).await?;
    }
    Ok(Applied { call: id, unattributed, is_new, attributed })
}

/// Joins the reports in `change` to `facts`. Returns whether any fact is new. If a report is dated
/// by its arrival, a clock that was set back must not make the call begin earlier.
fn join(facts: &mut Facts, change: &CallChange, now: Millis) -> bool {
    let mut is_new = false;
    if let Some(arrived) = change.seen {
        is_new |= facts.seen(facts.date_of_arrival(None, arrived, now));
    }
    for report in &change.events {
        let (event, delay) = (&report.event, report.delay());
        let (mut at, mut begun_by) = (event.at, event.begun_by());
        if delay.is_none() {
            at = facts.date_of_arrival(Some(event.kind), at, now);
            begun_by = begun_by.map(|by| facts.date_of_arrival(None, by, now));
        }
        is_new |= facts.join_begun(&CallEvent { at, ..event.clone() }, delay, begun_by);
    }
    is_new
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
    let was_completed = published.0.contains(COMPLETED);
    if published.add(STARTED) {
        kinds.push("call.started");
    }
    if row.facts.answered_at().is_some() && published.add(ANSWERED) {
        kinds.push("call.answered");
    }
    if state == CallState::Ended && published.add(COMPLETED) {
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

#[cfg(test)]
mod tests;
