//! Removes calls after their retention time. Erases the personal data of callers and visitors after
//! a set time or on request.

use std::collections::BTreeSet;
use std::fmt::Write;

use ringwell_core::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::error::LogError;
use super::query::{EventRow, call, columns_of};
use super::row::erased_caller;
use super::values::{from_ms, ms, parsed, text, to_db};
use super::{CallRow, Log, blocks};
use crate::attribution::Allocation;
use crate::call::CallState;
use crate::caller::Caller;
use crate::clock::moment;
use crate::digest;
use crate::form;
use crate::robocall::is_verdict;

/// The maximum number of calls to redact or remove in one transaction.
const CALLS_MAX: u32 = 500;
/// The maximum length of a search pattern for a parameter. SQLite refuses patterns of more than
/// 50,000 bytes.
const PATTERN_BYTES_MAX: usize = 1_000;

/// The time since a call's last report after which the call may be removed even if its end was not
/// reported. Calls take less than a day, so no later report will create the call again.
const SILENT_MAX: Millis = Millis(24 * 3_600_000);

/// The person whose data is erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The caller and the visitor of one call.
    Call(String),
    /// A caller, in all calls. These include calls for which only a hash of the caller is stored.
    Caller(Caller),
    /// A visitor, identified by a page parameter, such as `gclid`. It may be decoded or still
    /// contain the URL's escapes.
    Parameter {
        /// The parameter's name.
        name: String,
        /// The parameter's value. If the page had several values, any of them.
        value: String,
    },
    /// The visitors of allocations that an earlier erasure listed. Other callers' calls may have
    /// been attributed to them since then.
    Visitors(Vec<ErasedAllocation>),
}

/// The result of an erasure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// The count of redacted calls.
    pub calls: u64,
    /// The count of other calls that lost the same visitor's parameters. Each of them was, or may
    /// have been, a call by that visitor.
    pub others: u64,
    /// The allocations whose parameters were in the log, in order. The journal contains the
    /// parameters, too.
    pub allocations: Vec<ErasedAllocation>,
}

impl Erased {
    /// A hash of the allocations.
    #[must_use]
    pub fn list(&self) -> String {
        let lines = self.allocations.iter().map(|it| format!("{} {}\n", it.number, it.parameters));
        digest::sha256_hex(lines.collect::<String>().as_bytes())
    }
}

/// Identifies an allocation in the journal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ErasedAllocation {
    /// The number in E.164 format, with `+`.
    pub number: String,
    /// The [`fingerprint`] of the visitor's parameters.
    pub parameters: String,
}

impl ErasedAllocation {
    /// Whether the members have the form that an erasure returns: a number with `+`, and the
    /// hexadecimal SHA-256 of parameters.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let digits = self.number.strip_prefix('+').unwrap_or_default();
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (1..=15).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && self.parameters.len() == 64
            && self.parameters.bytes().all(is_hex)
    }
}

/// The result of removing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// The call was removed.
    Done,
    /// There is no such call.
    Unknown,
    /// The call may not have ended: its next report would create it again.
    InProgress,
}

impl Log {
    /// The key for hashing callers in `month`, such as `2026-11`. Creates the key if it is missing.
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

    /// Removes the caller and the visitor from calls that began before `before`. Changes at most a
    /// few hundred calls and returns their count. Repeat this until it returns 0.
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

    /// Lists what [`Self::erase`] would erase. `others` is 0.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn to_erase(&self, whom: &Whom) -> Result<Erased, LogError> {
        let mut tx = self.database().read().await?;
        let theirs = theirs(&mut tx, whom).await?;
        tx.commit().await?;
        Ok(listed(&theirs))
    }

    /// Removes everything that identifies the person `whom` from calls, events and pending
    /// deliveries. SQLite also overwrites the data in its files.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn erase(&self, whom: &Whom, now: Millis) -> Result<Erased, LogError> {
        let erased = self.erase_if(whom, None, now).await?;
        Ok(erased.unwrap_or_default())
    }

    /// Like [`Self::erase`], but if `list` is set and differs from the [`Erased::list`] of the
    /// allocations to erase, erases nothing and returns `None`. Once the erasure is done, the log
    /// cannot list the allocations again.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn erase_if(
        &self,
        whom: &Whom,
        list: Option<&str>,
        now: Millis,
    ) -> Result<Option<Erased>, LogError> {
        let mut tx = self.database().write().await?;
        // Reads all calls first, because erasing one call's data may make another call impossible
        // to find.
        let theirs = theirs(&mut tx, whom).await?;
        let mut erased = listed(&theirs);
        if list.is_some_and(|list| list != erased.list()) {
            return Ok(None);
        }
        let (mut own, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for Theirs { id, number, shown, is_own, .. } in theirs {
            let at: Vec<u64> = shown.iter().map(|it| it.allocated_ms).collect();
            if is_own {
                redact_one(&mut tx, &id, now).await?;
                own.insert(id);
            }
            changed.extend(forget_in_others(&mut tx, &number, &at).await?);
        }
        erased.others = changed.difference(&own).count() as u64;
        if let Whom::Caller(caller) = whom {
            blocks::forget(&mut tx, caller).await?;
        }
        tx.commit().await?;
        self.database().overwrite_deleted().await?;
        Ok(Some(erased))
    }

    /// Removes a call with its timeline, results, events and webhooks. The call must have ended or,
    /// if its end was never reported, its last report must be older than [`SILENT_MAX`] at `now`.
    /// SQLite also overwrites the data in its files.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn remove(&self, id: &str, now: Millis) -> Result<Removed, LogError> {
        let mut tx = self.database().write().await?;
        let Some(found) = call(&mut tx, id).await? else { return Ok(Removed::Unknown) };
        let last = last_report(&mut tx, id).await?.max(found.facts.started_at());
        if found.facts.state() != CallState::Ended && now < last + SILENT_MAX {
            return Ok(Removed::InProgress);
        }
        remove_one(&mut tx, id).await?;
        tx.commit().await?;
        self.database().overwrite_deleted().await?;
        Ok(Removed::Done)
    }

    /// Makes SQLite overwrite the data that [`Self::redact_before`] and [`Self::remove_before`] have
    /// removed.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn overwrite_removed(&self) -> Result<(), LogError> {
        self.database().overwrite_deleted().await
    }

    /// Removes calls that began before `before`, with all their data, and events older than
    /// `events`. Removes at most a few hundred calls, and returns the count of calls and events.
    /// Repeat this until it returns 0.
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
            remove_one(&mut tx, &row.try_get::<String, _>(0)?).await?;
        }
        let query = sqlx::query("DELETE FROM number_taps WHERE at_ms < $1");
        query.bind(ms(before)).execute(&mut *tx).await?;
        let mut count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        for statement in [
            "DELETE FROM webhook_deliveries WHERE event IN \
             (SELECT place FROM call_events WHERE at_ms < $1)",
            "DELETE FROM call_events WHERE at_ms < $1",
        ] {
            let removed = sqlx::query(statement).bind(ms(events)).execute(&mut *tx).await?;
            count += removed.rows_affected();
        }
        tx.commit().await?;
        Ok(count)
    }
}

/// The arrival time of the newest report about a call.
async fn last_report(db: &mut AnyConnection, id: &str) -> Result<Millis, LogError> {
    let query = sqlx::query("SELECT MAX(received_ms) FROM call_timeline WHERE call = $1");
    let row = query.bind(id.to_owned()).fetch_one(db).await?;
    Ok(from_ms(row.try_get::<Option<i64>, _>(0)?.unwrap_or_default()))
}

/// Removes a call with everything that is recorded about it.
async fn remove_one(db: &mut AnyConnection, id: &str) -> Result<(), LogError> {
    for statement in [
        "DELETE FROM webhook_deliveries WHERE event IN \
         (SELECT place FROM call_events WHERE call = $1)",
        "DELETE FROM call_events WHERE call = $1",
        "DELETE FROM call_timeline WHERE call = $1",
        "DELETE FROM call_outcomes WHERE call = $1",
        "DELETE FROM calls WHERE id = $1",
    ] {
        sqlx::query(statement).bind(id.to_owned()).execute(&mut *db).await?;
    }
    Ok(())
}

/// Removes callers, parameters and STIR/SHAKEN verdicts from calls. Keeps times, pools and
/// outcomes, also in the calls' events.
async fn redact(db: &mut AnyConnection, rows: &[AnyRow], now: Millis) -> Result<u64, LogError> {
    for row in rows {
        let id: String = row.try_get(0)?;
        redact_one(db, &id, now).await?;
    }
    Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
}

async fn redact_one(db: &mut AnyConnection, id: &str, now: Millis) -> Result<(), LogError> {
    let Some(mut found) = call(db, id).await? else { return Ok(()) };
    found.attribution.redact();
    let attribution = found.attribution.is_stored().then(|| text(&found.attribution));
    let mut reasons = found.robocall.map(|it| it.reasons).unwrap_or_default();
    reasons.retain(|reason| !is_verdict(reason));
    let query = sqlx::query(
        "UPDATE calls SET caller = NULL, first_time = NULL, stir = NULL, attribution = $1, \
         redacted_ms = $2, robocall_reasons = $3 WHERE id = $4",
    );
    let query = query.bind(attribution.transpose()?).bind(ms(now)).bind(reasons.join(" "));
    let query = query.bind(id.to_owned());
    query.execute(&mut *db).await?;
    redact_events(db, id).await
}

/// Removes the caller, the visitors and the verdicts from the bodies of all events about `call`.
async fn redact_events(db: &mut AnyConnection, call: &str) -> Result<(), LogError> {
    let query =
        sqlx::query("SELECT place, id, type, call, at_ms, body FROM call_events WHERE call = $1");
    for row in query.bind(call.to_owned()).fetch_all(&mut *db).await? {
        let event = EventRow::read(&row)?;
        let mut body: Value = parsed(Some(event.body))?.unwrap_or_default();
        redact_value(&mut body);
        body["data"]["redacted"] = json!(true);
        // Earlier releases also removed the type and the time.
        body["type"] = json!(event.kind);
        body["timestamp"] = json!(moment(event.at));
        let query = sqlx::query("UPDATE call_events SET body = $1 WHERE place = $2");
        query.bind(text(&body)?).bind(to_db(event.place)).execute(&mut *db).await?;
    }
    Ok(())
}

/// Removes everything that identifies a person from an event. The call may be nested in the event
/// about one of its outcomes.
fn redact_value(value: &mut Value) {
    let Value::Object(members) = value else {
        if let Value::Array(values) = value {
            values.iter_mut().for_each(redact_value);
        }
        return;
    };
    for (name, value) in members {
        match name.as_str() {
            "from" => *value = erased_caller(),
            "stir" | "first_time_caller" => *value = Value::Null,
            "parameters" => *value = json!({}),
            "reasons" => {
                if let Value::Array(reasons) = value {
                    reasons.retain(|reason| !reason.as_str().is_some_and(is_verdict));
                }
            }
            _ => redact_value(value),
        }
    }
}

/// Removes a visitor's parameters from the attributions of all calls to `number`. The visitor's
/// allocations are those at the times `at`. Returns the ids of the calls that had parameters.
async fn forget_in_others(
    db: &mut AnyConnection,
    number: &str,
    at: &[u64],
) -> Result<Vec<String>, LogError> {
    let mut ids: Vec<String> = Vec::new();
    for moment in at {
        let query = sqlx::query("SELECT id FROM calls WHERE number = $1 AND attribution LIKE $2");
        let query = query.bind(number.to_owned()).bind(format!("%\"allocated_ms\":{moment},%"));
        for row in query.fetch_all(&mut *db).await? {
            ids.push(row.try_get(0)?);
        }
    }
    let mut changed = Vec::new();
    for id in ids {
        let Some(mut found) = call(db, &id).await? else { continue };
        if !found.attribution.forget(at) {
            continue;
        }
        let query = sqlx::query("UPDATE calls SET attribution = $1 WHERE id = $2");
        let query = query.bind(text(&found.attribution)?).bind(id.clone());
        query.execute(&mut *db).await?;
        forget_in_events(db, &id, at).await?;
        changed.push(id);
    }
    Ok(changed)
}

/// Removes the parameters of the allocations at the times `at` from all events about `call`.
async fn forget_in_events(db: &mut AnyConnection, call: &str, at: &[u64]) -> Result<(), LogError> {
    let at: Vec<String> = at.iter().map(|at| moment(Millis(*at))).collect();
    let query = sqlx::query("SELECT place, body FROM call_events WHERE call = $1");
    for row in query.bind(call.to_owned()).fetch_all(&mut *db).await? {
        let place: i64 = row.try_get(0)?;
        let body: String = row.try_get(1)?;
        let Ok(mut value) = serde_json::from_str::<Value>(&body) else { continue };
        forget_in_value(&mut value, &at);
        let query = sqlx::query("UPDATE call_events SET body = $1 WHERE place = $2");
        query.bind(text(&value)?).bind(place).execute(&mut *db).await?;
    }
    Ok(())
}

/// Removes the parameters of the allocations at the times `at` from an event. The allocations may
/// be nested anywhere: in a call, among a call's earlier allocations, or in the call of an outcome.
fn forget_in_value(value: &mut Value, at: &[String]) {
    let is_theirs = value["allocated_at"].as_str().is_some_and(|of| at.iter().any(|at| at == of));
    match value {
        Value::Object(members) => {
            if is_theirs && members.contains_key("parameters") {
                members.insert("parameters".to_owned(), json!({}));
            }
            members.values_mut().for_each(|value| forget_in_value(value, at));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| forget_in_value(value, at)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The allocations in a call's attribution that belong to the person `whom`.
fn shown_to(call: &CallRow, whom: &Whom) -> Vec<Allocation> {
    let all = call.attribution.all();
    match whom {
        // Earlier visitors of the number are other people.
        Whom::Call(_) | Whom::Caller(_) => call.attribution.allocation.iter().cloned().collect(),
        Whom::Parameter { name, value } => {
            let wanted = spellings(name, value);
            let has_it = |it: &&Allocation| it.parameters.iter().any(|pair| wanted.contains(pair));
            all.filter(has_it).cloned().collect()
        }
        Whom::Visitors(listed) => {
            let number = call.number.as_deref().unwrap_or_default();
            let of_number = listed.iter().filter(|it| it.number == number);
            let wanted: Vec<&str> = of_number.map(|it| it.parameters.as_str()).collect();
            let has_it = |it: &&Allocation| {
                let parameters = &it.parameters;
                !parameters.is_empty() && wanted.contains(&fingerprint(parameters).as_str())
            };
            all.filter(has_it).cloned().collect()
        }
    }
}

/// A call that an erasure changes.
struct Theirs {
    id: String,
    number: String,
    /// The person's allocations in the call's attribution.
    shown: Vec<Allocation>,
    /// The hash of the parameters that a look-up found after the call had been erased.
    unlisted: Option<String>,
    /// Whether the person made the call.
    is_own: bool,
}

/// The calls that an erasure of `whom` changes. Other calls may contain the same allocations.
async fn theirs(db: &mut AnyConnection, whom: &Whom) -> Result<Vec<Theirs>, LogError> {
    let ids = match whom {
        Whom::Call(id) => vec![id.clone()],
        // Erased calls do not contain their caller.
        Whom::Caller(caller) => {
            [calls_of(&mut *db, caller).await?, unlisted_calls(&mut *db).await?].concat()
        }
        Whom::Parameter { name, value } => {
            calls_with(&mut *db, name, value).await?.into_iter().collect()
        }
        Whom::Visitors(listed) => calls_to(&mut *db, listed).await?,
    };
    let mut theirs = Vec::new();
    for id in ids {
        let Some(found) = call(&mut *db, &id).await? else { continue };
        let shown = shown_to(&found, whom);
        let unlisted = match whom {
            Whom::Call(_) | Whom::Caller(_) => found.attribution.unlisted.clone(),
            Whom::Parameter { .. } | Whom::Visitors(_) => None,
        };
        let is_own = match whom {
            Whom::Call(_) => true,
            Whom::Caller(_) => found.redacted_at.is_none(),
            // If a call is attributed to another visitor of the number, the person `whom` most
            // likely did not make the call.
            Whom::Parameter { .. } => found.attribution.allocation.as_ref() == shown.first(),
            Whom::Visitors(_) => false,
        };
        if is_own || !shown.is_empty() {
            let number = found.number.unwrap_or_default();
            theirs.push(Theirs { id, number, shown, unlisted, is_own });
        }
    }
    Ok(theirs)
}

/// Counts the person's own calls among `theirs`, and lists the allocations that still have
/// parameters.
fn listed(theirs: &[Theirs]) -> Erased {
    let mut allocations = BTreeSet::new();
    for Theirs { number, shown, unlisted, .. } in theirs {
        let late = unlisted.iter().map(|parameters| (number.clone(), parameters.clone()));
        allocations
            .extend(late.map(|(number, parameters)| ErasedAllocation { number, parameters }));
        for allocation in shown.iter().filter(|it| !it.parameters.is_empty()) {
            let parameters = fingerprint(&allocation.parameters);
            allocations.insert(ErasedAllocation { number: number.clone(), parameters });
        }
    }
    let own: BTreeSet<&str> =
        theirs.iter().filter(|it| it.is_own).map(|it| it.id.as_str()).collect();
    let allocations = allocations.into_iter().collect();
    Erased { calls: own.len() as u64, others: 0, allocations }
}

/// The ids of all attributed calls to the numbers of `listed`.
async fn calls_to(
    db: &mut AnyConnection,
    listed: &[ErasedAllocation],
) -> Result<Vec<String>, LogError> {
    let numbers: BTreeSet<&str> = listed.iter().map(|it| it.number.as_str()).collect();
    let mut ids = Vec::new();
    for number in numbers {
        let query = "SELECT id FROM calls WHERE number = $1 AND attribution IS NOT NULL";
        for row in sqlx::query(query).bind(number.to_owned()).fetch_all(&mut *db).await? {
            ids.push(row.try_get(0)?);
        }
    }
    Ok(ids)
}

/// The ids of erased calls whose visitor was found after the erasure, so that no erasure has listed
/// the visitor's allocation.
async fn unlisted_calls(db: &mut AnyConnection) -> Result<Vec<String>, LogError> {
    let query =
        sqlx::query("SELECT id FROM calls WHERE redacted_ms IS NOT NULL AND attribution LIKE $1");
    let rows = query.bind("%\"unlisted\":%").fetch_all(db).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The ids of all calls by `caller`, including calls from months in which callers were hashed.
async fn calls_of(db: &mut AnyConnection, caller: &Caller) -> Result<Vec<String>, LogError> {
    let mut ids = Vec::new();
    for column in columns_of(&mut *db, caller).await? {
        let query = sqlx::query("SELECT id FROM calls WHERE caller = $1").bind(column);
        for row in query.fetch_all(&mut *db).await? {
            ids.push(row.try_get(0)?);
        }
    }
    Ok(ids)
}

/// A parameter as it was given, and with its URL escapes decoded.
fn spellings(name: &str, value: &str) -> [(String, String); 2] {
    let decoded = (form::decoded(name.as_bytes()), form::decoded(value.as_bytes()));
    [(name.to_owned(), value.to_owned()), decoded]
}

/// The ids of calls whose attribution may contain a visitor with the value `value` for the
/// parameter `name`. The caller of this function must check for an exact match.
async fn calls_with(
    db: &mut AnyConnection,
    name: &str,
    value: &str,
) -> Result<BTreeSet<String>, LogError> {
    let mut ids = BTreeSet::new();
    for pair in spellings(name, value) {
        let pair = text(&pair)?;
        let start = &pair[..pair.floor_char_boundary(PATTERN_BYTES_MAX)];
        let escaped: String = start
            .chars()
            .flat_map(|c| matches!(c, '%' | '_' | '!').then_some('!').into_iter().chain([c]))
            .collect();
        let query = sqlx::query("SELECT id FROM calls WHERE attribution LIKE $1 ESCAPE '!'");
        for row in query.bind(format!("%{escaped}%")).fetch_all(&mut *db).await? {
            ids.insert(row.try_get(0)?);
        }
    }
    Ok(ids)
}

/// A hash of a visitor's parameters. The hash identifies the parameters in the journal without
/// revealing them.
#[must_use]
pub fn fingerprint(parameters: &[(String, String)]) -> String {
    let mut all = String::new();
    for (name, value) in parameters {
        // Length prefixes ensure that different lists result in different strings. Writing to a
        // `String` cannot fail.
        let _ = write!(all, "{}:{name}{}:{value}", name.len(), value.len());
    }
    digest::sha256_hex(all.as_bytes())
}

#[cfg(test)]
mod tests;
