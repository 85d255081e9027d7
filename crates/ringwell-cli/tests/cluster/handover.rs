//! Moves of buckets combined with other events: holds, repeated batches, callers that disconnect,
//! and changes to the pools.

use std::net::TcpStream;

use super::moves::{move_buckets, numbers_of};
use super::*;

/// Edits a stopped node's record of the buckets that it owns.
fn edit_map(site: &Site, edit: impl FnOnce(&mut Value)) {
    let path = site.data().join("cluster-map.json");
    let mut map: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut map);
    fs::write(&path, map.to_string()).unwrap();
}

fn is_leaving(site: &Site) -> bool {
    fs::read_to_string(site.data().join("cluster-map.json")).unwrap().contains("leaving")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_batch_repeated_after_a_move_gets_no_number_of_another_visitor() {
    let cluster = Cluster::new(1, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let [mut a, mut b] = servers.each_ref().map(Server::client);
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: "order".into() }).collect();
    let body = batch::body(&asks, cluster.pools());
    let key = [("idempotency-key", "order-1")];
    for number in numbers_of(&batch::rows(&a.post(BULK, &key, &body).unwrap())) {
        assert!(release(&mut a, number));
    }
    sleep(Duration::from_millis(5));
    let others = numbers_of(&cluster.ask(&mut a, "somebody else"));
    assert_eq!(others.len(), 8);
    assert_eq!(move_buckets(&mut b, "512-1023", 0).status, 200);
    let again = batch::rows(&a.post(BULK, &key, &body).unwrap());
    assert!(again.iter().all(|row| row.overflow), "somebody else has them: {again:?}");
}

#[test]
fn held_pools_stay_held_when_they_move() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    // If a node starts without data and the map is not the cluster's first, the node lacks earlier
    // lockouts, so it holds all of its pools.
    cluster.write_map("cluster.toml", 2, SECRET, [&[0, 2], &[1]]);
    let mut servers = cluster.start_both();
    let mut client = servers[0].client();
    assert!(cluster.ask(&mut client, "held").iter().all(|row| row.overflow));
    assert_eq!(move_buckets(&mut client, "0-340", 1).status, 200, "to the other node");
    assert_eq!(move_buckets(&mut client, "682-1023", 0).status, 200, "to another shard");
    let rows = cluster.ask(&mut client, "moved");
    assert!(rows.iter().all(|row| row.overflow), "nobody knows the lockouts: {rows:?}");
    for node in 0..2 {
        servers = moves::restart(&cluster, servers, node, true);
    }
    let rows = cluster.ask(&mut servers[1].client(), "restarted");
    assert!(rows.iter().all(|row| row.overflow), "{rows:?}");
}

#[test]
fn a_batch_repeated_after_a_move_within_the_node_gets_its_answer() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    cluster.write_map("cluster.toml", 1, SECRET, [&[0, 2], &[1]]);
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: "order".into() }).collect();
    let body = batch::body(&asks, cluster.pools());
    let key = [("idempotency-key", "order-1")];
    let order = client.post(BULK, &key, &body).unwrap().body;
    assert_eq!(move_buckets(&mut client, "0-340", 2).status, 200);
    assert_eq!(client.post(BULK, &key, &body).unwrap().body, order);
}

/// If the giver is killed while it waits for the taker's answer, the taker must take over the
/// buckets completely or not at all.
#[test]
fn a_hand_over_whose_caller_disconnects_is_completed_or_not_done_at_all() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let a = cluster.start(0);
    let take = |bucket: u16| {
        let body =
            format!("{{\"version\":1,\"buckets\":[[{bucket},{{\"moves\":1,\"shard\":0}}]]}}");
        format!(
            "POST /link/v1/take HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {SECRET}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let send = |bucket| {
        let mut stream = TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
        stream.write_all(take(bucket).as_bytes()).unwrap();
        stream
    };
    for (bucket, wait) in (600..640).zip((0..).map(|turn| Duration::from_micros(200 * turn))) {
        let stream = send(bucket);
        sleep(wait);
        drop(stream);
        // The giver sends the request again, as it does after a restart.
        let mut answer = [0; 15];
        send(bucket).read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    }
    let owners = shards(&mut a.client())["owners"][0]["buckets"].clone();
    assert_eq!(owners, "0-511,600-639");
}

#[test]
fn buckets_that_have_moved_on_do_not_block_a_later_move() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let mut servers = cluster.start_both();
    for (from, to) in [(1, 0), (0, 1)] {
        assert_eq!(move_buckets(&mut servers[from].client(), "512-520", to).status, 200);
    }
    // Simulates the loss of node a's answer at the end of the first move. Node b therefore still
    // records the buckets as leaving.
    let [a, b] = servers;
    b.stop();
    edit_map(&cluster.sites[1], |map| {
        let buckets: Vec<u16> = (512..=520).collect();
        map["leaving"] = serde_json::json!([{"to": 0, "buckets": buckets, "holds": []}]);
    });
    servers = [a, cluster.start(1)];
    wait_until("the move has ended", || !is_leaving(&cluster.sites[1]));
    let moved = move_buckets(&mut servers[1].client(), "512-600", 0);
    assert_eq!(moved.status, 200, "{}", moved.body);
}

/// The list of pools changes while buckets are moving. The state of numbers that were removed from
/// their pools during the move must also be sent.
#[test]
fn lockouts_of_numbers_that_left_their_pool_during_the_move_are_moved_too() {
    let mut cluster = Cluster::new(2, HALF_AN_HOUR);
    let [a, b] = cluster.start_both();
    let given = numbers_of(&cluster.ask(&mut a.client(), "first"));
    b.stop();
    edit_map(&cluster.sites[1], |map| {
        for bucket in 512..1024 {
            map["owners"]["buckets"][bucket] = serde_json::json!([1, 0]);
        }
        let buckets: Vec<u16> = (512..1024).collect();
        map["leaving"] = serde_json::json!([{"to": 0, "buckets": buckets, "holds": []}]);
        map["buckets"] = serde_json::json!([]);
    });
    let mut pools = cluster.pools().to_vec();
    for pool in &mut pools {
        // The pool no longer contains the number that was handed out.
        (pool.first, pool.numbers) = (pool.first + 1, pool.numbers - 1);
    }
    cluster.sites[1].write(pools);
    let _b = cluster.start(1);
    wait_until("the buckets have been taken", || !is_leaving(&cluster.sites[1]));
    let mut client = a.client();
    let mut all = [given, numbers_of(&cluster.ask(&mut client, "second"))].concat();
    assert!(cluster.ask(&mut client, "third").iter().all(|row| row.overflow));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2 * 8, "no number went out twice");
}
