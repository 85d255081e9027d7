//! `/v1/calls` and `/v1/events`: lists of calls and events, for operators and their programs.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router, extract::Query};
use ringwell_config::credentials;
use ringwell_core::Millis;
use ringwell_directory::{TokenHash, TokenHashes};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::outcomes;
use super::page::{PAGE, time};
use super::problem::{Problem, read_query};
use super::{blocks, endpoints, erasures, sip};
use crate::attribution::{Attributed, KeepAlives};
use crate::call::{CallState, Outcome};
use crate::caller::Caller;
use crate::clock::moment;
use crate::digest::from_base64;
use crate::log::{CallDetail, CallFilter, Cursor, EventRow};
use crate::number::asked;
use crate::service::Service;

/// The tokens that [`routes`] accepts.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Tokens that grant full access, including callers' numbers.
    pub management: TokenHashes,
    /// Tokens that permit only reading calls, with callers' numbers masked.
    pub lookup: Arc<[TokenHashes]>,
}

/// Whether the answer to a request may show callers' numbers, results and webhooks. True if the request has a management
/// token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeesCallers(bool);

/// The routes for calls under `/v1/`. The service's runtime answers the requests.
pub fn routes(service: Service, tokens: Tokens) -> Router {
    Router::new()
        .route("/v1/calls", get(list))
        .route("/v1/calls/{id}", get(one).delete(erasures::call))
        .route("/v1/calls/{id}/outcomes", post(outcomes::post))
        .route("/v1/calls/{id}/outcomes/{external_id}", delete(outcomes::remove))
        .route("/v1/outcomes", get(outcomes::list).post(outcomes::upload))
        .route("/v1/events", get(events))
        .route("/v1/erasures", post(erasures::post))
        .route("/v1/callers/{number}", delete(erasures::caller))
        .merge(blocks::routes())
        .merge(endpoints::routes())
        .merge(sip::routes())
        .layer(middleware::from_fn_with_state(tokens, require_token))
        .with_state(service)
}

async fn require_token(State(tokens): State<Tokens>, mut request: Request, next: Next) -> Response {
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(token_of);
    let is_of =
        |hashes: &TokenHashes| token.as_ref().is_some_and(|token| hashes.accept(token.as_bytes()));
    let sees_callers = is_of(&tokens.management);
    if !sees_callers && !tokens.lookup.iter().any(is_of) {
        return unknown_token(request.uri().path());
    }
    if !sees_callers && !reads_calls(&request) {
        let detail = "this token can only read attributions and calls: use a management token";
        return Problem::new(StatusCode::FORBIDDEN, detail).into_response();
    }
    request.extensions_mut().insert(SeesCallers(sees_callers));
    // Log lines about changes name the token that requested the change.
    let author = token.map(|token| TokenHash::of(token.as_bytes()).author());
    next.run(request).instrument(tracing::info_span!("api", author)).await
}

/// The answer to a request with an unknown token. On the paths for switches, it contains a
/// challenge for Basic authentication: switches built on libcurl send the user name and password
/// from a URL only after such a challenge. On other paths, the challenge is left out, because it
/// would make browsers open a login dialog.
fn unknown_token(path: &str) -> Response {
    let mut response = Problem::new(
        StatusCode::UNAUTHORIZED,
        "send Authorization: Bearer TOKEN with a token whose SHA-256 is in \
         management.token_sha256",
    )
    .into_response();
    if super::sip::PATHS.contains(&path) {
        let basic = HeaderValue::from_static("Basic realm=\"ringwell\"");
        response.headers_mut().append(header::WWW_AUTHENTICATE, basic);
    }
    response
}

/// Whether the request is a `GET` or `HEAD` of `/v1/calls` or of a path below it.
fn reads_calls(request: &Request) -> bool {
    let path = request.uri().path().strip_prefix("/v1/calls");
    [Method::GET, Method::HEAD].contains(request.method())
        && path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The token in `Bearer TOKEN`, or the password of Basic authentication. Some switches support only
/// Basic authentication.
pub(super) fn token_of(value: &str) -> Option<String> {
    if let Some(token) = credentials(value, "Bearer") {
        return Some(token.to_owned());
    }
    let pair = from_base64(credentials(value, "Basic")?)?;
    let pair = String::from_utf8(pair).ok()?;
    pair.split_once(':').map(|(_, password)| password.to_owned())
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    since: Option<String>,
    until: Option<String>,
    pool: Option<u64>,
    number: Option<String>,
    caller: Option<String>,
    state: Option<String>,
    outcome: Option<String>,
    attributed: Option<String>,
    blocked: Option<bool>,
    robocall: Option<u8>,
    after: Option<String>,
    limit: Option<u32>,
}

impl Wanted {
    fn filter(&self) -> Result<CallFilter, Problem> {
        let number = |name: &str, text: &String| {
            asked(text).ok_or_else(|| {
                Problem::bad_request(format!(
                    "{name}: must be a number with +, e.g. \
                    +18005550100"
                ))
            })
        };
        let caller = self.caller.as_ref().map(|text| match Caller::of_address(text) {
            Some(address) => Ok(address),
            None => number("caller", text).map(Caller::E164),
        });
        Ok(CallFilter {
            since: time("since", self.since.as_ref())?,
            until: time("until", self.until.as_ref())?,
            pool: self.pool,
            number: self.number.as_ref().map(|text| number("number", text)).transpose()?,
            caller: caller.transpose()?,
            state: named(self.state.as_ref(), "state", &CALL_STATES, CallState::name)?,
            outcome: named(self.outcome.as_ref(), "outcome", &OUTCOMES, Outcome::name)?,
            attributed: named(
                self.attributed.as_ref(),
                "attributed",
                &ATTRIBUTED,
                Attributed::name,
            )?,
            blocked: self.blocked,
            robocall: self.robocall,
        })
    }
}

const CALL_STATES: [CallState; 3] = [CallState::Ringing, CallState::Answered, CallState::Ended];
const OUTCOMES: [Outcome; 6] = [
    Outcome::Answered,
    Outcome::Busy,
    Outcome::NoAnswer,
    Outcome::Rejected,
    Outcome::CallerGaveUp,
    Outcome::Failed,
];
const ATTRIBUTED: [Attributed; 5] = [
    Attributed::Pending,
    Attributed::Allocated,
    Attributed::Overflow,
    Attributed::None,
    Attributed::Unknown,
];

fn named<T: Copy>(
    text: Option<&String>,
    field: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<Option<T>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let found = all.iter().copied().find(|it| name(*it) == text);
    found.map(Some).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|it| name(*it)).collect();
        Problem::bad_request(format!("{field}: one of {}", names.join(", ")))
    })
}

async fn list(
    State(service): State<Service>,
    Extension(sees): Extension<SeesCallers>,
    wanted: Result<Query<Wanted>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let wanted = read_query(wanted)?;
    let filter = wanted.filter()?;
    if filter.caller.is_some() && !sees.0 {
        let detail = "caller: this filter requires a token that gives access to callers' numbers: \
            use such a token, or omit the filter";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let cursor = |text: &String| {
        Cursor::parse(text).ok_or_else(|| {
            Problem::bad_request("after: must be the value of \"next\" in the previous answer")
        })
    };
    let after = wanted.after.as_ref().map(cursor).transpose()?;
    let most = wanted.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1);
    let log = service.log().clone();
    let calls =
        service.run(async move { log.calls(&filter, after.as_ref(), most).await }).await??;
    let is_full = calls.len() == usize::try_from(most).unwrap_or(usize::MAX);
    let next = calls.last().filter(|_| is_full).map(|call| Cursor::after(call).to_string());
    let calls: Vec<Value> =
        calls.iter().map(|call| for_reader(call.to_json(), &call.caller, sees)).collect();
    Ok(Json(json!({ "calls": calls, "next": next })))
}

async fn one(
    State(service): State<Service>,
    Extension(sees): Extension<SeesCallers>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    // A call's id contains only visible ASCII characters, and the database may refuse other bytes.
    if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Problem::no_call(false));
    }
    let (log, waits) = (service.log().clone(), service.is_behind());
    let found = service.run(async move { log.call(&id).await }).await??;
    let detail = found.ok_or_else(|| Problem::no_call(waits))?;
    let kept = service.keep_alives(&detail.call).await;
    Ok(Json(for_reader(shown(&detail, kept.as_ref(), sees), &detail.call.caller, sees)))
}

/// Masks the caller in `call` if the answer must not show callers' numbers.
fn for_reader(mut call: Value, caller: &Caller, sees: SeesCallers) -> Value {
    if !sees.0
        && *caller != Caller::Withheld
        && let Some(members) = call.as_object_mut()
    {
        members.insert("from".to_owned(), json!({ "masked": caller.to_string() }));
    }
    call
}

/// The JSON of a call with its timeline: the allocation, the visitor's tap and keep-alives, the
/// provider's reports, the outcomes, and the webhooks that were sent. Look-up tokens give no access
/// to results, webhooks and events, so these are left out for such a token.
fn shown(detail: &CallDetail, kept: Option<&KeepAlives>, sees: SeesCallers) -> Value {
    let mut timeline: Vec<(Millis, Value)> = Vec::new();
    if let Some(allocation) = &detail.call.attribution.allocation {
        let at = Millis(allocation.allocated_ms);
        timeline.push((at, json!({ "at": moment(at), "kind": "allocated" })));
        let tapped = allocation.tapped_ms.map(Millis);
        let tapped = tapped.map(|at| (at, json!({ "at": moment(at), "kind": "tapped" })));
        timeline.extend(tapped);
    }
    for at in kept.iter().flat_map(|kept| &kept.at) {
        timeline.push((*at, json!({ "at": moment(*at), "kind": "keep_alive" })));
    }
    for row in &detail.timeline {
        let value = json!({
            "at": moment(row.at),
            "received_at": moment(row.received),
            "kind": row.kind,
            "outcome": row.outcome,
        });
        timeline.push((row.at, value));
    }
    for row in detail.outcomes.iter().filter(|_| sees.0) {
        let value = json!({
            "at": moment(row.at), "kind": "conversion", "type": row.kind, "value": row.value,
            "currency": row.currency, "external_id": row.external_id,
        });
        timeline.push((row.at, value));
    }
    for row in detail.deliveries.iter().filter(|row| sees.0 && row.attempts > 0) {
        let at = row.last_at.unwrap_or(row.next_at);
        let value = json!({
            "at": moment(at), "kind": "webhook", "endpoint": row.endpoint, "event": row.event,
            "state": row.state, "attempts": row.attempts, "status": row.last_status,
            "reason": row.last_error,
        });
        timeline.push((at, value));
    }
    timeline.sort_by_key(|(at, _)| *at);
    let mut call = detail.call.to_json();
    if let Some(members) = call.as_object_mut() {
        let lines: Vec<Value> = timeline.into_iter().map(|(_, line)| line).collect();
        members.insert("timeline".to_owned(), Value::Array(lines));
        let kept = kept.map(|kept| json!({ "count": kept.at.len(), "more": kept.is_part }));
        members.insert("keep_alives".to_owned(), json!(kept));
        if sees.0 {
            let event = |it: &EventRow| json!({ "id": it.id, "type": it.kind });
            let events: Vec<Value> = detail.events.iter().map(event).collect();
            members.insert("events".to_owned(), Value::Array(events));
        }
    }
    call
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsWanted {
    #[serde(default)]
    after: u64,
    limit: Option<u32>,
}

async fn events(
    State(service): State<Service>,
    wanted: Result<Query<EventsWanted>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let wanted = read_query(wanted)?;
    let most = wanted.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1);
    let log = service.log().clone();
    let events = service.run(async move { log.events(wanted.after, most).await }).await??;
    let next = events.last().map_or(wanted.after, |event| event.place);
    let events: Vec<Value> = events.iter().map(shown_event).collect();
    Ok(Json(json!({ "events": events, "next": next })))
}

fn shown_event(event: &EventRow) -> Value {
    // Parsing succeeds, because this program wrote the body.
    let mut value: Value = serde_json::from_str(&event.body).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.insert("id".to_owned(), json!(event.id));
        members.insert("cursor".to_owned(), json!(event.place));
    }
    value
}

#[cfg(test)]
#[test]
fn a_look_up_token_may_send_head_wherever_it_may_send_get() {
    let is_read = |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).body(axum::body::Body::empty());
        reads_calls(&request.unwrap())
    };
    for (path, wanted) in [
        ("/v1/calls", true),
        ("/v1/calls/c_1", true),
        ("/v1/calls?limit=1", true),
        ("/v1/callers/+1", false),
        ("/v1/events", false),
    ] {
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(is_read(method, path), wanted, "{path}");
        }
        assert!(!is_read(Method::DELETE, path), "{path}");
    }
}
