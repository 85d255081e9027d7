//! Requests that are valid HTTP but whose bodies the API does not accept.

use super::raw::{Vector, check, closed, good_body, kept, start};
use super::support::batch::BULK;
use super::support::client::request;

fn batch(body: &str) -> String {
    request("POST", BULK, &[], body)
}

fn batch_of_bytes(body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("POST {BULK} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len())
            .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn row(suffix: &str) -> String {
    batch(&format!(r#"{{"requests":[{{"api_suffix":"{suffix}"}}]}}"#))
}

pub(crate) fn refused_batches() -> Vec<Vector> {
    let many = |rows: usize| {
        let row = r#"{"api_suffix":"1/x"}"#;
        batch(&format!(r#"{{"requests":[{}]}}"#, vec![row; rows].join(",")))
    };
    let nested = |depth: usize| {
        batch(&format!(r#"{{"requests":{}{}}}"#, "[".repeat(depth), "]".repeat(depth)))
    };
    vec![
        kept("not JSON", batch("hello"), &[400], "the body is not JSON"),
        kept("an empty body", batch(""), &[400], "the body is not JSON"),
        kept("JSON that is cut", batch(r#"{"requests":[{"#), &[400], "the body is not JSON"),
        kept("invalid UTF-8", batch_of_bytes(b"{\"requests\":[\"\xff\xfe\"]}"), &[400], "not JSON"),
        kept("a NUL", batch_of_bytes(b"{\"requests\":[\0]}"), &[400], "not JSON"),
        kept("an array", batch("[1]"), &[403], "the body must be"),
        kept("a number", batch("1"), &[403], "the body must be"),
        kept("no requests", batch("{}"), &[403], "the body must be"),
        kept("requests is text", batch(r#"{"requests":"x"}"#), &[403], "the body must be"),
        kept("no row", batch(r#"{"requests":[]}"#), &[403], "at least one"),
        kept("500 rows", many(500), &[200], "\"responses\""),
        kept("501 rows", many(501), &[413], "at most 500"),
        kept("requests twice", batch(r#"{"requests":[],"requests":[]}"#), &[403], "must be"),
        kept("nested deeply", nested(9), &[403], "nested too deeply"),
        kept("nested very deeply", nested(100_000), &[403], "nested too deeply"),
        kept("opened only", batch(&"[".repeat(200_000)), &[403], "nested too deeply"),
    ]
}

#[test]
fn a_malformed_batch_is_refused_as_a_whole_and_the_connection_continues() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &refused_batches());
}

#[test]
fn a_bad_row_gets_an_error_of_its_own() {
    let (site, server) = start("");
    let pool = &site.pools[0];
    let twice = r#"{"requests":[{"api_suffix":"1/x","api_suffix":"1/x"}]}"#;
    let long = format!("{}&x={}", pool.suffix("a=1"), "y".repeat(8192));
    let id =
        format!(r#"{{"requests":[{{"api_suffix":"1/x","request_id":"{}"}}]}}"#, "i".repeat(300));
    let with = |more: &str| row(&pool.suffix(more));
    let other_key = format!("{}&ring_pool_key=wrong", pool.suffix("a=1"));
    let vectors = [
        kept("a row that is text", batch(r#"{"requests":["x"]}"#), &[200], "InvalidInput"),
        kept("a row without suffix", batch(r#"{"requests":[{}]}"#), &[200], "InvalidInput"),
        kept("a member twice", batch(twice), &[200], "InvalidInput"),
        kept("a path that is none", row("1/release.json?a=1"), &[200], "InvalidInput"),
        kept("a suffix too long", row(&long), &[200], "longer than this server takes"),
        kept("a request_id too long", batch(&id), &[200], "request_id must be a short"),
        kept("a broken escape", with("a=%zz&b=%2&c=%"), &[200], "promo_number"),
        kept("an escaped NUL", with("a=%00%ff"), &[200], "promo_number"),
        kept("a parameter twice", with("a=1&a=2"), &[200], "promo_number"),
        kept("the last key counts", row(&other_key), &[200], "InvalidKey"),
        kept(
            "a pool id too large",
            row("99999999999999999999999/allocate_number.json?a=1"),
            &[200],
            "InvalidInput",
        ),
    ];
    check(&server, pool, &vectors);
}

#[test]
fn without_the_key_a_pool_s_existence_is_hidden() {
    let (_site, server) = start("");
    let mut client = server.client();
    let mut ask = |pool: &str, key: &str| {
        let suffix = format!("{pool}/allocate_number.json?ring_pool_key={key}&a=1");
        client.send(row(&suffix).as_bytes()).unwrap();
        let bulk = client.receive().unwrap();
        let path = format!("/api/2013-07-01/ring_pools/{suffix}");
        let of = format!("for resource '{pool}'");
        let single = client.get(&path, &[]).unwrap();
        (
            bulk.status,
            bulk.body.replace(&of, "of it"),
            single.status,
            single.body.replace(&of, "of it"),
        )
    };
    for key in ["", "wrong-key", "key-of-00001x", "key-of-0000", "KEY-OF-00001"] {
        let (there, nowhere) = (ask("1", key), ask("9", key));
        assert_eq!(there, nowhere, "{key}");
        assert_eq!((there.0, there.2), (200, 401));
        assert!(there.1.contains(&format!("API Key '{key}' is not valid of it")));
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let (site, server) = start("limits.body_bytes = \"4KiB\"");
    let pool = &site.pools[0];
    let pad = |bytes: usize| {
        let body = good_body(pool);
        format!("{body}{}", " ".repeat(bytes - body.len()))
    };
    let head = |fields: &str| format!("POST {BULK} HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
    let chunk = format!("400\r\n{}\r\n", " ".repeat(1024));
    let chunked = |chunks: usize| head("transfer-encoding: chunked\r\n") + &chunk.repeat(chunks);
    let says = "the body may have at most 4096 bytes";
    let vectors = [
        kept("at the limit", batch(&pad(4096)), &[200], "promo_number"),
        closed("one over", batch(&pad(4097)), &[413], says),
        closed("announced", head("content-length: 9999999999\r\n"), &[413], says),
        closed("far over", batch(&pad(1 << 20)), &[413], says),
        closed("in chunks", chunked(5), &[413], says),
        closed("in many chunks", chunked(2000) + "0\r\n\r\n", &[413], says),
        closed(
            "instead of a continue",
            head("expect: 100-continue\r\ncontent-length: 4097\r\n"),
            &[413],
            says,
        ),
        kept(
            "a continue at the limit",
            head("expect: 100-continue\r\ncontent-length: 4096\r\n") + &pad(4096),
            &[100, 200],
            "promo_number",
        ),
    ];
    check(&server, pool, &vectors);
}
