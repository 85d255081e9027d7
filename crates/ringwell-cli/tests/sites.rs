//! Web sites in the database: created, changed and removed while the server serves their pages.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::HttpAnswer;
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const SHOP: &str = "https://shop.example";
const LONG: Duration = Duration::from_mins(30);
/// A change usually takes effect within a second. The additional time allows for a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A server with two ring pools. It keeps its directory in SQLite.
struct Managed {
    site: Site,
    server: Server,
    url: String,
}

fn management(server: &Server) -> String {
    let log = server.log();
    let line = log.lines().find(|line| line.contains(r#""message":"management""#)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    line.get("fields").unwrap_or(&line)["address"].as_str().unwrap().to_owned()
}

impl Managed {
    fn start(more: &str) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let data = folder.path().join("data");
        let settings = format!(
            "shards = 2\nmanagement.address = \"127.0.0.1:0\"\n[directory]\n\
             database = \"sqlite:{}\"\n{more}",
            folder.path().join("directory.sqlite").display()
        );
        let pools = vec![Pool::new(1, 40, LONG), Pool::new(2, 40, LONG)];
        let site = Site::with_data(folder, data, pools, &settings);
        let server = Server::start(site.serve(&[]));
        let url = management(&server);
        Self { site, server, url }
    }

    fn run(&self, args: &[&str]) -> Output {
        let all = [&["sites"], args, &["--url", &self.url]].concat();
        ringwell(&all).env("RINGWELL_TOKEN", TOKEN).output().unwrap()
    }

    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, args: &[&str], wanted: &str) {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains(wanted), "{args:?}: {stderr}");
    }

    /// Requests numbers as a page at `origin` would, and returns the answer.
    fn page(&self, key: &str, origin: &str) -> HttpAnswer {
        let headers = [("origin", origin), ("user-agent", FIREFOX)];
        let body = json!({"site": key, "params": {}}).to_string();
        self.server.client().post("/site/v1/numbers", &headers, &body).unwrap()
    }

    /// Repeats the request that [`Self::page`] sends until the status is `status`, and returns the
    /// answer.
    fn page_until(&self, key: &str, origin: &str, status: u16) -> HttpAnswer {
        let until = Instant::now() + SOON;
        loop {
            let answer = self.page(key, origin);
            if answer.status == status {
                return answer;
            }
            assert!(Instant::now() < until, "{} {}", answer.status, answer.body);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a request to the management API with `token`. Returns the answer.
    fn manage(&self, method: &str, path: &str, token: &str, body: &Value) -> HttpAnswer {
        let token = format!("Bearer {token}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("authorization", token.as_str())];
        let request = support::client::request(method, path, &headers, &body);
        let mut client = support::client::Client::connect(&self.url).unwrap();
        client.send(request.as_bytes()).unwrap();
        client.receive().unwrap()
    }
}

fn create<'a>(key: &'a str, swap: &'a str) -> [&'a str; 6] {
    ["create", key, "--origin", SHOP, "--swap", swap]
}

#[test]
fn a_site_is_made_changed_and_removed_while_its_pages_are_served() {
    let mut managed = Managed::start("");
    assert_eq!(managed.page("pk_shop", SHOP).status, 403, "there is no such site yet");
    let made = managed.says(&create("pk_shop", "+18005550100=1"));
    assert!(made.contains("ringwell snippet --site pk_shop"), "{made}");
    let answer = managed.page_until("pk_shop", SHOP, 200).json();
    assert!(answer["swaps"][0]["to"].as_str().unwrap().starts_with("+120001"), "{answer}");
    managed.fails(&create("pk_shop", "+18005550100=1"), "site pk_shop already exists");

    // Changes the pool, then the origin. Settings that a command does not specify stay unchanged.
    managed.says(&["change", "pk_shop", "--swap", "+18005550100=2", "--consent", "cookieless"]);
    managed.says(&["change", "pk_shop", "--origin", "https://www.example"]);
    let answer = managed.page_until("pk_shop", "https://www.example", 200).json();
    assert!(answer["swaps"][0]["to"].as_str().unwrap().starts_with("+120002"), "{answer}");
    assert_eq!(managed.page("pk_shop", SHOP).status, 403);
    let shown: Value = serde_json::from_str(&managed.says(&["show", "pk_shop", "--json"])).unwrap();
    assert_eq!(shown["consent"], "cookieless");
    assert_eq!(shown["leases_per_minute"], 60);

    // After a restart, the site still exists, and its visitors are recognized.
    let visitor = answer["visitor"].clone();
    let Managed { site, server, .. } = managed;
    drop(server);
    let server = Server::start(site.serve(&[]));
    let url = management(&server);
    managed = Managed { site, server, url };
    let body = json!({"site": "pk_shop", "visitor": visitor, "lease": answer["lease"]});
    let headers = [("origin", "https://www.example"), ("user-agent", FIREFOX)];
    let again =
        managed.server.client().post("/site/v1/beat", &headers, &body.to_string()).unwrap().json();
    assert_eq!(again["swaps"], answer["swaps"]);

    managed.says(&["remove", "pk_shop"]);
    managed.page_until("pk_shop", "https://www.example", 403);
    managed.fails(&["show", "pk_shop"], "no such site");
    managed.fails(&["remove", "pk_shop"], "no such site");
}

#[test]
fn sites_of_the_file_are_served_beside_those_of_the_database_which_take_precedence() {
    let more = format!(
        "[[site]]\nkey = \"pk_file\"\norigins = [\"{SHOP}\"]\n\
         [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n"
    );
    let managed = Managed::start(&more);
    assert_eq!(managed.page("pk_file", SHOP).status, 200);
    managed.says(&create("pk_more", "+18005550100=2"));
    managed.page_until("pk_more", SHOP, 200);
    assert_eq!(managed.page("pk_file", SHOP).status, 200);
    managed.says(&[
        "create",
        "pk_file",
        "--origin",
        "https://a.example",
        "--swap",
        "+18005550100=2",
    ]);
    managed.page_until("pk_file", SHOP, 403);
    let listed = managed.says(&["list"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    managed.says(&["remove", "pk_file"]);
    managed.page_until("pk_file", SHOP, 200);
}

#[test]
fn a_faulty_site_is_refused_and_nothing_changes() {
    let managed = Managed::start("");
    managed.fails(&create("shop", "+18005550100=1"), "key: must be pk_");
    managed.fails(&create("pk_shop", "+18005550100=77"), "swaps: there is no ring pool 77");
    managed.fails(&create("pk_shop", "18005550100=1"), "swaps[0]: must be");
    managed.fails(&["create", "pk_shop", "--swap", "+18005550100=1"], "origins: must have");
    managed.fails(&["create", "pk_shop/../x", "--origin", SHOP], "not a site key");
    managed.fails(&["change", "pk_shop", "--consent", "off"], "no such site");
    for name in ["ringwell_visitor", "ring_pool_key"] {
        let with = [&create("pk_shop", "+18005550100=1")[..], &["--param", name]].concat();
        managed.fails(&with, &format!("params[0]: {name} is reserved"));
    }
    let twice = [&create("pk_shop", "+18005550100=1")[..], &["--swap", "+18005550100=2"]].concat();
    managed.fails(&twice, "swaps[1]: +18005550100 is swapped twice");
    let site = json!({"origins": [SHOP], "swaps": [{"number": "+18005550100", "ring_pool": 1}]});
    let path = "/v1/sites/pk_shop";
    let tried = managed.manage("PUT", &format!("{path}?dry_run=true"), TOKEN, &site);
    assert_eq!(tried.status, 201, "{}", tried.body);
    for wrong in [json!({"origin": [SHOP]}), json!([]), json!({"origins": SHOP, "swaps": []})] {
        assert_eq!(managed.manage("PUT", path, TOKEN, &wrong).status, 400, "{wrong}");
    }
    assert_eq!(managed.manage("PUT", path, "another-token", &site).status, 401);
    assert_eq!(managed.says(&["list", "--json"]).trim(), "[]");
    assert_eq!(managed.page("pk_shop", SHOP).status, 403);
}

#[test]
fn a_token_of_one_network_sees_and_changes_sites_of_its_own_pools_only() {
    let managed = Managed::start("");
    managed.says(&create("pk_local", "+18005550100=1"));
    let token = |role: &str, network: &str| {
        let body = json!({"name": "ann", "role": role, "network": network});
        let made = managed.manage("POST", "/v1/tokens", TOKEN, &body).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (own, other) = (token("write", "local"), token("write", "north"));
    let reader = token("read", "local");
    let path = "/v1/sites/pk_local";
    let site = json!({"origins": [SHOP], "swaps": [{"number": "+18005550100", "ring_pool": 2}]});
    assert_eq!(managed.manage("GET", path, &reader, &Value::Null).status, 200);
    assert_eq!(managed.manage("PUT", path, &reader, &site).status, 403);
    assert_eq!(managed.manage("GET", path, &other, &Value::Null).status, 404);
    assert_eq!(managed.manage("DELETE", path, &other, &Value::Null).status, 404);
    assert_eq!(managed.manage("PUT", path, &other, &site).status, 409);
    assert_eq!(managed.manage("PUT", "/v1/sites/pk_north", &other, &site).status, 422);
    let list = managed.manage("GET", "/v1/sites", &other, &Value::Null);
    assert_eq!(list.json(), json!([]));
    assert_eq!(managed.manage("PUT", path, &own, &site).status, 200);
    assert_eq!(managed.manage("DELETE", path, &own, &Value::Null).status, 200);
}

#[test]
fn a_token_of_one_network_cannot_take_a_configured_site_from_another() {
    let more = format!(
        "[[site]]\nkey = \"pk_file\"\norigins = [\"{SHOP}\"]\n\
         [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n"
    );
    let managed = Managed::start(&more);
    let token = |network: &str| {
        let body = json!({"name": "ann", "role": "write", "network": network});
        let made = managed.manage("POST", "/v1/tokens", TOKEN, &body).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (own, other) = (token("local"), token("north"));
    let pool = json!({"name": "theirs", "id_from_network": "m3", "max_pool_size": 3,
                      "fill_immediately": true, "allow_overflow": false, "lifetime_seconds": 120});
    let path = "/api/2013-07-01/north/advertisers/1/advertiser_campaigns/1/ring_pools.json";
    let pool = managed.manage("POST", path, &other, &pool);
    let id = &pool.json()["id"];
    assert!(id.is_u64(), "{}", pool.body);
    let site = json!({"origins": [SHOP], "swaps": [{"number": "+18005550100", "ring_pool": id}]});
    let path = "/v1/sites/pk_file";
    let tried = managed.manage("PUT", path, &other, &site);
    assert_eq!(tried.status, 409, "{}", tried.body);
    assert!(tried.body.contains("the key pk_file is already in use"), "{}", tried.body);
    let site = json!({"origins": [SHOP], "swaps": [{"number": "+18005550100", "ring_pool": 2}]});
    assert_eq!(managed.manage("PUT", path, &own, &site).status, 201);
    let site = json!({"origins": [SHOP], "swaps": [{"number": "+18005550101", "ring_pool": id}]});
    assert_eq!(managed.manage("PUT", "/v1/sites/pk_north", &other, &site).status, 201);
}

#[test]
fn configured_sites_are_reloaded_by_sighup_also_beside_a_database() {
    let managed = Managed::start("");
    let section = |key: &str| {
        format!(
            "\n[[site]]\nkey = \"{key}\"\norigins = [\"{SHOP}\"]\n\
             [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n"
        )
    };
    managed.says(&create("pk_kept", "+18005550100=2"));
    let without = std::fs::read_to_string(managed.site.config()).unwrap();
    let write = |text: &str| std::fs::write(managed.site.config(), text).unwrap();
    write(&(without.clone() + &section("pk_file")));
    assert!(managed.server.reload().contains("web sites"));
    managed.page_until("pk_file", SHOP, 200);
    managed.page_until("pk_kept", SHOP, 200);
    // A site that was removed from the configuration file must not reappear when the sites in the
    // database are applied again.
    write(&(without + &section("pk_next")));
    assert!(managed.server.reload().contains("reloaded"));
    managed.page_until("pk_file", SHOP, 403);
    managed.says(&create("pk_more", "+18005550100=2"));
    managed.page_until("pk_more", SHOP, 200);
    assert_eq!(managed.page("pk_file", SHOP).status, 403);
    assert_eq!(managed.page("pk_next", SHOP).status, 200);
}

#[test]
fn the_secret_of_edges_is_set_kept_hidden_and_removed() {
    let managed = Managed::start("");
    let file = managed.site.data().join("edge-key");
    std::fs::write(&file, "only-the-edge-knows\n").unwrap();
    let file = file.to_str().unwrap();
    let edge = |status: u16| {
        let headers = [("user-agent", FIREFOX), ("ringwell-edge-key", "only-the-edge-knows")];
        let until = Instant::now() + SOON;
        let ask = || {
            let path = "/site/v1/number?site=pk_shop";
            managed.server.client().get(path, &headers).unwrap().status
        };
        while ask() != status {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(20));
        }
    };
    let all = [&create("pk_shop", "+18005550100=1")[..], &["--edge-key-file", file]].concat();
    let made = managed.says(&[&all[..], &["--json"]].concat());
    assert!(!made.contains("only-the-edge"), "{made}");
    assert!(made.contains("\"has_edge_key\": true"), "{made}");
    edge(204);
    managed.says(&["change", "pk_shop", "--leases-per-minute", "5"]);
    edge(204);
    let audit = managed.manage("GET", "/v1/audit", TOKEN, &Value::Null).body;
    assert!(audit.contains("site pk_shop") && !audit.contains("only-the-edge"), "{audit}");
    managed.says(&["change", "pk_shop", "--no-edge-key"]);
    edge(403);
}

#[test]
fn the_snippet_has_the_server_s_script_and_its_integrity_value() {
    let managed = Managed::start("");
    let args = ["snippet", "--site", "pk_shop", "--server", "https://calls.example/"];
    let text = String::from_utf8(ringwell(&args).output().unwrap().stdout).unwrap();
    let tag = "<script async src=\"https://calls.example/rw.js\" data-site=\"pk_shop\"></script>";
    assert_eq!(text.lines().next(), Some(tag));
    for (consent, shown) in
        [(&["--consent"][..], "required"), (&["--consent", "cookieless"], "cookieless")]
    {
        let printed = ringwell(&[&args[..], consent].concat()).output().unwrap().stdout;
        let wanted = tag.replace("></", &format!(" data-consent=\"{shown}\"></"));
        assert_eq!(String::from_utf8(printed).unwrap().lines().next(), Some(&*wanted));
    }
    let pinned = text.lines().find(|line| line.contains("integrity")).unwrap();
    let path = pinned.split("https://calls.example").nth(1).unwrap().split('"').next().unwrap();
    let mut client = managed.server.client();
    let (newest, hashed) = (client.get("/rw.js", &[]).unwrap(), client.get(path, &[]).unwrap());
    assert_eq!(hashed.body, newest.body);
    let kept = |answer: &HttpAnswer| {
        let mut found = answer.headers.iter().filter(|(name, _)| name == "cache-control");
        found.next().unwrap().1.clone()
    };
    assert_eq!(kept(&newest), "public, max-age=300");
    assert_eq!(kept(&hashed), "public, max-age=31536000, immutable");
    assert_eq!(client.get("/rw.0123456789abcdef.js", &[]).unwrap().status, 404);
    // Computes the integrity value as a browser would.
    let file = managed.site.data().join("rw.js");
    std::fs::write(&file, &hashed.body).unwrap();
    let shell = "openssl dgst -sha384 -binary \"$0\" | openssl base64 -A";
    let digest = std::process::Command::new("sh").args(["-c", shell]).arg(&file).output().unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap();
    assert!(pinned.contains(&format!("integrity=\"sha384-{digest}\"")), "{digest}: {pinned}");
    for wrong in [
        ["--site", "shop", "--server", "https://a.example"],
        ["--site", "pk_shop", "--server", "a"],
        ["--site", "pk_shop", "--server", "https://a.example:99999"],
    ] {
        assert!(!ringwell(&[&["snippet"][..], &wrong].concat()).output().unwrap().status.success());
    }
}

#[test]
fn sites_of_the_file_are_read_again_at_sighup() {
    let site = Site::new(vec![Pool::new(1, 40, LONG)], "shards = 1");
    let server = Server::start(site.serve(&[]));
    let managed = Managed { site, server, url: String::new() };
    assert_eq!(managed.page("pk_shop", SHOP).status, 403, "there is no site yet");
    let without = std::fs::read_to_string(managed.site.config()).unwrap();
    let section = |origin: &str| {
        format!(
            "\n[[site]]\nkey = \"pk_shop\"\norigins = [\"{origin}\"]\n\
             [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n"
        )
    };
    let write = |text: &str| std::fs::write(managed.site.config(), text).unwrap();
    write(&(without.clone() + &section(SHOP)));
    assert!(managed.server.reload().contains("reloaded"));
    let first = managed.page("pk_shop", SHOP).json();
    write(&(without.clone() + &section("https://www.example")));
    assert!(managed.server.reload().contains("reloaded"));
    assert_eq!(managed.page("pk_shop", SHOP).status, 403);
    // Earlier visitors are recognized, because the secret that signs visitors' ids is unchanged.
    let body = json!({"site": "pk_shop", "visitor": first["visitor"], "lease": first["lease"]});
    let headers = [("origin", "https://www.example"), ("user-agent", FIREFOX)];
    let beat = managed.server.client().post("/site/v1/beat", &headers, &body.to_string()).unwrap();
    assert_eq!(beat.json()["swaps"], first["swaps"]);
    // A configuration file with faults leaves the sites unchanged.
    write(&(without + "\n[[site]]\nkey = \"pk_shop\"\n"));
    assert!(managed.server.reload().contains("are unchanged"));
    assert_eq!(managed.page("pk_shop", "https://www.example").status, 200);
}
