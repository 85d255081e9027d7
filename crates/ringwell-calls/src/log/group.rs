//! Combines the reads and writes of all changes in one transaction.
//!
//! Owns the affected calls until they are written. Invariant: the result is the same as if each
//! change had been stored before the next one. One statement reads or writes all calls in the
//! transaction, because each statement wakes the connection's thread, which then wakes the waiting
//! task. With one statement per call, these wake-ups took longer than the statements.

use std::collections::{BTreeMap, BTreeSet};

use ringwell_core::Millis;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::change::{CallChange, ReportedEvent};
use super::database::LogTransaction;
use super::error::LogError;
use super::places::{Places, ROWS_MAX, padded};
use super::publish::{NewEvent, publish};
use super::row::{CallRow, calls_of};
use super::values::text;
use super::values::{ms, to_db};
use super::{blocks, leaks};
use crate::call::Outcome;
use crate::caller::Caller;
use crate::robocall::Robocall;

/// The calls and events of one transaction.
pub(super) struct Group {
    /// The existing calls that the changes concern, by id.
    calls: BTreeMap<String, GroupCall>,
    /// For each caller, the beginning of the oldest call that is not in `calls`.
    oldest: BTreeMap<String, Millis>,
    /// Reports that are not written yet, each with the id of its call.
    reports: Vec<(String, ReportedEvent)>,
    /// Events that are not written yet.
    events: Vec<NewEvent>,
}

/// A call in the group.
pub(super) struct GroupCall {
    pub(super) row: CallRow,
    /// Whether the call is in the table, possibly in an earlier state.
    is_stored: bool,
    /// Whether the current state of the call must still be written.
    is_changed: bool,
}

impl GroupCall {
    pub(super) const fn new(row: CallRow) -> Self {
        Self { row, is_stored: false, is_changed: false }
    }
}

impl Group {
    /// Reads the rows that are needed to apply `changes`.
    pub(super) async fn read(
        tx: &mut LogTransaction,
        changes: &[&CallChange],
    ) -> Result<Self, LogError> {
        let group = Self::read_calls(tx, changes).await;
        tx.judge(group)
    }

    async fn read_calls(db: &mut AnyConnection, changes: &[&CallChange]) -> Result<Self, LogError> {
        let ids: BTreeSet<String> = changes.iter().map(|change| change.id()).collect();
        let ids: Vec<String> = ids.into_iter().collect();
        let mut calls = BTreeMap::new();
        for row in calls_of(db, &ids).await? {
            calls.insert(row.id.clone(), GroupCall { is_stored: true, ..GroupCall::new(row) });
        }
        let mut callers = BTreeSet::new();
        for change in changes {
            let known = calls.get(&change.id()).map(|call| &call.row);
            if known.is_none_or(|row| row.first_time.is_none() || moves_beginning(row, change)) {
                callers.extend(change.caller.as_ref().and_then(Caller::to_column));
                callers.extend(known.and_then(|row| row.caller.to_column()));
            }
        }
        let callers: Vec<String> = callers.into_iter().collect();
        let oldest = oldest(db, &callers, &ids).await?;
        Ok(Self { calls, oldest, reports: Vec::new(), events: Vec::new() })
    }

    /// Takes a call out of the group. The caller of this function puts it back after the change.
    pub(super) fn take(&mut self, id: &str) -> Option<GroupCall> {
        self.calls.remove(id)
    }

    /// Puts back a call that has not changed.
    pub(super) fn put_back(&mut self, call: GroupCall) {
        self.calls.insert(call.row.id.clone(), call);
    }

    /// Puts back a call that has changed, and adds the resulting events.
    pub(super) fn put(&mut self, call: GroupCall, events: Vec<NewEvent>) {
        self.put_back(GroupCall { is_changed: true, ..call });
        self.events.extend(events);
    }

    /// Adds a report about a call.
    pub(super) fn report(&mut self, call: &str, report: &ReportedEvent) {
        self.reports.push((call.to_owned(), report.clone()));
    }

    /// Whether the caller of `row` has called before. The call must have been taken out of the
    /// group.
    pub(super) fn has_called_before(&self, row: &CallRow) -> bool {
        let began = row.facts.started_at();
        let oldest = row.caller.to_column().and_then(|caller| self.oldest.get(&caller));
        let others = self.calls.values().map(|call| &call.row);
        let mut others = others.filter(|other| other.caller == row.caller);
        oldest.is_some_and(|oldest| *oldest < began)
            || others.any(|other| other.facts.started_at() < began)
    }

    /// Computes the robocall score of `row`. The call must have been taken out of the group.
    pub(super) async fn robocall(
        &mut self,
        db: &mut AnyConnection,
        row: &CallRow,
    ) -> Result<Robocall, LogError> {
        let is_of_caller = |call: &GroupCall| call.is_changed && call.row.caller == row.caller;
        if row.first_time == Some(false) && self.calls.values().any(is_of_caller) {
            self.write_all(db).await?;
        }
        blocks::robocall(db, row).await
    }

    /// Adds the event `number.leaking` if the call `id` shows that the called number leaks. A
    /// leaking number is called although no visitor was shown it recently. The call must have just
    /// been attributed.
    pub(super) async fn look_for_leak(
        &mut self,
        db: &mut AnyConnection,
        id: &str,
        now: Millis,
    ) -> Result<(), LogError> {
        let Some(row) = self.calls.get(id).map(|call| &call.row) else { return Ok(()) };
        let began = row.facts.started_at();
        let Some(number) = row.number.clone() else { return Ok(()) };
        if !leaks::is_implausible(&row.attribution, began) {
            return Ok(());
        }
        let attribution = row.attribution.clone();
        // The check counts calls in the table, so the calls of this group must be written first.
        self.write_all(db).await?;
        if let Some(data) = leaks::leak(db, (&number, began), &attribution, now).await? {
            self.events.push(NewEvent { kind: "number.leaking", call: None, at: now, data });
        }
        Ok(())
    }

    /// Writes everything that is not written yet.
    pub(super) async fn write(&mut self, tx: &mut LogTransaction) -> Result<(), LogError> {
        let written = self.write_all(tx).await;
        tx.judge(written)
    }

    async fn write_all(&mut self, db: &mut AnyConnection) -> Result<(), LogError> {
        write_reports(db, &std::mem::take(&mut self.reports)).await?;
        let changed: Vec<&GroupCall> = self.calls.values().filter(|call| call.is_changed).collect();
        for is_stored in [false, true] {
            let rows = changed.iter().filter(|call| call.is_stored == is_stored);
            let rows: Vec<&CallRow> = rows.map(|call| &call.row).collect();
            write_calls(db, &rows, is_stored).await?;
        }
        for call in self.calls.values_mut().filter(|call| call.is_changed) {
            (call.is_stored, call.is_changed) = (true, false);
        }
        publish(db, std::mem::take(&mut self.events)).await?;
        Ok(())
    }
}

/// Whether `change` contains a different start time for the call `row`.
fn moves_beginning(row: &CallRow, change: &CallChange) -> bool {
    let mut facts = row.facts.clone();
    for reported in &change.events {
        facts.join(&reported.event, reported.delay());
    }
    if let Some(at) = change.seen {
        facts.seen(at);
    }
    facts.started_at() != row.facts.started_at()
}

/// Reads the start time of each caller's oldest call, ignoring the calls whose ids are in `except`.
async fn oldest(
    db: &mut AnyConnection,
    callers: &[String],
    except: &[String],
) -> Result<BTreeMap<String, Millis>, LogError> {
    if callers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (callers, except) = (padded(callers), padded(except));
    let mut places = Places::of(db);
    let statement = format!(
        "WITH wanted (one) AS (VALUES {}) SELECT one, (SELECT started_ms FROM calls \
         WHERE caller = one AND id NOT IN ({}) ORDER BY started_ms LIMIT 1) AS oldest_ms FROM wanted",
        places.rows(callers.len(), 1),
        places.list(except.len()),
    );
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for text in callers.into_iter().chain(except) {
        query = query.bind(text);
    }
    let mut oldest = BTreeMap::new();
    for row in query.fetch_all(db).await? {
        let began: Option<i64> = row.try_get("oldest_ms")?;
        if let Some(began) = began {
            oldest.insert(row.try_get("one")?, super::from_ms(began));
        }
    }
    Ok(oldest)
}

async fn write_reports(
    db: &mut AnyConnection,
    reports: &[(String, ReportedEvent)],
) -> Result<(), LogError> {
    for part in reports.chunks(ROWS_MAX) {
        let statement = format!(
            "INSERT INTO call_timeline (call, report, kind, outcome, at_ms, received_ms) \
             VALUES {} ON CONFLICT DO NOTHING",
            Places::of(db).rows(part.len(), 6)
        );
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for (call, ReportedEvent { event, received }) in part {
            query = query.bind(call.clone()).bind(event.key.clone()).bind(event.kind.name());
            query = query.bind(event.kind.outcome().map(Outcome::name));
            query = query.bind(ms(event.at)).bind(ms(*received));
        }
        query.execute(&mut *db).await?;
    }
    Ok(())
}

/// Updates the calls if `are_stored` is true, otherwise inserts them.
async fn write_calls(
    db: &mut AnyConnection,
    calls: &[&CallRow],
    are_stored: bool,
) -> Result<(), LogError> {
    for part in calls.chunks(ROWS_MAX) {
        let rows = part.iter().map(|row| columns(row)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = rows[0].iter().map(|(name, _)| *name).collect();
        let values = Places::of(db).rows(rows.len(), names.len());
        let statement = if are_stored {
            let set = |(place, name): (usize, &&str)| format!("{name} = v.column{}", place + 1);
            let set: Vec<String> = names.iter().enumerate().skip(1).map(set).collect();
            let set = set.join(", ");
            format!("UPDATE calls SET {set} FROM (VALUES {values}) AS v WHERE id = v.column1")
        } else {
            format!("INSERT INTO calls ({}) VALUES {values}", names.join(", "))
        };
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for (_, value) in rows.into_iter().flatten() {
            query = match value {
                Value::Text(text) => query.bind(text),
                Value::Whole(number) => query.bind(number),
            };
        }
        query.execute(&mut *db).await?;
    }
    Ok(())
}

/// A value in the table `calls`.
enum Value {
    Text(Option<String>),
    Whole(Option<i64>),
}

/// The columns of the table `calls` that a change sets, with their values for `row`. The id is
/// first.
fn columns(row: &CallRow) -> Result<[(&'static str, Value); 25], LogError> {
    use Value::{Text, Whole};

    let (facts, attribution, robocall) = (&row.facts, &row.attribution, row.robocall.as_ref());
    let words = |word: &str| Text(Some(word.to_owned()));
    let known = attribution.is_stored().then_some(attribution);
    Ok([
        ("id", words(&row.id)),
        ("account", words(&row.account)),
        ("provider", words(&row.provider)),
        ("provider_call_id", words(&row.provider_call)),
        ("sequence", Whole(Some(to_db(row.sequence)))),
        ("started_ms", Whole(Some(ms(facts.started_at())))),
        ("answered_ms", Whole(facts.answered_at().map(ms))),
        ("ended_ms", Whole(facts.ended_at().map(ms))),
        ("state", words(facts.state().name())),
        ("outcome", Text(facts.outcome().map(|outcome| outcome.name().to_owned()))),
        ("ring_ms", Whole(facts.ring().map(ms))),
        ("talk_seconds", Whole(facts.talk_seconds().map(i64::from))),
        ("number", Text(row.number.clone())),
        ("caller", Text(row.caller.to_column())),
        ("first_time", Whole(row.first_time.map(i64::from))),
        ("destination", Text(row.destination.clone())),
        ("pool", Whole(attribution.pool.as_ref().map(|pool| to_db(pool.id)))),
        ("attributed", words(attribution.outcome.name())),
        ("attribution", Text(known.map(text).transpose()?)),
        ("stir", Text(row.stir.as_ref().map(text).transpose()?)),
        ("facts", words(&text(facts)?)),
        ("published", words(&row.published)),
        ("blocked", Text(row.blocked.clone())),
        ("robocall", Whole(robocall.map(|it| i64::from(it.score)))),
        ("robocall_reasons", Text(robocall.map(|it| it.reasons.join(" ")))),
    ])
}

#[cfg(test)]
mod tests;
