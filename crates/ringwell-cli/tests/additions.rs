//! Tests the server's additions to the published API, and their settings, with the real program.
//! Covers repeated batches, returning visitors, releases, deadlines, attribution, keys and
//! listeners.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "hostile/metrics.rs"]
mod metrics;
mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use support::batch::BULK;
use support::client::{Client, HttpAnswer, request};
use support::server::Server;
use support::site::{Pool, Site, TOKEN};

const SETTINGS: &str = "shards = 2
";
const ALLOCATIONS: &str = "ringwell_allocations_total";
const HALF_AN_HOUR: Duration = Duration::from_mins(30);

fn start(pools: &[(u64, Duration)], settings: &str) -> (Site, Server) {
    let pools =
        (1..).zip(pools).map(|(id, (numbers, lifetime))| Pool::new(id, *numbers, *lifetime));
    let site = Site::new(pools.collect(), &format!("{SETTINGS}{settings}"));
    let server = Server::start(site.serve(&[]));
    (site, server)
}

/// Creates the body of a batch with one row for each suffix.
fn batch(suffixes: &[String]) -> String {
    let rows: Vec<Value> = suffixes.iter().map(|suffix| json!({"api_suffix": suffix})).collect();
    json!({ "requests": rows }).to_string()
}

fn ask(client: &mut Client, headers: &[(&str, &str)], body: &str) -> HttpAnswer {
    let answer = client.post(BULK, headers, body).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

/// Sends a batch with one row for `suffix`, and returns the row of the answer.
fn row(client: &mut Client, suffix: &str) -> Value {
    ask(client, &[], &batch(&[suffix.to_owned()])).json()["responses"][0].clone()
}

fn number(row: &Value) -> String {
    row["promo_number"].as_str().unwrap_or_else(|| panic!("no number in {row}")).to_owned()
}

/// Looks up the holder of `number`; `at` is empty or a parameter `&at=…`.
fn attribution(client: &mut Client, number: &str, at: &str) -> Value {
    let path = format!("/v1/attributions?number={number}{at}");
    let token = format!("Bearer {TOKEN}");
    let answer = client.get(&path, &[("authorization", token.as_str())]).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

fn release(client: &mut Client, body: &Value) -> Value {
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str())];
    let answer = client.post("/v1/releases", &headers, &body.to_string()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["released"].clone()
}

fn header<'a>(answer: &'a HttpAnswer, wanted: &str) -> &'a str {
    let found = answer.headers.iter().find(|(name, _)| name == wanted);
    found.unwrap_or_else(|| panic!("no {wanted} in {:?}", answer.headers)).1.as_str()
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[test]
fn a_repeated_batch_gets_its_answer_and_uses_up_no_numbers() {
    let (site, server) = start(&[(50, HALF_AN_HOUR), (50, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let rows: Vec<String> = (0..10).map(|i| site.pools[i % 2].suffix(&format!("i={i}"))).collect();
    let body = batch(&rows);
    let key = [("idempotency-key", "order-1")];
    let first = ask(&mut client, &key, &body);
    assert_eq!(metrics::sum(&server, ALLOCATIONS), 10);
    for _ in 0..3 {
        assert_eq!(ask(&mut server.client(), &key, &body).body, first.body);
    }
    assert_eq!(metrics::sum(&server, ALLOCATIONS), 10);
    assert_eq!(metrics::sum(&server, "ringwell_repeated_rows_total"), 30);

    // A batch with another key, another body or no key is not a repetition of the first batch.
    let other_body = format!("{body} ");
    assert_ne!(ask(&mut client, &[("idempotency-key", "order-2")], &body).body, first.body);
    assert_ne!(ask(&mut client, &key, &other_body).body, first.body);
    assert_ne!(ask(&mut client, &[], &body).body, first.body);
    assert_eq!(metrics::sum(&server, ALLOCATIONS), 40);
}

#[test]
fn a_repeated_single_allocation_gets_its_own_number_and_no_other() {
    let (site, server) = start(&[(50, HALF_AN_HOUR), (50, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let mut single = |pool: &Pool, parameters: &str, key: &str| {
        let path = format!("/api/2013-07-01/ring_pools/{}", pool.suffix(parameters));
        let answer = client.get(&path, &[("idempotency-key", key)]).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        number(&answer.json())
    };
    let [one, other] = [&site.pools[0], &site.pools[1]];
    let first = single(one, "a=1", "order-1");
    assert_eq!(single(one, "a=1", "order-1"), first);
    // A request gets a new number if its pool, its query or its key differs from the first
    // request's, or if it has no key.
    let more = [
        single(other, "a=1", "order-1"),
        single(one, "a=2", "order-1"),
        single(one, "a=1", "order-2"),
        single(one, "a=1", ""),
        single(one, "a=1", ""),
    ];
    assert_eq!(more.iter().chain([&first]).collect::<BTreeSet<_>>().len(), 6, "{first} {more:?}");
    assert_eq!(metrics::sum(&server, ALLOCATIONS), 6);
}

#[test]
fn an_idempotency_key_that_is_too_long_is_refused_and_an_empty_one_counts_as_none() {
    let (site, server) = start(&[(50, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let body = batch(&[site.pools[0].suffix("a=1")]);
    let single = format!("/api/2013-07-01/ring_pools/{}", site.pools[0].suffix("a=1"));
    let long = "k".repeat(257);
    let key = [("idempotency-key", long.as_str())];
    for answer in [client.post(BULK, &key, &body).unwrap(), client.get(&single, &key).unwrap()] {
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains("at most 256 bytes"), "{}", answer.body);
    }
    assert_eq!(metrics::sum(&server, ALLOCATIONS), 0);
    let longest = [("idempotency-key", &long[1..])];
    assert_eq!(ask(&mut client, &longest, &body).body, ask(&mut client, &longest, &body).body);
    let none = [("idempotency-key", "")];
    assert_ne!(ask(&mut client, &none, &body).body, ask(&mut client, &none, &body).body);
}

#[test]
fn a_batch_of_the_largest_configurable_size_gets_all_its_numbers() {
    const ROWS: usize = 10_000;
    let settings = "limits.rows = 10000\nlimits.body_bytes = \"16MiB\"\n";
    let site = Site::new(vec![Pool::new(1, ROWS as u64, HALF_AN_HOUR)], settings);
    let server = Server::start(site.serve(&["--deadline", "30s"]));
    let mut client = server.client();
    // Together, the rows are several times as large as a journal group may be.
    let page = "p".repeat(900);
    let rows: Vec<String> =
        (0..ROWS).map(|i| site.pools[0].suffix(&format!("i={i}&page={page}"))).collect();
    let answer = ask(&mut client, &[], &batch(&rows)).json();
    let rows = answer["responses"].as_array().unwrap();
    let given: BTreeSet<String> = rows.iter().map(number).collect();
    assert_eq!(given.len(), ROWS);
    assert!(rows.iter().all(|row| row.get("overflow").is_none()));
    let last = attribution(&mut client, &number(&rows[ROWS - 1]), "");
    assert_eq!(last["parameters"], json!({"i": "9999", "page": page}));
}

#[test]
fn five_hundred_rows_with_a_landing_page_each_fit_the_default_limits() {
    let (site, server) = start(&[(500, HALF_AN_HOUR)], "");
    let page = "p".repeat(1_900);
    let rows: Vec<String> =
        (0..500).map(|i| site.pools[0].suffix(&format!("i={i}&page={page}"))).collect();
    let answer = ask(&mut server.client(), &[], &batch(&rows)).json();
    let rows = answer["responses"].as_array().unwrap();
    assert_eq!(rows.iter().map(number).collect::<BTreeSet<_>>().len(), 500);
}

#[test]
fn a_late_row_is_answered_anew_in_a_repeated_batch_and_holds_nothing_in_between() {
    // With one shard, the server starts to process every row, even if the row is already late.
    let site = Site::new(vec![Pool::new(1, 20, HALF_AN_HOUR)], "shards = 1");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let body = batch(&[site.pools[0].suffix("a=1")]);
    let mut send =
        |headers: &[(&str, &str)]| ask(&mut client, headers, &body).json()["responses"][0].clone();
    let keys: Vec<String> = (0..20).map(|i| format!("order-{i}")).collect();
    let late = |key| [("idempotency-key", key), ("ringwell-deadline-ms", "0")];
    let first: Vec<Value> = keys.iter().map(|key| send(&late(key.as_str()))).collect();
    assert!(first.iter().any(|row| row["overflow"] == true), "no data is on disk at once");
    let somebody = send(&[]);
    assert_ne!(somebody["overflow"], true, "numbers that no visitor was shown are free");
    let again: Vec<Value> = keys.iter().map(|key| send(&[("idempotency-key", key)])).collect();
    for (first, again) in first.iter().zip(&again) {
        assert!(first["overflow"] == true || number(first) == number(again), "{first} {again}");
    }
    let given = again.iter().filter(|row| row["overflow"] != true).map(number);
    let given: BTreeSet<String> = given.chain([number(&somebody)]).collect();
    assert_eq!(given.len(), 20, "each number went to one row: {given:?}");
}

#[test]
fn a_returning_visitor_keeps_the_number_and_its_lockout_starts_again() {
    let (site, server) = start(&[(5, HALF_AN_HOUR), (5, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let visit = |visitor: &str| site.pools[0].suffix(&format!("page=1&ringwell_visitor={visitor}"));
    let first = number(&row(&mut client, &visit("ann")));
    let before = attribution(&mut client, &first, "");
    sleep(Duration::from_millis(20));
    assert_eq!(number(&row(&mut client, &visit("ann"))), first);
    let after = attribution(&mut client, &first, "");
    assert_eq!(before["allocated_at"], after["allocated_at"]);
    let until = |of: &Value| of["locked_until"].as_str().unwrap().to_owned();
    assert!(until(&before) < until(&after), "{before} {after}");
    assert_eq!(after["parameters"], json!({"page": "1"}), "the visitor is nobody's business");
    assert_eq!(metrics::sum(&server, ALLOCATIONS), 1);
    assert_eq!(metrics::sum(&server, "ringwell_kept_total"), 1);

    let elsewhere = site.pools[1].suffix("ringwell_visitor=ann");
    let others = [visit("bob"), visit("ANN"), visit(""), visit(""), elsewhere];
    let mut numbers: Vec<String> = others.map(|it| number(&row(&mut client, &it))).into();
    numbers.push(first);
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 6, "another visitor, no visitor, and another pool get other numbers");
}

#[test]
fn a_released_number_is_allocated_again() {
    let (site, server) = start(&[(1, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let suffix = site.pools[0].suffix("a=1");
    let first = number(&row(&mut client, &suffix));
    let held = attribution(&mut client, &first, "");
    assert_eq!(row(&mut client, &suffix)["overflow"], true);
    assert_eq!(release(&mut client, &json!({"number": first})), true);
    assert_eq!(release(&mut client, &json!({"number": first})), false, "it is not locked");
    sleep(Duration::from_millis(5));
    assert_eq!(number(&row(&mut client, &suffix)), first);
    // Releasing an earlier allocation has no effect: the number's current visitor keeps it.
    let former = json!({"number": first, "allocated_at": held["allocated_at"]});
    assert_eq!(release(&mut client, &former), false);
    assert_eq!(row(&mut client, &suffix)["overflow"], true);
    let current = attribution(&mut client, &first, "");
    let current = json!({"number": first, "allocated_at": current["allocated_at"]});
    assert_eq!(release(&mut client, &current), true);
}

#[test]
fn a_client_may_shorten_its_deadline_but_not_extend_it() {
    let (site, server) = start(&[(60, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let body = batch(&[site.pools[0].suffix("a=1")]);
    let mut is_overflow = |value: &str| {
        let answer = ask(&mut client, &[("ringwell-deadline-ms", value)], &body);
        answer.json()["responses"][0]["overflow"] == true
    };
    // Not all rows are late, because a flush occasionally ends before the deadline's timer fires.
    let late = (0..50).filter(|_| is_overflow("0")).count() as u64;
    assert!(late > 0, "no data is on disk at once");
    let overflow = |reason| metrics::labelled(&server, "ringwell_overflow_rows_total", reason);
    assert_eq!((overflow("\"late\""), overflow("\"exhausted\"")), (late, 0));
    // The late rows' numbers are free again, so other visitors get all of them.
    let free = 60 - (50 - late);
    for (_, value) in (0..free).zip(["600000", "soon", "-1", "9999"].iter().cycle()) {
        assert!(!is_overflow(value), "{value}");
    }
    assert!(is_overflow("9999"), "now they are used up");
    assert_eq!((overflow("\"late\""), overflow("\"exhausted\"")), (late, 1));
}

#[test]
fn the_deadline_counts_from_the_last_byte_of_the_request() {
    let (site, server) = start(&[(3, HALF_AN_HOUR)], "");
    let bytes = request(
        "POST",
        BULK,
        &[("ringwell-deadline-ms", "400")],
        &batch(&[site.pools[0].suffix("a=1")]),
    );
    let mut client = server.client();
    let (head, rest) = bytes.as_bytes().split_at(bytes.len() - 20);
    client.send(head).unwrap();
    sleep(Duration::from_millis(600));
    client.send(rest).unwrap();
    let answer = client.receive().unwrap();
    assert!(!answer.body.contains("overflow"), "a slow line does not lose a number: {answer:?}");
    let took: u64 = header(&answer, "processing-time").parse().unwrap();
    assert!(took < 400, "the line's time is not the server's: {took} ms");
}

#[test]
fn answers_contain_their_processing_time() {
    let (site, server) = start(&[(3, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let single = format!("/api/2013-07-01/ring_pools/{}", site.pools[0].suffix("a=1"));
    let answers = [
        ask(&mut client, &[], &batch(&[site.pools[0].suffix("a=1")])),
        client.get(&single, &[]).unwrap(),
        client.post(BULK, &[], "nonsense").unwrap(),
    ];
    for answer in answers {
        let whole: u64 = header(&answer, "processing-time").parse().unwrap();
        let timing = header(&answer, "server-timing").strip_prefix("total;dur=").unwrap();
        let (ms, decimals) = timing.split_once('.').unwrap();
        assert_eq!(ms.parse::<u64>().unwrap(), whole);
        assert!(decimals.len() == 3 && decimals.bytes().all(|b| b.is_ascii_digit()), "{timing}");
    }
}

#[test]
fn two_keys_of_a_pool_are_valid_at_once() {
    let pool = "[[ring_pool]]\nid = 9\nring_pool_key = \"key-that-goes\"\n\
                next_ring_pool_key = \"key-that-comes\"\nlifetime = \"30m\"\n\
                numbers = [\"8885550100-8885550109\"]\noverflow_number = \"8885550199\"";
    let (_site, server) = start(&[(3, HALF_AN_HOUR)], pool);
    let mut client = server.client();
    let mut with =
        |key: &str| row(&mut client, &format!("9/allocate_number.json?ring_pool_key={key}&a=1"));
    assert_eq!(number(&with("key-that-goes")), "8885550100");
    assert_eq!(number(&with("key-that-comes")), "8885550101");
    assert_eq!(with("key-that-never-was")["error_class"], "InvalidKey");
}

#[test]
fn a_pool_without_overflow_reports_when_to_retry() {
    let pool = "[[ring_pool]]\nid = 9\nring_pool_key = \"key-of-nine\"\nlifetime = \"30m\"\n\
                numbers = [\"8885550100\"]\nallow_overflow = false";
    let (site, server) = start(&[(3, HALF_AN_HOUR)], pool);
    let mut client = server.client();
    let nine = "9/allocate_number.json?ring_pool_key=key-of-nine&a=1".to_owned();
    let rows =
        ask(&mut client, &[], &batch(&[nine.clone(), site.pools[0].suffix("a=1"), nine.clone()]));
    let rows = rows.json()["responses"].clone();
    assert_eq!(number(&rows[0]), "8885550100");
    assert_eq!(number(&rows[1]), site.pools[0].first.to_string());
    assert_eq!(rows[2]["error_class"], "PoolExhausted");
    assert_eq!(rows[2]["promo_number"], Value::Null);
    // A lockout is a little longer than the lifetime, because a shard's clock may run fast. The
    // time until its end is also rounded up to whole seconds.
    let is_full = |seconds: &str| ["1800", "1801"].contains(&seconds);
    let message = rows[2]["message"].as_str().unwrap();
    let seconds = message.split("ask again in ").nth(1).unwrap().strip_suffix(" seconds");
    assert!(is_full(seconds.unwrap()), "{rows}");
    let single = client.get(&format!("/api/2013-07-01/ring_pools/{nine}"), &[]).unwrap();
    assert!(single.status == 503 && is_full(header(&single, "retry-after")), "{single:?}");
}

#[test]
fn an_overflow_number_is_nobodys() {
    let (site, server) = start(&[(1, HALF_AN_HOUR)], "");
    let mut client = server.client();
    let suffix = site.pools[0].suffix("a=1");
    row(&mut client, &suffix);
    let overflow = row(&mut client, &suffix);
    assert_eq!(
        (&overflow["overflow"], number(&overflow)),
        (&json!(true), site.pools[0].overflow.to_string())
    );
    let found = attribution(&mut client, &number(&overflow), "");
    assert_eq!((&found["outcome"], &found["ring_pool_ids"]), (&json!("overflow"), &json!([1])));
    assert_eq!((&found["parameters"], &found["allocated_at"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_call_is_attributed_to_who_held_the_number_then() {
    let (site, server) = start(&[(1, Duration::from_millis(300))], "");
    let mut client = server.client();
    let before = now_ms() - 1_000;
    let mine = number(&row(&mut client, &site.pools[0].suffix("who=first&q=a%20b+c")));
    let during = now_ms();
    let first = attribution(&mut client, &mine, &format!("&at={during}"));
    assert_eq!((&first["outcome"], &first["late"]), (&json!("allocated"), &json!(false)));
    assert_eq!(first["parameters"], json!({"who": "first", "q": "a b c"}));
    assert_eq!((&first["ring_pool_id"], &first["next_allocated_at"]), (&json!(1), &Value::Null));

    sleep(Duration::from_millis(400));
    let late = attribution(&mut client, &mine, "");
    assert_eq!((&late["late"], &late["parameters"]["who"]), (&json!(true), &json!("first")));

    assert_eq!(number(&row(&mut client, &site.pools[0].suffix("who=second"))), mine);
    let second = attribution(&mut client, &mine, "");
    assert_eq!((&second["late"], &second["parameters"]["who"]), (&json!(false), &json!("second")));
    let then = attribution(&mut client, &mine, &format!("&at={during}"));
    assert_eq!((&then["late"], &then["parameters"]["who"]), (&json!(false), &json!("first")));
    assert_eq!(then["next_allocated_at"], second["allocated_at"]);
    assert_eq!(attribution(&mut client, &mine, &format!("&at={before}"))["outcome"], "none");
}

/// Reads the server's addresses from its log.
fn addresses(server: &Server) -> Vec<String> {
    loop {
        // The server may write the log line shortly after it begins to listen on its first address.
        let log = server.log();
        let serving = log.lines().find(|line| line.contains("\"serving\""));
        if let Some(line) = serving {
            let line: Value = serde_json::from_str(line).unwrap();
            return serde_json::from_str(line["addresses"].as_str().unwrap()).unwrap();
        }
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_server_listens_on_several_addresses_and_sockets_at_once() {
    let site = Site::new(vec![Pool::new(1, 9, HALF_AN_HOUR)], SETTINGS);
    let path = site.data().with_file_name("ringwell.sock");
    let unix = format!("unix:{}", path.display());
    let listen = ["--listen", "127.0.0.1:0", "--listen", &unix, "--listen", "127.0.0.1:0"];
    let server = Server::start(site.serve(&listen));
    let addresses = addresses(&server);
    assert_eq!((addresses.len(), &addresses[1]), (3, &unix));
    assert_ne!(addresses[0], addresses[2]);

    let body = batch(&[site.pools[0].suffix("a=1")]);
    let mut numbers = Vec::new();
    for address in [&addresses[0], &addresses[2]] {
        let answer = ask(&mut Client::connect(address).unwrap(), &[], &body);
        numbers.push(number(&answer.json()["responses"][0]));
    }
    for _ in 0..4 {
        let mut socket = UnixStream::connect(&path).unwrap();
        let bytes = request("POST", BULK, &[("connection", "close")], &body);
        socket.write_all(bytes.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let json: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        numbers.push(number(&json["responses"][0]));
    }
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 6, "all of them belong to one server");
    server.stop();
    assert!(!path.exists(), "the socket's file is gone with the server");
}
