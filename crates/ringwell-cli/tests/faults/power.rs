//! Power cuts: a separate file system that, from one moment on, drops all unflushed data, and
//! answers every call with an error until it is mounted again.
//!
//! The shutdown ioctl of ext4 does this to a file system in an image file. It needs the rights to
//! mount and to use a loop device.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::support::server::Server;
use super::trial::{Trial, Verdict, wait_until};

const IMAGE_BYTES: u64 = 512 << 20;

/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`, linux/fs/ext4/ext4.h.
const CUT: &str = "import fcntl,os,struct,sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// An ext4 file system in a file, unmounted at the end.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

/// The result.
enum Outcome {
    Judged(Verdict),
    /// The server did not start again, and logged why.
    Refused(String),
}

fn succeeds(command: &mut Command) -> bool {
    // Administrators' programs may be outside of the path.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", path).output().is_ok_and(|done| done.status.success())
}

impl Disk {
    /// Creates and mounts one; prints a message and returns nothing if that is not permitted.
    fn mount_new(folder: &Path) -> Option<Self> {
        let disk = Self { image: folder.join("image"), at: folder.join("disk") };
        std::fs::create_dir(&disk.at).unwrap();
        File::create(&disk.image).unwrap().set_len(IMAGE_BYTES).unwrap();
        let made = succeeds(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.image));
        if made && disk.mount() && succeeds(Command::new("python3").args(["-c", "import fcntl"])) {
            return Some(disk);
        }
        println!("SKIPPED: no permission to mount an ext4 image here, or no python3");
        None
    }

    fn mount(&self) -> bool {
        succeeds(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.at))
    }

    /// Unflushed data are lost.
    fn cut_power(&self) {
        assert!(succeeds(Command::new("python3").args(["-c", CUT]).arg(&self.at)));
    }

    /// The power is back.
    fn mount_again(&self) {
        wait_until("it cannot be unmounted", || succeeds(Command::new("umount").arg(&self.at)));
        assert!(self.mount(), "it cannot be mounted again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a process left over from a failed test may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

/// Load, power cuts, and the checker's verdict; skipped if the machine forbids it.
fn power_cuts(count: usize, settings: &str) -> Option<Outcome> {
    let folder = TempDir::new().unwrap();
    let disk = Disk::mount_new(folder.path())?;
    let mut trial = Trial::with_data(folder, disk.at.join("data"), settings);
    let outcome = cut_under_load(count, &disk, &mut trial);
    // Before its mount point is removed.
    drop(disk);
    Some(outcome)
}

fn cut_under_load(count: usize, disk: &Disk, trial: &mut Trial) -> Outcome {
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
        // A segment that was flushed when it was begun knows how many frames came before.
        Some(Outcome::Refused(log)) => assert!(log.contains("must not be cut"), "{log}"),
        None => {}
    }
}
