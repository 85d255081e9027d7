//! The management token: everything under `/v1/` needs it.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Admin;
use super::problem::Problem;

/// Lets a request through that carries `Authorization: Bearer TOKEN`.
pub(crate) async fn require_token(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Response {
    let presented = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "))
        .map(|(_, token)| token);
    let hashes = &admin.node.config.management.token_sha256;
    let is_known = presented.is_some_and(|token| hashes.accept(token));
    if is_known {
        return next.run(request).await;
    }
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "send Authorization: Bearer TOKEN with a token whose SHA-256 is in management.token_sha256",
    )
    .into_response()
}
