use proptest::prelude::*;

use super::*;

/// Generates numbers with country code 1 and with all other country codes.
fn numbers() -> impl Strategy<Value = PromoNumber> {
    let all = prop_oneof![12_000_000_000..20_000_000_000_u64, 2_000_000..1_000_000_000_000_000_u64];
    all.prop_filter_map("begins with 1", PromoNumber::from_e164)
}

#[test]
fn a_number_of_another_country_is_e164_in_all_places() {
    let number = PromoNumber::parse("+493012345678").unwrap();
    let tracking = Tracking { base: "http://t.example/c", destination: "http://l.example" };
    let url = "http://t.example/c?us=http%3A%2F%2Fl.example%3Fsid%3D%252B493012345678%26PPCPN%3D\
               %252B493012345678";
    assert_eq!(tracking.url(number), url);
    let mut out = Vec::new();
    let mut response = BulkResponse::new(&mut out, b"\"a\"");
    response.number(Some(Span::new(0, 3)), number);
    response.row(None, &ResponseRow::Number { number, overflow: true, tracking: Some(tracking) });
    response.finish();
    let row = |id: &str, url: &str, end: &str| {
        format!(
            "{{{id}\"promo_number_formatted\":\"030 12345678\",\"promo_number\":\"+493012345678\",\
             \"tracking_url\":\"{url}\"{end}}}"
        )
    };
    let wanted = [row("\"request_id\":\"a\",", "", ""), row("", url, ",\"overflow\":true")];
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("{{\"responses\":[{}]}}", wanted.join(","))
    );
}

#[track_caller]
fn check_landing(destination: &str, landing: &str) {
    let number = PromoNumber::parse("8885550142").unwrap();
    let url = Tracking { base: "http://t.example/c/1/2-3-4", destination }.url(number);
    let (base, us) = url.split_once("?us=").unwrap();
    assert_eq!(base, "http://t.example/c/1/2-3-4");
    let decoded = percent_encoding::percent_decode_str(us).decode_utf8().unwrap();
    assert_eq!(decoded, landing.replace("=N", "=8885550142"));
}

#[test]
fn a_landing_page_carries_the_number_in_its_query() {
    check_landing("http://l.example", "http://l.example?sid=N&PPCPN=N");
    check_landing("http://l.example/p?a=b", "http://l.example/p?a=b&sid=N&PPCPN=N");
    check_landing("http://l.example/?", "http://l.example/?sid=N&PPCPN=N");
    check_landing("http://l.example/?a=b&", "http://l.example/?a=b&sid=N&PPCPN=N");
    check_landing("http://l.example/#top", "http://l.example/?sid=N&PPCPN=N#top");
    check_landing("http://l.example/?ä=\"&c", "http://l.example/?ä=\"&c&sid=N&PPCPN=N");
}

#[test]
fn a_query_in_a_fragment_is_not_a_query() {
    check_landing("http://l.example/#a?b", "http://l.example/?sid=N&PPCPN=N#a?b");
}

proptest! {
    #[test]
    fn every_text_becomes_an_equivalent_json_string(text in any::<String>()) {
        let mut out = Vec::new();
        json_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }

    #[test]
    fn every_answer_is_json(key in any::<Vec<u8>>(), base in any::<String>(), number in numbers()) {
        let mut out = Vec::new();
        let mut response = BulkResponse::new(&mut out, &key);
        let tracking = Some(Tracking { base: &base, destination: &base });
        response.row(None, &ResponseRow::Number { number, overflow: true, tracking });
        let error = RowError::InvalidKey { key: Span::new(0, key.len()), pool: Span::EMPTY };
        response.row(None, &ResponseRow::Error(error));
        response.finish();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let row = &json["responses"][0];
        let text = row["promo_number"].as_str().unwrap();
        prop_assert_eq!(PromoNumber::parse(text), Ok(number));
        prop_assert_eq!(text.len() == 10, number.to_nanp().is_some());
        prop_assert_eq!(&row["promo_number_formatted"], &crate::national::national(number));
        prop_assert_eq!(&json["responses"][1]["error_class"], "InvalidKey");
    }
}

#[test]
fn all_numbers_are_written_with_their_ten_digits() {
    let step = 1_234_567;
    for number in (0..10_000_000_000_u64).step_by(step).chain(9_999_999_000..10_000_000_000) {
        assert_eq!(ten_digits(number), format!("{number:010}").as_bytes());
    }
}
