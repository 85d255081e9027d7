//! Wall clocks that are wrong at startup and are corrected later. The tests check the numbers and
//! attributions of individual visitors.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::support::batch::{self, one};
use super::support::server::Server;
use super::support::site::{Pool, Site};
use super::support::wall::Wall;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// Creates a site with one pool.
fn site(numbers: u64, lifetime: Duration) -> (Site, Pool) {
    let pool = Pool::new(1, numbers, lifetime);
    (Site::new(vec![pool.clone()], "shards = 1\n"), pool)
}

fn start(site: &Site, wall: &Wall, ahead: i64) -> Server {
    wall.set(ahead);
    Server::start(wall.shown_to(site.serve(&[])))
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// Returns the id of the visitor who held `number` at `at_ms`, the time on a correct clock. If
/// there is no such visitor, returns the outcome of the look-up.
fn named(server: &Server, number: u64, at_ms: u64) -> Value {
    let found = batch::attribution(&mut server.client(), number, at_ms).unwrap();
    let id = found["parameters"]["id"].clone();
    if id.is_null() { found["outcome"].clone() } else { id }
}

#[test]
fn lockouts_survive_a_stop_in_which_the_wall_clock_was_set() {
    for by in [13, HOUR, 20 * HOUR, -HOUR, 40 * DAY] {
        for is_killed in [true, false] {
            let (site, pool) = site(3, Duration::from_mins(2));
            let Some(wall) = Wall::new(site.config().with_extension("time")) else { return };
            let server = start(&site, &wall, 0);
            let mut client = server.client();
            assert!((0..3).all(|row| !one(&mut client, &pool, &format!("{row}")).overflow));
            server.end(is_killed);
            let server = start(&site, &wall, by);
            let again = one(&mut server.client(), &pool, "again");
            assert!(
                again.overflow,
                "{by} s, killed {is_killed}: {again:?} belongs to another \
                visitor"
            );
        }
    }
}

#[test]
fn a_wrong_wall_clock_that_is_corrected_does_not_affect_later_look_ups() {
    for wrong in [HOUR, 10 * HOUR, -30, -HOUR] {
        let (site, pool) = site(1, Duration::from_millis(500));
        let Some(wall) = Wall::new(site.config().with_extension("time")) else { return };
        let server = start(&site, &wall, wrong);
        let mut moments = Vec::new();
        let mut visit = |server: &Server, id: &str| {
            sleep(Duration::from_millis(600));
            let row = one(&mut server.client(), &pool, id);
            assert!(!row.overflow, "{wrong} s: {id}");
            moments.push((id.to_owned(), now_ms()));
        };
        visit(&server, "wrong-1");
        visit(&server, "wrong-2");
        wall.set(0);
        visit(&server, "right-1");
        server.kill();
        let server = start(&site, &wall, 0);
        visit(&server, "right-2");
        // For each visitor, tests the earliest and the latest time at which a call must be
        // attributed to that visitor.
        for (at, (id, moment)) in moments.iter().enumerate() {
            let last = moments.get(at + 1).map_or(now_ms(), |(_, next)| next - 500);
            for moment in [*moment, last] {
                assert_eq!(named(&server, pool.first, moment), *id, "{wrong} s: at {moment}");
            }
        }
    }
}

#[test]
fn one_start_with_a_wrong_clock_destroys_no_history() {
    for wrong in [40 * DAY, 4_000 * DAY] {
        let (site, pool) = site(1, Duration::from_millis(200));
        let Some(wall) = Wall::new(site.config().with_extension("time")) else { return };
        let server = start(&site, &wall, 0);
        let row = one(&mut server.client(), &pool, "first");
        let moment = now_ms();
        assert!(!row.overflow);
        sleep(Duration::from_millis(300));
        assert!(!one(&mut server.client(), &pool, "second").overflow);
        server.stop();
        // Each run is long enough for the server to write new snapshots and then to search for
        // history that is too old.
        for _ in 0..2 {
            let server = start(&site, &wall, wrong);
            sleep(Duration::from_millis(2_500));
            server.stop();
        }
        let server = start(&site, &wall, 0);
        assert_eq!(named(&server, pool.first, moment), "first", "{wrong} s");
    }
}

#[test]
fn a_look_up_for_the_future_is_refused() {
    let (site, pool) = site(1, Duration::from_mins(1));
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    assert!(!one(&mut client, &pool, "now").overflow);
    assert_eq!(named(&server, pool.first, now_ms() + 30_000), "now");
    let refused = batch::attribution(&mut client, pool.first, now_ms() + 90_000).unwrap();
    assert_eq!(refused["status"], 400, "{refused}");
}
