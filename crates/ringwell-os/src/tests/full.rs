//! Tests with a full disk, which is a small separate file system.

use super::*;

/// A mounted file system of limited size.
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

    /// Uses up all free space.
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
    // The space is used up after some groups, whether or not the spare segment exists yet.
    disk.fill();
    let full = loop {
        groups.push(shard.group(30_000));
        match shard.append(groups.last().unwrap()) {
            Appended::Stored { .. } => {}
            Appended::Full { group, .. } => break group,
            Appended::Taken { .. } | Appended::Failed(_) => panic!(),
        }
    };
    assert_eq!(full, *groups.last().unwrap());
    assert!(matches!(shard.append(&full), Appended::Full { group, .. } if group == full));
    assert!(shard.journal.stats().full);
    disk.make_room();
    assert!(matches!(shard.append(&full), Appended::Stored { .. }));
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
    let second = shard.group(10);
    assert!(matches!(shard.append(&second), Appended::Full { .. }));
    disk.make_room();
    assert!(matches!(shard.append(&second), Appended::Stored { .. }));
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
    let group = shard.group(80_000);
    assert!(matches!(shard.append(&group), Appended::Full { .. }));
    shard.journal.close().unwrap();
}
