//! Simulates power cuts. The server's data is on a separate file system. In a power cut, this file
//! system drops all unflushed data at once, and then fails every operation until it is mounted
//! again.
//!
//! The tests use ext4's shutdown ioctl for this, on a file system in an image file. They need
//! permission to mount file systems and to use a loop device.

use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::support::batch;
use super::support::image::Image;
use super::support::server::Server;
use super::support::site::{Pool, Site};
use super::trial::{Trial, Verdict, can_run, within};

/// The outcome of power cuts.
enum Outcome {
    Judged(Verdict),
    /// The server did not start again, and logged why.
    Refused(String),
}

/// Runs a load with power cuts, and returns the outcome. Returns `None` if the machine does not
/// allow power cuts to be simulated.
fn power_cuts(count: usize, settings: &str) -> Option<Outcome> {
    let folder = TempDir::new().unwrap();
    let disk = Image::mount_new(&folder.path().join("disk"))?;
    let mut trial = Trial::with_data(folder, disk.at.join("data"), settings);
    let outcome = cut_under_load(count, &disk, &mut trial);
    // The disk must be dropped before its mount point is removed.
    drop(disk);
    Some(outcome)
}

fn cut_under_load(count: usize, disk: &Image, trial: &mut Trial) -> Outcome {
    let mut server = trial.start();
    trial.load(&server);
    for _ in 0..count {
        trial.wait_for_answers(100);
        trial.fault("power cut");
        disk.cut_power();
        server.kill();
        disk.mount_again();
        server = match Server::try_start(trial.serve()) {
            Ok(server) => server,
            Err(refused) => return Outcome::Refused(refused.log),
        };
        trial.wait_for_numbers(&server);
    }
    let verdict = trial.judge(&server);
    server.stop();
    Outcome::Judged(verdict)
}

#[test]
fn answered_allocations_survive_power_cuts() {
    match power_cuts(4, "") {
        Some(Outcome::Judged(verdict)) => verdict.assert_clean(),
        Some(Outcome::Refused(log)) => panic!("it does not start again:\n{log}"),
        None => {}
    }
}

/// Shows that the test above would detect a loss: without flushes, such a power cut loses answered
/// allocations.
#[test]
fn allocations_answered_without_a_flush_do_not_survive_a_power_cut() {
    match power_cuts(1, "durability = \"os\"") {
        Some(Outcome::Judged(Verdict(verdict))) => {
            assert!(verdict["violations"]["C2"].as_u64() > Some(0), "{verdict:#}");
            assert_eq!(verdict["violations"]["C1"], Value::Null, "{verdict:#}");
        }
        // The server may also refuse to start. Each new segment is flushed and records how many
        // frames precede it, so the loss is detected.
        Some(Outcome::Refused(log)) => assert!(log.contains("must not be cut"), "{log}"),
        None => {}
    }
}

fn site_without_flushes(folder: &TempDir) -> Option<(Image, Site)> {
    let disk = Image::mount_new(&folder.path().join("disk"))?;
    let settings = "shards = 1\ndurability = \"os\"";
    let pools = vec![Pool::new(1, 99, Duration::from_mins(10))];
    let site = Site::with_data(TempDir::new().unwrap(), disk.at.join("data"), pools, settings);
    Some((disk, site))
}

/// The server must detect that unflushed data was lost. The machine is not rebooted, and the
/// failing disk could not store a record of the failure.
#[test]
fn numbers_answered_without_a_flush_are_held_after_the_file_system_was_mounted_again() {
    let folder = TempDir::new().unwrap();
    let Some((disk, site)) = site_without_flushes(&folder) else { return };
    let server = Server::start(site.serve(&[]));
    let given = |server: &Server| {
        let mut client = server.client();
        let rows = (0..20).map(|row| batch::one(&mut client, &site.pools[0], &row.to_string()));
        rows.filter(|row| !row.overflow).count()
    };
    assert_eq!(given(&server), 20);
    disk.cut_power();
    server.kill();
    disk.mount_again();
    let server = Server::start(site.serve(&[]));
    assert_eq!(given(&server), 0, "{}", server.log());
    server.says("the file system was remounted");
    server.kill();
    drop(disk);
}

/// In containers, and in services with their own mount namespace, each new process has a new mount
/// of the file system. The file system itself stays mounted and keeps the data in its cache, so a
/// kill must not cause a hold.
#[test]
fn a_kill_of_a_process_with_mounts_of_its_own_holds_nothing() {
    if !can_run("unshare", &["-m", "true"], "right to make mounts") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let Some((disk, site)) = site_without_flushes(&folder) else { return };
    let script = "mount --bind \"$0\" \"$0\" && exec \"$@\"";
    let args = ["-m", "sh", "-c", script, disk.at.to_str().unwrap()];
    for _ in 0..3 {
        let server = Server::start(within("unshare", &args, &site.serve(&[])));
        let row = batch::one(&mut server.client(), &site.pools[0], "after");
        assert!(!row.overflow, "{}", server.log());
        server.kill();
    }
    let record = std::fs::read_to_string(site.data().join("unflushed.json")).unwrap();
    assert!(record.contains("\"mount\":"), "{record}");
    drop(disk);
}
