//! The management API: ring pools according to the published API, additions under `/v1/`, and the
//! dashboard.
//!
//! Owns the paths, the limits, the token checks and the formats of answers. The store defines the
//! effect of each change. [`RunningServer`] supplies the current state of pools. This crate opens
//! no sockets; the server mounts [`router`]. Source: docs/spec/management.md.

mod access;
mod context;
mod dashboard;
mod data_port;
mod gate;
mod health;
mod holders;
mod limit;
mod loads;
mod metrics;
mod numbering;
mod problem;
mod published;
mod running_server;
mod v1;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use ringwell_directory::TokenHashes;
use ringwell_store::Store;

use access::Door;
use context::Context;
pub use dashboard::Dashboard;
pub use data_port::{DatabaseTokens, data_port, whole_bodies};
pub use gate::Recognized;
use gate::{Gate, LIST_BYTES_MAX};
pub use health::COMMIT;
pub use holders::{holders, keep_alives};
pub use loads::SharedLoads;
pub use problem::NO_SUCH_PATH;
use problem::Problem;
use ringwell_calls::clock::now;
pub use running_server::{Later, PoolLoad, PoolState, RunningServer};
pub use v1::openapi;

/// The maximum size of a body. A body is read before its sender is authenticated, because the
/// published API allows the token in the body.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The time limit for an answer. It is longer than the time that a change waits for another change
/// to end.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// The number of body bytes that extend the time limit by one second. The body may be a list that
/// takes a long time to process: this many bytes contain about 50 lines, and an otherwise idle
/// server processes 1,000 lines a second.
const BYTES_A_SECOND: u64 = 2_000;

/// The settings that all services on the management address share.
pub struct Entrance {
    /// Hashes of the tokens in the configuration file, which have every permission.
    pub token_sha256: TokenHashes,
    /// The maximum number of requests per second that carry a valid token. All other requests share
    /// a limit of half this number. Requests that exceed their limit get status 429.
    pub requests_per_second: u32,
    /// The host names that are accepted in addition to those of this machine. `None` accepts any
    /// host name.
    pub hosts: Option<Vec<String>>,
    /// The maximum memory, in bytes, for the bodies of all requests in progress. A value below the
    /// maximum size of a list of pools is raised to that size.
    pub bodies_bytes: usize,
    /// The dashboard to serve, if any.
    pub dashboard: Option<Dashboard>,
}

/// The parts that the management API needs in addition to its [`Entrance`].
#[derive(Clone)]
pub struct Management {
    /// The directory.
    pub store: Store,
    /// The running server.
    pub live: Arc<dyn RunningServer>,
}

/// The checks that every request must pass.
#[derive(Clone)]
struct Guard {
    door: Door,
    gate: Arc<Gate>,
    dashboard: Option<Dashboard>,
}

/// The routes of the dashboard and, if `management` is given, of the management API. The server
/// mounts them at the root of the management address.
pub fn router(entrance: Entrance, management: Option<Management>) -> Router {
    let store = management.as_ref().map(|management| management.store.clone());
    let door = Door::new(store, entrance.token_sha256.clone());
    let (mut router, mut context) = (Router::new(), None);
    if let Some(Management { store, live }) = management {
        let shared = Context { store, live, door: door.clone() };
        context = Some(shared.clone());
        router = router.merge(published::routes().merge(v1::routes()).with_state(shared));
    }
    if let Some(dashboard) = &entrance.dashboard {
        router = router.merge(dashboard.routes(door.clone(), context));
    }
    guarded(router, door, entrance)
}

/// Only the routes of the published API for ring pools. The server mounts them on the port for
/// clients.
pub fn ring_pools(entrance: Entrance, management: Management) -> Router {
    let Management { store, live } = management;
    let door = Door::new(Some(store.clone()), entrance.token_sha256.clone());
    let context = Context { store, live, door: door.clone() };
    guarded(published::routes().with_state(context), door, entrance)
}

fn guarded(router: Router, door: Door, entrance: Entrance) -> Router {
    let Entrance { requests_per_second, hosts, bodies_bytes, dashboard, .. } = entrance;
    let gate = Gate::new(hosts, requests_per_second, bodies_bytes.max(LIST_BYTES_MAX));
    let guard = Guard { door, gate: Arc::new(gate), dashboard };
    router
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(guard, pass))
}

async fn pass(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let has_chunks = request.headers().contains_key(header::TRANSFER_ENCODING);
    let mut response = admit(&guard, request, next).await;
    let headers = response.headers_mut();
    // The dashboard's assets set their own cache lifetime.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if has_chunks {
        // Part of a chunked body may not have been read; the start of the next request would then
        // be ambiguous.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn admit(guard: &Guard, request: Request, next: Next) -> Response {
    if !guard.gate.is_meant(&request) {
        return Problem::misdirected().into_response();
    }
    let token = access::in_head(&request);
    let has_session = guard.dashboard.as_ref().is_some_and(|it| it.recognizes(request.headers()));
    let is_known = has_session || guard.door.recognizes(token.as_deref()).await;
    if let Some(Recognized(flag)) = request.extensions().get().filter(|_| is_known) {
        flag.store(true, Ordering::Relaxed);
    }
    if let Err(seconds) = guard.gate.take(is_known, now()) {
        return Problem::too_many(seconds).into_response();
    }
    let longest = longest(&request);
    let (request, room) = guard.gate.meter(request);
    // Without this limit, requests would accumulate while the database does not respond.
    let answered = tokio::time::timeout(longest, next.run(request)).await;
    if room.is_over() {
        return Problem::no_room().into_response();
    }
    answered.unwrap_or_else(|_| Problem::too_late().into_response())
}

/// The time within which `request` must be answered.
fn longest(request: &Request) -> Duration {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let bytes = length.and_then(|length| length.to_str().ok()?.parse().ok());
    // A chunked body, whose length is unknown, gets no additional time.
    let bytes: u64 = bytes.unwrap_or(0).min(LIST_BYTES_MAX as u64);
    ANSWER_MAX + Duration::from_secs(bytes / BYTES_A_SECOND)
}
