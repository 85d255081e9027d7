//! Any other switch. It sends one kind of event, as JSON or as a form, and receives an answer in
//! JSON. Source: docs/spec/calls.md, "The generic provider".

use std::time::Duration;

use ringwell_config::credentials;
use ringwell_core::Millis;
use serde_json::{Value, json};

use super::connect::{Document, Instruction};
use super::moment;
use super::report::{Hook, Report, Unread, Unreadable, is_call_id};
use super::request::Incoming;
use super::signed::Unsigned;
use crate::account::Account;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::digest;
use crate::webhook::sign::{self, Mismatch};

/// The name of the field with the call's id.
const CALL_ID: &str = "call_id";
const EVENT: Unread =
    Unread { field: "event", accepted: "started, ringing, answered or ended, in any case" };
const STATUS: Unread = Unread {
    field: "status",
    accepted: "answered, busy, no_answer, rejected, caller_gave_up, failed, a DIALSTATUS value, \
               a FreeSWITCH hangup cause, or a final SIP status such as 486",
};
const WAITED_MS: Unread =
    Unread { field: "waited_ms", accepted: "a number of milliseconds from 0 to 2592000000" };
const TALK_SECONDS: Unread =
    Unread { field: "talk_seconds", accepted: "a number of seconds from 0 to 2592000" };
/// The longest accepted talk time, and the longest time for which a report may have waited: 30 days.
const TALK_MAX: Duration = Duration::from_hours(30 * 24);

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
    let mut unread = Vec::new();
    let talk_seconds = plain(&fields["talk_seconds"]).and_then(|text| {
        let talk = talk_seconds(&text);
        unread.extend(talk.is_none().then_some(TALK_SECONDS));
        talk
    });
    let named = plain(&fields["event"]).map(|event| event.to_ascii_lowercase());
    let is_text = fields["event"].is_string();
    let default = if hook == Hook::Answer { "started" } else { "" };
    let event = named.as_deref().filter(|_| is_text).unwrap_or(default);
    let kind = match event {
        "started" => Some(EventKind::Started),
        "ringing" => Some(EventKind::Ringing),
        "answered" => Some(EventKind::Answered),
        "ended" => {
            let status = plain(&fields["status"]);
            let outcome = status.as_deref().and_then(outcome);
            unread.extend((status.is_some() && outcome.is_none()).then_some(STATUS));
            Some(EventKind::Ended(outcome))
        }
        _ => None,
    };
    if kind.is_none() || named.is_some() && !is_text {
        unread.push(EVENT);
    }
    let waited = plain(&fields["waited_ms"]).and_then(|text| {
        let waited = text.parse().ok().filter(|ms| u128::from(*ms) <= TALK_MAX.as_millis());
        unread.extend(waited.is_none().then_some(WAITED_MS));
        waited.map(Millis)
    });
    let at = match waited {
        Some(waited) => Millis(request.received.0.saturating_sub(waited.0)),
        None => moment::believed(at.as_deref(), request.received, &request.target),
    };
    let key = format!("{event}:{}", text("id").unwrap_or_default());
    Ok(Report {
        call: call.to_owned(),
        events: kind.map(|kind| CallEvent { key, kind, at, talk_seconds }).into_iter().collect(),
        to: text("to").map(str::to_owned),
        from: text("from").map(str::to_owned),
        waited: waited.unwrap_or_default(),
        unread,
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

/// The value of a field as text. `None` if the field is missing or empty.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}

/// Parses a talk time, and rounds it down to whole seconds. A talk time below one second counts as
/// one second, because a talk time of 0 means that the call was not answered.
fn talk_seconds(text: &str) -> Option<u32> {
    let talk = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    if talk > TALK_MAX {
        return None;
    }
    u32::try_from(talk.as_secs().max(u64::from(!talk.is_zero()))).ok()
}

/// Parses an outcome: one of Ringwell's own names, a value of Asterisk's `DIALSTATUS`, a
/// `FreeSWITCH` hangup cause, or a final SIP status. Other common spellings of these names are also
/// accepted.
pub(super) fn outcome(status: &str) -> Option<Outcome> {
    if let Some(outcome) = status.parse().ok().and_then(sip_outcome) {
        return Some(outcome);
    }
    let name = status.to_ascii_uppercase().replace(['-', ' '], "_");
    match name.as_str() {
        "ANSWERED" | "ANSWER" | "COMPLETED" | "NORMAL_CLEARING" | "SUCCESS" => {
            Some(Outcome::Answered)
        }
        "BUSY" | "USER_BUSY" => Some(Outcome::Busy),
        "NO_ANSWER" | "NOANSWER" | "NO_USER_RESPONSE" | "ALLOTTED_TIMEOUT" | "UNANSWERED"
        | "TIMEOUT" => Some(Outcome::NoAnswer),
        "CALLER_GAVE_UP" | "CANCEL" | "CANCELED" | "CANCELLED" | "ORIGINATOR_CANCEL" => {
            Some(Outcome::CallerGaveUp)
        }
        "REJECTED" | "DONTCALL" | "CALL_REJECTED" | "DECLINED" => Some(Outcome::Rejected),
        "FAILED" | "CONGESTION" | "CHANUNAVAIL" => Some(Outcome::Failed),
        // `FreeSWITCH` has many other hangup causes. All of them are failures.
        _ => {
            let is_cause = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
            (status.contains('_') && status.bytes().all(is_cause)).then_some(Outcome::Failed)
        }
    }
}

/// The outcome for the final status of a SIP request.
const fn sip_outcome(status: u16) -> Option<Outcome> {
    match status {
        200..=299 => Some(Outcome::Answered),
        486 | 600 => Some(Outcome::Busy),
        408 | 480 => Some(Outcome::NoAnswer),
        487 => Some(Outcome::CallerGaveUp),
        403 | 603 | 607 | 608 => Some(Outcome::Rejected),
        400..=699 => Some(Outcome::Failed),
        _ => None,
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
