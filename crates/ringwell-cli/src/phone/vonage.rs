//! Vonage: JSON in both directions.

use std::time::Duration;

use serde_json::{Value, json};

use super::provider_side::{Body, Dial, Report, Ring, Side, Step};

pub(super) struct Vonage;

fn plain(number: &str) -> &str {
    number.trim_start_matches('+')
}

impl Side for Vonage {
    fn begins(&self, ring: &Ring<'_>) -> Body {
        Body::Json(json!({
            "uuid": format!("{}-caller", ring.id),
            "conversation_uuid": ring.id,
            "from": plain(ring.from),
            "to": plain(ring.to),
        }))
    }

    fn read(&self, document: &str) -> Option<Dial> {
        let actions: Value = serde_json::from_str(document).ok()?;
        let connect = actions.as_array()?.iter().find(|it| it["action"] == "connect")?;
        let endpoint = &connect["endpoint"][0];
        let destination = endpoint["number"].as_str().or_else(|| endpoint["uri"].as_str())?;
        Some(Dial {
            destination: destination.to_owned(),
            place: 0,
            timeout: connect["timeout"].as_u64(),
            status: connect["eventUrl"][0].as_str().map(str::to_owned),
            action: None,
        })
    }

    fn reports(&self, ring: &Ring<'_>, dial: &Dial, step: Step) -> Vec<Report> {
        let (status, talk) = match step {
            Step::Ringing => ("ringing", None),
            Step::Answered => ("answered", None),
            Step::Completed(talk) => ("completed", Some(talk.as_secs().to_string())),
            Step::NoAnswer => ("timeout", None),
        };
        let mut event = json!({
            "uuid": format!("{}-callee{}", ring.id, dial.place),
            "conversation_uuid": ring.id,
            "direction": "outbound",
            "from": plain(ring.from),
            "to": dial.destination,
            "status": status,
            "timestamp": jiff::Timestamp::now().to_string(),
        });
        if let Some(talk) = talk {
            event["duration"] = talk.into();
        }
        dial.status.clone().map(|to| (to, Body::Json(event))).into_iter().collect()
    }
    fn ends(&self, ring: &Ring<'_>, talk: Option<Duration>) -> Vec<Report> {
        let mut event = json!({
            "uuid": format!("{}-caller", ring.id),
            "conversation_uuid": ring.id,
            "direction": "inbound",
            "from": plain(ring.from),
            "to": plain(ring.to),
            "status": "completed",
            "timestamp": jiff::Timestamp::now().to_string(),
        });
        if let Some(talk) = talk {
            event["duration"] = talk.as_secs().to_string().into();
        }
        vec![("event".to_owned(), Body::Json(event))]
    }
}
