//! Applies the changes that users request on pages: resizes pools, adds keys, quarantines and
//! releases numbers, and changes web sites. Also replays missed webhook events and enables webhook
//! endpoints.
//!
//! Each change has the same effect as the corresponding request under `/v1/`, and adds a line to
//! the audit log, with the session's user as its author. Checks permission: the session's token
//! must allow writing, and the form must come from a page that was shown in the same session.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::html;
use ringwell_calls::webhook::{Replay, Which};
use ringwell_calls::{LogError, Service};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_store::{Leave, Role};
use serde_json::json;

use super::asked::{Form, NoPage, pairs};
use super::change::{begin, commit};
use super::layout::{Frame, page, redirect};
use super::session::{Session, is_own};
use super::site_forms::{self, Wanted};
use super::ui::Ui;
use super::words::count;
use crate::context::Context;
use crate::published::new_key;
use ringwell_calls::clock::now;

/// The largest pool size that a form accepts.
const NUMBERS_MAX: u64 = 1_000_000;

/// The result of a change.
enum AfterChange {
    /// Return to the page with the form. Contains the page's relative address.
    Back(String),
    /// Show the pool's new key. It is shown only this once.
    NewKey(PoolId, String),
}

/// Applies the change that a form requests.
pub(super) async fn act(
    State(ui): State<Ui>,
    Path(path): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let up = if path.matches('/').count() > 1 { "../../" } else { "../" };
    let Some(session) = ui.session(&headers).await else { return redirect(&format!("{up}login")) };
    let has_calls = ui.dashboard.0.calls.get().is_some();
    match change(&ui, &path, &session, &headers, &body).await {
        Ok(AfterChange::Back(to)) => redirect(&to),
        Ok(AfterChange::NewKey(pool, key)) => {
            let frame =
                Frame { path: "error", query: None, up, session: Some(&session), has_calls };
            let body = html! {
                h1 { "The new key of ring pool " (pool) }
                p { code { (key) } }
                p { "This key is shown only once. Give it to all clients. The previous key remains \
                    valid until you remove it with "
                    code { "DELETE /v1/pools/" (pool) "/key/previous" } "." }
                p { a href={ "../" (pool) } { "Back to the ring pool" } }
            };
            page(&frame, "The new key", &body, false).into_response()
        }
        Err(error) => error.answer(Form::Html, up, &session, has_calls),
    }
}

async fn change(
    ui: &Ui,
    path: &str,
    session: &Session,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<AfterChange, NoPage> {
    let fields = pairs(str::from_utf8(body).ok());
    let field = |name: &str| {
        let found = fields.iter().find(|(it, _)| it == name);
        found.map_or("", |(_, value)| value.trim())
    };
    if !session.sent(field("form")) || !is_own(headers) {
        return Err(NoPage::Forbidden("The form has expired: load the page again."));
    }
    if session.role < Role::Write {
        return Err(NoPage::Forbidden("This session's token is read-only."));
    }
    ui.still_may(session).await?;
    let context = ui.context.as_ref();
    let kept = context.ok_or(NoPage::Missing(
        "Ring pools and sites come from the configuration: change them there, then send SIGHUP.",
    ));
    let pool = |id: &str| {
        let missing = NoPage::Missing("There is no such ring pool.");
        id.parse().map(PoolId).map_err(|_| missing)
    };
    match path.split('/').collect::<Vec<_>>()[..] {
        ["pools", id, "size"] => {
            let (id, kept) = (pool(id)?, kept?);
            let wanted = field("numbers").parse().ok().filter(|n| (1..=NUMBERS_MAX).contains(n));
            let wrong = || NoPage::Wrong("Enter a pool size from 1 to 1,000,000.".to_owned());
            resize(kept, session, id, wanted.ok_or_else(wrong)?).await?;
            Ok(AfterChange::Back(format!("../{id}")))
        }
        ["pools", id, "key"] => {
            let (id, kept) = (pool(id)?, kept?);
            let key = new_key()?;
            let mut change = begin(kept, session).await?;
            change.rotate_key(id, key).await?;
            commit(kept, change).await?;
            Ok(AfterChange::NewKey(id, key.reveal().to_owned()))
        }
        ["number", action @ ("quarantine" | "release")] => {
            let kept = kept?;
            let number = PromoNumber::parse(field("number"));
            let number = number.map_err(|error| NoPage::Wrong(error.to_string()))?;
            let range: Vec<_> = NumberRange::new(number, 1).into_iter().collect();
            let mut change = begin(kept, session).await?;
            if action == "quarantine" {
                change.take_out(&range, Leave::Quarantine).await?;
            } else {
                change.end_quarantine(&range, Millis::ZERO).await?;
            }
            commit(kept, change).await?;
            let number = number.to_string().replace('+', "%2B");
            Ok(AfterChange::Back(format!("../number?number={number}")))
        }
        ["webhooks", id, action @ ("replay" | "enable")] => {
            let calls = ui.dashboard.0.calls.get();
            let calls = calls.ok_or(NoPage::Missing("This server does not accept calls."))?;
            webhook(calls, id, action).await?;
            audit_webhook(context, session, id, action).await?;
            Ok(AfterChange::Back("../../webhooks".to_owned()))
        }
        ["sites", "new"] => {
            let kept = kept?;
            let configured = kept.configured_site(field("key"));
            site_change(kept, session, Wanted::New(configured.as_ref()), &field).await
        }
        ["sites", key, "save"] => site_change(kept?, session, Wanted::Save(key), &field).await,
        ["sites", key, "remove"] => site_change(kept?, session, Wanted::Remove(key), &field).await,
        _ => Err(NoPage::Missing("There is no such action.")),
    }
}

async fn site_change(
    kept: &Context,
    session: &Session,
    wanted: Wanted<'_>,
    field: site_forms::Fields<'_>,
) -> Result<AfterChange, NoPage> {
    let key = site_forms::change(kept, session, &wanted, field).await?;
    Ok(AfterChange::Back(match wanted {
        Wanted::New(_) => key,
        Wanted::Save(_) => format!("../{key}"),
        Wanted::Remove(_) => "../../sites".to_owned(),
    }))
}

/// Resizes the pool to `wanted` numbers: takes free numbers from the inventory, or returns numbers
/// to the inventory.
async fn resize(
    context: &Context,
    session: &Session,
    id: PoolId,
    wanted: u64,
) -> Result<(), NoPage> {
    let mut change = begin(context, session).await?;
    let size = change.size(id).await?;
    let total = wanted + size.quarantined + size.overflow;
    let mut settings = change.pool(id).await?.settings;
    settings.max_pool_size = u32::try_from(total).unwrap_or(u32::MAX);
    change.update_pool(id, settings).await?;
    change.shrink(id, total).await?;
    change.fill(id, total).await?;
    let missing = total.saturating_sub(change.size(id).await?.total());
    if missing > 0 {
        return Err(NoPage::Wrong(format!(
            "{} missing: the inventory has no more numbers for this pool. Add numbers with \
                `ringwell pools numbers add`, or choose a smaller size. Nothing was changed.",
            if missing == 1 {
                "1 number is".to_owned()
            } else {
                format!("{} numbers are", count(missing))
            }
        )));
    }
    commit(context, change).await
}

async fn webhook(service: &Service, id: &str, action: &str) -> Result<(), NoPage> {
    let (log, endpoint, enables) = (service.log().clone(), id.to_owned(), action == "enable");
    let work = async move {
        if enables {
            return log.enable_endpoint(&endpoint).await;
        }
        let replay = Replay {
            since: None,
            until: None,
            types: Vec::new(),
            event: None,
            which: Which::Failed,
        };
        Ok::<_, LogError>(log.replay(&endpoint, &replay, now()).await?.is_some())
    };
    let found = service.run(work).await.map_err(|error| NoPage::Unavailable(error.to_string()))?;
    let found = found.map_err(|error| NoPage::Unavailable(error.to_string()))?;
    service.wake();
    if found { Ok(()) } else { Err(NoPage::Missing("There is no such endpoint.")) }
}

/// Records the author of a change to an endpoint. Endpoints are stored in the call log, but changes
/// to them are recorded in the server's log and, if there is a database, in the audit log.
async fn audit_webhook(
    context: Option<&Context>,
    session: &Session,
    id: &str,
    action: &str,
) -> Result<(), NoPage> {
    let (action, object) = (format!("{action} webhooks"), endpoint_object(id));
    tracing::info!(who = session.who, action, object, "a change from the dashboard");
    let Some(context) = context else { return Ok(()) };
    let mut change = begin(context, session).await?;
    change.log(&action, &object, None, Some(json!({}))).await?;
    commit(context, change).await
}

fn endpoint_object(id: &str) -> String {
    format!("webhook_endpoint {id}")
}
