//! Detects leaking numbers, which are called repeatedly although no visitor was shown them
//! recently. Such a number may be printed somewhere, listed in a directory, or part of a cached
//! page.
//!
//! Owns the rule for leaks. Invariant: a number is reported at most once a week. Source:
//! docs/spec/calls.md, "Numbers that leak".

use ringwell_core::Millis;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Row};

use super::error::LogError;
use super::values::{from_ms, ms, parsed};
use crate::attribution::{Attributed, Attribution};
use crate::call::Facts;

/// A number counts as leaking after at least this many calls that visitors are unlikely to have
/// made.
const CALLS_MIN: usize = 3;
/// The period in which calls count towards [`CALLS_MIN`].
const SPAN: Millis = Millis(7 * DAY);
/// A visitor is unlikely to call once this much time has passed since the visitor's lockout ended.
const LATE: Millis = Millis(DAY);
/// The maximum number of calls to examine for one number.
const CALLS_MAX: i64 = 50;
const DAY: u64 = 24 * 60 * 60 * 1000;

/// Whether a visitor is unlikely to have made a call that began at `began`.
pub(super) fn is_implausible(attribution: &Attribution, began: Millis) -> bool {
    match (attribution.outcome, &attribution.allocation) {
        (Attributed::None, _) => attribution.pool.is_some(),
        (Attributed::Allocated, Some(shown)) => began > Millis(shown.locked_until_ms) + LATE,
        (Attributed::Allocated, None)
        | (Attributed::Overflow | Attributed::Unknown | Attributed::Pending, _) => false,
    }
}

/// The data of the event `number.leaking`, if the calls to `number` show a leak. Considers only
/// calls whose beginning was reported, and is after `began` minus [`SPAN`]. `None` if the calls
/// show no leak, or if the number was reported in the last week. The call that began at `began`
/// must be stored, and [`is_implausible`] must be true for it.
pub(super) async fn leak(
    db: &mut AnyConnection,
    (number, began): (&str, Millis),
    attribution: &Attribution,
    now: Millis,
) -> Result<Option<Value>, LogError> {
    let query = sqlx::query(
        "SELECT started_ms, attribution, facts FROM calls WHERE number = $1 AND started_ms > $2 \
         ORDER BY started_ms DESC LIMIT $3",
    );
    let since = Millis(began.0.saturating_sub(SPAN.0));
    let query = query.bind(number.to_owned()).bind(ms(since)).bind(CALLS_MAX);
    let mut calls = 0;
    for row in query.fetch_all(&mut *db).await? {
        let text: Option<String> = row.try_get("attribution")?;
        let attribution = text.and_then(|text| serde_json::from_str::<Attribution>(&text).ok());
        let began = from_ms(row.try_get("started_ms")?);
        let facts: Facts = parsed(Some(row.try_get("facts")?))?.unwrap_or_default();
        let is_implausible = attribution.is_some_and(|it| is_implausible(&it, began));
        calls += usize::from(is_implausible && facts.is_start_reported());
    }
    if calls < CALLS_MIN {
        return Ok(None);
    }
    let query = sqlx::query(
        "INSERT INTO number_leaks (number, at_ms) VALUES ($1, $2) ON CONFLICT (number) \
         DO UPDATE SET at_ms = excluded.at_ms WHERE number_leaks.at_ms <= $3",
    );
    let before = Millis(now.0.saturating_sub(SPAN.0));
    let query = query.bind(number.to_owned()).bind(ms(now)).bind(ms(before));
    if query.execute(&mut *db).await?.rows_affected() == 0 {
        return Ok(None);
    }
    let pool = attribution.pool.as_ref().map(|pool| pool.id);
    tracing::warn!(
        pool,
        calls,
        "a number was called repeatedly, although it was not shown to any visitor recently: the \
         event number.leaking was written"
    );
    let days = SPAN.0 / DAY;
    Ok(Some(json!({ "number": number, "pool": attribution.pool, "calls": calls, "days": days })))
}
