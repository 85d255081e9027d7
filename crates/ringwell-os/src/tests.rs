//! Tests that use real files in a temporary directory. No test sleeps for a fixed time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_core::Position;
use ringwell_directory::{BucketHolds, Owner};
use ringwell_driver::store::{
    Appended, Draft, Identity, OpenError, ReadError, Reader, ServedMap, Settings, Store, WriteMode,
    WrittenJournal, is_restored, mark_restored, unmark_restored,
};
use ringwell_journal::{
    Chunk, Clocks, Group, Record, Records, RecoverError, Recovered, SnapshotHeader, SnapshotWriter,
    Tip, Verdict, Writer,
};
use std::path::PathBuf;
use tempfile::TempDir;

use super::*;

type ShardStore = ringwell_driver::store::ShardStore<OsFiles>;

mod damage;
mod full;
mod history;

/// The parts of a shard that belong to its journal.
struct Shard {
    journal: Journal,
    writer: Writer,
    /// The groups that recovery found.
    seen: Vec<Group>,
    verdict: Verdict,
}

fn settings(data: &Path) -> Settings {
    Settings { segment_bytes: 128 << 10, ..Settings::new(data.to_owned(), Durability::Disk) }
}

fn recover(settings: &Settings) -> Result<(Vec<Group>, ShardStore, Recovered), OpenError> {
    let store = ShardStore::open(&OsFiles, settings, 0)?;
    let snapshot = store.snapshots()?.first().map(|newest| {
        let mut reader = store.read_snapshot(newest).unwrap();
        while let Some(chunk) = reader.next_chunk().unwrap() {
            assert!(!matches!(chunk, Chunk::ForeignTimes(_)), "there are no other nodes");
        }
        *reader.end().unwrap()
    });
    let mut seen = Vec::new();
    let recovered = store.recover(snapshot.as_ref(), |header, body| {
        Records::new(header.n, header.at, body).try_for_each(|record| record.map(|_| ()))?;
        seen.push(Group { header: *header, body: body.to_vec() });
        Ok(())
    })?;
    Ok((seen, store, recovered))
}

fn open(settings: &Settings) -> Shard {
    let (seen, store, recovered) = recover(settings).unwrap();
    let verdict = recovered.verdict;
    let (journal, tip) = store.start_inline(recovered).unwrap();
    let journal = Journal::start(journal, 0).unwrap();
    Shard { journal, writer: Writer::new(tip), seen, verdict }
}

/// All of the machine's clocks show the same time.
const CLOCKS: Clocks = Clocks { boot: 1, shard_offset: 0, wall_offset: 0 };

impl Shard {
    /// Seals a group whose parameters are `bytes` bytes long.
    fn group(&mut self, bytes: usize) -> Group {
        let params = vec![b'x'; bytes.min(16_000)];
        for _ in 0..bytes.div_ceil(16_000).max(1) {
            self.writer.append(&Record::Carry {
                at: self.writer.last_at() + Millis(1),
                number: ringwell_core::PromoNumber::from_e164(12_000_000_000).unwrap(),
                slot: 0,
                clocks: None,
                pool: ringwell_core::PoolId(1),
                allocated_at: Millis(1),
                locked_until: Millis(2),
                visitor: None,
                params: [&params, b""],
            });
        }
        self.writer.seal(Vec::new()).unwrap()
    }

    fn append(&self, group: &Group) -> Appended {
        wait(self.journal.append(group.clone()))
    }

    fn store(&mut self, bytes: usize) -> Group {
        let group = self.group(bytes);
        let appended = self.append(&group);
        assert!(matches!(appended, Appended::Stored { .. }), "{appended:?}");
        group
    }

    /// Publishes an empty snapshot that covers everything so far.
    fn snapshot(&self) {
        let tip = self.writer.tip();
        let header = SnapshotHeader {
            shard: 0,
            journal: self.journal.id(),
            replay_from: tip.next_n,
            prev_hash: tip.prev_hash,
            epoch: tip.epoch,
            created_at: tip.last_at,
            last_at: tip.last_at,
            clocks: None,
            numbers: 0,
        };
        let mut file = self.journal.create_snapshot(tip.next_n).unwrap();
        let bytes = SnapshotWriter::new(&header).finish(tip.next_n - 1);
        file.write(&bytes).unwrap();
        file.publish(tip.next_n - 1).unwrap();
    }

    /// Copies the files to `to` as a killed process would have left them: nothing more is written,
    /// and nothing is closed. A copy is needed because the threads of this process cannot be killed
    /// and continue to create spare segments.
    fn kill(self, settings: &Settings, to: &Path) -> Settings {
        let killed = Settings { data: to.to_owned(), ..settings.clone() };
        fs::create_dir_all(killed.shard_directory(0)).unwrap();
        for name in names(settings) {
            let [from, to] = [settings, &killed].map(|s| s.shard_directory(0).join(&name));
            // A new file may be renamed after its name was listed, so it may not be found.
            let _ = fs::copy(from, to);
        }
        std::mem::forget(self.journal);
        killed
    }
}

/// Waits for the result of another thread's work.
fn wait<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn names(settings: &Settings) -> Vec<String> {
    let entries = fs::read_dir(settings.shard_directory(0)).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn stored_groups_are_found_after_a_kill() {
    for durability in [Durability::Disk, Durability::Os] {
        for write_mode in [WriteMode::Buffered, WriteMode::Direct] {
            let data = TempDir::new().unwrap();
            let mut settings = Settings { durability, write_mode, ..settings(data.path()) };
            let mut groups = Vec::new();
            for round in 0..4 {
                let mut shard = open(&settings);
                assert_eq!(shard.seen, groups, "round {round}");
                assert_eq!(shard.verdict, Verdict::Clean);
                for bytes in [10, 5_000, 70_000, 20_000, 100] {
                    groups.push(shard.store(bytes));
                }
                settings = shard.kill(&settings, &data.path().join(round.to_string()));
            }
        }
    }
}

#[test]
fn each_start_raises_the_epoch_and_begins_a_segment() {
    let data = TempDir::new().unwrap();
    let settings = Settings { spare_segments: 0, ..settings(data.path()) };
    for round in 1..=5 {
        let shard = open(&settings);
        assert_eq!(shard.writer.tip(), Tip { epoch: round, ..Tip::FIRST });
        shard.journal.close().unwrap();
        // The empty segments are still present, because only a complete startup removes them, after
        // `identity.json` has recorded that startup.
        let all: Vec<_> = (1..=round).map(|segno| format!("{segno:016}.rpj")).collect();
        assert_eq!(names(&settings), all);
    }
    open(&settings).store(10);
    assert_eq!(open(&settings).writer.tip().epoch, 7);
    assert_eq!(names(&settings).len(), 7);
}

#[test]
fn a_frame_longer_than_a_segment_gets_its_own_segment() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let mut shard = open(&settings);
    let groups = [shard.store(10), shard.store(400_000), shard.store(10), shard.store(300_000)];
    for group in &groups {
        assert_eq!(shard.journal.reader().read(group.header.n).unwrap(), *group);
    }
    shard.journal.close().unwrap();
    assert_eq!(open(&settings).seen, groups);
}

#[test]
fn a_torn_frame_is_cut_off_and_the_journal_continues() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let mut shard = open(&settings);
    let first = shard.store(100);
    shard.store(9_000);
    shard.journal.close().unwrap();
    let path = settings.shard_directory(0).join("0000000000000001.rpj");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4 * 4096..].fill(0);
    fs::write(&path, bytes).unwrap();

    let mut shard = open(&settings);
    assert!(matches!(shard.verdict, Verdict::Torn(_)));
    assert_eq!(shard.seen, std::slice::from_ref(&first));
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 * 4096);
    let second = shard.store(10);
    assert_eq!(second.header.n, 2);
    shard.journal.close().unwrap();
    assert_eq!(open(&settings).seen, [first, second]);
}

#[test]
fn damage_in_the_middle_is_refused_with_file_and_offset_and_changes_nothing() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let mut shard = open(&settings);
    shard.store(100);
    shard.store(100);
    shard.store(100);
    shard.journal.close().unwrap();
    let path = settings.shard_directory(0).join("0000000000000001.rpj");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8192 + 80] ^= 1;
    fs::write(&path, &bytes).unwrap();

    let error = recover(&settings).map(|_| ()).unwrap_err();
    let OpenError::Refused { source: RecoverError::Damaged { n: 2, .. }, .. } = &error else {
        panic!("{error}");
    };
    let text = error.to_string();
    assert!(text.contains(&settings.shard_directory(0).display().to_string()), "{text}");
    assert!(text.contains("segment 0000000000000001 is damaged at offset 8192"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_rotten_end_is_reported_until_a_group_follows() {
    let data = TempDir::new().unwrap();
    let settings = settings(data.path());
    let mut shard = open(&settings);
    shard.store(100);
    shard.store(100);
    shard.journal.close().unwrap();
    let path = settings.shard_directory(0).join("0000000000000001.rpj");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8192 + 80] ^= 1;
    fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let shard = open(&settings);
        assert!(matches!(shard.verdict, Verdict::Rotten(_)));
        assert_eq!(shard.seen.len(), 1);
    }
    // The damaged frame is kept, so that it can be investigated later.
    assert_eq!(fs::read(&path).unwrap(), bytes);
    open(&settings).store(10);
    assert_eq!(open(&settings).verdict, Verdict::Clean);
}

#[test]
fn after_a_failure_nothing_is_stored() {
    let data = TempDir::new().unwrap();
    let settings = Settings { spare_segments: 0, ..settings(data.path()) };
    let mut shard = open(&settings);
    shard.store(60_000);
    // From now on, the next segment cannot be created.
    fs::remove_dir_all(settings.shard_directory(0)).unwrap();
    let group = shard.group(100_000);
    let Appended::Failed(error) = shard.append(&group) else { panic!() };
    assert!(error.contains("0000000000000002"), "{error}");
    assert!(matches!(shard.append(&group), Appended::Failed(_)));
    assert!(shard.journal.stats().failed);
    shard.journal.close().unwrap();
}

#[test]
fn a_data_directory_is_used_by_one_process() {
    let data = TempDir::new().unwrap();
    let directory = data.path().join("a/b");
    let lock = DataLock::acquire(&directory).unwrap();
    let error = DataLock::acquire(&directory).unwrap_err();
    let LockError::Held { pid, .. } = &error else { panic!("{error}") };
    assert_eq!(*pid, std::process::id().to_string());
    assert!(error.to_string().contains(&format!("process {pid}")));
    drop(lock);
    DataLock::acquire(&directory).unwrap();
}

#[test]
fn a_data_directory_is_used_only_once_its_restore_is_complete() {
    let data = TempDir::new().unwrap();
    let data = data.path();
    let refused = |tried: Result<(), LockError>| matches!(tried.unwrap_err(), LockError::Incomplete { data: of } if of == data);
    fs::create_dir(data.join(RESTORING)).unwrap();
    assert!(refused(DataLock::acquire(data).map(drop)));
    assert!(refused(check_complete(data)));
    let restore = DataLock::acquire_to_restore(data).unwrap();
    assert!(matches!(check_complete(data), Err(LockError::Held { .. })));
    // Because the journals are restored last, the restore is complete once they exist.
    fs::create_dir(data.join("journal")).unwrap();
    check_complete(data).unwrap();
    drop(restore);
    DataLock::acquire(data).unwrap();
}

#[test]
fn the_probe_measures_and_leaves_nothing() {
    let data = TempDir::new().unwrap();
    let probe = probe(data.path()).unwrap();
    assert!(probe.flush_p50 <= probe.flush_p99);
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    let doubtful = Probe { doubtful_file_system: Some("tmpfs"), ..probe };
    assert!(doubtful.warnings()[0].contains("tmpfs"));
}

#[test]
fn a_data_directory_keeps_its_name_and_another_has_a_different_one() {
    let [one, other] = [(); 2].map(|()| TempDir::new().unwrap());
    assert_eq!(Identity::read(&OsFiles, one.path()).unwrap(), None);
    let start = Some(u64::MAX);
    let journal = |shard: u16, name: &str| (shard, WrittenJournal { name: name.to_owned(), start });
    let first = BTreeMap::from([journal(0, "a")]);
    let both = BTreeMap::from([journal(0, "a"), journal(1, "b")]);
    let read_or_draw = |data: &TempDir, journals: &BTreeMap<_, _>| {
        Identity::read_or_draw(&OsFiles, data.path(), journals.clone()).unwrap()
    };
    let drawn = read_or_draw(&one, &first);
    assert_eq!(read_or_draw(&one, &first), drawn);
    assert_ne!(read_or_draw(&other, &first).id, drawn.id);
    // When a second shard gets a journal, the identity lists both journals, and still lists them
    // after the data directory gets a new name.
    let more = read_or_draw(&one, &both);
    assert_eq!((&more.id, &more.journals), (&drawn.id, &both));
    let renamed = Identity::rename(&OsFiles, one.path()).unwrap();
    assert_ne!(renamed.id, drawn.id);
    assert_eq!(renamed.journals, both);
    // The entry of a journal that is no longer written is removed.
    assert_eq!(read_or_draw(&one, &first).journals, first);
    // The two formats of `identity.json` that earlier releases wrote can be read.
    fs::write(one.path().join("identity.json"), r#"{"id":"0123"}"#).unwrap();
    let earlier = Identity::read(&OsFiles, one.path()).unwrap().unwrap();
    assert_eq!((&*earlier.id, earlier.journals.len()), ("0123", 0));
    fs::write(one.path().join("identity.json"), r#"{"id":"0123","journals":{"0":"a"}}"#).unwrap();
    let earlier = Identity::read(&OsFiles, one.path()).unwrap().unwrap();
    assert_eq!(earlier.journals[&0], WrittenJournal { name: "a".to_owned(), start: None });
    mark_restored(&OsFiles, one.path()).unwrap();
    mark_restored(&OsFiles, one.path()).unwrap();
    assert!(is_restored(&OsFiles, one.path()) && !is_restored(&OsFiles, other.path()));
    unmark_restored(&OsFiles, one.path()).unwrap();
    unmark_restored(&OsFiles, one.path()).unwrap();
    assert!(!is_restored(&OsFiles, one.path()));
}

#[test]
fn the_served_state_is_read_back_and_damage_is_reported() {
    let data = TempDir::new().unwrap();
    assert_eq!(ServedMap::read(&OsFiles, data.path()).unwrap(), None);
    for version in 1..3 {
        let buckets = (0..512).collect();
        let holds = BucketHolds::default();
        let is_later = version > 1;
        let stale = [3, 5].into_iter().filter(|_| is_later).collect();
        let back = (7, Owner { moves: 2, shard: 1 });
        let abandoned = [back].into_iter().filter(|_| is_later).collect();
        let map = ServedMap {
            version,
            buckets,
            owners: None,
            leaving: Vec::new(),
            holds,
            stale,
            abandoned,
            lists: None,
            served_at: None,
            lifetimes: None,
        };
        map.write(&OsFiles, data.path()).unwrap();
        assert_eq!(ServedMap::read(&OsFiles, data.path()).unwrap(), Some(map));
    }
    fs::write(data.path().join("cluster-map.json"), "{\"version\":3").unwrap();
    let error = ServedMap::read(&OsFiles, data.path()).unwrap_err().to_string();
    assert!(error.contains("cluster-map.json"), "{error}");
}
