//! The public API under `/api/`: routes requests and answers them.

use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use ringwell_driver::batch::Terms;
use ringwell_driver::rows;
use ringwell_driver::{Moment, Platform, Traced};
use ringwell_wire::legacy::Format;
use ringwell_wire::{RequestError, Route, route};

use crate::conn::Watch;
use crate::request::{discard, has_chunks, read_body, trace, traced};
use crate::response::{AnswerBody, close, set_fields, whole};
use crate::shard::HttpShard;
use crate::timing::time_headers;
use crate::{bulk, coding, legacy, origin};

/// The header that a client sends to shorten the configured deadline. Its value is a whole number
/// of milliseconds.
static DEADLINE_HEADER: HeaderName = HeaderName::from_static("ringwell-deadline-ms");

/// The header that makes a request repeatable.
static RETRY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Answers a request under `/api/`. The head is passed by reference. If it were passed by value,
/// each function that receives it would keep two copies of it in the connection's memory.
pub(crate) async fn answer(
    thread: &Rc<HttpShard>,
    watch: &Watch,
    head: &Parts,
    body: Incoming,
) -> Response<AnswerBody> {
    let mut started = None;
    let span = trace(&head.method, &head.uri, &head.headers, "POST or GET /api");
    let traced = span.as_deref().map(traced);
    let allowed = origin::allowed(&thread.node.config.api, &head.headers);
    let has_chunks = has_chunks(&body);
    let mut body = Some(body);
    let mut response = match dispatch(thread, head, &mut body, traced, &mut started).await {
        Ok(response) => response,
        Err(error) => refuse(thread, &error),
    };
    if let Some(allowed) = allowed {
        origin::allow(&mut response, allowed);
    }
    let is_unread = match body {
        Some(body) => !discard(head, body).await,
        None => has_chunks && started.is_none(),
    };
    if is_unread {
        close(&mut response);
        watch.linger();
    }
    let took = started.map_or(Duration::ZERO, |at| thread.platform.moment().since(at));
    time_headers(&mut response, took);
    thread.stats.answered_after(took);
    if let Some(mut span) = span {
        span.status(response.status().as_u16());
    }
    response
}

async fn dispatch(
    thread: &Rc<HttpShard>,
    head: &Parts,
    body: &mut Option<Incoming>,
    traced: Option<Traced>,
    started: &mut Option<Moment>,
) -> Result<Response<AnswerBody>, RequestError> {
    let api = &thread.node.config.api;
    let route = route(head.uri.path())?;
    if head.method == Method::OPTIONS {
        return Ok(origin::options(route, api, &head.headers));
    }
    origin::check(api, &head.headers)?;
    match route {
        Route::Bulk => {
            allow(&head.method, &Method::POST, origin::methods(route))?;
            let body = body.take().ok_or(RequestError::Broken)?;
            let (body, mut room) = read_body(thread, body).await?;
            // The deadline of the rows is measured from the arrival of the body, so a client on a
            // slow line has as much time as any other client.
            let now = *started.insert(thread.platform.moment());
            let sent = body.len();
            let body = coding::decode(&head.headers, body, thread.node.config.limits.body_bytes)?;
            // The decoded form of a compressed body needs memory in addition to the compressed
            // form.
            if body.len() != sent && !room.take(body.len()) {
                thread.stats.bodies_refused.add(1);
                return Err(RequestError::NoRoom);
            }
            let digest = |key: &[u8]| rows::batch_digest(key, &body);
            let terms = Terms { traced, ..terms(thread, &head.headers, now, digest)? };
            let out = bulk::answer(thread, body, &terms).await?;
            let response = batch_answer(out);
            Ok(if api.gzip { coding::encode(&head.headers, response) } else { response })
        }
        Route::Allocate { pool, format } => {
            if head.method == Method::HEAD {
                // A HEAD request is answered like a GET request, but no number is allocated.
                return Ok(whole(StatusCode::OK, format.content_type(), Vec::new()));
            }
            allow(&head.method, &Method::GET, origin::methods(route))?;
            if thread.node.config.api.bulk_only {
                return Err(RequestError::OnlyBulk);
            }
            let now = *started.insert(thread.platform.moment());
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            let digest = |key: &[u8]| rows::single_digest(key, path, query);
            let terms = Terms { traced, ..terms(thread, &head.headers, now, digest)? };
            Ok(legacy::answer(thread, pool, query, format, &terms).await)
        }
    }
}

fn allow(method: &Method, wanted: &Method, name: &'static str) -> Result<(), RequestError> {
    if method == wanted { Ok(()) } else { Err(RequestError::Method { allow: name }) }
}

/// Returns the deadline and the digest of a request. `digest` computes the digest from the value of
/// [`RETRY_HEADER`].
fn terms(
    thread: &HttpShard,
    headers: &HeaderMap,
    started: Moment,
    digest: impl FnOnce(&[u8]) -> Result<Option<[u8; 16]>, RequestError>,
) -> Result<Terms, RequestError> {
    let configured = thread.node.config.deadline;
    let (mut wanted, mut key) = (None, None);
    for (name, value) in headers {
        if *name == RETRY_HEADER {
            key.get_or_insert(value);
        } else if *name == DEADLINE_HEADER {
            wanted.get_or_insert(value);
        }
    }
    let wanted = wanted
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map_or(configured, Duration::from_millis);
    let retry = key.map_or(Ok(None), |key| digest(key.as_bytes()))?;
    Ok(Terms { retry, deadline: started + wanted.min(configured), traced: None })
}

/// The header fields of an answer to a batch. Their times are placeholders, which [`time_headers`]
/// replaces in each answer. The map is copied as a whole, because inserting each field separately
/// takes twice as many instructions.
static BATCH_FIELDS: LazyLock<HeaderMap> = LazyLock::new(|| {
    let mut response = Response::new(AnswerBody::from(Vec::new()));
    time_headers(&mut response, Duration::ZERO);
    set_fields(&mut response, "application/json");
    std::mem::take(response.headers_mut())
});

/// Builds the answer to a batch.
fn batch_answer(body: Vec<u8>) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::from(body));
    response.headers_mut().clone_from(&BATCH_FIELDS);
    response
}

/// Builds the answer to a request that is refused as a whole.
pub(crate) fn refuse(thread: &HttpShard, error: &RequestError) -> Response<AnswerBody> {
    thread.stats.rejected.add(1);
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = whole(status, Format::Json.content_type(), error.body());
    if let RequestError::Method { allow } = error {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    if let Some(seconds) = error.retry_after_s() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if error.closes() {
        // The connection is closed, because the next bytes on it may be the rest of the refused
        // body.
        close(&mut response);
    }
    response
}
