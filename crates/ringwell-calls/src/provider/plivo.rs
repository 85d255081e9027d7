//! Plivo: HMAC-SHA256 signatures over URL, parameters and nonce; reports as forms; answers in Plivo
//! XML.

use super::connect::{Connect, Document, Instruction, Refusal};
use super::report::{Hook, Report, Stir, Unreadable};
use super::request::Incoming;
use super::signed::{self, Unsigned};
use crate::account::Account;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::digest::{self, Mac};
use crate::form::Form;
use crate::markup::Element;

/// The headers that contain signatures: one made with the account's token, and one made with the
/// main account's token.
const SIGNATURES: [&str; 2] = ["x-plivo-signature-v3", "x-plivo-signature-ma-v3"];
const NONCE: &str = "x-plivo-signature-v3-nonce";
/// The maximum duration of a call, in seconds.
const CALL_S_MAX: u64 = 14_400;

pub(super) fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    let nonce = request.header(NONCE);
    let string = |url: &str| format!("{}.{nonce}", signed_string(url, request));
    let url = signed::public_url(account, request);
    let presented: Vec<&str> = SIGNATURES
        .iter()
        .flat_map(|name| request.header(name).split(','))
        .map(str::trim)
        .filter(|signature| !signature.is_empty())
        .collect();
    if presented.is_empty() || nonce.is_empty() {
        return Err(Unsigned::new("signature or nonce is missing"));
    }
    let matches = |url: &str| {
        let string = string(url);
        account.secrets.iter().fold(false, |found, key| {
            let ours = digest::base64(&Mac::Sha256.sign(key, &[string.as_bytes()]));
            presented.iter().fold(found, |found, theirs| {
                found | digest::same(ours.as_bytes(), theirs.as_bytes())
            })
        })
    };
    if matches(&url) {
        return Ok(());
    }
    let hint = signed::hint(account, request, matches);
    Err(Unsigned::new("the signature does not match").hint(hint))
}

/// The signed string: the URL without its query, the sorted query, and the sorted parameters of the
/// body.
fn signed_string(url: &str, request: &Incoming) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let query = Form::read(query.as_bytes());
    let body = request.form();
    let pairs = |form: &Form| {
        let pairs = form.sorted().into_iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("&")
    };
    if request.method == axum::http::Method::POST && !body.is_empty() {
        let dot = if query.is_empty() { "" } else { "." };
        let body: String =
            body.sorted().into_iter().flat_map(|(name, value)| [name, value]).collect();
        return format!("{base}?{}{dot}{body}", pairs(&query));
    }
    if query.is_empty() { base.to_owned() } else { format!("{base}?{}", pairs(&query)) }
}

/// Adds `+` to a number, because Plivo sends numbers without it.
pub(super) fn with_plus(text: &str) -> String {
    let is_number = text.len() >= 7 && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { format!("+{text}") } else { text.to_owned() }
}

pub(super) fn read(hook: Hook, request: &Incoming) -> Result<Report, Unreadable> {
    let body = request.form();
    let form = if body.is_empty() { request.query_form() } else { body };
    if form.is_empty() {
        return Err(Unreadable::Form("a form"));
    }
    let text = |name: &str| form.find(name).filter(|text| !text.is_empty());
    // Reports about the callee's leg contain the id of the caller's leg in another field.
    let call = text("DialALegUUID").or_else(|| text("CallUUID")).or_else(|| text("ALegUUID"));
    let leg = request.leg();
    let found = match hook {
        Hook::Answer if text("Event") == Some("Hangup") => Some(hung_up(&form)),
        Hook::Answer => Some((EventKind::Started, None)),
        Hook::Dial => dial_status(&form).map(|kind| (kind, None)),
        Hook::Status if text("DialAction").is_some() => dial_action(&form),
        Hook::Status if text("CallStatus").is_some() => Some(hung_up(&form)),
        Hook::Status | Hook::Whisper => None,
    };
    let event = found.map(|(kind, talk_seconds)| {
        let key = format!("{hook:?}:{}:{}", kind.name(), leg.place);
        CallEvent { key, kind, at: request.received, talk_seconds }
    });
    let stir = text("STIRVerification");
    // Reports about the callee's leg contain that leg's numbers, not the caller's leg's.
    let is_callers = match hook {
        Hook::Answer => true,
        Hook::Status => {
            text("DialAction").is_none()
                && text("ALegUUID").is_none()
                && text("Direction") != Some("outbound")
        }
        Hook::Dial | Hook::Whisper => false,
    };
    Ok(Report {
        call: call.ok_or(Unreadable::NoCall)?.to_owned(),
        events: event.into_iter().collect(),
        to: text("To").map(with_plus).filter(|_| is_callers),
        from: text("From").map(with_plus).filter(|_| is_callers),
        stir: stir.map(|it| Stir { verstat: Some(it.to_owned()), attestation: None }),
        leg,
        ..Report::default()
    })
}

fn dial_status(form: &Form) -> Option<EventKind> {
    let outcome = match form.get("DialStatus") {
        "completed" => Outcome::Answered,
        "busy" => Outcome::Busy,
        "no-answer" | "timeout" => Outcome::NoAnswer,
        "cancel" => Outcome::CallerGaveUp,
        "failed" => Outcome::Failed,
        _ => return None,
    };
    let is_end = matches!(outcome, Outcome::Answered | Outcome::CallerGaveUp);
    Some(if is_end { EventKind::Ended(Some(outcome)) } else { EventKind::LegEnded(outcome) })
}

fn dial_action(form: &Form) -> Option<(EventKind, Option<u32>)> {
    match form.get("DialAction") {
        "answer" | "connected" => Some((EventKind::Answered, None)),
        "hangup" => {
            let talk = form.get("DialBLegDuration").parse().ok().filter(|talk| *talk > 0);
            let code = by_code(form.get("DialBLegHangupCauseCode"));
            match (talk, code) {
                (Some(talk), _) => Some((EventKind::Ended(Some(Outcome::Answered)), Some(talk))),
                (None, Some(outcome)) => Some((EventKind::LegEnded(outcome), None)),
                (None, None) => None,
            }
        }
        _ => None,
    }
}

/// The event for the end of the caller's leg. The status `completed` of this leg does not show
/// whether a destination answered.
fn hung_up(form: &Form) -> (EventKind, Option<u32>) {
    let outcome = match form.get("CallStatus") {
        "completed" => None,
        "busy" => Some(Outcome::Busy),
        "no-answer" | "timeout" => Some(Outcome::NoAnswer),
        "cancel" => Some(Outcome::CallerGaveUp),
        _ => by_code(form.get("HangupCauseCode")).or(Some(Outcome::Failed)),
    };
    (EventKind::Ended(outcome), None)
}

fn by_code(code: &str) -> Option<Outcome> {
    match code {
        "" | "4000" | "4010" => None,
        "3010" => Some(Outcome::Busy),
        "3020" => Some(Outcome::Rejected),
        "3000" | "6010" => Some(Outcome::NoAnswer),
        _ => Some(Outcome::Failed),
    }
}

pub(super) fn document(account: &Account, answer: &Instruction) -> Document {
    let response = Element::new("Response");
    let response = match answer {
        Instruction::Connect(connect) => response.child(&dial(account, connect)),
        Instruction::Refuse(refusal) => {
            let reason = match refusal {
                Refusal::Busy => "busy",
                Refusal::Rejected => "rejected",
            };
            response.child(&Element::new("Hangup").with("reason", reason))
        }
        Instruction::Whisper(text) => response.child(&Element::new("Speak").text(text)),
        Instruction::Nothing => response,
    };
    Document::xml(response.document())
}

fn dial(account: &Account, connect: &Connect) -> Element {
    let query = connect.query();
    let caller = connect.caller_id.as_ref().or(connect.from.as_ref());
    let whisper = connect.whisper.then(|| account.hook(&format!("whisper?{query}")));
    let target = if connect.is_sip() {
        Element::new("User").text(&connect.to)
    } else {
        Element::new("Number").text(connect.to.trim_start_matches('+'))
    };
    Element::new("Dial")
        .with("action", account.hook(&format!("dial?{query}")))
        .with("method", "POST")
        .with("timeLimit", CALL_S_MAX)
        .with("timeout", connect.timeout_s)
        .with_some("callerId", caller.map(|number| number.trim_start_matches('+')))
        .with("callbackUrl", account.hook(&format!("event?{query}")))
        .with("callbackMethod", "POST")
        .with("redirect", "true")
        .with_some("confirmSound", whisper)
        .with("sipHeaders", format!("rwcall={}", connect.call.replace('_', "")))
        .child(&target)
}
