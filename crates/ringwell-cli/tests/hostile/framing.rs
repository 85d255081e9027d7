//! The end of a body: lengths and chunks, alone, combined, and invalid. If a proxy and our server
//! disagreed about the end of a body, one client could write the beginning of another client's
//! request.

use super::raw::{
    Vector, check, closed, good_body, kept, malformed, start, wait_until_nobody_is_connected,
};
use super::support::batch::BULK;
use super::support::site::Pool;

/// The request that the server would answer if it saw the end of the body too early.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";

const CHUNKED: &str = "transfer-encoding: chunked\r\n";

fn post(fields: &str, rest: &str) -> String {
    format!("POST {BULK} HTTP/1.1\r\nhost: x\r\n{fields}\r\n{rest}")
}

/// Encodes `body` as one chunk, with the given chunk extension and trailer fields.
fn chunks(body: &str, extension: &str, trailer: &str) -> String {
    format!("{:x}{extension}\r\n{body}\r\n0\r\n{trailer}\r\n", body.len())
}

pub(crate) fn lengths(pool: &Pool) -> Vec<Vector> {
    let body = good_body(pool);
    let bytes = body.len();
    let with = |fields: &str| post(fields, &body);
    let length = |value: &str| with(&format!("content-length: {value}\r\n"));
    let two = |one: usize, other: usize| {
        with(&format!("content-length: {one}\r\ncontent-length: {other}\r\n"))
    };
    vec![
        kept("the same length twice", two(bytes, bytes), &[200], "promo_number"),
        malformed("two lengths", two(bytes, bytes + 1)),
        malformed("two lengths, the shorter one last", two(bytes, bytes - 1)),
        malformed("a list of lengths", length(&format!("{bytes}, {bytes}"))),
        malformed("a length with a sign", length(&format!("+{bytes}"))),
        malformed("a negative length", length("-1")),
        malformed("a hexadecimal length", length("0x10")),
        malformed("a length with a decimal", length("1.0")),
        malformed("an empty length", length("")),
        malformed("a length of more than 64 bits", length("99999999999999999999999")),
        closed("the greatest length", length(&u64::MAX.to_string()), &[431], ""),
        closed("a length far over the limit", length(&(u64::MAX - 2).to_string()), &[413], ""),
        kept("nothing at all", post("", ""), &[400], "not JSON"),
    ]
}

pub(crate) fn codings(pool: &Pool) -> Vec<Vector> {
    let body = good_body(pool);
    let with = |fields: &str| post(fields, &(chunks(&body, "", "") + SMUGGLED));
    let coding = |value: &str| with(&format!("transfer-encoding: {value}\r\n"));
    let close = "connection: close";
    vec![
        closed(
            "a length, then chunks",
            with(&format!("content-length: 5\r\n{CHUNKED}")),
            &[200],
            close,
        ),
        closed(
            "chunks, then a length",
            with(&format!("{CHUNKED}content-length: 5\r\n")),
            &[200],
            close,
        ),
        closed(
            "chunks and no length",
            with(&format!("{CHUNKED}content-length: 0\r\n")),
            &[200],
            close,
        ),
        malformed("chunked twice", with(&format!("{CHUNKED}{CHUNKED}"))),
        malformed("chunked twice in one field", coding("chunked, chunked")),
        malformed("gzip", coding("gzip")),
        malformed("gzip, then chunked", coding("gzip, chunked")),
        malformed("chunked, then identity", coding("chunked, identity")),
        malformed("identity", coding("identity")),
        malformed("another word", coding("xchunked")),
        malformed("a quoted word", coding("\"chunked\"")),
        malformed("a vertical tab before it", coding("\x0bchunked")),
        malformed("an empty coding", coding("")),
        malformed("chunks in HTTP/1.0", with(CHUNKED).replacen("HTTP/1.1", "HTTP/1.0", 1)),
        malformed("a space before the colon", with("transfer-encoding : chunked\r\n")),
        malformed("a folded coding", with("transfer-encoding:\r\n chunked\r\n")),
    ]
}

pub(crate) fn chunked_bodies(pool: &Pool) -> Vec<Vector> {
    let body = good_body(pool);
    let with = |rest: &str| post(CHUNKED, rest);
    let broken = |name, rest: &str| closed(name, with(rest), &[400], "chunks are malformed");
    let number = "promo_number";
    let bytes: String = body.chars().flat_map(|c| ['1', '\r', '\n', c, '\r', '\n']).collect();
    vec![
        kept("one chunk", with(&chunks(&body, "", "")), &[200], number),
        kept("a chunk for each byte", with(&(bytes + "0\r\n\r\n")), &[200], number),
        kept("no chunk", with("0\r\n\r\n"), &[400], "not JSON"),
        kept(
            "capitals",
            post("Transfer-Encoding: CHUNKED\r\n", &chunks(&body, "", "")),
            &[200],
            number,
        ),
        kept(
            "a size with zeros before it",
            with(&format!("000{}", chunks(&body, "", ""))),
            &[200],
            number,
        ),
        kept("an extension", with(&chunks(&body, ";a=b", "")), &[200], number),
        kept(
            "chunks after a continue",
            post(&format!("expect: 100-continue\r\n{CHUNKED}"), &chunks(&body, "", "")),
            &[100, 200],
            number,
        ),
        broken("a long extension", &chunks(&body, &format!(";a={}", "b".repeat(20_000)), "")),
        broken("many trailers", &chunks(&body, "", &"x-t: 1\r\n".repeat(2_000))),
        broken("a trailer", &chunks(&body, "", "x-sum: 1\r\n")),
        // A parser that accepts LF as a line end would end the body after the lone LF. Earlier
        // versions of the HTTP library continued to the next empty line instead.
        broken("LF alone after the last chunk", &format!("0\r\n\n{SMUGGLED}")),
        broken("a trailer that ends with LF alone", &format!("0\r\nx: 1\n\n{SMUGGLED}")),
        broken("a size that is none", "zz\r\nhello\r\n0\r\n\r\n"),
        broken("a size with 0x", "0x5\r\nhello\r\n0\r\n\r\n"),
        broken("a size with a sign", "+5\r\nhello\r\n0\r\n\r\n"),
        broken("a negative size", "-5\r\nhello\r\n0\r\n\r\n"),
        broken("a size of more than 64 bits", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        broken("a size that ends with LF alone", "5\nhello\r\n0\r\n\r\n"),
        broken("an extension that ends with LF alone", "5;a\nhello\r\n0\r\n\r\n"),
        broken("no line end after a chunk", "5\r\nhelloXX0\r\n\r\n"),
        broken("an empty size", "\r\nhello\r\n0\r\n\r\n"),
    ]
}

/// Requests that are answered before their bodies are read. The end of each body can be interpreted
/// in two ways.
pub(crate) fn unread_chunks() -> Vec<Vector> {
    let body = format!("{CHUNKED}\r\n0\r\n\n{SMUGGLED}");
    let single = "/api/2013-07-01/ring_pools/1/allocate_number.json?ring_pool_key=key-of-00001&a=1";
    let long = format!("/{}", "u".repeat(10_000));
    let to =
        |method: &str, target: &str| format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{body}");
    vec![
        closed("behind a single allocation", to("GET", single), &[200], "connection: close"),
        closed(
            "behind an unknown path",
            to("POST", "/api/2013-07-01/what"),
            &[404],
            "connection: close",
        ),
        closed("behind a wrong method", to("PUT", BULK), &[405], "connection: close"),
        closed("behind a long target", to("POST", &long), &[414], "connection: close"),
        closed("behind a look at health", to("GET", "/healthz"), &[400], "connection: close"),
        closed("behind management", to("POST", "/v1/releases"), &[400], "connection: close"),
    ]
}

/// Outside `/api/`, a body is always read to its end, even if the path does not need one.
fn chunks_outside_the_api() -> Vec<Vector> {
    let to = |method: &str, target: &str| {
        let body = chunks("hello", "", "");
        format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{CHUNKED}\r\n{body}")
    };
    vec![
        kept("chunks to an unknown path", to("POST", "/what"), &[404], "does not exist"),
        kept("chunks with a look at health", to("GET", "/healthz"), &[200], "ok"),
        kept("chunks with a wrong method", to("DELETE", "/healthz"), &[405], "not allowed"),
        kept("chunks without a token", to("POST", "/v1/releases"), &[401], "send Authorization"),
    ]
}

#[test]
fn a_connection_is_kept_after_a_whole_chunked_body_outside_the_api() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &chunks_outside_the_api());
}

#[test]
fn nothing_is_served_behind_unread_chunks() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &unread_chunks());
}

#[test]
fn lengths_that_leave_a_doubt_are_refused_and_the_connection_closed() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &lengths(&site.pools[0]));
}

#[test]
fn a_request_behind_an_ambiguous_body_is_never_served() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &codings(&site.pools[0]));
}

#[test]
fn chunked_bodies_are_accepted_when_they_are_complete() {
    let (site, server) = start("");
    check(&server, &site.pools[0], &chunked_bodies(&site.pools[0]));
    wait_until_nobody_is_connected(&server);
}
