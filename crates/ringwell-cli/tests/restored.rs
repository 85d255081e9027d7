//! A data directory that was put back from a copy, on one machine: what was answered since the copy
//! was made is in no journal.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::batch;
use support::server::{Server, ringwell};
use support::site::{Pool, Site};

const LONG: Duration = Duration::from_mins(1);

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// A site, a copy of its data, and the numbers that went out since the copy.
fn site_with_copy() -> (Site, tempfile::TempDir, u64) {
    let site = Site::new(vec![Pool::new(1, 3, LONG)], "shards = 1");
    let server = Server::start(site.serve(&[]));
    batch::one(&mut server.client(), &site.pools[0], "before");
    server.stop();
    let folder = tempfile::TempDir::new().unwrap();
    copy(site.data(), &folder.path().join("copy"));
    let server = Server::start(site.serve(&[]));
    let row = batch::one(&mut server.client(), &site.pools[0], "since");
    assert!(!row.overflow);
    server.kill();
    std::fs::remove_dir_all(site.data()).unwrap();
    (site, folder, row.number)
}

fn is_overflow(server: &Server, site: &Site) -> bool {
    batch::one(&mut server.client(), &site.pools[0], "after").overflow
}

#[test]
fn a_copy_that_is_served_as_restored_hands_out_nothing_for_a_lifetime() {
    let (site, folder, _) = site_with_copy();
    copy(&folder.path().join("copy"), site.data());
    let server = Server::start(site.serve(&["--restored"]));
    assert!(is_overflow(&server, &site));
    assert!(server.log().contains("restored from a copy"), "{}", server.log());
    server.kill();
    // The hold is in the journal now; it does not begin again.
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    assert!(!server.log().contains("restored from a copy"), "{}", server.log());
}

#[test]
fn the_command_restore_brings_a_copy_back_so_that_the_next_start_holds_all_pools() {
    let (site, folder, _) = site_with_copy();
    let (data, copy) = (site.data().to_str().unwrap(), folder.path().join("copy"));
    let restore = || ringwell(&["restore", copy.to_str().unwrap(), data]).output().unwrap();
    let done = restore();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
    server.stop();
    let again = restore();
    assert_eq!(again.status.code(), Some(1), "what is there is not replaced");
}

#[test]
fn a_data_directory_whose_journal_was_removed_holds_all_pools() {
    let (site, folder, _) = site_with_copy();
    copy(&folder.path().join("copy"), site.data());
    std::fs::remove_dir_all(site.data().join("journal")).unwrap();
    let server = Server::start(site.serve(&[]));
    assert!(is_overflow(&server, &site));
}
