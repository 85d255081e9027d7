//! Durability `memory` with a data directory that other servers use, and journals that were written
//! for another data directory.

use std::fs;
use std::path::Path;

use super::support::batch::attribution;
use super::support::server::ringwell;
use super::*;

const MEMORY: [&str; 2] = ["--durability", "memory"];

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// In earlier versions, the second server started, and handed out the numbers that the first one
/// had locked.
#[test]
fn a_server_in_memory_does_not_start_beside_one_on_disk() {
    let site = Site::new(pools(1, 3, LONG), "");
    let server = Server::start(site.serve(&[]));
    let said = refused(&site, &MEMORY).log;
    assert!(said.contains(&format!("in use by process {}", server.pid())), "{said}");
    server.stop();
    let server = Server::start(site.serve(&MEMORY));
    let said = refused(&site, &[]).log;
    assert!(said.contains(&format!("in use by process {}", server.pid())), "{said}");
    server.stop();
}

#[test]
fn a_server_in_memory_creates_no_data_directory() {
    let site = Site::new(pools(1, 3, LONG), "");
    Server::start(site.serve(&MEMORY)).stop();
    assert!(!site.data().exists());
}

/// In earlier versions, look-ups on the next server with journals on disk returned visitors from
/// before the in-memory run. That server also handed out numbers that visitors had received during
/// that run.
#[test]
fn after_a_run_in_memory_all_pools_are_held_and_look_ups_of_its_time_name_no_one() {
    let lifetime = Duration::from_secs(2);
    let site = Site::new(pools(1, 1, lifetime), "");
    let ask = |server: &Server, id: &str| batch::one(&mut server.client(), &site.pools[0], id);
    let server = Server::start(site.serve(&[]));
    let number = ask(&server, "on-disk").number;
    server.stop();
    thread::sleep(lifetime);
    let server = Server::start(site.serve(&MEMORY));
    assert!(!ask(&server, "in-memory").overflow);
    let second = now_ms();
    server.stop();
    // The in-memory server wrote no record. If it had been killed, the files would be the same.
    let server = Server::start(site.serve(&[]));
    assert!(ask(&server, "held").overflow);
    let mut client = server.client();
    let held = attribution(&mut client, number, second).unwrap();
    assert_eq!(held["outcome"], "not_kept", "{held}");
    let log = server.stop();
    assert!(log.contains("with durability `memory`"), "{log}");
    assert!(!Server::start(site.serve(&[])).stop().contains("with durability `memory`"));
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

#[test]
fn a_journal_that_the_data_directory_did_not_write_causes_a_warning() {
    let ours = Site::new(pools(8, 5, LONG), "shards = 2");
    let other = Site::new(pools(8, 5, LONG), "shards = 3");
    for site in [&ours, &other] {
        let server = Server::start(site.serve(&[]));
        for pool in &site.pools {
            batch::one(&mut server.client(), pool, "id");
        }
        server.stop();
    }
    copy(&other.data().join("journal/2"), &ours.data().join("journal/2"));
    let journal = ours.data().join("journal/2");
    let config = ours.config();
    let doctor = ringwell(&["doctor", "--config", config.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(doctor.stdout).unwrap();
    let words = format!("{} is not a journal that this data directory wrote", journal.display());
    assert!(said.contains(&words), "{said}");
    let log = Server::start(ours.serve(&[])).stop();
    assert!(log.contains("did not write") && log.contains(journal.to_str().unwrap()), "{log}");
    // Former shards of this installation are not reported.
    let log = Server::start(other.serve(&["--shards", "2"])).stop();
    assert!(!log.contains("did not write"), "{log}");
}

/// In earlier versions, `verify`, `backup` and `restore` called such a directory sound, although
/// no server starts with it.
#[test]
fn a_journal_in_the_directory_of_another_shard_is_damage() {
    let site = Site::new(pools(1, 1, LONG), "shards = 2");
    Server::start(site.serve(&[])).stop();
    let data = site.data().to_str().unwrap();
    let verify = || ringwell(&["journal", "verify", data]).output().unwrap();
    assert!(verify().status.success());
    copy(&site.data().join("journal/1"), &site.data().join("journal/2"));
    let log = refused(&site, &[]).log;
    assert!(log.contains("it belongs to shard 1"), "{log}");
    let found = verify();
    assert_eq!(found.status.code(), Some(1));
    let said = String::from_utf8(found.stdout).unwrap();
    assert!(said.contains("journal/2") && said.contains("belongs to shard 1"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let [to, restored] = ["backup", "restored"].map(|name| folder.path().join(name));
    let to = to.to_str().unwrap();
    let backup = ringwell(&["backup", "--data", data, "--to", to]).output().unwrap();
    assert_eq!(backup.status.code(), Some(1), "{backup:?}");
    let restored = restored.to_str().unwrap();
    let restore = ringwell(&["restore", data, restored]).output().unwrap();
    assert_eq!(restore.status.code(), Some(1), "{restore:?}");
    // One shard's directory may be a copy with any name.
    fs::rename(site.data().join("journal/2"), folder.path().join("7")).unwrap();
    let alone = folder.path().join("7");
    let found = ringwell(&["journal", "verify", alone.to_str().unwrap()]).output().unwrap();
    assert!(found.status.success(), "{found:?}");
}
