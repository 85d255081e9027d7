//! The operators' paths on the client port: health, metrics, and the paths under `/v1/` that need
//! only the shards.
//!
//! Requests under `/v1/` need a token. Pushes from the main application are the exception: they are
//! signed instead.

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use ringwell_directory::TokenHashes;
use ringwell_node::{Handle, PushError, Unread};

use crate::problem::{NO_SUCH_PATH, Problem};
use crate::v1::{attribution, moves, overflow, release, shards};
use crate::{Dashboard, access, health, metrics};

/// The paths on this port, except those under `/api/` and those for web pages. The node mounts them
/// at the root of the port.
///
/// A token in `hashes` permits all requests to these paths. A token in `lookup` permits only
/// reading attributions and calls.
pub fn data_port(
    node: Handle,
    (hashes, lookup, of_database): (TokenHashes, TokenHashes, DatabaseTokens),
    dashboard: Dashboard,
) -> Router {
    let keys = Keys { hashes, lookup, of_database };
    let v1 = of_the_shards()
        .fallback(not_found_in_v1)
        .method_not_allowed_fallback(async || Problem::wrong_method())
        .layer(middleware::from_fn_with_state(keys, require_token));
    let router = Router::new()
        .route("/", get(first))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::get))
        .route("/v1/webhooks/ring_pools", post(push))
        .nest("/v1", v1)
        .fallback(not_found)
        .method_not_allowed_fallback(async || Problem::wrong_method())
        .layer(Extension(dashboard))
        .with_state(node);
    whole_bodies(router)
}

/// Wraps `router` so that requests whose body could not be read are refused before they reach it.
pub fn whole_bodies(router: Router) -> Router {
    router.layer(middleware::from_fn(refuse_unread))
}

/// The paths below `/v1` that need only the shards.
fn of_the_shards() -> Router<Handle> {
    Router::new()
        .route("/attributions", get(attribution::get))
        .route("/overflow", get(overflow::overflow))
        .route("/pools/{id}/state", get(overflow::state))
        .route("/releases", post(release::post))
        .route("/shards", get(shards::get))
        .route("/shards/moves", post(moves::post).delete(moves::delete))
}

/// The tokens in the directory's database, which permit only reading on this port. The directory's
/// thread keeps them current.
#[derive(Clone, Debug, Default)]
pub struct DatabaseTokens {
    /// Tokens that permit reading only attributions and calls.
    pub lookup: TokenHashes,
    /// Tokens with the role `admin`, which permit reading everything except callers' numbers. They
    /// are also in `lookup`.
    pub admin: TokenHashes,
}

/// The tokens that are accepted on this port.
#[derive(Clone)]
struct Keys {
    /// Tokens in the configuration that permit everything on this port.
    hashes: TokenHashes,
    /// Tokens in the configuration that permit only look-ups.
    lookup: TokenHashes,
    of_database: DatabaseTokens,
}

/// Admits a request that carries `Authorization: Bearer TOKEN`.
async fn require_token(State(keys): State<Keys>, request: Request, next: Next) -> Response {
    let token = access::bearer(request.headers());
    let Some(token) = token else { return unknown_token() };
    if keys.hashes.accept(token) {
        return next.run(request).await;
    }
    let is_admin = keys.of_database.admin.accept(token);
    if !is_admin && !keys.of_database.lookup.accept(token) && !keys.lookup.accept(token) {
        return unknown_token();
    }
    // A nested router receives only the part of the path after `/v1`.
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let path = request.uri().path();
    if reads && (is_admin || path == "/attributions" || reads_calls(path)) {
        return next.run(request).await;
    }
    let detail = if is_admin {
        "on this address, a token from the database permits only reading: use a token whose \
         SHA-256 is in management.token_sha256"
    } else {
        "on this address, this token can only read attributions and calls: use a token with the \
         role admin, or a token whose SHA-256 is in management.token_sha256"
    };
    Problem::new(StatusCode::FORBIDDEN, detail).into_response()
}

fn unknown_token() -> Response {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "send Authorization: Bearer TOKEN with a token whose SHA-256 is in \
         management.token_sha256; for read access, a token from the database is sufficient, unless \
         it is limited to one network",
    )
    .into_response()
}

/// Refuses a request whose body could not be read, whatever its path.
async fn refuse_unread(request: Request, next: Next) -> Response {
    let Some(Unread(error)) = request.extensions().get() else { return next.run(request).await };
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = Problem::new(status, error.to_string()).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Some(seconds) = error.retry_after_s() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Receives a push from the main application: a pool was changed or removed.
async fn push(
    State(node): State<Handle>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let pushed = node.push(&headers, body).await;
    pushed.map(|()| StatusCode::NO_CONTENT).map_err(|error| {
        let status = match error {
            PushError::NotConfigured => StatusCode::NOT_FOUND,
            PushError::Unsigned => StatusCode::UNAUTHORIZED,
            PushError::Malformed(_) => StatusCode::BAD_REQUEST,
            PushError::Refused(_) => StatusCode::CONFLICT,
        };
        Problem::new(status, error.to_string())
    })
}

/// The page for people who open this port in a browser. It does not reveal the management address,
/// because clients can read the page, too.
async fn first() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let text = "This is Ringwell. Programs request promo numbers here. The dashboard is at /ui/ on \
        the management address: run `ringwell ui` on the server to get a link.\n";
    (headers, text).into_response()
}

/// Whether `path`, given without its `/v1` prefix, refers to the list of calls or to one call.
fn reads_calls(path: &str) -> bool {
    path == "/calls" || path.strip_prefix("/calls/").is_some_and(|id| !id.contains('/'))
}

/// The first path segments below `/v1/` that `ringwell-calls` serves.
const PATHS_OF_CALLS: [&str; 9] = [
    "blocks",
    "callers",
    "calls",
    "erasures",
    "events",
    "freeswitch",
    "outcomes",
    "sip",
    "webhooks",
];

/// Handles unknown paths below `/v1/`, and call paths if the server does not accept calls.
async fn not_found_in_v1(uri: Uri) -> Problem {
    if uri.path().split('/').nth(1).is_some_and(|first| PATHS_OF_CALLS.contains(&first)) {
        return Problem::not_found(
            "this server does not accept calls: add [calls] to its configuration (docs/calls.md)",
        );
    }
    not_found().await
}

async fn not_found() -> Problem {
    Problem::not_found(format!(
        "{NO_SUCH_PATH}: docs/spec/api.md lists the endpoints, and the dashboard is on the \
         management address"
    ))
}
