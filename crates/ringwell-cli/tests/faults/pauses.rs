//! Tests a server that is suspended for a while, and clients that are suspended for a while.

use std::thread;
use std::time::Duration;

use super::trial::Trial;

/// The length of a pause. It is longer than a lockout, so that numbers become free during the
/// pause.
const STILL: Duration = Duration::from_millis(2_500);

#[test]
fn a_stopped_server_continues_where_it_was() {
    let mut trial = Trial::new("");
    let server = trial.start();
    trial.load(&server);
    for length in [Duration::from_millis(300), STILL] {
        trial.fault("the server is stopped");
        server.signal("STOP");
        thread::sleep(length);
        server.signal("CONT");
        trial.wait_for_numbers(&server);
        trial.wait_for_answers(30);
    }
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn stopped_clients_lose_only_their_connections_and_no_number_is_lost() {
    let mut trial = Trial::new("limits.write_timeout = \"300ms\"\nlimits.body_timeout = \"300ms\"");
    let server = trial.start();
    trial.load(&server);
    trial.fault("the clients are stopped");
    trial.pause_loads(STILL);
    trial.wait_for_numbers(&server);
    trial.wait_for_answers(30);
    trial.judge(&server).assert_clean();
    server.stop();
}
