//! Results of calls, as reported by users' programs.
//!
//! Invariant: once [`Log::end_period`] has returned true for a time, no result is recorded with an
//! earlier `recorded_at`, by any server that uses the database. Otherwise, a result whose
//! transaction was open while a period was exported would be in no export.

use ringwell_core::Millis;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::Log;
use super::database::LogTransaction;
use super::error::LogError;
use super::publish::{NewEvent, publish};
use super::query::OutcomeRow;
use super::query::call;
use super::row::CallRow;
use super::values::{from_ms, ms};
use crate::clock::moment;
use crate::digest;

/// The maximum by which the end of an ended period may be ahead of the server's clock, because the
/// clocks of servers and clients differ.
const AHEAD_MAX: Millis = Millis(60_000);
/// The maximum by which `recorded_at` may be later than the server's clock. If the clock was wrong
/// by more than this when a period was listed, and was then set back, results must not be dated
/// according to the wrong clock.
const LATER_MAX: Millis = Millis(3_600_000);

/// The maximum number of attempts to begin the transaction that ends a period.
const ATTEMPTS_MAX: usize = 6;

/// The effect of recording an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The outcome was stored with this time as `recorded_at`, and the event `conversion.recorded`
    /// was written.
    New(Millis),
    /// The call already has this outcome.
    Known,
    /// The call already has this other outcome with the same `external_id`. It remains unchanged.
    Differs(OutcomeRow),
    /// The call does not exist.
    NoCall,
}

/// The effect of removing an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// The outcome was removed, and the event `conversion.removed` was written.
    Done,
    /// The call has no outcome with this `external_id`.
    NoOutcome,
    /// The call does not exist.
    NoCall,
}

/// A filter for outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeFilter {
    /// Outcomes at or after this time.
    pub since: Option<Millis>,
    /// Outcomes before this time.
    pub until: Option<Millis>,
    /// Outcomes that were recorded at or after this time.
    pub recorded_since: Option<Millis>,
    /// Outcomes that were recorded before this time.
    pub recorded_until: Option<Millis>,
    /// Outcomes of this type.
    pub kind: Option<String>,
}

/// The position after the last outcome of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeCursor {
    at: Millis,
    call: String,
    external_id: String,
}

impl OutcomeCursor {
    /// The cursor after `outcome`, which belongs to `call`.
    #[must_use]
    pub fn after(call: &str, outcome: &OutcomeRow) -> Self {
        let external_id = outcome.external_id.clone();
        Self { at: outcome.at, call: call.to_owned(), external_id }
    }

    /// Parses a cursor from its text form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = digest::from_base64(text)?;
        let text = String::from_utf8(bytes).ok()?;
        let mut parts = text.splitn(3, ' ');
        let at = Millis(parts.next()?.parse().ok()?);
        Some(Self { at, call: parts.next()?.to_owned(), external_id: parts.next()?.to_owned() })
    }
}

impl std::fmt::Display for OutcomeCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{} {} {}", self.at.0, self.call, self.external_id);
        f.write_str(&digest::base64(text.as_bytes()))
    }
}

impl Log {
    /// Stores outcomes, each with the id of its call, in one transaction. Writes the event
    /// `conversion.recorded` for each new outcome. If a period has ended after an outcome's
    /// `recorded_at`, the end of the period is stored instead.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn record_outcomes(
        &self,
        outcomes: &[(String, OutcomeRow)],
        now: Millis,
    ) -> Result<Vec<Recorded>, LogError> {
        let mut tx = self.database().write().await?;
        let end = period_end(&mut tx).await?;
        let mut all = Vec::with_capacity(outcomes.len());
        for (id, outcome) in outcomes {
            let at = outcome.recorded_at;
            let is_right = end <= at + LATER_MAX;
            let recorded_at = if is_right { at.max(end) } else { at };
            let outcome = OutcomeRow { recorded_at, ..outcome.clone() };
            all.push(record(&mut tx, id, &outcome, now).await?);
        }
        tx.commit().await?;
        Ok(all)
    }

    /// Ends the period before `until`: waits until open transactions have ended, and ensures that
    /// no outcome is recorded later with a `recorded_at` before `until`. Returns false, and ends
    /// nothing, if `until` is more than a minute ahead of `now`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn end_period(&self, until: Millis, now: Millis) -> Result<bool, LogError> {
        if until > now + AHEAD_MAX {
            return Ok(false);
        }
        let mut tx = self.database().read().await?;
        // The other pages of a list, and repeated lists, need no write transaction.
        let end = period_end(&mut tx).await?;
        drop(tx);
        if end < until || end > now + LATER_MAX {
            let mut tx = self.write_patiently().await?;
            // The end that a wrong clock caused has no effect. Its replacement is not before any
            // period that ended by the right clock.
            let query = "UPDATE call_counter SET results_from_ms = \
                         CASE WHEN results_from_ms > $2 THEN $3 ELSE $1 END \
                         WHERE results_from_ms < $1 OR results_from_ms > $2";
            let query = sqlx::query(query).bind(ms(until)).bind(ms(now + LATER_MAX));
            query.bind(ms(now + AHEAD_MAX)).execute(&mut *tx).await?;
            tx.commit().await?;
        }
        Ok(true)
    }

    /// Begins a write transaction. Waits longer than usual for other write transactions, because
    /// recording many outcomes may take more than ten seconds on a slow database.
    async fn write_patiently(&self) -> Result<LogTransaction, LogError> {
        for _ in 1..ATTEMPTS_MAX {
            match self.database().write().await {
                Err(error) if error.is_busy() => {}
                begun => return begun,
            }
        }
        self.database().write().await
    }

    /// Removes an outcome of the call `id`, and writes the event `conversion.removed`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn remove_outcome(
        &self,
        id: &str,
        external_id: &str,
        now: Millis,
    ) -> Result<Withdrawn, LogError> {
        let mut tx = self.database().write().await?;
        let Some(row) = call(&mut tx, id).await? else { return Ok(Withdrawn::NoCall) };
        let Some(outcome) = known(&mut tx, id, external_id).await? else {
            return Ok(Withdrawn::NoOutcome);
        };
        let query = sqlx::query("DELETE FROM call_outcomes WHERE call = $1 AND external_id = $2");
        let query = query.bind(id.to_owned()).bind(external_id.to_owned());
        if query.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(Withdrawn::NoOutcome);
        }
        report(&mut tx, "conversion.removed", &row, &outcome, now).await?;
        tx.commit().await?;
        Ok(Withdrawn::Done)
    }

    /// Lists the outcomes that match `filter`, with their calls, newest first. Begins after the
    /// cursor `after`.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn outcomes(
        &self,
        filter: &OutcomeFilter,
        after: Option<&OutcomeCursor>,
        most: u32,
    ) -> Result<Vec<(OutcomeRow, CallRow)>, LogError> {
        let query = sqlx::query(
            "SELECT call, type, value, currency, at_ms, recorded_ms, external_id FROM call_outcomes \
             WHERE at_ms >= $1 AND at_ms < $2 AND ($3 = '' OR type = $3) \
             AND recorded_ms >= $8 AND recorded_ms < $9 \
             AND (at_ms < $4 OR (at_ms = $4 AND (call < $5 OR (call = $5 AND external_id < $6)))) \
             ORDER BY at_ms DESC, call DESC, external_id DESC LIMIT $7",
        );
        let query = query.bind(filter.since.map_or(0, ms));
        let query = query.bind(filter.until.map_or(i64::MAX, ms));
        let query = query.bind(filter.kind.clone().unwrap_or_default());
        let query = query.bind(after.map_or(i64::MAX, |cursor| ms(cursor.at)));
        let query = query.bind(after.map_or_else(String::new, |cursor| cursor.call.clone()));
        let query = query.bind(after.map_or_else(String::new, |cursor| cursor.external_id.clone()));
        let mut tx = self.database().read().await?;
        let query = query.bind(i64::from(most));
        let query = query.bind(filter.recorded_since.map_or(0, ms));
        let query = query.bind(filter.recorded_until.map_or(i64::MAX, ms));
        let rows = query.fetch_all(&mut *tx).await?;
        let mut all = Vec::with_capacity(rows.len());
        for row in &rows {
            let id: String = row.try_get("call")?;
            let found = call(&mut tx, &id).await?;
            let found =
                found.ok_or_else(|| LogError::Damaged(format!("{id} has only a result")))?;
            all.push((OutcomeRow::read(row)?, found));
        }
        Ok(all)
    }
}

/// The end of the latest period that has ended.
async fn period_end(db: &mut AnyConnection) -> Result<Millis, LogError> {
    let row = sqlx::query("SELECT results_from_ms FROM call_counter").fetch_one(db).await?;
    Ok(from_ms(row.try_get(0)?))
}

async fn record(
    db: &mut AnyConnection,
    id: &str,
    outcome: &OutcomeRow,
    now: Millis,
) -> Result<Recorded, LogError> {
    let Some(row) = call(db, id).await? else { return Ok(Recorded::NoCall) };
    let query = sqlx::query(
        "INSERT INTO call_outcomes (call, external_id, type, value, currency, at_ms, recorded_ms) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
    );
    let query = query.bind(id.to_owned()).bind(outcome.external_id.clone());
    let query = query.bind(outcome.kind.clone()).bind(outcome.value.clone());
    let query = query.bind(outcome.currency.clone()).bind(ms(outcome.at));
    let query = query.bind(ms(outcome.recorded_at));
    if query.execute(&mut *db).await?.rows_affected() == 0 {
        let known = known(db, id, &outcome.external_id).await?;
        let other = known.filter(|known| !known.has_facts_of(outcome));
        return Ok(other.map_or(Recorded::Known, Recorded::Differs));
    }
    report(db, "conversion.recorded", &row, outcome, now).await?;
    Ok(Recorded::New(outcome.recorded_at))
}

async fn known(
    db: &mut AnyConnection,
    call: &str,
    external_id: &str,
) -> Result<Option<OutcomeRow>, LogError> {
    let query = sqlx::query(
        "SELECT type, value, currency, at_ms, recorded_ms, external_id FROM call_outcomes \
         WHERE call = $1 AND external_id = $2",
    );
    let query = query.bind(call.to_owned()).bind(external_id.to_owned());
    query.fetch_optional(&mut *db).await?.as_ref().map(OutcomeRow::read).transpose()
}

/// Writes an event about an outcome.
async fn report(
    db: &mut AnyConnection,
    kind: &'static str,
    call: &CallRow,
    outcome: &OutcomeRow,
    at: Millis,
) -> Result<(), LogError> {
    let data = json!({ "call": call.to_json(), "conversion": outcome.to_json() });
    let event = NewEvent { kind, call: Some(call.id.clone()), at, data };
    publish(db, vec![event]).await?;
    Ok(())
}

impl OutcomeRow {
    pub(super) fn read(row: &AnyRow) -> Result<Self, LogError> {
        Ok(Self {
            kind: row.try_get("type")?,
            value: row.try_get("value")?,
            currency: row.try_get("currency")?,
            at: from_ms(row.try_get("at_ms")?),
            recorded_at: from_ms(row.try_get("recorded_ms")?),
            external_id: row.try_get("external_id")?,
        })
    }

    /// Whether both outcomes have the same type, value and currency. Their times are not compared:
    /// if the sender leaves the time out, each attempt has a different one.
    fn has_facts_of(&self, other: &Self) -> bool {
        let facts = |it: &Self| (it.kind.clone(), it.plain_value(), it.currency.clone());
        facts(self) == facts(other)
    }

    /// The value without insignificant zeros: `129.50` and `129.5` are equal.
    fn plain_value(&self) -> Option<String> {
        let value = self.value.as_deref()?;
        let (sign, digits) = value.strip_prefix('-').map_or(("", value), |digits| ("-", digits));
        let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
        Some(format!("{sign}{}.{}", whole.trim_start_matches('0'), rest.trim_end_matches('0')))
    }

    /// Converts the outcome to JSON for the API and webhooks.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "type": self.kind,
            "value": self.value,
            "currency": self.currency,
            "at": moment(self.at),
            "recorded_at": moment(self.recorded_at),
            "external_id": self.external_id,
        })
    }
}

#[cfg(test)]
mod tests;
