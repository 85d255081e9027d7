//! What operators and their programs ask: health, metrics, shards, attribution, release.
//!
//! Runs on axum beside the data path and talks to the shards by messages only. Everything under
//! `/v1/` needs the management token.

mod attribution;
mod auth;
mod health;
mod metrics;
mod moves;
mod pools;
mod problem;
mod release;
mod shards;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ringwell_wire::RequestError;
use tokio::sync::oneshot;

pub(crate) use self::problem::Problem;
use crate::application;
use crate::clock::Clock;
use crate::mesh::{Message, Peers};
use crate::node::Node;
use crate::stats::ShardStats;

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) node: Arc<Node>,
    pub(crate) peers: Peers,
    pub(crate) clock: Clock,
}

/// All paths outside of `/api/`.
pub(crate) fn router(node: Arc<Node>, peers: Peers, clock: Clock) -> Router {
    let admin = Admin { node, peers, clock };
    let v1 = Router::new()
        .route("/attributions", get(attribution::get))
        .route("/overflow", get(pools::overflow))
        .route("/pools/{id}/state", get(pools::state))
        .route("/releases", post(release::post))
        .route("/shards", get(shards::get))
        .route("/shards/moves", post(moves::post).delete(moves::delete))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(admin.clone(), auth::require_token));
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::get))
        .route("/v1/webhooks/ring_pools", post(application::webhook))
        .nest("/v1", v1)
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(admin)
}

/// Asks the shards of this node how they are.
async fn stats(admin: &Admin) -> Result<Vec<ShardStats>, Problem> {
    let mut shards = Vec::new();
    for shard in admin.node.shards() {
        let (reply, answer) = oneshot::channel();
        if !admin.peers.send(shard, Message::Stats(reply)) {
            return Err(Problem::unavailable("a shard is busy; try again"));
        }
        shards.push(answer.await.map_err(|_| Problem::unavailable("a shard has stopped"))?);
    }
    Ok(shards)
}

/// The answer to a request whose body could not be read.
pub(crate) fn unreadable(error: &RequestError) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = Problem::new(status, error.to_string()).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Some(seconds) = error.retry_after_s() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
