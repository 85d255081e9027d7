use super::*;
use crate::caller::Caller;
use crate::route::RoutePlan;
use crate::service::Destination;

fn answer(to: &[&str], gateway: Option<&str>) -> SwitchAnswer {
    let to: Vec<String> = to.iter().map(|it| (*it).to_owned()).collect();
    let plan = RoutePlan { to, timeout_s: 20, whisper: None, caller_id: None };
    let destination =
        if plan.to.is_empty() { Destination::None(String::new()) } else { Destination::To(plan) };
    let decision = Decision {
        call: "c1".to_owned(),
        number: Some("+12000000000".to_owned()),
        caller: Caller::read("+14155551234"),
        destination,
        attribution: None,
    };
    SwitchAnswer { decision, gateway: gateway.map(str::to_owned) }
}

#[test]
fn a_question_is_json_or_a_form() {
    let json = br#" {"to":"sip:+12000000000@127.0.0.1","from":"1","call_id":"a@b","new":[1]}"#;
    let form = b"to=%2B12000000000&from=4155551234&call_id=1700000000.42&trunk=a";
    for (body, account, to) in
        [(&json[..], "sip", "sip:+12000000000@127.0.0.1"), (form, "a", "+12000000000")]
    {
        let call = Question::read(body).unwrap().call().unwrap();
        assert_eq!((call.account.as_str(), call.to.as_deref()), (account, Some(to)));
        assert_eq!(crate::number::called(to).as_deref(), Some("+12000000000"));
    }
    for body in ["", "{", "{}", "call_id=", r#"{"call_id":"a b"}"#, r#"{"call_id":1}"#] {
        let read = Question::read(body.as_bytes());
        assert!(read.and_then(|question| question.call()).is_err(), "{body}");
    }
    // A caller that cannot be parsed counts as withheld.
    for from in ["null", "5", "[\"x\"]", "{}", "\"\""] {
        let body = format!(r#"{{"to":"SIP:+12000000000@b","from":{from},"call_id":"a"}}"#);
        let call = Question::read(body.as_bytes()).unwrap().call().unwrap();
        let from = call.from.as_deref().map(Caller::read).unwrap_or_default();
        assert_eq!(from, Caller::Withheld, "{body}");
        assert_eq!(crate::number::called(&call.to.unwrap()).as_deref(), Some("+12000000000"));
    }
    let long = format!("call_id={}", "a".repeat(BODY_BYTES_MAX));
    assert!(Question::read(long.as_bytes()).is_err());
}

#[test]
fn a_trunk_s_caller_takes_precedence_and_privacy_hides_it() {
    let question = |headers: &str| {
        let body = format!(
            r#"{{"to":"1","from":"\"A\" <sip:+14155550000@h>;tag=1","call_id":"c","headers":{headers}}}"#
        );
        Question::read(body.as_bytes()).unwrap().call().unwrap()
    };
    assert_eq!(question("{}").from.as_deref(), Some("sip:+14155550000@h"));
    let asserted = r#"{"P-Asserted-Identity":"<sip:+14155551234@h;verstat=TN-Validation-Passed>"}"#;
    let call = question(asserted);
    assert_eq!(Caller::read(&call.from.unwrap()).number(), Some("+14155551234"));
    assert_eq!(call.stir.unwrap().verstat.as_deref(), Some("TN-Validation-Passed"));
    assert_eq!(question(r#"{"privacy":"user; id"}"#).from, None);
    assert_eq!(question(r#"{"Privacy":"ID;critical"}"#).from, None);
    let stir = question(r#"{"P-Attestation-Indicator":" A "}"#).stir.unwrap();
    assert_eq!(stir.attestation.as_deref(), Some("A"));
}

#[test]
fn destinations_are_written_in_the_form_that_switches_read() {
    let two = answer(&["+18005550199", "sip:desk@pbx"], Some("127.0.0.1:5099"));
    assert_eq!(two.contacts(), ["sip:+18005550199@127.0.0.1:5099", "sip:desk@pbx"]);
    let json = two.json(true);
    assert_eq!(json["contact"], "sip:+18005550199@127.0.0.1:5099");
    assert_eq!((&json["timeout"], &json["caller_id"]), (&json!(20), &json!("+14155551234")));
    let mut visited = answer(&["+18005550199"], None);
    visited.decision.attribution = Some(Attribution::default());
    assert!(visited.json(true).get("attribution").is_some());
    assert!(visited.json(false).get("attribution").is_none());
    assert_eq!(answer(&["+49301234567"], None).contacts(), ["tel:+49301234567"]);
    let hash = joined(&two.pairs(), "&", str::to_owned);
    assert!(hash.starts_with("call=c1&contact=sip:+18005550199@127.0.0.1:5099&dest"), "{hash}");
    let unknown = answer(&[], None).json(true);
    assert_eq!(unknown.get("contact"), None, "{unknown}");
}

#[test]
fn freeswitch_gets_a_dialplan_that_tries_all_destinations() {
    let document = freeswitch(&answer(&["+18005550199", "sip:a&b@pbx"], Some("gw")), "in");
    for part in [
        r#"<context name="in">"#,
        r#"data="call_timeout=20""#,
        r#"data="sofia/gateway/gw/18005550199""#,
        r#"data="sofia/external/a&amp;b@pbx""#,
    ] {
        assert!(document.contains(part), "{part}: {document}");
    }
    // The document is a single line, and FreeSWITCH ignores every line that contains "<?".
    assert!(document.starts_with("<document "), "{document}");
    assert!(freeswitch(&answer(&[], None), "").contains(r#"<result status="not found"/>"#));
    let mut blocked = answer(&[], None);
    blocked.decision.destination = Destination::Refused(Refusal::Busy);
    let document = freeswitch(&blocked, "");
    assert!(document.contains(r#"application="hangup" data="USER_BUSY""#), "{document}");
    assert_eq!(blocked.json(true)["refuse"], "busy");
    assert!(blocked.pairs().contains(&("refuse", "busy".to_owned())));
}

#[test]
fn a_gateway_cannot_end_the_address_that_it_is_written_into() {
    for gateway in ["gw", "trunk_1", "127.0.0.1:5099", "[2001:db8::1]:5060", "sbc.example"] {
        assert!(is_gateway(gateway), "{gateway}");
    }
    for gateway in ["", "<x>", "a;transport=tcp", "a/b", "a,b", "a@b", "a b", "a\"", "a?b"] {
        assert!(!is_gateway(gateway), "{gateway}");
    }
}

#[test]
fn a_token_may_be_the_password_of_basic() {
    let token = crate::http::calls::token_of;
    assert_eq!(token("Bearer a b").as_deref(), Some("a b"));
    // The base64 text encodes `ringwell:a:b`.
    assert_eq!(token("Basic cmluZ3dlbGw6YTpi").as_deref(), Some("a:b"));
    assert_eq!(token("bearer a").as_deref(), Some("a"));
    assert_eq!(token("BASIC cmluZ3dlbGw6YTpi").as_deref(), Some("a:b"));
    for other in ["", "Basic", "Basic !", "Basic YQ==", "Digest a"] {
        assert_eq!(token(other), None, "{other}");
    }
}
