//! A small disk that a test can fill.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A small file system. Dropping this value unmounts it.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) at: PathBuf,
}

impl Disk {
    /// Mounts a disk of the given size, such as `24m`, below `folder`. Returns `None` if mounting
    /// is not permitted.
    pub(crate) fn mount(folder: &Path, size: &str) -> Option<Self> {
        let at = folder.join("disk");
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "ringwell-test"]).arg(&at);
        mount.output().is_ok_and(|done| done.status.success()).then_some(Self { at })
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Uses up all free space.
    pub(crate) fn fill(&self) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [1 << 16, 1 << 12] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    /// Runs `act`. Meanwhile, uses up all space that the server frees.
    pub(crate) fn kept_full<T>(&self, act: impl FnOnce() -> T) -> T {
        let (is_over, until) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(30));
        thread::scope(|scope| {
            self.fill();
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    self.fill();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let done = act();
            is_over.store(true, Ordering::Relaxed);
            done
        })
    }

    pub(crate) fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Unmounts lazily, because a process left over from a failed test may still use the disk.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
