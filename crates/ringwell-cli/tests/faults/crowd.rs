//! Ten thousand clients at once.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::metrics;
use super::support::batch;
use super::support::client::Client;
use super::support::server::Server;
use super::trial::{Trial, wait_until};

const CROWD: u64 = 10_000;
/// The number of descriptors that each process needs in addition to those for clients.
const OTHERS: u64 = 1_000;

/// Returns the number of clients for which this process has descriptors. First raises this
/// process's limit as far as possible. The server inherits the limit.
fn room() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = CROWD + OTHERS;
    let more = Rlimit { current: Some(wanted), maximum: limit.maximum.map(|it| it.max(wanted)) };
    // Only root may raise the hard limit.
    if setrlimit(Resource::Nofile, more).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    let room = getrlimit(Resource::Nofile).current.unwrap_or(wanted).min(wanted) - OTHERS;
    if room < CROWD {
        println!("SKIPPED in part: descriptors for {room} of {CROWD} connections here");
    }
    room
}

#[test]
fn ten_thousand_kept_connections_are_served_beside_a_load() {
    let room = room();
    let mut trial = Trial::new("");
    let server = Server::start(trial.site.serve(&[]));
    trial.load(&server);
    let opened = metrics::sum(&server, "ringwell_connections_opened_total");
    let pools = trial.site.pools.clone();
    let mut crowd: Vec<Client> = Vec::new();
    for place in 0..room {
        let mut client = Client::connect(server.address()).unwrap();
        // A few clients send a request now. Some of them send another one later, to check that they
        // are still connected.
        if place % 50 == 0 {
            let pool = &pools[usize::try_from(place / 50 % 20).unwrap()];
            assert_ne!(batch::one(&mut client, pool, "crowd").number, 0);
        }
        crowd.push(client);
    }
    wait_until("not all are connected", || {
        metrics::sum(&server, "ringwell_connections_opened_total") >= opened + room
    });
    assert_eq!(metrics::sum(&server, "ringwell_connections_refused_total"), 0);
    trial.wait_for_answers(50);
    for client in crowd.iter_mut().step_by(500) {
        assert_ne!(batch::one(client, &pools[0], "still there").number, 0);
    }
    drop(crowd);
    wait_until("connections are left", || metrics::sum(&server, "ringwell_connections") < OTHERS);
    TcpStream::connect(server.address()).unwrap();
    trial.judge(&server).assert_clean();
    server.stop();
}
