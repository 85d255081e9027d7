//! A wall clock that is set while numbers in the database wait for the end of their lockouts.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::support::batch;
use super::support::client::request;
use super::support::server::Server;
use super::support::site::{Pool, TOKEN};
use super::support::wall::Wall;
use super::{LONG, Managed, Rig, management, range};
use ringwell_store::Leave;

/// A visitor holds a number that is to become the overflow number of another pool. The wall clock
/// leaps ahead by an hour. The visitor's lockout, which has about a minute left, must not end.
fn a_clock_that_leaps_ends_no_lockout(rig: Rig) {
    let pools = [Pool::new(1, 2, LONG), Pool::new(2, 1, LONG)];
    let managed = Managed::new(rig, pools.to_vec());
    let Some(wall) = Wall::new(managed.site.config().with_extension("time")) else { return };
    let server = Server::start(wall.shown_to(managed.site.serve(&[])));
    let mut client = server.client();
    let [from, to] = &pools;
    let held = batch::one(&mut client, from, "the visitor").number;
    batch::one(&mut client, to, "another visitor");
    let leave = |numbers| {
        managed.change(async move |change| change.take_out(&[numbers], Leave::Inventory).await)
    };
    leave(range(held, 1)).unwrap();
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", &*token), ("content-type", "application/json")];
    let wanted = format!("{{\"number\":\"{held}\"}}");
    let mut operator = management(&server);
    operator.send(request("PUT", "/v1/pools/2/overflow", &headers, &wanted).as_bytes()).unwrap();
    let set = operator.receive().unwrap();
    assert!(set.status < 300, "{} {}", set.status, set.body);
    // The server confirms that it no longer hands the number out.
    sleep(Duration::from_secs(2));
    wall.set(3_600);
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(batch::one(&mut client, to, "a third visitor").number, to.overflow);
        sleep(Duration::from_millis(100));
    }
    server.stop();
}

#[test]
fn a_clock_that_leaps_ends_no_lockout_in_sqlite() {
    a_clock_that_leaps_ends_no_lockout(Rig::sqlite());
}

#[test]
fn a_clock_that_leaps_ends_no_lockout_in_postgresql() {
    a_clock_that_leaps_ends_no_lockout(Rig::postgres());
}
