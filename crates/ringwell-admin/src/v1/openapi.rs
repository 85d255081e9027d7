//! The OpenAPI description of `/v1/`, generated from the handlers.

use axum::Json;
use axum::http::StatusCode;
use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response};

use super::{access, lists, networks, numbers, pools, purchases, sites, sizing};
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
        networks::list, networks::show, networks::set, networks::nodes,
        networks::forget_node,
        purchases::offers, purchases::list, purchases::buy,
        sites::list, sites::show, sites::put, sites::remove,
        access::tokens, access::create, access::revoke, access::audit,
    ),
    components(schemas(problem::Body<'static>))
)]
struct Description;

/// Status codes of the errors that any path may return.
const ERRORS: [StatusCode; 9] = [
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::CONFLICT,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// Returns the OpenAPI document of `/v1/`. Adds the parts that all paths have in common: the token
/// and the errors.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = Description::openapi();
    for item in document.paths.paths.values_mut() {
        let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for operation in methods.into_iter().flatten() {
            complete(operation);
        }
    }
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("token", token);
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    document
}

/// Prefixes the id of an operation with the module's name, because function names are unique only
/// within a module. Adds the errors, which all have the same format.
fn complete(operation: &mut Operation) {
    let module = operation.tags.iter().flatten().next().cloned().unwrap_or_default();
    operation.operation_id = operation.operation_id.take().map(|name| format!("{module}_{name}"));
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    for status in ERRORS {
        let described = operation.responses.responses.entry(status.as_str().to_owned());
        let described = described.or_insert_with(|| RefOr::T(Response::new("")));
        if let RefOr::T(response) = described
            && response.content.is_empty()
        {
            let said = status.canonical_reason().unwrap_or_default();
            said.clone_into(&mut response.description);
            let kind = "application/problem+json".to_owned();
            response.content.insert(kind, RefOr::T(problem.clone()));
        }
    }
}

/// Serves the document without a token, because it contains no secrets.
pub(super) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}
