//! A disk that is full, on a small file system of its own.

use super::*;

/// A file system of a given size, or `None` where it cannot be had.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn mount(bytes: usize) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(directory.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { directory });
        }
        eprintln!("skipped: no rights to mount a small file system (run as root)");
        None
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        use std::io::Write;
        let mut ballast = fs::File::create(self.path().join("ballast")).unwrap();
        while ballast.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn on_a_full_disk_the_group_waits_and_is_stored_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let settings = Settings { spare_segments: 1, ..settings(disk.path()) };
    let mut shard = open(&settings);
    let mut groups = vec![shard.store(10)];
    // The spare may or may not be there already: either way room ends after some groups.
    disk.fill();
    let full = loop {
        groups.push(shard.submit(30_000));
        match shard.flushed.recv().unwrap() {
            Flushed::Stored { .. } => {}
            Flushed::Full { n } => break n,
            Flushed::Failed { error, .. } => panic!("{error}"),
        }
    };
    assert_eq!(full, groups.last().unwrap().header.n);
    assert!(shard.journal.stats().full);
    disk.make_room();
    let stored = shard.flushed.recv().unwrap();
    assert!(matches!(stored, Flushed::Stored { n, .. } if n == full));
    assert!(!shard.journal.stats().full);
    groups.push(shard.store(10));
    shard.journal.close().unwrap();
    assert_eq!(open(&settings).seen, groups);
}

#[test]
fn a_start_on_a_full_disk_reports_it_with_the_first_group() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let settings = Settings { spare_segments: 0, ..settings(disk.path()) };
    let mut shard = open(&settings);
    let first = shard.store(10);
    shard.journal.close().unwrap();
    disk.fill();
    let mut shard = open(&settings);
    let second = shard.submit(10);
    assert!(matches!(shard.flushed.recv().unwrap(), Flushed::Full { n: 2 }));
    disk.make_room();
    assert!(matches!(shard.flushed.recv().unwrap(), Flushed::Stored { n: 2, .. }));
    shard.journal.close().unwrap();
    assert_eq!(open(&settings).seen, [first, second]);
}

#[test]
fn closing_does_not_wait_for_room() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let settings = Settings { spare_segments: 0, ..settings(disk.path()) };
    let mut shard = open(&settings);
    shard.store(80_000);
    disk.fill();
    shard.submit(80_000);
    assert!(matches!(shard.flushed.recv().unwrap(), Flushed::Full { n: 2 }));
    assert_eq!(shard.journal.close(), Err(CloseError::Lost(2)));
}
