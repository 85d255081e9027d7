//! Errors of the management API, as RFC 9457 problem details.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// One error, in words that say what to do. Contains nothing that the client sent.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

#[derive(Serialize)]
struct Body<'a> {
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = axum::Json(Body {
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
        });
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

pub(crate) async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing here; the README lists the endpoints")
}

pub(crate) async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path takes another method; the Allow header names it",
    )
}
