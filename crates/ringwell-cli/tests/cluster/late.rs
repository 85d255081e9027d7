//! Pools that are added to a node's list of pools after the node has started.

use super::moves::restart;
use super::*;

/// Version 2 of the map gives all buckets to node b. Both nodes restart with this map, but without
/// one of the pools that node a owned. All numbers of the pool are locked out. A reload by SIGHUP
/// then adds the pool, which must be held.
#[test]
fn a_pool_that_appears_after_the_start_with_a_new_map_is_held_after_another_start_too() {
    for is_restarted in [false, true] {
        let mut cluster = Cluster::new(2, HALF_AN_HOUR);
        let servers = cluster.start_both();
        let late = (1..=POOLS).find(|pool| Cluster::owner(*pool) == 0).unwrap();
        for round in 0..2 {
            let rows = cluster.ask(&mut servers[0].client(), &format!("before-{round}"));
            assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
        }
        for server in servers {
            server.stop();
        }
        let all = cluster.pools().to_vec();
        let map = fs::read_to_string(cluster.path("cluster.toml")).unwrap();
        let map = map.replace("version = 1", "version = 2")
            + "[[buckets]]\nfirst = 0\nlast = 1023\nshard = 1\n";
        fs::write(cluster.path("cluster.toml"), map).unwrap();
        for site in &mut cluster.sites {
            site.write(all.iter().filter(|pool| pool.id != late).cloned().collect());
        }
        let mut servers = cluster.start_both();
        if is_restarted {
            servers = restart(&cluster, servers, 1, true);
        }
        for (site, server) in cluster.sites.iter_mut().zip(&servers) {
            site.write(all.clone());
            assert!(server.reload().contains("reloaded"));
        }
        for server in &servers {
            let rows = cluster.ask(&mut server.client(), "after");
            let row = &rows[usize::try_from(late).unwrap() - 1];
            assert!(row.overflow, "node a's lockouts run: {row:?}");
        }
    }
}

/// A number moves from a pool of node a to a pool of node b while node a is suspended. Node b first
/// waits for node a, and later hands out the number.
#[test]
fn a_node_that_stood_still_gives_no_number_that_has_left_it() {
    let lifetime = Duration::from_secs(6);
    let mut cluster = Cluster::new(1, lifetime);
    let servers = cluster.start_both();
    let of = |node| (1..=POOLS).find(|pool| Cluster::owner(*pool) == node).unwrap();
    let [from, to] = [of(0), of(1)];
    servers[0].signal("STOP");
    let mut pools = cluster.pools().to_vec();
    let place = |pool: u64| usize::try_from(pool).unwrap() - 1;
    let number = pools[place(from)].first;
    pools[place(from)].first = pools[place(to)].first;
    pools[place(to)].first = number;
    for site in &mut cluster.sites {
        site.write(pools.clone());
    }
    assert!(servers[1].reload().contains("reloaded"));
    let ask = |node: usize, pool: u64| {
        let asks = [Ask { pool, id: "one".to_owned() }];
        let answer = servers[node].client().post(BULK, &[], &batch::body(&asks, &pools)).unwrap();
        batch::rows(&answer).remove(0).number
    };
    // Node b waits for the lifetime plus ten seconds before it hands out the number.
    let until = Instant::now() + 2 * PATIENCE;
    while ask(1, to) != number {
        assert!(Instant::now() < until, "{}", servers[1].log());
        sleep(Duration::from_millis(100));
    }
    servers[0].signal("CONT");
    let given = Instant::now();
    while given.elapsed() < lifetime / 2 {
        assert_ne!(ask(0, from), number, "a visitor of node b has it");
    }
    servers[0].says("the shard's pools are confirmed");
    let until = Instant::now() + PATIENCE;
    while ask(0, from) != pools[place(from)].first {
        assert!(Instant::now() < until, "{}", servers[0].log());
        sleep(Duration::from_millis(100));
    }
}
