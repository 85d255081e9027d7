//! The management API: ring pools as the published API has them, and under `/v1/` what that lacks.
//!
//! Owns paths, tokens, limits and the forms of answers. What a change means is the store's; what a
//! pool is doing now is asked through [`Live`]. Opens no socket: the server mounts [`router`].
//! Source: docs/spec/management.md.

mod access;
mod limit;
mod live;
mod numbering;
mod problem;
mod published;
mod v1;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use ringwell_directory::TokenHash;
use ringwell_store::Store;

use access::Door;
use limit::Limit;
pub use live::{Later, Live, PoolLoad, PoolState};
use problem::Problem;
pub use v1::openapi;

/// The largest body. It is read before anybody knows whose it is, as the published API allows a
/// token in it.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The largest list, read after its token: one of 100,000 pools is about 10 MB.
const LIST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// How long an answer may take: longer than a change waits for another one's end.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// A second more for so many bytes of a request, which may be a list that takes long: fifty lines,
/// of which a server that does nothing else takes a thousand.
const BYTES_A_SECOND: u64 = 2_000;

/// What the management API needs.
pub struct Management {
    /// The directory.
    pub store: Store,
    /// The server.
    pub live: Arc<dyn Live>,
    /// Hashes of tokens that may do everything: those of the configuration file.
    pub token_sha256: Vec<TokenHash>,
    /// Requests a second that are answered; what comes beyond gets a 429.
    pub requests_per_second: u32,
}

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) live: Arc<dyn Live>,
    pub(crate) door: Door,
    limit: Arc<Limit>,
}

/// The management API, for the server to mount at its root.
pub fn router(management: Management) -> Router {
    let Management { store, live, token_sha256, requests_per_second } = management;
    let door = Door::new(store.clone(), token_sha256);
    let limit = Arc::new(Limit::new(requests_per_second));
    let context = Context { store, live, door, limit };
    published::routes()
        .merge(v1::routes())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(context.clone(), limited))
        .with_state(context)
}

async fn limited(State(context): State<Context>, request: Request, next: Next) -> Response {
    if let Err(seconds) = context.limit.take(context.live.now()) {
        return Problem::too_many(seconds).into_response();
    }
    // A database that hangs would keep its clients for ever, and what they ask with them.
    let answered = tokio::time::timeout(longest(&request), next.run(request)).await;
    answered.unwrap_or_else(|_| Problem::too_late().into_response())
}

/// How long an answer to `request` may take.
fn longest(request: &Request) -> Duration {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let bytes = length.and_then(|length| length.to_str().ok()?.parse().ok());
    // What comes in chunks of unknown length is given no more time for it.
    let bytes: u64 = bytes.unwrap_or(0).min(LIST_BYTES_MAX as u64);
    ANSWER_MAX + Duration::from_secs(bytes / BYTES_A_SECOND)
}
