//! A provider's request, as received.

use axum::http::{HeaderMap, Method};
use ringwell_core::Millis;

use super::report::Leg;
use crate::form::Form;

/// A request from a provider, as received.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The method: GET or POST.
    pub method: Method,
    /// The path and query, byte for byte.
    pub target: String,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The time at which the request arrived.
    pub received: Millis,
}

impl Incoming {
    /// The query string without its `?`.
    #[must_use]
    pub fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// The names and values in the query string.
    #[must_use]
    pub fn query_form(&self) -> Form {
        Form::read(self.query().as_bytes())
    }

    /// The names and values in the body. Empty if the body is not a form. Ignores the body of a GET
    /// request, because the signature does not cover it.
    #[must_use]
    pub fn form(&self) -> Form {
        if self.method == Method::POST && self.is_form() {
            Form::read(&self.body)
        } else {
            Form::default()
        }
    }

    /// Whether the query string or the form in the body has more fields than are read. The
    /// signature of such a request cannot be checked.
    #[must_use]
    pub fn has_too_many_fields(&self) -> bool {
        let is_form = self.method == Method::POST && self.is_form();
        Form::is_too_long(self.query().as_bytes()) || is_form && Form::is_too_long(&self.body)
    }

    pub(super) fn is_form(&self) -> bool {
        self.header("content-type").starts_with("application/x-www-form-urlencoded")
    }

    /// The value of a header field. Empty if the field is missing or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn leg(&self) -> Leg {
        Leg::read(&self.query_form())
    }
}
