//! Request lines and header fields that are malformed, ambiguous, too long, or merely unusual.

use super::raw::{Raw, Vector, check, closed, good_body, kept, malformed, start};
use super::support::batch::BULK;
use super::support::client::request;

/// Returns a request for `/healthz` with the header fields `fields`.
fn get(fields: &str) -> String {
    format!("GET /healthz HTTP/1.1\r\n{fields}\r\n")
}

/// Returns a request for `target` that is otherwise valid.
fn target(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n")
}

fn method(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

pub(crate) fn fields() -> Vec<Vector> {
    let many = |count: usize| {
        (1..count).fold("host: x\r\n".to_owned(), |s, i| s + &format!("a{i}: 1\r\n"))
    };
    let long = |bytes: usize| format!("host: x\r\na: {}\r\n", "b".repeat(bytes));
    let too_large = "431 Request Header Fields Too Large";
    vec![
        malformed("a space before the colon", get("host: x\r\na : b\r\n")),
        malformed("a space before the colon of a length", get("host: x\r\ncontent-length : 5\r\n")),
        malformed("a folded line", get("host: x\r\na: b\r\n c\r\n")),
        malformed("a field that begins with a space", get(" host: x\r\n")),
        malformed("a CR within a value", get("host: x\r\na: b\rc: d\r\n")),
        malformed("a NUL within a value", get("host: x\r\na: b\0c\r\n")),
        malformed("a NUL within a name", get("host: x\r\na\0: b\r\n")),
        malformed("no name", get("host: x\r\n: b\r\n")),
        malformed("no colon", get("host: x\r\nabc\r\n")),
        malformed("a control character", get("host: x\r\na: \x07\r\n")),
        malformed("no host", get("")),
        malformed("two hosts", get("host: x\r\nhost: y\r\n")),
        malformed("the same host twice", get("host: x\r\nhost: x\r\n")),
        malformed(
            "lines that end with CR alone",
            get("host: x\r\n").replace("\r\n", "\r") + "\r\n\r\n",
        ),
        kept(
            "lines that end with LF alone",
            get("host: x\r\n").replace("\r\n", "\n"),
            &[200],
            "ok",
        ),
        kept("one line that ends with LF alone", get("host: x\na: b\r\n"), &[200], "ok"),
        kept("a value that is not ASCII", get("host: x\r\na: \u{e4}\u{20ac}\r\n"), &[200], "ok"),
        kept("64 fields", get(&many(64)), &[200], "ok"),
        closed("65 fields", get(&many(65)), &[431], too_large),
        kept("a head of 15 KiB", get(&long(15 << 10)), &[200], "ok"),
        closed("a head of 16 KiB and more", get(&long(16 << 10)), &[431], too_large),
        closed("a head of 1 MiB", get(&long(1 << 20)), &[431], too_large),
        closed(
            "a head without end",
            "GET / HTTP/1.1\r\n".to_owned() + &"a".repeat(1 << 20),
            &[431],
            "",
        ),
        kept("an unknown expectation", get("host: x\r\nexpect: magic\r\n"), &[200], "ok"),
        kept(
            "an upgrade to h2c",
            get("host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n"),
            &[200],
            "ok",
        ),
        kept(
            "an upgrade to WebSocket",
            get("host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"),
            &[200],
            "ok",
        ),
        closed(
            "a wish to close",
            get("host: x\r\nconnection: close\r\n"),
            &[200],
            "connection: close",
        ),
    ]
}

pub(crate) fn request_lines() -> Vec<Vector> {
    let tls = [&b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03"[..], &[0; 160]].concat();
    let all_bytes: Vec<u8> = (0..=255).collect();
    let healthy = get("host: x\r\n");
    vec![
        malformed("no target", "GET HTTP/1.1\r\nhost: x\r\n\r\n"),
        malformed("no version", "GET /healthz\r\n\r\n"),
        malformed("a space in the target", target("/heal thz")),
        malformed("a NUL in the target", target("/heal\0thz")),
        malformed("two spaces", "GET  /healthz  HTTP/1.1\r\nhost: x\r\n\r\n"),
        malformed("tabs", "GET\t/healthz\tHTTP/1.1\r\nhost: x\r\n\r\n"),
        malformed("a method that is not a token", method("G(T", "/healthz")),
        malformed("a space before the method", format!(" {healthy}")),
        malformed("version 1.2", "GET /healthz HTTP/1.2\r\nhost: x\r\n\r\n"),
        malformed("version 2.0", "GET /healthz HTTP/2.0\r\nhost: x\r\n\r\n"),
        malformed("version 11", "GET /healthz HTTP/11\r\nhost: x\r\n\r\n"),
        malformed("a version in lower case", "GET /healthz http/1.1\r\nhost: x\r\n\r\n"),
        malformed("a TLS hello", tls),
        malformed("every byte", all_bytes),
        malformed("garbage", b"\xde\xad\xbe\xef".repeat(100)),
        closed("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[], ""),
        malformed("HTTP/1.0 with two hosts", "GET /healthz HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n"),
        malformed("the absolute form without a host", "GET http://x/healthz HTTP/1.1\r\n\r\n"),
        closed("HTTP/1.0", "GET /healthz HTTP/1.0\r\n\r\n", &[200], "ok"),
        kept(
            "HTTP/1.0 kept alive",
            "GET /healthz HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
            &[200],
            "ok",
        ),
        kept("empty lines before it", format!("\r\n\r\n{healthy}"), &[200], "ok"),
        kept("LFs before it", format!("\n\n{healthy}"), &[200], "ok"),
        kept("the absolute form", target("http://x/healthz"), &[200], "ok"),
        kept(
            "the absolute form of another host",
            target("http://evil.example/healthz"),
            &[200],
            "ok",
        ),
        kept("a fragment", target("/healthz#a"), &[200], "ok"),
        kept("a double slash", target("//healthz"), &[404], "problem+json"),
        kept("an escaped path", target("/%68ealthz"), &[404], "problem+json"),
        kept("a path with dots", target("/healthz/../metrics"), &[404], "problem+json"),
        kept("a path that is not ASCII", target("/h\u{e4}"), &[404], "problem+json"),
    ]
}

pub(crate) fn paths_and_methods() -> Vec<Vector> {
    let single = "/api/2013-07-01/ring_pools/1/allocate_number.json?ring_pool_key=x";
    let long = |path: &str, bytes: usize| {
        target(&format!("{path}?{}", "y".repeat(bytes - path.len() - 1)))
    };
    let dated = |date: &str| request("POST", &format!("/api/{date}/bulk.json"), &[], "{}");
    vec![
        kept("GET for a batch", method("GET", BULK), &[405], "allow: POST"),
        kept("HEAD for a batch", method("HEAD", BULK), &[405], "allow: POST"),
        kept("PUT for a batch", method("PUT", BULK), &[405], "allow: POST"),
        kept("OPTIONS for a batch", method("OPTIONS", BULK), &[204], "allow: POST"),
        kept("a made-up method", method("FOO", BULK), &[405], "allow: POST"),
        kept("a method in lower case", method("post", BULK), &[405], "allow: POST"),
        kept("POST for a single one", method("POST", single), &[405], "allow: GET"),
        kept("HEAD for a single one", method("HEAD", single), &[200], "application/json"),
        kept("POST for health", request("POST", "/healthz", &[], ""), &[405], "allow: GET,HEAD"),
        kept("DELETE for metrics", method("DELETE", "/metrics"), &[405], "allow: GET,HEAD"),
        kept("HEAD for health", method("HEAD", "/healthz"), &[200], "content-length"),
        kept("OPTIONS for all", method("OPTIONS", "*"), &[404], "problem+json"),
        kept("CONNECT", method("CONNECT", "example.org:443"), &[404], "problem+json"),
        kept("an unknown path", target("/nope"), &[404], "problem+json"),
        kept(
            "an unknown path of the API",
            target("/api/2013-07-01/nope"),
            &[404],
            "RecordNotFound",
        ),
        kept("an API without version", target("/api/bulk.json"), &[404], "RecordNotFound"),
        kept("a version that is not a date", dated("latest"), &[400], "must be a date"),
        kept("a 13th month", dated("2013-13-01"), &[400], "must be a date"),
        kept("a 32nd day", dated("2013-01-32"), &[400], "must be a date"),
        kept(
            "another format",
            target("/api/2013-07-01/ring_pools/1/allocate_number.yaml"),
            &[404],
            "",
        ),
        kept("a long query", long("/healthz", 8192), &[200], "ok"),
        kept("a query that is too long", long("/healthz", 8193), &[414], "at most 8192 bytes"),
        kept("the same for a batch", long(BULK, 8193), &[414], "at most 8192 bytes"),
    ]
}

#[test]
fn header_fields_are_read_strictly() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &fields());
}

#[test]
fn a_malformed_request_is_answered_with_400_and_closed() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &request_lines());
}

#[test]
fn paths_methods_and_versions_have_their_errors() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &paths_and_methods());
}

#[test]
fn the_limits_of_heads_are_those_of_the_configuration() {
    let settings = "limits.header_bytes = \"2KiB\"\nlimits.headers = 8\nlimits.uri_bytes = 256";
    let (site, server) = start(settings);
    let padded = |bytes: usize| {
        let empty = get("host: x\r\na: \r\n").len();
        get(&format!("host: x\r\na: {}\r\n", "b".repeat(bytes - empty)))
    };
    let many = |count: usize| {
        (1..count).fold("host: x\r\n".to_owned(), |s, i| s + &format!("a{i}: 1\r\n"))
    };
    let vectors = [
        kept("a head at its limit", padded(2048), &[200], "ok"),
        closed("a head over its limit", padded(2049), &[431], ""),
        kept("8 fields", get(&many(8)), &[200], "ok"),
        closed("9 fields", get(&many(9)), &[431], ""),
        kept("256 bytes", target(&format!("/healthz?{}", "y".repeat(247))), &[200], "ok"),
        kept("257 bytes", target(&format!("/healthz?{}", "y".repeat(248))), &[414], "at most 256"),
    ];
    check(&server, &site.pools[0], &vectors);
}

#[test]
fn an_unused_body_is_read_and_discarded() {
    let (site, server) = start("");
    let body = good_body(&site.pools[0]);
    let with_body = |line: &str| {
        format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let vectors = [
        closed(
            "a wrong method with a body that does not arrive",
            format!("PUT {BULK} HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\nhello"),
            &[405],
            "allow: POST",
        ),
        kept("GET with a body", with_body("GET /healthz"), &[200], "ok"),
        kept("an unknown path with a body", with_body("POST /nope"), &[404], ""),
        kept(
            "a wrong method with a body",
            with_body(&format!("PUT {BULK}")),
            &[405],
            "allow: POST",
        ),
        kept("a bad version with a body", with_body("POST /api/x/bulk.json"), &[400], ""),
    ];
    check(&server, &site.pools[0], &vectors);
}

/// A client must be able to send its whole request, although the server answers before it has read
/// the body.
#[test]
fn a_long_unused_body_is_read_and_the_answer_says_that_the_connection_ends() {
    let (site, server) = start("");
    let single = format!("/api/2013-07-01/ring_pools/{}", site.pools[0].suffix("a=1"));
    let long = format!("{single}&b={}", "c".repeat(9_000));
    let rest = vec![b'x'; 3 << 20];
    for (line, status) in [
        (format!("GET {long}"), 414),
        (format!("PUT {BULK}"), 405),
        (format!("POST {single}"), 405),
        (format!("GET {single}"), 200),
        ("POST /api/2013-07-01/nope.json".to_owned(), 404),
        ("POST /api/x/bulk.json".to_owned(), 400),
    ] {
        let head = |length| format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n");
        let ends = |raw: &mut Raw| {
            let reply = raw.reply(true).unwrap();
            let connection = reply.header("connection");
            assert_eq!((reply.status, connection), (status, Some("close")), "{line}");
        };
        // The client reads the answer either before or after it sends the body.
        for is_first in [true, false] {
            let mut raw = Raw::connect(&server);
            raw.must_send((head(rest.len()) + "\r\n").as_bytes());
            if is_first {
                ends(&mut raw);
            }
            for part in rest.chunks(1 << 16) {
                raw.must_send(part);
            }
            if !is_first {
                ends(&mut raw);
            }
        }
        // The body is short, and is not sent together with the head.
        for field in ["", "expect: 100-continue\r\n"] {
            let mut raw = Raw::connect(&server);
            raw.must_send((head(5) + field + "\r\n").as_bytes());
            ends(&mut raw);
        }
    }
}

/// Pages from other sites must not be able to read an answer, and caches must not store it. The
/// answer must not name the program.
#[test]
fn no_answer_may_be_cached_or_shared_and_none_names_the_program() {
    let (site, server) = start("");
    let mut client = server.client();
    let single = format!("/api/2013-07-01/ring_pools/{}", site.pools[0].suffix("a=1"));
    let elsewhere = [("origin", "https://evil.example")];
    let paths =
        [&single, "/api/2013-07-01/ring_pools/x", "/healthz", "/metrics", "/nope", "/v1/nope"];
    let mut answers = Vec::new();
    for path in paths {
        answers.push(client.get(path, &elsewhere).unwrap());
    }
    answers.push(client.post(BULK, &elsewhere, &good_body(&site.pools[0])).unwrap());
    answers.push(client.post(BULK, &elsewhere, "{").unwrap());
    for answer in answers {
        for (field, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")]
        {
            let found = answer.headers.iter().find(|(name, _)| name == field);
            assert_eq!(found.map(|(_, value)| value.as_str()), Some(value), "{answer:?}");
        }
        let is_revealing = |name: &str| {
            name.starts_with("access-control-") || ["server", "set-cookie", "via"].contains(&name)
        };
        let revealing = answer.headers.iter().find(|(name, _)| is_revealing(name));
        assert_eq!(revealing, None, "{answer:?}");
    }
}
