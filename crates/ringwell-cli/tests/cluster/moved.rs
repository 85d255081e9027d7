//! Look-ups of numbers that moved to another node after they were handed out.

use super::*;

const LIFETIME: Duration = Duration::from_secs(1);

/// Returns the holder of a number, according to a node.
fn held(server: &Server, number: u64, at: u64) -> Value {
    attribution(&mut server.client(), number, at).unwrap()
}

fn visitor(held: &Value) -> &str {
    held["parameters"]["id"].as_str().unwrap_or("")
}

#[test]
fn a_node_without_a_note_of_an_overflow_number_learns_it_from_the_others() {
    let mut cluster = Cluster::new(2, LIFETIME);
    let servers = cluster.start_both();
    // The pool's owner is node b, whose record of overflow numbers will be lost.
    let pool = cluster.pools().iter().find(|pool| Cluster::owner(pool.id) == 1).unwrap().clone();
    let number = batch::one(&mut servers[1].client(), &pool, "ann").number;
    assert_eq!(number, pool.first);
    let shown_at = now_ms();
    sleep(LIFETIME + Duration::from_millis(100));
    let shorter = Pool { first: pool.first + 1, numbers: 1, ..pool.clone() };
    let overflow = Pool { overflow: number, ..shorter.clone() };
    let mut at = 0;
    for next in [shorter.clone(), overflow, shorter, pool.clone()] {
        for (site, server) in cluster.sites.iter_mut().zip(&servers) {
            let pools = site.pools.iter();
            let pools = pools.map(|it| if it.id == pool.id { next.clone() } else { it.clone() });
            site.write(pools.collect());
            assert!(server.reload().contains("reloaded"));
        }
        at = if next.overflow == number { now_ms() } else { at };
        sleep(Duration::from_millis(20));
    }
    let [first, second] = servers;
    second.stop();
    fs::remove_file(cluster.sites[1].data().join("overflow-periods.json")).unwrap();
    let second = cluster.start(1);
    for server in [&first, &second] {
        assert_eq!(held(server, number, at)["outcome"], "not_kept");
        assert!(visitor(&held(server, number, shown_at)).starts_with("ann"));
    }
}

#[test]
fn a_look_up_after_a_move_names_the_visitor_or_says_that_it_cannot() {
    let cluster = Cluster::new(1, LIFETIME);
    let [first, second] = cluster.start_both();
    let row_of = |rows: Vec<Row>| {
        let pool = (1..=POOLS).find(|pool| Cluster::owner(*pool) == 1).unwrap();
        rows.into_iter().nth(usize::try_from(pool).unwrap() - 1).unwrap()
    };
    let rows = cluster.ask(&mut first.client(), "ann");
    let of_first = (1..).zip(&rows).find(|(pool, _)| Cluster::owner(*pool) == 0);
    let other = of_first.unwrap().1.number;
    let (ann, earlier) = (row_of(rows), now_ms());
    assert!(!ann.overflow);
    sleep(LIFETIME + Duration::from_millis(100));
    // The pool moves to node a, which hands out the number. Then the pool returns to node b.
    assert_eq!(moves::move_buckets(&mut second.client(), "512-1023", 0).status, 200);
    let until = Instant::now() + PATIENCE;
    let bob = loop {
        let bob = row_of(cluster.ask(&mut first.client(), "bob"));
        if !bob.overflow {
            break bob;
        }
        assert!(Instant::now() < until, "{bob:?}");
    };
    let (number, then) = (bob.number, now_ms());
    assert_eq!(number, ann.number);
    let before = held(&second, number, then);
    sleep(Duration::from_millis(300));
    assert_eq!(moves::move_buckets(&mut first.client(), "512-1023", 1).status, 200);
    for at in [then, now_ms()] {
        let after = held(&second, number, at);
        assert!(visitor(&after).starts_with("bob"), "{after}");
        assert_eq!(after["allocated_at"], before["allocated_at"], "{after}");
        assert_eq!(after["next_allocated_at"], Value::Null, "{after}");
    }

    first.stop();
    let away = held(&second, number, then);
    assert_eq!(away["outcome"], "not_kept", "{away}");
    assert_eq!(away["unreachable_shards"], serde_json::json!([0]), "{away}");
    let first = cluster.start(0);
    assert_eq!(held(&second, number, then)["allocated_at"], before["allocated_at"]);

    first.kill();
    fs::remove_dir_all(cluster.sites[0].data()).unwrap();
    let first = cluster.start(0);
    let lost = held(&second, number, then);
    assert_eq!(lost["outcome"], "not_kept", "{lost}");
    // After the pool has moved, its next owner also reports that the history is lost.
    for to in [None, Some(1)] {
        if let Some(to) = to {
            assert_eq!(moves::move_buckets(&mut first.client(), "0-511", to).status, 200);
        }
        let lost = held(&second, other, earlier);
        assert_eq!(lost["outcome"], "not_kept", "{lost}");
    }
}
