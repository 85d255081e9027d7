//! Tests the limits of the history that a log with snapshots keeps, and how that history is read
//! back and reported.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ringwell_driver::Platform;
use ringwell_driver::store::{Memory, Part};
use ringwell_journal::{Author, Group, Record, Tip, Writer};

use super::*;

const AUTHOR: Author = Author { shard: 0, journal: [1; 16], incarnation: [2; 16] };

/// Creates a store with one snapshot for each entry of `needed`. An entry is the number of the
/// first group that its snapshot needs.
fn store(
    prefix: Prefix,
    needed: &[u64],
    limits: HistoryLimits,
) -> LogStore<Servers, Memory, Virtual> {
    let index = |(place, replay_from): (u64, &u64)| {
        let (shard, journal, pieces) = (0, [1; 16], Vec::new());
        let (replay_from, through, before) = (*replay_from, *replay_from, 0);
        (place, SnapshotIndex { shard, journal, replay_from, through, before, pieces })
    };
    let kept = (1..).zip(needed).map(index).collect();
    let (servers, mirror) = (Servers::default(), Memory::new([0; 16], u64::MAX));
    let store = LogStore::new(servers.clone(), mirror, Virtual::default(), AUTHOR);
    store.with_snapshots(Arc::new(servers), kept, prefix, limits)
}

const PREFIX: Prefix =
    Prefix { first_n: 101, copied_n: 301, bytes: 20_000, last_at: Millis(1_000_000) };

#[test]
fn groups_that_the_copy_lacks_are_dropped_beyond_the_limits_unless_a_snapshot_needs_them() {
    let part =
        |next_n, bytes| Some(Part { first_n: 101, next_n, bytes, last_at: Millis(1_000_000) });
    let (exact, less) = (20_000, 19_999);
    let age = Some(Millis(10_000));
    for (needed, bytes, age, now, wanted) in [
        (&[290, 250][..], exact, None, 9_000_000, None),
        (&[290, 250], less, None, 1_000_000, part(250, 14_900)),
        (&[290, 250], exact, age, 1_010_000, None),
        (&[290, 250], exact, age, 1_010_001, part(250, 14_900)),
        (&[390, 350], less, None, 1_000_000, part(301, 20_000)),
        (&[290, 101], less, None, 1_000_000, None),
        (&[290], less, age, 9_000_000, None),
        (&[], less, age, 9_000_000, None),
    ] {
        let store = store(PREFIX, needed, HistoryLimits { bytes, age });
        assert_eq!(store.expired(Millis(now), CLOCKS), wanted, "{needed:?} {bytes} {age:?} {now}");
    }
}

#[test]
fn a_snapshot_is_due_if_only_older_ones_keep_too_much_of_the_log() {
    let copied = Prefix { first_n: 301, ..PREFIX };
    for (prefix, needed, bytes, wanted) in [
        (PREFIX, &[290, 250][..], 19_999, false),
        (PREFIX, &[190, 101], 19_999, true),
        (PREFIX, &[90, 70], 19_999, true),
        (PREFIX, &[90, 70], 20_000, false),
        (PREFIX, &[290, 102], 19_999, false),
        (PREFIX, &[], 19_999, true),
        (copied, &[290, 250], 19_999, false),
    ] {
        let store = store(prefix, needed, HistoryLimits { bytes, age: None });
        assert_eq!(store.waits_for_snapshot(), wanted, "{prefix:?} {needed:?} {bytes}");
    }
    // The snapshots cannot be read back, so nothing is dropped.
    let store = store(PREFIX, &[290, 250], HistoryLimits { bytes: 19_999, age: None });
    let part = store.expired(Millis(1_000_000), CLOCKS).unwrap();
    Virtual::default().run(store.drop_part(part)).unwrap();
    assert!(store.waits_for_snapshot());
}

#[test]
fn a_snapshot_that_was_taken_after_the_others_were_read_back_is_read_back_too() {
    let limits = HistoryLimits { bytes: 256 << 10, age: None };
    let (servers, data) = (Servers::default(), folder());
    let mut owner = start(&servers, data.path(), limits).unwrap();
    for _ in 0..10 {
        owner.allocate(20);
        owner.snapshot();
    }
    while owner.give_up() {}
    let first_n = servers.first_n();
    assert!(first_n > 1);
    for _ in 0..4 {
        owner.allocate(20);
        owner.snapshot();
    }
    rot(&servers, 0, false);
    owner.allocate(20);
    while owner.give_up() {}
    assert_eq!(servers.first_n(), first_n);
}

#[test]
fn a_snapshot_that_is_not_the_one_of_its_index_is_skipped_for_the_previous_one() {
    let of = |index| index;
    let changes: [fn(SnapshotIndex) -> SnapshotIndex; 4] = [
        of,
        |index| SnapshotIndex { shard: 4, ..index },
        |index| SnapshotIndex { journal: [9; 16], ..index },
        |index| SnapshotIndex { through: index.through + 1, ..index },
    ];
    for (which, change) in changes.into_iter().enumerate() {
        let (servers, data) = (Servers::default(), folder());
        let slots = served(&servers, data.path());
        let (newest, bytes) = servers.newest_index().unwrap().unwrap();
        let index = change(SnapshotIndex::decode(&bytes).unwrap());
        servers.with(|kept| kept.snapshots[place(newest)] = Some((true, index.encode())));
        let taker = start(&servers, folder().path(), ALL).unwrap();
        let read = if which == 0 { 5 } else { 10 + 1 + 5 };
        assert_eq!((taker.slots(), taker.groups), (slots, 1 + read + 1), "{which}");
    }
}

#[test]
fn a_snapshot_that_a_new_leader_seems_to_lack_groups_of_delays_a_start_for_a_moment() {
    let (servers, data) = (Servers::default(), folder());
    let slots = served(&servers, data.path());
    servers.with(|kept| kept.ends_early = 8);
    let taker = start(&servers, folder().path(), ALL).unwrap();
    assert_eq!((taker.slots(), taker.groups, taker.is_in_doubt), (slots, 1 + 5 + 1, false));
    assert_eq!(taker.platform.0.now().0, Duration::from_millis(250));
}

#[test]
fn a_snapshot_that_the_log_does_not_continue_is_passed_over_for_the_previous_one() {
    let (servers, data) = (Servers::default(), folder());
    served(&servers, data.path());
    let [newest, older] = &servers.indexes()[..] else { panic!("there are two") };
    // The log loses its newest groups. Another process, which cannot see the snapshots, then
    // appends new groups.
    let snapshots = servers.with(|kept| std::mem::take(&mut kept.snapshots));
    lose(&servers, newest.replay_from - 1);
    let elsewhere = folder();
    let mut other = start(&servers, elsewhere.path(), ALL).unwrap();
    other.allocate(12);
    let slots = other.slots();
    servers.with(|kept| kept.snapshots = snapshots);
    let taker = start(&servers, folder().path(), ALL).unwrap();
    assert!(taker.is_in_doubt);
    assert_eq!(taker.slots(), slots);
    let end = u64::try_from(servers.with(|kept| kept.messages.len())).unwrap() + 1;
    assert_eq!(taker.groups, end - older.replay_from);
}

#[test]
fn a_snapshot_that_is_damaged_during_a_start_still_proves_that_its_groups_existed() {
    let (servers, data) = (Servers::default(), folder());
    served(&servers, data.path());
    let through = servers.indexes()[0].through;
    // The only lost group is the last one that the snapshot covers.
    lose(&servers, through);
    servers.with(|kept| kept.index_rots_after = 3);
    let taker = start(&servers, folder().path(), ALL).unwrap();
    assert!(taker.is_in_doubt);
    assert_eq!(taker.platform.0.now().0, Duration::from_secs(25));
}

#[test]
fn a_snapshot_of_lost_groups_is_removed_although_there_is_no_older_one() {
    let (servers, data) = (Servers::default(), folder());
    let mut owner = start(&servers, data.path(), ALL).unwrap();
    owner.allocate(10);
    owner.snapshot();
    let through = servers.indexes()[0].through;
    lose(&servers, through);
    let owner = start(&servers, folder().path(), ALL).unwrap();
    assert!(owner.is_in_doubt);
    assert_eq!(servers.indexes(), []);
}

#[test]
fn history_is_read_from_the_copy_and_its_clocks_are_known() {
    let (servers, data) = (Servers::default(), folder());
    let mut owner = start(&servers, data.path(), ALL).unwrap();
    owner.engine.set_clocks(CLOCKS);
    for group in 0..120 {
        owner.allocate(1);
        // The groups differ in length, so segments contain frames of different lengths.
        if group % 5 < 2 {
            owner.now = owner.now + Millis(100_000);
            let now = owner.engine.at(owner.now);
            let text = [b'x'; 3_000];
            for params in [[&text[..], b"a"], [&text[..], b"b"]] {
                let ask = Ask { pool: 0, id: POOL, params, visitor: None, retry: None };
                let mut outcome = Outcome::Refused(Refusal::Late);
                owner.engine.allocate(now, &ask, &mut outcome);
            }
            owner.store_group();
        }
    }
    owner.snapshot();
    let end = owner.engine.newest_group() + 1;
    drop(owner);
    // At startup, the owner does not read the groups that precede the snapshot.
    let owner = start(&servers, data.path(), ALL).unwrap();
    assert!(owner.store.stats().segments > 3);
    let (reader, before) = (owner.store.reader(), servers.with(|kept| kept.reads));
    for n in (1..end).rev().chain(1..end) {
        assert_eq!(reader.read(n).unwrap().header.n, n);
    }
    assert_eq!(servers.with(|kept| kept.reads), before);
    assert!(reader.noted().len() > 2, "{:?}", reader.noted());
}

fn next(tip: &mut Tip) -> Group {
    let mut writer = Writer::new(*tip);
    writer.append(&Record::Tick { at: tip.last_at + Millis(1) });
    let group = writer.seal(Vec::new()).unwrap();
    *tip = Tip::after(&group.header);
    group
}

#[test]
fn the_group_before_is_read_again_after_a_pause_only() {
    let (servers, platform) = (Servers::default(), Virtual::default());
    let mirror = Memory::new([0; 16], u64::MAX);
    let store = LogStore::new(servers.clone(), mirror, platform.clone(), AUTHOR);
    assert!(store.wait_max().is_some(), "rows do not wait for a log that hangs");
    let mut tip = Tip::FIRST;
    for (pause, reads) in [(0, 0), (0, 0), (900, 0), (1_100, 1), (0, 0)] {
        platform.run(async {
            platform.sleep_until(platform.moment() + Duration::from_millis(pause)).await;
            let before = servers.with(|kept| kept.reads);
            let appended = store.append(next(&mut tip)).await;
            assert!(matches!(appended, Appended::Stored { .. }), "{appended:?}");
            assert_eq!(servers.with(|kept| kept.reads) - before, reads, "after {pause} ms");
        });
    }
}

/// A log that takes half a second to store each group, and counts how often another leader is
/// requested.
#[derive(Clone, Debug)]
struct Slow(Servers, Virtual, Rc<Cell<u32>>);

impl Log for Slow {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let done = self.1.sleep_until(self.1.moment() + Duration::from_millis(500));
        let stored = self.0.append(n, message);
        async move {
            done.await;
            stored.await
        }
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        self.0.read(n)
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        self.0.ends()
    }

    fn trim(&self, before: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        Log::trim(&self.0, before)
    }

    fn change_leader(&self) -> impl Future<Output = Result<(), Unreached>> + 'static {
        self.2.set(self.2.get() + 1);
        ready(Ok(()))
    }
}

#[test]
fn another_server_is_asked_to_lead_a_log_that_stays_slow() {
    let (platform, asked) = (Virtual::default(), Rc::new(Cell::new(0)));
    let log = Slow(Servers::default(), platform.clone(), Rc::clone(&asked));
    let store = LogStore::new(log, Memory::new([0; 16], u64::MAX), platform.clone(), AUTHOR);
    let mut tip = Tip::FIRST;
    for (count, wanted) in [(8, 0), (4, 1), (20, 1)] {
        for _ in 0..count {
            platform.run(store.append(next(&mut tip)));
        }
        assert_eq!(asked.get(), wanted);
    }
}
