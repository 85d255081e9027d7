//! Login by management token or one-time link, and logout.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::html;
use ringwell_directory::TokenHash;
use ringwell_store::Role;

use super::asked::pairs;
use super::layout::{Frame, page, redirect};
use super::session::{UNSET_COOKIE, is_own, set_cookie};
use super::ui::Ui;
use crate::access::{Denied, Visitor, bearer};
use crate::problem::Problem;

/// The page that asks for a token.
pub(super) async fn form(State(ui): State<Ui>, headers: HeaderMap) -> Response {
    if ui.session(&headers).await.is_some() {
        return redirect("./");
    }
    ask(StatusCode::OK, None)
}

fn ask(status: StatusCode, fault: Option<&str>) -> Response {
    let frame = Frame { path: "login", query: None, up: "", session: None, has_calls: false };
    let body = html! {
        h1 { "Log in to Ringwell" }
        @if let Some(fault) = fault { p.banner.red role="alert" { b { "Not logged in. " } (fault) } }
        p.lead {
            "Paste a management token, or run " code { "ringwell ui" } " on the server and open \
             the link that it prints."
        }
        form.find method="post" action="login" {
            label { "Management token"
                input type="password" name="token" autocomplete="off" size="40" maxlength="256";
            }
            input type="hidden" name="code" value="";
            button { "Log in" }
        }
    };
    (status, page(&frame, "Log in", &body, false)).into_response()
}

/// Accepts a token or the code of a one-time link, and sets a session cookie.
pub(super) async fn enter(State(ui): State<Ui>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_own(&headers) {
        return ask(
            StatusCode::FORBIDDEN,
            Some(
                "The form came from another site: load the page \
            again.",
            ),
        );
    }
    let fields = fields(&body);
    let field = |name: &str| {
        let found = fields.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    };
    let known = match (field("code"), field("token")) {
        (Some(code), _) => ui.sessions().follow(code),
        (None, Some(token)) => match visitor(&ui, token).await {
            Ok(known) => known,
            Err(problem) => return ask(problem.status(), Some(problem.detail())),
        },
        (None, None) => None,
    };
    let Some((visitor, token)) = known else {
        let fault = "The token is unknown or limited to one network, or the link has already been \
            used or is older than five minutes. Run `ringwell ui` for a new link.";
        return ask(StatusCode::UNAUTHORIZED, Some(fault));
    };
    // Always starts a new session, because the current cookie may be another user's.
    ui.sessions().end(&headers);
    let cookie = ui.sessions().begin(&visitor, token).as_deref().and_then(set_cookie);
    let Some(cookie) = cookie else {
        return ask(
            StatusCode::SERVICE_UNAVAILABLE,
            Some("The operating system provides no random bytes to the server."),
        );
    };
    let mut response = redirect("./");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

/// Logs out: ends the session.
pub(super) async fn leave(State(ui): State<Ui>, headers: HeaderMap, body: Bytes) -> Response {
    let fields = fields(&body);
    let sent = fields.iter().find(|(name, _)| name == "form").map_or("", |(_, value)| value);
    let session = ui.sessions().of(&headers).filter(|session| session.sent(sent));
    if session.is_none() || !is_own(&headers) {
        return ask(
            StatusCode::FORBIDDEN,
            Some("The form has expired or came from another site: load the page again."),
        );
    }
    ui.sessions().end(&headers);
    let mut response = redirect("login");
    response.headers_mut().insert(header::SET_COOKIE, UNSET_COOKIE);
    response
}

/// `POST /v1/ui/links`: creates a one-time link for the holder of a token.
pub(super) async fn link(State(ui): State<Ui>, headers: HeaderMap) -> Result<Response, Problem> {
    let token = bearer(&headers).and_then(|token| str::from_utf8(token).ok());
    let visitor = ui.door.enter(token, Role::Read, None).await?;
    if visitor.network().is_some() {
        let detail = "the dashboard shows all networks, but the token is limited to one: use a \
            token that is not limited";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let hash = TokenHash::of(token.unwrap_or_default().as_bytes());
    let code = ui.sessions().link(visitor, hash).ok_or_else(|| {
        Problem::unavailable(
            "too many unused login links: use one of them, or try again in five minutes",
        )
    })?;
    let body =
        serde_json::json!({ "path": format!("/ui/login#{code}"), "expires_in_seconds": 300 });
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// The token's owner. `None` if the token is invalid or does not permit reading in all networks.
///
/// # Errors
/// If the token could not be checked.
async fn visitor(ui: &Ui, token: &str) -> Result<Option<(Visitor, TokenHash)>, Problem> {
    match ui.door.enter(Some(token), Role::Read, None).await {
        Ok(visitor) if visitor.network().is_none() => {
            Ok(Some((visitor, TokenHash::of(token.as_bytes()))))
        }
        Err(denied @ Denied::Store(_)) => Err(denied.into()),
        _ => Ok(None),
    }
}

fn fields(body: &[u8]) -> Vec<(String, String)> {
    pairs(str::from_utf8(body).ok())
}
