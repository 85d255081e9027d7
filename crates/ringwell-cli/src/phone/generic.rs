//! The generic provider, which reports every event in the same JSON format.

use std::time::Duration;

use serde_json::{Value, json};

use super::provider_side::{Body, Dial, Report, Ring, Side, Step};

pub(super) struct Generic;

fn event(ring: &Ring<'_>, name: &str) -> Value {
    json!({ "call_id": ring.id, "event": name, "from": ring.from, "to": ring.to })
}

impl Side for Generic {
    fn begins(&self, ring: &Ring<'_>) -> Body {
        Body::Json(event(ring, "started"))
    }

    fn read(&self, document: &str) -> Option<Dial> {
        let answer: Value = serde_json::from_str(document).ok()?;
        Some(Dial {
            destination: answer["destination"].as_str()?.to_owned(),
            place: 0,
            timeout: answer["timeout"].as_u64(),
            status: None,
            action: None,
        })
    }

    fn reports(&self, ring: &Ring<'_>, _: &Dial, step: Step) -> Vec<Report> {
        let event = match step {
            Step::Ringing => event(ring, "ringing"),
            Step::Answered => event(ring, "answered"),
            Step::Completed(talk) => {
                let mut event = event(ring, "ended");
                event["status"] = "answered".into();
                event["talk_seconds"] = talk.as_secs().into();
                event
            }
            Step::NoAnswer => {
                let mut event = event(ring, "ended");
                event["status"] = "no_answer".into();
                event
            }
        };
        vec![("events".to_owned(), Body::Json(event))]
    }
    fn ends(&self, _: &Ring<'_>, _: Option<Duration>) -> Vec<Report> {
        // The call ends when the destination's leg ends.
        Vec::new()
    }
}
