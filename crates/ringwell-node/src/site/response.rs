//! Answers to web pages.

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

use crate::response::{AnswerBody, whole};

/// Allows pages from `origin` to read the answer.
pub(super) fn allow(response: &mut Response<AnswerBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
}

/// Returns an empty answer, which makes the page keep its own numbers.
pub(super) fn nothing() -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::from(Vec::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn refused(status: u16, why: &str) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let body = serde_json::json!({ "status": status.as_u16(), "title": why });
    let mut response = whole(status, "application/problem+json", body.to_string().into_bytes());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if status == StatusCode::PAYLOAD_TOO_LARGE || status == StatusCode::REQUEST_TIMEOUT {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
