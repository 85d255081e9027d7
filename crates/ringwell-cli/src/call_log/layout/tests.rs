use super::*;

fn call() -> Value {
    json!({
        "id": "c_1", "account": "main", "provider": "twilio", "provider_call_id": "CA1",
        "to": "+18005550100", "from": { "e164": "+14155551234" },
        "started_at": "2026-11-21T06:30:00.000Z", "answered_at": "2026-11-21T18:30:05.250Z",
        "ended_at": null, "state": "ended", "outcome": "answered", "ring_seconds": 5,
        "talk_seconds": 58, "destination": "+18005550199", "pool": { "id": 16, "name": "=1+1" },
        "attribution": {
            "outcome": "allocated", "allocated_at": "2026-11-21T06:29:00.000Z", "late": false,
            "confidence": { "value": 0.987 },
            "parameters": { "gclid": "Cj0_a-1", "fbclid": "IwAR1", "msclkid": "0f",
                            "utm_term": "@SUM(A1)", "id": "17" },
        },
        "first_time_caller": true,
    })
}

#[test]
fn the_columns_of_calls_are_an_interface() {
    assert_eq!(
        call_header().join(","),
        "id,account,provider,provider_call_id,started_at,answered_at,ended_at,state,outcome,\
         ring_seconds,talk_seconds,to,from,first_time_caller,destination,pool_id,pool_name,\
         attribution,allocated_at,late,confidence,gclid,gbraid,wbraid,msclkid,fbclid,utm_source,\
         utm_medium,utm_campaign,utm_term,utm_content,parameters,blocked,robocall_score"
    );
    let line = call_line(&call(), false);
    assert_eq!(line.len(), call_header().len());
    let field = |name: &str| {
        let place = call_header().iter().position(|it| *it == name).unwrap();
        line[place].as_str()
    };
    assert_eq!(field("from"), "+14155551234");
    assert_eq!(field("ended_at"), "");
    assert_eq!(field("confidence"), "0.987");
    assert_eq!((field("pool_name"), field("utm_term")), ("'=1+1", "'@SUM(A1)"));
    assert!(call_line(&call(), true).contains(&"=1+1".to_owned()));
    let masked = json!({ "from": { "masked": "+1415***1234" } });
    assert!(call_line(&masked, false).contains(&"'+1415***1234".to_owned()));
}

#[test]
fn a_field_is_one_line_without_control_characters_unless_raw() {
    let odd = "x\n--url=http://evil,\r\ny\u{1b}[2J\0\u{9b}z\u{7f}é";
    let parameters = json!({ "utm_term": odd, "utm_source": "\n=1+1" });
    let call = json!({ "id": "c_1", "attribution": { "parameters": parameters } });
    let line = call_line(&call, false);
    assert!(line.iter().all(|field| !field.contains(char::is_control)), "{line:?}");
    assert!(line.contains(&"x --url=http://evil,  y [2J  z é".to_owned()), "{line:?}");
    assert!(line.contains(&"' =1+1".to_owned()), "{line:?}");
    assert!(call_line(&call, true).contains(&odd.to_owned()));
}

#[test]
fn conversions_have_the_form_that_each_system_reads() {
    let sale = json!({
        "type": "Sale", "value": "129.50", "currency": "EUR", "external_id": "order-7",
        "at": "2026-11-22T00:05:09.000Z", "call": call(),
    });
    let sale = Conversion::of_outcome(&sale).unwrap();
    let line = |upload: Upload| upload.line(&sale).unwrap().join(",");
    assert_eq!(line(Upload::GoogleClicks), "Cj0_a-1,Sale,2026-11-22 00:05:09+00:00,129.50,EUR");
    assert_eq!(
        line(Upload::GoogleCalls),
        "+14155551234,2026-11-21 06:30:00+00:00,Sale,2026-11-22 00:05:09+00:00,129.50,EUR"
    );
    assert_eq!(
        line(Upload::Microsoft),
        "Offline Conversion,,,,,,EUR,Sale,11/22/2026 12:05:09 AM,129.50,0f"
    );
    // The hash equals the output of `printf 14155551234 | sha256sum`.
    assert_eq!(
        line(Upload::Meta),
        "Sale,1795305909,phone_call,c_1-order-7,\
         c6a349dfaaf5c3a368d3135014cc1bc7aebf18f654f313f9c1d0b018a897b209,\
         fb.1.1795242540000.IwAR1,129.50,EUR,c_1-order-7"
    );
    for upload in [Upload::GoogleClicks, Upload::GoogleCalls, Upload::Microsoft, Upload::Meta] {
        let width = upload.header()[0].len();
        assert!(upload.header().iter().all(|line| line.len() == width));
        assert_eq!(upload.line(&sale).unwrap().len(), width);
    }
}

#[test]
fn conversions_that_no_system_could_match_are_left_out() {
    let mut withheld = call();
    withheld["from"] = json!({ "withheld": true });
    withheld["attribution"]["parameters"] = json!({ "gclid": "=HYPERLINK(1)" });
    let call = Conversion::of_call(&withheld, "Call").unwrap();
    for upload in [Upload::GoogleClicks, Upload::GoogleCalls, Upload::Microsoft, Upload::Meta] {
        assert_eq!(upload.line(&call), None, "{upload:?}");
    }
    withheld["answered_at"] = Value::Null;
    let untimed = Conversion::of_call(&withheld, "Call").unwrap();
    assert_eq!(withheld["started_at"], untimed.at);
    withheld["outcome"] = json!("busy");
    assert!(Conversion::of_call(&withheld, "Call").is_none());
}
