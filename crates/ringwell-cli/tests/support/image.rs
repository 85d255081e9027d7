//! A disk in a file: an ext4 file system that can simulate a power cut.
//!
//! After a power cut, unflushed data is lost, and every operation fails until the file system is
//! mounted again. The shutdown ioctl of ext4 simulates the power cut. The tests need permission to
//! mount file systems and to use a loop device.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The time within which programs that used the disk must end.
const PATIENCE: Duration = Duration::from_mins(1);

const IMAGE_BYTES: u64 = 512 << 20;

/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`, from linux/fs/ext4/ext4.h.
const CUT: &str = "import fcntl,os,struct,sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// An ext4 file system in a file. Dropping this value unmounts it.
#[derive(Debug)]
pub(crate) struct Image {
    image: PathBuf,
    pub(crate) at: PathBuf,
}

/// Lets the command find programs for administrators, which are in directories that may be missing
/// from `PATH`.
fn administrator(command: &mut Command) -> &mut Command {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", path)
}

fn succeeds(command: &mut Command) -> bool {
    administrator(command).output().is_ok_and(|done| done.status.success())
}

impl Image {
    /// Creates and mounts a disk. Prints a message and returns `None` if mounting is not permitted.
    pub(crate) fn mount_new(at: &Path) -> Option<Self> {
        let disk = Self { image: at.with_extension("image"), at: at.to_owned() };
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

    fn has_loop_device(&self) -> bool {
        let listed = administrator(Command::new("losetup").arg("-j").arg(&self.image)).output();
        listed.is_ok_and(|listed| !listed.stdout.is_empty())
    }

    /// Cuts the power, so that unflushed data is lost.
    pub(crate) fn cut_power(&self) {
        assert!(succeeds(Command::new("python3").args(["-c", CUT]).arg(&self.at)));
    }

    /// Mounts the disk again, as a machine does when its power returns.
    pub(crate) fn mount_again(&self) {
        let until = Instant::now() + PATIENCE;
        let wait = |what| {
            assert!(Instant::now() < until, "{what}");
            thread::sleep(Duration::from_millis(20));
        };
        while !succeeds(Command::new("umount").arg(&self.at)) {
            wait("it cannot be unmounted");
        }
        // Another test's process may have copied this mount with `unshare -m`. Until that process
        // ends, the file system stays shut down, and a new mount would be the same file system.
        while self.has_loop_device() {
            wait("its loop device stays attached");
        }
        assert!(self.mount(), "it cannot be mounted again");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Unmounts lazily, because a process left over from a failed test may still use the disk.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}
