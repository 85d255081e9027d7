//! `/v1/webhooks`: manages the endpoints that receive events.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::time;
use super::problem::{Problem, read_json};
use crate::clock::moment;
use crate::clock::now;
use crate::log::EndpointRow;
use crate::service::Service;
use crate::webhook::{Made, NewEndpoint, Replay, Replayed, Rotated, TYPES, Which};

/// The maximum length of a key for `CallRail`'s signature scheme, in bytes.
const KEY_BYTES_MAX: usize = 200;

/// The routes. A request reaches them only after its token has been checked.
pub(super) fn routes() -> Router<Service> {
    Router::new()
        .route("/v1/webhooks", get(list).post(create))
        .route("/v1/webhooks/{id}", delete(remove))
        .route("/v1/webhooks/{id}/secret", post(rotate))
        .route("/v1/webhooks/{id}/enable", post(enable))
        .route("/v1/webhooks/{id}/test", post(test))
        .route("/v1/webhooks/{id}/replays", post(replay))
}

fn unknown() -> Problem {
    Problem::not_found("there is no webhook endpoint with this id")
}

fn known_types(types: Vec<String>) -> Result<Vec<String>, Problem> {
    match types.iter().find(|kind| !TYPES.contains(&kind.as_str())) {
        None => Ok(types),
        Some(_) => Err(Problem::bad_request(format!("types: some of {}", TYPES.join(", ")))),
    }
}

async fn list(State(service): State<Service>) -> Result<Json<Value>, Problem> {
    let log = service.log().clone();
    let all = service.run(async move { log.endpoints().await }).await??;
    Ok(Json(json!({ "endpoints": all.iter().map(shown).collect::<Vec<_>>() })))
}

fn shown(row: &EndpointRow) -> Value {
    json!({
        "id": row.id,
        "url": row.url,
        "types": row.types,
        "state": if row.is_enabled { "enabled" } else { "disabled" },
        "reason": row.reason,
        "failing_since": row.failing_since.map(moment),
        "created_at": moment(row.created_at),
        "pending": row.pending,
        "failed": row.failed,
        "held": row.held,
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    url: String,
    #[serde(default)]
    types: Vec<String>,
    company_key: Option<String>,
}

async fn create(
    State(service): State<Service>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let New { url, types, company_key } = read_json(&body)?;
    check(&service, url.clone()).await?;
    if !company_key.as_deref().is_none_or(is_key) {
        let fault = "company_key: must be 1 to 200 bytes without control characters";
        return Err(Problem::bad_request(fault));
    }
    let host = url.parse().ok().and_then(|url: Uri| url.host().map(str::to_owned));
    let new = NewEndpoint { url, types: known_types(types)?, company_key };
    let log = service.log().clone();
    let made = service.run(async move { log.create_endpoint(&new, now()).await }).await??;
    // The rest of the URL may contain a secret.
    tracing::info!(id = made.id, host, "a webhook endpoint was created through the API");
    Ok((StatusCode::CREATED, Json(secret_of(&made))))
}

fn is_key(text: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Refuses a URL that events cannot be sent to.
async fn check(service: &Service, url: String) -> Result<(), Problem> {
    let of = service.clone();
    let checked = service.run(async move { of.check_url(&url).await }).await?;
    checked.map_err(|reason| Problem::bad_request(format!("url: {reason}")))
}

fn secret_of(made: &Made) -> Value {
    json!({ "id": made.id, "secret": made.secret })
}

async fn remove(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (log, of) = (service.log().clone(), id.clone());
    if !service.run(async move { log.remove_endpoint(&of).await }).await?? {
        return Err(unknown());
    }
    tracing::info!(id, "a webhook endpoint was removed through the API");
    Ok(StatusCode::NO_CONTENT)
}

async fn rotate(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let log = service.log().clone();
    match service.run(async move { log.rotate_secret(&id, now()).await }).await?? {
        Rotated::Made(made) => {
            tracing::info!(id = made.id, "a webhook endpoint got a new secret through the API");
            Ok(Json(secret_of(&made)))
        }
        Rotated::Unknown => Err(unknown()),
        Rotated::TooSoon(until) => Err(Problem::new(
            StatusCode::CONFLICT,
            format!(
                "three secrets are already in use: the oldest expires at {}. Try again then. If a \
                secret has leaked, remove the endpoint and create another",
                moment(until)
            ),
        )),
    }
}

async fn enable(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (log, of) = (service.log().clone(), id.clone());
    let url = service.run(async move { log.endpoint_url(&of).await }).await??;
    check(&service, url.ok_or_else(unknown)?).await?;
    let (log, of) = (service.log().clone(), id.clone());
    if !service.run(async move { log.enable_endpoint(&of).await }).await?? {
        return Err(unknown());
    }
    tracing::info!(id, "a webhook endpoint was enabled through the API");
    Ok(StatusCode::NO_CONTENT)
}

async fn test(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let log = service.log().clone();
    let event = service.run(async move { log.test_endpoint(&id, now()).await }).await??;
    service.wake();
    Ok((StatusCode::ACCEPTED, Json(json!({ "event": event.ok_or_else(unknown)? }))))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Again {
    since: Option<String>,
    until: Option<String>,
    #[serde(default)]
    types: Vec<String>,
    event: Option<String>,
    only: Option<String>,
}

async fn replay(
    State(service): State<Service>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let Again { since, until, types, event, only } = read_json(&body)?;
    let which = match only.as_deref() {
        None | Some("failed") => Which::Failed,
        Some("all") => Which::All,
        Some(_) => return Err(Problem::bad_request("only: must be \"failed\" or \"all\"")),
    };
    let (since, until) = (time("since", since.as_ref())?, time("until", until.as_ref())?);
    let replay = Replay { since, until, types: known_types(types)?, event, which };
    let (log, of) = (service.log().clone(), id.clone());
    let replayed = service.run(async move { log.replay(&of, &replay, now()).await }).await??;
    service.wake();
    let Replayed { count, is_enabled } = replayed.ok_or_else(unknown)?;
    tracing::info!(id, count, "events are sent to a webhook endpoint again");
    Ok((StatusCode::ACCEPTED, Json(shown_replay(&id, count, is_enabled))))
}

fn shown_replay(id: &str, deliveries: u64, is_enabled: bool) -> Value {
    if is_enabled {
        return json!({ "deliveries": deliveries });
    }
    let note = format!(
        "the endpoint is still disabled: new events are held back until POST \
         /v1/webhooks/{id}/enable"
    );
    json!({ "deliveries": deliveries, "endpoint": "disabled", "note": note })
}

#[cfg(test)]
#[test]
fn the_answer_to_a_replay_says_that_the_endpoint_is_still_disabled() {
    assert_eq!(shown_replay("we_1", 3, true), json!({ "deliveries": 3 }));
    let answer = shown_replay("we_1", 3, false);
    assert_eq!((&answer["deliveries"], &answer["endpoint"]), (&json!(3), &json!("disabled")));
    assert!(answer["note"].as_str().unwrap().ends_with("POST /v1/webhooks/we_1/enable"));
}

#[cfg(test)]
#[test]
fn a_company_key_has_no_control_characters() {
    assert!(is_key("a key") && is_key(&"x".repeat(200)));
    for bad in ["", "\r\nx", "a\0", "\u{1b}", &"x".repeat(201)] {
        assert!(!is_key(bad), "{bad:?}");
    }
}
