//! The parts that the tests of all providers have in common.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use ringwell_config::{CallProvider, UnknownNumber};
use ringwell_core::Millis;

use super::report::CALL_ID_BYTES_MAX;
use super::*;
use crate::call::Outcome;

/// The time of all requests in these tests.
pub(crate) const NOW: Millis = Millis(1_700_000_000_000);

pub(crate) fn account(provider: CallProvider, public_url: &str, secret: &str) -> Account {
    Account {
        name: "main".to_owned(),
        provider,
        public_url: public_url.to_owned(),
        secrets: vec![secret.as_bytes().to_vec()],
        shared_keys: vec![secret.as_bytes().to_vec()],
        unknown_number: UnknownNumber::Unavailable,
        warnings: crate::Warnings::default(),
    }
}

pub(crate) fn request(method: Method, target: &str, body: &str) -> Incoming {
    let mut headers = HeaderMap::new();
    if body.starts_with('{') {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
    } else if !body.is_empty() {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert("content-type", form);
    }
    Incoming {
        method,
        target: target.to_owned(),
        headers,
        body: body.as_bytes().to_vec(),
        received: NOW,
    }
}

pub(crate) fn post(target: &str, body: &str) -> Incoming {
    request(Method::POST, target, body)
}

impl Incoming {
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }
}

/// Checks the log lines about unsigned requests. Anyone can send such requests, with any content.
#[test]
fn the_log_shows_names_of_fields_and_no_value_of_an_unsigned_request() {
    let account = account(CallProvider::Generic, "https://calls.example", "a-secret");
    let json = r#"{"from":"(415) 555-4321","caller_name":"Jane Roe","415-555-4321":1,"n4155554321":2,
        "uri":"sip:jane@corp","page":"/?gclid=SECRETCLICK","Jane Roe":true}"#;
    let shown = Shown::of(&account, &post("/t/main/answer?token=QUERYSECRET", json));
    assert_eq!(shown.url, "https://calls.example/t/main/answer");
    assert_eq!(
        (shown.content_type, &*shown.fields),
        ("application/json", "caller_name from page token uri …")
    );

    let form = "From=%2B14155554321&CallerName=Jane+Roe&%28415%29+555-4321=x";
    let shown = Shown::of(&account, &post("/t/main/events", form));
    assert_eq!(shown.content_type, "application/x-www-form-urlencoded");
    assert_eq!(shown.fields, "CallerName From …");

    let odd = post("/t/main/events", "{\"a\"").with("content-type", "call/+14155554321");
    let shown = Shown::of(&account, &odd);
    assert_eq!((shown.content_type, &*shown.fields), ("another", ""));
    let many: Vec<String> =
        (0..10_000).map(|place| format!("{}{}=1", "a".repeat(place % 30), place % 1_000)).collect();
    let many = many.join("&");
    assert!(Shown::of(&account, &post("/t/main/events", &many)).fields.len() < 2_000);
}

/// Source: docs/spec/sip.md, "Asterisk" and "`FreeSWITCH`".
#[test]
fn causes_of_switches_have_outcomes() {
    for (outcome, causes) in [
        (Some(Outcome::Answered), "answered ANSWER SUCCESS NORMAL_CLEARING"),
        (Some(Outcome::Busy), "busy BUSY USER_BUSY"),
        (Some(Outcome::NoAnswer), "no_answer NOANSWER NO_ANSWER NO_USER_RESPONSE ALLOTTED_TIMEOUT"),
        (Some(Outcome::CallerGaveUp), "caller_gave_up CANCEL ORIGINATOR_CANCEL"),
        (Some(Outcome::Rejected), "rejected DONTCALL CALL_REJECTED"),
        (
            Some(Outcome::Failed),
            "failed CONGESTION CHANUNAVAIL UNALLOCATED_NUMBER NORMAL_TEMPORARY_FAILURE",
        ),
        (None, "ended SUCCES success no-answer _a A_1"),
    ] {
        for cause in causes.split(' ') {
            assert_eq!(generic::outcome(cause), outcome, "{cause}");
        }
    }
}

#[test]
fn a_call_id_of_the_generic_provider_that_does_not_fit_is_named_with_its_rule() {
    let account = account(CallProvider::Generic, "https://h", "12345");
    let event = |id: &str| format!(r#"{{"call_id":{id},"event":"started","to":"+18005550100"}}"#);
    let read = |body: &str| read(&account, Hook::Status, &post("/t/main/events", body));
    let longest = "x".repeat(CALL_ID_BYTES_MAX);
    for id in ["a", "1700000000.42", &longest] {
        assert_eq!(read(&event(&format!("\"{id}\""))).unwrap().call, id);
    }
    for id in ["\"a b\"", "\"é\"", "\"\"", "17", &format!("\"{longest}x\"")] {
        let error = read(&event(id)).unwrap_err().to_string();
        let rule = "call_id must be a string of 1 to 200 printable ASCII characters without spaces";
        assert_eq!(error, rule, "{id}");
    }
    assert!(read("{}").unwrap_err().to_string().starts_with("call_id must be"));
}
