//! Sends the requests in `fixtures/manage/` to a router with a new directory, and compares the
//! answers with the expected ones.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use ringwell_admin::{Entrance, Later, Management, PoolLoad, PoolState, RunningServer, router};
use ringwell_config::Site;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::Token;
use ringwell_store::{Location, Role, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

/// A token that permits everything.
const ADMIN: &str = "administrator-of-the-cases";
const NOW: Millis = Millis(1_767_225_600_000);

/// A running server that has not handed out any numbers.
struct Quiet;

impl RunningServer for Quiet {
    fn now(&self) -> Millis {
        NOW
    }

    fn state(&self, _pool: PoolId) -> Later<'_, Option<PoolState>> {
        let state = PoolState { numbers: 1, free: 1, ..PoolState::default() };
        Box::pin(async move { Some(state) })
    }

    fn load(&self, _pool: PoolId) -> Option<PoolLoad> {
        let (lifetime, over) = (Millis(1_800_000), Millis(3_600_000));
        let (asked, exhausted, overflow, load, busiest) = (16, 4, 0.25, 8.0, 8.0);
        let lockout = Duration::from_millis(lifetime.0);
        Some(PoolLoad {
            numbers: 1,
            lifetime,
            lockout,
            over,
            asked,
            exhausted,
            overflow,
            load,
            busiest,
        })
    }

    fn unused(&self, _pool: PoolId, _since: Millis) -> Later<'_, Option<Vec<NumberRange>>> {
        let first = PromoNumber::parse("8885550305").unwrap();
        Box::pin(async move { Some(NumberRange::new(first, 100).into_iter().collect()) })
    }

    fn configured_sites(&self) -> Vec<Site> {
        Vec::new()
    }

    fn changed(&self, _version: u64) {}
}

#[tokio::test]
async fn every_exchange_is_as_its_files_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/manage");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.is_dir());
    cases.sort();
    assert!(cases.len() >= 20, "there are only {} cases", cases.len());
    let mut broken = Vec::new();
    for case in cases {
        broken.extend(run(&case).await);
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Sends requests without a valid token to every path of the OpenAPI document and of the published
/// API.
#[tokio::test]
async fn nothing_is_shown_or_done_without_a_token_whatever_the_method() {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let document = serde_json::to_value(ringwell_admin::openapi()).unwrap();
    let described: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert!(described.len() > 15, "{described:?}");
    let base = "/api/2013-07-01/7/advertisers/7/advertiser_campaigns/7/ring_pools";
    let mut paths = vec![base.to_owned(), format!("{base}.json"), format!("{base}/7.json")];
    // The OpenAPI document is public.
    paths.extend(described.into_iter().filter(|path| *path != "/v1/openapi.json").cloned());
    for path in paths {
        let path = path.split('/').map(|part| if part.starts_with('{') { "7" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"] {
            for token in ["", "Bearer", "Bearer nobody's", "Basic bm9ib2R5OnM="] {
                let asked = format!("{method} {path}\nauthorization: {token}\n\n{{}}");
                let answer = ask(&router, &asked).await;
                // If the path does not support the method, the answer is 405 and the token is not
                // checked.
                let is_shut =
                    ["HTTP/1.1 401", "HTTP/1.1 405"].iter().any(|it| answer.starts_with(it));
                assert!(is_shut, "{asked}\n{answer}");
                let is_known = matches!(method, "GET" | "POST" | "PUT" | "DELETE");
                assert!(
                    !path.starts_with("/api/") || !is_known || answer.contains(" 401"),
                    "{asked}"
                );
            }
        }
    }
}

/// Checks the size limits of request bodies, with and without a valid token.
#[tokio::test]
async fn a_list_is_not_read_before_its_token_and_no_other_body_may_be_as_long() {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let (long, longest) = (4 << 20, 32 << 20);
    let published = "/api/2013-07-01/7/advertisers/7/advertiser_campaigns/7/ring_pools.json";
    for (token, path, length, status) in [
        ("Bearer nobody's", "/v1/pools.csv", longest + 1, 401),
        (&format!("Bearer {ADMIN}"), "/v1/pools.csv", longest + 1, 413),
        (&format!("Bearer {ADMIN}"), "/v1/pools.csv", longest, 400),
        ("Bearer nobody's", "/v1/numbers", long, 401),
        ("Bearer nobody's", "/v1/numbers", long + 1, 413),
        ("", published, long, 401),
        ("", published, long + 1, 413),
    ] {
        let request = Request::builder().method("POST").uri(path).header("authorization", token);
        let request = request.body(Body::from(vec![b' '; length])).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{path} {length}");
    }
}

/// The columns of the CSV lists in these tests.
const COLUMNS: &str = "id,overflow_number,lifetime_seconds,first_number,numbers,network,\
                       advertiser,campaign";

/// Creates a token with the role `write` for `network`.
async fn writer(router: &Router, network: &str) -> String {
    let made = json!({ "name": network, "role": "write", "network": network });
    let answer = send(router, ADMIN, "POST /v1/tokens", &made.to_string()).await;
    let body: Value = serde_json::from_str(answer.split_once("\n\n").unwrap().1).unwrap();
    body["token"].as_str().unwrap().to_owned()
}

async fn send(router: &Router, token: &str, line: &str, body: &str) -> String {
    ask(router, &format!("{line}\nauthorization: Bearer {token}\n\n{body}")).await
}

/// Checks that the answer to a request has the status `status`.
async fn gets(router: &Router, token: &str, line: &str, body: &str, status: u16) {
    let answer = send(router, token, line, body).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {body}: {answer}");
}

#[tokio::test]
async fn neither_a_site_nor_the_id_of_a_pool_passes_to_another_network_when_the_pool_is_removed() {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let [north, south] = [writer(&router, "north").await, writer(&router, "south").await];
    let list = |network: &str, id: u32, first: u64| {
        format!("{COLUMNS}\n{id},,1800,{first},5,{network},a,c\n")
    };
    let import = "POST /v1/pools.csv";
    for (id, first) in [(21, 8_885_550_100), (31, 8_885_550_110)] {
        gets(&router, &south, import, &list("south", id, first), 200).await;
    }
    let site = |origin: &str, pool: u32| {
        let swaps = json!([{ "number": "+18005550100", "ring_pool": pool }]);
        json!({ "origins": [origin], "swaps": swaps }).to_string()
    };
    let put = "PUT /v1/sites/pk_south";
    gets(&router, &south, put, &site("https://south.example", 21), 201).await;
    let path = "/api/2013-07-01/south/advertisers/a/advertiser_campaigns/c/ring_pools";
    gets(&router, &south, &format!("DELETE {path}/21.json"), "", 200).await;
    // Another network that tries to use the pool's id gets the same error text, whether the pool
    // was removed or still exists.
    let mut refused = Vec::new();
    for id in [21, 31] {
        let answer = send(&router, &north, import, &list("north", id, 8_885_550_120)).await;
        assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
        refused.push(answer.replace(&id.to_string(), "ID"));
    }
    assert_eq!(refused[0], refused[1]);
    for (line, body, status) in [
        ("GET /v1/sites/pk_south", "", 404),
        (put, &*site("https://evil.example", 21), 409),
        ("DELETE /v1/sites/pk_south", "", 404),
    ] {
        gets(&router, &north, line, body, status).await;
    }
    // A token of the pool's own network can still read and change the site, and reuse the id.
    gets(&router, &south, "GET /v1/sites/pk_south", "", 200).await;
    gets(&router, &south, put, &site("https://south.example", 21), 422).await;
    gets(&router, &south, put, &site("https://south.example", 31), 200).await;
    gets(&router, &south, import, &list("south", 21, 8_885_550_120), 200).await;
    gets(&router, &south, "DELETE /v1/sites/pk_south", "", 200).await;
    // A token that is valid in all networks can give the id to another network.
    gets(&router, &south, &format!("DELETE {path}/21.json"), "", 200).await;
    gets(&router, ADMIN, import, &list("north", 21, 8_885_550_130), 200).await;
    gets(&router, &north, "GET /v1/pools/21", "", 200).await;
}

#[tokio::test]
async fn a_network_cannot_tell_why_a_number_of_another_one_is_not_free() {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let north = writer(&router, "north").await;
    let pools = format!(
        "{COLUMNS}\n11,,1800,8885550100,5,north,a,c\n12,,1800,8885550105,5,north,a,c\n\
         21,8885550120,1800,8885550110,10,south,a,c\n31,,1800,8885550121,5,south,a,c\n"
    );
    gets(&router, ADMIN, "POST /v1/pools.csv", &pools, 200).await;
    let moves = "POST /v1/numbers/moves";
    for (line, body) in [
        ("POST /v1/numbers", r#"{"ranges":["8885550300-8885550309"],"network":"south"}"#),
        (moves, r#"{"ranges":["8885550300"],"to":"retired"}"#),
        (moves, r#"{"ranges":["8885550130"],"to":"retired"}"#),
        (moves, r#"{"ranges":["8885550131"],"to":"quarantine"}"#),
        (moves, r#"{"ranges":["8885550111"],"to":"quarantine"}"#),
        (moves, r#"{"ranges":["8885550112"],"to":"inventory"}"#),
        ("POST /v1/pools/31/numbers", r#"{"ranges":["8885550112"]}"#),
    ] {
        gets(&router, ADMIN, line, body, 200).await;
    }
    let add = "POST /v1/pools/11/numbers?dry_run=true";
    let mut answers = std::collections::BTreeSet::new();
    for number in [
        "8885550110",
        "8885550111",
        "8885550112",
        "8885550120",
        "8885550121",
        "8885550130",
        "8885550131",
        "8885550300",
        "8885550301",
    ] {
        let ranges = json!({ "ranges": [number] }).to_string();
        let overflow = json!({ "number": number }).to_string();
        for (line, body) in [(add, ranges), ("PUT /v1/pools/11/overflow?dry_run=true", overflow)] {
            let answer = send(&router, &north, line, &body).await;
            // Skips refusals that mention `allow_overflow`. They do not depend on the number: the
            // pool was created without an overflow number.
            if line == add || !answer.contains("allow_overflow") {
                answers.insert(answer.replace(number, "NUMBER"));
            }
        }
        let line = format!("{COLUMNS}\n11,,1800,{number},1,north,a,c\n");
        let answer = send(&router, &north, "POST /v1/pools.csv?dry_run=true", &line).await;
        assert!(answer.contains(&format!("{number} cannot be used by this network")), "{answer}");
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    let answer = answers.first().unwrap();
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("cannot be used"), "{answer}");
    // If a token is valid in only one network, the answer names a number's pool only if this pool
    // is in that network. If a token is valid in all networks, the answer always names the pool.
    for (token, number, holder) in [
        (&*north, "8885550105", "in the rotation of ring pool 12"),
        (ADMIN, "8885550110", "in the rotation of ring pool 21"),
        (ADMIN, "8885550112", "promised to ring pool 31"),
    ] {
        let answer = send(&router, token, add, &json!({ "ranges": [number] }).to_string()).await;
        assert!(answer.contains(&format!("{number} is {holder}")), "{answer}");
    }
}

#[tokio::test]
async fn a_token_of_a_network_lists_and_moves_the_numbers_of_this_network_only() {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let north = writer(&router, "north").await;
    let pools =
        format!("{COLUMNS}\n11,,1800,8885550100,5,north,a,c\n21,,1800,8885550105,5,south,a,c\n");
    gets(&router, ADMIN, "POST /v1/pools.csv", &pools, 200).await;
    let own = r#"{"ranges":["8885550300-8885550309"],"network":"north"}"#;
    gets(&router, ADMIN, "POST /v1/numbers", own, 200).await;
    let listed = send(&router, &north, "GET /v1/numbers", "").await;
    let (_, listed) = listed.split_once("\r\n\r\n").or(listed.split_once("\n\n")).unwrap();
    let listed: serde_json::Value = serde_json::from_str(listed).unwrap();
    let firsts: Vec<_> = listed.as_array().unwrap().iter().map(|run| &run["first"]).collect();
    assert_eq!(firsts, ["8885550100", "8885550300"], "{listed}");
    for (number, status) in [("8885550100", 200), ("8885550300", 200), ("8885550105", 404)] {
        gets(&router, &north, &format!("GET /v1/numbers/{number}"), "", status).await;
    }
    let moves = "POST /v1/numbers/moves";
    for (body, status) in [
        (r#"{"ranges":["8885550100"],"to":"quarantine"}"#, 200),
        (r#"{"ranges":["8885550100"],"to":"pool"}"#, 200),
        (r#"{"ranges":["8885550101"],"to":"inventory"}"#, 200),
        // The token's own network may be named or omitted.
        (r#"{"ranges":["8885550102"],"to":"inventory","network":"north"}"#, 200),
        (r#"{"ranges":["8885550301"],"to":"inventory","network":"north"}"#, 200),
        (r#"{"ranges":["8885550103"],"to":"quarantine","network":"north"}"#, 400),
        (r#"{"ranges":["8885550105"],"to":"inventory","network":"north"}"#, 404),
        (r#"{"ranges":["8885550301"],"to":"inventory","network":"south"}"#, 403),
        (r#"{"ranges":["8885550301"],"to":"inventory","network":null}"#, 403),
        (r#"{"ranges":["8885550300"],"to":"retired"}"#, 200),
        // The answer is 404 for another network's numbers, numbers in the inventory of all
        // networks, and unknown numbers.
        (r#"{"ranges":["8885550105"],"to":"quarantine"}"#, 404),
        (r#"{"ranges":["8885550104-8885550105"],"to":"inventory"}"#, 404),
        (r#"{"ranges":["8885550150"],"to":"retired"}"#, 404),
        (r#"{"ranges":["8885550999"],"to":"retired"}"#, 404),
    ] {
        gets(&router, &north, moves, body, status).await;
    }
    gets(&router, ADMIN, moves, r#"{"ranges":["8885550105"],"to":"quarantine"}"#, 200).await;
    gets(&router, &north, moves, r#"{"ranges":["8885550105"],"to":"pool"}"#, 404).await;
    gets(&router, &north, "POST /v1/numbers", own, 403).await;
    let unnamed = r#"{"ranges":["8885550150"],"to":"inventory","network":""}"#;
    gets(&router, ADMIN, moves, unnamed, 400).await;
    let unnamed = r#"{"ranges":["8885550310"],"network":""}"#;
    gets(&router, ADMIN, "POST /v1/numbers", unnamed, 400).await;
}

/// An overflow number must not be in its pool's rotation, because many visitors see it at once. The
/// rule applies to lists as well as to configuration files.
#[tokio::test]
async fn a_line_whose_overflow_number_is_in_its_rotation_is_bad_as_in_a_file() {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let import = "POST /v1/pools.csv";
    let bad = |number: &str| {
        format!(
            "overflow_number: {number} is also in the pool's rotation, so calls to it would be \
             attributed to one visitor"
        )
    };
    let lines = |lines: &[&str]| {
        let full = |line: &&str| format!("{line},north,a,c\n");
        format!("{COLUMNS}\n{}", lines.iter().map(full).collect::<String>())
    };
    // The pool is not created, even if only one of its lines breaks the rule above.
    for list in [
        &["11,8885550102,1800,8885550100,5"][..],
        &["11,,1800,8885550100,5", "11,8885550102,1800,8885550110,5"],
    ] {
        let answer = send(&router, ADMIN, import, &lines(list)).await;
        let result = format!("\"result\":\"bad\",\"detail\":\"{}\"", bad("8885550102"));
        assert!(answer.starts_with("HTTP/1.1 422 ") && answer.contains(&result), "{answer}");
        gets(&router, ADMIN, "GET /v1/pools/11", "", 404).await;
    }
    let other_way = ["11,8885550102,1800,8885550110,5", "11,8885550102,1800,8885550100,5"];
    let answer = send(&router, ADMIN, import, &lines(&other_way)).await;
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    // All lines of a pool must have the same overflow number.
    let two = ["11,8885550199,1800,8885550100,5", "11,8885550198,1800,8885550110,5"];
    let answer = send(&router, ADMIN, import, &lines(&two)).await;
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    assert!(
        answer.contains("overflow_number: differs from an earlier line of this pool"),
        "{answer}"
    );
    // A line whose overflow number is in the pool's rotation does not change an existing pool.
    let good = lines(&["11,8885550199,1800,8885550100,5"]);
    gets(&router, ADMIN, import, &good, 200).await;
    for line in ["11,8885550103,1800,8885550100,5", "11,8885550103,1800,8885550110,5"] {
        let answer = send(&router, ADMIN, import, &lines(&[line])).await;
        assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
        assert!(answer.contains(&bad("8885550103")), "{answer}");
    }
    let again = send(&router, ADMIN, import, &good).await;
    assert!(again.contains("\"unchanged\""), "{again}");
    let numbers = send(&router, ADMIN, "GET /v1/pools/11/numbers", "").await;
    assert!(numbers.contains("\"last\":\"8885550104\",\"count\":5"), "{numbers}");
    let pool = send(&router, ADMIN, "GET /v1/pools/11", "").await;
    assert!(pool.contains("\"overflow_number\":\"8885550199\""), "{pool}");
}

#[tokio::test]
async fn the_list_of_pools_with_one_overflow_number_is_accepted_by_an_empty_directory() {
    let (data, empty) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let [router, other] = [fresh(data.path()).await, fresh(empty.path()).await];
    let line = |id: u32| format!("{id},8885550199,1800,88855501{id},5,north,a,c\n");
    let list = format!("{COLUMNS}\n{}{}", line(10), line(20));
    gets(&router, ADMIN, "POST /v1/pools.csv", &list, 200).await;
    let exported = send(&router, ADMIN, "GET /v1/pools.csv", "").await;
    let list = exported.split_once("\n\n").unwrap().1;
    gets(&other, ADMIN, "POST /v1/pools.csv", list, 200).await;
    assert_eq!(send(&other, ADMIN, "GET /v1/pools.csv", "").await, exported);
}

/// Checks that long ids are refused. PostgreSQL cannot index them.
#[tokio::test]
async fn ids_that_are_too_long_are_a_fault_of_the_request() {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let long = "n".repeat(513);
    let line = format!("{COLUMNS}\n11,,1800,8885550100,5,{long},a,c\n");
    let answer = send(&router, ADMIN, "POST /v1/pools.csv", &line).await;
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    assert!(answer.contains("ring pools may have at most 512 bytes"), "{answer}");
    let line = format!("PUT /v1/networks/{long}");
    gets(&router, ADMIN, &line, r#"{"numbers_max":5}"#, 422).await;
    let of = "/api/2013-07-01/7/advertisers/1/advertiser_campaigns";
    for path in [format!("{of}/{long}/ring_pools/a.json"), format!("{of}/1/ring_pools/{long}.json")]
    {
        let line = format!("POST {path}");
        let request =
            format!("{line}\nauthorization: {ADMIN}\n\n{{\"name\":\"A\",\"max_pool_size\":2}}");
        let answer = ask(&router, &request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("ids must be at most 512 bytes long"), "{answer}");
    }
}

/// Runs a case and returns its errors.
async fn run(case: &Path) -> Vec<String> {
    let data = TempDir::new().unwrap();
    let router = fresh(data.path()).await;
    let mut broken = Vec::new();
    for place in 1.. {
        let suffix = if place == 1 { String::new() } else { format!("-{place}") };
        let Ok(request) = fs::read_to_string(case.join(format!("request{suffix}.http"))) else {
            break;
        };
        let answer = ask(&router, &request).await;
        let file = case.join(format!("response{suffix}.http"));
        // `RINGWELL_RECORD=1` creates a missing file. Review the file before you commit it.
        if std::env::var_os("RINGWELL_RECORD").is_some() && !file.exists() {
            fs::write(&file, &answer).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if !fits(&expected, &answer) {
            broken.push(format!("{}\n  is       {answer}\n  expected {expected}", file.display()));
        }
    }
    broken
}

/// Creates a router for a directory that has tokens and 100 numbers in its inventory.
async fn fresh(data: &Path) -> Router {
    let store = Store::open(&Location::File(data.join("directory.sqlite"))).await.unwrap();
    let mut change = store.change("fixture", NOW).await.unwrap();
    let first = PromoNumber::parse("8885550100").unwrap();
    let range = NumberRange::new(first, 100).unwrap();
    change.add_to_inventory(&[range], None).await.unwrap();
    change.create_token("reader", Role::Read, Some("7"), [1; 40]).await.unwrap();
    change.create_token("writer", Role::Write, Some("7"), [2; 40]).await.unwrap();
    change.commit().await.unwrap();
    router(
        Entrance {
            token_sha256: vec![Token::parse(ADMIN).unwrap().hash()].into(),
            requests_per_second: 10_000,
            hosts: None,
            bodies_bytes: 0,
            dashboard: None,
        },
        Some(Management { store, live: Arc::new(Quiet) }),
    )
}

/// Sends the request `text`, and returns the answer's status line, content type and body.
async fn ask(router: &Router, text: &str) -> String {
    let (head, body) = text.split_once("\n\n").unwrap();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let request = Request::builder().method(first.next().unwrap()).uri(first.next().unwrap());
    let request = lines.fold(request, |request, line| {
        let (name, value) = line.split_once(": ").unwrap();
        request.header(name, value)
    });
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let kind = head.headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
    let body = String::from_utf8(body.to_vec()).unwrap();
    format!("HTTP/1.1 {}\ncontent-type: {kind}\n\n{body}", head.status)
}

/// Whether `text` matches `pattern`, in which `{{integer}}` stands for digits and `{{key}}` for 32
/// hexadecimal digits.
fn fits(pattern: &str, text: &str) -> bool {
    let marks = ["{{integer}}", "{{key}}"].into_iter();
    let first = marks.filter_map(|mark| Some((pattern.find(mark)?, mark))).min();
    let Some((start, mark)) = first else { return pattern == text };
    let (before, pattern) = (&pattern[..start], &pattern[start + mark.len()..]);
    let Some(text) = text.strip_prefix(before) else { return false };
    let is_key = mark == "{{key}}";
    let ends = |c: char| if is_key { !c.is_ascii_hexdigit() } else { !c.is_ascii_digit() };
    let end = text.find(ends).unwrap_or(text.len());
    let is_whole = if is_key { end == 32 } else { end > 0 };
    is_whole && fits(pattern, &text[end..])
}
