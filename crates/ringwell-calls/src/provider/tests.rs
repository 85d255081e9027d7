//! The common parts of all providers' tests.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use ringwell_core::Millis;
use ringwell_directory::{CallProvider, UnknownNumber};

use super::*;

/// The time of all requests of these tests.
pub(crate) const NOW: Millis = Millis(1_700_000_000_000);

pub(crate) fn account(provider: CallProvider, public_url: &str, secret: &str) -> Account {
    Account {
        name: "main".to_owned(),
        provider,
        public_url: public_url.to_owned(),
        secrets: vec![secret.as_bytes().to_vec()],
        shared_keys: vec![secret.as_bytes().to_vec()],
        unknown_number: UnknownNumber::Unavailable,
        warnings: crate::Warnings::default(),
    }
}

pub(crate) fn request(method: Method, target: &str, body: &str) -> Incoming {
    let mut headers = HeaderMap::new();
    if body.starts_with('{') {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
    } else if !body.is_empty() {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert("content-type", form);
    }
    Incoming {
        method,
        target: target.to_owned(),
        headers,
        body: body.as_bytes().to_vec(),
        received: NOW,
    }
}

pub(crate) fn post(target: &str, body: &str) -> Incoming {
    request(Method::POST, target, body)
}

impl Incoming {
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }
}
