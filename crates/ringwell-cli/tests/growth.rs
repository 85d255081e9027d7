//! Tests pools of a real server: they grow while they are busy, return unused numbers, and report
//! the size that they need.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "growth/month_end.rs"]
mod month_end;
mod support;

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use support::batch;
use support::client::Client;
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};

/// The time limit for every wait. It is generous, because no test here depends on speed.
const PATIENCE: Duration = Duration::from_mins(1);
/// The pool's maximum size, including the overflow number. The pool begins with a tenth of this
/// size.
const SIZE: u64 = 30;
/// The maximum count of numbers that the pool gains at once.
const STEP: u64 = 4;

/// A server with numbers in its inventory, and one pool that begins with a tenth of its maximum
/// size.
struct Managed {
    /// Dropping it removes the server's files.
    site: Site,
    server: Server,
    operator: Client,
    pool: Pool,
}

impl Managed {
    fn start(mode: &str, lifetime_seconds: u64) -> Self {
        Self::start_with(mode, lifetime_seconds, |command| command)
    }

    fn start_with(
        mode: &str,
        lifetime_seconds: u64,
        prepare: impl FnOnce(Command) -> Command,
    ) -> Self {
        let settings = format!(
            "shards = 2\nmanagement.address = \"127.0.0.1:0\"\ngrowth.mode = \"{mode}\"\n\
             growth.every = \"1s\"\ngrowth.percent = 50\ngrowth.step_max = {STEP}\n\
             directory.database = \"sqlite:directory.sqlite\""
        );
        let site = Site::new(Vec::new(), &settings);
        let server = Server::start(prepare(site.serve(&[])));
        let mut operator = operator(&server);
        let numbers = json!({"ranges": ["8885550100-8885550199"]});
        post(&mut operator, "/v1/numbers", &numbers);
        let path = "/api/2013-07-01/1/advertisers/7/advertiser_campaigns/8/ring_pools/a.json";
        let wanted =
            json!({"name": "A", "lifetime_seconds": lifetime_seconds, "max_pool_size": SIZE});
        let pool = post(&mut operator, path, &wanted);
        let (id, key) = (pool["id"].as_u64().unwrap(), pool["api_key"].as_str().unwrap());
        let pool = Pool { key: key.to_owned(), ..Pool::new(id, 2, PATIENCE) };
        let mut managed = Self { site, server, operator, pool };
        assert_eq!(managed.size(), SIZE / 10);
        let path = format!("/v1/pools/{id}/state");
        let token = format!("Bearer {TOKEN}");
        let until = Instant::now() + PATIENCE;
        while managed.operator.get(&path, &[("authorization", &token)]).unwrap().status == 503 {
            assert!(Instant::now() < until, "no shard has the pool");
            thread::sleep(Duration::from_millis(20));
        }
        managed
    }

    /// Returns the count of the pool's numbers in the directory, including the overflow number.
    fn size(&mut self) -> u64 {
        let has_overflow = self.get("")["overflow_number"].is_string();
        let runs = self.get("/numbers");
        let counts = runs.as_array().unwrap().iter().map(|run| run["count"].as_u64().unwrap());
        counts.sum::<u64>() + u64::from(has_overflow)
    }

    fn get(&mut self, what: &str) -> Value {
        get(&mut self.operator, &format!("/v1/pools/{}{what}", self.pool.id))
    }

    /// Requests numbers until `is_so` returns true.
    fn under_load(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let mut client = self.server.client();
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}: {}", self.get("/state"));
            for _ in 0..5 {
                batch::one(&mut client, &self.pool, "x");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the fields of the newest log line whose message is `message`.
fn logged(server: &Server, message: &str) -> BTreeMap<String, String> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut fields = lines.map(|line| line.get("fields").cloned().unwrap_or(line));
    let found = fields.rfind(|fields| fields["message"] == message).unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let found = found.as_object().into_iter().flatten();
    found.map(|(name, value)| (name.clone(), text(value))).collect()
}

fn operator(server: &Server) -> Client {
    Client::connect(&logged(server, "management")["address"]).unwrap()
}

fn get(operator: &mut Client, path: &str) -> Value {
    let answer = operator.get(path, &[("authorization", &format!("Bearer {TOKEN}"))]).unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

fn post(operator: &mut Client, path: &str, body: &Value) -> Value {
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let answer = operator.post(path, &headers, &body.to_string()).unwrap();
    assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.body);
    answer.json()
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn a_busy_pool_grows_by_steps_up_to_its_limit_and_returns_unused_numbers() {
    let mut managed = Managed::start("on", 1);
    managed.under_load("growth to the cap", |managed| managed.size() == SIZE);
    managed.under_load("a state of the grown pool", |managed| {
        managed.get("/state")["numbers"] == SIZE - 1
    });
    let allocated = managed.get("/state")["allocated"].as_u64().unwrap();
    managed.under_load("the turn of every number", |managed| {
        managed.get("/state")["allocated"].as_u64().unwrap() >= allocated + SIZE
    });
    assert_eq!(managed.size(), SIZE, "never beyond the cap");
    let audit = get(&mut managed.operator, "/v1/audit?limit=1000");
    let audit = audit.as_array().unwrap();
    let grown = audit.iter().filter(|line| line["who"] == "ringwell: growth");
    let mut versions: Vec<_> = grown.map(|line| line["version"].as_u64().unwrap()).collect();
    versions.dedup();
    assert!(versions.len() as u64 >= (SIZE - SIZE / 10) / STEP, "{audit:?}");
    // There are no more requests, so the pool can return unused numbers, as pools do at the end of
    // a month. Numbers that a visitor held at `since_ms` or later stay in the pool.
    let path = format!("/v1/pools/{}/unused", managed.pool.id);
    let held = post(&mut managed.operator, &format!("{path}?since_ms=0"), &Value::Null);
    assert_eq!((&held["before"], &held["after"]), (&SIZE.into(), &SIZE.into()), "{held}");
    let until = Instant::now() + PATIENCE;
    while managed.get("/state")["locked"] != 0 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(50));
    }
    let path = format!("{path}?since_ms={}", now_ms());
    let tried = post(&mut managed.operator, &format!("{path}&dry_run=true"), &Value::Null);
    assert_eq!((&tried["before"], &tried["after"]), (&SIZE.into(), &(SIZE / 10).into()));
    assert_eq!(managed.size(), SIZE, "it was only tried");
    let given = post(&mut managed.operator, &path, &Value::Null);
    assert_eq!(given["before"], SIZE);
    // On a busy machine, the pool may grow once more because of earlier load.
    let until = Instant::now() + PATIENCE;
    while managed.size() != SIZE / 10 {
        assert!(Instant::now() < until, "{} of {SIZE}, {given}", managed.size());
        post(&mut managed.operator, &path, &Value::Null);
    }
    managed.server.stop();
}

#[test]
fn a_dry_run_reports_its_changes_and_makes_none() {
    let mut managed = Managed::start("dry_run", 60);
    let mut logged_fields = BTreeMap::default();
    managed.under_load("word of growth", |managed| {
        logged_fields = logged(&managed.server, "a ring pool grows");
        !logged_fields.is_empty()
    });
    let expected = [("before", "3"), ("after", "5"), ("dry_run", "true")];
    for (name, value) in expected {
        assert_eq!(logged_fields[name], value, "{logged_fields:?}");
    }
    assert_eq!(managed.size(), SIZE / 10);
    let audit = get(&mut managed.operator, "/v1/audit");
    assert!(!audit.to_string().contains("ringwell: growth"), "{audit}");
    managed.server.stop();
}

#[test]
fn a_pool_reports_its_state_and_the_size_for_its_own_load() {
    let mut managed = Managed::start("off", 3600);
    managed.under_load("a load", |managed| managed.get("/state")["load"]["rows"] != Value::Null);
    managed.under_load("a load that is seen", |managed| {
        managed.get("/state")["load"]["exhausted"].as_u64().unwrap() > 10
    });
    let state = managed.get("/state");
    let numbers = SIZE / 10 - 1;
    assert_eq!((&state["numbers"], &state["locked"]), (&numbers.into(), &numbers.into()));
    assert_eq!((&state["free"], &state["allocated"]), (&0.into(), &numbers.into()));
    assert!(state["next_free_ms"].as_u64().unwrap() > now_ms(), "{state}");
    assert!(state["overflow"]["exhausted"].as_u64().unwrap() > 10, "{state}");
    let sizing = managed.get("/sizing?target=0.05&numbers=12");
    assert_eq!(sizing["numbers"], numbers, "{sizing}");
    // The load is the count of rows within a lifetime, which is an hour here. Dozens of rows within
    // seconds therefore amount to a high load.
    let load = sizing["load"]["load"].as_f64().unwrap();
    let needed = sizing["numbers_needed"].as_u64();
    assert!(load > 100.0 && needed.is_none_or(|needed| needed > 90), "{sizing}");
    let forecasts = sizing["forecasts"].as_array().unwrap();
    let of = |numbers: u64| forecasts.iter().find(|it| it["numbers"] == numbers).unwrap();
    let overflow = |numbers| of(numbers)["overflow"].as_f64().unwrap();
    assert!(overflow(numbers) > overflow(12) && overflow(12) > 0.5, "{sizing}");
    if let Some(needed) = needed {
        assert!(overflow(needed) <= 0.05, "{sizing}");
    }
    let path = format!("/v1/ring_pools/{}/sizing", managed.pool.id);
    assert_eq!(get(&mut managed.operator, &path)["target"], 0.01);
    let token = format!("Bearer {TOKEN}");
    let wrong = managed.operator.get(&format!("{path}?target=1"), &[("authorization", &token)]);
    assert_eq!(wrong.unwrap().status, 400);
    let address = &logged(&managed.server, "management")["address"];
    for (what, wanted) in
        [("sizing", "for an overflow of 1.00 %; the pool contains 2"), ("state", "load")]
    {
        let id = managed.pool.id.to_string();
        let mut command = ringwell(&["pools", what, &id, "--url", address]);
        let said = command.env("RINGWELL_TOKEN", TOKEN).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains(wanted), "{said}");
    }
    assert_eq!(managed.size(), SIZE / 10, "it is switched off");
    managed.server.stop();
}
