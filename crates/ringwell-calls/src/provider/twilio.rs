//! Twilio: HMAC-SHA1 signatures, or HMAC-SHA256 signatures with a shared key; reports as forms;
//! answers in `TwiML`.
//!
//! The format of the signed string and the test vectors are taken from Twilio's own libraries.

use ringwell_core::Millis;

use super::connect::{Connect, Document, Instruction, Refusal};
use super::moment;
use super::report::{Hook, Report, Stir, Unreadable};
use super::request::Incoming;
use super::signed::{self, Unsigned};
use crate::account::Account;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::digest::{self, Mac};
use crate::form::Form;
use crate::markup::Element;

const SIGNATURE: &str = "x-twilio-signature";
const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
/// The query parameter that contains the hash of a body that is not a form.
const BODY_HASH: &str = "bodySHA256";

pub(super) fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    let settings = request.header(SETTINGS);
    let (mac, keys) = match algorithm(settings) {
        Some("HMAC_SHA256") => (Mac::Sha256, &account.shared_keys),
        None | Some("HMAC_SHA1") => (Mac::Sha1, &account.secrets),
        Some(_) => return Err(Unsigned::new("the signature's algorithm is not supported")),
    };
    let presented = request.header(SIGNATURE);
    check(account, request, presented, |string| {
        keys.iter().map(|key| digest::base64(&mac.sign(key, &[string.as_bytes()]))).collect()
    })
}

/// Checks `presented` against the signatures that `sign` computes for the signed string.
pub(super) fn check(
    account: &Account,
    request: &Incoming,
    presented: &str,
    sign: impl Fn(&str) -> Vec<String>,
) -> Result<(), Unsigned> {
    let (body, is_whole) = signed_body(request);
    if !is_whole {
        return Err(Unsigned::new("bodySHA256 does not match the body"));
    }
    check_body(account, request, presented, &body, sign)
}

/// Like [`check`], but the signed string is the URL followed by `body`.
pub(super) fn check_body(
    account: &Account,
    request: &Incoming,
    presented: &str,
    body: &str,
    sign: impl Fn(&str) -> Vec<String>,
) -> Result<(), Unsigned> {
    let url = signed::public_url(account, request);
    if presented.is_empty() {
        return Err(Unsigned::new("the signature is missing"));
    }
    let matches = |url: &str| {
        let signatures = variants(url).into_iter().flat_map(|url| sign(&format!("{url}{body}")));
        // Compares all signatures without an early exit, so that the duration reveals nothing.
        signatures.fold(false, |found, signature| {
            found | digest::same(signature.as_bytes(), presented.as_bytes())
        })
    };
    if matches(&url) {
        return Ok(());
    }
    let hint = signed::hint(account, request, matches);
    Err(Unsigned::new("the signature does not match").hint(hint))
}

/// The algorithm in a header such as `key=…,algorithm=HMAC_SHA256`, if there is one.
fn algorithm(settings: &str) -> Option<&str> {
    let parts = settings.split(',').map(str::trim);
    parts.filter_map(|part| part.strip_prefix("algorithm=")).find(|name| !name.is_empty())
}

/// The part of the signed string after the URL, and whether the body matches the hash in the query.
/// Without a hash in the query, the body always matches.
fn signed_body(request: &Incoming) -> (String, bool) {
    let hash = request.query_form().find(BODY_HASH).map(str::to_owned);
    if let Some(hash) = hash {
        let is_it = digest::same(digest::sha256_hex(&request.body).as_bytes(), hash.as_bytes());
        return (String::new(), is_it);
    }
    let form = request.form();
    let mut string = String::new();
    let mut before = None;
    for pair in form.sorted() {
        // A repeated name-value pair is included only once.
        if before != Some(pair) {
            string.push_str(pair.0);
            string.push_str(pair.1);
        }
        before = Some(pair);
    }
    (string, true)
}

/// The spellings of `url` that Twilio may have signed.
fn variants(url: &str) -> Vec<String> {
    let mut all = signed::with_and_without_port(url);
    if let Some((path, query)) = url.split_once('?').filter(|(_, query)| query.contains('\'')) {
        all.push(format!("{path}?{}", query.replace('\'', "%27")));
    }
    all
}

pub(super) fn read(hook: Hook, request: &Incoming) -> Result<Report, Unreadable> {
    let body = request.form();
    let form = if body.is_empty() { request.query_form() } else { body };
    if form.is_empty() {
        return Err(Unreadable::Form("a form"));
    }
    let text = |name: &str| form.find(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let parent = text("ParentCallSid");
    let leg = request.leg();
    let call = parent.clone().or_else(|| text("CallSid")).ok_or(Unreadable::NoCall)?;
    let at = moment::believed(form.find("Timestamp"), request.received, &request.target);
    let event = match hook {
        Hook::Answer => Some(event(EventKind::Started, "started".to_owned(), request.received)),
        Hook::Dial => dialled(&form, request.received),
        Hook::Status => progress(&form, parent.is_some(), at),
        Hook::Whisper => None,
    };
    let event =
        event.map(|event| CallEvent { key: format!("{}:{}", event.key, leg.place), ..event });
    // Reports about the callee's leg contain that leg's numbers, not the caller's leg's.
    let is_callers = parent.is_none();
    Ok(Report {
        call,
        events: event.into_iter().collect(),
        to: text("To").or_else(|| text("Called")).filter(|_| is_callers),
        from: text("From").or_else(|| text("Caller")).filter(|_| is_callers),
        stir: text("StirVerstat").map(stir),
        leg,
        ..Report::default()
    })
}

/// The names, or beginnings of names, of the fields that can follow `CallSid` in the signed string.
const NEXT: [&str; 8] = ["Call", "Dial", "Digits", "Direction", "Forwarded", "From", "Stir", "To"];

/// Whether `text` can be a call id: it must not contain the beginning of another field.
pub(super) fn is_sid(text: &str) -> bool {
    !NEXT.iter().any(|field| text.contains(field))
}

fn event(kind: EventKind, key: String, at: Millis) -> CallEvent {
    CallEvent { key, kind, at, talk_seconds: None }
}

/// Extracts the attestation from the end of a verdict such as `TN-Validation-Passed-A`.
fn stir(verstat: String) -> Stir {
    let attestation = verstat.rsplit('-').next().filter(|it| matches!(*it, "A" | "B" | "C"));
    Stir { attestation: attestation.map(str::to_owned), verstat: Some(verstat) }
}

/// The outcome for a call status of Twilio, `SignalWire` or `TeXML`.
pub(super) fn outcome(status: &str) -> Option<Outcome> {
    match status {
        "completed" | "answered" => Some(Outcome::Answered),
        "busy" => Some(Outcome::Busy),
        "no-answer" => Some(Outcome::NoAnswer),
        "canceled" => Some(Outcome::CallerGaveUp),
        "failed" => Some(Outcome::Failed),
        _ => None,
    }
}

/// The event for the request after a `<Dial>`. This request reports that the call to a destination
/// has ended.
fn dialled(form: &Form, at: Millis) -> Option<CallEvent> {
    let mut outcome = outcome(form.get("DialCallStatus"))?;
    if outcome == Outcome::Answered && form.get("DialBridged") == "false" {
        outcome = Outcome::NoAnswer;
    }
    let is_end = matches!(outcome, Outcome::Answered | Outcome::CallerGaveUp);
    let kind = if is_end { EventKind::Ended(Some(outcome)) } else { EventKind::LegEnded(outcome) };
    let talk = form.get("DialCallDuration").parse().ok();
    let talk_seconds = talk.filter(|_| outcome == Outcome::Answered);
    Some(CallEvent { talk_seconds, ..event(kind, "dial".to_owned(), at) })
}

/// The event for a status callback about the callee's or the caller's leg.
fn progress(form: &Form, is_callee: bool, at: Millis) -> Option<CallEvent> {
    let status = form.get("CallStatus");
    let talk = form.get("CallDuration").parse().ok();
    let kind = match (status, outcome(status)) {
        ("ringing", _) if is_callee => EventKind::Ringing,
        ("in-progress" | "answered", _) if is_callee => EventKind::Answered,
        // With `answerOnBridge`, as in the document below, the caller's leg is answered when the
        // destination answers, and `CallDuration` counts from then.
        ("completed", _) if !is_callee => {
            talk.map_or(EventKind::Ended(None), EventKind::CallerLegEnded)
        }
        ("completed", _) => EventKind::Ended(Some(Outcome::Answered)),
        (_, Some(outcome)) if is_callee => EventKind::LegEnded(outcome),
        (_, Some(outcome)) => EventKind::Ended(Some(outcome)),
        (_, None) => return None,
    };
    let talk_seconds = talk.filter(|_| is_callee && status == "completed");
    let side = if is_callee { "callee" } else { "caller" };
    let key = format!("{side}:{}:{status}", form.get("SequenceNumber"));
    Some(CallEvent { talk_seconds, ..event(kind, key, at) })
}

pub(super) fn document(account: &Account, answer: &Instruction) -> Document {
    let response = Element::new("Response");
    let response = match answer {
        Instruction::Connect(connect) => response.child(&dial(account, connect)),
        Instruction::Refuse(Refusal::Busy) => {
            response.child(&Element::new("Reject").with("reason", "busy"))
        }
        Instruction::Refuse(Refusal::Rejected) => {
            response.child(&Element::new("Reject").with("reason", "rejected"))
        }
        Instruction::Whisper(text) => response.child(&Element::new("Say").text(text)),
        Instruction::Nothing => response,
    };
    Document::xml(response.document())
}

fn dial(account: &Account, connect: &Connect) -> Element {
    let query = connect.query();
    let noun = if connect.is_sip() { "Sip" } else { "Number" };
    let whisper = connect.whisper.then(|| account.hook(&format!("whisper?{query}")));
    let callee = Element::new(noun)
        .with("statusCallback", account.hook(&format!("status?{query}")))
        .with("statusCallbackEvent", "initiated ringing answered completed")
        .with("statusCallbackMethod", "POST")
        .with_some("url", whisper)
        .text(&connect.to);
    Element::new("Dial")
        .with("action", account.hook(&format!("dial?{query}")))
        .with("answerOnBridge", "true")
        .with_some("callerId", connect.caller_id.as_ref())
        .with("method", "POST")
        .with("timeout", connect.timeout_s)
        .child(&callee)
}

#[cfg(test)]
mod tests;
