//! A journal on a disk that fails, is full, or changes the bytes that were written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringwell_config::{Config, Durability, demo_pools};
use ringwell_core::Millis;
use ringwell_directory::Directory;
use ringwell_driver::open::{self, Believed, Start};
use ringwell_driver::store::{
    Access, Draft, FileError, Files, InlineJournal, KeptNotes, ReadError, Reader, Settings,
    ShardStore, Store, Unkept, may_lack_groups, read_whole, unreadable_files,
};
use ringwell_engine::Reading;
use ringwell_journal::{Clocks, Group, Record, Tip, Writer};
use ringwell_os::OsFiles;
use tempfile::TempDir;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write,
    /// A write to the beginning of a file.
    WriteHead,
    Flush,
    FlushData,
}

/// The disk. A test can make the next call of a given kind fail.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Faults>);

#[derive(Debug, Default)]
struct Faults {
    next: Mutex<Vec<Call>>,
    /// If not zero, the value of every random byte that is drawn.
    drawn: AtomicU8,
    error: AtomicI32,
    flushes: AtomicU32,
    /// The directories in which the names of files were flushed.
    flushed_names: Mutex<Vec<PathBuf>>,
    moment: AtomicU64,
}

impl Disk {
    fn fail(&self, call: Call, error: i32) {
        self.0.next.lock().unwrap().push(call);
        self.0.error.store(error, Ordering::Relaxed);
    }

    fn call(&self, call: Call) -> Result<(), FileError> {
        let mut next = self.0.next.lock().unwrap();
        let Some(at) = next.iter().position(|next| *next == call) else { return Ok(()) };
        next.remove(at);
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
        self.call(if offset == 0 { Call::WriteHead } else { Call::Write })?;
        OsFiles.write_at(file, offset, bytes)
    }

    fn flush(&self, file: &File) -> Result<(), FileError> {
        self.call(Call::Flush)?;
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
        self.0.flushed_names.lock().unwrap().push(directory.to_owned());
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
        match self.0.drawn.load(Ordering::Relaxed) {
            0 => OsFiles.random(path),
            drawn => Ok([drawn; 16]),
        }
    }

    fn moment(&self) -> Duration {
        Duration::from_millis(self.0.moment.fetch_add(1, Ordering::Relaxed))
    }
}

/// A journal, and the tip after the groups that were stored in it.
struct Open {
    disk: Disk,
    journal: InlineJournal<Disk>,
    tip: Tip,
    folder: TempDir,
}

fn open(durability: Durability, segment_bytes: u64) -> Open {
    open_with(durability, |settings| settings.segment_bytes = segment_bytes)
}

fn open_with(durability: Durability, set: impl FnOnce(&mut Settings)) -> Open {
    let (disk, folder) = (Disk::default(), tempfile::tempdir().unwrap());
    let mut settings = Settings::new(folder.path().into(), durability);
    settings.spare_segments = 0;
    set(&mut settings);
    open_in(disk, folder, &settings).unwrap()
}

fn open_in(disk: Disk, folder: TempDir, settings: &Settings) -> Result<Open, FileError> {
    let store = ShardStore::open(&disk, settings, 0).unwrap();
    let recovered = store.recover(None, |_, _| Ok(())).unwrap();
    let (journal, tip) = store.start_inline(recovered)?;
    Ok(Open { disk, journal, tip, folder })
}

impl Open {
    fn group_after(&self, time: Millis) -> Group {
        let at = self.tip.last_at + time;
        let mut writer = Writer::new(self.tip);
        writer.set_clocks(Clocks { boot: 1, shard_offset: 5, wall_offset: 7 });
        writer.append(&Record::Tick { at });
        writer.seal(Vec::new()).unwrap()
    }

    fn store(&mut self) -> Result<(), FileError> {
        self.store_after(Millis(1))
    }

    fn store_after(&mut self, time: Millis) -> Result<(), FileError> {
        let group = self.group_after(time);
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
pub fn the_end_of_a_journal_flushes_the_groups_that_were_not() {
    for (durability, wanted) in [(Durability::Disk, 0), (Durability::Os, 1)] {
        let mut it = open(durability, 1 << 20);
        it.store().unwrap();
        it.disk.flushes();
        it.journal.into_parts().0.flush().unwrap();
        assert_eq!(it.disk.flushes(), wanted, "{durability:?}");
    }
}

#[test]
pub fn copies_of_old_records_are_flushed_before_the_originals_are_dropped() {
    let (it, firsts) = segments(0, 3);
    for first in &firsts[1..3] {
        it.publish(*first, it.tip.next_n - 1).unwrap();
    }
    let clocks = Clocks { boot: 1, shard_offset: 5, wall_offset: 7 };
    let oldest = it.journal.expired(it.tip.last_at, clocks).unwrap();
    it.disk.flushes();
    let dropped = it.journal.into_parts().0.drop_segment(oldest).unwrap();
    assert_eq!(it.disk.flushes(), 0);
    dropped.put_away().unwrap();
    // The newest segment, which contains the copies, is flushed first.
    assert!(it.disk.flushes() > 0);
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
    // The check also skips intact groups, up to the start of the next file.
    assert!(reader.check(n + 1..damage.next_n).is_ok());
    std::fs::write(&path, &whole).unwrap();
    assert!(reader.check(1..end).is_ok());
    // If the damage is in the newest file, there is no later file from which the check could
    // continue.
    let path = files.last().unwrap().as_ref().unwrap().path();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4_096 + 64] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damage = reader.check(1..end).unwrap_err();
    let ReadError::Damaged { n, .. } = damage.error else { panic!("{:?}", damage.error) };
    assert!(damage.next_n == end || damage.next_n == n + 1, "{n}, then {}", damage.next_n);
}

const SEGMENT: u64 = 128 << 10;

/// Returns a journal with `count` segments and the limit `history_bytes`. Also returns the number
/// of each segment's first group, and then the number of the next group.
fn segments(history_bytes: u64, count: usize) -> (Open, Vec<u64>) {
    let mut it = open_with(Durability::Os, |settings| {
        (settings.segment_bytes, settings.history_bytes) = (SEGMENT, history_bytes);
    });
    let mut firsts = vec![1];
    it.store().unwrap();
    while it.journal.stats().segments < count {
        it.store().unwrap();
        if it.journal.stats().segments > firsts.len() {
            firsts.push(it.tip.next_n - 1);
        }
    }
    firsts.push(it.tip.next_n);
    (it, firsts)
}

#[test]
fn the_oldest_segment_is_dropped_or_a_snapshot_is_due_if_too_much_is_kept() {
    let check = |history_bytes, count, snapshots: &[usize], is_dropped, waits| {
        let (it, firsts) = segments(history_bytes, count);
        for at in snapshots {
            it.publish(firsts[*at], it.tip.next_n - 1).unwrap();
        }
        let clocks = Clocks { boot: 1, shard_offset: 5, wall_offset: 7 };
        let part = it.journal.expired(it.tip.last_at, clocks);
        let found = part.map(|part| (part.first_n, part.next_n));
        let what = format!("{history_bytes} {count} {snapshots:?}");
        assert_eq!(found, Some((1, firsts[1])).filter(|_| is_dropped), "{what}");
        assert_eq!(Store::waits_for_snapshot(&it.journal), waits, "{what}");
    };
    // The only segment is in use.
    check(0, 1, &[], false, false);
    check(0, 1, &[1], false, false);
    // There is no snapshot, or there is one that needs the first segment.
    check(0, 2, &[], false, true);
    check(0, 2, &[0], false, true);
    check(0, 3, &[0, 2], false, true);
    // No snapshot needs the first segment.
    check(0, 3, &[1, 2], true, false);
    check(0, 3, &[2], true, false);
    // The history is as long as its limit, or one byte longer.
    check(2 * SEGMENT, 2, &[], false, false);
    check(2 * SEGMENT, 2, &[1], false, false);
    check(2 * SEGMENT - 1, 2, &[], false, true);
    check(2 * SEGMENT - 1, 2, &[1], true, false);
}

#[test]
fn a_segment_is_in_use_for_an_eighth_of_the_age_of_history_at_most() {
    for (age, wanted) in [(Some(80_000), 4), (Some(800_000), 1), (None, 1)] {
        let mut it = open_with(Durability::Os, |settings| {
            settings.segment_bytes = 1 << 20;
            settings.history_age = age.map(Millis);
        });
        for _ in 0..12 {
            it.store_after(Millis(4_000)).unwrap();
        }
        assert_eq!(it.journal.stats().segments, wanted, "{age:?}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_or_understood_is_not_taken_for_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gaps.json");
    assert_eq!(read_whole(&OsFiles, &path).unwrap(), None);
    assert!(unreadable_files(&OsFiles, folder.path()).is_empty());
    std::fs::write(&path, "no JSON").unwrap();
    assert_eq!(read_whole(&OsFiles, &path).unwrap().unwrap(), b"no JSON");
    let unreadable = unreadable_files(&OsFiles, folder.path());
    assert!(unreadable.len() == 1 && unreadable[0].to_string().contains("gaps.json"));
    assert!(read_whole(&OsFiles, &path.join("inside a file")).is_err());
}

#[test]
fn a_failed_write_is_remembered_in_the_cache_if_nothing_can_be_flushed() {
    let mut it = open(Durability::Os, 1 << 20);
    it.store().unwrap();
    it.disk.fail(Call::Write, EIO);
    it.disk.fail(Call::Flush, EIO);
    it.store().unwrap_err();
    let lacks = may_lack_groups(&OsFiles, it.folder.path(), 1).unwrap();
    assert_eq!(lacks, Some(Unkept::FailedWrite));
}

#[test]
fn a_full_disk_does_not_prevent_a_start_and_leaves_the_end_of_the_journal() {
    for (error, starts) in [(ENOSPC, true), (EIO, false)] {
        let mut it = open(Durability::Disk, 1 << 20);
        it.store().unwrap();
        let settings = Settings::new(it.folder.path().into(), Durability::Disk);
        let settings = Settings { segment_bytes: 1 << 20, spare_segments: 0, ..settings };
        // The second startup begins a segment but stores nothing in it.
        let Open { journal, folder, .. } = it;
        drop(journal);
        let it = open_in(Disk::default(), folder, &settings).unwrap();
        let Open { journal, disk, folder, .. } = it;
        let (directory, id) = (journal.directory().to_owned(), journal.id());
        drop(journal);
        let segments = || numbered(&directory);
        let before = segments();
        assert_eq!(before.len(), 2);
        disk.fail(Call::WriteHead, error);
        match open_in(disk, folder, &settings) {
            Ok(mut it) => {
                assert!(starts);
                assert_eq!(segments(), before);
                assert_eq!(it.journal.id(), id);
                it.store().unwrap();
                assert_eq!(it.journal.next_n(), 3);
            }
            Err(error) => assert!(!starts, "{error}"),
        }
    }
}

/// An earlier process may have been killed after it renamed a file and before the name was durable.
#[test]
pub fn a_startup_makes_the_files_that_it_finds_durable() {
    let mut it = open(Durability::Disk, 1 << 20);
    it.store().unwrap();
    let Open { journal, folder, .. } = it;
    drop(journal);
    let (disk, data) = (Disk::default(), folder.path());
    let settings = Settings::new(data.into(), Durability::Disk);
    let directory = Directory::new(1, demo_pools(1, 3, Millis(60_000)).unwrap(), 1).unwrap();
    let believed = Believed { answer_rows_max: 1, clock_skew_max: Millis::ZERO, boot: 1 };
    let specs = open::specs(directory.pools_of(0));
    let read = open::read(&disk, &settings, 0, &specs, believed).unwrap();
    let flushed = || std::mem::take(&mut *disk.0.flushed_names.lock().unwrap());
    assert_eq!(flushed(), [settings.shard_directory(0)]);
    let since_boot = Millis(1_000_000);
    let start = Start {
        files: &disk,
        settings: &settings,
        directory: &directory,
        reading: Reading { boot: 1, since_boot, wall: Millis(1_700_000_000_000) },
        on_disk: &[0],
        has_log: false,
        noted: &KeptNotes::default(),
        last_owner: None,
        member: None,
        withholds: false,
        only: None,
    };
    open::begin(vec![read], &start).unwrap();
    assert_eq!(flushed()[0], data, "before anything is written");
}

/// The segments' files.
fn numbered(directory: &Path) -> Vec<String> {
    let mut names = OsFiles.list(directory).unwrap();
    names.retain(|name| Path::new(name).extension().is_some_and(|end| end == "rpj"));
    names.sort();
    names
}

#[test]
fn a_check_ends_before_a_group_that_does_not_follow_and_names_the_next_segment() {
    let grown = |ms| {
        let (disk, folder) = (Disk::default(), tempfile::tempdir().unwrap());
        // Equal random values make both journals look alike.
        disk.0.drawn.store(7, Ordering::Relaxed);
        let mut settings = Settings::new(folder.path().into(), Durability::Os);
        (settings.segment_bytes, settings.spare_segments) = (SEGMENT, 0);
        let mut it = open_in(disk, folder, &settings).unwrap();
        let mut firsts = vec![1];
        while firsts.len() < 4 {
            it.store_after(Millis(ms)).unwrap();
            if it.journal.stats().segments > firsts.len() {
                firsts.push(it.tip.next_n - 1);
            }
        }
        (it, firsts)
    };
    let ((one, firsts), (other, others)) = (grown(1), grown(2));
    assert_eq!(firsts, others);
    let (reader, end) = (one.journal.reader(), one.tip.next_n);
    assert!(reader.check(1..end).is_ok());
    let [to, from] = [&one, &other]
        .map(|it| it.journal.directory().join(numbered(it.journal.directory()).swap_remove(1)));
    std::fs::copy(from, to).unwrap();
    let damage = reader.check(1..end).unwrap_err();
    assert!(matches!(damage.error, ReadError::Damaged { n, .. } if n == firsts[1]));
    assert_eq!(damage.next_n, firsts[2]);
    assert!(reader.check(firsts[1]..firsts[2]).is_ok(), "each follows its predecessor");
    // No segment follows the end.
    let damage = reader.check(end..end + 1).unwrap_err();
    assert_eq!(damage.next_n, end + 1);
}

#[test]
fn a_shard_that_keeps_its_history_in_memory_keeps_more_of_it_if_it_has_many_numbers() {
    let history = |numbers, shards| {
        let pools = demo_pools(40, numbers, Millis(60_000)).unwrap();
        let directory = Directory::new(1, pools, shards).unwrap();
        let mut config = Config::new("unused".into(), 1);
        config.durability = Durability::Memory;
        Settings::of(&config, &directory).history_bytes
    };
    assert_eq!(history(1_000, 1), 128 << 20);
    assert_eq!(history(100_000, 1), 4_000_000 * 128);
    assert_eq!(history(100_000, 2), 2_000_000 * 128);
}
