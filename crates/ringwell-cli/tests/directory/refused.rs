//! A PostgreSQL server that answers but refuses changes: a demoted primary, or a server on which
//! another change takes a long time.

use std::thread;
use std::time::Duration;

use super::support::client::HttpAnswer;
use super::support::server::Server;
use super::support::site::{Pool, TOKEN};
use super::{LONG, Managed, Rig, management, now};

fn new_key(server: &Server) -> HttpAnswer {
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", &*token), ("content-type", "application/json")];
    management(server).post("/v1/pools/1/key", &headers, "{}").unwrap()
}

#[test]
fn a_read_only_database_is_named_until_it_takes_changes_again() {
    let managed = Managed::new(Rig::postgres(), vec![Pool::new(1, 3, LONG)]);
    let server = managed.start();
    let (name, _) = managed.database();
    let set = |change: &str| {
        managed.execute("postgres", &format!("ALTER DATABASE {name} {change}"));
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";
        managed.execute("postgres", &format!("{others} '{name}'"));
    };
    set("SET default_transaction_read_only = on");
    server.says("the directory's database cannot be changed");
    for _ in 0..10 {
        let answer = new_key(&server);
        assert_eq!(answer.status, 503, "{}", answer.body);
        let wanted = "the directory's database is read-only: set the address of the primary server";
        assert!(answer.body.contains(wanted), "{}", answer.body);
        thread::sleep(Duration::from_millis(500));
    }
    let again = "the directory's database is available again";
    assert!(!server.log().contains(again), "{}", server.log());
    set("RESET default_transaction_read_only");
    server.says(again);
    assert_eq!(new_key(&server).status, 200);
}

#[test]
fn a_user_without_the_right_to_write_is_named() {
    let managed = Managed::new(Rig::postgres(), vec![Pool::new(1, 3, LONG)]);
    let server = managed.start();
    let (name, _) = managed.database();
    let reader = format!("{name}_reader");
    managed.execute("postgres", &format!("CREATE ROLE \"{reader}\""));
    let grant = format!("GRANT SELECT ON ALL TABLES IN SCHEMA public TO \"{reader}\"");
    managed.execute(&name, &grant);
    let set = |change: &str| {
        managed.execute("postgres", &format!("ALTER DATABASE {name} {change}"));
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";
        managed.execute("postgres", &format!("{others} '{name}'"));
    };
    // A connection that PostgreSQL has just ended fails once.
    let answers = || (0..3).map(|_| new_key(&server));
    set(&format!("SET role = '{reader}'"));
    assert!(answers().any(|it| it.status == 503 && it.body.contains("lacks a right")));
    set("RESET role");
    assert!(answers().any(|answer| answer.status == 200));
}

#[test]
fn a_change_that_waits_for_another_node_s_change_is_asked_to_come_again() {
    let managed = Managed::new(Rig::postgres(), vec![Pool::new(1, 3, LONG)]);
    let server = managed.start();
    // An import through another node takes a long time.
    let other = managed.runtime.block_on(managed.store.change("another node", now())).unwrap();
    let answer = new_key(&server);
    managed.runtime.block_on(async {
        drop(other);
        // The connection rolls the change back after it is dropped.
        tokio::time::sleep(Duration::from_millis(500)).await;
    });
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.contains("another change of the directory"), "{}", answer.body);
    assert!(!answer.body.contains("does not answer"), "{}", answer.body);
    assert!(answer.headers.iter().any(|(name, _)| name == "retry-after"), "{:?}", answer.headers);
    assert_eq!(new_key(&server).status, 200);
    assert!(!server.log().contains("cannot be read"), "{}", server.log());
}
