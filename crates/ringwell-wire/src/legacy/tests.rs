use proptest::prelude::*;

use super::*;
use crate::response::Tracking;
use ringwell_core::PromoNumber;

/// Writes a request as text, `pool KEY before|after visitor`, or its error.
fn words(pool: &str, query: &str, strict_params: bool) -> String {
    let (text, ask) = parse(pool, query, strict_params);
    let read = |span: Span| String::from_utf8_lossy(span.of(&text)).into_owned();
    match ask {
        Ok(ask) => {
            let [before, after] = ask.params.map(read);
            let visitor = ask.visitor.map_or("-".to_owned(), read);
            format!("{} {} {before}|{after} {visitor}", ask.pool, read(ask.key))
        }
        Err(error) => format!("{}: {}", error.class(), error.message(&text)),
    }
}

#[test]
fn a_single_allocation_is_read_like_a_row() {
    assert_eq!(words("16", "ring_pool_key=K&a=1", false), "16 K |a=1 -");
    assert_eq!(words("16", "a=1&ring_pool_key=K%2B+&b=", false), "16 K+  a=1|b= -");
    assert_eq!(
        words("16", "ring_pool_key=K&ringwell_visitor=v7", false),
        "16 K |ringwell_visitor=v7 v7"
    );
    assert_eq!(words("16", "", false), "16  | -");
}

#[test]
fn a_pool_that_is_not_a_number_is_as_unknown_as_any() {
    for pool in ["x", "16x", "-1", "99999999999999999999999"] {
        let wanted = format!("InvalidKey: API Key 'K' is not valid for resource '{pool}'");
        assert_eq!(words(pool, "ring_pool_key=K", false), wanted);
    }
}

#[test]
fn a_strict_server_requires_a_parameter_of_the_client() {
    let refused = "InvalidInput: At least one RingPool parameter must be present";
    for query in ["ring_pool_key=K", "ring_pool_key=K&&", "ringwell_visitor=v&ring_pool_key=K"] {
        assert_eq!(words("16", query, true), refused);
    }
    assert_eq!(words("16", "ring_pool_key=K&a=", true), "16 K |a= -");
}

#[test]
fn a_query_is_read_up_to_its_limit() {
    let query = |bytes: usize| format!("ring_pool_key=K&a={}", "x".repeat(bytes - 18));
    assert!(parse("16", &query(QUERY_BYTES_MAX), false).1.is_ok());
    let refused = Err(RowError::InvalidInput(InputFault::SuffixLength));
    assert_eq!(parse("16", &query(QUERY_BYTES_MAX + 1), false).1, refused);
}

#[test]
fn text_from_clients_is_escaped_in_xml() {
    let (text, ask) = parse("<1>", "ring_pool_key=%26%3Cb%3E%01%EF%BF%BE", false);
    let out = Format::Xml.error(&ask.unwrap_err(), &text);
    let message = "API Key '&amp;&lt;b&gt;\u{fffd}\u{fffd}' is not valid for resource '&lt;1&gt;'";
    assert!(String::from_utf8(out).unwrap().contains(message));
}

#[test]
fn a_url_with_a_comma_is_quoted_in_csv() {
    let number = PromoNumber::parse("8885550142").unwrap();
    let tracking = Tracking { base: "http://t.example/c,1", destination: "http://l.example" };
    let out = String::from_utf8(Format::Csv.number(number, Some(tracking))).unwrap();
    let (header, row) = out.split_once('\n').unwrap();
    assert_eq!(header, "PromoNumberFormatted,PromoNumber,TrackingUrl");
    assert!(row.starts_with("888-555-0142,8885550142,\"http://t.example/c,1?us="), "{row}");
}

proptest! {
    #[test]
    fn no_request_makes_it_panic(pool in any::<String>(), query in any::<String>()) {
        let (text, ask) = parse(&pool, &query, true);
        if let Err(error) = ask {
            for format in [Format::Json, Format::Xml, Format::Csv] {
                prop_assert!(!format.error(&error, &text).is_empty());
            }
        }
    }
}
