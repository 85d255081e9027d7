//! Snapshots beside a log. A machine without a local copy of the log starts from one of the
//! snapshots that are stored beside the log. The beginning of the log is dropped once no snapshot
//! needs it.

mod limits;

use std::future::{Future, ready};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ringwell_config::Durability;
use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber, Slot};
use ringwell_driver::maintenance::{Rounds, Snapshot};
use ringwell_driver::open::{self, Believed, CopySource, FollowError};
use ringwell_driver::store::{
    Appended, Files, HistoryLimits, Inline, InlineJournal, Log, LogEnd, LogStore, NotAppended,
    Prefix, ReadError, Reader, Settings, SnapshotIndex, SnapshotStore, Store, Unreached,
    snapshot_indexes,
};
use ringwell_engine::{Ask, Clocks, Engine, Outcome, PIECE_ENTRIES, Refusal};
use ringwell_journal::decode_message;
use ringwell_os::OsFiles;
use tempfile::TempDir;

use crate::support::Virtual;

const POOL: PoolId = PoolId(1);
const NUMBERS: u32 = 40;
const CLOCKS: Clocks = Clocks { boot: 1, shard_offset: 0, wall_offset: 0 };
const ALL: HistoryLimits = HistoryLimits { bytes: u64::MAX, age: None };

/// A working log and a working store for its snapshots, except for the faults that a
/// test injects.
#[derive(Clone, Debug, Default)]
struct Servers(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    messages: Vec<Option<Bytes>>,
    first: u64,
    /// The pieces of snapshots, and their indexes. The flag is `true` for an index.
    snapshots: Vec<Option<(bool, Bytes)>>,
    /// A leader that lacks this many of the newest messages answers the next request for the end of
    /// the log.
    ends_early: u64,
    /// The number of requests for the end of the log after which the newest index is damaged.
    index_rots_after: u32,
    /// The count of messages that were read.
    reads: u64,
    /// Whether every third request about the snapshots is not answered, and the count of these
    /// requests.
    is_unreliable: bool,
    asked: u32,
}

impl Servers {
    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        work(&mut self.0.lock().unwrap())
    }

    fn first_n(&self) -> u64 {
        self.with(|kept| kept.first.max(1))
    }

    /// Counts a request about the snapshots.
    fn asked(&self) -> Result<(), Unreached> {
        self.with(|kept| {
            kept.asked += 1;
            let is_answered = !kept.is_unreliable || !kept.asked.is_multiple_of(3);
            is_answered.then_some(()).ok_or_else(|| Unreached("no leader".to_owned()))
        })
    }

    fn indexes(&self) -> Vec<SnapshotIndex> {
        snapshot_indexes(self).unwrap().into_iter().map(|it| it.1).collect()
    }
}

fn place(n: u64) -> usize {
    usize::try_from(n - 1).unwrap()
}

impl Log for Servers {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        ready(self.with(|kept| {
            let fits = n == kept.messages.len() as u64 + 1;
            kept.messages.extend(fits.then_some(Some(message)));
            if fits { Ok(()) } else { Err(NotAppended::Taken) }
        }))
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        ready(self.message(n))
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        self.with(|kept| {
            kept.index_rots_after = kept.index_rots_after.saturating_sub(1);
            if kept.index_rots_after == 1 {
                let newest = kept.snapshots.iter_mut().rev().flatten().find(|it| it.0);
                newest.unwrap().1 = Bytes::from_static(b"damaged");
            }
        });
        let end =
            self.with(|kept| kept.messages.len() as u64 + 1 - std::mem::take(&mut kept.ends_early));
        ready(Ok(self.first_n()..end))
    }

    fn trim(&self, before: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        self.with(|kept| {
            kept.first = kept.first.max(before);
            kept.messages[..place(before)].fill(None);
        });
        ready(Ok(()))
    }
}

impl SnapshotStore for Servers {
    fn add(&self, piece: Bytes) -> Result<u64, Unreached> {
        self.asked()?;
        Ok(self.with(|kept| {
            kept.snapshots.push(Some((false, piece)));
            kept.snapshots.len() as u64
        }))
    }

    fn add_index(&self, index: Bytes) -> Result<u64, Unreached> {
        self.asked()?;
        Ok(self.with(|kept| {
            kept.snapshots.push(Some((true, index)));
            kept.snapshots.len() as u64
        }))
    }

    fn newest_index(&self) -> Result<Option<(u64, Bytes)>, Unreached> {
        self.asked()?;
        let index = |(at, it): (usize, &Option<(bool, Bytes)>)| match it {
            Some((true, index)) => Some((at as u64 + 1, index.clone())),
            _ => None,
        };
        Ok(self.with(|kept| kept.snapshots.iter().enumerate().filter_map(index).last()))
    }

    fn get(&self, at: u64) -> Result<Option<Bytes>, Unreached> {
        self.asked()?;
        let found = self.with(|kept| kept.snapshots.get(place(at)).cloned().flatten());
        Ok(found.map(|it| it.1))
    }

    fn trim(&self, before: u64) -> Result<(), Unreached> {
        self.asked()?;
        self.with(|kept| kept.snapshots[..place(before)].fill(None));
        Ok(())
    }

    fn message(&self, n: u64) -> Result<Option<Bytes>, Unreached> {
        self.with(|kept| kept.reads += 1);
        Ok(self.with(|kept| kept.messages.get(place(n)).cloned().flatten()))
    }

    fn log_bytes(&self) -> Result<u64, Unreached> {
        self.asked()?;
        Ok(self.with(|kept| kept.messages.iter().flatten().map(|it| it.len() as u64).sum()))
    }
}

/// A process that has taken the shard over.
struct Owner {
    platform: Virtual,
    engine: Engine,
    store: LogStore<Servers, InlineJournal<OsFiles>, Virtual>,
    /// The count of messages that this process read at startup, plus the one that it has added.
    groups: u64,
    now: Millis,
    /// The part of the log that is missing from this machine's copy.
    prefix: Prefix,
    /// Whether the history is in doubt. If so, no number is handed out for the duration of one
    /// lockout.
    is_in_doubt: bool,
}

fn specs() -> Vec<PoolSpec> {
    let first = PromoNumber::parse("8885550100").unwrap();
    let numbers = vec![NumberRange::new(first, NUMBERS).unwrap()];
    vec![PoolSpec { id: POOL, lockout: Millis(60_000), numbers }]
}

fn start(servers: &Servers, data: &Path, limits: HistoryLimits) -> Result<Owner, FollowError> {
    let platform = Virtual::default();
    let settings = Settings {
        segment_bytes: 64 << 10,
        history_bytes: limits.bytes,
        ..Settings::new(data.to_owned(), Durability::Os)
    };
    let believed = Believed { answer_rows_max: 10, clock_skew_max: Millis(1_000), boot: 1 };
    open::discard_unfinished(&OsFiles, &settings, 0)?;
    let read = open::read(&OsFiles, &settings, 0, &specs(), believed).unwrap();
    let (task, log) = (platform.clone(), servers.clone());
    let followed = async move {
        let specs = specs();
        let source = CopySource {
            snapshots: &log,
            settings: &settings,
            specs: &specs,
            believed,
            is_replacement: false,
            end: 1,
            reached: LogEnd::default(),
            failed_at: LogEnd::default(),
        };
        open::follow(&task, &OsFiles, read, &log, &source).await
    };
    let followed = ringwell_driver::Platform::task(&platform, followed);
    let open::Followed { read, author, prefix, kept, groups } = platform.run(followed).unwrap()?;
    let now = read.recovered.tip.last_at + Millis(1_000);
    let is_in_doubt = read.is_in_doubt;
    let opened = open::open(read, now)?;
    assert_eq!(opened.doubts.held_until.is_some(), is_in_doubt);
    let Inline::Left(copy) = opened.store else { panic!("there is a copy") };
    let store = LogStore::new(servers.clone(), copy, platform.clone(), author);
    let store = store.with_snapshots(Arc::new(servers.clone()), kept, prefix, limits);
    Ok(Owner { platform, engine: opened.engine, store, groups, now, prefix, is_in_doubt })
}

impl Owner {
    /// Stores `count` groups with one allocation each.
    fn allocate(&mut self, count: u64) {
        for _ in 0..count {
            self.now = self.now + Millis(3_000);
            let now = self.engine.at(self.now);
            let params = format!("at={}&{}", now.0, "x".repeat(2_000));
            let params = [params.as_bytes(), b""];
            let ask = Ask { pool: 0, id: POOL, params, visitor: None, retry: None };
            let mut outcome = Outcome::Refused(Refusal::Late);
            self.engine.allocate(now, &ask, &mut outcome);
            assert!(matches!(outcome, Outcome::Allocated { .. }), "{outcome:?}");
            self.store_group();
        }
    }

    fn store_group(&mut self) {
        while let Some(group) = self.engine.seal(Vec::new()) {
            let appended = self.platform.run(self.store.append(group));
            assert!(matches!(appended, Appended::Stored { .. }), "{appended:?}");
        }
    }

    /// Takes a snapshot, and stores one group in the meantime.
    fn snapshot(&mut self) {
        let mut snapshot = Snapshot::begin(&self.store, &self.engine, 0).unwrap();
        let mut is_begun = false;
        while !snapshot.piece(&mut self.engine, PIECE_ENTRIES) {
            snapshot = snapshot.write().unwrap();
            if !is_begun {
                self.allocate(1);
                is_begun = true;
            }
        }
        let through = snapshot.through(&self.engine);
        self.store_group();
        snapshot.publish(through).unwrap();
    }

    fn slots(&self) -> Vec<Slot> {
        self.engine.shard().slots().to_vec()
    }

    /// Drops one part of the oldest history if the history exceeds its limits. Returns whether a
    /// part was dropped.
    fn give_up(&mut self) -> bool {
        let rounds = Rounds::new(&self.store, u64::MAX, None, self.now);
        let Some(mut carry) = rounds.expired(&self.store, self.now, CLOCKS) else { return false };
        while let Some(n) = carry.next(&self.engine, &mut { u64::MAX }) {
            let group = self.store.reader().read(n).unwrap();
            let mut records = group.records();
            let now = self.engine.at(self.now);
            assert!(self.engine.carry(now, &mut records, group.header.clocks).unwrap());
        }
        self.store_group();
        self.platform.run(self.store.drop_part(carry.part)).unwrap();
        true
    }
}

/// Runs an owner that takes two snapshots and stores five groups after the newer one.
fn served(servers: &Servers, data: &Path) -> Vec<Slot> {
    let mut owner = start(servers, data, ALL).unwrap();
    owner.allocate(10);
    owner.snapshot();
    owner.allocate(10);
    owner.snapshot();
    owner.allocate(5);
    owner.slots()
}

fn folder() -> TempDir {
    TempDir::new().unwrap()
}

#[test]
fn a_machine_without_a_copy_begins_with_the_newest_snapshot() {
    let (servers, data) = (Servers::default(), folder());
    let slots = served(&servers, data.path());
    let elsewhere = folder();
    let (all, groups) = (servers.log_bytes().unwrap(), servers.with(|kept| kept.messages.len()));
    let taker = start(&servers, elsewhere.path(), ALL).unwrap();
    assert_eq!(taker.slots(), slots);
    let copied_n = servers.indexes()[0].replay_from;
    let bytes = all * (copied_n - 1) / u64::try_from(groups).unwrap();
    let last_at = taker.prefix.last_at;
    assert_eq!(taker.prefix, Prefix { first_n: 1, copied_n, bytes, last_at });
    assert_eq!(taker.groups, 1 + 5 + 1, "one while it was taken, five after it, its own");
    // History that is missing from this machine's copy is read from the log.
    let read = taker.store.reader().read(3).unwrap();
    let message = servers.message(3).unwrap().unwrap();
    assert_eq!(read, decode_message(&message).unwrap().1);
    drop(taker);
    // The second time, this machine has a copy.
    let again = start(&servers, elsewhere.path(), ALL).unwrap();
    assert_eq!((again.slots(), again.groups), (slots, 1));
}

/// While the stream of the snapshots has no leader, the servers do not answer, or they answer that
/// they cannot.
#[test]
fn a_start_repeats_requests_about_snapshots_that_stay_unanswered() {
    let (servers, data) = (Servers::default(), folder());
    let slots = served(&servers, data.path());
    servers.with(|kept| kept.is_unreliable = true);
    let elsewhere = folder();
    assert_eq!(start(&servers, elsewhere.path(), ALL).unwrap().slots(), slots);
    // The log now ends before the newest snapshot, whose index is therefore put back.
    servers.with(|kept| kept.messages.truncate(15));
    let in_doubt = start(&servers, folder().path(), ALL).unwrap();
    assert!(in_doubt.is_in_doubt);
}

/// Damages a snapshot; `which` is 0 for the newest one.
fn rot(servers: &Servers, which: usize, is_torn: bool) {
    let piece = servers.indexes()[which].pieces[0];
    servers.with(|kept| {
        let (_, bytes) = kept.snapshots[place(piece)].as_mut().unwrap();
        let mut changed = bytes.to_vec();
        let at = changed.len() / 2;
        if is_torn {
            changed.truncate(at);
        } else {
            changed[at] ^= 1;
        }
        *bytes = changed.into();
    });
}

#[test]
fn a_torn_or_rotten_snapshot_is_skipped_for_the_previous_one() {
    for is_torn in [true, false] {
        let (servers, data) = (Servers::default(), folder());
        let slots = served(&servers, data.path());
        rot(&servers, 0, is_torn);
        let taker = start(&servers, folder().path(), ALL).unwrap();
        assert_eq!(taker.slots(), slots);
        assert_eq!(taker.groups, 1 + 10 + 1 + 5 + 1);
        rot(&servers, 1, is_torn);
        let taker = start(&servers, folder().path(), ALL).unwrap();
        assert_eq!(taker.slots(), slots);
        assert_eq!(taker.groups, 29 + 1, "all of the log: three take-overs and 27 groups");
    }
}

/// Requests a number, and returns whether one was handed out.
fn gets_a_number(owner: &mut Owner) -> bool {
    let now = owner.engine.at(owner.now);
    let ask = Ask { pool: 0, id: POOL, params: [b"", b""], visitor: None, retry: None };
    let mut outcome = Outcome::Refused(Refusal::Late);
    owner.engine.allocate(now, &ask, &mut outcome);
    owner.store_group();
    matches!(outcome, Outcome::Allocated { .. })
}

/// Removes group `from` and all later groups from the log.
fn lose(servers: &Servers, from: u64) {
    servers.with(|kept| kept.messages.truncate(place(from)));
}

#[test]
fn a_shard_whose_log_has_lost_groups_that_a_snapshot_covers_hands_out_nothing_for_one_lockout() {
    for lost in 1..4 {
        let (servers, data) = (Servers::default(), folder());
        served(&servers, data.path());
        let older = servers.indexes()[1].clone();
        let through = servers.indexes()[0].through;
        lose(&servers, through + 1 - lost);
        let elsewhere = folder();
        let mut owner = start(&servers, elsewhere.path(), ALL).unwrap();
        assert!(owner.is_in_doubt, "{lost} lost");
        assert!(!gets_a_number(&mut owner));
        // The snapshot that covers the lost groups is gone, so no process can begin with it. The
        // hold of the pool is recorded in the log.
        assert_eq!(servers.indexes(), [SnapshotIndex { before: 0, ..older }]);
        drop(owner);
        let last = folder();
        let mut again = start(&servers, last.path(), ALL).unwrap();
        assert!(!again.is_in_doubt && !gets_a_number(&mut again));
        again.now = again.now + Millis(70_000);
        assert!(gets_a_number(&mut again), "the lockout is over");
        again.snapshot();
        assert_eq!(servers.indexes().len(), 2);
    }
}

#[test]
fn a_shard_whose_log_has_lost_groups_of_the_copy_hands_out_nothing_for_one_lockout() {
    for lost in 1..4 {
        let (servers, data) = (Servers::default(), folder());
        served(&servers, data.path());
        let end = servers.with(|kept| kept.messages.len() as u64);
        lose(&servers, end + 1 - lost);
        let mut owner = start(&servers, data.path(), ALL).unwrap();
        assert!(owner.is_in_doubt, "{lost} lost");
        assert!(!gets_a_number(&mut owner));
        drop(owner);
        let files = OsFiles.list(&data.path().join("journal/0")).unwrap();
        let is_lost = |file: &String| file.contains(".rpj.lost");
        assert!(files.iter().any(is_lost), "the copy is set aside");
        let mut again = start(&servers, data.path(), ALL).unwrap();
        assert!(!again.is_in_doubt && !gets_a_number(&mut again));
    }
}

/// A leader without a quorum may lack the newest groups, so only a stored message proves which
/// groups are stored.
#[test]
fn a_log_that_only_seems_to_end_early_has_lost_nothing() {
    let (servers, data) = (Servers::default(), folder());
    let slots = served(&servers, data.path());
    servers.with(|kept| kept.ends_early = 3);
    let owner = start(&servers, data.path(), ALL).unwrap();
    assert!(!owner.is_in_doubt);
    assert_eq!(owner.slots(), slots);
}

#[test]
fn no_snapshot_is_stored_beside_a_log_without_its_groups() {
    let (servers, data) = (Servers::default(), folder());
    let mut owner = start(&servers, data.path(), ALL).unwrap();
    owner.allocate(3);
    let mut snapshot = Snapshot::begin(&owner.store, &owner.engine, 0).unwrap();
    while !snapshot.piece(&mut owner.engine, PIECE_ENTRIES) {}
    let open = owner.engine.newest_group() + 1;
    snapshot.publish(open).unwrap_err();
    assert_eq!(servers.indexes(), []);
}

#[test]
fn an_incomplete_copy_is_started_again() {
    let (servers, data) = (Servers::default(), folder());
    let slots = served(&servers, data.path());
    let elsewhere = folder();
    // The first startup copies the newest snapshot, and then fails at a hole in the log. It leaves
    // an incomplete copy.
    let copy = |kept: &mut Kept| Kept {
        messages: kept.messages.clone(),
        snapshots: kept.snapshots.clone(),
        ..Kept::default()
    };
    let torn = Servers(Arc::new(Mutex::new(servers.with(copy))));
    let last = torn.with(|kept| kept.messages.len());
    torn.with(|kept| kept.messages[last - 2] = None);
    let Err(error) = start(&torn, elsewhere.path(), ALL) else { panic!("it started") };
    assert!(matches!(error, FollowError::Hole { .. }), "{error}");
    let taker = start(&servers, elsewhere.path(), ALL).unwrap();
    assert_eq!((taker.slots(), taker.groups), (slots, 7));
}

#[test]
fn the_beginning_of_the_log_is_trimmed_once_no_snapshot_needs_it() {
    let limits = HistoryLimits { bytes: 256 << 10, age: None };
    let (servers, data, old) = (Servers::default(), folder(), folder());
    // After the rounds below, this machine's copy (`old`) ends before the first group that the log
    // still contains.
    start(&servers, old.path(), limits).unwrap().allocate(1);
    let mut owner = start(&servers, data.path(), limits).unwrap();
    for round in 0..20 {
        owner.allocate(20);
        if round > 1 {
            let kept = servers.indexes().iter().map(|it| it.replay_from).min().unwrap();
            while owner.give_up() {}
            assert!(servers.first_n() <= kept, "{} {kept}", servers.first_n());
        }
        owner.snapshot();
    }
    let first_n = servers.first_n();
    assert!(first_n > 300, "{first_n}");
    let (slots, newest) = (owner.slots(), servers.indexes()[0].replay_from);
    let taker = start(&servers, old.path(), limits).unwrap();
    assert_eq!(taker.slots(), slots);
    drop(taker);
    let elsewhere = folder();
    let mut taker = start(&servers, elsewhere.path(), limits).unwrap();
    assert_eq!(taker.slots(), slots);
    assert!(matches!(taker.store.reader().read(first_n - 1), Err(ReadError::Gone(_))));
    taker.store.reader().read(first_n).unwrap();
    // The log also drops groups that are missing from this machine's copy. It keeps the newest
    // record of every number.
    for _ in 0..4 {
        taker.allocate(20);
        taker.snapshot();
        while taker.give_up() {}
    }
    assert!(servers.first_n() > newest, "{} {newest}", servers.first_n());
    let last = folder();
    let again = start(&servers, last.path(), limits).unwrap();
    assert_eq!(again.slots(), taker.slots());
    for slot in again.slots() {
        let (n, _) = ringwell_journal::position_parts(slot.position);
        again.store.reader().read(n).unwrap();
    }
}

#[test]
fn the_log_keeps_its_beginning_while_a_snapshot_is_damaged() {
    let limits = HistoryLimits { bytes: 256 << 10, age: None };
    for (which, is_torn) in [(0, true), (0, false), (1, true), (1, false)] {
        let (servers, data) = (Servers::default(), folder());
        let mut owner = start(&servers, data.path(), limits).unwrap();
        for _ in 0..10 {
            owner.allocate(20);
            owner.snapshot();
        }
        rot(&servers, which, is_torn);
        while owner.give_up() {}
        assert_eq!(servers.first_n(), 1);
        let taker = start(&servers, folder().path(), limits).unwrap();
        assert_eq!(taker.slots(), owner.slots());
        assert!(!taker.is_in_doubt);
        // The next snapshot replaces the damaged one.
        let mut owner = start(&servers, data.path(), limits).unwrap();
        for _ in 0..2 {
            owner.allocate(20);
            owner.snapshot();
        }
        owner.allocate(20);
        while owner.give_up() {}
        assert!(servers.first_n() > 1);
        let taker = start(&servers, folder().path(), limits).unwrap();
        assert_eq!(taker.slots(), owner.slots());
        assert!(!taker.is_in_doubt);
    }
}
