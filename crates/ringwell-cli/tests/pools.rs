//! Tests `ringwell pools` with a real server that keeps its pools in SQLite.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::batch::{self, Ask, BULK};
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const LONG: Duration = Duration::from_mins(30);
/// Changes must take effect within a second. The additional time allows for a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A server that manages one ring pool, with id 1 and four numbers, starting at 2000100000.
struct Managed {
    folder: TempDir,
    /// The site with the data directory. It must be kept, because a server ends if its lock file is
    /// removed.
    _site: Site,
    server: Server,
    url: String,
}

impl Managed {
    fn start() -> Self {
        Self::start_with("")
    }

    fn start_with(more: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("directory.sqlite");
        let settings = format!(
            "shards = 1\nmanagement.address = \"127.0.0.1:0\"\n{more}\n[directory]\n\
             database = \"sqlite:{}\"",
            database.display()
        );
        let site = Site::new(vec![Pool::new(1, 4, LONG)], &settings);
        let server = Server::start(site.serve(&[]));
        let log = server.log();
        let line = log.lines().find(|line| line.contains(r#""message":"management""#)).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let url = line.get("fields").unwrap_or(&line)["address"].as_str().unwrap().to_owned();
        Self { folder, _site: site, server, url }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, args: &[&str]) -> Output {
        let all = [&["pools"], args, &["--url", &self.url]].concat();
        ringwell(&all).env("RINGWELL_TOKEN", TOKEN).output().unwrap()
    }

    /// Runs a command, which must succeed, and returns its output.
    fn says(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output).to_owned()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[args, &["--json"]].concat())).unwrap()
    }

    fn fails(&self, args: &[&str], wanted: &str) {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
    }

    /// Requests a number as a client would. Repeats the request until the server accepts the pool
    /// and its key.
    fn number(&self, pool: &Pool) -> u64 {
        let until = Instant::now() + SOON;
        let asks = [Ask { pool: pool.id, id: "x".into() }];
        let body = batch::body(&asks, std::slice::from_ref(pool));
        let mut client = self.server.client();
        loop {
            let answer = client.post(BULK, &[], &body).unwrap();
            if !answer.body.contains("InvalidKey") {
                return batch::rows(&answer)[0].number;
            }
            assert!(Instant::now() < until, "{}", answer.body);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn client_of(made: &Value, first: u64) -> Pool {
    let id = made["id"].as_u64().unwrap();
    let key = made["ring_pool_key"].as_str().unwrap().to_owned();
    Pool { key, first, ..Pool::new(id, 1, LONG) }
}

#[test]
fn a_pool_of_named_numbers_is_made_used_grown_and_removed() {
    let managed = Managed::start();
    let listed = managed.says(&["list"]);
    let text = "id  name         network  campaign  lifetime  size    overflow  keys\n \
                1  Ring pool 1  local    local     30m          5  9990000001     1\n";
    assert_eq!(listed, text);

    let ranges = ["8885550100-8885550109", "8885550120"];
    let made = managed.json(
        &[
            &["create", "--id", "7", "--name", "Autos, \"new\"", "--lifetime", "90s", "--overflow"],
            &["8885550199", "--numbers"][..],
            &ranges[..],
        ]
        .concat(),
    );
    assert_eq!((&made["name"], &made["max_pool_size"]), (&"Autos, \"new\"".into(), &12.into()));
    assert_eq!(managed.number(&client_of(&made, 8_885_550_100)), 8_885_550_100);
    let state = managed.json(&["state", "7"]);
    assert_eq!((&state["free"], &state["locked"]), (&10.into(), &1.into()), "{state}");
    let state = managed.says(&["state", "7"]);
    assert!(
        state.starts_with(
            "numbers             11\nfree                10\nlocked              1\n\
             allocated           1\nexhausted           0 since"
        ),
        "{state}"
    );

    let added = managed.says(&["add-numbers", "7", "8885550110-8885550112"]);
    assert_eq!(added, "3 numbers added to ring pool 7\n");
    let shown = managed.says(&["show", "7"]);
    assert!(shown.contains("\nlifetime            1m 30s\nsize at most        15\n"), "{shown}");
    assert!(shown.contains("\n8885550100  8885550112     13  available "), "{shown}");
    let shrunk = managed.says(&["resize", "7", "--size", "5"]);
    assert!(
        shrunk.starts_with(
            "the maximum size of ring pool 7 is now 5; the pool contains 5 numbers (4 avail"
        ),
        "{shrunk}"
    );
    let listed = managed.says(&["list"]);
    assert!(listed.ends_with("1m 30s       5  8885550199     1\n"), "{listed}");

    managed.fails(&["remove", "7"], "pass --yes to remove ring pool 7");
    assert_eq!(managed.json(&["list"]).as_array().unwrap().len(), 2);
    assert_eq!(managed.says(&["remove", "7", "--yes"]), "ring pool 7 is removed\n");
    managed.fails(&["show", "7"], "there is no ring pool 7");
    assert_eq!(managed.json(&["list"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_pool_draws_from_the_inventory_and_gets_another_key() {
    let managed = Managed::start();
    let added = managed.says(&["numbers", "add", "8885550200-8885550219"]);
    assert_eq!(added, "20 numbers added to the inventory\n");
    let of = ["--network", "north/7", "--advertiser", "a", "--campaign", "c d"];
    let made = managed.json(&[&["create", "--name", "Homes", "--size", "6"], &of[..]].concat());
    assert_eq!(made["overflow_number"], "8885550205", "{made}");
    let pool = client_of(&made, 8_885_550_200);
    assert_eq!(managed.number(&pool), 8_885_550_200);
    let id = pool.id.to_string();
    let grown = managed.says(&["resize", &id, "--size", "12"]);
    assert!(
        grown.ends_with("the pool contains 12 numbers (11 available, 1 overflow)\n"),
        "{grown}"
    );

    let key = managed.says(&["rotate-key", &id]);
    let newer = Pool { key: key.trim().to_owned(), ..pool.clone() };
    for client in [&newer, &pool] {
        assert!(managed.number(client) > 8_885_550_200, "both keys are valid");
    }
    assert_eq!(managed.json(&["show", &id])["key_is_rotating"], true);
    let advice = format!("`ringwell pools rotate-key {id} --end`; to replace the newer one, add");
    managed.fails(&["rotate-key", &id], &advice);
    assert!(managed.number(&newer) > 8_885_550_200, "the newer key is still valid");
    let replaced = managed.says(&["rotate-key", &id, "--replace"]);
    assert_ne!(replaced.trim(), newer.key);
    managed.says(&["rotate-key", &id, "--end"]);
    assert_eq!(managed.json(&["show", &id])["key_is_rotating"], false);

    let set = managed.says(&["overflow", &id, "8885550218"]);
    assert_eq!(set, format!("8885550218 is now the overflow number of ring pool {id}\n"));
    assert_eq!(managed.json(&["show", &id])["overflow_number"], "8885550218");
    let audit = managed.says(&["audit", "--last", "2"]);
    assert_eq!(audit.lines().count(), 3, "a heading and two changes: {audit}");
    assert!(audit.contains("Z  configured token "), "{audit}");

    let moved = managed.says(&["numbers", "move", "8885550219", "--to", "retired"]);
    assert_eq!(moved, "1 number moved to: retired\n");
    let numbers = managed.says(&["numbers", "list"]);
    assert!(numbers.contains("\n8885550219  8885550219      1  retired"), "{numbers}");
    let plain = managed.says(&["create", "--name", "Boats", "--size", "2", "--no-overflow"]);
    assert!(plain.contains("\noverflow number     none\nkey      "), "{plain}");
}

/// If a customer leaves, its numbers can be given to another customer.
#[test]
fn numbers_of_one_network_are_given_to_another() {
    let managed = Managed::start();
    let create = |network: &str, id: &str, numbers: &str| {
        let args = ["create", "--name", network, "--network", network, "--id", id];
        managed.says(&[&args[..], &["--numbers", numbers]].concat());
        id.to_owned()
    };
    let west = create("west", "61", "8885556020-8885556029");
    let north = create("north", "62", "8885557000-8885557001");
    managed.says(&["remove", &west, "--yes"]);
    let range = "8885556020-8885556024";
    managed.fails(&["add-numbers", &north, range], "in the inventory, for network west only");
    managed.fails(&["numbers", "move", range, "--to", "retired", "--network", "north"], "network:");
    let moved =
        managed.says(&["numbers", "move", range, "--to", "inventory", "--network", "north"]);
    assert_eq!(moved, "5 numbers moved to: inventory, for network north only\n");
    // Visitors may still hold numbers from the removed pool.
    managed.says(&["add-numbers", &north, range]);
    let rest = "8885556025-8885556029";
    let moved = managed.says(&["numbers", "move", rest, "--to", "inventory", "--all-networks"]);
    assert_eq!(moved, "5 numbers moved to: inventory, for all networks\n");
    managed.says(&["add-numbers", &north, rest]);
    managed.fails(&["numbers", "move", "8885557777", "--to", "inventory"], "8885557777");
    let own =
        managed.says(&["tokens", "create", "--name", "n", "--role", "write", "--network", "north"]);
    let take = |network: &str| {
        let args = ["pools", "numbers", "move", rest, "--to", "inventory", "--network", network];
        let mut command = ringwell(&[&args[..], &["--url", &managed.url]].concat());
        command.env("RINGWELL_TOKEN", own.trim()).output().unwrap()
    };
    let refused = take("west");
    assert!(stderr(&refused).contains("limited to one network"), "{}", stderr(&refused));
    let taken = take("north");
    assert!(taken.status.success(), "{}", stderr(&taken));
}

/// A pool is created or enlarged, but gets fewer numbers than requested. Scripts must be able to
/// detect this.
#[test]
fn a_pool_that_gets_too_few_numbers_of_the_inventory_is_an_error_with_advice() {
    let managed = Managed::start();
    managed.says(&["numbers", "add", "8885550200-8885550205"]);
    managed.fails(&["resize", "1", "--size", "12"], "lacks 1 number: add numbers with");
    managed.fails(&["resize", "1", "--size", "13"], "`ringwell pools add-numbers 1 RANGE`");
    managed.fails(&["create", "--name", "Empty", "--size", "5"], "lacks 5 numbers");
    managed.says(&["add-numbers", "1", "8885550300-8885550301"]);
    managed.says(&["resize", "1", "--size", "13"]);
}

#[test]
fn a_network_buys_numbers_up_to_its_ceiling() {
    let files = TempDir::new().unwrap();
    let [offers, purchases] =
        ["offers.csv", "purchases.csv"].map(|name| files.path().join(name).display().to_string());
    fs::write(&offers, "number,price_cents\n2125550100,120\n2125550101,90\n8885550100,50\n")
        .unwrap();
    let managed = Managed::start_with(&format!(
        "inventory.offers = \"{offers}\"\ninventory.purchases = \"{purchases}\""
    ));
    let offered = managed.says(&["numbers", "offers", "--area-code", "212"]);
    assert_eq!(
        offered,
        "    number  price_cents\n2125550101           90\n2125550100          120\n"
    );
    let limited = managed.says(&["networks", "limit", "north/7", "--numbers", "1"]);
    assert_eq!(limited, "the pools of network north/7 may now contain at most 1 numbers\n");
    let networks = managed.says(&["networks", "list"]);
    assert!(networks.contains("\nnorth/7        0  1, its own\n"), "{networks}");
    let buy = ["numbers", "buy", "--network", "north/7", "--count", "5", "--area-code", "212"];
    let tried = managed.says(&[&buy[..], &["--dry-run"]].concat());
    assert!(tried.ends_with("\n1 of 5 would be bought for network north/7: 90 cents a month\n"));
    assert!(!fs::exists(&purchases).unwrap());
    let bought = managed.says(&buy);
    assert!(
        bought.ends_with("\n1 of 5 bought for network north/7: 90 cents a month\n"),
        "{bought}"
    );
    let listed = managed.says(&["numbers", "bought"]);
    assert!(listed.ends_with("\n2125550101           90  north/7\n"), "{listed}");
    let numbers = managed.says(&["numbers", "list"]);
    assert!(numbers.contains("\n2125550101  2125550101      1  free "), "{numbers}");
}

#[test]
fn a_list_cannot_move_a_pool_to_another_network() {
    let managed = Managed::start();
    let list = managed.path("pools.csv");
    let import = |network: &str| {
        let heading = "id,overflow_number,lifetime_seconds,first_number,numbers,network";
        fs::write(&list, format!("{heading}\n2,,1800,8885550300,10,{network}\n")).unwrap();
        stdout(&managed.run(&["import", &list])).to_owned()
    };
    assert!(import("").contains("   2  created"));
    assert!(import("local").contains("   2  unchanged"));
    let wanted = "network: the ring pool is in network \"local\", which cannot be changed";
    assert!(import("acme").contains(wanted));
}

#[test]
fn lists_are_tried_imported_and_exported() {
    let managed = Managed::start();
    let list = managed.path("pools.csv");
    let heading = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers";
    let lines = "2,KEY45678,,1800,8885550300,10\n3,KEY,,1800,8885550400,5\n";
    fs::write(&list, format!("{heading}\n{lines}")).unwrap();

    let refused = managed.run(&["import", &list]);
    let text = "line  result   detail\n   2  created\n   3  bad      ring_pool_key: a ring pool \
                key has 8 to 64 bytes, not 3\n\ngood: 1, bad: 1; nothing was applied\n";
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(1), text));
    managed.fails(&["show", "2"], "there is no ring pool 2");
    let tried = managed.run(&["import", &list, "--dry-run", "--apply", "good", "--only-bad"]);
    assert_eq!(tried.status.code(), Some(1));
    assert!(stdout(&tried).starts_with("line  result  detail\n   3  bad"), "{}", stdout(&tried));
    assert!(stdout(&tried).ends_with("dry run, nothing was changed\n"));
    let taken = managed.run(&["import", &list, "--apply", "good"]);
    assert_eq!(taken.status.code(), Some(1), "a line is bad");
    assert!(stdout(&taken).ends_with("bad: 1; only the good lines were applied\n"));

    let out = managed.path("export.csv");
    managed.says(&["export", &out]);
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600, "keys are in it");
    let exported = fs::read_to_string(&out).unwrap();
    assert_eq!(exported, managed.says(&["export"]));
    assert!(exported.starts_with(heading) && exported.contains("\n2,KEY45678,,1800"), "{exported}");
    let tried = managed.says(&["import", &out, "--dry-run"]);
    assert!(tried.contains("unchanged") && !tried.contains("updated"), "{tried}");
    let again = managed.says(&["import", &out, "--only-bad"]);
    assert_eq!(again, "good: 2, bad: 0; all lines were applied\n");
    // Two lines for one new pool create only one pool. Existing pools do not change.
    let both =
        format!("{exported}4,KEY45678,,1800,8885550500,5,,,,,,,\n4,,,900,8885550600,5,,,,,,,\n");
    fs::write(&list, both).unwrap();
    let new = managed.run(&["import", &list, "--create-only", "--apply", "good"]);
    let printed = stdout(&new);
    assert!(printed.contains("   2  bad      ring pool 1 already exists\n"), "{printed}");
    assert!(printed.ends_with("good: 2, bad: 2; only the good lines were applied\n"), "{printed}");
    assert_eq!(managed.json(&["show", "4"])["lifetime_seconds"], 900.0);
    assert_eq!(managed.json(&["show", "2"])["lifetime_seconds"], 1800.0);
    // Clients may already have the second key, so a list cannot replace it.
    let with_key = |key: &str| {
        fs::write(&list, format!("{heading}\n2,{key},,1800,8885550300,10\n")).unwrap();
        stdout(&managed.run(&["import", &list])).to_owned()
    };
    assert!(with_key("KEY-2-OF-2").contains("   2  updated"));
    assert!(with_key("KEY-2-OF-2").contains("   2  unchanged"));
    let third = with_key("KEY-3-OF-2");
    assert!(third.contains("   2  bad     ring pool 2 already has two keys"), "{third}");
    managed.fails(&["import", "/no/such/file"], "cannot read /no/such/file");
    let lines = "x,KEY45678,,1800,8885550700,5\n5,KEY45678,,soon,8885550700,5\n\
                 5,KEY45678,,1800,8885550700\n5,KEY45678,,1800,8885550700,many\n";
    fs::write(&list, format!("{heading}\n{lines}")).unwrap();
    let bad = managed.run(&["import", &list]);
    let text = "line  result  detail\n   2  bad     id: must be a whole number\n   3  bad     \
                lifetime_seconds: must be a number\n   4  bad     has 5 fields, but the \
                heading has 6\n   5  bad     numbers: must be a whole number\n\n";
    assert!(stdout(&bad).starts_with(text), "{}", stdout(&bad));
    fs::write(&list, "id,numbers\n5,1\n").unwrap();
    let bad = managed.run(&["import", &list]);
    assert!(stdout(&bad).contains("lifetime_seconds: is missing"), "{}", stdout(&bad));
}

#[test]
fn a_method_that_a_path_does_not_allow_is_refused_like_other_faults() {
    let managed = Managed::start();
    let bearer = format!("Bearer {TOKEN}");
    let mut client = support::client::Client::connect(&managed.url).unwrap();
    for method in ["POST", "DELETE", "PATCH"] {
        let request = support::client::request(
            method,
            "/v1/pools",
            &[("authorization", bearer.as_str())],
            "",
        );
        client.send(request.as_bytes()).unwrap();
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET,HEAD")));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.json()["status"], 405);
    }
}

#[test]
fn an_export_contains_both_keys_and_another_server_accepts_both() {
    let (one, other) = (Managed::start(), Managed::start());
    let list = one.path("pools.csv");
    let heading = "id,ring_pool_key,lifetime_seconds,first_number,numbers,next_ring_pool_key";
    let line = |next: &str| format!("{heading}\n2,KEY45678,1800,8885550300,10,{next}\n");
    fs::write(&list, line("KEY-2-OF-2")).unwrap();
    one.says(&["import", &list]);
    let both = one.says(&["export"]);
    assert!(both.contains("\n2,KEY45678,") && both.contains(",KEY-2-OF-2,,\n"), "{both}");
    fs::write(&list, &both).unwrap();
    for result in ["created", "unchanged"] {
        let said = other.says(&["import", &list]);
        assert!(said.contains(result) && !said.contains("updated"), "{said}");
        assert_eq!(other.says(&["export"]), both);
    }
    fs::write(&list, line("KEY-3-OF-2")).unwrap();
    let third = other.run(&["import", &list]);
    assert!(stdout(&third).contains("ring pool 2 already has two keys"), "{third:?}");
    fs::write(&list, line("KEY-2-OF-2").replace("KEY45678", "KEY-0-OF-2")).unwrap();
    let first = other.run(&["import", &list]);
    let wanted = "ring_pool_key: differs from the pool's first key";
    assert!(stdout(&first).contains(wanted), "{first:?}");
}

#[test]
fn the_audit_log_is_complete_although_one_change_has_more_lines_than_a_page() {
    let managed = Managed::start();
    let list = managed.path("pools.csv");
    let line = |n| format!("{},,1800,{},1\n", 100 + n, 8_885_560_000_u64 + n);
    let lines: String = (0..600).map(line).collect();
    let heading = "id,ring_pool_key,lifetime_seconds,first_number,numbers";
    fs::write(&list, format!("{heading}\n{lines}")).unwrap();
    managed.says(&["import", &list]);
    let log = managed.json(&["audit", "--last", "5000"]);
    let of = |line: &Value| (line["version"].as_u64().unwrap(), line["line"].as_u64().unwrap());
    let all: Vec<_> = log.as_array().unwrap().iter().map(of).collect();
    assert!(all.is_sorted_by(|newer, older| newer > older), "{all:?}");
    let newest = all.iter().filter(|line| line.0 == all[0].0).count();
    assert_eq!((all[0].1, newest), (1_199, 1_200));
    assert_eq!(managed.json(&["audit", "--last", "1001"]).as_array().unwrap().len(), 1_001);
}

#[test]
fn an_export_contains_tracking_urls() {
    let (one, other) = (Managed::start(), Managed::start());
    let list = one.path("pools.csv");
    let import = |urls: &str| {
        let line = format!("2,KEY45678,1800,8885550300,10,{urls}\n");
        let heading = "id,ring_pool_key,lifetime_seconds,first_number,numbers";
        fs::write(&list, format!("{heading},tracking_url,destination_url\n{line}")).unwrap();
        one.run(&["import", &list])
    };
    let wrong = import("shop.example,https://shop.example/");
    assert!(stdout(&wrong).contains("tracking_url: "), "{wrong:?}");
    assert!(import("https://t.example/c?u=,https://shop.example/").status.success());
    // Empty cells keep the URLs.
    assert!(import(",").status.success());
    let exported = one.says(&["export"]);
    assert!(exported.contains(",https://t.example/c?u=,https://shop.example/\n"), "{exported}");
    fs::write(&list, &exported).unwrap();
    other.says(&["import", &list]);
    assert_eq!(other.says(&["export"]), exported);
}

#[test]
fn an_export_replaces_a_file_only_with_overwrite() {
    let managed = Managed::start();
    let out = managed.path("export.csv");
    fs::write(&out, "mine").unwrap();
    managed.fails(&["export", &out], "already exists: choose another file, or add --overwrite");
    assert_eq!(fs::read_to_string(&out).unwrap(), "mine");
    managed.says(&["export", &out, "--overwrite"]);
    assert!(fs::read_to_string(&out).unwrap().starts_with("id,ring_pool_key"));
}

#[test]
fn keys_of_the_sample_are_not_imported() {
    let managed = Managed::start();
    let list = managed.path("pools.csv");
    let heading = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers";
    fs::write(&list, format!("{heading}\n5,change-me-abcdefgh,,60,8885550700,5\n")).unwrap();
    let bad = managed.run(&["import", &list]);
    assert_eq!(bad.status.code(), Some(1));
    let wanted =
        "2  bad     ring_pool_key: is a key of the sample configuration, which is public; generate";
    assert!(stdout(&bad).contains(wanted), "{}", stdout(&bad));
}

#[test]
fn a_list_of_several_pages_is_complete_although_the_server_asks_to_wait() {
    let managed = Managed::start_with("management.requests_per_second = 1");
    let list = managed.path("pools.csv");
    let heading = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers\n";
    let line = |id: u64| format!("{id},key-of-{id},,60,{},1\n", 8_885_550_000 + id);
    fs::write(&list, heading.to_owned() + &(2..=2_001).map(line).collect::<String>()).unwrap();
    managed.says(&["import", &list]);
    let listed = managed.json(&["list"]);
    let ids = listed.as_array().unwrap().iter().map(|pool| pool["id"].as_u64().unwrap());
    assert!(ids.eq(1..=2_001));
}

#[test]
fn tokens_are_made_used_and_revoked() {
    let managed = Managed::start();
    let made = managed.run(&["tokens", "create", "--name", "a reader"]);
    let (secret, file) = (stdout(&made).trim(), managed.path("token"));
    fs::write(&file, secret).unwrap();
    assert!(managed.says(&["list", "--token-file", &file]).contains("Ring pool 1"));
    managed.fails(
        &["rotate-key", "1", "--token-file", &file],
        "has the role read, but this request needs the role write",
    );
    let listed = managed.says(&["tokens", "list"]);
    let id = listed.lines().last().unwrap().split(' ').next().unwrap().to_owned();
    assert!(stderr(&made).contains(&id) && !listed.contains(secret), "{listed}");
    managed.says(&["tokens", "revoke", &id]);
    managed.fails(&["list", "--token-file", &file], "refuses this token");
    managed.fails(&["tokens", "revoke", &id], "there is no token");

    let of_network = ["tokens", "create", "--name", "x", "--network", "north", "--role"];
    managed.fails(&[&of_network[..], &["lookup"]].concat(), "omit the network");
    let warns =
        || stderr(&managed.run(&[&of_network[..], &["read"]].concat())).contains("spelling");
    assert!(warns(), "the network has no pool and no limit");
    managed.says(&["networks", "limit", "north", "--numbers", "5"]);
    assert!(!warns());
    let north = managed.says(&[&of_network[..], &["read"]].concat());
    fs::write(&file, north.trim()).unwrap();
    let numbers = managed.says(&["numbers", "list", "--token-file", &file]);
    assert_eq!(numbers.trim().lines().count(), 1, "only the heading: {numbers}");
    let add = ["numbers", "add", "8885551000", "--token-file", &file];
    managed.fails(&add, "limited to one network");
}

#[test]
fn errors_come_with_advice() {
    let managed = Managed::start();
    let at = |url: &str| ringwell(&["pools", "list", "--url", url]);
    let output = at("127.0.0.1:1").output().unwrap();
    assert!(stderr(&output).contains("Set `database` under [directory]"));
    let output = at(managed.server.address()).env("RINGWELL_TOKEN", TOKEN).output().unwrap();
    assert!(stderr(&output).contains("does not manage pools"), "{}", stderr(&output));
    let clients = managed.server.address();
    for (args, url, message) in [
        (&["pools", "show", "1"][..], clients, "does not manage pools"),
        (
            &["pools", "numbers", "buy", "--network", "a", "--count", "1"],
            &managed.url,
            "set inventory.offers",
        ),
        (&["top", "--once"], &managed.url, "an address in the server's `listen` setting"),
        (&["pools", "list"], clients, "set --url to the management.address"),
        (&["ui"], clients, "set management.dashboard"),
    ] {
        let output = ringwell(args).args(["--url", url]).env("RINGWELL_TOKEN", TOKEN).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    }
    let wrong = ringwell(&["ui", "--url", &managed.url]).env("RINGWELL_TOKEN", "wrong").output();
    assert!(stderr(&wrong.unwrap()).contains("refuses this token"));
    let output = at(&managed.url).env_remove("RINGWELL_TOKEN").output().unwrap();
    assert!(stderr(&output).contains("set RINGWELL_TOKEN"), "{}", stderr(&output));

    let create = ["create", "--name", "x", "--numbers"];
    let fails = |args: &[&str], wanted| managed.fails(&[&create[..], args].concat(), wanted);
    fails(&["8885550100", "--id", "1"], "ring pool 1 already exists");
    fails(&["2000100003", "--id", "2"], "2000100003 is in the rotation of ring pool 1");
    fails(&["8885550100", "--id", "2", "--key", "k"], "8 to 64 bytes");
    fails(&["8885550100", "--id", "2", "--key", "change-me-abcdefgh"], "is a key of the sample");
    managed.fails(&["resize", "1", "--size", "1"], "max_pool_size must be greater than or equal");
    managed.fails(&["state", "9"], "there is no ring pool 9");
    let output = managed.run(&["create", "--name", "x"]);
    assert_eq!(output.status.code(), Some(2), "neither --numbers nor --size");
    let output = managed.run(&["add-numbers", "1", "555"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
