//! Tests the end of a month with a wall clock that the tests set.

use std::time::SystemTime;

use jiff::{Timestamp, ToSpan, tz::TimeZone};

use super::*;
use crate::support::wall::Wall;

/// The time that each test takes before its month ends, in seconds.
const BEFORE_END: i64 = 25;

/// A server whose wall clock shows the last seconds of a month.
struct Month {
    managed: Managed,
    wall: Wall,
    /// The difference between the server's wall clock and the real one, in seconds.
    ahead: i64,
    ends: Instant,
}

impl Month {
    fn start() -> Option<Self> {
        let folder = tempfile::TempDir::new().unwrap().keep();
        let wall = Wall::new(folder.join("clock"))?;
        let now = Timestamp::try_from(SystemTime::now()).unwrap().to_zoned(TimeZone::UTC);
        let next = now.date().first_of_month().saturating_add(1.month());
        let left =
            next.to_zoned(TimeZone::UTC).unwrap().timestamp().duration_since(now.timestamp());
        let ahead = left.as_secs() - BEFORE_END;
        wall.set(ahead);
        let ends = Instant::now() + Duration::from_secs(BEFORE_END.cast_unsigned() + 1);
        let mut managed = Managed::start_with("on", 1, |command| wall.shown_to(command));
        let path = format!("/v1/pools/{}/numbers", managed.pool.id);
        let more = json!({"ranges": ["8885550150-8885550176"]});
        post(&mut managed.operator, &path, &more);
        assert_eq!(managed.size(), SIZE);
        let until = Instant::now() + PATIENCE;
        while managed.get("/state")["numbers"] != SIZE - 1 {
            assert!(Instant::now() < until, "{}", managed.get("/state"));
            thread::sleep(Duration::from_millis(20));
        }
        Some(Self { managed, wall, ahead, ends })
    }

    /// Waits until the month has ended by the server's wall clock, and the server has acted on it.
    fn end(&mut self) {
        thread::sleep(self.ends.saturating_duration_since(Instant::now()) + Duration::from_secs(5));
        // The server has closed the idle connection.
        self.managed.operator = operator(&self.managed.server);
    }

    /// Gives visitors all numbers except five.
    fn visits(&self) {
        let mut client = self.managed.server.client();
        for _ in 0..SIZE - 6 {
            assert!(!batch::one(&mut client, &self.managed.pool, "x").overflow);
        }
    }

    /// Kills the server, changes its data directory with `lose`, and starts the server again.
    fn restart(self, lose: impl FnOnce(&std::path::Path)) -> Self {
        let Self { managed: Managed { site, server, pool, .. }, wall, ahead, ends } = self;
        server.kill();
        lose(site.data());
        let server = Server::start(wall.shown_to(site.serve(&[])));
        let operator = operator(&server);
        Self { managed: Managed { site, server, operator, pool }, wall, ahead, ends }
    }
}

#[test]
fn a_pool_whose_history_was_lost_returns_no_numbers() {
    let Some(month) = Month::start() else { return };
    month.visits();
    let began = now_ms();
    // The server records the name of its data directory in the database within a few seconds.
    thread::sleep(Duration::from_secs(5));
    let mut month = month.restart(|data| std::fs::remove_dir_all(data).unwrap());
    let since = began + u64::try_from(month.ahead).unwrap() * 1000;
    let path = format!("/v1/pools/{}/unused?since_ms=", month.managed.pool.id);
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str())];
    let refused = month.managed.operator.post(&format!("{path}{since}"), &headers, "").unwrap();
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("may be lost"), "{}", refused.body);
    let mut month = month.restart(|_| {});
    month.end();
    assert_eq!(month.managed.size(), SIZE);
    month.managed.server.says("return no unused numbers this month");
    // The pool's records are complete from the end of the hold on.
    let later = since + 10_000;
    let path = format!("{path}{later}&dry_run=true");
    let given = post(&mut month.managed.operator, &path, &Value::Null);
    assert_eq!(given["after"], SIZE / 10, "{given}");
}

#[test]
fn a_month_ends_after_a_restart_but_not_when_the_wall_clock_leaps() {
    let Some(month) = Month::start() else { return };
    month.visits();
    month.wall.set(month.ahead + 35 * 86_400);
    thread::sleep(Duration::from_secs(5));
    let mut month = month.restart(|_| {});
    assert_eq!(month.managed.size(), SIZE);
    month.wall.set(month.ahead);
    month.end();
    assert_eq!(month.managed.size(), SIZE - 5);
}

#[test]
fn a_server_that_stores_nothing_does_not_know_what_was_used_before_it_started() {
    let in_memory = |mut command: Command| {
        command.args(["--durability", "memory"]);
        command
    };
    let mut managed = Managed::start_with("off", 1, in_memory);
    let path = format!("/v1/pools/{}/unused?since_ms=", managed.pool.id);
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str())];
    let refused = managed.operator.post(&format!("{path}1"), &headers, "").unwrap();
    assert_eq!(refused.status, 409, "{}", refused.body);
    post(&mut managed.operator, &format!("{path}{}", now_ms()), &Value::Null);
    managed.server.stop();
}
