//! Deleted streams: the loss is detected from the remaining streams, from heartbeats, or by the
//! process that serves the streams.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::servers::Nats;
use crate::support::batch::{self, Ask, BULK};
use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::site::{Pool, Site};
use crate::trial::wait_until;

/// Creates a site with two shards, both of which own pools.
pub(crate) fn site(nats: &Nats) -> Site {
    site_with(&format!("shards = 2\n{}", nats.settings()))
}

fn site_with(settings: &str) -> Site {
    let pools = (1..=8).map(|id| Pool::new(id, 40, Duration::from_mins(10)));
    Site::new(pools.collect(), settings)
}

/// Starts a server with its own data directory `name`, as on a separate machine.
pub(crate) fn on_machine(site: &Site, name: &str) -> Server {
    Server::start(command(site, name))
}

fn command(site: &Site, name: &str) -> Command {
    let mut command = site.serve(&["--listen", "127.0.0.1:0"]);
    command.env("RINGWELL_DATA", site.data().with_file_name(name));
    command
}

fn delete_streams(nats: &Nats, shards: &[u16]) {
    for shard in shards {
        for kind in ["", "_snapshots"] {
            nats.publish(&format!("$JS.API.STREAM.DELETE.RINGWELL_{shard}{kind}"), "");
        }
    }
    wait_until("a stream is still there", || {
        shards.iter().all(|shard| !nats.has_stream(&format!("RINGWELL_{shard}")))
    });
}

/// Requests a number from each pool. Checks that the numbers are not in `given`, and adds them to
/// `given`. Returns the count of pools that handed out a number.
pub(crate) fn ask(site: &Site, server: &Server, given: &mut BTreeSet<u64>) -> usize {
    let ask = |pool: &Pool| Ask { pool: pool.id, id: "loss".to_owned() };
    let asks: Vec<Ask> = site.pools.iter().map(ask).collect();
    let body = batch::body(&asks, &site.pools);
    let rows = batch::rows(&server.client().post(BULK, &[], &body).unwrap());
    let numbers = rows.iter().filter(|row| !row.overflow).map(|row| row.number);
    numbers.map(|number| assert!(given.insert(number), "{number} went out twice")).count()
}

#[test]
fn if_the_streams_of_one_shard_are_deleted_a_machine_without_data_holds_its_pools() {
    let Some(nats) = Nats::start(1) else { return };
    let (site, mut given) = (site(&nats), BTreeSet::new());
    let first = on_machine(&site, "first");
    for _ in 0..3 {
        ask_all(&site, &first, &mut given);
    }
    first.kill();
    delete_streams(&nats, &[1]);
    // Kills processes during their startup, when they may not have recorded yet that a stream was
    // lost.
    for after in [0, 100, 200] {
        let mut command = site.serve(&["--listen", "127.0.0.1:0"]);
        command.env("RINGWELL_DATA", site.data().with_file_name(format!("killed{after}")));
        Server::start_and_kill(command, Duration::from_millis(after));
    }
    for name in ["second", "third"] {
        let server = on_machine(&site, name);
        for _ in 0..5 {
            assert_eq!(ask(&site, &server, &mut given), 0, "all pools are held");
        }
        server.kill();
    }
}

#[test]
fn if_all_streams_are_deleted_a_standby_that_has_received_heartbeats_holds_all_pools() {
    let Some(nats) = Nats::start(1) else { return };
    let settings = format!("shards = 2\n{}journal.standby = true\n", nats.settings());
    let (site, mut given) = (site_with(&settings), BTreeSet::new());
    let first = on_machine(&site, "first");
    ask_all(&site, &first, &mut given);
    let waiting = {
        let command = command(&site, "second");
        thread::spawn(|| Server::start(command))
    };
    // Waits long enough for the standby to receive a heartbeat.
    thread::sleep(Duration::from_secs(2));
    delete_streams(&nats, &[0, 1]);
    first.kill();
    let second = waiting.join().unwrap();
    for _ in 0..5 {
        assert_eq!(ask(&site, &second, &mut given), 0, "all pools are held");
    }
    second.kill();
}

#[test]
fn a_process_whose_streams_are_deleted_ends() {
    let Some(nats) = Nats::start(1) else { return };
    let (site, mut given) = (site(&nats), BTreeSet::new());
    let mut server = on_machine(&site, "first");
    ask_all(&site, &server, &mut given);
    delete_streams(&nats, &[0, 1]);
    // The rows of this batch must be stored in a group, which is no longer possible.
    ask(&site, &server, &mut given);
    let status = server.wait(Duration::from_mins(1));
    assert!(status.code().is_some_and(|code| code > 0), "{status}: supervisors start it again");
    assert!(server.log().contains("the log has lost message"), "{}", server.log());
}

#[test]
fn a_shard_that_is_added_and_a_first_start_that_is_killed_hold_nothing() {
    let Some(nats) = Nats::start(1) else { return };
    let site = site(&nats);
    for after in [50, 100, 150, 200, 250] {
        let mut command = site.serve(&["--listen", "127.0.0.1:0"]);
        command.env("RINGWELL_DATA", site.data().with_file_name(format!("killed{after}")));
        Server::start_and_kill(command, Duration::from_millis(after));
    }
    let mut given = BTreeSet::new();
    let server = on_machine(&site, "served");
    ask_all(&site, &server, &mut given);
    server.stop();
    let mut command = site.serve(&["--listen", "127.0.0.1:0", "--shards", "3"]);
    command.env("RINGWELL_DATA", site.data().with_file_name("served"));
    let server = Server::start(command);
    ask_all(&site, &server, &mut given);
    server.stop();
}

/// Repeats [`ask`] until every pool hands out a number in one batch.
pub(crate) fn ask_all(site: &Site, server: &Server, given: &mut BTreeSet<u64>) {
    wait_until("a pool gives no number", || ask(site, server, given) == site.pools.len());
}

fn outcome(client: &mut Client, number: u64) -> String {
    batch::holder(client, number).unwrap()["outcome"].as_str().unwrap().to_owned()
}

#[test]
fn look_ups_of_lost_allocations_are_not_kept_on_every_machine() {
    let Some(nats) = Nats::start(1) else { return };
    let (site, mut given) = (site(&nats), BTreeSet::new());
    let server = on_machine(&site, "first");
    ask_all(&site, &server, &mut given);
    server.kill();
    delete_streams(&nats, &[0, 1]);
    for name in ["first", "second", "third"] {
        let server = on_machine(&site, name);
        let mut client = server.client();
        for number in &given {
            assert_eq!(outcome(&mut client, *number), "not_kept", "{number} on {name}");
        }
        wait_until("the gap is not noted", || nats.notes("RINGWELL_1").contains("ringwell.gaps"));
        server.kill();
        remove(&site.data().with_file_name(name));
    }
}

fn remove(data: &Path) {
    fs::remove_dir_all(data).unwrap();
}
