//! Telnyx: Ed25519 signatures over timestamp and body; `TeXML`, which is like Twilio's `TwiML`; and
//! Call Control events, which are only logged.

use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::Value;

use super::moment;
use super::report::{Hook, Report, Stir, Unreadable};
use super::request::Incoming;
use super::signed::Unsigned;
use super::twilio;
use crate::account::Account;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::digest;

const SIGNATURE: &str = "telnyx-signature-ed25519";
const TIMESTAMP: &str = "telnyx-timestamp";
/// The largest difference between a request's timestamp and the server's clock, in either
/// direction.
const SECONDS_MAX: u64 = 300;

/// Checks the signature. The account's secrets are public keys in base64.
pub(super) fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    let (signature, timestamp) = (request.header(SIGNATURE), request.header(TIMESTAMP));
    let signed = [timestamp.as_bytes(), b"|", &request.body].concat();
    let refused = |reason| Err(Unsigned::new(reason));
    if signature.is_empty() {
        return refused("the signature is missing");
    }
    let seconds = timestamp.parse::<u64>().ok();
    if seconds.is_none_or(|at| at.abs_diff(request.received.0 / 1000) > SECONDS_MAX) {
        return refused("the timestamp is more than five minutes off: check this server's clock");
    }
    let Some(signature) = digest::from_base64(signature) else {
        return refused("the signature is not base64");
    };
    let fits = |key: &Vec<u8>| {
        let key = str::from_utf8(key).ok().and_then(digest::from_base64).unwrap_or_default();
        UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature).is_ok()
    };
    if account.secrets.iter().any(fits) {
        Ok(())
    } else {
        refused("the signature does not match the account's public key")
    }
}

pub(super) fn read(hook: Hook, request: &Incoming) -> Result<Report, Unreadable> {
    if !request.body.starts_with(b"{") {
        let mut report = twilio::read(hook, request)?;
        let attestation = request.form().find("ShakenStirAttestation").map(str::to_owned);
        if attestation.is_some() && report.stir.is_none() {
            report.stir = Some(Stir { verstat: None, attestation });
        }
        return Ok(report);
    }
    let body: Value =
        serde_json::from_slice(&request.body).map_err(|_| Unreadable::Form("JSON"))?;
    let (data, payload) = (&body["data"], &body["data"]["payload"]);
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let is_callers = payload["direction"] != "outgoing";
    let call = text(&payload["call_session_id"]).or_else(|| text(&payload["call_control_id"]));
    let at = moment::believed(data["occurred_at"].as_str(), request.received, &request.target);
    let kind = match (data["event_type"].as_str().unwrap_or_default(), is_callers) {
        ("call.initiated", true) => Some(EventKind::Started),
        ("call.initiated", false) => Some(EventKind::Ringing),
        // The Call Control application itself picks up the caller's leg. This does not mean that
        // the callee has picked up.
        ("call.answered", false) | ("call.bridged", true) => Some(EventKind::Answered),
        ("call.hangup", true) => Some(EventKind::Ended(hangup(payload))),
        ("call.hangup", false) => hangup(payload).map(EventKind::LegEnded),
        _ => None,
    };
    let key = data["id"].as_str().unwrap_or_default().to_owned();
    let event = kind.map(|kind| CallEvent { key, kind, at, talk_seconds: None });
    let attestation = text(&payload["shaken_stir_attestation"]);
    Ok(Report {
        call: call.ok_or(Unreadable::NoCall)?,
        events: event.into_iter().collect(),
        to: text(&payload["to"]).filter(|_| is_callers),
        from: text(&payload["from"]).filter(|_| is_callers),
        stir: attestation.map(|it| Stir { verstat: None, attestation: Some(it) }),
        ..Report::default()
    })
}

/// The outcome for a hangup cause. `None` if one of the parties hung up, because other events show
/// whether they talked.
fn hangup(payload: &Value) -> Option<Outcome> {
    match payload["hangup_cause"].as_str().unwrap_or_default() {
        "normal_clearing" => None,
        "user_busy" => Some(Outcome::Busy),
        "no_answer" | "timeout" => Some(Outcome::NoAnswer),
        "call_rejected" => Some(Outcome::Rejected),
        "originator_cancel" => Some(Outcome::CallerGaveUp),
        _ => Some(Outcome::Failed),
    }
}
