use proptest::prelude::*;

use super::*;

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
fn a_query_in_a_fragment_is_no_query() {
    check_landing("http://l.example/#a?b", "http://l.example/?sid=N&PPCPN=N#a?b");
}

proptest! {
    #[test]
    fn every_text_becomes_a_json_string_that_means_it(text in any::<String>()) {
        let mut out = Vec::new();
        json_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }

    #[test]
    fn every_answer_is_json(key in any::<Vec<u8>>(), base in any::<String>(), number in 2_000_000_000..9_999_999_999_u64) {
        let number = PromoNumber::from_u64(number).unwrap();
        let mut out = Vec::new();
        let mut response = BulkResponse::new(&mut out, &key);
        let tracking = Some(Tracking { base: &base, destination: &base });
        response.row(None, &Answer::Number { number, overflow: true, tracking });
        let error = RowError::InvalidKey { key: Span::new(0, key.len()), pool: Span::EMPTY };
        response.row(None, &Answer::Error(error));
        response.finish();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(&json["responses"][0]["promo_number"], &number.to_string());
        prop_assert_eq!(&json["responses"][1]["error_class"], "InvalidKey");
    }
}

#[test]
fn all_numbers_are_written_with_their_ten_digits() {
    let step = 1_234_567;
    let numbers = (0..10_000_000_000_u64).step_by(step).chain(9_999_999_000..10_000_000_000);
    for number in numbers.filter_map(PromoNumber::from_u64) {
        assert_eq!(super::digits(number), format!("{:010}", number.to_u64()).as_bytes());
    }
}
