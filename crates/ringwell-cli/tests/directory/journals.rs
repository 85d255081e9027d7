//! A server whose data directory differs from the one that the database has recorded for it.

use super::support::batch;
use super::support::server::Server;
use super::support::site::Pool;
use super::{LONG, Managed, Rig, now, soon};

fn is_overflow(managed: &Managed, server: &Server) -> bool {
    batch::one(&mut server.client(), &managed.site.pools[0], "after").overflow
}

/// Waits until the data directory's name in the database differs from `before`, and returns the new
/// name.
fn named(managed: &Managed, before: Option<&str>) -> String {
    let journal = || managed.runtime.block_on(managed.store.journal("the only node")).unwrap();
    soon("the name of the data directory", || {
        let name = journal();
        name.is_some() && name.as_deref() != before
    });
    journal().unwrap()
}

fn a_lost_disk_is_noticed(rig: Rig) {
    let managed = Managed::new(rig, vec![Pool::new(1, 3, LONG)]);
    let server = managed.start();
    assert!(!is_overflow(&managed, &server), "a first start holds nothing");
    let first = named(&managed, None);
    server.kill();
    std::fs::remove_dir_all(managed.site.data()).unwrap();
    let server = managed.start();
    assert!(is_overflow(&managed, &server), "{}", server.log());
    assert!(
        server.log().contains("this node used a different data directory before"),
        "{}",
        server.log()
    );
    named(&managed, Some(&first));
    server.kill();
    // The hold is now recorded in the journal, so a restart continues it and does not begin a new
    // one.
    let server = managed.start();
    assert!(is_overflow(&managed, &server));
    assert!(!server.log().contains("used a different data directory before"), "{}", server.log());
    server.stop();
}

#[test]
fn sqlite_detects_a_lost_disk() {
    a_lost_disk_is_noticed(Rig::sqlite());
}

#[test]
fn postgres_detects_a_lost_disk() {
    a_lost_disk_is_noticed(Rig::postgres());
}

/// When a single server becomes a node of a cluster, its former name must be removed from the
/// database. Otherwise, numbers that leave a pool would stay unusable, because no server with that
/// name would ever confirm the change.
#[test]
fn a_single_server_that_becomes_a_node_of_a_cluster_is_forgotten_and_a_live_node_is_not() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 3, LONG)]);
    let server = managed.start();
    named(&managed, None);
    server.stop();
    let cluster = managed.site.config().with_file_name("cluster.toml");
    let map = "version = 1\nsecret = \"a-secret-of-tests-0123456789abcdef\"\n\n[[node]]\n\
               name = \"a\"\nlink = \"unix:SOCKET\"\nlisten = [\"127.0.0.1:9\"]\nshards = [0, 1]\n";
    let socket = cluster.with_file_name("a.sock");
    std::fs::write(&cluster, map.replace("SOCKET", socket.to_str().unwrap())).unwrap();
    let flags = ["--cluster", cluster.to_str().unwrap(), "--node", "a"];
    let server = Server::start(managed.site.serve(&flags));
    let nodes = || {
        let nodes = managed.runtime.block_on(managed.store.nodes()).unwrap();
        nodes.into_iter().map(|node| node.name).collect::<Vec<_>>()
    };
    soon("only the node a", || nodes() == ["a"]);
    let forgotten = managed.runtime.block_on(managed.store.forget_node("a", "a test", now()));
    assert!(forgotten.unwrap());
    soon("the node a again", || nodes() == ["a"]);
    let journal = || managed.runtime.block_on(managed.store.journal("a")).unwrap();
    soon("the name of its data directory again", || journal().is_some());
    server.stop();
}

#[test]
fn a_second_server_does_not_serve_the_pools_of_a_sqlite_directory() {
    let managed = Managed::new(Rig::sqlite(), vec![Pool::new(1, 3, LONG)]);
    let server = managed.start();
    let elsewhere = tempfile::TempDir::new().unwrap();
    let mut second = managed.site.serve(&["--data"]);
    let output = second.arg(elsewhere.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("another server keeps its ring pools in"), "{said}");
    assert!(!is_overflow(&managed, &server));
    server.kill();
    managed.start().stop();
}

/// Data that is not stored cannot be lost, so the name of the data directory is not recorded.
#[test]
fn a_server_without_stored_data_records_no_data_directory() {
    let rig = Rig::sqlite();
    let managed = Managed::with(
        rig,
        vec![Pool::new(1, 3, LONG)],
        "durability = \"memory\"\nmanagement.address = \"127.0.0.1:0\"",
    );
    let server = managed.start();
    assert!(!is_overflow(&managed, &server));
    std::thread::sleep(std::time::Duration::from_secs(3));
    let journal = managed.runtime.block_on(managed.store.journal("the only node")).unwrap();
    assert_eq!(journal, None);
    server.stop();
}
