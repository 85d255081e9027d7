use proptest::prelude::*;

use super::{decode, decode_all, decode_each};

#[track_caller]
fn check(raw: &str, wanted: &[(&str, &str)]) {
    let decoded = decode(raw.as_bytes());
    let decoded: Vec<_> = decoded.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(decoded, wanted, "{raw}");
}

#[test]
fn parameters_are_decoded_in_their_order() {
    check("m2=ford&m1=autos", &[("m2", "ford"), ("m1", "autos")]);
    check("a%20b=c+d&e=%C3%A9&f", &[("a b", "c d"), ("e", "é"), ("f", "")]);
    check("u=https://example.org/?q=1", &[("u", "https://example.org/?q=1")]);
    check("&&a=1&", &[("a", "1")]);
    check("", &[]);
}

#[test]
fn the_last_of_several_parameters_with_one_name_counts() {
    check("a=1&A=2&a=3&%61=4", &[("A", "2"), ("a", "4")]);
    check(
        "keyword=&placement=&keyword=shoes&placement=top",
        &[("keyword", "shoes"), ("placement", "top")],
    );
}

#[test]
fn broken_escapes_stay_and_invalid_text_is_replaced() {
    check("a=%zz&b=%&c=100%25%2&d=%FF", &[("a", "%zz"), ("b", "%"), ("c", "100%%2"), ("d", "�")]);
}

#[test]
fn our_own_parameters_and_keys_are_omitted() {
    check("ringwell_visitor=v7&a=1&ring_pool_key=L", &[("a", "1")]);
}

#[test]
fn every_occurrence_is_decoded_if_all_are_asked_for() {
    let all: Vec<_> = decode_all(b"a=1&ring_pool_key=L&b&a=2&%61=3").collect();
    let wanted = [("a", "1"), ("b", ""), ("a", "2"), ("a", "3")];
    assert_eq!(all, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(decode_each(b"a=1&ring_pool_key=L&b&a=2&%61=3"), all);
}

#[test]
fn erased_parameters_are_omitted_whatever_their_last_bytes_are() {
    for raw in [&b"\xFFa=&b"[..], b"\xFF&m=x", b"\xFF\xFF&a&b", b"ringwell_visitor=\xFF&a=b"] {
        assert_eq!((decode(raw), decode_each(raw)), (vec![], vec![]));
    }
    check("ringwell_visitor=&a=b", &[("a", "b")]);
}

proptest! {
    #[test]
    fn encoded_text_is_decoded(pairs in proptest::collection::btree_map(".{1,9}", ".{0,9}", 0..9)) {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let raw: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        prop_assert_eq!(decode(raw.join("&").as_bytes()), pairs.into_iter().collect::<Vec<_>>());
    }
}
