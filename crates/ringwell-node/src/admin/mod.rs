//! What operators and their programs ask: health, metrics, attribution, release.
//!
//! Runs on axum beside the data path and talks to the shards by messages only. Everything under
//! `/v1/` needs the management token.

mod attribution;
mod auth;
mod health;
mod metrics;
mod problem;
mod release;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ringwell_wire::RequestError;

use self::problem::Problem;
use crate::mesh::Peers;
use crate::node::Node;

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) node: Arc<Node>,
    pub(crate) peers: Peers,
}

/// All paths outside of `/api/`.
pub(crate) fn router(node: Arc<Node>, peers: Peers) -> Router {
    let admin = Admin { node, peers };
    let v1 = Router::new()
        .route("/attributions", get(attribution::get))
        .route("/releases", post(release::post))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(admin.clone(), auth::require_token));
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::get))
        .nest("/v1", v1)
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(admin)
}

/// The answer to a request whose body could not be read.
pub(crate) fn unreadable(error: &RequestError) -> Response {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = Problem::new(status, error.to_string()).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
