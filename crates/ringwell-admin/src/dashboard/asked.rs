//! The data that a page is rendered from, and the result: the page's contents or an error.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use percent_encoding::percent_decode_str;
use ringwell_calls::Service;
use ringwell_config::Site;
use ringwell_node::Handle;
use ringwell_store::{Role, Store};

use super::layout::{Frame, page};
use super::sample::Sampler;
use super::session::Session;
use super::table::Table;
use crate::context::Context;

/// The maximum length of a query parameter, in characters. No useful input is longer. A longer
/// parameter is truncated.
const QUERY_TEXT_MAX: usize = 100;

/// The figures that change while a page is open, each with its name.
pub(super) type Live = Vec<(String, String)>;

/// The contents of a page: its HTML, without the parts that all pages share, and the data for its
/// JSON and CSV versions.
pub(super) struct View {
    pub(super) title: String,
    pub(super) body: Markup,
    pub(super) data: serde_json::Value,
    pub(super) table: Table,
    pub(super) live: Live,
}

/// The reason why a page cannot be shown.
#[derive(Debug)]
pub(super) enum NoPage {
    /// The page does not exist.
    Missing(&'static str),
    /// This session may not see the page.
    Forbidden(&'static str),
    /// The request is invalid.
    Wrong(String),
    /// The page is temporarily unavailable.
    Unavailable(String),
}

/// The data that a page is rendered from.
pub(super) struct Asked<'a> {
    pub(super) node: &'a Handle,
    pub(super) sampler: &'a Sampler,
    /// The decoded query parameters.
    pub(super) query: Vec<(String, String)>,
    /// The relative path to the dashboard's start page, such as `../`.
    pub(super) up: &'static str,
    pub(super) session: &'a Session,
    pub(super) calls: Option<&'a Service>,
    pub(super) context: Option<&'a Context>,
}

/// The requested format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Html,
    Json,
    Csv,
}

impl Asked<'_> {
    /// The sites in the configuration, as last read.
    pub(super) fn configured_sites(&self) -> Vec<Site> {
        // If there is no writable directory, all served sites come from the configuration.
        self.context.map_or_else(|| self.node.served_sites(), |kept| kept.live.configured_sites())
    }

    pub(super) fn calls(&self) -> Result<&Service, NoPage> {
        let missing = "This server does not accept calls: its configuration has no [calls] \
            section.";
        self.calls.ok_or(NoPage::Missing(missing))
    }

    /// Whether callers' numbers are shown in full.
    pub(super) fn sees_callers(&self) -> bool {
        self.session.role >= Role::Admin
    }

    /// Whether the session's token may change anything.
    pub(super) fn may_change(&self) -> bool {
        self.session.role >= Role::Write
    }

    /// The directory, if it is writable.
    pub(super) fn store(&self) -> Option<&Store> {
        self.context.map(|context| &context.store)
    }

    /// The query parameter `name`, truncated to [`QUERY_TEXT_MAX`] characters.
    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(it, _)| it == name);
        let text = found.map_or("", |(_, value)| value.trim());
        text.char_indices().nth(QUERY_TEXT_MAX).map_or(text, |(end, _)| &text[..end])
    }
}

/// Decodes `a=b&c=d`. Replaces invalid UTF-8 with the replacement character.
pub(super) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let split = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    // No form has more than 20 fields.
    pairs.take(20).map(split).collect()
}

impl NoPage {
    pub(super) fn answer(
        self,
        form: Form,
        up: &'static str,
        session: &Session,
        has_calls: bool,
    ) -> Response {
        let (status, title, text) = match self {
            Self::Missing(text) => (StatusCode::NOT_FOUND, "Not found", text.to_owned()),
            Self::Forbidden(text) => (StatusCode::FORBIDDEN, "Not allowed", text.to_owned()),
            Self::Wrong(text) => (StatusCode::BAD_REQUEST, "Invalid request", text),
            Self::Unavailable(text) => (StatusCode::SERVICE_UNAVAILABLE, "Not now", text),
        };
        if form != Form::Html {
            return (status, text + "\n").into_response();
        }
        let frame = Frame { path: "error", query: None, up, session: Some(session), has_calls };
        let body = html! { h1 { (title) } p { (text) } };
        (status, page(&frame, title, &body, false)).into_response()
    }
}
