//! Vonage: a JWT that contains the hash of the body, with reports and answers in JSON.

use ringwell_config::credentials;
use serde_json::{Value, json};

use super::connect::{Connect, Document, Instruction};
use super::moment;
use super::plivo::with_plus;
use super::report::{Hook, Report, Unreadable};
use super::request::Incoming;
use super::signed::Unsigned;
use crate::account::Account;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::digest::{self, Mac};

/// The largest difference between the token's time and the server's clock.
const SECONDS_MAX: u64 = 300;

pub(super) fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    let token = credentials(request.header("authorization"), "Bearer").unwrap_or_default();
    if token.is_empty() {
        // Vonage sends some callbacks unsigned. After an error, it repeats them with a signature.
        let unsigned = Unsigned::new("the token is missing");
        return Err(Unsigned { is_retried: true, ..unsigned });
    }
    let refused = |reason| Err(Unsigned::new(reason));
    let Some(claims) = claims(&account.secrets, token) else {
        return refused("the token is not signed with HS256 and the account's signature secret");
    };
    let at = claims["iat"].as_u64().unwrap_or_default();
    if at.abs_diff(request.received.0 / 1000) > SECONDS_MAX {
        return refused(
            "the token's time is more than five minutes off: check this server's clock",
        );
    }
    if claims["iss"] != "Vonage" {
        return refused("the token was not issued by Vonage");
    }
    if request.body.is_empty() {
        // The token's hash covers the body but not the query string, so it proves nothing without a
        // body.
        let hint = "set the application's answer_method to POST, so that there is a body to sign";
        return Err(Unsigned::new("there is no body").hint(Some(hint.to_owned())));
    }
    let hash = claims["payload_hash"].as_str().unwrap_or_default();
    if !digest::same(hash.as_bytes(), digest::sha256_hex(&request.body).as_bytes()) {
        return refused("payload_hash does not match the body");
    }
    Ok(())
}

/// The claims of a token that was signed with one of `secrets`.
pub(super) fn claims(secrets: &[Vec<u8>], token: &str) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (head, claims) = signed.split_once('.')?;
    let json = |part: &str| serde_json::from_slice::<Value>(&digest::from_base64_url(part)?).ok();
    // The token must not choose the algorithm for its own check.
    json(head).filter(|head| head["alg"] == "HS256")?;
    let signature = digest::from_base64_url(signature)?;
    let is_signed = secrets.iter().fold(false, |found, key| {
        found | digest::same(&Mac::Sha256.sign(key, &[signed.as_bytes()]), &signature)
    });
    is_signed.then(|| json(claims))?
}

pub(super) fn read(hook: Hook, request: &Incoming) -> Result<Report, Unreadable> {
    let body: Value =
        serde_json::from_slice(&request.body).map_err(|_| Unreadable::Form("JSON"))?;
    let text = |name: &str| body[name].as_str().filter(|text| !text.is_empty());
    let call = text("conversation_uuid").or_else(|| text("uuid"));
    let is_callee = text("direction") == Some("outbound");
    // Reports about the callee's leg contain that leg's numbers, not the caller's leg's.
    let is_callers = !is_callee && hook != Hook::Whisper;
    let at = moment::believed(text("timestamp"), request.received, &request.target);
    let leg = request.leg();
    let status = text("status").unwrap_or_default();
    let kind = match hook {
        Hook::Answer if status.is_empty() => Some(EventKind::Started),
        Hook::Whisper => None,
        Hook::Answer | Hook::Dial | Hook::Status => happened(status, is_callee),
    };
    let talk = body["duration"].as_str().and_then(|text| text.parse().ok());
    let talk = talk.or_else(|| body["duration"].as_u64().and_then(|n| u32::try_from(n).ok()));
    let talk_seconds = talk.filter(|_| is_callee && status == "completed");
    let key = format!("{status}:{}", text("uuid").unwrap_or_default());
    Ok(Report {
        call: call.ok_or(Unreadable::NoCall)?.to_owned(),
        events: kind.map(|kind| CallEvent { key, kind, at, talk_seconds }).into_iter().collect(),
        to: text("to").map(with_plus).filter(|_| is_callers),
        from: text("from").map(with_plus).filter(|_| is_callers),
        leg,
        ..Report::default()
    })
}

fn happened(status: &str, is_callee: bool) -> Option<EventKind> {
    let outcome = match status {
        "ringing" if is_callee => return Some(EventKind::Ringing),
        "answered" if is_callee => return Some(EventKind::Answered),
        "completed" if is_callee => return Some(EventKind::Ended(Some(Outcome::Answered))),
        "completed" => return Some(EventKind::Ended(None)),
        "busy" => Outcome::Busy,
        "unanswered" | "timeout" => Outcome::NoAnswer,
        "rejected" => Outcome::Rejected,
        "cancelled" => Outcome::CallerGaveUp,
        "failed" => Outcome::Failed,
        _ => return None,
    };
    Some(if is_callee { EventKind::LegEnded(outcome) } else { EventKind::Ended(Some(outcome)) })
}

pub(super) fn document(account: &Account, answer: &Instruction) -> Document {
    let actions = match answer {
        Instruction::Connect(it) => json!([connect(account, it)]),
        Instruction::Whisper(text) => json!([{ "action": "talk", "text": text }]),
        // A call without actions ends. There is no other way to refuse a call.
        Instruction::Refuse(_) => json!([]),
        Instruction::Nothing => {
            return Document { content_type: "application/json", body: "{}".into() };
        }
    };
    Document { content_type: "application/json", body: actions.to_string() }
}

/// The action that connects the call to a destination. The callee sees one of the account's
/// numbers, because Vonage does not show any other number. By default, this is the called number;
/// the configuration can set another one.
fn connect(account: &Account, connect: &Connect) -> Value {
    let query = connect.query();
    let mut endpoint = if connect.is_sip() {
        let from = connect.from.clone().unwrap_or_default();
        json!({ "type": "sip", "uri": connect.to, "headers": { "ringwell-from": from } })
    } else {
        json!({ "type": "phone", "number": connect.to.trim_start_matches('+') })
    };
    if let (true, Some(endpoint)) = (connect.whisper, endpoint.as_object_mut()) {
        let url = account.hook(&format!("whisper?{query}"));
        endpoint.insert("onAnswer".to_owned(), json!({ "url": url }));
    }
    let number = connect.caller_id.as_deref().unwrap_or(&connect.number).trim_start_matches('+');
    json!({
        "action": "connect",
        "endpoint": [endpoint],
        "from": number,
        "timeout": connect.timeout_s,
        // The answer to an event about a destination contains the next destination.
        "eventType": "synchronous",
        "eventUrl": [account.hook(&format!("dial?{query}"))],
    })
}
