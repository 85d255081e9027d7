//! Power cuts: a separate file system that, from one moment on, drops all unflushed data, and
//! answers every call with an error until it is mounted again.
//!
//! The shutdown ioctl of ext4 does this to a file system in an image file. It needs the rights to
//! mount and to use a loop device.

use tempfile::TempDir;

use super::support::image::Image;
use super::support::server::Server;
use super::trial::{Trial, Verdict};

/// The result.
enum Outcome {
    Judged(Verdict),
    /// The server did not start again, and logged why.
    Refused(String),
}

/// Load, power cuts, and the checker's verdict; skipped if the machine forbids it.
fn power_cuts(count: usize, settings: &str) -> Option<Outcome> {
    let folder = TempDir::new().unwrap();
    let disk = Image::mount_new(&folder.path().join("disk"))?;
    let mut trial = Trial::with_data(folder, disk.at.join("data"), settings);
    let outcome = cut_under_load(count, &disk, &mut trial);
    // Before its mount point is removed.
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

/// Shows that the test above can fail: without flushes the same cuts lose answers.
#[test]
fn allocations_answered_without_a_flush_do_not_survive_a_power_cut() {
    match power_cuts(1, "durability = \"os\"") {
        Some(Outcome::Judged(Verdict(verdict))) => {
            assert!(verdict["violations"]["C2"].as_u64() > Some(0), "{verdict:#}");
        }
        // A segment that was flushed when it was begun records how many frames came before it.
        Some(Outcome::Refused(log)) => assert!(log.contains("must not be cut"), "{log}"),
        None => {}
    }
}
