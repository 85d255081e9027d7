//! `/t/ACCOUNT/HOOK`: receives webhooks from providers. These paths may be public: unsigned
//! requests have no effect, and the answers reveal nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use ringwell_core::Millis;

use crate::account::Account;
use crate::call::{CallEvent, EventKind};
use crate::clock::now;
use crate::form::FIELDS_MAX;
use crate::provider::{
    self, Connect, Hook, Incoming, Instruction, Leg, Report, Shown, Unread, Unsigned,
};
use crate::route::RoutePlan;
use crate::service::{Destination, IncomingCall, Service};

/// The maximum size of a body. Providers' bodies have a few kilobytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The time limit for receiving a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// The routes of all accounts.
pub fn routes(service: Service) -> Router {
    Router::new().route("/t/{account}/{hook}", any(hook)).with_state(service)
}

/// The reason why a request is refused.
enum Refused {
    /// The path does not exist.
    Unknown,
    /// The body is too large or did not arrive in time.
    Body(StatusCode),
    /// The request has too many fields.
    Fields,
    /// The request is not signed correctly.
    Unsigned { is_retried: bool },
    /// The request cannot be parsed, for the given reason.
    Unreadable(String),
    /// The report could not be stored. The provider should send it again.
    NotStored,
    /// The number has no destination, for the given reason, so the provider must use its own
    /// fallback.
    NoDestination(String),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Unknown => (StatusCode::NOT_FOUND, "this path does not exist".to_owned()),
            Self::Body(status) => {
                (status, "the body is too large or arrived too slowly".to_owned())
            }
            Self::Fields => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("there are more than {FIELDS_MAX} fields"))
            }
            Self::Unsigned { is_retried: true } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "send the request again with a signature".to_owned(),
            ),
            Self::Unsigned { is_retried: false } => (
                StatusCode::FORBIDDEN,
                "the request is not signed correctly; see the server's log".to_owned(),
            ),
            Self::Unreadable(text) => (StatusCode::BAD_REQUEST, text),
            Self::NotStored => (StatusCode::SERVICE_UNAVAILABLE, "not stored yet".to_owned()),
            Self::NoDestination(text) => (StatusCode::SERVICE_UNAVAILABLE, text),
        };
        (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
    }
}

async fn hook(
    State(service): State<Service>,
    Path((account, hook)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    let account = service.account(&account).ok_or(Refused::Unknown)?;
    let account = &*account;
    let hook = Hook::parse(&hook).ok_or(Refused::Unknown)?;
    let incoming = taken_in(request).await?;
    if incoming.has_too_many_fields() {
        return Err(Refused::Fields);
    }
    if let Err(unsigned) = provider::verify(account, &incoming) {
        // Vonage sends every first request without a signature.
        if !unsigned.is_retried {
            service.unsigned_webhooks().fetch_add(1, Ordering::Relaxed);
        }
        tell(account, &incoming, &unsigned);
        return Err(Refused::Unsigned { is_retried: unsigned.is_retried });
    }
    let report = provider::read(account, hook, &incoming).map_err(|error| {
        if let Some(left_out) = account.warnings.pass() {
            tracing::warn!(account = account.name, %error, left_out, "a webhook has no usable \
                content");
        }
        Refused::Unreadable(error.to_string())
    })?;
    warn_unread(account, &report.unread);
    let answer = answer(&service, account, hook, &incoming, report).await?;
    let document = provider::document(account, &answer);
    Ok(([(header::CONTENT_TYPE, document.content_type)], document.body).into_response())
}

async fn taken_in(request: Request) -> Result<Incoming, Refused> {
    let (head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let body = read_body(body).await?;
    let (method, headers) = (head.method, head.headers);
    Ok(Incoming { method, target, headers, body, received: now() })
}

async fn read_body(body: Body) -> Result<Vec<u8>, Refused> {
    match tokio::time::timeout(BODY_TIME_MAX, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes.to_vec()),
        Ok(Err(_)) => Err(Refused::Body(StatusCode::PAYLOAD_TOO_LARGE)),
        Err(_) => Err(Refused::Body(StatusCode::REQUEST_TIMEOUT)),
    }
}

/// Logs why a signature does not match, so that the operator can correct the configuration. The log
/// line contains the provider, the URL and, if known, a hint for the correction. It does not
/// contain the values of the request's fields.
fn tell(account: &Account, incoming: &Incoming, unsigned: &Unsigned) {
    let Some(left_out) = account.warnings.pass() else { return };
    let shown = Shown::of(account, incoming);
    tracing::warn!(
        account = account.name,
        provider = account.provider.name(),
        method = incoming.method.as_str(),
        reason = unsigned.reason,
        url = shown.url,
        content_type = shown.content_type,
        bytes = incoming.body.len(),
        fields = shown.fields,
        hint = unsigned
            .hint
            .as_deref()
            .unwrap_or("check the account's secret, unless the reason names another cause"),
        left_out,
        "a webhook is not signed correctly"
    );
}

/// Logs the fields of a report that were ignored. No call is lost because of them, so the report is
/// accepted, and only this log line shows the mistake.
fn warn_unread(account: &Account, unread: &[Unread]) {
    if unread.is_empty() {
        return;
    }
    let Some(left_out) = account.warnings.pass_unread() else { return };
    let each = |it: &Unread| format!("{} (accepted: {})", it.field, it.accepted);
    let fields = unread.iter().map(each).collect::<Vec<_>>().join("; ");
    tracing::warn!(
        account = account.name,
        fields,
        left_out,
        "a call report has fields whose values are not accepted. The report is stored without \
         them"
    );
}

async fn answer(
    service: &Service,
    account: &Account,
    hook: Hook,
    incoming: &Incoming,
    report: Report,
) -> Result<Instruction, Refused> {
    // URLs in answers contain the called number.
    let named = incoming.query_form().find("n").map(|digits| format!("+{digits}"));
    let leg = report.leg;
    let call = IncomingCall {
        account: account.name.clone(),
        provider: account.provider.name().to_owned(),
        provider_call: report.call,
        to: report.to.or(named.clone()),
        from: report.from,
        stir: report.stir,
        events: report.events,
        // A report that waited counts as if it had arrived at once.
        received: Millis(incoming.received.0.saturating_sub(report.waited.0)),
    };
    // Some providers send all kinds of reports to one URL.
    let begins = call.events.iter().any(|it| it.kind == EventKind::Started);
    let hook = match hook {
        Hook::Answer if !begins => Hook::Status,
        Hook::Status if begins => Hook::Answer,
        hook => hook,
    };
    let id = provider_id(&call);
    let plan_of = async |number: Option<&str>| {
        service.plan_of_call((&account.name, &id), number, incoming.received).await
    };
    match hook {
        Hook::Answer => {
            let decision = service.incoming(call).await;
            let number = decision.number.unwrap_or_default();
            match decision.destination {
                Destination::To(plan) => {
                    let from = decision.caller.number().map(str::to_owned);
                    Ok(connect(&plan, Leg::first(&plan.to), decision.call, &number, from))
                }
                Destination::Refused(refusal) => Ok(Instruction::Refuse(refusal)),
                Destination::None(reason) => {
                    Err(Refused::NoDestination(format!("{number} has no destination: {reason}")))
                }
            }
        }
        Hook::Whisper => {
            let whisper = plan_of(named.as_deref()).await.and_then(|plan| plan.whisper);
            Ok(whisper.map_or(Instruction::Nothing, Instruction::Whisper))
        }
        Hook::Dial => {
            let number = named.or(call.to.clone());
            let plan = plan_of(number.as_deref()).await;
            dialled(service, call, (plan, &leg), (id.clone(), number)).await
        }
        Hook::Status => stored(service, call).await,
    }
}

/// Answers a report about the destination `leg` of a call. If the destination did not answer,
/// connects the call to the next one in `plan`.
async fn dialled(
    service: &Service,
    mut call: IncomingCall,
    (plan, leg): (Option<RoutePlan>, &Leg),
    (id, number): (String, Option<String>),
) -> Result<Instruction, Refused> {
    let may_continue = call.events.iter().all(|it| matches!(it.kind, EventKind::LegEnded(_)));
    let plan = plan.filter(|_| may_continue);
    let Some((plan, next)) = plan.as_ref().and_then(|plan| Some((plan, leg.next(&plan.to)?)))
    else {
        // No destination is left, so the call is over. Its outcome follows from the outcomes of all
        // its destinations. If the parties are talking, this is a repeated report about an earlier
        // destination, whose successors are no longer configured.
        let last = call.events.last().filter(|_| may_continue);
        if let Some(last) = last
            && !service.is_in_conversation(&id).await
        {
            let key = format!("{}:last", last.key);
            call.events.push(CallEvent { key, kind: EventKind::Ended(None), ..last.clone() });
        }
        return stored(service, call).await;
    };
    let from = call.from.clone();
    service.report_while_ringing(call).await;
    let from = from.and_then(|from| crate::Caller::read(&from).number().map(str::to_owned));
    Ok(connect(plan, Some(next), id, &number.unwrap_or_default(), from))
}

async fn stored(service: &Service, call: IncomingCall) -> Result<Instruction, Refused> {
    service.report(call).await.map(|_| Instruction::Nothing).map_err(|_| Refused::NotStored)
}

fn provider_id(call: &IncomingCall) -> String {
    crate::log::call_id(&call.account, &call.provider_call)
}

fn connect(
    plan: &RoutePlan,
    chosen: Option<(&String, Leg)>,
    call: String,
    number: &str,
    from: Option<String>,
) -> Instruction {
    // A destination always exists, because a plan contains at least one.
    let Some((to, leg)) = chosen else { return Instruction::Nothing };
    Instruction::Connect(Connect {
        call,
        number: number.trim_start_matches('+').to_owned(),
        to: to.clone(),
        from,
        caller_id: plan.caller_id.clone(),
        timeout_s: plan.timeout_s,
        whisper: plan.whisper.is_some(),
        leg,
    })
}

#[cfg(test)]
mod tests;
