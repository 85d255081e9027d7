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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Wanted {
    Caller(String),
    Call(String),
    Parameter { name: String, value: String },
    Allocations(Vec<ErasedAllocation>),
}

/// Erases the data of a caller, of a visitor, or of both the caller and the visitor of one call.
pub(super) async fn post(
    State(service): State<Service>,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|_| {
        Problem::bad_request(
            "body: must be one of {\"caller\": \"+14155551234\"}, {\"call\": \"ID\"}, \
             {\"parameter\": {\"name\": \"gclid\", \"value\": \"VALUE\"}} and {\"allocations\": \
             [the allocations that an earlier erasure has returned]}",
        )
    })?;
    let whom = match wanted {
        Wanted::Caller(number) => Whom::Caller(read(&number)?),
        Wanted::Call(id) => Whom::Call(id),
        Wanted::Parameter { name, value } => Whom::Parameter { name, value },
        Wanted::Allocations(listed) => Whom::Visitors(listed),
    };
    erase(&service, whom).await
}

/// Erases a caller's data.
pub(super) async fn caller(
    State(service): State<Service>,
    Path(number): Path<String>,
) -> Result<Json<Value>, Problem> {
    let whom = Whom::Caller(read(&number)?);
    erase(&service, whom).await
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

async fn erase(service: &Service, whom: Whom) -> Result<Json<Value>, Problem> {
    if service.is_behind() {
        // A report that is still waiting to be written to the call log would be stored after the
        // erasure, and may contain the person's data.
        let detail = "some reports of calls are not in the call log yet, and may concern this \
                      person; try again";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let log = service.log().clone();
    let Erased { calls, others, allocations } =
        service.run(async move { log.erase(&whom, now()).await }).await??;
    // The log line does not identify the person.
    tracing::info!(
        calls,
        others,
        allocations = allocations.len(),
        "erased a person's data from the call log"
    );
    Ok(Json(json!({ "calls": calls, "others": others, "allocations": allocations })))
}
