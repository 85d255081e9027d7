//! Errors of the API for calls, as RFC 9457 problem details.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwell_store::{Repeated, is_nul};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::log::LogError;
use crate::parse_fault::described;
use crate::service::Stopped;

static FAILURES: Repeated = Repeated::new();

/// An error, with advice for the client.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The answer to a request about a call that is not in the log. Set `waits` if call reports
    /// were waiting to be written to the log just before the log was queried.
    pub(super) fn no_call(waits: bool) -> Self {
        if waits {
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, CALL_MAY_WAIT);
        }
        Self::not_found(NO_CALL)
    }
}

/// The error text for a call that is not in the log.
pub(super) const NO_CALL: &str = "there is no such call";

/// The error text for a call that is not in the log, if call reports are waiting to be written to
/// the log.
pub(super) const CALL_MAY_WAIT: &str = "some reports of calls are not in the call log yet, and one \
                                        of them may be about this call; try again";

/// Parses the JSON object in a request's body.
pub(super) fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // The parser would also accept a JSON array, and assign its elements to the fields of `T` in
    // order.
    if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Err(Problem::bad_request("body: must be a JSON object"));
    }
    if body.trim_ascii().is_empty() {
        return Err(Problem::bad_request("body: is empty: send a JSON object"));
    }
    let read = Json::from_bytes(body).map(|Json(read)| read);
    read.map_err(|error| Problem::bad_request(format!("body: {}", described(&error.body_text()))))
}

/// The parameters in a request's query.
pub(super) fn read_query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    let read = query.map(|Query(read)| read);
    read.map_err(|error| Problem::bad_request(described(&error.body_text())))
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Self {
        if matches!(&error, LogError::Database(error) if is_nul(error)) {
            return Self::bad_request("text must not contain the character NUL");
        }
        if let Some(left_out) = FAILURES.pass() {
            tracing::error!(%error, left_out, "the call log");
        }
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.for_clients())
    }
}

impl From<Stopped> for Problem {
    fn from(error: Stopped) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let status = self.status.as_u16();
        let body = json!({ "title": title, "status": status, "detail": self.detail });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
