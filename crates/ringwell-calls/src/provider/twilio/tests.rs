use proptest::prelude::*;
use ringwell_config::CallProvider;

use super::*;
use crate::provider::tests::{account, post};
use crate::provider::{Leg, verify};

const BODY: &str = "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&\
                    From=%2B14158675309&To=%2B18005551212";

/// Whether `signature` is valid for a request to `url` with `body`.
fn is_signed(url: &str, body: &str, signature: &str) -> bool {
    let (host, target) = url.split_at(8 + url[8..].find('/').unwrap());
    let account = account(CallProvider::Twilio, host, "12345");
    verify(&account, &post(target, body).with(SIGNATURE, signature)).is_ok()
}

/// Checks the test vectors of Twilio's own libraries.
#[test]
fn the_vectors_of_twilio_are_accepted() {
    let url = "https://mycompany.com/myapp.php?foo=1&bar=2";
    let json = "{\"property\": \"value\", \"boolean\": true}";
    let hash = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620";
    let empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    let sids = "Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234&Digits=1234";
    let binding = "MessagingBinding.Address=%2B1415xxxxxxx&MessagingBinding.Address=%2B1325xxxxxxx";
    let host = |host: &str| format!("{host}/myapp.php?foo=1&bar=2");
    let cases: &[(&str, &str, &str)] = &[
        (url, BODY, "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
        (&host("https://mycompany.com:1234"), BODY, "RSOYDt4T1cUTdK1PDd93/VVr8B8="),
        (&host("http://mycompany.com:1234"), BODY, "Zmvh+3yNM1Phv2jhDCwEM3q5ebU="),
        (url, BODY, "kvajT1Ptam85bY51eRf/AJRuM3w="),
        (&host("http://mycompany.com"), BODY, "0ZXoZLH/DfblKGATFgpif+LLRf4="),
        (&host("https://user:pass@mycompany.com"), BODY, "CukzLTc1tT5dXEDIHm/tKBanW10="),
        (&host("https://user:pass@mycompany.com"), BODY, "ZQFR1PTIZXF2MXB8ZnKCvnnA+rI="),
        (&host("https://user@mycompany.com"), BODY, "2YRLlVAflCqxaNicjMpJcSTgzSs="),
        (&format!("{url}&Body=It's+amazing"), BODY, "TfZzewPq8wqrGlMfyAud8+/IvJ0="),
        (url, sids, "IK+Dwps556ElfBT0I3Rgjkr1wJU="),
        (url, binding, "83O6e2vORAoJHUNzJjDWN1jz+BA="),
        (&format!("{url}&bodySHA256={hash}"), json, "a9nBmqA0ju/hNViExpshrM61xv4="),
        (&format!("{url}&bodySHA256={empty}"), "{}", "Ldidvp12m26NI7eqEvxnEpkd9Hc="),
        (
            &format!("https://mycompany.com/myapp.php?bodySHA256={hash}"),
            json,
            "y77kIzt2vzLz71DgmJGsen2scGs=",
        ),
    ];
    for (url, body, signature) in cases {
        assert!(is_signed(url, body, signature), "{url} {body}");
        let mut flipped = signature.as_bytes().to_vec();
        flipped[3] ^= 1;
        let flipped = String::from_utf8(flipped).unwrap();
        assert!(!is_signed(url, body, &flipped), "{url} {body}");
        assert!(!is_signed(url, &format!("{body}1"), signature), "{url} {body}");
    }
}

#[test]
fn a_shared_key_signs_by_sha_256() {
    let account = account(CallProvider::Twilio, "https://mycompany.com", "12345");
    let request = |settings: &str| {
        post("/myapp.php?foo=1&bar=2", BODY)
            .with(SIGNATURE, "033hgUJA9M/hXIZsYjwkerEP/DBm35nEri5FhCYjA5s=")
            .with(SETTINGS, settings)
    };
    assert_eq!(
        verify(&account, &request("key=webhooks_sharedkey_1,algorithm=HMAC_SHA256")),
        Ok(())
    );
    for settings in ["", "key=webhooks_sharedkey_1", "algorithm=HMAC_SHA1", "algorithm=HMAC_MD5"] {
        assert!(verify(&account, &request(settings)).is_err(), "{settings}");
    }
    let only_token = Account { shared_keys: Vec::new(), ..account };
    assert!(verify(&only_token, &request("algorithm=HMAC_SHA256")).is_err());
}

#[test]
fn a_refusal_names_the_url_that_would_have_matched() {
    let signed = |host: &str| {
        let string = format!("{host}/myapp.php?foo=1&bar=2CallSidCA1From+14158675309");
        digest::base64(&Mac::Sha1.sign(b"12345", &[string.as_bytes()]))
    };
    let refused = |signature: &str, field: &'static str, value: &str| {
        let account = account(CallProvider::Twilio, "https://mycompany.com", "12345");
        let request = post("/myapp.php?foo=1&bar=2", "CallSid=CA1&From=%2B14158675309");
        verify(&account, &request.with(SIGNATURE, signature).with(field, value)).unwrap_err()
    };
    let unsigned = refused(&signed("http://mycompany.com"), "host", "mycompany.com");
    assert!(unsigned.hint.unwrap().contains("for http://mycompany.com would have matched"));
    let unsigned = refused(&signed("https://edge.example"), "x-forwarded-host", "edge.example");
    assert!(unsigned.hint.unwrap().contains("for https://edge.example would have matched"));
    let unsigned = refused(&signed("https://mycompany.com:8443"), "host", "mycompany.com:8443");
    assert!(unsigned.hint.unwrap().contains("for https://mycompany.com:8443 would have matched"));
    assert_eq!(refused("bm9uZQ==", "host", "mycompany.com").hint, None);
    let missing = refused("", "host", "mycompany.com");
    assert_eq!(missing.reason, "the signature is missing");
    assert!(!format!("{missing:?}").contains("12345"));
}

fn report_of(hook: Hook, target: &str, body: &str) -> Report {
    read(hook, &post(target, body)).unwrap()
}

fn kinds(report: &Report) -> Vec<(EventKind, Option<u32>)> {
    report.events.iter().map(|event| (event.kind, event.talk_seconds)).collect()
}

#[test]
fn an_incoming_call_is_read_despite_unknown_fields() {
    let body = format!("{BODY}&CallStatus=ringing&StirVerstat=TN-Validation-Passed-A&New=1");
    let report = report_of(Hook::Answer, "/t/main/answer", &body);
    assert_eq!(report.call, "CA1234567890ABCDE");
    assert_eq!(report.to.as_deref(), Some("+18005551212"));
    assert_eq!(report.from.as_deref(), Some("+14158675309"));
    assert_eq!(report.stir.clone().unwrap().attestation.as_deref(), Some("A"));
    assert_eq!(kinds(&report), [(EventKind::Started, None)]);
    assert!(read(Hook::Answer, &post("/t/main/answer", "From=%2B14158675309")).is_err());
    assert!(read(Hook::Answer, &post("/t/main/answer", "{\"CallSid\":\"CA1\"}")).is_err());
}

#[test]
fn after_the_dial_the_call_is_over_unless_another_destination_waits() {
    use Outcome::{Answered, Busy, CallerGaveUp, NoAnswer};
    let after = |query: &str, fields: &str| {
        let report = report_of(
            Hook::Dial,
            &format!("/t/main/dial?{query}"),
            &format!("CallSid=CA1&{fields}"),
        );
        kinds(&report)[0]
    };
    let completed = "DialCallStatus=completed&DialCallDuration=58&DialBridged=true";
    assert_eq!(after("leg=0", completed), (EventKind::Ended(Some(Answered)), Some(58)));
    assert_eq!(after("leg=0", "DialCallStatus=busy"), (EventKind::LegEnded(Busy), None));
    let unheard = "DialCallStatus=completed&DialBridged=false";
    assert_eq!(after("leg=0", unheard), (EventKind::LegEnded(NoAnswer), None));
    let gone = "DialCallStatus=canceled";
    assert_eq!(after("leg=0", gone), (EventKind::Ended(Some(CallerGaveUp)), None));
    let leg =
        |query: &str| report_of(Hook::Dial, &format!("/t/main/dial?{query}"), gone_of("CA1")).leg;
    let tried = vec!["0123abcd".to_owned(), "4567cdef".to_owned()];
    assert_eq!(leg("leg=1&tried=0123abcd4567cdef"), Leg { place: 1, tried });
    assert_eq!(leg("leg=1&last=1"), Leg { place: 1, tried: Vec::new() });
}

fn gone_of(call: &str) -> &'static str {
    assert_eq!(call, "CA1");
    "CallSid=CA1&DialCallStatus=canceled"
}

#[test]
fn status_callbacks_of_the_callee_count_for_the_callers_call() {
    let of = |fields: &str| report_of(Hook::Status, "/t/main/status?leg=0&last=1", fields);
    let callee = "CallSid=CA2&ParentCallSid=CA1&To=%2B18005550199&SequenceNumber=";
    let ringing = of(&format!("{callee}1&CallStatus=ringing"));
    assert_eq!((ringing.call.as_str(), ringing.to.clone()), ("CA1", None));
    assert_eq!(kinds(&ringing), [(EventKind::Ringing, None)]);
    let stamp = "&Timestamp=Tue, 14 Nov 2023 22:13:10 %2B0000";
    let answered = of(&format!("{callee}2&CallStatus=in-progress{stamp}"));
    assert_eq!(answered.events[0].at, Millis(1_699_999_990_000));
    let ended = of(&format!("{callee}3&CallStatus=completed&CallDuration=58"));
    assert_eq!(kinds(&ended), [(EventKind::Ended(Some(Outcome::Answered)), Some(58))]);
    assert_eq!(kinds(&of(&format!("{callee}0&CallStatus=initiated"))), []);
    let own = of("CallSid=CA1&CallStatus=completed&CallDuration=70");
    assert_eq!(kinds(&own), [(EventKind::CallerLegEnded(70), None)]);
    let own = of("CallSid=CA1&CallStatus=completed");
    assert_eq!(kinds(&own), [(EventKind::Ended(None), None)]);
}

#[test]
fn the_documents_are_those_of_twilio() {
    let account = account(CallProvider::Twilio, "https://h", "12345");
    let connect = |to: &str| {
        let leg = Leg { place: 0, tried: vec!["0123abcd".to_owned()] };
        Connect {
            call: "c_1".to_owned(),
            number: "18005551212".to_owned(),
            to: to.to_owned(),
            from: Some("+14155551234".to_owned()),
            caller_id: None,
            timeout_s: 30,
            whisper: true,
            leg,
        }
    };
    let text = |answer| document(&account, &answer).body;
    assert_eq!(
        text(Instruction::Connect(connect("+18005550199"))),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response>\
         <Dial action=\"https://h/t/main/dial?leg=0&amp;tried=0123abcd&amp;n=18005551212\" answerOnBridge=\"true\" \
         method=\"POST\" timeout=\"30\"><Number \
         statusCallback=\"https://h/t/main/status?leg=0&amp;tried=0123abcd&amp;n=18005551212\" \
         statusCallbackEvent=\"initiated ringing answered completed\" \
         statusCallbackMethod=\"POST\" url=\"https://h/t/main/whisper?leg=0&amp;tried=0123abcd&amp;n=18005551212\">\
         +18005550199</Number></Dial></Response>"
    );
    assert!(text(Instruction::Connect(connect("sip:a@b"))).contains(">sip:a@b</Sip></Dial>"));
    assert!(text(Instruction::Refuse(Refusal::Busy)).contains("<Reject reason=\"busy\"/>"));
    assert!(text(Instruction::Nothing).ends_with("<Response/>"));
    assert!(text(Instruction::Whisper("A & B".to_owned())).contains("<Say>A &amp; B</Say>"));
}

proptest! {
    #[test]
    fn no_body_panics(hook in 0..4_usize, target in "/t/main/[a-z?=&%0-9]{0,40}", body in ".{0,200}") {
        let hook = [Hook::Answer, Hook::Dial, Hook::Status, Hook::Whisper][hook];
        let request = post(&target, &body).with(SIGNATURE, "x");
        let _ = read(hook, &request);
        let account = account(CallProvider::Twilio, "https://h", "12345");
        prop_assert!(verify(&account, &request).is_err());
    }
}

/// A proxy that parses and rewrites forms may change the order and escapes of fields, but not their
/// values.
#[test]
fn a_form_rewritten_by_a_proxy_is_still_correctly_signed() {
    let url = "https://mycompany.com/myapp.php?foo=1&bar=2";
    let again = "To=%2b18005551212&From=%2B14158675309&Digits=%31234&Caller=%2B14158675309&\
                 CallSid=%43A1234567890ABCDE";
    assert!(is_signed(url, again, "RSOYDt4T1cUTdK1PDd93/VVr8B8="));
}

/// The signed string does not delimit fields, so an observer of a signed request can split the
/// string into other fields. A request forged in this way must not refer to another call.
#[test]
fn a_form_split_differently_is_not_accepted() {
    let account = account(CallProvider::Twilio, "https://mycompany.com", "12345");
    let cut = "CallSid=CA1234567890ABCDECaller%2B14158675309&Digits=1234&\
               From=%2B14158675309&To=%2B18005551212";
    let request =
        post("/myapp.php?foo=1&bar=2", cut).with(SIGNATURE, "RSOYDt4T1cUTdK1PDd93/VVr8B8=");
    assert!(verify(&account, &request).is_ok(), "the signature covers it");
    assert_eq!(crate::provider::read(&account, Hook::Answer, &request), Err(Unreadable::NoCall));
    for name in ["CA1234567890abcdef", "abc", "8f1c7f0a-0000-4000-8000-000000000000", "CAdemo1"] {
        assert!(is_sid(name), "{name}");
    }
    for name in ["CA1CallStatusringing", "CA1From+1", "CA1ApiVersion1To+1"] {
        assert!(!is_sid(name), "{name}");
    }
}
