use proptest::prelude::*;

use super::*;
use crate::response::{BulkResponse, ResponseRow};
use crate::span::Span;
use ringwell_core::{PoolId, PromoNumber};

fn parse(body: &str) -> Result<Batch, RequestError> {
    let mut batch = Batch::default();
    batch.parse(Bytes::copy_from_slice(body.as_bytes()), &Limits::default()).map(|()| batch)
}

/// Writes a row as text: `pool KEY before|after [visitor] id`.
fn words(batch: &Batch, row: &Row) -> String {
    let text = |span: Span| String::from_utf8_lossy(span.of(batch.text())).into_owned();
    let id = row.request_id.map_or("-".to_owned(), text);
    match row.ask {
        Ok(ask) => format!(
            "{} {} {}|{} {} {id}",
            ask.pool,
            text(ask.key),
            text(ask.params[0]),
            text(ask.params[1]),
            ask.visitor.map_or("-".to_owned(), text)
        ),
        Err(error) => format!("{}: {} {id}", error.class(), error.message(batch.text())),
    }
}

#[track_caller]
fn check(body: &str, rows: &[&str]) {
    let batch = parse(body).unwrap();
    let got: Vec<String> = batch.rows().iter().map(|row| words(&batch, row)).collect();
    assert_eq!(got, rows, "{body}");
}

#[track_caller]
fn check_suffix(suffix: &str, row: &str) {
    let body = serde_json::json!({"requests": [{"api_suffix": suffix}]}).to_string();
    check(&body, &[row]);
}

/// The fast reader ([`crate::scan`]) examines parameters in blocks of sixteen bytes, so the name
/// must be found at every offset in a block.
#[test]
fn a_visitor_is_found_wherever_the_name_begins() {
    for length in 0..40 {
        for behind in ["", "\",\"request_id\":\"1"] {
            let before = "x".repeat(length);
            let body = format!(
                r#"{{"requests":[{{"api_suffix":"1/allocate_number.json?ring_pool_key=K&a={before}&ringwell_visitor=v7{behind}"}}]}}"#
            );
            let mut batch = Batch::default();
            batch.parse(body.into(), &Limits::default()).unwrap();
            let visitor = batch.rows()[0].ask.unwrap().visitor.unwrap();
            assert_eq!(visitor.of(batch.text()), b"v7", "behind {length} bytes");
        }
    }
}

#[test]
fn the_documented_body_is_read() {
    check(
        r#"{"requests":[{"api_suffix":"16/allocate_number.json?ring_pool_key=K&m1=autos&m2=ford","request_id":"193C5F"},{"api_suffix":"17/allocate_number.json?ring_pool_key=L&a=1"}]}"#,
        &["16 K |m1=autos&m2=ford - \"193C5F\"", "17 L |a=1 - -"],
    );
}

#[test]
fn a_suffix_may_begin_in_several_ways_and_have_any_of_the_extensions() {
    for begin in [
        "16",
        "/16",
        "ring_pools/16",
        "/ring_pools/16",
        "/api/2013-07-01/ring_pools/16",
        "//api/2013-07-01/ring_pools/16",
        "https://pnapi.example.net/api/2013-07-01/ring_pools/16",
        "HTTP://localhost:8080//api/2013-07-01/ring_pools/16",
        " \t16",
    ] {
        for extension in [".json", ".xml", ".csv", ".JSON", "", "/", ".json/"] {
            for end in ["", " ", "\r\n"] {
                let suffix = format!("{begin}/allocate_number{extension}?ring_pool_key=K&a=1{end}");
                check_suffix(&suffix, "16 K |a=1 - -");
            }
        }
    }
}

/// The fast reader ([`crate::scan`]) leaves URLs with long hosts to slower code.
#[test]
fn a_host_of_any_length_is_skipped_whole() {
    let shape = "InvalidInput: api_suffix must be <pool id>/allocate_number.json?ring_pool_key=<key>&<parameters> -";
    let query = "allocate_number.json?ring_pool_key=K&a=1";
    for length in 0..300 {
        let host = "h".repeat(length);
        for path in ["/", "//api/2013-07-01/", "/ring_pools/"] {
            check_suffix(&format!("https://{host}{path}16/{query}"), "16 K |a=1 - -");
        }
        check_suffix(&format!("https://{host}16/{query}"), shape);
        check_suffix(&format!("https://{host}?16/{query}"), shape);
    }
}

#[test]
fn the_key_may_be_anywhere_and_the_last_one_counts() {
    check_suffix("1/allocate_number.json?a=1&ring_pool_key=K&b=2", "1 K a=1|b=2 - -");
    check_suffix("1/allocate_number.json?a=1&ring_pool_key=K", "1 K a=1| - -");
    check_suffix(
        "1/allocate_number.json?ring_pool_key=K&ring_pool_key=L",
        "1 L ring_pool_key=K| - -",
    );
    check_suffix(
        "1/allocate_number.json?ring_pool_key=&a=&ring_pool_key=a%2Db&b=2&ring_pool_keys=M",
        "1 a-b ring_pool_key=&a=|b=2&ring_pool_keys=M - -",
    );
    check_suffix("1/allocate_number.json?xring_pool_key=K", "1  xring_pool_key=K| - -");
    check_suffix("1/allocate_number.json", "1  | - -");
    check_suffix("1/allocate_number.json?", "1  | - -");
}

#[test]
fn a_key_is_compared_decoded_and_parameters_stay_as_received() {
    check_suffix("1/allocate_number.json?ring_pool_key=a%2Db&c=%zz+%20", "1 a-b |c=%zz+%20 - -");
}

#[test]
fn a_visitor_is_found_at_any_place() {
    check_suffix(
        "1/allocate_number.json?ring_pool_key=K&a=1&ringwell_visitor=v7&b=2",
        "1 K |a=1&ringwell_visitor=v7&b=2 v7 -",
    );
    check_suffix(
        "1/allocate_number.json?ringwell_visitor=v7&ring_pool_key=K",
        "1 K ringwell_visitor=v7| v7 -",
    );
    check_suffix(
        "1/allocate_number.json?ring_pool_key=K&ringwell_visitor=",
        "1 K |ringwell_visitor= - -",
    );
}

#[test]
fn the_last_visitor_counts_on_either_side_of_the_key_even_if_it_is_invalid() {
    let (first, second) = ("ringwell_visitor=v7", "ringwell_visitor=");
    check_suffix(
        &format!("1/allocate_number.json?{first}&ring_pool_key=K&{second}"),
        &format!("1 K {first}|{second} - -"),
    );
    check_suffix(
        &format!("1/allocate_number.json?ring_pool_key=K&{second}&{first}"),
        &format!("1 K |{second}&{first} v7 -"),
    );
}

#[test]
fn the_request_id_keeps_its_json_type() {
    for id in ["\"a\"", "7", "-1.5e3", "true", "null", "12345678901234567890123", "\"\\u00e9\""] {
        check(
            &format!(
                r#"{{"requests":[{{"request_id":{id},"api_suffix":"1/allocate_number.json?ring_pool_key=K"}}]}}"#
            ),
            &[&format!("1 K | - {id}")],
        );
    }
}

#[test]
fn escapes_white_space_and_unknown_members_are_harmless() {
    check(
        "{ \"extra\": {\"deep\": [1]}, \"requests\" : [\n\t{\"api_suffix\": \"16\\/allocate_number.json?ring_pool_key=K&a=\\u0041\", \"x\": [] }\r\n] }",
        &["16 K |a=A - -"],
    );
    check(
        r#"{"request":[{"api_suffix":"1/allocate_number.json?ring_pool_key=K"}]}"#,
        &["1 K | - -"],
    );
}

#[test]
fn requests_takes_precedence_over_request() {
    let row =
        |pool: u32| format!(r#"[{{"api_suffix":"{pool}/allocate_number.json?ring_pool_key=K"}}]"#);
    check(&format!(r#"{{"request":{},"requests":{}}}"#, row(1), row(2)), &["2 K | - -"]);
    let body = format!(r#"{{"requests":[],"request":{}}}"#, row(1));
    assert_eq!(parse(&body).unwrap_err(), RequestError::NoRows);
}

#[test]
fn no_style_of_a_batch_and_no_row_sends_the_whole_body_to_the_careful_reader() {
    let row = r#"{"api_suffix":"1/allocate_number.json?ring_pool_key=K"}"#;
    for (rows, around) in [
        (r#"{"b":"x","api_suffix":"1/allocate_number.json"}"#, "\"a\":7,"),
        (r#"{"b":{"c":[1]},"d":-1.5e3,"api_suffix":"1/allocate_number.json"}"#, "\"a\":[{}],"),
        (r#"{"b":1,"b":2,"request_id":1,"request_id":2}"#, "\"a\":1,\"a\":2,"),
        (r#"{"request_id":"\u00e9\"","api_suffix":"1\/allocate_number.json"}"#, ""),
        (r#"{"api_suffix":"1/allocate_number.json?a=\ud83d\ude00\n\u0000é"}"#, ""),
        (r#"{"api_suffix":"1/allocate_number.json?ring_pool_key=%41"}"#, ""),
        (r#"{"api_suffix":"\ud800"}"#, ""),
        (r#"{"api_suff\u0069x":"1/allocate_number.json"}"#, ""),
        (r#"{"api_suffix":7}, 7, null, [], "x", {}, {"request_id":{}}"#, ""),
    ] {
        let body = format!("{{{around}\"requests\":[{row},{rows},{row}]}}");
        let scanned = scan::scan(body.as_bytes(), &Limits::default(), &mut Vec::new());
        assert!(scanned.is_some(), "{body}");
    }
}

#[test]
fn a_bad_row_leaves_the_others_alone() {
    let shape = "InvalidInput: api_suffix must be <pool id>/allocate_number.json?ring_pool_key=<key>&<parameters> -";
    check(
        r#"{"requests":[7,["1/allocate_number.json?ring_pool_key=K"],{"api_suffix":7,"request_id":"a"},{"request_id":1},{"api_suffix":"x"},{"api_suffix":"1/\ud800","request_id":2},{"api_suffix":"1/allocate_number.json?ring_pool_key=K","request_id":{"a":1}},{"api_suffix":"1/allocate_number.json?ring_pool_key=K"}]}"#,
        &[
            "InvalidInput: a row is an object with api_suffix and, if wanted, request_id -",
            "InvalidInput: a row is an object with api_suffix and, if wanted, request_id -",
            "InvalidInput: a row needs api_suffix, a string \"a\"",
            "InvalidInput: a row needs api_suffix, a string 1",
            shape,
            "InvalidInput: api_suffix contains half of a surrogate pair (\\ud800 to \\udfff), which is no character 2",
            "InvalidInput: request_id must be a short string, number, true, false or null -",
            "1 K | - -",
        ],
    );
    for suffix in [
        "",
        "/",
        "16",
        "16/allocate",
        "16/allocate_number.pdf",
        "-1/allocate_number.json",
        "99999999999999999999999/allocate_number.json?",
        "16/allocate_number.jsonx",
        "16/allocate_numbers",
        "16/allocate_number.",
        "http://16/allocate_number.json",
        "/api/2013-13-01/ring_pools/16/allocate_number.json",
        "ftp://host/api/2013-07-01/ring_pools/16/allocate_number.json",
    ] {
        check_suffix(suffix, shape);
    }
}

#[test]
fn a_malformed_body_is_refused_with_the_reason() {
    let deep = format!("{{\"requests\":{}1{}}}", "[".repeat(50), "]".repeat(50));
    let many = format!("{{\"requests\":[{}]}}", ["1"; 501].join(","));
    for (body, error) in [
        ("", RequestError::NotJson),
        ("{", RequestError::NotJson),
        ("{\"requests\":[{}]} x", RequestError::NotJson),
        ("[]", RequestError::NotABatch),
        ("[[{}],null]", RequestError::NotABatch),
        ("7", RequestError::NotABatch),
        ("{}", RequestError::NotABatch),
        ("{\"requests\":7}", RequestError::NotABatch),
        ("{\"requests\":null}", RequestError::NotABatch),
        ("{\"requests\":[],\"requests\":[]}", RequestError::NotABatch),
        ("{\"requests\":[{\"api_suffix\":\"x\"}],\"requests\":7}", RequestError::NotABatch),
        ("{\"requests\":[{\"api_suffix\":\"x\"}],\"request\":7}", RequestError::NotABatch),
        ("{\"requests\":[]}", RequestError::NoRows),
        (deep.as_str(), RequestError::TooDeep),
        (many.as_str(), RequestError::TooManyRows { limit: 500 }),
    ] {
        assert_eq!(parse(body).unwrap_err(), error, "{body}");
    }
    let mut batch = Batch::default();
    let invalid = Bytes::from_static(b"{\"requests\":[{\"api_suffix\":\"\xff\"}]}");
    assert_eq!(batch.parse(invalid, &Limits::default()), Err(RequestError::NotJson));
    let invalid = Bytes::from_static(b"{\"x\":\"\xff\",\"requests\":[{}]}");
    assert_eq!(batch.parse(invalid, &Limits::default()), Err(RequestError::NotJson));
}

#[test]
fn limits_hold_at_the_limit_and_not_beyond() {
    let row = r#"{"api_suffix":"1/allocate_number.json?ring_pool_key=K"}"#;
    let rows = |count: usize| format!("{{\"requests\":[{}]}}", vec![row; count].join(","));
    assert_eq!(parse(&rows(500)).unwrap().rows().len(), 500);
    let error = RequestError::TooManyRows { limit: 500 };
    assert_eq!(parse(&rows(501)).unwrap_err(), error);
    let begin = "1/allocate_number.json?ring_pool_key=K&a=";
    let long = |bytes: usize| format!("{begin}{}", "x".repeat(bytes - begin.len()));
    check_suffix(&long(8193), "InvalidInput: api_suffix is longer than this server takes -");
    let body = serde_json::json!({"requests": [{"api_suffix": long(8192)}]}).to_string();
    assert!(parse(&body).unwrap().rows()[0].ask.is_ok());
}

#[test]
fn a_strict_server_wants_a_parameter_even_if_it_is_empty() {
    let limits = Limits { strict_params: true, ..Limits::default() };
    let mut batch = Batch::default();
    let body = r#"{"requests":[{"api_suffix":"1/allocate_number.json?ring_pool_key=K"},{"api_suffix":"1/allocate_number.json?ring_pool_key=K&a="}]}"#;
    batch.parse(Bytes::from_static(body.as_bytes()), &limits).unwrap();
    let is_ok: Vec<bool> = batch.rows().iter().map(|row| row.ask.is_ok()).collect();
    assert_eq!(is_ok, [false, true]);
}

#[test]
fn the_next_batch_uses_the_same_memory() {
    let row = r#"{"api_suffix":"1/allocate_number.json?ring_pool_key=K&a=1","request_id":"7"}"#;
    let body = Bytes::from(format!("{{\"requests\":[{}]}}", vec![row; 40].join(",")));
    let mut batch = Batch::default();
    batch.parse(body.clone(), &Limits::default()).unwrap();
    let before = (batch.rows.as_ptr(), batch.rows.capacity());
    for _ in 0..100 {
        batch.parse(body.clone(), &Limits::default()).unwrap();
    }
    assert_eq!((batch.rows.as_ptr(), batch.rows.capacity()), before);
    assert_eq!(batch.text.as_ptr(), body.as_ptr(), "the body was copied");
}

#[test]
fn a_response_has_its_members_in_the_documented_order() {
    let number = PromoNumber::parse("8885550142").unwrap();
    let batch = parse(
        r#"{"requests":[{"request_id":"a","api_suffix":"x"},{"api_suffix":"1/allocate_number.json?ring_pool_key=\"<\\"}]}"#,
    )
    .unwrap();
    let mut out = Vec::new();
    let mut response = BulkResponse::new(&mut out, batch.text());
    response.row(
        batch.rows()[0].request_id,
        &ResponseRow::Number { number, overflow: false, tracking: None },
    );
    let tracking = crate::Tracking {
        base: "http://t.example/c/1/2-3-4",
        destination: "http://l.example/?a=b",
    };
    response.row(None, &ResponseRow::Number { number, overflow: true, tracking: Some(tracking) });
    let ask = batch.rows()[1].ask.unwrap();
    let error = RowError::InvalidKey { key: ask.key, pool: ask.pool_text };
    response.row(None, &ResponseRow::Error(error));
    let error = RowError::PoolExhausted { pool: PoolId(1), wait_ms: 1001 };
    response.row(None, &ResponseRow::Error(error));
    response.finish();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        concat!(
            r#"{"responses":[{"request_id":"a","promo_number_formatted":"888-555-0142","promo_number":"8885550142","tracking_url":""},"#,
            r#"{"promo_number_formatted":"888-555-0142","promo_number":"8885550142","tracking_url":"http://t.example/c/1/2-3-4?us=http%3A%2F%2Fl.example%2F%3Fa%3Db%26sid%3D8885550142%26PPCPN%3D8885550142","overflow":true},"#,
            r#"{"error_class":"InvalidKey","message":"API Key '\"<\\' is not valid for resource '1'"},"#,
            r#"{"error_class":"PoolExhausted","message":"All numbers of ring pool 1 are in use and it has no overflow number; ask again in 2 seconds"}]}"#
        )
    );
}

fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{\"requests\":[",
        "{",
        "}",
        "]",
        ",",
        ":",
        "\"api_suffix\":",
        "\"request_id\":",
        "\"a_stranger\":",
        "\"16/allocate_number.json?ring_pool_key=KEY12345&m1=autos\"",
        "\"16/allocate_number.json?m1=a&ring_pool_key=K%41\"",
        "\"1\\/allocate_number.json\"",
        "\"x\"",
        "7",
        "01",
        "1.5",
        "true",
        "nul",
        "\"",
        "\\",
        " ",
        "\n",
        "\u{1}",
        "é",
    ]);
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Generates suffixes that are nearly always valid, with occasional escapes.
fn suffixes() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "ring_pool_key=",
        "ringwell_visitor=",
        "KEY",
        "a long piece of text, beyond a block",
        "m1=autos",
        "&",
        "\\u0026",
        "=",
        "%41",
        "+",
        "\\/",
        "\\u00e9",
        "\\u00E9\\u0041",
        "\\ud83d\\ude00",
        "\\\"",
        "\\\\",
        "\\n\\t\\b\\f\\r",
        "é",
        "😀",
        " ",
        "!",
        "\\ud83d",
        "\\u00g0",
        "\\u0g00",
        "\\x",
        "\u{7f}",
    ]);
    let begin = "(/| |(https?|HTTP):(\\\\/\\\\/|//)(h|é|h{200,260}|h{250,258}16))?(/|\\\\/)?(api/2013-07-01/)?(ring_pools/|ring_pools\\\\/)?[0-9]{0,9}(/|\\\\/)allocate_number(\\.(json|xml|csv))?/?\\??";
    let key = prop::sample::select(vec!["", "ring_pool_key=KEY", "ring_pool_key=K%41&"]);
    // Most pieces contain no fault, so that most suffixes are valid.
    (begin, key, proptest::collection::vec(piece, 0..6))
        .prop_map(|(begin, key, pieces)| format!("{begin}{key}{}", pieces.concat()))
}

fn near_batches() -> impl Strategy<Value = String> {
    let id = prop::sample::select(vec![
        "\"a\"",
        "7",
        "null",
        "0",
        "[]",
        "\"\\u00e9\\/\"",
        "-1.5e+3",
        "01",
        "{\"a\":[[1]]}",
        "\"a longer one, of two blocks or more: \\ud800\"",
        "[[[[[[7]]]]]]",
        "[[[[[7]]]]]",
    ]);
    let row =
        (id, suffixes(), suffixes(), 0..10).prop_map(|(id, suffix, other, form)| match form {
            0 | 1 => format!(r#"{{"api_suffix":"{suffix}","request_id":{id}}}"#),
            2 => format!(r#"{{ "request_id" : {id} , "api_suffix" : "{suffix}" }}"#),
            3 => format!(r#"{{"api_suffix":"{suffix}","x":{id},"request_id":7}}"#),
            4 => format!(r#"{{"api_suffix":"{suffix}","x":{id},"y":true}}"#),
            5 => format!(r#"{{"api_suffix":"{other}","request_id":{id},"api_suffix":"{suffix}"}}"#),
            6 => format!(r#"{{"request_id":1,"request_id":{id},"api_suffi\u0078":"{suffix}"}}"#),
            7 => format!(
                "\n    {{\n\t\"api_suffix\": \"{suffix}\",\r\n        \"request_id\": {id}\n}}\n"
            ),
            8 => format!(r#"{{"api_suffix":{id}}}"#),
            _ => id.to_owned(),
        });
    let rows = proptest::collection::vec(row, 0..6);
    let around = prop_oneof![
        4 => Just(("", "")),
        1 => Just(("\"x\":7,", "")),
        1 => Just(("", " ,\"x\":null")),
        1 => Just(("\"x\":[{}],", ",\"x\":8")),
        1 => Just(("", ",\"requests\":7")),
        1 => Just(("\"request\":[],", "")),
    ];
    (rows, around, any::<prop::sample::Index>(), prop::option::weighted(0.3, any::<u8>())).prop_map(
        |(rows, (before, after), at, flip)| {
            let rows = rows.join(",");
            let body = format!("{{{before}\"requests\":[{rows}]{after}}}");
            let Some(byte) = flip else { return body };
            let mut body = body.into_bytes();
            let at = at.index(body.len());
            body[at] = byte % 128;
            String::from_utf8_lossy(&body).into_owned()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_fast_reader_and_the_careful_reader_agree(body in prop_oneof![pieces(), near_batches()]) {
        let limits = Limits { rows_max: 4, ..Limits::default() };
        let mut fast = Batch::default();
        let verdict = scan::scan(body.as_bytes(), &limits, &mut fast.rows);
        let mut careful = Batch::default();
        let parsed = relaxed::parse(body.as_bytes(), &limits, &mut careful.rows);
        if let Some(scanned) = verdict {
            let decoded = scanned.decoded;
            let body = if decoded.is_empty() { body.into_bytes() } else { decoded };
            fast.text = body.into();
            fast.settle(scanned.queries_from);
            careful.text = parsed.unwrap();
            let fast: Vec<String> = fast.rows.iter().map(|row| words(&fast, row)).collect();
            let careful: Vec<String> = careful.rows.iter().map(|r| words(&careful, r)).collect();
            prop_assert_eq!(fast, careful);
        }
    }

    #[test]
    fn no_body_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut batch = Batch::default();
        let _ = batch.parse(Bytes::from(body), &Limits::default());
    }

    #[test]
    fn no_query_makes_it_panic(query in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = crate::params::decode(&query);
    }
}
