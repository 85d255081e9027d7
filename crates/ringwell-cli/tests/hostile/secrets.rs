//! Puts secrets into every part of requests that fail. None may leave the process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::raw::Raw;
use super::support::batch::BULK;
use super::support::client::request;
use super::support::server::Server;
use super::support::site::{Pool, Site, TOKEN};

/// A secret that the tests use in place of a key, a token or a caller's number.
const PLANTED: &str = "planted-5f0c93";

/// Returns requests that contain a secret. Every processing step refuses some of them.
fn requests() -> Vec<Vec<u8>> {
    let with = |head: &str, rest: &str| format!("{head}\r\nhost: x\r\n{rest}\r\n").into_bytes();
    let get = |rest: &str| with("GET /healthz HTTP/1.1", rest);
    let post = |rest: &str| with(&format!("POST {BULK} HTTP/1.1"), rest);
    let batch = |body: &str| request("POST", BULK, &[], body).into_bytes();
    let header = |name: &str| {
        request("POST", BULK, &[(name, PLANTED)], r#"{"requests":[{"api_suffix":"x"}]}"#)
    };
    let long = PLANTED.repeat(2_000);
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    let mut all = vec![
        format!("{PLANTED}\r\n\r\n").into_bytes(),
        with(&format!("{PLANTED} / HTTP/1.1"), ""),
        with(&format!("GET /{PLANTED} HTTP/1.1"), ""),
        with(&format!("GET /api/{PLANTED}/bulk.json HTTP/1.1"), ""),
        with(&format!("GET / HTTP/{PLANTED}"), ""),
        with(&format!("GET /{long} HTTP/1.1"), ""),
        get(&format!("{PLANTED}\r\n")),
        get(&format!("{PLANTED} : 1\r\n")),
        get(&format!("{PLANTED}\0: 1\r\n")),
        get(&format!("host: {PLANTED}\r\n")),
        get(&format!("cookie: {PLANTED}\x07\r\n")),
        get(&format!("a: {long}\r\n")),
        post(&format!("content-length: {PLANTED}\r\n")),
        post(&format!("transfer-encoding: {PLANTED}\r\n")),
        post(&format!("{chunked}{PLANTED}\r\n")),
        post(&format!("{chunked}5;{PLANTED}\nhello\r\n")),
        post(&format!("{chunked}5\r\nhello{PLANTED}\r\n")),
        post(&format!("{chunked}0\r\n{PLANTED}\r\n")),
        batch(PLANTED),
        batch(&format!("{{\"requests\":[{{\"api_suffix\":\"{PLANTED}")),
        batch(&format!("{{\"{PLANTED}\":[]}}")),
        batch(&format!("{{\"requests\":[\"{PLANTED}\"]}}")),
        batch(&format!("{{\"requests\":[{{\"api_suffix\":\"{PLANTED}\"}}]}}")),
        batch(&format!("{{\"requests\":[{{\"api_suffix\":\"1/x?ring_pool_key={long}\"}}]}}")),
        format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{PLANTED}").into_bytes(),
        [b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb", PLANTED.as_bytes()].concat(),
    ];
    let names = ["idempotency-key", "ringwell-deadline-ms", "expect", "content-type", "upgrade"];
    all.extend(names.map(|name| header(name).into_bytes()));
    for credential in ["", PLANTED, TOKEN] {
        let bearer = format!("Bearer {credential}");
        let token = [("authorization", bearer.as_str())];
        let path = format!("/v1/attributions?number={PLANTED}&{PLANTED}");
        all.push(request("GET", &path, &token, "").into_bytes());
        all.push(request("GET", &format!("/v1/{PLANTED}"), &token, "").into_bytes());
        for path in ["/v1/releases", "/v1/shards/moves"] {
            let body = format!("{{\"{PLANTED}\":\"{PLANTED}\"}}");
            all.push(request("POST", path, &token, &body).into_bytes());
        }
    }
    all
}

#[test]
fn no_secret_of_a_hostile_request_is_logged_counted_or_answered() {
    let pools = vec![Pool::new(1, 50, Duration::from_mins(30))];
    let site = Site::new(pools, "durability = \"os\"\nlog.level = \"trace\"");
    let server = Server::start(site.serve(&[]));
    let requests = requests();
    for bytes in &requests {
        let mut raw = Raw::connect(&server);
        raw.send(bytes);
        raw.end_of_sending();
        while let Some(reply) = raw.reply(true) {
            let said = format!("{}{}", reply.head, reply.body);
            assert!(!said.contains(PLANTED), "{}\n{said}", String::from_utf8_lossy(bytes));
        }
    }
    let pool = &site.pools[0];
    let row = pool.suffix("caller=planted-caller");
    let body = format!(r#"{{"requests":[{{"api_suffix":"{row}"}}]}}"#);
    let answer = server.client().post(BULK, &[], &body).unwrap().json();
    let number = answer["responses"][0]["promo_number"].as_str().unwrap().to_owned();
    let metrics = server.client().get("/metrics", &[]).unwrap().body;
    let log = server.stop();
    assert!(log.contains("serving"), "nothing was logged:\n{log}");
    for secret in [PLANTED, TOKEN, &pool.key, &number, "planted-caller"] {
        assert!(!log.contains(secret), "{secret} is in\n{log}");
        assert!(!metrics.contains(secret), "{secret} is in\n{metrics}");
    }
    // The allocations are on disk, but the key and the token are not.
    let stored = files(site.data());
    let holds = |secret: &str| stored.windows(secret.len()).any(|part| part == secret.as_bytes());
    assert!(holds("planted-caller"));
    assert!(!holds(&pool.key) && !holds(TOKEN) && !holds(PLANTED));
}

/// Returns the bytes of all files below `folder`.
fn files(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(files(&path));
        } else {
            let file = fs::read(path).unwrap();
            // Zeros are left out, because prepared segments contain nothing else.
            bytes.extend(file.into_iter().filter(|byte| *byte != 0));
        }
    }
    bytes
}
