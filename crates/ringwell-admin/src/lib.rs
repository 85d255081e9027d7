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

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use ringwell_directory::TokenHash;
use ringwell_store::Store;

use access::Door;
use limit::Limit;
pub use live::{Later, Live, PoolLoad, PoolState};
use problem::Problem;
pub use v1::openapi;

/// The largest body: a list of 100,000 pools is about 10 MB.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

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
    match context.limit.take(context.live.now()) {
        Ok(()) => next.run(request).await,
        Err(seconds) => Problem::too_many(seconds).into_response(),
    }
}
