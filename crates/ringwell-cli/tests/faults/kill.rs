//! A killed server, and clients that repeat batches whose answers were lost.

use super::trial::Trial;

#[test]
fn a_server_that_is_killed_under_load_is_judged_clean() {
    let mut trial = Trial::new("");
    let mut server = trial.start();
    trial.load(&server);
    for _ in 0..3 {
        trial.fault("kill -9");
        server.kill();
        server = trial.start();
        trial.wait_for_numbers(&server);
        trial.wait_for_answers(30);
    }
    trial.judge(&server).assert_clean();
    server.stop();
}
