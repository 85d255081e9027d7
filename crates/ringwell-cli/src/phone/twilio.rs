//! Twilio. `SignalWire` and Telnyx (`TeXML`) use the same forms and documents.

use std::time::Duration;

use super::markup::{attribute, inner, number};
use super::provider_side::{Body, Dial, Report, Ring, Side, Step};

pub(super) struct Twiml;

/// Returns the fields that describe the caller's leg.
fn leg(ring: &Ring<'_>) -> Vec<(&'static str, String)> {
    vec![
        ("CallSid", ring.id.to_owned()),
        ("From", ring.from.to_owned()),
        ("To", ring.to.to_owned()),
        ("Direction", "inbound".to_owned()),
    ]
}

impl Side for Twiml {
    fn begins(&self, ring: &Ring<'_>) -> Body {
        let mut fields = leg(ring);
        fields.push(("CallStatus", "ringing".to_owned()));
        Body::Form(fields)
    }

    fn read(&self, document: &str) -> Option<Dial> {
        let destination = inner(document, "Number").or_else(|| inner(document, "Sip"))?;
        Some(Dial {
            destination: destination.to_owned(),
            place: 0,
            timeout: number(document, "timeout"),
            status: attribute(document, "statusCallback"),
            action: attribute(document, "action"),
        })
    }

    fn reports(&self, ring: &Ring<'_>, dial: &Dial, step: Step) -> Vec<Report> {
        let (place, state, dialled) = match step {
            Step::Ringing => ("1", "ringing", None),
            Step::Answered => ("2", "in-progress", None),
            Step::Completed(_) => ("3", "completed", Some("completed")),
            Step::NoAnswer => ("2", "no-answer", Some("no-answer")),
        };
        let mut callee = vec![
            ("CallSid", format!("{}-callee{}", ring.id, dial.place)),
            ("ParentCallSid", ring.id.to_owned()),
            ("SequenceNumber", place.to_owned()),
            ("CallStatus", state.to_owned()),
        ];
        let mut end = leg(ring);
        end.extend(dialled.map(|dialled| ("DialCallStatus", dialled.to_owned())));
        if let Step::Completed(talk) = step {
            let seconds = talk.as_secs().to_string();
            callee.push(("CallDuration", seconds.clone()));
            end.extend([("DialBridged", "true".to_owned()), ("DialCallDuration", seconds)]);
        }
        let report = dial.status.clone().map(|to| (to, Body::Form(callee)));
        let last = dial.action.clone().filter(|_| dialled.is_some());
        report.into_iter().chain(last.map(|to| (to, Body::Form(end)))).collect()
    }
    fn ends(&self, ring: &Ring<'_>, talk: Option<Duration>) -> Vec<Report> {
        let mut caller = leg(ring);
        caller.push(("SequenceNumber", "0".to_owned()));
        if let Some(talk) = talk {
            caller.push(("CallStatus", "completed".to_owned()));
            caller.push(("CallDuration", talk.as_secs().to_string()));
        } else {
            caller.push(("CallStatus", "no-answer".to_owned()));
        }
        vec![("status".to_owned(), Body::Form(caller))]
    }
}
