//! Bandwidth: JSON events and BXML documents. Bandwidth reports that the destination's leg ended,
//! but not that it rang.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::markup::{attribute, inner, number};
use super::provider_side::{Body, Dial, Report, Ring, Side, Step};

pub(super) struct Bandwidth;

fn event(ring: &Ring<'_>, name: &str) -> Value {
    json!({
        "eventType": name,
        "eventTime": Timestamp::now().to_string(),
        "callId": ring.id,
        "direction": "inbound",
        "from": ring.from,
        "to": ring.to,
    })
}

/// Returns the event for the end of the destination's leg.
fn end(ring: &Ring<'_>, dial: &Dial, cause: &str, talk: Option<Duration>) -> Vec<Report> {
    let mut done = event(ring, "transferComplete");
    done["cause"] = cause.into();
    let now = Timestamp::now();
    let answered = talk.and_then(|talk| now.checked_sub(talk).ok());
    if let Some(answered) = answered {
        done["answerTime"] = answered.to_string().into();
    }
    done["endTime"] = now.to_string().into();
    dial.action.clone().map(|to| (to, Body::Json(done))).into_iter().collect()
}

impl Side for Bandwidth {
    fn begins(&self, ring: &Ring<'_>) -> Body {
        let mut begun = event(ring, "initiate");
        begun["startTime"] = Timestamp::now().to_string().into();
        Body::Json(begun)
    }

    fn read(&self, document: &str) -> Option<Dial> {
        let destination = inner(document, "PhoneNumber").or_else(|| inner(document, "SipUri"))?;
        Some(Dial {
            destination: destination.to_owned(),
            place: 0,
            timeout: number(document, "callTimeout"),
            status: None,
            action: attribute(document, "transferCompleteUrl"),
        })
    }

    fn reports(&self, ring: &Ring<'_>, dial: &Dial, step: Step) -> Vec<Report> {
        match step {
            Step::Ringing | Step::Answered => Vec::new(),
            Step::Completed(talk) => end(ring, dial, "hangup", Some(talk)),
            Step::NoAnswer => end(ring, dial, "timeout", None),
        }
    }
    fn ends(&self, ring: &Ring<'_>, _: Option<Duration>) -> Vec<Report> {
        let mut over = event(ring, "disconnect");
        over["endTime"] = Timestamp::now().to_string().into();
        over["cause"] = "hangup".into();
        vec![("disconnect".to_owned(), Body::Json(over))]
    }
}
