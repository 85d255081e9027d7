//! Results of calls. `POST /v1/calls/{id}/outcomes` stores one result, `DELETE` on
//! `/v1/calls/{id}/outcomes/{external_id}` removes it, `POST /v1/outcomes` stores results from a CSV
//! list, and `GET /v1/outcomes` lists all results.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use ringwell_core::Millis;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{PAGE, time};
use super::problem::{CALL_MAY_WAIT, NO_CALL, Problem, read_json, read_query};
use crate::clock::now;
use crate::log::{
    CallRow, LogError, OutcomeCursor, OutcomeFilter, OutcomeRow, Recorded, Withdrawn, call_id,
};
use crate::parse_fault::described;
use crate::service::Service;

/// The maximum length of a result's type, and of its external id.
const NAME_BYTES_MAX: usize = 200;
/// The maximum length of a value, including its decimal point.
const VALUE_BYTES_MAX: usize = 20;
/// A result's time may be at most this far ahead of the server's clock. Clocks differ by less than
/// this, so a later time is a mistake.
const FUTURE_MAX: Millis = Millis(3_600_000);
/// The maximum number of lines in one upload.
const LINES_MAX: usize = 2_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    #[serde(rename = "type")]
    kind: String,
    value: Option<String>,
    currency: Option<String>,
    at: Option<String>,
    external_id: String,
}

/// Stores a result. A repeated result changes nothing; another result with the same `external_id`
/// is refused.
pub(super) async fn post(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let new: New = read_json(&body)?;
    let row = checked(new)?;
    let stored = row.clone();
    let (log, waits) = (service.log().clone(), service.is_behind());
    let record = async move { log.record_outcomes(&[(id, row)], now()).await };
    let recorded = service.run(record).await??;
    service.wake();
    match recorded.first() {
        None | Some(Recorded::NoCall) => Err(Problem::no_call(waits)),
        Some(Recorded::New(at)) => {
            let stored = OutcomeRow { recorded_at: *at, ..stored };
            Ok((StatusCode::CREATED, Json(stored.to_json())))
        }
        Some(Recorded::Known) => Ok((StatusCode::OK, Json(json!({ "known": true })))),
        Some(Recorded::Differs(known)) => Err(Problem::new(StatusCode::CONFLICT, differs(known))),
    }
}

/// The error text for a result whose `external_id` belongs to another result of the call.
fn differs(known: &OutcomeRow) -> String {
    let OutcomeRow { kind, value, currency, external_id, .. } = known;
    let worth = [value, currency].map(|part| part.as_deref().unwrap_or_default()).join(" ");
    format!(
        "the call already has the result {external_id:?} with other facts ({}). To correct it, \
         remove it first: ringwell calls remove CALL --result {external_id:?}",
        format!("{kind} {worth}").trim_end()
    )
}

/// Removes a result, for example of a sale that was refunded.
pub(super) async fn remove(
    State(service): State<Service>,
    Path((id, external_id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (log, waits, of) = (service.log().clone(), service.is_behind(), id.clone());
    let remove = async move { log.remove_outcome(&of, &external_id, now()).await };
    let removed = service.run(remove).await??;
    match removed {
        Withdrawn::Done => {
            tracing::info!(call = id, "removed a result of a call from the call log");
            service.wake();
            Ok(StatusCode::NO_CONTENT)
        }
        Withdrawn::NoOutcome => Err(Problem::not_found("the call has no result with this id")),
        Withdrawn::NoCall => Err(Problem::no_call(waits)),
    }
}

/// A line of an upload. It identifies the call by `call`, or by `account` and `provider_call_id`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    call: Option<String>,
    account: Option<String>,
    provider_call_id: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    value: Option<String>,
    currency: Option<String>,
    at: Option<String>,
    external_id: String,
}

/// Stores the results from a CSV list. Invalid lines are reported, and the valid ones are stored.
pub(super) async fn upload(
    State(service): State<Service>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let mut csv = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(body.as_ref());
    let mut problems = Vec::new();
    let (mut lines, mut outcomes) = (Vec::new(), Vec::new());
    let header = csv.headers().cloned();
    let header = header.map_err(|error| Problem::bad_request(without_place(&error)))?;
    check_header(&header)?;
    let mut record = csv::StringRecord::new();
    for place in 0.. {
        let number = csv.position().line();
        let line = match csv.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {
                record.deserialize::<Line>(Some(&header)).map_err(|error| without_place(&error))
            }
            Err(error) => Err(without_place(&error)),
        };
        // A field may contain line breaks, so record and line numbers can differ.
        let place = (place, record.position().map_or(number, csv::Position::line));
        let line = line.and_then(read);
        match line {
            Ok(outcome) => {
                lines.push(place);
                outcomes.push(outcome);
            }
            Err(detail) => problems.push((place, detail)),
        }
        if place.0 >= LINES_MAX {
            let detail = format!(
                "a request may contain at most {LINES_MAX} lines. Nothing was recorded: send the \
                 lines in several requests"
            );
            return Err(Problem::bad_request(detail));
        }
    }
    let (log, waits) = (service.log().clone(), service.is_behind());
    let record = async move { log.record_outcomes(&outcomes, now()).await };
    let recorded = service.run(record).await??;
    service.wake();
    let new = recorded.iter().filter(|it| matches!(it, Recorded::New(_))).count();
    let known = recorded.iter().filter(|it| **it == Recorded::Known).count();
    let refused = |it: &Recorded| match it {
        Recorded::New(_) | Recorded::Known => None,
        Recorded::NoCall => Some(if waits { CALL_MAY_WAIT } else { NO_CALL }.to_owned()),
        Recorded::Differs(known) => Some(differs(known)),
    };
    let refused = lines.iter().zip(&recorded).map(|(place, it)| Some((*place, refused(it)?)));
    problems.extend(refused.flatten());
    problems.sort_unstable_by_key(|(place, _)| *place);
    // The header is line 1, but it is not counted as a record.
    let shown = |((record, line), detail): &((usize, u64), String)| json!({ "line": line, "record": record + 1, "detail": detail });
    let problems: Vec<Value> = problems.iter().map(shown).collect();
    Ok(Json(json!({ "recorded": new, "known": known, "problems": problems })))
}

/// Refuses a list if its first line names a column that does not exist.
fn check_header(header: &csv::StringRecord) -> Result<(), Problem> {
    const COLUMNS: [&str; 8] =
        ["call", "account", "provider_call_id", "type", "value", "currency", "at", "external_id"];
    let Some(unknown) = header.iter().find(|name| !COLUMNS.contains(name)) else { return Ok(()) };
    Err(Problem::bad_request(format!(
        "the first line names the column {unknown:?}, which does not exist. It must name columns \
         of this list, separated by commas: {}",
        COLUMNS.join(", ")
    )))
}

/// Describes the error in a line. Leaves out the position, because the line's number is returned
/// separately.
fn without_place(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => match err.kind() {
            csv::DeserializeErrorKind::Message(text) => described(text),
            _ => err.to_string(),
        },
        csv::ErrorKind::Utf8 { .. } => "the line is not UTF-8: save the file as UTF-8".to_owned(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields, but the first line has {expected_len}")
        }
        _ => error.to_string(),
    }
}

fn read(line: Line) -> Result<(String, OutcomeRow), String> {
    let Line { call, account, provider_call_id, kind, value, currency, at, external_id } = line;
    let by_provider = account.zip(provider_call_id).map(|(account, id)| call_id(&account, &id));
    let call = match (call, by_provider) {
        (Some(call), Some(other)) if call != other => {
            return Err(format!(
                "call names {call}, but account and provider_call_id name {other}: leave out what \
                 is wrong"
            ));
        }
        (Some(call), _) | (None, Some(call)) => call,
        (None, None) => {
            let fault =
                "the call is not identified: set call, or both account and provider_call_id";
            return Err(fault.to_owned());
        }
    };
    let new = New { kind, value, currency, at, external_id };
    checked(new).map(|row| (call, row)).map_err(|problem| problem.detail().to_owned())
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    since: Option<String>,
    until: Option<String>,
    recorded_since: Option<String>,
    recorded_until: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

/// Lists results with their calls, newest first.
pub(super) async fn list(
    State(service): State<Service>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let wanted = read_query(wanted)?;
    let filter = OutcomeFilter {
        since: time("since", wanted.since.as_ref())?,
        until: time("until", wanted.until.as_ref())?,
        recorded_since: time("recorded_since", wanted.recorded_since.as_ref())?,
        recorded_until: time("recorded_until", wanted.recorded_until.as_ref())?,
        kind: wanted.kind,
    };
    let cursor = |text: &String| {
        OutcomeCursor::parse(&text.replace(' ', "+")).ok_or_else(|| {
            Problem::bad_request("after: must be the value of \"next\" in the previous answer")
        })
    };
    let after = wanted.after.as_ref().map(cursor).transpose()?;
    let most = wanted.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1);
    let log = service.log().clone();
    let all = service.run(async move {
        let is_complete = match filter.recorded_until {
            Some(until) => Some(log.end_period(until, now()).await?),
            None => None,
        };
        Ok((is_complete, log.outcomes(&filter, after.as_ref(), most).await?))
    });
    let all: Result<_, LogError> = all.await?;
    let (is_complete, all) = all?;
    let is_full = all.len() == usize::try_from(most).unwrap_or(usize::MAX);
    let next = all.last().filter(|_| is_full);
    let next = next.map(|(outcome, call)| OutcomeCursor::after(&call.id, outcome).to_string());
    let shown = |(outcome, call): &(OutcomeRow, CallRow)| {
        let mut value = outcome.to_json();
        value["call"] = call.to_json();
        value
    };
    let all: Vec<Value> = all.iter().map(shown).collect();
    let mut answer = json!({ "outcomes": all, "next": next });
    if let Some(is_complete) = is_complete {
        answer["complete"] = json!(is_complete);
    }
    Ok(Json(answer))
}

fn checked(new: New) -> Result<OutcomeRow, Problem> {
    let is_name = |text: &str| {
        (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
    };
    if !is_name(&new.kind) || !is_name(&new.external_id) {
        let fault = "type, external_id: must be 1 to 200 bytes without control characters";
        return Err(Problem::bad_request(fault));
    }
    if !new.value.as_deref().is_none_or(is_decimal) {
        return Err(Problem::bad_request(
            "value: must be a decimal number as text, as in \"129.50\"",
        ));
    }
    let is_code = |text: &str| text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase());
    if !new.currency.as_deref().is_none_or(is_code) {
        return Err(Problem::bad_request("currency: must be three capital letters, as in EUR"));
    }
    let now = now();
    let at = time("at", new.at.as_ref())?.unwrap_or(now);
    if at > now + FUTURE_MAX {
        let fault = "at: is in the future: check the offset, as in 2026-11-21T06:30:00-05:00";
        return Err(Problem::bad_request(fault));
    }
    let New { kind, value, currency, external_id, .. } = new;
    Ok(OutcomeRow { kind, value, currency, at, recorded_at: now, external_id })
}

fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.len() <= VALUE_BYTES_MAX && are_digits(whole) && are_digits(rest)
}

#[cfg(test)]
#[test]
fn values_are_decimal_numbers() {
    for good in ["0", "129.50", "-3", "12345678901234.12"] {
        assert!(is_decimal(good), "{good}");
    }
    for bad in ["", ".", "1.", ".5", "1,5", "1e3", "=1", "123456789012345678901"] {
        assert!(!is_decimal(bad), "{bad}");
    }
}
