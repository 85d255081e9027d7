//! Plivo: requests are forms, in which numbers are written without `+`.

use std::time::Duration;

use super::markup::{attribute, inner, number};
use super::provider_side::{Body, Dial, Report, Ring, Side, Step};

pub(super) struct Plivo;

fn leg(ring: &Ring<'_>, state: &str) -> Vec<(&'static str, String)> {
    let plain = |number: &str| number.trim_start_matches('+').to_owned();
    vec![
        ("CallUUID", ring.id.to_owned()),
        ("From", plain(ring.from)),
        ("To", plain(ring.to)),
        ("Direction", "inbound".to_owned()),
        ("CallStatus", state.to_owned()),
    ]
}

impl Side for Plivo {
    fn begins(&self, ring: &Ring<'_>) -> Body {
        let mut fields = leg(ring, "ringing");
        fields.push(("Event", "StartApp".to_owned()));
        Body::Form(fields)
    }

    fn read(&self, document: &str) -> Option<Dial> {
        let destination = inner(document, "Number").or_else(|| inner(document, "User"))?;
        Some(Dial {
            destination: destination.to_owned(),
            place: 0,
            timeout: number(document, "timeout"),
            status: attribute(document, "callbackUrl"),
            action: attribute(document, "action"),
        })
    }

    fn reports(&self, ring: &Ring<'_>, dial: &Dial, step: Step) -> Vec<Report> {
        let report = |action: &str, more: Vec<(&'static str, String)>| {
            let mut fields = vec![
                ("DialALegUUID", ring.id.to_owned()),
                ("DialBLegUUID", format!("{}-callee{}", ring.id, dial.place)),
                ("DialAction", action.to_owned()),
            ];
            fields.extend(more);
            dial.status.clone().map(|to| (to, Body::Form(fields)))
        };
        let last = |state: &str| {
            let mut fields = leg(ring, "in-progress");
            fields.push(("DialStatus", state.to_owned()));
            dial.action.clone().map(|to| (to, Body::Form(fields)))
        };
        let sent = match step {
            // Plivo does not report ringing.
            Step::Ringing => [None, None],
            Step::Answered => [report("answer", Vec::new()), None],
            Step::Completed(talk) => {
                let seconds = ("DialBLegDuration", talk.as_secs().to_string());
                let cause = ("DialBLegHangupCauseCode", "4000".to_owned());
                [report("hangup", vec![seconds, cause]), last("completed")]
            }
            Step::NoAnswer => {
                let cause = ("DialBLegHangupCauseCode", "3000".to_owned());
                [report("hangup", vec![cause]), last("no-answer")]
            }
        };
        sent.into_iter().flatten().collect()
    }
    fn ends(&self, ring: &Ring<'_>, talk: Option<Duration>) -> Vec<Report> {
        let (state, code) =
            if talk.is_some() { ("completed", "4000") } else { ("no-answer", "3000") };
        let mut caller = leg(ring, state);
        caller.push(("Event", "Hangup".to_owned()));
        caller.push(("HangupCauseCode", code.to_owned()));
        vec![("hangup".to_owned(), Body::Form(caller))]
    }
}
