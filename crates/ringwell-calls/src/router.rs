//! Queries the user's program for a call's destination, within a time limit.
//!
//! Owns the formats of the query and the answer. If the answer is late or invalid, the
//! configuration determines the destination. Source: docs/spec/calls.md, "A program that routes".

use std::collections::{HashMap, VecDeque};

use ringwell_config::{RoutingSettings, is_call_target};
use ringwell_core::Millis;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::caller::e164;
use crate::clock::moment;
use crate::log::CallRow;
use crate::route::RoutePlan;
use crate::webhook::send::{Post, Sender};
use crate::webhook::sign;

/// The maximum number of destinations in an answer. The limit is the same for a rule in the
/// configuration.
const TARGETS_MAX: usize = 10;
const WHISPER_BYTES_MAX: usize = 200;
/// The accepted range of a destination's ringing time, in seconds.
const TIMEOUT_S: std::ops::RangeInclusive<u64> = 5..=120;
/// The maximum number of calls for which the program's answers are remembered. A remembered answer
/// is needed if the first destination of a call does not pick up.
const REMEMBERED_MAX: usize = 10_000;

/// The program's answer. Missing members default to the configuration's values.
#[derive(Debug, Default, Deserialize)]
struct RoutingAnswer {
    #[serde(default)]
    to: Vec<String>,
    timeout: Option<u64>,
    whisper: Option<String>,
    caller_id: Option<String>,
}

/// Queries the program for the destinations of `call`. The default is `plan`, which follows from
/// the configuration. Returns `None` if the program selects the default.
///
/// # Errors
/// The reason why there is no usable answer, as text for the operator.
pub(crate) async fn ask(
    settings: &RoutingSettings,
    sender: &Sender,
    call: &CallRow,
    plan: Option<&RoutePlan>,
    (now, until): (Millis, Instant),
) -> Result<Option<RoutePlan>, String> {
    let mut data = call.to_json();
    data["default"] = plan.map_or(
        Value::Null,
        |plan| json!({ "to": plan.to, "timeout": plan.timeout_s, "whisper": plan.whisper }),
    );
    let kind = "call.routing";
    let body = json!({ "type": kind, "timestamp": moment(now), "data": data }).to_string();
    let (id, seconds) = (format!("route_{}", call.id), now.0 / 1000);
    let secret = String::from_utf8_lossy(settings.secret.reveal()).into_owned();
    let signature = sign::sign(&[&secret], &id, seconds, body.as_bytes());
    let headers = vec![
        ("webhook-id", id),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", signature),
    ];
    let post = Post { url: &settings.url, headers, body: &body };
    let most = until.saturating_duration_since(Instant::now()).min(settings.budget);
    let answered = sender.post(post, now, most).await?;
    match answered.status {
        204 => Ok(None),
        200 => read(&answered.body?, call.number.as_deref(), plan),
        status => Err(format!("the program answered {status}")),
    }
}

/// Parses and checks the answer for a call to `number`.
fn read(
    body: &[u8],
    number: Option<&str>,
    default: Option<&RoutePlan>,
) -> Result<Option<RoutePlan>, String> {
    let answer: RoutingAnswer = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let RoutingAnswer { to, timeout, whisper, caller_id } = answer;
    if to.is_empty() {
        return Ok(None);
    }
    if to.len() > TARGETS_MAX || !to.iter().all(|target| is_call_target(target)) {
        return Err(
            "to: must contain at most ten destinations, each a SIP address or a number that starts \
             with +"
                .to_owned(),
        );
    }
    if to.iter().any(|target| number == Some(target)) {
        return Err(
            "to: must not be the called number itself, because the call would loop".to_owned()
        );
    }
    if timeout.is_some_and(|seconds| !TIMEOUT_S.contains(&seconds)) {
        return Err("timeout: must be 5 to 120 seconds".to_owned());
    }
    let is_line = |text: &String| {
        (1..=WHISPER_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
    };
    if !whisper.as_ref().is_none_or(is_line) {
        return Err("whisper: must be 1 to 200 bytes on one line".to_owned());
    }
    if !caller_id.as_deref().is_none_or(|text| text.starts_with('+') && e164(text).is_some()) {
        return Err("caller_id: must be a number that starts with +".to_owned());
    }
    Ok(Some(RoutePlan {
        to,
        timeout_s: timeout.or(default.map(|plan| plan.timeout_s)).unwrap_or(30),
        whisper: whisper.or_else(|| default?.whisper.clone()),
        caller_id: caller_id.or_else(|| default?.caller_id.clone()),
    }))
}

/// The program's answers for calls that may still need their next destination. After a restart, the
/// answers are lost, and the configuration determines the next destinations.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    plans: HashMap<String, RoutePlan>,
    order: VecDeque<String>,
}

impl Remembered {
    pub(crate) fn keep(&mut self, call: &str, plan: RoutePlan) {
        if self.plans.insert(call.to_owned(), plan).is_none() {
            self.order.push_back(call.to_owned());
        }
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.plans.remove(&oldest);
        }
    }

    pub(crate) fn of(&self, call: &str) -> Option<RoutePlan> {
        self.plans.get(call).cloned()
    }
}

#[cfg(test)]
#[test]
fn an_answer_is_checked_and_completed_by_the_default() {
    let default = RoutePlan {
        to: vec!["+18005550199".to_owned()],
        timeout_s: 25,
        whisper: Some("web".to_owned()),
        caller_id: None,
    };
    let number = Some("+12005550100");
    let read = |body: &str| read(body.as_bytes(), number, Some(&default));
    let plan = read(r#"{"to":["sip:a@pbx.example","+493012345678"],"more":1}"#).unwrap().unwrap();
    assert_eq!((plan.to.len(), plan.timeout_s, plan.whisper.as_deref()), (2, 25, Some("web")));
    assert_eq!(read("{}"), Ok(None));
    assert_eq!(read(r#"{"to":[]}"#), Ok(None));
    for bad in [
        "",
        "[]",
        r#"{"to":["18005550199"]}"#,
        r#"{"to":["+18005550199","+12005550100"]}"#,
        r#"{"to":["sip:a\"b"]}"#,
        r#"{"to":["+18005550199"],"timeout":1}"#,
        r#"{"to":["+18005550199"],"whisper":"a\nb"}"#,
        r#"{"to":["+18005550199"],"caller_id":"12"}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
    let mut remembered = Remembered::default();
    for call in 0..=REMEMBERED_MAX {
        remembered.keep(&call.to_string(), default.clone());
    }
    assert!(remembered.of("0").is_none() && remembered.of("1").is_some());
}
