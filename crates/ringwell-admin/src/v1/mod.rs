//! Additions to the published API, under `/v1/`.
//!
//! If a client's token is limited to one network, the client cannot find out whether a pool exists
//! in another network.

mod access;
pub(crate) mod attribution;
mod lists;
pub(crate) mod moves;
mod networks;
mod numbers;
mod openapi;
pub(crate) mod overflow;
mod pools;
mod purchases;
pub(crate) mod release;
pub(crate) mod shards;
mod shared;
mod sites;
mod sizing;

use axum::Router;
use axum::routing::{delete, get, post, put};

use crate::context::Context;
use crate::problem::Problem;
pub use openapi::openapi;

pub(crate) fn routes() -> Router<Context> {
    Router::new()
        .route("/v1/pools", get(pools::list))
        .route("/v1/pools.csv", get(lists::export).post(lists::import))
        .route("/v1/pools/{id}", get(pools::show))
        .route("/v1/pools/{id}/state", get(pools::state))
        .route("/v1/pools/{id}/sizing", get(sizing::show))
        .route("/v1/ring_pools/{id}/sizing", get(sizing::show_ring_pool))
        .route("/v1/pools/{id}/unused", post(sizing::give_back))
        .route("/v1/pools/{id}/numbers", get(pools::numbers).post(pools::add_numbers))
        .route("/v1/pools/{id}/overflow", put(pools::set_overflow))
        .route("/v1/pools/{id}/key", post(pools::rotate_key))
        .route("/v1/pools/{id}/key/previous", delete(pools::end_key_overlap))
        .route("/v1/numbers", get(numbers::list).post(numbers::add))
        .route("/v1/numbers/moves", post(numbers::move_to))
        .route("/v1/numbers/{number}", get(numbers::show))
        .route("/v1/networks", get(networks::list))
        .route("/v1/networks/{network}", get(networks::show).put(networks::set))
        .route("/v1/nodes", get(networks::nodes))
        .route("/v1/nodes/{name}", delete(networks::forget_node))
        .route("/v1/offers", get(purchases::offers))
        .route("/v1/purchases", get(purchases::list).post(purchases::buy))
        .route("/v1/sites", get(sites::list))
        .route("/v1/sites/{key}", get(sites::show).put(sites::put).delete(sites::remove))
        .route("/v1/tokens", get(access::tokens).post(access::create))
        .route("/v1/tokens/{id}", delete(access::revoke))
        .route("/v1/audit", get(access::audit))
        .route("/v1/openapi.json", get(openapi::show))
        .method_not_allowed_fallback(async || Problem::wrong_method())
}
