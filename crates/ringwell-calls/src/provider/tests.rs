//! The parts that all providers' tests share.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use ringwell_config::{CallProvider, UnknownNumber};
use ringwell_core::Millis;

use super::report::CALL_ID_BYTES_MAX;
use super::*;
use crate::call::{EventKind, Outcome};

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
        (
            Some(Outcome::Answered),
            "answered ANSWER SUCCESS NORMAL_CLEARING Answered completed success 200",
        ),
        (Some(Outcome::Busy), "busy BUSY USER_BUSY Busy 486 600"),
        (
            Some(Outcome::NoAnswer),
            "no_answer NOANSWER NO_ANSWER NO_USER_RESPONSE ALLOTTED_TIMEOUT no-answer No-Answer \
             timeout unanswered 408 480",
        ),
        (
            Some(Outcome::CallerGaveUp),
            "caller_gave_up CANCEL ORIGINATOR_CANCEL canceled cancelled 487",
        ),
        (Some(Outcome::Rejected), "rejected DONTCALL CALL_REJECTED declined 403 603"),
        (
            Some(Outcome::Failed),
            "failed CONGESTION CHANUNAVAIL UNALLOCATED_NUMBER NORMAL_TEMPORARY_FAILURE 404 503",
        ),
        (None, "ended SUCCES _a A_1 17 180 302 999 -486 486.5"),
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

/// Reads a report of the generic provider whose JSON members besides the id are `members`.
fn reported(members: &str) -> Report {
    let account = account(CallProvider::Generic, "https://h", "12345");
    let body = format!(r#"{{"call_id":"a",{members}}}"#);
    read(&account, Hook::Status, &post("/t/main/events", &body)).unwrap()
}

fn unread(report: &Report) -> Vec<&'static str> {
    report.unread.iter().map(|it| it.field).collect()
}

#[test]
fn a_talk_time_with_a_fraction_counts() {
    let account = account(CallProvider::Generic, "https://h", "12345");
    for (text, wanted) in [
        ("12", 12),
        ("12.9", 12),
        ("12.0", 12),
        ("1e2", 100),
        ("0.4", 1),
        ("0", 0),
        ("0.0", 0),
        ("2592000", 2_592_000),
    ] {
        for written in [text.to_owned(), format!("\"{text}\""), format!("\" {text} \"")] {
            let report = reported(&format!(r#""event":"ended","talk_seconds":{written}"#));
            assert_eq!(report.events[0].talk_seconds, Some(wanted), "{written}");
            assert_eq!(report.unread, []);
        }
        let form = format!("call_id=a&event=ended&talk_seconds={text}");
        let report = read(&account, Hook::Status, &post("/t/main/events", &form)).unwrap();
        assert_eq!(report.events[0].talk_seconds, Some(wanted), "{text}");
    }
    for absent in ["null", "\"\""] {
        let report = reported(&format!(r#""event":"ended","talk_seconds":{absent}"#));
        assert_eq!((report.events[0].talk_seconds, report.unread), (None, Vec::new()));
    }
}

#[test]
fn values_that_are_not_accepted_are_named_and_the_report_is_kept() {
    for talk in
        ["-3", "\"-0.5\"", "\"12s\"", "true", "\"nan\"", "\"inf\"", "2592001", "1e300", "[]"]
    {
        let report = reported(&format!(r#""event":"ended","talk_seconds":{talk}"#));
        assert_eq!(report.events[0].kind, EventKind::Ended(None));
        assert_eq!(report.events[0].talk_seconds, None, "{talk}");
        assert_eq!(unread(&report), ["talk_seconds"], "{talk}");
    }
    for event in ["\"hangup\"", "\"completed\"", "null", "5", "\"\""] {
        let report = reported(&format!(r#""event":{event},"to":"+18005550100""#));
        assert_eq!((report.events.len(), unread(&report)), (0, vec!["event"]), "{event}");
        assert_eq!(report.to.as_deref(), Some("+18005550100"));
    }
    for status in ["\"gone\"", "17", "true"] {
        let report = reported(&format!(r#""event":"ended","status":{status}"#));
        assert_eq!(report.events[0].kind, EventKind::Ended(None));
        assert_eq!(unread(&report), ["status"], "{status}");
    }
    // A carrier without the field `event` uses the path `answer`.
    let account = account(CallProvider::Generic, "https://h", "12345");
    let read = |body: &str| read(&account, Hook::Answer, &post("/t/main/answer", body)).unwrap();
    for (members, wanted) in [("", vec![]), (r#","event":5"#, vec!["event"])] {
        let report = read(&format!(r#"{{"call_id":"a"{members}}}"#));
        assert_eq!(report.events[0].kind, EventKind::Started);
        assert_eq!(unread(&report), wanted);
    }
}

#[test]
fn events_and_outcomes_are_read_in_any_case() {
    let report = reported(r#""event":"Ended","status":"Busy""#);
    assert_eq!(report.events[0].kind, EventKind::Ended(Some(Outcome::Busy)));
    assert_eq!(report.events[0].key, reported(r#""event":"ended""#).events[0].key);
    let report = reported(r#""event":"ENDED","status":486"#);
    assert_eq!(report.events[0].kind, EventKind::Ended(Some(Outcome::Busy)));
    assert_eq!(report.unread, []);
}

/// The time for which a report waited dates the event by the server's clock, whatever the clock of
/// the switch shows.
#[test]
fn a_report_that_waited_is_dated_by_its_arrival_and_that_time() {
    for (members, waited) in [
        (r#""waited_ms":7000"#, 7_000),
        (r#""waited_ms":"7000","at":"2023-11-14T22:13:00Z""#, 7_000),
        (r#""waited_ms":0"#, 0),
        (r#""waited_ms":2592000000"#, 2_592_000_000),
    ] {
        let report = reported(&format!(r#""event":"answered",{members}"#));
        assert_eq!(report.events[0].at, Millis(NOW.0 - waited), "{members}");
        assert_eq!((report.waited, report.unread), (Millis(waited), Vec::new()));
    }
    for waited in ["-1", "1.5", "2592000001", "\"7s\"", "true"] {
        let report = reported(&format!(r#""event":"answered","waited_ms":{waited}"#));
        assert_eq!((report.events[0].at, report.waited), (NOW, Millis(0)), "{waited}");
        assert_eq!(unread(&report), ["waited_ms"], "{waited}");
    }
}
