//! A node whose disk was lost or restored from a copy while the other nodes continued.

use super::*;

/// Returns the pools that `node` owns.
fn of(node: usize) -> impl Iterator<Item = u64> {
    (1..=POOLS).filter(move |pool| Cluster::owner(*pool) == node)
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let done = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

/// Checks that rows of `node`'s pools get overflow numbers, and that all other rows get numbers of
/// their own.
fn assert_holds(cluster: &Cluster, server: &Server, node: usize) {
    let rows = cluster.ask(&mut server.client(), "after");
    for pool in 1..=POOLS {
        let row = &rows[usize::try_from(pool).unwrap() - 1];
        assert_eq!(row.overflow, Cluster::owner(pool) == node, "{row:?}\n{}", server.log());
    }
}

#[test]
fn a_node_that_lost_its_disk_hands_out_no_number_that_it_may_have_answered() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let [first, second] = cluster.start_both();
    let rows = cluster.ask(&mut first.client(), "before");
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
    second.kill();
    fs::remove_dir_all(cluster.sites[1].data()).unwrap();
    let second = cluster.start(1);
    assert!(of(1).count() > 0);
    assert_holds(&cluster, &second, 1);
    assert!(second.log().contains("had a different or longer journal"), "{}", second.log());
    // At the next startup, the node reads the hold from its own disk.
    second.kill();
    let second = cluster.start(1);
    assert_holds(&cluster, &second, 1);
    assert_eq!(
        second.log().matches("had a different or longer journal").count(),
        0,
        "{}",
        second.log()
    );
}

#[test]
fn a_restored_data_directory_hands_out_no_number_answered_since_the_copy() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let [first, second] = cluster.start_both();
    second.stop();
    let (data, backup) = (cluster.sites[1].data().to_owned(), cluster.path("backup"));
    copy(&data, &backup);
    let second = cluster.start(1);
    let rows = cluster.ask(&mut first.client(), "since the copy");
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
    second.stop();
    copy(&backup, &data);
    let second = cluster.start(1);
    assert_holds(&cluster, &second, 1);
}

/// Node b starts without its disk while node a is down. When node a starts later, node b must hold
/// its pools.
#[test]
fn a_node_that_starts_alone_without_its_disk_holds_its_pools_when_it_learns_of_it() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let [first, second] = cluster.start_both();
    cluster.ask(&mut first.client(), "before");
    first.stop();
    second.kill();
    fs::remove_dir_all(cluster.sites[1].data()).unwrap();
    let second = cluster.start(1);
    let first = cluster.start(0);
    second.says("had a different or longer journal");
    assert_holds(&cluster, &first, 1);
}

/// Moves node a's buckets to node b, then restores node a's data from a copy made before the move.
fn moved_and_put_back() -> (Cluster, Server) {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let [first, second] = cluster.start_both();
    first.stop();
    let (data, backup) = (cluster.sites[0].data().to_owned(), cluster.path("backup"));
    copy(&data, &backup);
    let first = cluster.start(0);
    let moved = moves::move_buckets(&mut first.client(), "0-511", 1);
    assert_eq!(moved.status, 200, "{}", moved.body);
    first.stop();
    copy(&backup, &data);
    (cluster, second)
}

#[test]
fn data_from_before_a_move_do_not_serve_what_a_running_node_has() {
    let (cluster, second) = moved_and_put_back();
    let first = cluster.start(0);
    first.says("have moved away from this node");
    let mut given = Vec::new();
    for server in [&first, &second] {
        given.extend(moves::numbers_of(&cluster.ask(&mut server.client(), "both")));
    }
    assert_eq!(shards(&mut first.client())["owners"][1]["buckets"], "0-1023");
    moves::assert_each_once(given, 2 * 8);
}

/// Node b, which has recorded the move, is stopped before node a starts.
#[test]
fn numbers_given_by_data_from_before_a_move_are_held_when_the_owner_comes() {
    let (cluster, second) = moved_and_put_back();
    second.stop();
    let first = cluster.start(0);
    first.says("the owners of buckets could not be checked");
    let mut given = moves::numbers_of(&cluster.ask(&mut first.client(), "alone"));
    assert_eq!(given.len(), of(0).count());
    let second = cluster.start(1);
    first.says("have moved away from this node");
    second.says("with data from before a move");
    for server in [&first, &second] {
        let rows = cluster.ask(&mut server.client(), "both");
        let held = (1..).zip(&rows).filter(|(_, row)| row.overflow).map(|(pool, _)| pool);
        assert!(held.eq(of(0)), "{rows:?}");
        given.extend(moves::numbers_of(&rows));
    }
    moves::assert_each_once(given, of(0).count() + 2 * of(1).count());
}

/// Moves node a's buckets to node b. Then a new cluster file, without this move, reaches node a
/// before it reaches node b.
#[test]
fn a_newer_cluster_file_with_outdated_owners_hands_out_no_number_twice() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let [first, second] = cluster.start_both();
    let moved = moves::move_buckets(&mut first.client(), "0-511", 1);
    assert_eq!(moved.status, 200, "{}", moved.body);
    let mut given = moves::numbers_of(&cluster.ask(&mut second.client(), "moved"));
    assert_eq!(given.len(), 8);
    cluster.write_map("newer.toml", 2, SECRET, [&[0], &[1]]);
    let start = |node: usize| Server::start(cluster.command(node, "newer.toml"));
    first.stop();
    let first = start(0);
    second.says("another node uses a newer version of the cluster file");
    first.says("with data from before a move");
    let mut held = |servers: [&Server; 2]| {
        for server in servers {
            let rows = cluster.ask(&mut server.client(), "newer");
            let held = (1..).zip(&rows).filter(|(_, row)| row.overflow).map(|(pool, _)| pool);
            assert!(held.eq(of(0)), "{rows:?}");
            given.extend(moves::numbers_of(&rows));
        }
    };
    held([&first, &second]);
    second.stop();
    let second = start(1);
    let rows = cluster.ask(&mut first.client(), "both newer");
    assert!(rows.iter().filter(|row| row.overflow).count() >= of(0).count(), "{rows:?}");
    given.extend(moves::numbers_of(&rows));
    given.extend(moves::numbers_of(&cluster.ask(&mut second.client(), "both newer")));
    given.sort_unstable();
    let all = given.len();
    given.dedup();
    assert_eq!(given.len(), all, "a number went out twice within its lockout");
}
