//! Buckets that move between running nodes, with their lockouts.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use support::client::HttpAnswer;

use super::*;

pub(super) fn move_buckets(client: &mut Client, buckets: &str, to: u16) -> HttpAnswer {
    let token = format!("Bearer {TOKEN}");
    let body = format!("{{\"buckets\":\"{buckets}\",\"to\":{to}}}");
    client.post("/v1/shards/moves", &[("authorization", &token)], &body).unwrap()
}

/// Moves the buckets that node `from` initially owns to the other node's shard.
fn drain(client: &mut Client, from: usize) -> HttpAnswer {
    move_buckets(client, ["0-511", "512-1023"][from], u16::from(from == 0))
}

pub(super) fn numbers_of(rows: &[Row]) -> Vec<u64> {
    rows.iter().filter(|row| !row.overflow).map(|row| row.number).collect()
}

/// Sends batches until each pool has handed out a number. Returns all numbers handed out. One batch
/// may never get numbers of all pools, because short lockouts may end at different times.
pub(super) fn ask_all_there(cluster: &Cluster, client: &mut Client, id: &str) -> Vec<u64> {
    let until = Instant::now() + PATIENCE;
    let (mut numbers, mut served) = (Vec::new(), BTreeSet::new());
    loop {
        let rows = cluster.ask(client, id);
        numbers.extend(numbers_of(&rows));
        served.extend(rows.iter().filter(|row| !row.overflow).map(|row| row.id.clone()));
        if served.len() == rows.len() {
            return numbers;
        }
        assert!(Instant::now() < until, "{rows:?}");
        sleep(Duration::from_millis(10));
    }
}

pub(super) fn assert_each_once(mut numbers: Vec<u64>, wanted: usize) {
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all, "a number went out twice within its lockout");
    assert_eq!(all, wanted);
}

#[test]
fn buckets_move_with_lockouts_history_visitors_and_answers_and_return_after_restarts() {
    let cluster = Cluster::new(6, HALF_AN_HOUR);
    let mut servers = cluster.start_both();
    let [mut a, mut b] = servers.each_ref().map(Server::client);
    let mut given = numbers_of(&cluster.ask(&mut a, "first"));
    let key = [("idempotency-key", "order-1")];
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: "order".into() }).collect();
    let body = batch::body(&asks, cluster.pools());
    let order = a.post(BULK, &key, &body).unwrap();
    given.extend(numbers_of(&batch::rows(&order)));
    let sticky = |client: &mut Client| {
        let row = |pool: &Pool| {
            let suffix = pool.suffix("id=v&ringwell_visitor=me");
            serde_json::json!({"api_suffix": suffix, "request_id": "v"})
        };
        let rows: Vec<Value> = cluster.pools().iter().map(row).collect();
        let body = serde_json::json!({"requests": rows}).to_string();
        numbers_of(&batch::rows(&client.post(BULK, &[], &body).unwrap()))
    };
    let mine = sticky(&mut b);
    given.extend(&mine);

    let moved = drain(&mut b, 1);
    assert_eq!(moved.status, 200, "{}", moved.body);
    assert_eq!(moved.json()["buckets"], 512, "{}", moved.body);
    let overview = shards(&mut a);
    assert_eq!(
        (&overview["moves"], &overview["owners"][0]["buckets"]),
        (&512.into(), &"0-1023".into())
    );
    // Node a serves all pools with their complete state. It does not need node b for this.
    for client in [&mut a, &mut b] {
        assert_eq!(client.post(BULK, &key, &body).unwrap().body, order.body);
        assert_eq!(sticky(client), mine);
    }
    given.extend(numbers_of(&cluster.ask(&mut b, "second")));
    for number in &given {
        let held = attribution(&mut b, *number, now_ms()).unwrap();
        assert_eq!(held["outcome"], "allocated", "{held}");
        assert!(held["parameters"]["id"].is_string(), "the record is in its old place: {held}");
    }
    for (node, is_killed) in [(0, true), (1, false)] {
        servers = restart(&cluster, servers, node, is_killed);
    }
    let [mut a, mut b] = servers.each_ref().map(Server::client);
    assert_eq!(shards(&mut b)["owners"][0]["buckets"], "0-1023", "a restart changes no owner");
    given.extend(numbers_of(&cluster.ask(&mut b, "third")));
    assert_eq!(move_buckets(&mut a, "512-1023", 1).status, 200);
    assert_eq!(a.post(BULK, &key, &body).unwrap().body, order.body);
    given.extend(numbers_of(&cluster.ask(&mut a, "fourth")));
    assert!(cluster.ask(&mut a, "exhausted").iter().all(|row| row.overflow));
    assert_each_once(given, 6 * 8);
}

pub(super) fn restart(
    cluster: &Cluster,
    servers: [Server; 2],
    node: usize,
    is_killed: bool,
) -> [Server; 2] {
    let mut servers: Vec<Option<Server>> = servers.into_iter().map(Some).collect();
    servers[node].take().unwrap().end(is_killed);
    servers[node] = Some(cluster.start(node));
    let servers: Vec<Server> = servers.into_iter().flatten().collect();
    servers.try_into().unwrap()
}

/// Half of the buckets move back and forth while both nodes receive batches.
#[test]
fn under_load_no_row_is_lost_and_no_number_goes_out_twice() {
    let cluster = Cluster::new(4000, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let is_over = AtomicBool::new(false);
    let (numbers, overflows, rows) = thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let (cluster, servers, is_over) = (&cluster, &servers, &is_over);
                scope.spawn(move || {
                    let mut client = servers[caller % 2].client();
                    let (mut numbers, mut overflows, mut rows) = (Vec::new(), 0, 0);
                    for round in 0.. {
                        let answered = cluster.ask(&mut client, &format!("c{caller}r{round}"));
                        rows += answered.len();
                        overflows += answered.iter().filter(|row| row.overflow).count();
                        numbers.extend(numbers_of(&answered));
                        if is_over.load(Ordering::Relaxed) || round == 450 {
                            break;
                        }
                    }
                    (numbers, overflows, rows)
                })
            })
            .collect();
        for turn in 0..8 {
            let from = turn % 2;
            let mut client = servers[from].client();
            let moved = move_buckets(&mut client, "256-767", u16::from(from == 0));
            assert!(moved.status == 200 || turn == 0, "{}", moved.body);
            if moved.status != 200 {
                // Node b already owns some of these buckets, so only the others are moved.
                assert!(moved.body.contains("send the request to that node"), "{}", moved.body);
                assert_eq!(move_buckets(&mut client, "256-511", 1).status, 200);
            }
            sleep(Duration::from_millis(60));
        }
        is_over.store(true, Ordering::Relaxed);
        callers.into_iter().map(|caller| caller.join().unwrap()).fold(
            (Vec::new(), 0, 0),
            |(mut all, overflows, rows), (numbers, more, asked)| {
                all.extend(numbers);
                (all, overflows + more, rows + asked)
            },
        )
    });
    let with_numbers = numbers.len();
    assert_each_once(numbers, rows - overflows);
    assert!(with_numbers > 4 * overflows, "{overflows} of {rows} rows overflowed");
    let mut client = servers[0].client();
    let rows = cluster.ask(&mut client, "after");
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
}

#[test]
fn a_move_interrupted_by_a_hang_and_a_kill_continues_after_the_restart() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let [a, b] = cluster.start_both();
    let mut given = numbers_of(&cluster.ask(&mut a.client(), "first"));
    let is_leaving = || {
        let map = fs::read_to_string(cluster.sites[1].data().join("cluster-map.json"));
        map.is_ok_and(|map| map.contains("leaving"))
    };
    // Node b gives up the buckets a few milliseconds before node a takes them over. Node a must be
    // stopped within these milliseconds.
    for attempt in 0.. {
        assert!(attempt < 50, "the moment was never met");
        let mut client = b.client();
        let moving = thread::spawn(move || {
            let token = format!("Bearer {TOKEN}");
            let body = "{\"buckets\":\"512-1023\",\"to\":0}";
            // Returns whether node b answered before it was killed.
            client.post("/v1/shards/moves", &[("authorization", &token)], body).is_ok()
        });
        while !is_leaving() && !moving.is_finished() {}
        a.signal("STOP");
        sleep(Duration::from_millis(20));
        if is_leaving() {
            break;
        }
        a.signal("CONT");
        assert!(moving.join().unwrap());
        assert_eq!(move_buckets(&mut a.client(), "512-1023", 1).status, 200);
    }
    b.kill();
    let b = cluster.start(1);
    assert!(is_leaving());
    a.signal("CONT");
    let mut client = b.client();
    given.extend(ask_all_there(&cluster, &mut client, "after"));
    let until = Instant::now() + PATIENCE;
    while is_leaving() {
        assert!(Instant::now() < until, "{}", b.log());
        sleep(Duration::from_millis(20));
    }
    let mut client = a.client();
    while given.len() < 4 * 8 {
        let more = numbers_of(&cluster.ask(&mut client, "rest"));
        assert!(!more.is_empty(), "{} numbers", given.len());
        given.extend(more);
    }
    assert_each_once(given, 4 * 8);
}

/// The taker hangs when it is about to take over the buckets. As soon as the taker continues, the
/// operator cancels the move. At that time, the giver is waiting before its next attempt.
#[test]
fn moving_buckets_can_be_taken_back() {
    let cluster = Cluster::new(20, HALF_AN_HOUR);
    let [a, b] = cluster.start_both();
    let mut given = numbers_of(&cluster.ask(&mut a.client(), "first"));
    let abort = || {
        let token = format!("Bearer {TOKEN}");
        let headers = [("authorization", token.as_str())];
        let mut client = b.client();
        let text = support::client::request("DELETE", "/v1/shards/moves", &headers, "");
        client.send(text.as_bytes()).unwrap();
        client.receive().unwrap()
    };
    assert_eq!(abort().status, 409, "nothing is on its way");
    let is_leaving = || {
        let map = fs::read_to_string(cluster.sites[1].data().join("cluster-map.json"));
        map.is_ok_and(|map| map.contains("leaving"))
    };
    for attempt in 0.. {
        assert!(attempt < 50, "the moment was never met");
        let mut client = b.client();
        let moving = thread::spawn(move || drain(&mut client, 1).status);
        while !is_leaving() && !moving.is_finished() {}
        a.signal("STOP");
        sleep(Duration::from_millis(20));
        if is_leaving() {
            assert_eq!(moving.join().unwrap(), 503);
            break;
        }
        a.signal("CONT");
        assert_eq!(moving.join().unwrap(), 200);
        assert_eq!(move_buckets(&mut a.client(), "512-1023", 1).status, 200);
    }
    assert_eq!(abort().status, 409, "node a cannot report that it has not received them");
    let attempts = || b.log().matches("are not accepted yet").count();
    let (before, until) = (attempts(), Instant::now() + PATIENCE);
    while attempts() == before {
        assert!(Instant::now() < until, "{}", b.log());
        sleep(Duration::from_millis(5));
    }
    a.signal("CONT");
    let back = abort();
    let is_back = back.status == 200;
    // If the buckets are not back at node b, node a received the whole request before it was
    // suspended, and has taken them over.
    let is_over =
        ["has accepted the buckets", "are in transit"].iter().any(|text| back.body.contains(text));
    assert!(is_back || is_over, "{}", back.body);
    println!("taken back: {is_back} {}", back.body);
    if is_back {
        assert_eq!(back.json()["buckets"], 512, "{}", back.body);
        assert!(!is_leaving());
        assert_eq!(shards(&mut a.client())["owners"][1]["buckets"], "512-1023");
    }
    // Waits until the move has ended. Otherwise, the next batches would use up the numbers of the
    // pools that do not move.
    let until = Instant::now() + PATIENCE;
    while is_leaving() {
        assert!(Instant::now() < until, "{}", b.log());
        sleep(Duration::from_millis(5));
    }
    given.extend(ask_all_there(&cluster, &mut b.client(), "after"));
    let servers = restart(&cluster, restart(&cluster, [a, b], 0, true), 1, true);
    let [mut a, mut b] = servers.each_ref().map(Server::client);
    given.extend(ask_all_there(&cluster, &mut a, "restarted"));
    if is_back {
        assert_eq!(drain(&mut b, 1).status, 200, "the next move is a different one");
    }
    while given.len() < 20 * 8 {
        let more = numbers_of(&cluster.ask(&mut a, "rest"));
        assert!(!more.is_empty(), "{} numbers", given.len());
        given.extend(more);
    }
    assert_each_once(given, 20 * 8);
}

/// The move in this test requires messages longer than the longest batch that the nodes accept.
#[test]
fn buckets_move_whatever_the_limits_of_batches_are() {
    let links = "[links]\ndeadline = \"5s\"\nslow = \"5s\"\nwait = \"5s\"\n\
                 [limits]\nbody_bytes = \"2KiB\"\nrows = 8\n";
    let cluster = Cluster::with("10s", links, 40, HALF_AN_HOUR);
    let [_, b] = &cluster.start_both();
    let mut client = b.client();
    let mut given = Vec::new();
    for round in 0..20 {
        given.extend(numbers_of(&cluster.ask(&mut client, &round.to_string())));
    }
    let moved = drain(&mut client, 1);
    assert_eq!(moved.status, 200, "{}", moved.body);
    for round in 20..40 {
        given.extend(numbers_of(&cluster.ask(&mut client, &round.to_string())));
    }
    assert_each_once(given, 40 * 8);
}

#[test]
fn invalid_moves_are_refused_and_change_nothing() {
    let mut cluster = Cluster::new(4, HALF_AN_HOUR);
    let a = cluster.start(0);
    let mut pools = cluster.pools().to_vec();
    for pool in &mut pools {
        pool.numbers -= 1;
    }
    cluster.sites[1].write(pools);
    let b = cluster.start(1);
    let mut client = a.client();
    let mut answers = String::new();
    for (buckets, to) in [("600", 0), ("0-511", 1), ("0", 7), ("1024", 1), ("all", 1)] {
        let answer = move_buckets(&mut client, buckets, to);
        let detail = answer.json()["detail"].as_str().unwrap_or(&answer.body).to_owned();
        writeln!(answers, "{} {detail}", answer.status).unwrap();
    }
    let wanted = [
        "409 bucket 600 belongs to shard 1 of node b: send the request to that node",
        "409 shard 1's node does not accept the buckets: shard 1 of node b: the other node \
         answered: the two nodes have different lists of the pools in these buckets. Nothing has moved",
        "400 there is no shard 7 in the cluster",
        "400 buckets: must be numbers and ranges from 0 to 1023, as in 0-15,20",
        "400 buckets: must be numbers and ranges from 0 to 1023, as in 0-15,20",
    ];
    assert_eq!(answers.lines().collect::<Vec<_>>(), wanted);
    b.stop();
    let answer = drain(&mut client, 0);
    assert!(answer.status == 409 && answer.body.contains("Nothing has moved"), "{}", answer.body);
    assert_eq!(shards(&mut client)["moves"], 0);
    let data = cluster.path("alone");
    let alone = Server::start(cluster.sites[1].serve(&["--data", data.to_str().unwrap()]));
    let answer = move_buckets(&mut alone.client(), "0", 0);
    assert!(answer.body.contains("node of a cluster"), "{}", answer.body);
}
