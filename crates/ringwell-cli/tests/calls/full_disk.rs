//! Calls while the call log's disk is full: they are answered at once, and stored as soon as the
//! disk has free space.
//!
//! The tests need permission to mount a small file system. Without it, they print a message and are
//! skipped.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::phone::{Phone, Provider};
use super::support::disk::Disk;
use super::support::server::Server;
use super::support::site::{Pool, Site};
use super::{LIFETIME, Switchboard};

const PATIENCE: Duration = Duration::from_secs(15);

/// Starts a switchboard with its call log on a small disk.
fn board_on_small_disk() -> Option<(Switchboard, Disk)> {
    let folder = TempDir::new().unwrap();
    let Some(disk) = Disk::mount(folder.path(), "6m") else {
        println!("SKIPPED: no right to mount a small file system here");
        return None;
    };
    let at = disk.at.display();
    let calls = format!("[calls]\ndatabase = \"sqlite:{at}/calls.sqlite\"\n");
    let settings = Phone::settings().replace("[calls]\n", &calls);
    let settings =
        format!("{settings}\n[[calls.destination]]\nring_pools = [16]\nto = [\"+18005550199\"]\n");
    let data = folder.path().join("data");
    let site = Site::with_data(folder, data, vec![Pool::new(16, 10, LIFETIME)], &settings);
    Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let phone = Phone::at(&server);
    Some((Switchboard { site, server, phone }, disk))
}

impl Switchboard {
    /// Makes calls and checks that all of them are connected. Returns their ids.
    fn ring(&self, names: std::ops::Range<usize>) -> BTreeSet<String> {
        let number = self.visitor("17");
        let twilio = Provider::twilio(&self.phone);
        let ring = |place: usize| {
            let name = format!("CA{place}");
            let form = format!("CallSid={name}&From=%2B14155551234&To=%2B1{number}");
            let answer = twilio.post("/t/main/answer", &form);
            assert_eq!(answer.status, 200, "{}", answer.body);
            name
        };
        names.map(ring).collect()
    }

    /// Waits until the call log contains all calls whose ids are in `names`.
    fn has(&self, names: &BTreeSet<String>) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.get("/v1/calls?limit=1000");
            if answer.status == 200 {
                let calls = answer.json();
                let calls = calls["calls"].as_array().unwrap();
                let found = calls.iter().map(|it| it["provider_call_id"].as_str().unwrap());
                if *names == found.map(str::to_owned).collect() {
                    return;
                }
            }
            assert!(Instant::now() < until, "{}: {}", answer.body, self.server.log());
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn calls_of_a_full_disk_are_stored_when_there_is_room() {
    let Some((board, disk)) = board_on_small_disk() else { return };
    let mut calls = board.ring(0..1);
    disk.fill();
    calls.append(&mut board.ring(1..21));
    let log = board.server.log();
    let lines = log.lines().filter(|line| line.contains("calls are not stored yet")).count();
    assert!(lines == 1, "{log}");
    let line = log.lines().find(|line| line.contains("calls are not stored yet")).unwrap();
    assert!(line.contains("/calls.sqlite") && line.contains("free some space"), "{line}");
    disk.make_room();
    board.has(&calls);
    board.server.stop();
}

#[test]
fn a_server_starts_while_the_disk_of_its_call_log_is_full() {
    let Some((mut board, disk)) = board_on_small_disk() else { return };
    let mut calls = board.ring(0..1);
    board.server.stop();
    disk.fill();
    board.server = Server::start(board.site.serve(&[]));
    board.phone = Phone::at(&board.server);
    calls.append(&mut board.ring(1..11));
    disk.make_room();
    board.has(&calls);
    board.server.stop();
}

#[test]
fn calls_of_a_full_disk_are_stored_at_an_orderly_stop() {
    let Some((mut board, disk)) = board_on_small_disk() else { return };
    let mut calls = board.ring(0..1);
    disk.fill();
    calls.append(&mut board.ring(1..11));
    disk.make_room();
    board.server.stop();
    board.server = Server::start(board.site.serve(&[]));
    board.has(&calls);
}
