//! The description of `/v1/`, made from the handlers themselves.

use axum::Json;
use utoipa::OpenApi;

use super::{access, lists, networks, numbers, pools, purchases, sizing};
use crate::problem;

#[derive(OpenApi)]
#[openapi(
    info(title = "Ringwell management", description = "Ring pools, numbers, tokens.",
        license(name = "Apache-2.0")),
    paths(
        pools::list, pools::show, pools::state, pools::numbers, pools::add_numbers,
        pools::set_overflow, pools::rotate_key, pools::end_key_overlap,
        sizing::show, sizing::show_ring_pool, sizing::give_back,
        lists::export, lists::import,
        numbers::list, numbers::show, numbers::add, numbers::move_to,
        networks::list, networks::show, networks::set,
        purchases::offers, purchases::list, purchases::buy,
        access::tokens, access::create, access::revoke, access::audit,
    ),
    components(schemas(problem::Body<'static>))
)]
struct Description;

/// The OpenAPI document of `/v1/`.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// Shows it to everybody: it has no secrets.
pub(super) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}
