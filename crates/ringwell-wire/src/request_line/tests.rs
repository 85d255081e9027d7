use proptest::prelude::*;

use super::*;

const BEGIN: &str = "GET /api/2015-12-09/ring_pools/16/allocate_number.json?";

#[track_caller]
fn check(query: &str, wanted: Option<&str>) {
    for (method, version) in [("GET", "1.1"), ("GET", "1.0"), ("HEAD", "1.1")] {
        let path = &BEGIN[4..];
        let line = |query: &str| format!("{method} {path}{query} HTTP/{version}\r\n");
        let got = repaired(line(query).as_bytes()).map(|line| String::from_utf8(line).unwrap());
        assert_eq!(got, wanted.map(line), "{query}");
    }
}

#[test]
fn raw_bytes_in_a_query_are_escaped() {
    check("k=K&m1=two words", Some("k=K&m1=two%20words"));
    check("a=\"<é>\"", Some("a=%22%3C%C3%A9%3E%22"));
    check("a={\\^`|} ", Some("a=%7B%5C%5E%60%7C%7D%20"));
    check("k=K&m1=%20+&url=http://a/?b=c'()[]", None);
}

#[test]
fn an_ambiguous_line_is_not_changed() {
    check("a=b HTTP/1.1 c", None);
    check("a=b HTTP/1.1", None);
    check("a=\tb c", None);
    check("a=\0b c", None);
    check("a=\rb c", None);
    for line in [
        "GET /api/2015-12-09/ring_pools/16/allocate_number.json?a=b c HTTP/1.1\n",
        "GET /api/2015-12-09/ring_pools/16/allocate_number.json?a=b c HTTP/2.0\r\n",
        "GET /api/2015-12-09/ring_pools/16/allocate_number.json?a=b c\r\n",
        "GET /api/2015-12-09/ring_pools/1 6/allocate_number.json?a=b c HTTP/1.1\r\n",
        "GET /api/2015-12-09/ring_pools/16/allocate_number.json#?a=b c HTTP/1.1\r\n",
        "GET http://h/api/2015-12-09/ring_pools/16/allocate_number.json?a=b c HTTP/1.1\r\n",
        "GET  /api/2015-12-09/ring_pools/16/allocate_number.json?a=b c HTTP/1.1\r\n",
        "POST /api/2013-07-01/bulk.json?a=b c HTTP/1.1\r\n",
        "GET /v1/shards?a=b c HTTP/1.1\r\n",
    ] {
        assert_eq!(repaired(line.as_bytes()), None, "{line}");
    }
}

proptest! {
    #[test]
    fn a_repaired_line_is_a_request_line_that_means_the_same(
        query in proptest::collection::vec(any::<u8>(), 0..60),
        end in prop::sample::select(vec![" HTTP/1.1\r\n", " HTTP/1.0\r\n", "\r\n", "\n"]),
    ) {
        let line = [BEGIN.as_bytes(), &query, end.as_bytes()].concat();
        if let Some(repaired) = repaired(&line) {
            prop_assert_eq!(repaired.split(|byte| *byte == b' ').count(), 3);
            prop_assert!(repaired.starts_with(BEGIN.as_bytes()));
            prop_assert!(repaired.ends_with(end.as_bytes()));
            let sent = &repaired[BEGIN.len()..repaired.len() - end.len()];
            prop_assert!(sent.iter().all(u8::is_ascii_graphic));
            let meant = |raw: &[u8]| percent_encoding::percent_decode(raw).collect::<Vec<u8>>();
            prop_assert_eq!(meant(sent), meant(&query));
            prop_assert_eq!(super::repaired(&repaired), None);
        }
    }
}
