//! Startups from the files of an earlier process, with different shards, lists, clocks and maps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringwell_config::{Durability, demo_pools};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{
    BucketHold, BucketHolds, Directory, Owners, PoolFields, RingPool, bucket,
};
use ringwell_driver::open::{
    self, Begun, Believed, Copied, OldMap, OverflowTaken, Start, StartError,
};
use ringwell_driver::store::{
    Gaps, Inline, KeptNotes, LastOwner, ServedMap, Settings, Unkept, end_unflushed,
    settle_unflushed, unmark_restored,
};
use ringwell_engine::{Ask, Engine, Outcome, Reading, Recorded, Refusal, RowKey, lockout};
use ringwell_os::OsFiles;
use tempfile::TempDir;

pub(crate) const START: Millis = Millis(1_700_000_000_000);
pub(crate) const LIFETIME: Millis = Millis(60_000);
const POOLS: u32 = 40;

/// The results of handing out one number from each pool.
pub(crate) type RowResults = Vec<(PoolId, Result<PromoNumber, Outcome>)>;

/// A data directory.
pub(crate) struct Data {
    _folder: TempDir,
    pub(crate) settings: Settings,
}

impl Data {
    pub(crate) fn new(durability: Durability) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(folder.path().join("data"), durability);
        settings.segment_bytes = 1 << 20;
        settings.spare_segments = 0;
        Self { _folder: folder, settings }
    }

    pub(crate) fn start_as(
        &self,
        directory: &Directory,
        reading: Reading,
        member: Option<(&[u16], u64)>,
    ) -> Result<Begun<OsFiles>, StartError> {
        self.start_after(directory, reading, member, None)
    }

    /// Starts the shards. If another process served them before, it is `last_owner`, and the
    /// journals are in a log.
    pub(crate) fn start_after(
        &self,
        directory: &Directory,
        reading: Reading,
        member: Option<(&[u16], u64)>,
        last_owner: Option<&LastOwner>,
    ) -> Result<Begun<OsFiles>, StartError> {
        let believed = believed(reading.boot);
        let on_disk = open::shards_on_disk(&OsFiles, &self.settings.data).unwrap();
        let count = on_disk.iter().map(|shard| shard + 1).max().unwrap_or_default();
        let reads = (0..count.max(directory.shards())).map(|shard| {
            let specs = open::specs(directory.pools_of(shard));
            open::read(&OsFiles, &self.settings, shard, &specs, believed).unwrap()
        });
        let start = Start {
            files: &OsFiles,
            settings: &self.settings,
            directory,
            reading,
            on_disk: &on_disk,
            has_log: last_owner.is_some(),
            noted: &KeptNotes::default(),
            last_owner,
            member,
            withholds: member.is_some(),
            only: None,
        };
        open::begin(reads.collect(), &start)
    }

    pub(crate) fn start(&self, directory: &Directory, since: Millis) -> Begun<OsFiles> {
        self.start_as(directory, reading(since), None).unwrap()
    }

    fn served(&self) -> Option<ServedMap> {
        ServedMap::read(&OsFiles, &self.settings.data).unwrap()
    }
}

fn believed(boot: u64) -> Believed {
    Believed { answer_rows_max: 1_000, clock_skew_max: Millis::ZERO, boot }
}

/// Returns a machine's clocks at the time `since` after [`START`].
pub(crate) fn reading(since: Millis) -> Reading {
    Reading { boot: 1, since_boot: Millis(1_000_000) + since, wall: START + since }
}

pub(crate) fn now(begun: &Begun<OsFiles>, since: Millis) -> Millis {
    begun.clocks.shard(reading(since).since_boot)
}

pub(crate) fn directory(shards: u16, lifetime: Millis) -> Directory {
    Directory::new(1, demo_pools(POOLS, 3, lifetime).unwrap(), shards).unwrap()
}

/// Asks for a number from each pool, and stores the answers. The batch is repeatable: a second
/// invocation with the same `batch` repeats the first.
pub(crate) fn hand_out(
    begun: &mut Begun<OsFiles>,
    directory: &Directory,
    at: Millis,
    batch: u8,
) -> RowResults {
    let clocks = begun.clocks;
    let mut given = Vec::new();
    for shard in &mut begun.shards {
        shard.engine.set_clocks(clocks);
        for pool in directory.pools_of(shard.shard) {
            given.push((pool.id(), ask(&mut shard.engine, directory, pool, at, batch)));
        }
        // A shard that had pools in an earlier run but has none now has no group to store.
        let Some(group) = shard.engine.seal(Vec::new()) else { continue };
        let Inline::Left(journal) = &shard.store else { panic!("it is in memory") };
        journal.store(group).unwrap();
    }
    given.sort_by_key(|(pool, _)| *pool);
    given
}

fn ask(
    engine: &mut Engine,
    directory: &Directory,
    pool: &RingPool,
    at: Millis,
    batch: u8,
) -> Result<PromoNumber, Outcome> {
    let retry = Some(RowKey { batch: [batch; 16], row: u16::try_from(pool.id().0).unwrap() });
    let index = directory.lookup(pool.id()).unwrap().index();
    let ask = Ask { pool: index, id: pool.id(), params: [b"", b""], visitor: None, retry };
    let mut outcome = Outcome::Refused(Refusal::Late);
    engine.allocate(at, &ask, &mut outcome);
    outcome.number().ok_or(outcome)
}

fn locked(engine: &Engine, now: Millis) -> BTreeSet<PromoNumber> {
    let slots = engine.shard().slots().iter();
    slots.filter(|slot| !slot.is_free(now)).map(|slot| slot.number).collect()
}

fn hold(since: Millis, until: Millis) -> BucketHold {
    BucketHold { since, until }
}

#[test]
fn other_shards_take_over_lockouts_and_answers() {
    let data = Data::new(Durability::Disk);
    let (one, three) = (directory(1, LIFETIME), directory(3, LIFETIME));
    let mut begun = data.start(&one, Millis::ZERO);
    let at = now(&begun, Millis::ZERO);
    let given = hand_out(&mut begun, &one, at, 1);
    drop(begun);
    let later = Millis(20_000);
    let mut begun = data.start(&three, later);
    let now = now(&begun, later);
    assert_eq!(now, at + later);
    assert_eq!((begun.copied, &begun.facts.gaps), (None, &Gaps::default()));
    assert_eq!(begun.facts.recorded_until.wall(crate::clocks::dating(&begun)), START);
    for opened in &begun.shards {
        let own = given.iter().filter(|(pool, _)| three.placement().shard(*pool) == opened.shard);
        let own: BTreeSet<_> = own.map(|(_, number)| number.unwrap()).collect();
        assert!(!own.is_empty());
        assert_eq!(locked(&opened.engine, now), own, "shard {}", opened.shard);
    }
    let again = hand_out(&mut begun, &three, now, 1);
    assert_eq!(again, given);
}

#[test]
fn a_lost_journal_holds_the_pools_of_all_shards() {
    let data = Data::new(Durability::Disk);
    let two = directory(2, LIFETIME);
    let mut begun = data.start(&two, Millis::ZERO);
    let at = now(&begun, Millis::ZERO);
    hand_out(&mut begun, &two, at, 1);
    drop(begun);
    std::fs::remove_dir_all(data.settings.data.join("journal/1")).unwrap();
    let later = Millis(1_000);
    let mut begun = data.start(&two, later);
    let now = now(&begun, later);
    assert_eq!(begun.copied, Some(Copied::Replaced(1)));
    assert_ne!(begun.facts.gaps, Gaps::default());
    for (pool, got) in hand_out(&mut begun, &two, now, 2) {
        let Err(Outcome::Exhausted { until }) = got else { panic!("pool {pool}: {got:?}") };
        assert!(until > now + LIFETIME, "pool {pool} until {until:?}");
    }
}

/// The list is replaced by one with a shorter lifetime, and then a journal is lost. The pools must
/// be held for the earlier, longer lifetime.
#[test]
fn pools_in_doubt_are_held_for_the_lifetime_of_the_list_that_was_served() {
    let (long, short) = (directory(1, LIFETIME), directory(1, Millis(5_000)));
    for has_served_shorter in [true, false] {
        let data = Data::new(Durability::Disk);
        drop(data.start(&long, Millis::ZERO));
        if has_served_shorter {
            drop(data.start(&short, Millis(1_000)));
        }
        std::fs::remove_dir_all(data.settings.data.join("journal/0")).unwrap();
        let later = Millis(2_000);
        let mut begun = data.start(&short, later);
        let now = now(&begun, later);
        for (pool, got) in hand_out(&mut begun, &short, now, 2) {
            let Err(Outcome::Exhausted { until }) = got else { panic!("pool {pool}: {got:?}") };
            assert!(until >= now + LIFETIME, "pool {pool} until {until:?}");
        }
    }
}

/// The new startup has fewer or more shards than the previous one. Holds, lockouts and answers must
/// go to the shards that now own the pools.
#[test]
fn holds_lockouts_and_answers_go_to_the_shards_that_own_the_pools_now() {
    for (before, after) in [(3, 1), (1, 3), (2, 3), (3, 2)] {
        let data = Data::new(Durability::Disk);
        let (old, new) = (directory(before, LIFETIME), directory(after, LIFETIME));
        let mut begun = data.start(&old, Millis::ZERO);
        let at = now(&begun, Millis::ZERO);
        let until = at + Millis(90_000);
        let held = begun.shards.iter_mut().map(|it| {
            let pool = old.pools_of(it.shard).last().unwrap().id();
            assert!(it.engine.hold_pool(at, pool, until));
            pool
        });
        let held: BTreeSet<_> = held.collect();
        let given = hand_out(&mut begun, &old, at, 1);
        drop(begun);
        let later = Millis(1_000);
        let mut begun = data.start(&new, later);
        let now = now(&begun, later);
        for ((pool, first), (_, again)) in given.iter().zip(hand_out(&mut begun, &new, now, 1)) {
            assert_eq!(
                (first.is_err(), again.is_err()),
                (held.contains(pool), held.contains(pool))
            );
            assert!(held.contains(pool) || *first == again, "{pool}");
        }
        for (pool, got) in hand_out(&mut begun, &new, now, 2) {
            let is_held = matches!(got, Err(Outcome::Exhausted { until: end }) if end == until);
            assert_eq!(is_held, held.contains(&pool), "{pool}: {got:?}");
        }
    }
}

#[test]
fn shards_are_found_by_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let last = ringwell_directory::SHARDS_MAX - 1;
    for file in
        ["0/1.rpj", "2/1.rps", "3/1.tmp", "4/rpj", "x/1.rpj", "70000/1.rpj", "5/1.tmp", "5/2.rpj"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("{last}/1.rpj"), format!("{}/1.rpj", last + 1)])
    {
        let path = folder.path().join("journal").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let mut found = open::shards_on_disk(&OsFiles, folder.path()).unwrap();
    found.sort_unstable();
    assert_eq!(found, [0, 2, 5, last]);
}

#[test]
fn a_journal_that_is_missing_or_another_one_is_noticed_without_a_start() {
    let (data, other) = (Data::new(Durability::Disk), Data::new(Durability::Disk));
    let two = directory(2, LIFETIME);
    let replaced = || open::replaced_journal(&OsFiles, &data.settings.data).unwrap();
    assert_eq!(replaced(), None, "there is nothing");
    for data in [&data, &other] {
        let mut begun = data.start(&two, Millis::ZERO);
        let at = now(&begun, Millis::ZERO);
        hand_out(&mut begun, &two, at, 1);
    }
    assert_eq!(replaced(), None);
    // Earlier releases did not record the names of journals.
    let identity = data.settings.data.join("identity.json");
    let text = std::fs::read(&identity).unwrap();
    let mut without: serde_json::Value = serde_json::from_slice(&text).unwrap();
    without["journals"] = serde_json::json!({});
    std::fs::write(&identity, without.to_string()).unwrap();
    assert_eq!(replaced(), None);
    std::fs::write(&identity, text).unwrap();
    let [own, foreign] = [&data, &other].map(|data| data.settings.data.join("journal/1"));
    std::fs::remove_dir_all(&own).unwrap();
    assert_eq!(replaced(), Some(1));
    std::fs::rename(foreign, own).unwrap();
    assert_eq!(replaced(), Some(1));
}

/// Each startup begins a new segment, so the newest segment file identifies the last startup.
#[test]
fn an_older_journal_of_a_shard_and_later_its_original_are_noticed() {
    let data = Data::new(Durability::Disk);
    let two = directory(2, LIFETIME);
    let files = |name: &str| data.settings.data.join(name);
    let (journal, copy, original) = (files("journal/1"), files("copy"), files("original"));
    let start = |since, batch| {
        let mut begun = data.start(&two, Millis(since));
        let at = now(&begun, Millis(since));
        hand_out(&mut begun, &two, at, batch);
        unmark_restored(&OsFiles, &data.settings.data).unwrap();
        begun.copied
    };
    assert_eq!(start(0, 1), None);
    copy_files(&journal, &copy);
    assert_eq!(start(1, 2), None);
    std::fs::rename(&journal, &original).unwrap();
    copy_files(&copy, &journal);
    assert_eq!(open::replaced_journal(&OsFiles, &data.settings.data).unwrap(), Some(1));
    assert_eq!(start(2, 3), Some(Copied::Replaced(1)));
    assert_eq!(start(3, 4), None);
    std::fs::remove_dir_all(&journal).unwrap();
    std::fs::rename(&original, &journal).unwrap();
    assert_eq!(start(4, 5), Some(Copied::Replaced(1)));
    assert_eq!(start(5, 6), None);
}

#[test]
fn starts_that_end_before_they_serve_leave_the_journal_that_was_written_last() {
    let data = Data::new(Durability::Disk);
    let two = directory(2, LIFETIME);
    let segments = || std::fs::read_dir(data.settings.data.join("journal/0")).unwrap().count();
    drop(data.start(&two, Millis::ZERO));
    for _ in 0..3 {
        // Each process begins a segment, but ends before it records that it has started.
        let read = open::read(&OsFiles, &data.settings, 0, &[], believed(1)).unwrap();
        open::open(read, Millis(2_000_000)).unwrap();
    }
    assert_eq!(segments(), 4);
    for since in 1..4 {
        assert_eq!(data.start(&two, Millis(since)).copied, None, "{since}");
        assert_eq!(segments(), 1, "empty ones are removed");
    }
}

pub(crate) fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn buckets_that_were_served_by_mistake_are_remembered_until_the_next_cluster_file() {
    let data = Data::new(Durability::Disk);
    let list = directory(2, LIFETIME);
    let start = |version| {
        let member = Some(([0].as_slice(), version));
        data.start_as(&list, reading(Millis::ZERO), member).unwrap().facts.stale
    };
    start(1);
    let stale = BTreeSet::from([700]);
    let map = ServedMap { stale: stale.clone(), ..map(1, 0..512, BucketHolds::default()) };
    map.write(&OsFiles, &data.settings.data).unwrap();
    assert_eq!(start(1), stale);
    assert_eq!(start(2), BTreeSet::new());
}

/// A cluster file without a shard must leave a gap in the history. Otherwise, look-ups would name a
/// visitor who had the number before the shard did. Any number may have been in the shard's pools,
/// even if its buckets moved away.
#[test]
pub fn a_cluster_file_without_a_shard_leaves_a_gap_in_the_history() {
    for is_drained in [false, true] {
        let data = Data::new(Durability::Disk);
        let (two, one) = (directory(2, LIFETIME), directory(1, LIFETIME));
        let own = [0].as_slice();
        drop(data.start_as(&two, reading(Millis::ZERO), Some((own, 1))).unwrap());
        let mut owners = Owners::at_first(1, two.placement());
        (512..1_024).filter(|_| is_drained).for_each(|bucket| owners.give(bucket, 0));
        let map = ServedMap { owners: Some(owners), ..map(1, 0..512, BucketHolds::default()) };
        map.write(&OsFiles, &data.settings.data).unwrap();
        let later = Millis(1_000);
        let begun = data.start_as(&one, reading(later), Some((own, 2))).unwrap();
        let gaps = Gaps::read(&OsFiles, &data.settings.data).unwrap();
        let dating = crate::clocks::dating(&begun);
        let are_lost = |bucket: u16| !gaps.of(&[bucket], dating).is_empty();
        assert!(are_lost(511) && are_lost(512) && are_lost(1_023), "{is_drained}");
        let times = [START, START + later, START + later + Millis(1)];
        assert_eq!(times.map(|at| gaps.contain(at, dating)), [true, true, false]);
    }
}

#[test]
fn a_number_that_a_visitor_holds_does_not_become_an_overflow_number() {
    let data = Data::new(Durability::Disk);
    let old = directory(1, LIFETIME);
    let mut begun = data.start(&old, Millis::ZERO);
    let at = now(&begun, Millis::ZERO);
    let taken = hand_out(&mut begun, &old, at, 1)[0].1.unwrap();
    drop(begun);
    let fields = |pool: u64| -> PoolFields { old.pool(PoolId(pool)).unwrap().fields().clone() };
    let other = PromoNumber::from_code(taken.to_code() + 1_000).unwrap();
    let first = PoolFields { numbers: vec![NumberRange::new(other, 1).unwrap()], ..fields(1) };
    let second = PoolFields { overflow: Some(taken), ..fields(2) };
    let pools = [first, second].map(|fields| RingPool::new(fields).unwrap());
    let new = Directory::new(1, pools.into(), 1).unwrap();
    let refused = |since: u64| match data.start_as(&new, reading(Millis(since)), None) {
        Err(StartError::Overflow(OverflowTaken { number, pool, seconds, .. })) => {
            assert_eq!((number, pool), (taken, PoolId(2)));
            Some(seconds)
        }
        started => {
            started.unwrap();
            None
        }
    };
    let lockout = lockout(LIFETIME).0;
    assert_eq!(refused(0), Some(lockout.div_ceil(1_000)));
    assert_eq!(refused(lockout - 1_000), Some(1));
    assert_eq!(refused(lockout - 1), Some(1));
    assert_eq!(refused(lockout), None);
}

/// Returns a map with these buckets of the node's shard and these holds.
pub(crate) fn map(
    version: u64,
    buckets: impl IntoIterator<Item = u16>,
    holds: BucketHolds,
) -> ServedMap {
    ServedMap {
        version,
        buckets: buckets.into_iter().collect(),
        owners: None,
        leaving: Vec::new(),
        holds,
        stale: BTreeSet::new(),
        abandoned: BTreeMap::new(),
        lists: None,
        served_at: None,
        lifetimes: None,
    }
}

#[test]
fn pools_of_new_buckets_are_held_from_the_start_on() {
    let data = Data::new(Durability::Disk);
    let list = directory(2, LIFETIME);
    let member = |version| Some(([0].as_slice(), version));
    drop(data.start_as(&list, reading(Millis::ZERO), member(1)).unwrap());
    // This node served only the lower half of shard 0's buckets, and two of those buckets are held.
    let [pool, ended] = [0, 1].map(|at| {
        let own = list.pools_of(0).filter(|pool| bucket(pool.id()) < 256);
        own.map(|pool| pool.id()).nth(at).unwrap()
    });
    let later = Millis(1_000);
    let now = START + later;
    let mut holds = BucketHolds::default();
    holds.add(bucket(pool), hold(Millis::ZERO, now + Millis(1)));
    holds.add(bucket(ended), hold(Millis::ZERO, now));
    map(1, 0..256, holds.clone()).write(&OsFiles, &data.settings.data).unwrap();
    let begun = data.start_as(&list, reading(later), member(2)).unwrap();
    assert_eq!(begun.clocks.shard(reading(later).since_boot), now);
    let mut is_held = 0;
    for pool in list.pools_of(0).map(|pool| pool.id()) {
        let bucket = bucket(pool);
        let wanted = (bucket >= 256).then_some(hold(now, Millis::ZERO)).or(holds.get(bucket));
        assert_eq!(begun.facts.holds.get(bucket), wanted, "bucket {bucket}");
        is_held += u64::from(wanted.is_some_and(|it| it.since == now || it.until > now));
    }
    assert!(is_held > 1);
    assert_eq!(begun.held.iter().find(|(shard, _)| *shard == 0), Some(&(0, is_held)));
    let opened = &begun.shards[0];
    for (of, until) in opened.engine.shard().holds(Millis::ZERO) {
        let of = of.unwrap();
        let wanted = begun.facts.holds.until(of, lockout(LIFETIME));
        assert_eq!(Some(until), wanted, "pool {of}");
    }
    assert!(begun.facts.unknown_until > now + LIFETIME);
    drop(begun);
    // The log contains the lockouts that the buckets' previous owner recorded.
    let owner = LastOwner { recorded: NOTHING, epochs: Vec::new(), reached: Vec::new() };
    let begun = data.start_after(&list, reading(later), member(2), Some(&owner)).unwrap();
    assert_eq!(begun.facts.holds, holds);
    drop(begun);
    let begun = data.start_as(&list, reading(later), member(1)).unwrap();
    assert!(begun.facts.unknown_until > now, "buckets are new");
    drop(begun);
    unmark_restored(&OsFiles, &data.settings.data).unwrap();
    let own = list.placement().buckets_of(0);
    map(1, own, BucketHolds::default()).write(&OsFiles, &data.settings.data).unwrap();
    let begun = data.start_as(&list, reading(later), member(1)).unwrap();
    assert_eq!(begun.facts.unknown_until, Millis::ZERO, "nothing is new");
    drop(begun);
    let old = data.start_as(&list, reading(later), member(0)).err();
    assert!(matches!(old, Some(StartError::OldMap(OldMap { version: 0, served: 1 }))), "{old:?}");
}

/// While version 2 of the cluster file was in use, another node may have served this node's
/// buckets, with shorter lifetimes than before. The buckets must be held for the longer lifetimes.
#[test]
fn new_buckets_are_held_for_the_lifetimes_of_earlier_lists() {
    let data = Data::new(Durability::Disk);
    let (long, short) = (directory(2, LIFETIME), directory(2, Millis(5_000)));
    let member = |version| Some(([0].as_slice(), version));
    let mut begun = data.start_as(&long, reading(Millis::ZERO), member(1)).unwrap();
    begun.shards.truncate(1);
    let at = now(&begun, Millis::ZERO);
    hand_out(&mut begun, &long, at, 1);
    drop(begun);
    map(1, 0..512, BucketHolds::default()).write(&OsFiles, &data.settings.data).unwrap();
    drop(data.start_as(&short, reading(Millis(1_000)), member(1)).unwrap());
    let begun = data.start_as(&short, reading(Millis(2_000)), member(3)).unwrap();
    let now = now(&begun, Millis(2_000));
    let held = begun.facts.holds.get(0).unwrap();
    assert_eq!((held.since, held.until), (now, now + lockout(LIFETIME)));
}

#[test]
fn a_leap_of_the_clock_lengthens_earlier_holds_once_and_durably() {
    let data = Data::new(Durability::Disk);
    let list = directory(2, LIFETIME);
    let member = Some(([0].as_slice(), 1));
    let mut begun = data.start_as(&list, reading(Millis::ZERO), member).unwrap();
    begun.shards.truncate(1);
    hand_out(&mut begun, &list, START, 1);
    drop(begun);
    let mut holds = BucketHolds::default();
    holds.add(3, hold(START, Millis(0)));
    for known in [BucketHolds::default(), holds] {
        map(1, 0..512, known.clone()).write(&OsFiles, &data.settings.data).unwrap();
        let year = Millis(365 * 86_400_000);
        // After a reboot, the wall clock shows another year.
        let leap = Reading { boot: 2, since_boot: Millis(1), wall: START + year };
        let begun = data.start_as(&list, leap, member).unwrap();
        let Some(by) = begun.shards[0].doubts.lengthened else { panic!("no leap was noticed") };
        let mut wanted = known;
        wanted.lengthen(by);
        assert_eq!(begun.facts.holds, wanted);
        assert_eq!(data.served().unwrap().holds, wanted);
    }
}

#[test]
fn answers_that_waited_for_no_disk_are_in_doubt_after_a_boot_until_a_hold_is_stored() {
    let list = directory(2, LIFETIME);
    for durability in [Durability::Disk, Durability::Os] {
        let data = Data::new(durability);
        let at_boot = |boot| data.start_as(&list, Reading { boot, ..reading(Millis(9)) }, None);
        let copied = |boot| at_boot(boot).unwrap().copied;
        let name = at_boot(1).unwrap().facts.identity;
        assert!(!name.is_empty());
        let again = at_boot(1).unwrap();
        assert_eq!((&again.facts.identity, again.copied), (&name, None));
        let boot = (durability == Durability::Os).then_some(Copied::Unkept(Unkept::Boot));
        let third = at_boot(2).unwrap();
        assert_eq!((third.copied, third.facts.identity == name), (boot, boot.is_none()));
        drop(third);
        // Until the hold is stored, each startup treats the data as doubtful.
        assert_eq!(copied(2), boot);
        settle_unflushed(&OsFiles, &data.settings.data, durability, 2).unwrap();
        assert_eq!(copied(2), None);
        assert_eq!(copied(3), boot);
        settle_unflushed(&OsFiles, &data.settings.data, durability, 3).unwrap();
        // After an orderly shutdown, no data is in doubt.
        end_unflushed(&OsFiles, &data.settings.data).unwrap();
        assert_eq!(copied(4), None);
    }
}

pub(crate) const NOTHING: Recorded = Recorded { last_at: Millis::ZERO, clocks: None };

/// Each take-over raises the epoch by one.
#[test]
fn only_the_time_of_the_process_whose_shards_were_taken_over_is_believed() {
    let list = directory(2, LIFETIME);
    let ahead = START + Millis(500_000);
    let is_believed = |epochs: Vec<u64>| {
        let data = Data::new(Durability::Disk);
        let mut begun = data.start(&list, Millis::ZERO);
        let at = now(&begun, Millis::ZERO);
        hand_out(&mut begun, &list, at, 1);
        drop(begun);
        let recorded = Recorded { last_at: ahead, ..NOTHING };
        let owner = LastOwner { recorded, epochs, reached: Vec::new() };
        let later = Millis(1_000);
        let begun = data.start_after(&list, reading(later), None, Some(&owner)).unwrap();
        now(&begun, later) >= ahead
    };
    let believed: Vec<u64> = (0..5).filter(|epoch| is_believed(vec![*epoch; 2])).collect();
    assert_eq!(believed.len(), 1, "{believed:?}");
    assert!(!is_believed(vec![believed[0]]), "there are two shards");
}
