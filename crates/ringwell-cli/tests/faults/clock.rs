//! Changes to the machine's clock, while the server is running and while it is stopped.
//!
//! libfaketime provides a wall clock that the test can set, even while the server runs. A time
//! namespace has a separate boot-time clock, which simulates a reboot of the machine.

use super::support::server::Server;
use super::support::wall::Wall;
use super::trial::{Trial, can_run, wait_until, within};

const HOUR: i64 = 3_600;
const TEN_YEARS: i64 = 87_660 * HOUR;

/// Returns how many seconds a server's wall clock is ahead of the machine's wall clock. Reads the
/// server's time from the log line of a reload.
fn ahead(server: &Server) -> i64 {
    let line: serde_json::Value = serde_json::from_str(&server.reload()).unwrap();
    let logged: jiff::Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
    logged.as_second() - jiff::Timestamp::now().as_second()
}

#[test]
fn setting_the_wall_clock_while_the_server_runs_changes_nothing() {
    let mut trial = Trial::new("");
    let Some(wall) = Wall::new(trial.site.config().with_extension("time")) else { return };
    let server = Server::start(wall.shown_to(trial.serve()));
    trial.load(&server);
    for by in [HOUR, -HOUR, TEN_YEARS, -TEN_YEARS, 0] {
        trial.unnoticed();
        wall.set(by);
        wait_until("the clock is not set", || (ahead(&server) - by).abs() < HOUR / 2);
        trial.wait_for_answers(60);
    }
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn a_wall_clock_set_back_before_a_start_ends_no_lockout_and_closes_no_pool() {
    let mut trial = Trial::new("");
    let Some(wall) = Wall::new(trial.site.config().with_extension("time")) else { return };
    let mut server = Server::start(wall.shown_to(trial.serve()));
    trial.load(&server);
    for by in [-HOUR, -TEN_YEARS, 0] {
        trial.fault("killed, and the wall clock set");
        server.kill();
        wall.set(by);
        server = Server::start(wall.shown_to(trial.serve()));
        assert!((ahead(&server) - by).abs() < HOUR / 2, "the clock is not set");
        trial.wait_for_numbers(&server);
        trial.wait_for_answers(60);
    }
    trial.judge(&server).assert_clean();
    server.stop();
}

/// At startup, a clock that was set ahead looks as if no server had run for a long time. Only the
/// size of the jump distinguishes the two cases.
#[test]
fn a_wall_clock_set_ahead_before_a_start_ends_no_lockout() {
    let mut trial = Trial::new("");
    let Some(wall) = Wall::new(trial.site.config().with_extension("time")) else { return };
    let mut server = Server::start(wall.shown_to(trial.serve()));
    trial.load(&server);
    for by in [TEN_YEARS, 0] {
        trial.fault("killed, and the wall clock set");
        server.kill();
        wall.set(by);
        server = Server::start(wall.shown_to(trial.serve()));
        trial.wait_for_numbers(&server);
        trial.wait_for_answers(60);
    }
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn a_rebooted_machine_has_another_clock_and_the_same_lockouts() {
    let boot = ["--time", "--boottime", "1000000"];
    if !can_run("unshare", &["--time", "--boottime", "1000000", "true"], "time namespace") {
        return;
    }
    let mut trial = Trial::new("");
    let mut server = Server::start(within("unshare", &boot, &trial.serve()));
    trial.load(&server);
    trial.fault("the clock since boot begins anew");
    server.kill();
    server = trial.start();
    trial.wait_for_numbers(&server);
    trial.wait_for_answers(60);
    trial.fault("the clock since boot jumps ahead");
    server.kill();
    server = Server::start(within("unshare", &boot, &trial.serve()));
    trial.wait_for_numbers(&server);
    trial.wait_for_answers(60);
    trial.judge(&server).assert_clean();
    server.stop();
}
