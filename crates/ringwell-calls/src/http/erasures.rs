//! `POST /v1/erasures` and `DELETE /v1/callers/{number}`: erase the personal data of callers and
//! visitors. `DELETE /v1/calls/{id}`: removes a call.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::problem::Problem;
use crate::caller::Caller;
use crate::clock::now;
use crate::log::{Erased, ErasedAllocation, Removed, Whom};
use crate::number::called;
use crate::service::Service;

/// The body of a request. Contains exactly one of the first four members.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    caller: Option<String>,
    call: Option<String>,
    parameter: Option<Parameter>,
    allocations: Option<Vec<ErasedAllocation>>,
    /// Whether to list the allocations, and erase nothing.
    dry_run: bool,
    /// The hash of the listed allocations. If the allocations have changed since, nothing is
    /// erased.
    list: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    name: String,
    value: String,
}

/// Erases the data of a caller, of a visitor, or of one call's caller and visitor. In a dry run,
/// lists the allocations that this would erase.
pub(super) async fn post(
    State(service): State<Service>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let wrong = || {
        Problem::bad_request(
            "body: must be one of {\"caller\": \"+14155551234\"}, {\"call\": \"ID\"}, \
             {\"parameter\": {\"name\": \"gclid\", \"value\": \"VALUE\"}} and {\"allocations\": \
             [the allocations that an earlier erasure has returned]}. It may also contain \
             \"dry_run\": true, or \"list\" from the answer to such a request",
        )
    };
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|_| wrong())?;
    let whom = match wanted {
        Wanted { caller: Some(number), call: None, parameter: None, allocations: None, .. } => {
            Whom::Caller(read(&number)?)
        }
        Wanted { caller: None, call: Some(id), parameter: None, allocations: None, .. } => {
            Whom::Call(id)
        }
        Wanted { caller: None, call: None, parameter: Some(it), allocations: None, .. } => {
            Whom::Parameter { name: it.name, value: it.value }
        }
        Wanted { caller: None, call: None, parameter: None, allocations: Some(listed), .. } => {
            if let Some(bad) = listed.iter().find(|one| !one.is_valid()) {
                return Err(Problem::bad_request(format!(
                    "allocations: {} is not an allocation that an erasure has returned; nothing \
                     was erased",
                    json!(bad)
                )));
            }
            Whom::Visitors(listed)
        }
        _ => return Err(wrong()),
    };
    match (wanted.dry_run, wanted.list) {
        (true, None) => list(&service, whom).await,
        (true, Some(_)) => Err(wrong()),
        (false, list) => erase(&service, whom, list).await,
    }
}

/// Erases a caller's data.
pub(super) async fn caller(
    State(service): State<Service>,
    Path(number): Path<String>,
) -> Result<Json<Value>, Problem> {
    let whom = Whom::Caller(read(&number)?);
    erase(&service, whom, None).await
}

/// Removes a call for good, for example a test call.
pub(super) async fn call(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Problem::no_call(false));
    }
    let (log, waits, of) = (service.log().clone(), service.is_behind(), id.clone());
    match service.run(async move { log.remove(&of, now()).await }).await?? {
        Removed::Done => {
            tracing::info!(call = id, "removed a call from the call log");
            Ok(StatusCode::NO_CONTENT)
        }
        Removed::Unknown => Err(Problem::no_call(waits)),
        Removed::InProgress => {
            let detail = "the call has not ended yet: try again after its end or, if no end is \
                          reported, a day after its last report";
            Err(Problem::new(StatusCode::CONFLICT, detail))
        }
    }
}

fn read(number: &str) -> Result<Caller, Problem> {
    let caller = if number.starts_with('+') {
        called(number).map(Caller::E164)
    } else {
        Caller::of_address(number)
    };
    caller.ok_or_else(|| Problem::bad_request("caller: write e.g. +14155551234"))
}

/// Refuses if a report is still waiting to be written to the call log: it would be stored after the
/// erasure, and may contain the person's data.
fn is_complete(service: &Service) -> Result<(), Problem> {
    if service.is_behind() {
        let detail = "some reports of calls are not in the call log yet, and may concern this \
                      person; try again";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    Ok(())
}

async fn list(service: &Service, whom: Whom) -> Result<Json<Value>, Problem> {
    is_complete(service)?;
    let log = service.log().clone();
    let found = service.run(async move { log.to_erase(&whom).await }).await??;
    let list = found.list();
    Ok(Json(json!({ "calls": found.calls, "allocations": found.allocations, "list": list })))
}

async fn erase(
    service: &Service,
    whom: Whom,
    list: Option<String>,
) -> Result<Json<Value>, Problem> {
    is_complete(service)?;
    let log = service.log().clone();
    let erased = async move { log.erase_if(&whom, list.as_deref(), now()).await };
    let Some(Erased { calls, others, allocations }) = service.run(erased).await?? else {
        let detail = "nothing was erased: the allocations to erase are not those in the list; list \
                      them again";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    };
    // The log line does not identify the person.
    tracing::info!(
        calls,
        others,
        allocations = allocations.len(),
        "erased a person's data from the call log"
    );
    Ok(Json(json!({ "calls": calls, "others": others, "allocations": allocations })))
}
