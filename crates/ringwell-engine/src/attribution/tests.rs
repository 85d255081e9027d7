//! Tests look-ups in an engine whose clocks the tests set.

use ringwell_core::{NumberRange, PoolSpec, Retired, VisitorId};
use ringwell_journal::{Clocks, Group, Noted, Tip, position_parts};

use super::*;
use crate::{Ask, Outcome, Refusal, Restore};

const LIFETIME: Millis = Millis(1_000);
/// The shard time at which every test begins.
const START: Millis = Millis(1_800_000_000_000);

/// An engine with one number, and all records of that number.
struct Rig {
    engine: Engine,
    clocks: Clocks,
    groups: Vec<Group>,
    /// The clocks recorded in the heads of the segments. Empty unless a test adds some.
    noted: Vec<Noted>,
    number: PromoNumber,
}

impl Rig {
    fn new() -> Self {
        let number = PromoNumber::parse("8885550142").unwrap();
        let numbers = vec![NumberRange::new(number, 1).unwrap()];
        let restore = Restore::new(vec![PoolSpec { id: PoolId(1), lockout: LIFETIME, numbers }], 9);
        let offset = START.0.cast_signed();
        let clocks = Clocks { boot: 1, shard_offset: offset, wall_offset: offset };
        let engine = restore.finish(Tip::FIRST.raise_epoch(), START, false).0;
        Self { engine, clocks, groups: Vec::new(), noted: Vec::new(), number }
    }

    /// Sets the wall clock `ahead` milliseconds ahead of shard time.
    fn wall(&mut self, ahead: i64) {
        self.clocks.wall_offset = self.clocks.shard_offset + ahead;
    }

    /// Boots the machine.
    fn boot(&mut self) {
        self.clocks.boot += 1;
    }

    fn ask(&mut self, ms: u64, name: &str, visitor: Option<VisitorId>) {
        let params = [name.as_bytes(), b""];
        let ask = Ask { pool: 0, id: PoolId(1), params, visitor, retry: None };
        let mut outcome = Outcome::Refused(Refusal::Late);
        let now = self.engine.at(START + Millis(ms));
        self.engine.allocate(now, &ask, &mut outcome);
        assert!(outcome.number().is_some(), "{outcome:?}");
        self.engine.set_clocks(self.clocks);
        self.groups.extend(self.engine.seal(Vec::new()));
    }

    /// Receives an allocation that another shard made.
    fn hear(&mut self, ms: u64) {
        self.hear_late(ms, ms);
    }

    /// Like [`Self::hear`], for an allocation that the other shard made at `at_ms` and that arrives
    /// at `ms`.
    fn hear_late(&mut self, ms: u64, at_ms: u64) {
        let (now, at) = (self.engine.at(START + Millis(ms)), START + Millis(at_ms));
        let slot = Slot { allocated_at: at, locked_until: at + LIFETIME, ..Slot::new(self.number) };
        let received = Retired { slot, local_at: at, pool: PoolId(1), visitor: None };
        assert!(self.engine.adopt(now, &received));
        self.engine.set_clocks(self.clocks);
        self.groups.extend(self.engine.seal(Vec::new()));
    }

    fn look_up(&self, at: Moment) -> (Past, usize) {
        self.follow(self.engine.attribution(self.number, at, &self.noted))
    }

    /// Returns the visitor that a look-up finds for a wall-clock time, and the count of records
    /// that it read.
    fn holder(&self, wall_ms: u64) -> (Option<String>, usize) {
        let at = Moment::Wall(START + Millis(wall_ms));
        let (past, read) = self.look_up(at);
        (past.held.map(|held| String::from_utf8(held.params).unwrap()), read)
    }

    /// Looks up the visitor for a wall-clock time. Returns the times of the visitor's keep-alives,
    /// in milliseconds, but omits keep-alives after the given time. Also returns whether there may
    /// be further keep-alives, and the count of records read.
    fn keep_alives(&self, wall_ms: u64) -> (Vec<u64>, bool, usize) {
        let at = Moment::Wall(START + Millis(wall_ms));
        let (walk, step) = self.engine.attribution(self.number, at, &self.noted);
        let (past, read) = self.follow((walk.with_keep_alives(), step));
        let kept = past.held.unwrap().keep_alives.unwrap();
        (kept.at.iter().map(|at| at.0 - START.0).collect(), kept.is_part, read)
    }

    /// Returns the result of a look-up, and the count of records that it read.
    fn follow(&self, (mut walk, mut step): (Walk<'_>, Step)) -> (Past, usize) {
        let mut read = 0;
        loop {
            let position = match step {
                Step::Done(past) => return (past, read),
                Step::Read(position) => position,
            };
            let n = position_parts(position).0;
            let group = self.groups.iter().find(|group| group.header.n == n).unwrap();
            let record = group.record(position).unwrap();
            step = walk.feed(&record, group.header.clocks).unwrap();
            read += 1;
        }
    }

    #[track_caller]
    fn check(&self, wanted: &[(u64, Option<&str>)]) {
        for (wall_ms, name) in wanted {
            assert_eq!(self.holder(*wall_ms).0.as_deref(), *name, "at {wall_ms} ms");
        }
    }
}

#[test]
fn a_corrected_clock_applies_to_earlier_times() {
    for wrong in [3_600_000, -1_500, 400 * 86_400_000] {
        let mut rig = Rig::new();
        rig.wall(wrong);
        rig.ask(10_000, "a", None);
        rig.ask(12_000, "b", None);
        rig.wall(0);
        rig.ask(14_000, "c", None);
        let all = [(9_999, None), (10_000, Some("a")), (11_999, Some("a")), (12_000, Some("b"))];
        rig.check(&all);
        rig.check(&[(13_999, Some("b")), (14_000, Some("c")), (99_000, Some("c"))]);
    }
}

#[test]
fn a_fact_from_another_shard_is_dated_by_the_clocks_of_its_time() {
    for wrong in [3_600_000, -400 * 86_400_000] {
        let mut rig = Rig::new();
        rig.ask(1_000, "own", None);
        rig.hear(3_000);
        rig.boot();
        rig.wall(wrong);
        rig.engine.set_clocks(rig.clocks);
        let empty = Some("");
        rig.check(&[(1_000, Some("own")), (2_998, Some("own")), (3_000, empty), (60_000, empty)]);
    }
}

#[test]
fn a_fact_reported_after_a_boot_is_dated_by_the_clocks_before_it() {
    for wrong in [3_600_000, -60 * 86_400_000] {
        let mut rig = Rig::new();
        rig.ask(1_000, "own", None);
        // From here on this shard is idle, so only the other shard records clocks before the
        // reboot.
        rig.noted.push(Noted { at: START + Millis(3_200), clocks: rig.clocks });
        rig.boot();
        rig.wall(wrong);
        rig.hear_late(9_000, 3_000);
        rig.engine.set_clocks(rig.clocks);
        let empty = Some("");
        rig.check(&[(1_000, Some("own")), (2_998, Some("own")), (3_000, empty), (60_000, empty)]);
        // At startup this shard adopted the number's state from the other shard without writing a
        // record.
        rig.boot();
        rig.wall(-wrong);
        let slot = Slot { allocated_at: START + Millis(3_100), ..Slot::new(rig.number) };
        let local_at = slot.allocated_at;
        rig.engine.adopt_unrecorded(&Retired { local_at, slot, pool: PoolId(1), visitor: None });
        rig.engine.set_clocks(rig.clocks);
        rig.check(&[(1_000, Some("own")), (3_099, Some("own")), (3_100, empty), (60_000, empty)]);
    }
}

#[test]
fn a_fact_whose_clocks_were_dropped_has_no_date_and_hides_nobody() {
    let mut rig = Rig::new();
    rig.ask(1_000, "own", None);
    // Old history was dropped, including the clocks of the boot in which the allocation was made.
    // Shard time has jumped forward since then.
    rig.boot();
    rig.clocks.shard_offset += 400 * 86_400_000;
    rig.hear_late(9_000, 3_000);
    rig.engine.set_clocks(rig.clocks);
    let own = Some("own");
    rig.check(&[(999, None), (1_000, own), (1_999, own), (2_000, None), (60_000, None)]);
    let missing = |at| rig.look_up(at).0.missing;
    assert_eq!(missing(Moment::Wall(START + Millis(1_500))), None);
    assert_eq!(missing(Moment::Wall(START + Millis(2_000))), Some(Missing::NotKept));
    // A look-up by shard time needs no clocks.
    let held = |ms| rig.look_up(Moment::Shard(START + Millis(ms))).0.held.unwrap().allocated_at;
    assert_eq!((held(2_999), held(3_000)), (START + Millis(1_000), START + Millis(3_000)));
}

#[test]
fn if_a_boot_ended_with_a_wrong_clock_only_a_running_lockout_is_named() {
    let mut rig = Rig::new();
    rig.ask(1_000, "right", None);
    rig.boot();
    rig.wall(3_600_000);
    rig.ask(5_000, "wrong", None);
    rig.boot();
    rig.wall(0);
    rig.ask(9_000, "again", None);
    // Visitor `wrong` got the number at an unknown time between the allocations to `right` and
    // `again`.
    rig.check(&[(1_000, Some("right")), (1_999, Some("right")), (2_000, None), (8_999, None)]);
    rig.check(&[(9_000, Some("again")), (60_000, Some("again"))]);
}

#[test]
fn a_look_up_reads_one_of_many_keep_alives() {
    let mut rig = Rig::new();
    rig.ask(0, "first", None);
    let visitor = Some(VisitorId([7; 16]));
    for ms in 0..500 {
        rig.ask(2_000 + ms * 900, "kept", visitor);
    }
    let last = 2_000 + 499 * 900;
    assert_eq!(rig.holder(last), (Some("kept".to_owned()), 2));
    rig.ask(last + 5_000, "next", None);
    assert_eq!(rig.holder(last + 100), (Some("kept".to_owned()), 3));
    assert_eq!(rig.holder(500), (Some("first".to_owned()), 4));
}

#[test]
fn a_look_up_collects_the_keep_alives_until_its_time() {
    let mut rig = Rig::new();
    let visitor = |name: u8| Some(VisitorId([name; 16]));
    rig.ask(0, "first", visitor(1));
    for ms in [500, 900] {
        rig.ask(ms, "first", visitor(1));
    }
    assert_eq!(rig.keep_alives(950), (vec![900, 500], false, 3));
    for at in 0..400 {
        rig.ask(3_000 + at * 900, "kept", visitor(2));
    }
    for at in 0..400 {
        rig.ask(500_000 + at * 900, "next", visitor(3));
    }
    // These look-ups are made much later, when there are many keep-alives after the requested time.
    for (at, wanted) in [(0, vec![]), (499, vec![]), (500, vec![500]), (2_999, vec![900, 500])] {
        let (found, is_part, read) = rig.keep_alives(at);
        assert_eq!((found, is_part), (wanted, false), "{at}");
        assert!(read <= 12, "{read} records read for {at}");
    }
    let times = |from: u64, to: u64| (from..=to).rev().map(|at| 3_000 + at * 900);
    let (found, is_part, _) = rig.keep_alives(3_000 + 50 * 900);
    assert_eq!((found, is_part), (times(1, 50).collect(), false));
    let (found, is_part, _) = rig.keep_alives(499_999);
    assert_eq!((found, is_part), (times(300, 399).collect(), true));
    assert_eq!(rig.holder(2_999).0.as_deref(), Some("first"));
    assert_eq!(rig.holder(499_999).0.as_deref(), Some("kept"));
}

#[test]
fn an_allocation_without_its_record_is_reported_with_the_reason() {
    let mut rig = Rig::new();
    rig.ask(0, "shown", None);
    let ended = |ms: u64, missing: Missing| {
        let at = Moment::Wall(START + Millis(ms));
        rig.engine.attribution(rig.number, at, &rig.noted).0.end(missing)
    };
    let slow = ended(500, Missing::TooLong);
    assert_eq!(slow.missing, Some(Missing::TooLong), "it may be read the next time");
    let held = slow.held.unwrap();
    assert_eq!((held.pool, held.allocated_at, held.params), (None, START, Vec::new()));
    assert_eq!(ended(500, Missing::NotKept).missing, None, "all that is known");
    let before = Moment::Wall(START - Millis(1));
    let none = rig.engine.attribution(rig.number, before, &rig.noted).0.end(Missing::NotKept);
    let later = Some(START);
    assert_eq!(none, Past { missing: Some(Missing::NotKept), later, ..Past::default() });
}
