//! A visitor's complete path: a number on a page, a tap on the number, a call, and the call's
//! attribution.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[allow(dead_code, reason = "ringwell call sends it, not this provider")]
#[path = "calls/phone.rs"]
mod phone;
mod support;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use phone::Phone;
use serde_json::{Value, json};
use support::client::Client;
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};

const ORIGIN: &str = "https://shop.example";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const VISITORS: u32 = 1_000;
const NUMBERS: u64 = 50;
/// The pool's lifetime. It is longer than a visit, but so short that each number serves many
/// visitors.
const LIFETIME: Duration = Duration::from_secs(3);
/// The number of concurrent visitors.
const THREADS: usize = 6;

struct Shop {
    site: Site,
    server: Server,
    calls: String,
}

impl Shop {
    fn open(numbers: u64, lifetime: Duration) -> Self {
        let settings = format!(
            "shards = 2\n{}[[calls.destination]]\nring_pools = [1]\nto = [\"+18005550199\"]\n\
             [[site]]\nkey = \"pk_shop\"\norigins = [\"{ORIGIN}\"]\nleases_per_minute = 1000000\n\
             [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n",
            Phone::settings()
        );
        let site = Site::new(vec![Pool::new(1, numbers, lifetime)], &settings);
        Phone::write_secrets(&site);
        let server = Server::start(site.serve(&[]));
        let calls = format!("http://{}", Phone::at(&server).address());
        Self { site, server, calls }
    }

    fn ask(client: &mut Client, path: &str, body: &Value) -> Value {
        let headers = [("origin", ORIGIN), ("user-agent", FIREFOX)];
        let answer = client.post(path, &headers, &body.to_string()).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// Requests a number for a new visitor. Returns the answer, or `None` if the number is an
    /// overflow number.
    fn visit(client: &mut Client, name: &str) -> Option<Value> {
        let body = json!({"site": "pk_shop", "params": {"gclid": name}});
        let given = Self::ask(client, "/site/v1/numbers", &body);
        given["lease"].is_string().then_some(given)
    }

    /// Reports that the visitor tapped on the link to `number`.
    fn tap(client: &mut Client, given: &Value, number: &str) {
        let body = json!({"site": "pk_shop", "visitor": given["visitor"], "lease": given["lease"],
                          "tel": format!("tel:{number}")});
        Self::ask(client, "/site/v1/tap", &body);
    }

    /// Calls `number` with `ringwell call`. Returns the provider's id for the call.
    fn ring(&self, number: &str) -> String {
        let now = ["--answer-after", "0s", "--talk", "0s"];
        let mut command = ringwell(&["call", "--to", number, "--url", &self.calls]);
        command.args(now).arg("--config").arg(self.site.config());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said} {error}\n{}", self.server.log());
        said.split(':').next().unwrap().to_owned()
    }

    /// Returns all calls, keyed by the provider's id.
    fn log(&self) -> BTreeMap<String, Value> {
        let bearer = format!("Bearer {TOKEN}");
        let mut client = self.server.client();
        let mut calls = BTreeMap::new();
        let mut after = String::new();
        loop {
            let path = format!("/v1/calls?limit=100{after}");
            let part = client.get(&path, &[("authorization", &bearer)]).unwrap().json();
            let name = |call: &Value| call["provider_call_id"].as_str().unwrap().to_owned();
            let part_calls = part["calls"].as_array().unwrap();
            calls.extend(part_calls.iter().map(|call| (name(call), call.clone())));
            let Some(next) = part["next"].as_str() else { return calls };
            after = format!("&after={next}");
        }
    }

    /// Waits until the visitor of the call with this id is known, and returns the call.
    fn call(&self, id: &str) -> Value {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let call = self.log().remove(id);
            if let Some(call) = call.filter(|call| call["attribution"]["outcome"] != "pending") {
                return call;
            }
            assert!(Instant::now() < until, "{id}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn number(given: &Value) -> String {
    given["swaps"][0]["to"].as_str().unwrap().to_owned()
}

#[test]
fn each_of_a_thousand_visitors_over_fifty_numbers_is_attributed_the_own_call() {
    let shop = Shop::open(NUMBERS, LIFETIME);
    let next = AtomicU32::new(0);
    let rung: Mutex<BTreeMap<String, (String, bool)>> = Mutex::default();
    let visit = || {
        let mut client = shop.server.client();
        loop {
            let visitor = next.fetch_add(1, Ordering::Relaxed);
            if visitor >= VISITORS {
                break;
            }
            let name = format!("v{visitor}");
            let until = Instant::now() + Duration::from_mins(1);
            let given = loop {
                // If all numbers are in use, this visitor tries again later.
                if let Some(given) = Shop::visit(&mut client, &name) {
                    break given;
                }
                assert!(Instant::now() < until);
                thread::sleep(Duration::from_millis(20));
            };
            Shop::tap(&mut client, &given, &number(&given));
            let began = Instant::now();
            let id = shop.ring(&number(&given));
            let in_time = began.elapsed() < LIFETIME;
            rung.lock().unwrap().insert(id, (name, in_time));
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(visit);
        }
    });
    let rung = rung.into_inner().unwrap();
    assert_eq!(rung.len(), VISITORS as usize);
    // If the machine paused for a whole lifetime, the number may have gone to another visitor
    // before the call.
    let late = rung.values().filter(|(_, in_time)| !in_time).count();
    assert!(late < rung.len() / 20, "{late} calls took longer than a lifetime");
    let until = Instant::now() + Duration::from_secs(10);
    let mut calls = shop.log();
    // If the disk is busy, the caller may receive an answer before the call is logged.
    while calls.len() < rung.len()
        || calls.values().any(|call| call["attribution"]["outcome"] == "pending")
    {
        assert!(Instant::now() < until);
        calls = shop.log();
    }
    let mut numbers = BTreeMap::<String, u32>::new();
    for (id, (name, in_time)) in rung.iter().filter(|(_, (_, in_time))| *in_time) {
        let call =
            calls.get(id).unwrap_or_else(|| panic!("{id} ({name}, {in_time}) is not logged"));
        let attribution = &call["attribution"];
        assert_eq!(attribution["parameters"]["gclid"], name.as_str(), "{call:#}");
        *numbers.entry(call["to"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(numbers.len() as u64, NUMBERS, "{numbers:?}");
}

#[test]
fn a_tap_is_stored_and_makes_the_attribution_of_the_call_surer() {
    let shop = Shop::open(1, Duration::from_millis(1_500));
    let mut client = shop.server.client();
    let first = Shop::visit(&mut client, "first").unwrap();
    thread::sleep(Duration::from_millis(1_800));
    // Another visitor gets the same number, so that either visitor may be the caller.
    let second = Shop::visit(&mut client, "second").unwrap();
    assert_eq!(number(&first), number(&second));
    let in_doubt = shop.call(&shop.ring(&number(&second)));
    assert_eq!(in_doubt["attribution"]["tapped_at"], Value::Null, "{in_doubt:#}");
    let confidence = |call: &Value| call["attribution"]["confidence"]["value"].as_f64().unwrap();
    assert!(confidence(&in_doubt) < 0.7, "{in_doubt:#}");
    // A tap on another number on the page does not count as a tap on this number.
    Shop::tap(&mut client, &second, "+12125550177");
    Shop::tap(&mut client, &second, &number(&second));
    let mut sure = Value::Null;
    let until = Instant::now() + Duration::from_secs(10);
    // The server may answer before it has stored the tap, so the test waits.
    while sure["attribution"]["tapped_at"].is_null() {
        assert!(Instant::now() < until, "{sure:#}");
        sure = shop.call(&shop.ring(&number(&second)));
    }
    assert!(confidence(&sure) > 0.95, "{sure:#}");
    let reason = sure["attribution"]["confidence"]["reason"].as_str().unwrap();
    assert!(reason.contains("after the visitor tapped it"), "{reason}");
    assert_eq!(sure["attribution"]["parameters"]["gclid"], "second");
    // If the lockout has ended but no other visitor has the number, the tap still counts.
    thread::sleep(Duration::from_millis(1_800));
    let late = shop.call(&shop.ring(&number(&second)));
    assert_eq!(late["attribution"]["late"], true, "{late:#}");
    assert!(confidence(&late) > 0.95, "{late:#}");
    // The call's timeline contains the tap.
    let bearer = format!("Bearer {TOKEN}");
    let path = format!("/v1/calls/{}", late["id"].as_str().unwrap());
    let call = client.get(&path, &[("authorization", &bearer)]).unwrap().json();
    let kinds = call["timeline"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|line| line["kind"].as_str().unwrap()).collect();
    let before: Vec<_> = kinds.iter().take_while(|kind| **kind != "started").collect();
    assert_eq!(*before[0], "allocated", "{call:#}");
    assert!(before.contains(&&"tapped"), "{call:#}");
    // A tap extends the lockout as a page's keep-alive does. Two taps within one millisecond count
    // as one.
    let keep_alives = before.iter().filter(|kind| ***kind == "keep_alive").count();
    assert!((1..=2).contains(&keep_alives), "{call:#}");
    assert_eq!(call["keep_alives"], json!({ "count": keep_alives, "more": false }));
}

#[test]
fn earlier_visitors_are_assumed_only_if_there_were_any() {
    let shop = Shop::open(1, Duration::from_millis(300));
    let mut client = shop.server.client();
    let next = |client: &mut Client, name: &str| {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(given) = Shop::visit(client, name) {
                return number(&given);
            }
            assert!(Instant::now() < until, "the number does not become free");
            thread::sleep(Duration::from_millis(20));
        }
    };
    let probabilities = |number: &str| {
        let call = shop.call(&shop.ring(number));
        let attribution = &call["attribution"];
        let newest = attribution["confidence"]["value"].as_f64().unwrap();
        let earlier = attribution["earlier"].as_array().unwrap().iter();
        let earlier: Vec<_> = earlier.map(|it| it["probability"].as_f64().unwrap()).collect();
        assert_eq!(earlier.len(), 3, "{call:#}");
        (newest, newest + earlier.iter().sum::<f64>())
    };
    let given = (0..4).map(|visitor| next(&mut client, &format!("v{visitor}"))).last().unwrap();
    let (newest, sum) = probabilities(&given);
    assert!((0.2..0.4).contains(&newest) && (sum - 1.0).abs() < 0.005, "{newest} {sum}");
    let (newest, sum) = probabilities(&next(&mut client, "v4"));
    assert!(newest < 0.2 && sum < 0.5, "{newest} {sum}");
}
