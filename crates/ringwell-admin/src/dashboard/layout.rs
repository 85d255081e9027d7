//! The parts that all pages share: header, navigation, footer and building blocks.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::session::Session;

/// The data for a page's header, navigation and footer.
pub(super) struct Frame<'a> {
    /// The path of the page below `/ui/`.
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    /// The relative path to the dashboard's start page.
    pub(super) up: &'static str,
    pub(super) session: Option<&'a Session>,
    /// Whether the server accepts calls. If so, the dashboard has pages about calls.
    pub(super) has_calls: bool,
}

const PAGES: [(&str, &str); 7] = [
    ("", "Now"),
    ("pools", "Pools"),
    ("number", "Number"),
    ("calls", "Calls"),
    ("webhooks", "Webhooks"),
    ("sites", "Sites"),
    ("cluster", "Cluster"),
];

/// Returns a complete HTML document.
pub(super) fn page(
    frame: &Frame<'_>,
    title: &str,
    body: &Markup,
    has_stream: bool,
) -> Html<String> {
    let up = frame.up;
    let version = assets::version();
    let file = |name: &str| format!("{up}assets/{name}?v={version}");
    let query = frame.query.map(|query| format!("?{query}")).unwrap_or_default();
    let name = if frame.path.is_empty() { "now" } else { frame.path };
    let stream = has_stream.then(|| format!("{up}live/{name}{query}"));
    let has_twins = frame.session.is_some() && !matches!(frame.path, "login" | "error");
    let twin = |suffix: &str| {
        let last = name.rsplit('/').next().unwrap_or(name);
        format!("{last}.{suffix}{query}")
    };
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " – Ringwell" }
                link rel="icon" type="image/svg+xml" href=(file("icon.svg"));
                link rel="stylesheet" href=(file("uplot.css"));
                link rel="stylesheet" href=(file("app.css"));
                script src=(file("uplot.js")) defer {}
                script src=(file("app.js")) defer {}
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                @if let Some(session) = frame.session { (head(frame, session)) }
                main id="content" data-stream=[stream] { (body) }
                footer {
                    @if has_twins {
                        a href=(twin("json")) { "This page as JSON" }
                        a href=(twin("csv")) { "as CSV" }
                    }
                    "Ringwell " (env!("CARGO_PKG_VERSION"))
                }
            }
        }
    };
    Html(markup.into_string())
}

fn head(frame: &Frame<'_>, session: &Session) -> Markup {
    let up = frame.up;
    let has_page = |path: &str| frame.has_calls || !matches!(path, "calls" | "webhooks");
    let is_here = |path: &str| {
        let first = frame.path.split('/').next().unwrap_or_default();
        first == path || (path.is_empty() && first == "now")
    };
    html! {
        header {
            strong { "Ringwell" }
            nav aria-label="Pages" { ul {
                @for (path, name) in PAGES.into_iter().filter(|(path, _)| has_page(path)) {
                    @let to = if path.is_empty() { format!("{up}./") } else { format!("{up}{path}") };
                    li { a href=(to) aria-current=[is_here(path).then_some("page")] { (name) } }
                }
            } }
            form method="post" action={ (up) "logout" } {
                input type="hidden" name="form" value=(session.form_token);
                button title=(session.who) { "Log out" }
            }
        }
    }
}

/// Figures with their names. Figures that have a key are updated while the page is open.
#[derive(Default)]
pub(super) struct Tiles(Vec<(&'static str, Option<&'static str>, String)>);

impl Tiles {
    pub(super) fn add(&mut self, name: &'static str, text: impl Into<String>) {
        self.0.push((name, None, text.into()));
    }

    pub(super) fn live(&mut self, key: &'static str, name: &'static str, text: impl Into<String>) {
        self.0.push((name, Some(key), text.into()));
    }

    pub(super) fn html(&self) -> Markup {
        html! { dl.tiles {
            @for (name, key, text) in &self.0 {
                div { dt { (name) } dd data-live=[*key] { (text) } }
            }
        } }
    }

    pub(super) fn changing(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().filter_map(|(_, key, text)| Some(((*key)?.to_owned(), text.clone())))
    }
}

/// A curve, which the script draws from the page's JSON. `summary` describes the curve in words,
/// also for screen readers.
pub(super) fn chart(from: &str, key: &str, label: &str, summary: &str) -> Markup {
    html! {
        h2 { (label) }
        p.lead { (summary) }
        div.chart role="img" aria-label={ (label) ". " (summary) } data-src=(from) data-key=(key) {}
    }
}

/// Redirects to another page. The address is relative, because a proxy may serve the dashboard
/// under another path.
pub(super) fn redirect(to: &str) -> Response {
    let Ok(to) = HeaderValue::try_from(to) else { return StatusCode::NOT_FOUND.into_response() };
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}
