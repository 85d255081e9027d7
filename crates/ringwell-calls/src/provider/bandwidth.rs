//! Bandwidth: HTTP Basic authentication, JSON events, and answers in BXML.

use ringwell_config::credentials;
use serde_json::Value;

use super::connect::{Connect, Document, Instruction};
use super::moment;
use super::report::{Hook, Report, Stir, Unreadable};
use super::request::Incoming;
use super::signed::Unsigned;
use crate::account::Account;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::digest;
use crate::markup::Element;

/// Checks the name and password. Each of the account's secrets has the form `user:password`.
pub(super) fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    let presented = request.header("authorization");
    let presented = credentials(presented, "Basic").and_then(digest::from_base64);
    let Some(presented) = presented else {
        let hint = "in Bandwidth's Dashboard, set the user name and password for the callbacks of \
                    the Voice application";
        return Err(Unsigned::new("Authorization: Basic is missing").hint(Some(hint.to_owned())));
    };
    let fits = account
        .secrets
        .iter()
        .fold(false, |found, secret| found | digest::same(secret, &presented));
    if fits { Ok(()) } else { Err(Unsigned::new("the user name or the password does not match")) }
}

pub(super) fn read(_: Hook, request: &Incoming) -> Result<Report, Unreadable> {
    let body: Value =
        serde_json::from_slice(&request.body).map_err(|_| Unreadable::Form("JSON"))?;
    let text = |name: &str| body[name].as_str().filter(|text| !text.is_empty());
    let time = |name: &str| text(name).and_then(moment::parse);
    let leg = request.leg();
    let was_answered = text("answerTime").is_some();
    let event = text("eventType").unwrap_or_default();
    let (kind, at) = match event {
        "initiate" => (Some(EventKind::Started), text("startTime")),
        "answer" => (Some(EventKind::Ringing), text("eventTime")),
        "transferAnswer" => (Some(EventKind::Answered), text("eventTime")),
        "transferComplete" | "transferDisconnect" => {
            let outcome = outcome(text("cause").unwrap_or_default(), was_answered);
            let is_end = matches!(outcome, Outcome::Answered | Outcome::CallerGaveUp);
            let kind =
                if is_end { EventKind::Ended(Some(outcome)) } else { EventKind::LegEnded(outcome) };
            (Some(kind), text("eventTime"))
        }
        // Bandwidth itself picks up the caller's leg. Therefore, the end of this leg does not show
        // whether a destination answered.
        "disconnect" => (Some(EventKind::Ended(None)), text("endTime")),
        _ => (None, None),
    };
    let at = moment::believed(at, request.received, &request.target);
    let ended_at = time("endTime").or(time("eventTime"));
    let talk =
        time("answerTime").zip(ended_at).map(|(from, to)| to.0.saturating_sub(from.0) / 1000);
    let is_talk = event.starts_with("transfer")
        && matches!(kind, Some(EventKind::Ended(Some(Outcome::Answered))));
    let talk_seconds = talk.filter(|_| is_talk).and_then(|talk| u32::try_from(talk).ok());
    let key = format!("{event}:{}", leg.place);
    // Reports about the callee's leg contain that leg's numbers, not the caller's leg's.
    let is_callers = matches!(event, "initiate" | "answer" | "disconnect")
        && text("direction") != Some("outbound");
    let shaken = &body["stirShaken"];
    let stir = shaken.is_object().then(|| Stir {
        verstat: shaken["verstat"].as_str().map(str::to_owned),
        attestation: shaken["attestationIndicator"].as_str().map(str::to_owned),
    });
    Ok(Report {
        call: text("callId").ok_or(Unreadable::NoCall)?.to_owned(),
        events: kind.map(|kind| CallEvent { key, kind, at, talk_seconds }).into_iter().collect(),
        to: text("to").map(str::to_owned).filter(|_| is_callers),
        from: text("from").map(str::to_owned).filter(|_| is_callers),
        stir,
        leg,
        ..Report::default()
    })
}

fn outcome(cause: &str, was_answered: bool) -> Outcome {
    match cause {
        "hangup" if was_answered => Outcome::Answered,
        "hangup" | "cancel" => Outcome::CallerGaveUp,
        "busy" => Outcome::Busy,
        "timeout" => Outcome::NoAnswer,
        "rejected" => Outcome::Rejected,
        _ => Outcome::Failed,
    }
}

pub(super) fn document(account: &Account, answer: &Instruction) -> Document {
    let response = Element::new("Response");
    let response = match answer {
        Instruction::Connect(connect) => response.child(&transfer(account, connect)),
        Instruction::Refuse(_) => response.child(&Element::new("Hangup")),
        Instruction::Whisper(text) => response.child(&Element::new("SpeakSentence").text(text)),
        Instruction::Nothing => response,
    };
    Document::xml(response.document())
}

fn transfer(account: &Account, connect: &Connect) -> Element {
    let query = connect.query();
    let noun = if connect.is_sip() { "SipUri" } else { "PhoneNumber" };
    let whisper = connect.whisper.then(|| account.hook(&format!("whisper?{query}")));
    let target = Element::new(noun).with_some("transferAnswerUrl", whisper).text(&connect.to);
    // Later callbacks must contain the same name and password.
    let secret = account.secrets.first().and_then(|secret| str::from_utf8(secret).ok());
    let (user, password) = secret.and_then(|secret| secret.split_once(':')).unzip();
    let caller = connect.caller_id.as_ref().or(connect.from.as_ref());
    Element::new("Transfer")
        .with_some("transferCallerId", caller)
        .with("callTimeout", connect.timeout_s.min(300))
        .with("transferCompleteUrl", account.hook(&format!("complete?{query}")))
        .with_some("username", user)
        .with_some("password", password)
        .with("tag", &connect.call)
        .child(&target)
}
