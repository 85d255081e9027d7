//! Tests the signatures and reports of all providers except Twilio, which has its own tests.

use axum::http::Method;
use proptest::prelude::*;
use ringwell_config::CallProvider;
use ringwell_core::Millis;

use super::tests::{NOW, account, post, request};
use super::*;
use crate::call::{EventKind, Outcome};

fn kinds(report: &Report) -> Vec<(EventKind, Option<u32>)> {
    report.events.iter().map(|event| (event.kind, event.talk_seconds)).collect()
}

fn connect(to: &str, whisper: bool) -> Instruction {
    Instruction::Connect(Connect {
        call: "c_1".to_owned(),
        number: "18005550100".to_owned(),
        to: to.to_owned(),
        from: Some("+14155551234".to_owned()),
        caller_id: None,
        timeout_s: 30,
        whisper,
        leg: Leg { place: 0, tried: vec!["0123abcd".to_owned()] },
    })
}

#[test]
fn the_vectors_of_signalwire_are_accepted() {
    let account = account(CallProvider::SignalWire, "https://ringwell.example", "PSK_signing_key");
    let is_signed = |body: &str, signature: &str| {
        let request = post("/t/signalwire/answer", body).with("x-signalwire-signature", signature);
        verify(&account, &request).is_ok()
    };
    let form = "CallSid=abc&From=%2B14155551234&To=%2B18005550100";
    assert!(is_signed(form, "kX9cc2+rEkw5vYu0tu0ebkqJ/Ec="));
    let json = r#"{"call":{"call_id":"abc"}}"#;
    assert!(is_signed(json, "671c2e9c5a9ddcaa017fd6c7c75313951d0f8cea"));
    assert!(!is_signed(form, "lX9cc2+rEkw5vYu0tu0ebkqJ/Ec="));
    assert!(!is_signed(
        r#"{"call":{"call_id":"abd"}}"#,
        "671c2e9c5a9ddcaa017fd6c7c75313951d0f8cea"
    ));
    assert!(!is_signed(form, ""));
}

#[test]
fn the_vectors_of_telnyx_are_accepted_for_five_minutes() {
    let account = account(
        CallProvider::Telnyx,
        "https://ringwell.example",
        "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
    );
    let is_signed = |body: &str, signature: &str, now: u64| {
        let mut request = post("/t/telnyx/status", body)
            .with("telnyx-signature-ed25519", signature)
            .with("telnyx-timestamp", "1700000000");
        request.received = Millis(now * 1000);
        verify(&account, &request).is_ok()
    };
    let json =
        r#"{"data":{"event_type":"call.initiated","id":"0ccc7b54-4df3-4bca-a65a-3da1ecc777f0"}}"#;
    let of_json =
        "5AA0EpE8KSdd8K3qbASbGbk7Mdib8IMEb+bk2ug5nQxpYCIRbSu6w+1zV3unHvbSlQO3H1sF6vNDYmu9ZKx+CQ==";
    let form =
        "AccountSid=f5586561-8ff0-4291-a51b-c7dfe4139ff9&From=%2B35319605860&To=%2B13129457420";
    let of_form =
        "ZgzxBGNPWBZNr5mgDlaxN5UCZpiU9dDwVtxfYziOhQ4wnrle/KIXUhWIA+XVvjCeQcxdq7G5JpLFWLl5BOvCDA==";
    for (body, signature) in [(json, of_json), (form, of_form)] {
        for now in [1_700_000_000, 1_700_000_300, 1_699_999_700] {
            assert!(is_signed(body, signature, now), "{body}");
        }
        assert!(
            !is_signed(body, signature, 1_700_000_301)
                && !is_signed(body, signature, 1_699_999_699)
        );
        assert!(!is_signed(&format!("{body} "), signature, 1_700_000_000));
        assert!(!is_signed(body, of_json, 1_700_000_000) || body == json);
        assert!(!is_signed(body, "", 1_700_000_000) && !is_signed(body, "?", 1_700_000_000));
    }
}

#[test]
fn call_control_of_telnyx_is_read_for_the_log() {
    let account = account(CallProvider::Telnyx, "https://h", "key");
    let of = |kind: &str, direction: &str, cause: &str| {
        let body = format!(
            r#"{{"data":{{"event_type":"{kind}","id":"e1","occurred_at":"2023-11-14T22:13:10Z","payload":{{"call_session_id":"s1","direction":"{direction}","from":"+14155551234","to":"+18005550100","hangup_cause":"{cause}","shaken_stir_attestation":"A"}}}}}}"#
        );
        read(&account, Hook::Status, &post("/t/telnyx/status", &body)).unwrap()
    };
    let initiated = of("call.initiated", "incoming", "");
    assert_eq!((initiated.call.as_str(), initiated.to.as_deref()), ("s1", Some("+18005550100")));
    assert_eq!(initiated.events[0].at, Millis(1_699_999_990_000));
    assert_eq!(initiated.stir.clone().unwrap().attestation.as_deref(), Some("A"));
    assert_eq!(kinds(&initiated), [(EventKind::Started, None)]);
    assert_eq!(kinds(&of("call.answered", "outgoing", "")), [(EventKind::Answered, None)]);
    assert_eq!(
        kinds(&of("call.hangup", "incoming", "normal_clearing")),
        [(EventKind::Ended(None), None)]
    );
    let busy = of("call.hangup", "outgoing", "user_busy");
    assert_eq!(kinds(&busy), [(EventKind::LegEnded(Outcome::Busy), None)]);
    assert_eq!(kinds(&of("call.playback.started", "incoming", "")), []);
}

#[test]
fn the_vectors_of_plivo_are_accepted() {
    let get = |target: &str| request(Method::GET, target, "");
    let body = "CallUUID=abc&From=14155551234&To=18005550100";
    let here = "https://ringwell.example";
    let cases = [
        (here, get("/t/plivo/answer?b=2&a=1"), "+jMhR+o0karHRASvbx4JymhBhNob0yXcfks9dxuTdVk="),
        (
            here,
            get(&format!("/t/plivo/answer?{body}")),
            "BMwKFREudR7lSDHqnrFRgb0YlYldPA7tuXlDuDnjg00=",
        ),
        (here, post("/t/plivo/answer", body), "kjt1AQmqeHN86+3r5z2hYLjCbwiKMXNWmMAQR3lTaXA="),
        (
            here,
            post("/t/plivo/answer?b=2&a=1", body),
            "g49BJc6BeEKU5v4S9/aPUnQJd5AraPMeJ29VxE4LYqc=",
        ),
        (here, post("/t/plivo/answer", ""), "+RbRml/hvpcNgpHUk+gI1rs6cDK3gZLoC3xz6Bpkdv0="),
        (
            "https://ringwell.example:8443",
            post("/t/plivo/answer", "From=14155551234"),
            "FxsNztXN9s1UcmWRIzaqnqJx0r7ZYQhO0pe7jX6tYYo=",
        ),
        (
            here,
            post("/t/plivo/answer", "CallerName=J%C3%B6hn+%26+Co"),
            "ws6FMclfVBtvbSBIPsIXqohQSBzLHRjdHaF+1hbxh0w=",
        ),
        ("https://answer.url", get(""), "2tUVd+6dOTo/13hSmD0yrftTKb57pVvy0kxqkPKxcqk="),
    ];
    for (url, request, signature) in cases {
        let account = account(CallProvider::Plivo, url, "my_auth_token");
        let signed = |signature: &str, nonce: &str| {
            let request = request.clone().with("x-plivo-signature-v3", signature);
            verify(&account, &request.with("x-plivo-signature-v3-nonce", nonce))
        };
        assert_eq!(signed(signature, "12345"), Ok(()), "{}", request.target);
        assert_eq!(signed(&format!("bm8=,{signature}"), "12345"), Ok(()));
        assert!(signed(signature, "12346").is_err() && signed(signature, "").is_err());
        assert!(signed(&signature.to_lowercase(), "12345").is_err());
    }
}

#[test]
fn the_unsigned_body_of_a_get_is_ignored() {
    let account = account(CallProvider::Plivo, "https://h", "my_auth_token");
    let forged = "CallUUID=abc&From=15550000000&To=18005550100&Event=StartApp";
    let request = request(Method::GET, "/t/main/answer", forged);
    assert_eq!(read(&account, Hook::Answer, &request), Err(Unreadable::Form("a form")));
}

#[test]
fn plivo_s_reports_and_documents_have_its_own_form() {
    let account = account(CallProvider::Plivo, "https://h", "my_auth_token");
    let report =
        |hook, target: &str, body: &str| read(&account, hook, &post(target, body)).unwrap();
    let begin = report(
        Hook::Answer,
        "/t/main/answer",
        "CallUUID=abc&From=442079460000&To=18005550100&CallStatus=ringing",
    );
    assert_eq!(begin.from.as_deref(), Some("+442079460000"));
    assert_eq!(kinds(&begin), [(EventKind::Started, None)]);
    let answered = Some(Outcome::Answered);
    let end = report(
        Hook::Status,
        "/t/main/event?leg=0",
        "CallUUID=abc&DialAction=hangup&DialALegUUID=abc&DialBLegDuration=58&To=18005550199",
    );
    assert_eq!(end.to, None);
    assert_eq!(kinds(&end), [(EventKind::Ended(answered), Some(58))]);
    let busy = report(Hook::Dial, "/t/main/dial?leg=0", "CallUUID=abc&DialStatus=busy");
    assert_eq!(kinds(&busy), [(EventKind::LegEnded(Outcome::Busy), None)]);
    let rejected = report(
        Hook::Status,
        "/t/main/hangup",
        "CallUUID=abc&Event=Hangup&CallStatus=failed&HangupCauseCode=3020&From=442079460000&To=18005550100",
    );
    assert_eq!(rejected.to.as_deref(), Some("+18005550100"));
    assert_eq!(rejected.from.as_deref(), Some("+442079460000"));
    assert_eq!(kinds(&rejected), [(EventKind::Ended(Some(Outcome::Rejected)), None)]);
    let text = document(&account, &connect("+18005550199", false)).body;
    assert!(
        text.contains("callerId=\"14155551234\"") && text.contains("<Number>18005550199</Number>"),
        "{text}"
    );
    assert!(text.contains(
        "callbackUrl=\"https://h/t/main/event?leg=0&amp;tried=0123abcd&amp;n=18005550100\""
    ));
    let refused = document(&account, &Instruction::Refuse(Refusal::Rejected)).body;
    assert!(refused.contains("<Hangup reason=\"rejected\"/>"));
}

const VONAGE: &str = "qwertyuiopasdfghjklzxcvbnm123456";

/// Creates a token in Vonage's format.
fn token(secret: &str, head: &str, claims: &str) -> String {
    use base64::Engine;
    let url = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let signed = format!("{}.{}", url.encode(head), url.encode(claims));
    let code = crate::digest::Mac::Sha256.sign(secret.as_bytes(), &[signed.as_bytes()]);
    format!("{signed}.{}", url.encode(code))
}

#[test]
fn the_vectors_of_vonage_are_accepted() {
    let vector = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJPbmxpbmUgSldUIEJ1aWxkZXIi";
    let of_sdk = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJPbmxpbmUgSldUIEJ1aWxkZXIiLCJpYXQiOjE2OTc2MzQ2ODAsImV4cCI6MzMyNTQ1NDA4MjgsImF1ZCI6IiIsInN1YiI6IiJ9.88vJc3I2HhuqEDixHXVhc9R30tA6U_HQHZTC29y6CGM";
    let keys = [VONAGE.as_bytes().to_vec()];
    assert!(vonage::claims(&keys, of_sdk).is_some());
    assert!(vonage::claims(&keys, vector).is_none());
    assert!(vonage::claims(&[b"other".to_vec()], of_sdk).is_none());

    let account = account(CallProvider::Vonage, "https://h", VONAGE);
    let body = r#"{"from":"442079460000","to":"447700900000","uuid":"aaaaaaaa-bbbb-cccc-dddd-0123456789ab","conversation_uuid":"CON-aaaaaaaa-bbbb-cccc-dddd-0123456789ab"}"#;
    let hash = "1a7522921b1430f2475eca4c323313bf399416416f8ce6bcf3e25cd8d4660388";
    let check = |secret: &str, head: &str, claims: &str, body: &str| {
        let token = format!("Bearer {}", token(secret, head, claims));
        verify(&account, &post("/t/main/answer", body).with("authorization", &token)).is_ok()
    };
    let head = r#"{"typ":"JWT","alg":"HS256"}"#;
    let claims = |iat: u64, hash: &str| {
        format!(r#"{{"iat":{iat},"jti":"1","iss":"Vonage","payload_hash":"{hash}","api_key":"k"}}"#)
    };
    let now = NOW.0 / 1000;
    assert!(check(VONAGE, head, &claims(now, hash), body));
    let small = format!("bearer {}", token(VONAGE, head, &claims(now, hash)));
    let request = post("/t/main/answer", body).with("authorization", &small);
    assert!(verify(&account, &request).is_ok());
    assert!(check(VONAGE, head, &claims(now - 300, hash), body));
    assert!(!check(VONAGE, head, &claims(now - 301, hash), body));
    assert!(!check(VONAGE, head, &claims(now, hash), &body.replace("4420", "4421")));
    assert!(!check("another-secret-of-32-bytes-000000", head, &claims(now, hash), body));
    assert!(!check(VONAGE, r#"{"alg":"none"}"#, &claims(now, hash), body));
    assert!(!check(VONAGE, head, r#"{"iat":1700000000,"iss":"Other"}"#, body));
    assert!(!check(VONAGE, head, &claims(now, hash), ""));
    assert!(verify(&account, &post("/t/main/answer", body)).unwrap_err().is_retried);

    let report = read(&account, Hook::Answer, &post("/t/main/answer", body)).unwrap();
    assert_eq!(report.call, "CON-aaaaaaaa-bbbb-cccc-dddd-0123456789ab");
    assert_eq!(report.from.as_deref(), Some("+442079460000"));
}

#[test]
fn vonage_s_events_and_actions_have_its_own_form() {
    let account = account(CallProvider::Vonage, "https://h", VONAGE);
    let of = |query: &str, fields: &str| {
        let body = format!(r#"{{"conversation_uuid":"CON-1","uuid":"u1",{fields}}}"#);
        read(&account, Hook::Status, &post(&format!("/t/main/event?{query}"), &body)).unwrap()
    };
    let callee = r#""direction":"outbound","to":"18005550199""#;
    let done = of("leg=0&last=1", &format!(r#"{callee},"status":"completed","duration":"58""#));
    assert_eq!(kinds(&done), [(EventKind::Ended(Some(Outcome::Answered)), Some(58))]);
    let busy = of("leg=0", &format!(r#"{callee},"status":"busy""#));
    assert_eq!(kinds(&busy), [(EventKind::LegEnded(Outcome::Busy), None)]);
    let own = r#""direction":"inbound","to":"18005550100","from":"442079460000""#;
    let end = of("leg=0", &format!(r#"{own},"status":"completed","duration":"70""#));
    assert_eq!(kinds(&end), [(EventKind::Ended(None), None)]);
    // Reports about the caller's leg contain the called number and the caller's number, so both are
    // known even if the request to the answer hook was lost.
    for report in [end, of("leg=0", &format!(r#"{own},"status":"ringing""#))] {
        assert_eq!(report.to.as_deref(), Some("+18005550100"));
        assert_eq!(report.from.as_deref(), Some("+442079460000"));
    }
    assert_eq!(busy.to, None);
    let found: serde_json::Value =
        serde_json::from_str(&document(&account, &connect("+447700900000", false)).body).unwrap();
    let wanted = serde_json::json!([{
        "action": "connect",
        "endpoint": [{ "type": "phone", "number": "447700900000" }],
        "from": "18005550100",
        "timeout": 30,
        "eventType": "synchronous",
        "eventUrl": ["https://h/t/main/dial?leg=0&tried=0123abcd&n=18005550100"],
    }]);
    assert_eq!(found, wanted);
    let first = document(&account, &connect("sip:a@b", true)).body;
    assert!(
        first.contains("synchronous")
            && first.contains("/dial?leg=0")
            && first.contains("onAnswer")
    );
}

#[test]
fn bandwidth_is_identified_by_name_and_password() {
    let account = account(CallProvider::Bandwidth, "https://h", "user:password-0123");
    let check = |value: &str| {
        verify(&account, &post("/t/main/initiate", "{}").with("authorization", value)).is_ok()
    };
    let basic = |pair: &str| format!("Basic {}", crate::digest::base64(pair.as_bytes()));
    assert!(check(&basic("user:password-0123")));
    assert!(check(&basic("user:password-0123").replace("Basic", "BASIC")));
    for bad in [basic("user:password-0124"), basic("user"), "Basic ?".to_owned(), String::new()] {
        assert!(!check(&bad), "{bad}");
    }
    let of = |target: &str, body: &str| read(&account, Hook::Dial, &post(target, body)).unwrap();
    let begin = of(
        "/t/main/initiate",
        r#"{"eventType":"initiate","callId":"c-1","from":"+14155551234","to":"+18005550100","startTime":"2023-11-14T22:13:10Z","stirShaken":{"verstat":"TN-Validation-Passed","attestationIndicator":"A"}}"#,
    );
    assert_eq!(
        (begin.events[0].kind, begin.events[0].at),
        (EventKind::Started, Millis(1_699_999_990_000))
    );
    let done = of(
        "/t/main/complete?leg=0",
        r#"{"eventType":"transferComplete","callId":"c-1","cause":"hangup","answerTime":"2023-11-14T22:12:00Z","eventTime":"2023-11-14T22:12:58Z"}"#,
    );
    assert_eq!(kinds(&done), [(EventKind::Ended(Some(Outcome::Answered)), Some(58))]);
    let end = of(
        "/t/main/disconnect",
        r#"{"eventType":"disconnect","callId":"c-1","from":"+14155551234","to":"+18005550100","direction":"inbound"}"#,
    );
    assert_eq!(end.to.as_deref(), Some("+18005550100"));
    let busy = of(
        "/t/main/complete?leg=0",
        r#"{"eventType":"transferComplete","callId":"c-1","cause":"busy"}"#,
    );
    assert_eq!(kinds(&busy), [(EventKind::LegEnded(Outcome::Busy), None)]);
    let text = document(&account, &connect("+15556667777", false)).body;
    for part in [
        "transferCallerId=\"+14155551234\"",
        "callTimeout=\"30\"",
        "tag=\"c_1\"",
        "<PhoneNumber>+15556667777</PhoneNumber>",
        "username=\"user\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn any_other_switch_sends_events_as_json_or_as_a_form() {
    let secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let account = account(CallProvider::Generic, "https://h", secret);
    let json = r#"{"call_id":"a1","event":"ended","status":"BUSY","to":"+18005550100","at":"2023-11-14T22:13:10Z"}"#;
    let check = |name: &'static str, value: &str| {
        verify(&account, &post("/t/main/events", json).with(name, value)).is_ok()
    };
    for scheme in ["Bearer", "bearer", "BEARER "] {
        assert!(check("authorization", &format!("{scheme} {secret}")), "{scheme}");
    }
    let basic = crate::digest::base64(format!("any:{secret}").as_bytes());
    assert!(check("authorization", &format!("Basic {basic}")));
    assert!(check("authorization", &format!("basic {basic}")));
    assert!(!check("authorization", "Bearer other") && !check("webhook-signature", "v1,x"));
    let seconds = NOW.0 / 1000;
    let signature = crate::webhook::sign::sign(&[secret], "m1", seconds, json.as_bytes());
    let signed = |signature: &str| {
        let request = post("/t/main/events", json).with("webhook-id", "m1");
        let request = request.with("webhook-timestamp", &seconds.to_string());
        verify(&account, &request.with("webhook-signature", signature)).is_ok()
    };
    assert!(signed(&signature) && !signed(&signature.to_lowercase()));

    let of = |body: &str| read(&account, Hook::Status, &post("/t/main/events", body)).unwrap();
    assert_eq!(kinds(&of(json)), [(EventKind::Ended(Some(Outcome::Busy)), None)]);
    let form = of("call_id=a1&event=ended&status=answered&talk_seconds=58&unknown=1");
    assert_eq!(kinds(&form), [(EventKind::Ended(Some(Outcome::Answered)), Some(58))]);
    assert_eq!(
        kinds(&of("call_id=a1&event=started&to=%2B18005550100")),
        [(EventKind::Started, None)]
    );
    assert!(read(&account, Hook::Status, &post("/t/main/events", "event=ended")).is_err());
    assert!(read(&account, Hook::Status, &post("/t/main/events", "{]")).is_err());
    let answer = document(&account, &connect("+18005550199", false));
    assert!(answer.body.contains("\"destination\":\"+18005550199\""));
}

proptest! {
    #[test]
    fn no_request_panics_and_none_without_a_secret_is_trusted(
        provider in 0..7_usize, hook in 0..4_usize, target in "/t/main/[a-z?=&%0-9]{0,40}",
        body in prop_oneof![".{0,200}", r#"\{"data":\{"payload":.{0,40}\}\}"#],
        header in "[ -~]{0,80}",
    ) {
        let all = [
            CallProvider::Twilio, CallProvider::SignalWire, CallProvider::Telnyx, CallProvider::Plivo,
            CallProvider::Vonage, CallProvider::Bandwidth, CallProvider::Generic,
        ];
        let account = account(all[provider], "https://h", "a-secret-that-nobody-guesses");
        let hook = [Hook::Answer, Hook::Dial, Hook::Status, Hook::Whisper][hook];
        let mut request = post(&target, &body).with("telnyx-timestamp", "1700000000");
        for name in [
            "authorization", "x-twilio-signature", "x-signalwire-signature", "webhook-signature",
            "telnyx-signature-ed25519", "x-plivo-signature-v3", "x-plivo-signature-v3-nonce",
        ] {
            request = request.with(name, &header);
        }
        let _ = read(&account, hook, &request);
        prop_assert!(verify(&account, &request).is_err());
    }
}
