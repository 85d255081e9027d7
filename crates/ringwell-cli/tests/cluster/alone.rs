//! A node's data directory without its cluster, and a cluster that shrinks to one node.

use super::moves::{assert_each_once, move_buckets, numbers_of};
use super::support::server::ringwell;
use super::*;

fn words(output: &std::process::Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{out}{err}")
}

/// In earlier versions, the server started, and handed out numbers held by the other node's
/// visitors.
#[test]
fn the_data_of_a_node_is_not_served_without_the_cluster() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let servers = cluster.start_both();
    cluster.ask(&mut servers[0].client(), "id");
    for server in servers {
        server.stop();
    }
    let site = &cluster.sites[0];
    let file = site.data().join("cluster-map.json");
    let wanted = [file.to_str().unwrap(), "belongs to a node of a cluster", "--cluster", "--node"];
    let is_said = |said: &str| wanted.iter().all(|words| said.contains(words));
    for flags in [&[][..], &["--durability", "memory"]] {
        let refused = Server::try_start(site.serve(flags)).unwrap_err();
        assert_eq!(refused.code, Some(1));
        assert!(is_said(&refused.log), "{}", refused.log);
        let check = site.serve(&[flags, &["--check"]].concat()).output().unwrap();
        assert_eq!(check.status.code(), Some(1));
        assert!(is_said(&words(&check)), "{}", words(&check));
    }
    // `doctor` accepts the cluster file as `serve` does: as a flag, or as a variable in the
    // environment or in the service's `environment` file.
    let (config, map) = (site.config(), cluster.path("cluster.toml"));
    let doctor = |flags: &[&str]| {
        let mut command = ringwell(&["doctor", "--config", config.to_str().unwrap()]);
        command.args(flags);
        command
    };
    let said = words(&doctor(&[]).output().unwrap());
    assert!(is_said(&said), "{said}");
    let map = map.to_str().unwrap();
    let said = words(&doctor(&["--cluster", map]).output().unwrap());
    assert!(!said.contains("belongs to a node"), "{said}");
    let said = words(&doctor(&[]).env("RINGWELL_CLUSTER", map).output().unwrap());
    assert!(!said.contains("belongs to a node"), "{said}");
    fs::write(config.with_file_name("environment"), format!("RINGWELL_CLUSTER={map}\n")).unwrap();
    let said = words(&doctor(&[]).output().unwrap());
    assert!(!said.contains("belongs to a node"), "{said}");

    // A copy of a node's data belongs to a node, too.
    let restored = cluster.path("restored");
    let restored = restored.to_str().unwrap();
    let done = ringwell(&["restore", site.data().to_str().unwrap(), restored]).output().unwrap();
    assert!(done.status.success(), "{}", words(&done));
    assert!(words(&done).contains("--cluster and --node"), "{}", words(&done));
    let refused = Server::try_start(site.serve(&["--data", restored])).unwrap_err();
    assert!(refused.log.contains("belongs to a node of a cluster"), "{}", refused.log);

    // With the cluster file, all nodes continue.
    let servers = cluster.start_both();
    let rows = cluster.ask(&mut servers[1].client(), "again");
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
}

/// Writes the cluster file in which only node b is left. It gets the number of the other shard too,
/// because shard numbers have no gaps.
fn write_alone(cluster: &Cluster) {
    let link = cluster.path("b.link");
    let alone = format!(
        "version = 2\nsecret = \"{SECRET}\"\nbuckets = [{{ shard = 1, first = 0, last = 1023 }}]\n\
         [[node]]\nname = \"b\"\nshards = [0, 1]\nlink = \"unix:{}\"\n\
         listen = [\"127.0.0.1:8081\"]\n",
        link.display()
    );
    fs::write(cluster.path("alone.toml"), alone).unwrap();
}

/// Tests the documented way to leave a cluster: docs/operations.md, "From a cluster to one
/// machine".
#[test]
fn a_cluster_shrinks_to_one_node_that_keeps_all_lockouts_and_its_own_history() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    let first = cluster.ask(&mut client, "first");
    let mut given = numbers_of(&first);
    let moved = move_buckets(&mut client, "0-511", 1);
    assert_eq!(moved.status, 200, "{}", moved.body);
    for server in servers {
        server.stop();
    }
    write_alone(&cluster);
    let server = Server::start(cluster.command(1, "alone.toml"));
    let mut client = server.client();
    let since = now_ms();
    given.extend(numbers_of(&cluster.ask(&mut client, "second")));
    assert_each_once(given, 2 * first.len());
    for (pool, row) in (1..).zip(&first) {
        let held = attribution(&mut client, row.number, since).unwrap();
        // The visitors' parameters are in the journal of the node that owned the number at that
        // time.
        if Cluster::owner(pool) == 1 {
            assert_eq!(held["parameters"]["id"], format!("first-{pool}"), "{held}");
        } else {
            assert_eq!(held["outcome"], "not_kept", "{held}");
        }
    }
    server.stop();
}

/// If a node hands over its buckets and is then removed, look-ups of its older allocations return
/// `not_kept`.
#[test]
fn history_from_before_a_move_ends_with_the_node_that_is_gone() {
    let lifetime = Duration::from_millis(500);
    let cluster = Cluster::new(1, lifetime);
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    let pool = (1..=POOLS).find(|pool| Cluster::owner(*pool) == 0).unwrap();
    let mut ask = |id| cluster.ask(&mut client, id).swap_remove(usize::try_from(pool).unwrap() - 1);
    let (first, at) = (ask("first").number, now_ms());
    while ask("second").overflow {
        sleep(Duration::from_millis(10));
    }
    assert_eq!(move_buckets(&mut client, "0-511", 1).status, 200);
    for server in servers {
        server.stop();
    }
    write_alone(&cluster);
    let server = Server::start(cluster.command(1, "alone.toml"));
    let held = attribution(&mut server.client(), first, at).unwrap();
    assert_eq!(held["outcome"], "not_kept", "{held}");
    server.stop();
}

/// If the other node's buckets were not moved, its lockouts are lost, so all its pools are held.
#[test]
fn the_pools_of_a_node_that_is_gone_are_held() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let first = cluster.ask(&mut servers[0].client(), "first");
    for server in servers {
        server.stop();
    }
    let alone = format!(
        "version = 2\nsecret = \"{SECRET}\"\n[[node]]\nname = \"a\"\nshards = [0]\n\
         link = \"127.0.0.1:{}\"\nlisten = [\"127.0.0.1:8080\"]\n",
        cluster.port
    );
    fs::write(cluster.path("alone.toml"), alone).unwrap();
    let server = Server::start(cluster.command(0, "alone.toml"));
    let mut client = server.client();
    for (pool, row) in (1..).zip(&cluster.ask(&mut client, "second")) {
        assert_eq!(row.overflow, Cluster::owner(pool) == 1, "{row:?}");
    }
    for (pool, row) in (1..).zip(&first) {
        let held = attribution(&mut client, row.number, now_ms()).unwrap();
        let wanted = if Cluster::owner(pool) == 0 { "allocated" } else { "not_kept" };
        assert_eq!(held["outcome"], wanted, "{held}");
    }
}

#[test]
fn a_node_does_not_start_with_durability_memory() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let mut command = cluster.command(0, "cluster.toml");
    command.args(["--durability", "memory"]);
    let refused = Server::try_start(command).unwrap_err();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("durability `memory`"), "{}", refused.log);
    let mut command = cluster.command(0, "cluster.toml");
    let check = command.args(["--durability", "memory", "--check"]).output().unwrap();
    assert_eq!(check.status.code(), Some(1));
    assert!(words(&check).contains("durability `memory`"), "{}", words(&check));
}
