//! Any other switch. It sends one kind of event, as JSON or as a form, and receives an answer in
//! JSON. Source: docs/spec/calls.md, "The generic provider".

use ringwell_config::credentials;
use serde_json::{Value, json};

use super::connect::{Document, Instruction};
use super::moment;
use super::report::{Hook, Report, Unreadable, is_call_id};
use super::request::Incoming;
use super::signed::Unsigned;
use crate::account::Account;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::digest;
use crate::webhook::sign::{self, Mismatch};

/// The name of the field that contains the id of the call.
const CALL_ID: &str = "call_id";

/// Accepts a signature according to Standard Webhooks, or the secret itself as a `Bearer` token or
/// `Basic` password.
pub(super) fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    let secrets = account.secrets.iter();
    let authorization = request.header("authorization");
    let basic = credentials(authorization, "Basic").and_then(digest::from_base64);
    let password = basic.and_then(|pair| {
        let at = pair.iter().position(|byte| *byte == b':')?;
        Some(pair[at + 1..].to_vec())
    });
    let bearer = credentials(authorization, "Bearer").map(|token| token.as_bytes().to_vec());
    if let Some(presented) = password.or(bearer) {
        let fits = secrets.fold(false, |found, it| found | digest::same(it, &presented));
        return if fits { Ok(()) } else { Err(Unsigned::new("the secret does not match")) };
    }
    let texts: Vec<&str> = secrets.filter_map(|secret| str::from_utf8(secret).ok()).collect();
    let (id, time) = (request.header("webhook-id"), request.header("webhook-timestamp"));
    let presented = request.header("webhook-signature");
    if presented.is_empty() {
        return Err(Unsigned::new("there is neither a signature nor a secret"));
    }
    let now = request.received.0 / 1000;
    sign::verify(&texts, id, time, presented, &request.body, now).map_err(|mismatch| {
        let reason = match mismatch {
            Mismatch::Unreadable => "webhook-id or webhook-timestamp is missing or invalid",
            Mismatch::Apart(_) => {
                "the timestamp differs from this server's clock by more than 5 min"
            }
            Mismatch::Signature => "the signature does not match",
        };
        Unsigned::new(reason)
    })
}

pub(super) fn read(hook: Hook, request: &Incoming) -> Result<Report, Unreadable> {
    if hook == Hook::Whisper {
        return Err(Unreadable::NoCall);
    }
    let fields = fields(request)?;
    let text = |name: &str| fields[name].as_str().filter(|text| !text.is_empty());
    let call = text(CALL_ID).filter(|id| is_call_id(id)).ok_or(Unreadable::CallId(CALL_ID))?;
    let at = text("at").map(str::to_owned).or_else(|| Some(fields["at"].as_number()?.to_string()));
    let talk = fields["talk_seconds"].as_u64().and_then(|talk| u32::try_from(talk).ok());
    let talk_seconds = talk.or_else(|| text("talk_seconds").and_then(|talk| talk.parse().ok()));
    let event = text("event").unwrap_or(if hook == Hook::Answer { "started" } else { "" });
    let status = text("status");
    let kind = match event {
        "started" => Some(EventKind::Started),
        "ringing" => Some(EventKind::Ringing),
        "answered" => Some(EventKind::Answered),
        "ended" => Some(EventKind::Ended(status.and_then(outcome))),
        _ => None,
    };
    let at = moment::believed(at.as_deref(), request.received, &request.target);
    let key = format!("{event}:{}", text("id").unwrap_or_default());
    Ok(Report {
        call: call.to_owned(),
        events: kind.map(|kind| CallEvent { key, kind, at, talk_seconds }).into_iter().collect(),
        to: text("to").map(str::to_owned),
        from: text("from").map(str::to_owned),
        ..Report::default()
    })
}

/// The fields of the body, which is a JSON object or a form.
fn fields(request: &Incoming) -> Result<Value, Unreadable> {
    if request.is_form() {
        let form = request.form();
        let pairs = form.sorted().into_iter().map(|(name, value)| (name.to_owned(), json!(value)));
        return Ok(Value::Object(pairs.collect()));
    }
    let read: Option<Value> = serde_json::from_slice(&request.body).ok();
    read.filter(Value::is_object).ok_or(Unreadable::Form("a JSON object or a form"))
}

/// Parses an outcome in Ringwell's own terms, in those of Asterisk's `DIALSTATUS`, or in those of
/// `FreeSWITCH`.
pub(super) fn outcome(status: &str) -> Option<Outcome> {
    match status {
        "ANSWER" | "NORMAL_CLEARING" | "SUCCESS" => Some(Outcome::Answered),
        "BUSY" | "USER_BUSY" => Some(Outcome::Busy),
        "NOANSWER" | "NO_ANSWER" | "NO_USER_RESPONSE" | "ALLOTTED_TIMEOUT" => {
            Some(Outcome::NoAnswer)
        }
        "CANCEL" | "ORIGINATOR_CANCEL" => Some(Outcome::CallerGaveUp),
        "DONTCALL" | "CALL_REJECTED" => Some(Outcome::Rejected),
        "CONGESTION" | "CHANUNAVAIL" => Some(Outcome::Failed),
        // `FreeSWITCH` has many other hangup causes. All of them are failures.
        other
            if other.contains('_')
                && other.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') =>
        {
            Some(Outcome::Failed)
        }
        other => Outcome::parse(other),
    }
}

pub(super) fn document(answer: &Instruction) -> Document {
    let value = match answer {
        Instruction::Connect(connect) => json!({
            "call": connect.call,
            "destination": connect.to,
            "timeout": connect.timeout_s,
            "caller_id": connect.caller_id.as_ref().or(connect.from.as_ref()),
        }),
        Instruction::Refuse(refusal) => json!({ "refuse": refusal.name() }),
        Instruction::Whisper(_) | Instruction::Nothing => json!({}),
    };
    Document { content_type: "application/json", body: value.to_string() }
}
