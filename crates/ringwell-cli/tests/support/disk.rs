//! A small disk that a test can fill.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, unmounted at the end.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) at: PathBuf,
}

impl Disk {
    /// Mounts one of `size`, as in `24m`, in `folder`; returns `None` if that is not permitted.
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

    pub(crate) fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a process left over from a failed test may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
