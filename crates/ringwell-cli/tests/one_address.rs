//! Tests that one address serves the whole published API: allocation and the management of ring
//! pools.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::batch::{self, Ask, BULK};
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const POOLS: &str = "/api/2013-07-01/1/advertisers/7/advertiser_campaigns/8/ring_pools";
const LONG: Duration = Duration::from_mins(30);

fn start(more: &str) -> (Site, Server) {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let settings = format!(
        "shards = 2\nmanagement.address = \"127.0.0.1:0\"\n{more}\n[directory]\n\
         database = \"sqlite:{}\"",
        folder.path().join("directory.sqlite").display()
    );
    let site = Site::with_data(folder, data, vec![Pool::new(1, 40, LONG)], &settings);
    let server = Server::start(site.serve(&[]));
    (site, server)
}

#[test]
fn a_pool_is_made_and_allocated_from_at_one_address() {
    let (_site, server) = start("management.on_data_port = true");
    let mut client = server.client();
    let wanted = "{\"name\":\"Spring\",\"max_pool_size\":2,\"allow_overflow\":false}";
    let path = format!("{POOLS}/spring.json");
    for (headers, status) in [(&[][..], 401), (&[("authorization", "another")], 401)] {
        assert_eq!(client.post(&path, headers, wanted).unwrap().status, status, "{headers:?}");
    }
    let token = [("authorization", TOKEN)];
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(server.client().post(&path, &token, &large).unwrap().status, 413);
    let made = client.post(&path, &token, wanted).unwrap();
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let shown = client.get(&path, &token).unwrap();
    assert_eq!((shown.status, &shown.json()["name"]), (200, &made["name"]));
    let listed = client.get(&format!("{POOLS}.json"), &token).unwrap();
    assert_eq!(listed.json().as_array().unwrap().len(), 1, "{}", listed.body);
    // This address serves no other paths of the management API.
    assert_eq!(client.get("/v1/networks", &[]).unwrap().status, 401);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    assert_eq!(client.get("/v1/networks", &headers).unwrap().status, 404);
    let id = made["id"].as_u64().unwrap();
    let key = made["api_key"].as_str().unwrap();
    let single =
        format!("/api/2015-12-09/ring_pools/{id}/allocate_number.json?ring_pool_key={key}");
    let until = Instant::now() + Duration::from_secs(30);
    // Waits until the server has the pool. It then answers 503, because the pool has no numbers
    // yet.
    while client.get(&single, &[]).unwrap().status != 503 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(20));
    }
    // Batches are still answered.
    let known = Pool::new(1, 40, LONG);
    let asks = [Ask { pool: 1, id: "x".into() }];
    let body = batch::body(&asks, std::slice::from_ref(&known));
    assert_eq!(batch::rows(&client.post(BULK, &[], &body).unwrap()).len(), 1);
}

#[test]
fn without_calls_each_token_that_may_read_them_learns_that() {
    // `sha256` is the SHA-256 of `token`.
    let token = "a-token-of-the-tests-that-looks-up";
    let sha256 = "41fa85103615e3e971508a233f21084a5dc06df94049956beb97e34cef095340";
    let (_site, server) = start(&format!("management.lookup_sha256 = [\"{sha256}\"]"));
    let ask = |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        server.client().get(path, &[("authorization", bearer.as_str())]).unwrap()
    };
    for path in ["/v1/calls", "/v1/calls/018f"] {
        for token in [token, TOKEN] {
            let answer = ask(path, token);
            assert_eq!(answer.status, 404, "{path}");
            assert!(answer.body.contains("add [calls] to its configuration"), "{}", answer.body);
        }
    }
    for path in ["/v1/calls/1/outcomes", "/v1/events"] {
        assert_eq!((ask(path, token).status, ask(path, TOKEN).status), (403, 404), "{path}");
    }
}

#[test]
fn a_lookup_token_may_look_up_holders_of_numbers_and_nothing_else() {
    let token = "another-token-of-the-tests-01234";
    let sha256 = Command::new("sh").args(["-c", "printf %s \"$0\" | sha256sum", token]).output();
    let sha256 = String::from_utf8(sha256.unwrap().stdout).unwrap()[..64].to_owned();
    let (_site, server) = start(&format!("management.lookup_sha256 = [\"{sha256}\"]"));
    let log = server.log();
    let line = log.lines().find(|line| line.contains(r#""message":"management""#)).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let url = line.get("fields").unwrap_or(&line)["address"].as_str().unwrap().to_owned();
    let create = |role: &str, network: &[&str]| {
        let args = [&["pools", "tokens", "create", "--name", "ann", "--role", role][..], network];
        let mut command = ringwell(&[&args.concat()[..], &["--url", &url]].concat());
        let made = command.env("RINGWELL_TOKEN", TOKEN).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let ask = |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        server.client().get(path, &[("authorization", bearer.as_str())]).unwrap().status
    };
    let look_up = "/v1/attributions?number=2000100000";
    assert_eq!(ask(look_up, token), 200);
    for path in ["/v1/shards", "/v1/overflow", "/v1/pools/1/state"] {
        assert_eq!(ask(path, token), 403, "{path}");
    }
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let release = server.client().post("/v1/releases", &headers, "{}").unwrap();
    assert_eq!(release.status, 403);
    // The server also accepts tokens from the database: from shortly after their creation until
    // they are revoked.
    let made = create("lookup", &[]);
    let of_a_network = create("read", &["--network", "local"]);
    let until = Instant::now() + Duration::from_secs(30);
    while ask(look_up, &made) != 200 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(50));
    }
    // Each role includes the permissions of the roles before it in this list: lookup, read, write,
    // admin. Of these roles, only admin may read the state of shards and pools.
    let (writes, admin) = (create("write", &[]), create("admin", &[]));
    while ask("/v1/shards", &admin) != 200 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(50));
    }
    for path in ["/v1/shards", "/v1/overflow", "/v1/pools/1/state"] {
        assert_ne!(ask(path, &admin), 403, "{path}");
        assert_eq!((ask(path, &made), ask(path, &writes)), (403, 403), "{path}");
    }
    let bearer = format!("Bearer {admin}");
    let headers = [("authorization", bearer.as_str())];
    for path in ["/v1/releases", "/v1/shards/moves"] {
        let changed = server.client().post(path, &headers, "{}").unwrap();
        assert_eq!(changed.status, 403, "it may change nothing here: {path}");
    }
    let address = format!("http://{}", server.address());
    let mut top = ringwell(&["top", "--once", "--url", &address]);
    let top = top.env("RINGWELL_TOKEN", &admin).output().unwrap();
    assert!(top.status.success(), "{}", String::from_utf8_lossy(&top.stderr));
    assert_eq!(ask(look_up, &of_a_network), 401, "it may not see other networks' data");
    let list = ringwell(&["pools", "list", "--url", &url]).env("RINGWELL_TOKEN", &made).output();
    assert!(!list.unwrap().status.success(), "it may not even look at pools");
    let id = made.split('_').nth(1).unwrap();
    let revoke = ["pools", "tokens", "revoke", id, "--url", &url];
    let revoked = ringwell(&revoke).env("RINGWELL_TOKEN", TOKEN).output().unwrap();
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    while ask(look_up, &made) != 401 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn without_the_setting_ring_pools_are_not_at_the_address_of_clients() {
    let (_site, server) = start("");
    let answer = server.client().get(&format!("{POOLS}.json"), &[("authorization", TOKEN)]);
    assert_eq!(answer.unwrap().status, 404);
}

#[test]
fn long_answers_are_compressed_for_clients_that_accept_gzip_if_enabled() {
    let pool = Pool::new(1, 90, LONG);
    let asks: Vec<_> = (0..40).map(|row| Ask { pool: 1, id: format!("{row}") }).collect();
    let ask = |server: &Server, asks: &[Ask], accept: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-H", accept, "-d", &batch::body(asks, std::slice::from_ref(&pool))]);
        curl.args(["-D", "-", "-o", "-"]).arg(format!("http://{}{BULK}", server.address()));
        curl.output().unwrap().stdout
    };
    let head = |answer: &[u8]| {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        (String::from_utf8_lossy(&answer[..end]).to_lowercase(), answer[end + 4..].to_vec())
    };
    let takes = "accept-encoding: gzip";
    let start = |more: &str| {
        let site = Site::new(vec![pool.clone()], &format!("shards = 1\n{more}"));
        let server = Server::start(site.serve(&[]));
        (site, server)
    };
    let (_site, server) = start("api.gzip = true");
    let (fields, body) = head(&ask(&server, &asks, takes));
    assert!(fields.contains("content-encoding: gzip"), "{fields}");
    assert!(fields.contains("vary: accept-encoding"), "{fields}");
    assert!(body.starts_with(&[0x1f, 0x8b]) && body.len() < 1024, "{} bytes", body.len());
    // The decompressed answer must be complete.
    let mut curl = Command::new("curl");
    curl.args(["-s", "--compressed", "-d", &batch::body(&asks, std::slice::from_ref(&pool))]);
    let unpacked = curl.arg(format!("http://{}{BULK}", server.address())).output().unwrap().stdout;
    let unpacked: serde_json::Value = serde_json::from_slice(&unpacked).unwrap();
    assert_eq!(unpacked["responses"].as_array().unwrap().len(), 40);
    for (asks, accept) in [
        (&asks[..1], takes),
        (&asks[..], "accept-encoding: identity"),
        (&asks[..], "accept-encoding: gzip;q=0, br"),
    ] {
        let (fields, body) = head(&ask(&server, asks, accept));
        assert!(!fields.contains("content-encoding"), "{accept}: {fields}");
        assert!(body.starts_with(b"{"), "{accept}");
    }
    let (_site, server) = start("");
    let (fields, _) = head(&ask(&server, &asks, takes));
    assert!(!fields.contains("content-encoding"), "off unless set: {fields}");
}
