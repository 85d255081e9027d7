//! `/v1/sip/route` and `/v1/freeswitch/dialplan`: return a call's destination to a switch.
//!
//! Kamailio, Asterisk and `FreeSWITCH` send a request before they connect a call. The call is
//! logged with its visitor, like a call that a provider reports. The answer is sent within
//! `calls.deadline`. Source: docs/spec/sip.md.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::problem::{Problem, read_json, read_query};
use crate::attribution::Attribution;
use crate::call::{CallEvent, EventKind};
use crate::clock::now;
use crate::form::Form;
use crate::markup::Element;
use crate::provider::{Refusal, Stir};
use crate::route::RoutePlan;
use crate::service::{Decision, IncomingCall, Service};

/// The maximum size of a request body.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// The maximum length of the name that a switch sends for a call, trunk or gateway, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// The account for calls from switches that do not name a trunk.
const ACCOUNT: &str = "sip";

/// The paths for switches.
pub(super) const PATHS: [&str; 2] = ["/v1/sip/route", "/v1/freeswitch/dialplan"];

/// The routes. A request reaches them only after its token has been checked.
pub(super) fn routes() -> Router<Service> {
    Router::new().route(PATHS[0], post(route)).route(PATHS[1], post(dialplan))
}

/// A switch's request. Unknown members are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Question {
    /// The called number, given as digits or as a SIP or `tel:` address.
    #[serde(deserialize_with = "text_or_nothing")]
    to: String,
    #[serde(deserialize_with = "text_or_nothing")]
    from: String,
    call_id: String,
    trunk: Option<String>,
    /// The host, optionally with a port, that connects calls to telephone numbers.
    gateway: Option<String>,
    /// Headers of the INVITE request that contain more information about the caller.
    headers: BTreeMap<String, String>,
}

/// Reads a string or number. Any other value is read as an empty string, because the call must be
/// connected even if a member is invalid.
fn text_or_nothing<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(value)? {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    })
}

impl Question {
    /// Parses JSON or a form. Distinguishes them by the first byte, because some switches do not
    /// declare the format.
    fn read(body: &[u8]) -> Result<Self, Problem> {
        if body.len() > BODY_BYTES_MAX {
            return Err(Problem::bad_request("the body is larger than 16 KiB"));
        }
        if body.trim_ascii_start().first() == Some(&b'{') {
            return read_json(body);
        }
        let form = Form::read(body);
        let text = |name: &str| form.get(name).to_owned();
        Ok(Self {
            to: text("to"),
            from: text("from"),
            call_id: text("call_id"),
            trunk: form.find("trunk").map(str::to_owned),
            gateway: form.find("gateway").map(str::to_owned),
            headers: BTreeMap::new(),
        })
    }

    /// Parses the channel variables that `FreeSWITCH` sends as a form.
    fn of_freeswitch(body: &[u8]) -> Self {
        let form = Form::read(body.get(..BODY_BYTES_MAX).unwrap_or(body));
        let text = |name: &str| form.get(name).to_owned();
        Self {
            to: text("Caller-Destination-Number"),
            from: text("Caller-Caller-ID-Number"),
            call_id: text("Unique-ID"),
            ..Self::default()
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The caller's number or address. Prefers the identity that the trunk asserts, because it is
    /// more reliable than the caller's own `From`.
    fn caller(&self) -> Option<String> {
        let hides = |value: &str| value.split(';').any(|it| it.trim().eq_ignore_ascii_case("id"));
        if self.header("privacy").is_some_and(hides) {
            return None;
        }
        let vouched = self.header("p-asserted-identity").map(address);
        let from = vouched.unwrap_or_else(|| address(&self.from));
        (!from.is_empty()).then(|| from.to_owned())
    }

    /// The telephone network's verdict on whether the caller's number is genuine.
    fn stir(&self) -> Option<Stir> {
        let asserted = self.header("p-asserted-identity");
        let verstat = [asserted, Some(self.from.as_str())].into_iter().flatten().find_map(|text| {
            let value = text.split_once("verstat=")?.1;
            value.split([';', '>', '@', '"']).next().map(str::to_owned)
        });
        let attestation = self.header("p-attestation-indicator").map(|it| it.trim().to_owned());
        let is_there = verstat.is_some() || attestation.is_some();
        is_there.then_some(Stir { verstat, attestation })
    }

    fn call(&self) -> Result<IncomingCall, Problem> {
        if !is_name(&self.call_id) {
            return Err(Problem::bad_request("call_id: must be 1 to 200 visible ASCII characters"));
        }
        if self.trunk.as_deref().is_some_and(|trunk| !is_name(trunk)) {
            return Err(Problem::bad_request("trunk: must be 1 to 200 visible ASCII characters"));
        }
        let received = now();
        let started = CallEvent {
            key: "started".to_owned(),
            kind: EventKind::Started,
            at: received,
            talk_seconds: None,
        };
        Ok(IncomingCall {
            account: self.trunk.clone().unwrap_or_else(|| ACCOUNT.to_owned()),
            provider: ACCOUNT.to_owned(),
            provider_call: self.call_id.clone(),
            to: Some(address(&self.to).to_owned()),
            from: self.caller(),
            stir: self.stir(),
            events: vec![started],
            received,
        })
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether `text` is a host, with or without a port, or the name of a gateway. Refuses characters
/// that would end or extend the SIP address or dial string into which `text` is inserted.
fn is_gateway(text: &str) -> bool {
    is_name(text)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte))
}

/// Extracts the address from a header value such as `"Name" <sip:1@host>;tag=2`.
fn address(text: &str) -> &str {
    let inner = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or(text, |(address, _)| address).trim()
}

/// The destination of a call, in the formats that switches use.
struct SwitchAnswer {
    decision: Decision,
    gateway: Option<String>,
}

impl SwitchAnswer {
    const fn plan(&self) -> Option<&RoutePlan> {
        self.decision.destination.plan()
    }

    /// Each destination's address, in the order of attempts.
    fn contacts(&self) -> Vec<String> {
        let of = |to: &String| match &self.gateway {
            _ if !to.starts_with('+') => to.clone(),
            Some(gateway) => format!("sip:{to}@{gateway}"),
            None => format!("tel:{to}"),
        };
        self.plan().into_iter().flat_map(|plan| &plan.to).map(of).collect()
    }

    /// The number to show to the callee: the routing rule's number or, if there is none, the
    /// caller's number.
    fn caller_id(&self) -> Option<&str> {
        let configured = self.plan().and_then(|plan| plan.caller_id.as_deref());
        configured.or_else(|| self.decision.caller.number())
    }

    fn timeout_s(&self) -> Option<u64> {
        self.plan().map(|plan| plan.timeout_s)
    }

    fn destination(&self) -> Option<&str> {
        self.plan()?.to.first().map(String::as_str)
    }

    /// The answer in JSON. The attribution contains the visitor's parameters, which may be long, so
    /// a switch may ask for an answer without them.
    fn json(&self, with_attribution: bool) -> Value {
        let contacts = self.contacts();
        let attribution = self.decision.attribution.clone().filter(|_| with_attribution);
        let attribution = attribution.map(Attribution::shown);
        let mut answer = json!({ "call": self.decision.call });
        let Some(members) = answer.as_object_mut() else { return answer };
        // Members without a value are omitted, because switches would interpret `null` as text.
        let mut put = |name: &str, value: Value| {
            if !value.is_null() {
                members.insert(name.to_owned(), value);
            }
        };
        put("contact", json!(contacts.first()));
        put("destination", json!(self.destination()));
        put("caller_id", json!(self.caller_id()));
        put("timeout", json!(self.timeout_s()));
        put("refuse", json!(self.decision.destination.refused().map(Refusal::name)));
        put("headers", json!({ "X-Ringwell-Call": self.decision.call }));
        put("attribution", json!(attribution));
        put("contacts", json!(contacts));
        answer
    }

    /// The answer's names and values, for formats that consist of name-value pairs.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let contact = self.contacts().into_iter().next();
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        let pairs = [
            ("call", self.decision.call.clone()),
            ("contact", contact.unwrap_or_default()),
            ("refuse", text(self.decision.destination.refused().map(Refusal::name))),
            ("destination", text(self.destination())),
            ("caller_id", text(self.caller_id())),
            ("timeout", self.timeout_s().map(|it| it.to_string()).unwrap_or_default()),
        ];
        pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
struct Wanted {
    format: Option<String>,
    /// `yes`, the default, or `no`: `no` leaves the attribution out of the JSON answer.
    attribution: Option<String>,
    gateway: Option<String>,
}

async fn decide(service: &Service, question: &Question) -> Result<Decision, Problem> {
    let (call, of) = (question.call()?, service.clone());
    Ok(service.run(async move { of.incoming(call).await }).await?)
}

async fn route(
    State(service): State<Service>,
    wanted: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let wanted = read_query(wanted)?;
    let question = Question::read(&body)?;
    let gateway = question.gateway.clone().or(wanted.gateway);
    if gateway.as_deref().is_some_and(|gateway| !is_gateway(gateway)) {
        return Err(Problem::bad_request(
            "gateway: must be a gateway's name, or a host with an optional port",
        ));
    }
    let with_attribution = match wanted.attribution.as_deref() {
        None | Some("yes") => true,
        Some("no") => false,
        Some(_) => return Err(Problem::bad_request("attribution: must be yes or no")),
    };
    let answer = SwitchAnswer { decision: decide(&service, &question).await?, gateway };
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_text = accepts.is_some_and(|value| value.starts_with("text/plain"));
    Ok(match wanted.format.as_deref() {
        Some("contact") => plain(answer.contacts().into_iter().next().unwrap_or_default()),
        Some("hash") => plain(joined(&answer.pairs(), "&", |value| {
            percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC)
                .to_string()
        })),
        None if is_text => plain(joined(&answer.pairs(), "\n", str::to_owned)),
        None | Some("json") => axum::Json(answer.json(with_attribution)).into_response(),
        Some(_) => return Err(Problem::bad_request("format: json, hash or contact")),
    })
}

fn plain(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

fn joined(pairs: &[(&str, String)], by: &str, write: impl Fn(&str) -> String) -> String {
    let lines: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{name}={}", write(value))).collect();
    lines.join(by)
}

/// Answers a dialplan request from `mod_xml_curl`, a module of `FreeSWITCH`.
async fn dialplan(
    State(service): State<Service>,
    wanted: Result<Query<Wanted>, QueryRejection>,
    body: Bytes,
) -> Result<Response, Problem> {
    let wanted = read_query(wanted)?;
    let question = Question::of_freeswitch(&body);
    let decision = decide(&service, &question).await?;
    let gateway = wanted.gateway.filter(|gateway| is_gateway(gateway));
    let context = Form::read(&body).get("Caller-Context").to_owned();
    let document = freeswitch(&SwitchAnswer { decision, gateway }, &context);
    Ok(([(header::CONTENT_TYPE, "text/xml")], document).into_response())
}

fn freeswitch(answer: &SwitchAnswer, context: &str) -> String {
    let document = Element::new("document").with("type", "freeswitch/xml");
    let targets: Vec<_> = answer
        .plan()
        .into_iter()
        .flat_map(|plan| &plan.to)
        .map(|to| match (to.strip_prefix('+'), &answer.gateway) {
            (Some(digits), Some(gateway)) => format!("sofia/gateway/{gateway}/{digits}"),
            (Some(digits), None) => format!("sofia/gateway/carrier/{digits}"),
            (None, _) => format!("sofia/external/{}", to.trim_start_matches("sip:")),
        })
        .collect();
    let action = |application: &str, data: String| {
        Element::new("action").with("application", application).with("data", data)
    };
    if let Some(refusal) = answer.decision.destination.refused() {
        let cause = match refusal {
            Refusal::Rejected => "CALL_REJECTED",
            Refusal::Busy => "USER_BUSY",
        };
        let condition = Element::new("condition").child(&action("hangup", cause.to_owned()));
        return document.child(&dialplan_of(context, &condition)).document_without_declaration();
    }
    if targets.is_empty() {
        let result = Element::new("result").with("status", "not found");
        let section = Element::new("section").with("name", "result").child(&result);
        return document.child(&section).document_without_declaration();
    }
    let mut condition = Element::new("condition");
    condition = condition
        .child(&action("set", format!("ringwell_call={}", answer.decision.call)))
        .child(&action("set", format!("call_timeout={}", answer.timeout_s().unwrap_or(30))))
        // If a destination does not answer, the switch tries the next one. Once a destination has
        // answered, the switch tries no other.
        .child(&action("set", "hangup_after_bridge=true".to_owned()))
        .child(&action("set", "continue_on_fail=true".to_owned()));
    for target in targets {
        condition = condition.child(&action("bridge", target));
    }
    document.child(&dialplan_of(context, &condition)).document_without_declaration()
}

fn dialplan_of(context: &str, condition: &Element) -> Element {
    let extension = Element::new("extension").with("name", "ringwell").child(condition);
    let context = if context.is_empty() { "public" } else { context };
    let context = Element::new("context").with("name", context).child(&extension);
    Element::new("section").with("name", "dialplan").child(&context)
}

#[cfg(test)]
mod tests;
