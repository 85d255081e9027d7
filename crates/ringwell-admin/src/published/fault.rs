//! Errors of the published API for ring pools, in that API's formats.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringwell_directory::PoolFault;
use ringwell_store::{Refusal, Scope, StoreError};
use serde_json::Value;

use super::members::Members;
use crate::access::Denied;
use crate::problem::Problem;

/// The published API's error text for an account that has reached its number limit.
pub(super) const LIMIT_REACHED: &str = "You've reached your promo number limit";

/// The reason why a request about ring pools fails.
#[derive(Debug)]
pub(super) enum Fault {
    /// Some fields are invalid. Each is listed with its error.
    Invalid(Vec<(String, String)>),
    /// A nested object has an unknown member.
    Nested(&'static str),
    /// The pool does not exist.
    NotFound { id: String, scope: Scope },
    /// The request as a whole cannot be parsed.
    Unreadable(&'static str),
    /// The request has no token, or an unknown one.
    Unknown,
    /// The token does not permit the request, for the given reason.
    NotAllowed(String),
    /// An internal error.
    Store(StoreError),
}

impl Fault {
    pub(super) fn field(name: &str, message: &str) -> Self {
        Self::Invalid(vec![(name.to_owned(), message.to_owned())])
    }
}

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown => Self::Unknown,
            Denied::Role { .. } | Denied::Network => Self::NotAllowed(denied.to_string()),
            Denied::Store(error) => Self::Store(error),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let StoreError::Refused(refusal) = error else { return Self::Store(error) };
        match refusal {
            Refusal::OverflowIsFixed => Self::field("allow_overflow", "can't be changed"),
            Refusal::IdTaken(_) => Self::field("id_from_network", "has already been taken"),
            Refusal::PoolCeiling(most) => {
                Self::field("max_pool_size", &format!("must be less than or equal to {most}"))
            }
            Refusal::NetworkCeiling { .. } => Self::field("max_pool_size", LIMIT_REACHED),
            Refusal::Pool(fault) => Self::field(field(fault), &fault.to_string()),
            Refusal::LongId(_) => Self::Unreadable("ids must be at most 512 bytes long"),
            Refusal::Nul => Self::Unreadable("text must not contain the character NUL"),
            other => Self::Store(other.into()),
        }
    }
}

/// The published API's name for the invalid field.
const fn field(fault: PoolFault) -> &'static str {
    match fault {
        PoolFault::Lifetime => "lifetime_seconds",
        PoolFault::NumberCount(_) | PoolFault::NumberTwice(_) => "max_pool_size",
        PoolFault::OverflowInRotation(_) => "allow_overflow",
        PoolFault::SameKey => "api_key",
        PoolFault::BaseUrl => "tracking_url",
        PoolFault::DestinationUrl => "destination_url",
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        match self {
            Self::Invalid(fields) => {
                let errors = Members::grouped(fields);
                envelope(StatusCode::FORBIDDEN, errors)
            }
            Self::Nested(of) => envelope(
                StatusCode::FORBIDDEN,
                Members(vec![
                    ("class".into(), "RecordInvalid".into()),
                    ("invalid_data".into(), format!("Invalid Key in {of}.").into()),
                ]),
            ),
            Self::NotFound { id, scope } => {
                let Scope { advertiser, campaign, .. } = scope;
                let text = format!(
                    "Could not find RingPool {id} for advertiser campaign {campaign} \
                     and advertiser {advertiser}"
                );
                data(StatusCode::NOT_FOUND, "RecordNotFound", text)
            }
            Self::Unreadable(text) => data(StatusCode::BAD_REQUEST, "InvalidInput", text),
            Self::Unknown => data(
                StatusCode::UNAUTHORIZED,
                "UnauthorizedOperation",
                "no valid API token: send it in the Authorization header or as oauth_token",
            ),
            Self::NotAllowed(reason) => data(
                StatusCode::FORBIDDEN,
                "UnauthorizedOperation",
                format!("the API token does not allow this: {reason}"),
            ),
            Self::Store(error) => failed(error),
        }
    }
}

fn data(status: StatusCode, class: &str, text: impl Into<Value>) -> Response {
    let errors =
        Members(vec![("invalid_data".into(), text.into()), ("class".into(), class.into())]);
    envelope(status, errors)
}

/// Answers a store error that is not a refusal, with the same status code as the paths under
/// `/v1/`.
fn failed(error: StoreError) -> Response {
    match error {
        StoreError::Database(_)
        | StoreError::Silent
        | StoreError::Busy
        | StoreError::ReadOnly
        | StoreError::Provider(_) => {
            let text = Problem::from(error).detail().to_owned();
            data(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", text)
        }
        other => internal(&other),
    }
}

/// Answers with a random number as the error's handle, and logs the cause of the error with this
/// handle.
fn internal(error: &StoreError) -> Response {
    let mut bytes = [0; 4];
    // If no random bytes are available, the handle is 0, and the error is still logged.
    let _ = getrandom::fill(&mut bytes);
    let handle = u32::from_ne_bytes(bytes);
    tracing::error!(%error, handle, "a management request failed");
    let text = format!("refer to error handle {handle}");
    data(StatusCode::INTERNAL_SERVER_ERROR, "InternalServiceError", text)
}

fn envelope(status: StatusCode, errors: Members) -> Response {
    #[derive(serde::Serialize)]
    struct Envelope {
        errors: Members,
    }
    (status, axum::Json(Envelope { errors })).into_response()
}

#[cfg(test)]
#[test]
fn a_database_that_does_not_answer_is_not_a_fault_of_the_server() {
    let status = |error: StoreError| Fault::from(error).into_response().status();
    assert_eq!(status(StoreError::Silent), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(status(StoreError::Damaged("x".to_owned())), StatusCode::INTERNAL_SERVER_ERROR);
}
