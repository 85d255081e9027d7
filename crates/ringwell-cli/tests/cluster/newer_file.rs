//! A newer cluster file that omits a node, while the node runs or after it was lost.

use super::*;

/// Writes version 2 of the cluster file, in which node a is the only node, and starts node a.
fn start_alone(cluster: &Cluster, shards: &str) -> Server {
    let port = cluster.port;
    let map = format!(
        "version = 2\nsecret = \"{SECRET}\"\n[[node]]\nname = \"a\"\nshards = {shards}\n\
         link = \"127.0.0.1:{port}\"\nlisten = [\"127.0.0.1:8080\"]\n"
    );
    fs::write(cluster.path("newer.toml"), map).unwrap();
    Server::start(cluster.command(0, "newer.toml"))
}

/// The running node must stop serving, whether it receives the newer file's version from node a or
/// requests it from node a.
#[test]
fn a_running_node_that_a_newer_cluster_file_omits_stops_serving() {
    for (shards, is_informed) in
        [("[0]", true), ("[0]", false), ("[0, 1]", true), ("[0, 1]", false)]
    {
        let cluster = Cluster::new(8, HALF_AN_HOUR);
        let [first, second] = cluster.start_both();
        let mut given = moves::numbers_of(&cluster.ask(&mut first.client(), "before"));
        first.stop();
        given.extend(moves::numbers_of(&cluster.ask(&mut second.client(), "old")));
        if !is_informed {
            fs::remove_file(cluster.sites[0].data().join("cluster-nodes.json")).unwrap();
        }
        let first = start_alone(&cluster, shards);
        given.extend(moves::numbers_of(&cluster.ask(&mut second.client(), "late")));
        second.says("another node uses a newer version of the cluster file");
        first.says("or with an older cluster file");
        for server in [&first, &second] {
            let rows = cluster.ask(&mut server.client(), "newer");
            let served = (1..=POOLS).filter(|pool| Cluster::owner(*pool) == 0).count();
            assert_eq!(moves::numbers_of(&rows).len(), served, "{rows:?}");
            given.extend(moves::numbers_of(&rows));
        }
        let all = given.len();
        moves::assert_each_once(given, all);
    }
}

/// Node a hands out numbers, and then node b does. After node b is lost with its history, look-ups
/// must name no earlier visitor.
#[test]
fn look_ups_name_no_earlier_visitor_after_a_lost_node_was_dropped() {
    for shards in ["[0]", "[0, 1]"] {
        let cluster = Cluster::new(1, Duration::from_secs(2));
        let [first, second] = cluster.start_both();
        let mut client = first.client();
        let moved = |client: &mut Client, buckets: &str, to| {
            assert_eq!(moves::move_buckets(client, buckets, to).status, 200);
        };
        moved(&mut second.client(), "512-1023", 0);
        moves::ask_all_there(&cluster, &mut client, "first");
        moved(&mut client, "0-1023", 1);
        let numbers = moves::ask_all_there(&cluster, &mut client, "second");
        let at = now_ms();
        for number in &numbers {
            let held = attribution(&mut client, *number, at).unwrap();
            assert_eq!(held["outcome"], "allocated", "{held}");
        }
        sleep(Duration::from_millis(1_500));
        second.kill();
        fs::remove_dir_all(cluster.sites[1].data()).unwrap();
        first.stop();
        let first = start_alone(&cluster, shards);
        first.says("the cluster file no longer contains these shards");
        let mut client = first.client();
        for number in &numbers {
            let held = attribution(&mut client, *number, at).unwrap();
            assert_eq!(held["outcome"], "not_kept", "{held}");
        }
        // Numbers that are handed out from now on can be attributed again.
        let numbers = moves::ask_all_there(&cluster, &mut client, "third");
        for number in &numbers[numbers.len() - 1..] {
            let held = attribution(&mut client, *number, now_ms()).unwrap();
            assert_eq!(held["outcome"], "allocated", "{held}");
        }
    }
}
