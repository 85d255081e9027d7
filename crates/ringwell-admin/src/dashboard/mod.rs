//! The dashboard: pages for people, on the management address.
//!
//! Owns the paths under `/ui/`, the sessions, and the formats of pages: each page is also available
//! as `.json` and `.csv`. The node, the store and `ringwell-plan` supply the rules and figures.
//! Loading a page changes nothing; only its HTML forms request changes (`actions.rs`). Invariant:
//! no data is shown without a session, and no received text is shown unescaped. Source:
//! docs/dashboard.md.

mod actions;
mod asked;
mod assets;
mod calls;
mod change;
mod cluster;
mod figures;
mod forms;
mod layout;
mod line;
mod login;
mod now;
mod number;
mod pages;
mod pool;
mod pools;
mod sample;
mod session;
mod site_forms;
mod sites;
mod stream;
mod table;
mod ui;
mod words;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use self::asked::Form;
use self::layout::{Frame, page, redirect};
pub use self::ui::Dashboard;
use self::ui::Ui;
use crate::access::Door;
use crate::context::Context;

/// Permits scripts and styles only from this server, and connections only to this server. Does not
/// permit scripts to turn text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

impl Dashboard {
    pub(crate) fn routes(&self, door: Door, context: Option<Context>) -> Router {
        Router::new()
            .route("/", get(|| async { redirect("ui/") }))
            .route("/ui", get(|| async { redirect("ui/") }))
            .route("/ui/", get(first))
            .route("/ui/login", get(login::form).post(login::enter))
            .route("/ui/logout", post(login::leave))
            .route("/ui/assets/{name}", get(asset))
            .route("/ui/live/{*path}", get(stream::get))
            .route("/ui/{*path}", get(show).post(actions::act))
            .route("/v1/ui/links", post(login::link))
            .layer(middleware::from_fn(protect))
            .with_state(Ui { dashboard: self.clone(), door, context })
    }
}

async fn first(state: State<Ui>, headers: HeaderMap, uri: Uri) -> Response {
    show(state, Path(String::new()), headers, uri).await
}

/// Returns a page as HTML, JSON or CSV.
async fn show(
    State(ui): State<Ui>,
    Path(path): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let (path, form) = match path.rsplit_once('.') {
        Some((path, "json")) => (path, Form::Json),
        Some((path, "csv")) => (path, Form::Csv),
        _ => (&*path, Form::Html),
    };
    let up = if path.contains('/') { "../" } else { "" };
    let Some(session) = ui.session(&headers).await else {
        if form == Form::Html {
            return redirect(&format!("{up}login"));
        }
        return (StatusCode::UNAUTHORIZED, "not logged in: use the dashboard's login page\n")
            .into_response();
    };
    let has_calls = ui.dashboard.0.calls.get().is_some();
    let viewed = ui.view(path, uri.query(), &session).await;
    match (viewed, form) {
        (Ok(view), Form::Json) => axum::Json(view.data).into_response(),
        (Ok(view), Form::Csv) => {
            let kind = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];
            (kind, view.table.csv()).into_response()
        }
        (Ok(view), Form::Html) => {
            let frame = Frame { path, query: uri.query(), up, session: Some(&session), has_calls };
            let has_stream = !view.live.is_empty();
            page(&frame, &view.title, &view.body, has_stream).into_response()
        }
        (Err(error), form) => error.answer(form, up, &session, has_calls),
    }
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    assets::get(&name, &headers)
}

/// Adds headers that block foreign scripts and frames.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    let same = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-opener-policy", same.clone());
    headers.insert("cross-origin-resource-policy", same);
    response
}
