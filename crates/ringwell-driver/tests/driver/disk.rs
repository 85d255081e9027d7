//! A journal on a disk that fails, is full, or changes what was written.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_driver::store::{
    Access, Draft, FileError, Files, InlineJournal, ReadError, Reader, Settings, ShardStore, Store,
    Unkept, may_lack_groups,
};
use ringwell_journal::{Clocks, Durability, Group, Record, Tip, Writer};
use ringwell_os::OsFiles;
use tempfile::TempDir;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write,
    FlushData,
}

/// The disk; the next call of a kind fails if a test requests it.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Faults>);

#[derive(Debug, Default)]
struct Faults {
    next: Mutex<Option<Call>>,
    error: AtomicI32,
    flushes: AtomicU32,
    moment: AtomicU64,
}

impl Disk {
    fn fail(&self, call: Call, error: i32) {
        *self.0.next.lock().unwrap() = Some(call);
        self.0.error.store(error, Ordering::Relaxed);
    }

    fn call(&self, call: Call) -> Result<(), FileError> {
        if self.0.next.lock().unwrap().take_if(|next| *next == call).is_none() {
            return Ok(());
        }
        let code = self.0.error.load(Ordering::Relaxed);
        let error = io::Error::from_raw_os_error(code);
        let error = FileError::new("write", Path::new("a file"), error);
        Err(FileError { has_no_room: code == ENOSPC, ..error })
    }

    fn flushes(&self) -> u32 {
        self.0.flushes.swap(0, Ordering::Relaxed)
    }
}

type File = <OsFiles as Files>::File;

impl Files for Disk {
    type File = File;

    fn create(&self, path: &Path) -> Result<File, FileError> {
        OsFiles.create(path)
    }

    fn open(&self, path: &Path, access: Access) -> Result<File, FileError> {
        OsFiles.open(path, access)
    }

    fn read_at(&self, file: &File, offset: u64, out: &mut [u8]) -> Result<usize, FileError> {
        OsFiles.read_at(file, offset, out)
    }

    fn write_at(&self, file: &mut File, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.call(Call::Write)?;
        OsFiles.write_at(file, offset, bytes)
    }

    fn flush(&self, file: &File) -> Result<(), FileError> {
        OsFiles.flush(file)
    }

    fn flush_data(&self, file: &File) -> Result<(), FileError> {
        self.0.flushes.fetch_add(1, Ordering::Relaxed);
        self.call(Call::FlushData)?;
        OsFiles.flush_data(file)
    }

    fn set_len(&self, file: &File, len: u64) -> Result<(), FileError> {
        OsFiles.set_len(file, len)
    }

    fn len(&self, file: &File) -> Result<u64, FileError> {
        OsFiles.len(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        OsFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        OsFiles.remove(path)
    }

    fn flush_names(&self, directory: &Path) -> Result<(), FileError> {
        OsFiles.flush_names(directory)
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>, FileError> {
        OsFiles.list(directory)
    }

    fn make_directory(&self, path: &Path) -> Result<(), FileError> {
        OsFiles.make_directory(path)
    }

    fn exists(&self, path: &Path) -> bool {
        OsFiles.exists(path)
    }

    fn mount_of(&self, path: &Path) -> Option<u64> {
        OsFiles.mount_of(path)
    }

    fn random(&self, path: &Path) -> Result<[u8; 16], FileError> {
        OsFiles.random(path)
    }

    fn moment(&self) -> Duration {
        Duration::from_millis(self.0.moment.fetch_add(1, Ordering::Relaxed))
    }
}

/// A journal, and the end of what was given to it.
struct Open {
    disk: Disk,
    journal: InlineJournal<Disk>,
    tip: Tip,
    folder: TempDir,
}

fn open(durability: Durability, segment_bytes: u64) -> Open {
    let (disk, folder) = (Disk::default(), tempfile::tempdir().unwrap());
    let spare_segments = 0;
    let settings = Settings::new(folder.path().into(), durability);
    let settings = Settings { segment_bytes, spare_segments, ..settings };
    let store = ShardStore::open(&disk, &settings, 0).unwrap();
    let recovered = store.recover(None, |_, _| Ok(())).unwrap();
    let (journal, tip) = store.start_inline(recovered).unwrap();
    Open { disk, journal, tip, folder }
}

impl Open {
    fn group(&self) -> Group {
        let at = self.tip.last_at + Millis(1);
        let mut writer = Writer::new(self.tip);
        writer.set_clocks(Clocks { boot: 1, shard_offset: 5, wall_offset: 7 });
        writer.append(&Record::Tick { at });
        writer.seal(Vec::new()).unwrap()
    }

    fn store(&mut self) -> Result<(), FileError> {
        let group = self.group();
        let tip = Tip::after(&group.header);
        self.journal.store(group).map_err(|unstored| unstored.error)?;
        self.tip = tip;
        Ok(())
    }

    fn publish(&self, replay_from: u64, through: u64) -> Result<(), FileError> {
        let mut draft = self.journal.draft(replay_from).unwrap();
        draft.write(b"a snapshot")?;
        assert_eq!(draft.stored(), self.tip.next_n - 1);
        draft.publish(through)
    }
}

#[test]
fn nothing_is_stored_after_a_write_or_a_flush_has_failed() {
    for (durability, call) in [
        (Durability::Disk, Call::Write),
        (Durability::Disk, Call::FlushData),
        (Durability::Os, Call::Write),
        (Durability::Os, Call::FlushData),
    ] {
        let mut it = open(durability, 1 << 20);
        it.store().unwrap();
        it.disk.fail(call, EIO);
        let first = match (durability, call) {
            // Only a snapshot flushes.
            (Durability::Os, Call::FlushData) => {
                it.store().unwrap();
                it.publish(1, 2)
            }
            _ => it.store(),
        };
        assert!(first.is_err_and(|error| !error.is_full()), "{durability:?} {call:?}");
        for _ in 0..3 {
            assert!(it.store().is_err_and(|error| !error.is_full()), "{durability:?} {call:?}");
        }
        let is_published = it.publish(1, it.tip.next_n - 1).is_ok();
        assert_eq!(is_published, durability == Durability::Disk);
        let lacks = may_lack_groups(&OsFiles, it.folder.path(), 1).unwrap();
        assert_eq!(lacks, (durability == Durability::Os).then_some(Unkept::FailedWrite));
    }
}

#[test]
fn a_group_that_a_full_disk_refused_can_be_stored_later() {
    for durability in [Durability::Disk, Durability::Os] {
        let mut it = open(durability, 1 << 20);
        it.disk.fail(Call::Write, ENOSPC);
        assert!(it.store().is_err_and(|error| error.is_full()));
        it.store().unwrap();
        it.store().unwrap();
        let reader = it.journal.reader();
        assert_eq!((reader.read(1).unwrap().header.n, it.journal.next_n()), (1, 3));
        assert!(matches!(reader.read(3), Err(ReadError::NotYet(3))));
    }
}

#[test]
fn a_snapshot_flushes_the_groups_that_were_not_and_covers_only_stored_ones() {
    for (durability, wanted) in [(Durability::Disk, 0), (Durability::Os, 1)] {
        let mut it = open(durability, 1 << 20);
        for _ in 0..3 {
            it.store().unwrap();
        }
        it.disk.flushes();
        assert!(it.publish(1, 4).is_err(), "group 4 is not stored");
        it.publish(1, 3).unwrap();
        assert_eq!(it.disk.flushes(), wanted, "{durability:?}");
    }
}

#[test]
fn a_damaged_part_of_the_history_is_found_with_the_start_of_the_next() {
    let mut it = open(Durability::Os, 128 << 10);
    while std::fs::read_dir(it.journal.directory()).unwrap().count() < 4 {
        it.store().unwrap();
    }
    let (end, reader) = (it.tip.next_n, it.journal.reader());
    assert!(reader.check(1..end).is_ok());
    let noted = reader.noted();
    assert!(noted.len() >= 2, "{noted:?}");
    // The first groups of the segments after the first.
    let mut files: Vec<_> = std::fs::read_dir(it.journal.directory()).unwrap().collect();
    files.sort_by_key(|file| file.as_ref().unwrap().path());
    let path = files[1].as_ref().unwrap().path();
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = bytes.clone();
    for byte in &mut bytes[20_000..21_000] {
        *byte ^= 0xff;
    }
    std::fs::write(&path, &bytes).unwrap();
    let damage = reader.check(1..end).unwrap_err();
    let ReadError::Damaged { n, .. } = damage.error else { panic!("{:?}", damage.error) };
    assert!(damage.next_n > n && damage.next_n < end, "{n}, then {}", damage.next_n);
    assert!(reader.check(damage.next_n..end).is_ok(), "that is in the next file");
    assert!(reader.check(1..n).is_ok());
    assert!(reader.read(damage.next_n - 1).is_ok(), "that is in the same file");
    // The part before the next file is longer than one group.
    assert!(reader.check(n + 1..damage.next_n).is_ok());
    std::fs::write(&path, &whole).unwrap();
    assert!(reader.check(1..end).is_ok());
    // In the newest file there is no next part.
    let path = files.last().unwrap().as_ref().unwrap().path();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4_096 + 64] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damage = reader.check(1..end).unwrap_err();
    let ReadError::Damaged { n, .. } = damage.error else { panic!("{:?}", damage.error) };
    assert!(damage.next_n == end || damage.next_n == n + 1, "{n}, then {}", damage.next_n);
}
