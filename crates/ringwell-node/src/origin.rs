//! Controls which web pages may use the public API: only pages from origins that the configuration
//! names.
//!
//! Browsers send a simple cross-origin request without asking for permission. A page needs
//! permission only to read the answer. A request from an origin that is not allowed is therefore
//! refused before it is processed. Otherwise, it would use up a number. Clients that are not
//! browsers send no `Origin`.

use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use ringwell_config::Api;
use ringwell_wire::{RequestError, Route};

use crate::fields::values;
use crate::response::AnswerBody;

/// The header fields that a page may send.
const FIELDS: HeaderValue =
    HeaderValue::from_static("content-type, idempotency-key, ringwell-deadline-ms");
/// The time in seconds for which a browser may cache the permission.
const REMEMBERED: HeaderValue = HeaderValue::from_static("7200");

/// Returns the methods that a path accepts.
pub(crate) const fn methods(route: Route<'_>) -> &'static str {
    match route {
        Route::Bulk => "POST, OPTIONS",
        Route::Allocate { .. } => "GET, HEAD, OPTIONS",
    }
}

/// Returns the request's origin, if it is allowed.
pub(crate) fn allowed(api: &Api, headers: &HeaderMap) -> Option<HeaderValue> {
    // If no origins are configured, the answer allows none.
    let origin = (!api.origins.is_empty()).then(|| values(headers, &header::ORIGIN).next())??;
    is_named(api, origin).then(|| origin.clone())
}

/// Refuses a request from an origin that is not allowed.
///
/// # Errors
/// [`RequestError::Origin`].
pub(crate) fn check(api: &Api, headers: &HeaderMap) -> Result<(), RequestError> {
    let is_allowed = values(headers, &header::ORIGIN).all(|origin| is_named(api, origin));
    if is_allowed { Ok(()) } else { Err(RequestError::Origin) }
}

fn is_named(api: &Api, origin: &HeaderValue) -> bool {
    api.origins.iter().any(|named| named.as_bytes() == origin.as_bytes())
}

/// Answers an `OPTIONS` request. Browsers send it to ask for permission; other clients send it to
/// get the list of accepted methods.
pub(crate) fn options(route: Route<'_>, api: &Api, headers: &HeaderMap) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::from(Vec::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let methods = HeaderValue::from_static(methods(route));
    let fields = response.headers_mut();
    fields.insert(header::ALLOW, methods.clone());
    if allowed(api, headers).is_some() {
        fields.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        fields.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, FIELDS);
        fields.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
    }
    response
}

/// Allows a page from `origin` to read the answer.
pub(crate) fn allow(response: &mut Response<AnswerBody>, origin: HeaderValue) {
    let fields = response.headers_mut();
    fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    fields.append(header::VARY, HeaderValue::from_static("origin"));
}
