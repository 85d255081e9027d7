//! Errors under `/v1/`, as RFC 9457 problem details.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwell_node::{AskError, GiveError, HolderError};
use ringwell_store::{Refusal, Repeated, StoreError};
use serde::Serialize;

use crate::access::Denied;

static SILENT: Repeated = Repeated::new();

/// The beginning of the error text for an unknown path. Other errors with status 404 name the
/// missing object.
pub const NO_SUCH_PATH: &str = "this path does not exist";

/// An error, with advice for the client.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    retry_after: Option<u64>,
}

/// An error in the API's JSON format.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Body<'a> {
    /// The name of the HTTP status.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// A description of the error, and advice.
    detail: &'a str,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The text of the error, for other parts of the program.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn too_many(seconds: u64) -> Self {
        let detail = "too many management requests: wait, then try again";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, detail);
        Self { retry_after: Some(seconds), ..problem }
    }

    pub(crate) fn wrong_method() -> Self {
        let detail = "method not allowed on this path: use a method from the Allow header";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    }

    pub(crate) fn no_room() -> Self {
        let detail = "too many large requests are in progress: wait, then try again";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Self { retry_after: Some(1), ..problem }
    }

    pub(crate) fn misdirected() -> Self {
        let detail = "the host name in the request is not accepted: use localhost, or add this \
            name to management.hosts";
        Self::new(StatusCode::MISDIRECTED_REQUEST, detail)
    }

    /// The answer if the database does not respond in time. If the request was for a change, it is
    /// unknown whether the change took effect.
    pub(crate) fn too_late() -> Self {
        let detail = "the directory's database does not answer: if the request was for a change, \
            check whether the change took effect before you try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl From<AskError> for Problem {
    fn from(error: AskError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<HolderError> for Problem {
    fn from(error: HolderError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<GiveError> for Problem {
    fn from(error: GiveError) -> Self {
        let status = match error {
            GiveError::Unknown(_) => StatusCode::BAD_REQUEST,
            GiveError::Conflict(_) => StatusCode::CONFLICT,
            GiveError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown => Self::new(StatusCode::UNAUTHORIZED, denied.to_string()),
            Denied::Role { .. } | Denied::Network => {
                Self::new(StatusCode::FORBIDDEN, denied.to_string())
            }
            Denied::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(refusal) => {
                let status = match refusal {
                    Refusal::UnknownPool(_) | Refusal::UnknownNumber(_) | Refusal::NoProvider => {
                        StatusCode::NOT_FOUND
                    }
                    Refusal::Nul => StatusCode::BAD_REQUEST,
                    Refusal::PoolExists(_)
                    | Refusal::TwoKeys(_)
                    | Refusal::IdTaken(_)
                    | Refusal::NumberTaken { .. }
                    | Refusal::NumberUnusable(_)
                    | Refusal::PoolIdUnusable(_)
                    | Refusal::OverflowIsFixed
                    | Refusal::NotEmpty => StatusCode::CONFLICT,
                    Refusal::Pool(_)
                    | Refusal::PoolCeiling(_)
                    | Refusal::NetworkCeiling { .. }
                    | Refusal::SitesMax(_)
                    | Refusal::LongId(_)
                    | Refusal::Unfit(_) => StatusCode::UNPROCESSABLE_ENTITY,
                };
                Self::new(status, refusal.to_string())
            }
            error if error.is_busy() => {
                let detail = "another change of the directory, such as an import, is in progress: \
                    try again when it has ended";
                Self { retry_after: Some(5), ..Self::unavailable(detail) }
            }
            StoreError::Database(_)
            | StoreError::Silent
            | StoreError::Busy
            | StoreError::ReadOnly => {
                if let Some(left_out) = SILENT.pass() {
                    tracing::error!(%error, left_out, "a management request failed");
                }
                if error.is_read_only() {
                    return Self::unavailable(StoreError::ReadOnly.to_string());
                }
                let detail = if error.is_full() {
                    "the disk of the directory's database is full: free some space, then try again"
                } else if error.is_denied() {
                    "the directory's database user lacks a right that this request needs: \
                        grant the right, or connect as the owner of the tables"
                } else if error.is_answered() {
                    "the directory's database answers with an error: see the server's log"
                } else {
                    "the directory's database does not answer: try again later"
                };
                Self::unavailable(detail)
            }
            StoreError::Provider(error) => {
                tracing::error!(%error, "numbers cannot be bought");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            StoreError::NewerSchema { .. } | StoreError::Damaged(_) | StoreError::File(_) => {
                tracing::error!(%error, "the directory cannot be read");
                let detail = "the directory cannot be read: see the server's log";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
            }
        }
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
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
