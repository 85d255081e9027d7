//! Tests the management API with clients that have no token, and with malformed requests from
//! clients that have a token.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::raw::{good, start};
use super::support::client::HttpAnswer;
use super::support::site::TOKEN;

const LOOK_UP: &str = "/v1/attributions?number=2000100000";

fn bearer() -> String {
    format!("Bearer {TOKEN}")
}

/// Checks that the answer contains problem details and no part of the client's input. Returns its
/// status.
fn problem(answer: &HttpAnswer, sent: &str) -> u16 {
    let kind = answer.headers.iter().find(|(name, _)| name == "content-type").unwrap();
    assert_eq!(kind.1, "application/problem+json", "{sent}: {}", answer.body);
    let json = answer.json();
    assert_eq!(json["status"], answer.status, "{sent}: {}", answer.body);
    assert!(json["title"].is_string() && json["detail"].is_string(), "{sent}: {}", answer.body);
    assert!(!answer.body.contains("planted"), "{sent}: {}", answer.body);
    answer.status
}

#[test]
fn without_the_token_v1_returns_no_data() {
    let (_site, server) = start("");
    let mut client = server.client();
    let bare = TOKEN.to_owned();
    let short = format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]);
    let long = format!("Bearer {TOKEN}x");
    let basic = format!("Basic {TOKEN}");
    let wrong = ["", "Bearer", "Bearer ", "Bearer planted", &bare, &short, &long, &basic];
    for value in wrong {
        for path in [LOOK_UP, "/v1/attributions", "/v1/nope"] {
            let answer = client.get(path, &[("authorization", value)]).unwrap();
            assert_eq!(problem(&answer, value), 401, "{value:?} {path}");
            assert!(
                answer
                    .headers
                    .iter()
                    .any(|field| *field == ("www-authenticate".to_owned(), "Bearer".to_owned()))
            );
        }
        for path in ["/v1/releases", "/v1/attributions", "/v1/nope"] {
            let answer = client.post(path, &[("authorization", value)], "{}").unwrap();
            assert_eq!(problem(&answer, value), 401, "{value:?} {path}");
        }
    }
    let in_query = format!("{LOOK_UP}&oauth_token={TOKEN}");
    assert_eq!(client.get(&in_query, &[]).unwrap().status, 401);
    // If a request has two tokens, the first applies.
    let two = [("authorization", "Bearer planted"), ("authorization", bearer().leak() as &str)];
    assert_eq!(client.get(LOOK_UP, &two).unwrap().status, 401);
}

/// Returns the paths of all routes in the source files, as a client would write them.
fn routes() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = ["ringwell-admin/src", "ringwell-admin/src/v1"].map(|name| crates.join(name));
    let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let mut found = BTreeSet::new();
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let text = fs::read_to_string(file).unwrap();
        let named = text.split(".route(").skip(1).filter_map(|rest| rest.split('"').nth(1));
        for path in named.filter(|path| path.starts_with('/')) {
            let parts = path.split('/').map(|part| if part.starts_with('{') { "7" } else { part });
            found.insert(parts.collect::<Vec<_>>().join("/"));
        }
    }
    found
}

#[test]
fn no_path_under_v1_does_anything_for_a_stranger_whatever_the_method() {
    let (_site, server) = start("");
    let routes = routes();
    assert!(routes.contains("/shards/moves") && routes.contains("/metrics"), "{routes:?}");
    let open = ["/", "/healthz", "/readyz", "/metrics"];
    let mut tried = 0;
    for route in routes.iter().filter(|route| !open.contains(&route.as_str())) {
        let path = if route.starts_with("/v1") { route.clone() } else { format!("/v1{route}") };
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"] {
            for value in ["", "Bearer planted", "Basic cGxhbnRlZA=="] {
                let mut client = server.client();
                let head = format!(
                    "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: {value}\r\n\
                     content-length: 2\r\n\r\n{{}}"
                );
                client.send(head.as_bytes()).unwrap();
                let status = client.receive().unwrap().status;
                // The paths below `/webhooks/` have credentials of their own, or are disabled.
                let refused: &[u16] =
                    if path.contains("/webhooks/") { &[401, 403, 404, 405] } else { &[401] };
                assert!(refused.contains(&status), "{method} {path} {value:?}: {status}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 4 * 8 * 3, "{tried}");
}

#[test]
fn bad_attribution_requests_get_an_explanation() {
    let (_site, server) = start("");
    let mut client = server.client();
    let token = bearer();
    let mut ask = |query: &str| {
        let path = format!("/v1/attributions{query}");
        client.get(&path, &[("authorization", token.as_str())]).unwrap()
    };
    for query in [
        "",
        "?",
        "?number",
        "?number=",
        "?number=planted",
        "?number=200010000",
        "?number=20001000001",
        "?number=1000100000",
        "?number=%2B442",
        "?number=%ff%ff",
        "?number=%zz",
        "?number=2000100000&number=2000100001",
        "?number=2000100000&at=",
        "?number=2000100000&at=planted",
        "?number=2000100000&at=-1",
        "?number=2000100000&at=99999999999",
        "?number=2000100000&at=2026-13-01T00:00:00Z",
        "?number=2000100000&at=99999999999999999999999999",
    ] {
        assert_eq!(problem(&ask(query), query), 400, "{query}");
    }
    for (query, said) in [
        ("?number=212555", "has 6 digits"),
        ("?number=212-555-01", "has 8 digits"),
        ("", "number is missing"),
        ("?number=", "number is missing"),
    ] {
        let answer = ask(query);
        assert!(answer.body.contains(said), "{query}: {}", answer.body);
    }
    assert_eq!(problem(&ask("?number=8885550142"), "a foreign number"), 404);
    let known = ask("?number=2000100000&more=planted");
    assert_eq!((known.status, known.json()["outcome"].as_str()), (200, Some("none")));
    assert_eq!(ask("?number=2000100000&at=1000000000").json()["outcome"], "none");
}

#[test]
fn bad_releases_get_an_explanation() {
    let (site, server) = start("limits.body_bytes = \"1KiB\"");
    let mut client = server.client();
    client.send(good(&site.pools[0]).as_bytes()).unwrap();
    client.receive().unwrap();
    let token = bearer();
    let headers = [("authorization", token.as_str())];
    for body in [
        "",
        "planted",
        "[]",
        "{}",
        "{\"number\":2000100000}",
        "{\"number\":\"planted\"}",
        "{\"number\":\"2000100000\",\"planted\":1}",
        "{\"number\":\"2000100000\",\"number\":\"2000100000\"}",
        "{\"number\":\"2000100000\",\"allocated_at\":\"planted\"}",
        "{\"number\":\"2000100000\",\"allocated_at\":5}",
        "{\"number\":\"2000100000\"} x",
    ] {
        let answer = client.post("/v1/releases", &headers, body).unwrap();
        assert_eq!(problem(&answer, body), 400, "{body}");
    }
    let foreign = client.post("/v1/releases", &headers, "{\"number\":\"8885550142\"}").unwrap();
    assert_eq!(problem(&foreign, "a foreign number"), 404);
    let method = client.get("/v1/releases", &headers).unwrap();
    assert_eq!(problem(&method, "method not allowed"), 405);
    let number = "{\"number\":\"2000100000\"}";
    let released = client.post("/v1/releases", &headers, number).unwrap();
    assert_eq!(released.json()["released"], true, "none of them had released it");
    let large = client.post("/v1/releases", &headers, &" ".repeat(1025)).unwrap();
    assert_eq!(problem(&large, "a large body"), 413);
}
