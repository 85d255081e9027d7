//! Tests moves of a number between owners whose clocks differ: no visitor may get a number that is
//! locked for another visitor.

use ringwell_core::{
    Millis, NumberRange, PoolId, PoolSpec, Position, PromoNumber, Retired, Slot, VisitorId,
};
use ringwell_journal::{AnswerEntry, Group, RecordedAnswer, RowKey, SnapshotWriter, Tip};

use crate::tests::{load, snapshot_header};
use crate::{Apart, Ask, Engine, Facts, Outcome, PIECE_ENTRIES, Refusal, Restore, SnapshotStep};

const START: u64 = 1_700_000_000_000;
const EXHAUSTED: Outcome = Outcome::Exhausted { until: Millis::ZERO };

fn number() -> PromoNumber {
    PromoNumber::from_e164(18_885_550_100).unwrap()
}

fn spec() -> PoolSpec {
    let numbers = vec![NumberRange::new(number(), 1).unwrap()];
    PoolSpec { id: PoolId(1), lockout: Millis(40), numbers }
}

/// The state that one owner sends to the next.
type Report = (Vec<Retired>, Vec<AnswerEntry>);

/// A shard whose clock is `ahead` milliseconds ahead of true time. The argument `at` of its methods
/// is true time, in milliseconds since `START`.
struct Shard {
    engine: Engine,
    ahead: i64,
    groups: Vec<Group>,
}

impl Shard {
    fn new(ahead: i64) -> Self {
        let start = Millis(START.checked_add_signed(ahead).unwrap());
        let engine = Restore::new(vec![], 100).finish(Tip::FIRST.raise_epoch(), start, false).0;
        Self { engine, ahead, groups: Vec::new() }
    }

    fn clock(&self, at: u64) -> Millis {
        Millis((START + at).checked_add_signed(self.ahead).unwrap())
    }

    fn ask(&mut self, at: u64, visitor: Option<u8>, row: Option<u8>) -> Outcome {
        let now = self.engine.at(self.clock(at));
        let ask = Ask {
            pool: 0,
            id: PoolId(1),
            params: [b"m=1", b""],
            visitor: visitor.map(|name| VisitorId([name; 16])),
            retry: row.map(|name| RowKey { batch: [name; 16], row: 0 }),
        };
        let mut outcome = Outcome::Refused(Refusal::Late);
        self.engine.allocate(now, &ask, &mut outcome);
        outcome
    }

    #[track_caller]
    fn gives(&mut self, at: u64, visitor: Option<u8>, row: Option<u8>) {
        let outcome = self.ask(at, visitor, row);
        assert!(outcome.number().is_some(), "{outcome:?}");
    }

    fn enter(&mut self) {
        self.engine.put_pool(0, &spec()).unwrap();
    }

    fn leave(&mut self) -> Report {
        self.engine.remove_pool(0);
        self.known()
    }

    /// Returns the state that this shard reports, in the form that [`Facts::settle`] returns.
    fn known(&self) -> Report {
        self.facts().settle()
    }

    fn facts(&self) -> Facts {
        let range = NumberRange::new(number(), 1).unwrap();
        let numbers: Vec<Retired> = self.engine.shard().retired_in(range).copied().collect();
        let mut facts = Facts::default();
        let mut answers = Vec::new();
        let mut next = self.engine.answers_first();
        while let Some(place) = next {
            next = self.engine.answers_for(place, u32::MAX, |_| true, &mut answers);
        }
        facts.add(numbers, answers);
        facts.add_holds(self.engine.shard().holds(Millis::ZERO).collect());
        facts
    }

    /// Simulates a new map that assigns the pool to this shard: no state is received, and the pool
    /// is held for one lifetime.
    fn enter_by_a_map(&mut self, at: u64) {
        self.enter();
        let now = self.clock(at);
        self.engine.hold_unrecorded(spec().id, now + spec().lockout);
    }

    /// Returns the shard after a restart from a snapshot alone.
    fn again(&mut self, at: u64) -> Self {
        self.seal();
        let mut writer = SnapshotWriter::new(&snapshot_header(&self.engine));
        let mut step = SnapshotStep::FIRST;
        while step != SnapshotStep::Done {
            step = self.engine.snapshot(step, PIECE_ENTRIES, &mut writer);
        }
        let restore = load(&writer.finish(self.engine.group()), vec![spec()]);
        let tip = Tip::after(&self.groups.last().unwrap().header).raise_epoch();
        let engine = restore.finish(tip, self.clock(at), false).0;
        Self { engine, ahead: self.ahead, groups: Vec::new() }
    }

    /// Adopts the state that `other`, a shard on another node, reports at the true time `at`.
    fn hear(&mut self, at: u64, other: &Self, (numbers, answers): &Report) {
        let (now, there) = (self.engine.at(self.clock(at)), other.clock(at));
        for retired in numbers {
            let left = retired.slot.locked_until.since(there);
            let slot = Slot { locked_until: now + left, position: Position::NONE, ..retired.slot };
            assert!(self.engine.adopt(now, &Retired { slot, local_at: now, ..*retired }));
        }
        for entry in answers {
            assert!(self.engine.adopt_answer(now, entry));
        }
    }

    /// Adopts the state that a shard on the same node reports.
    fn hear_at_home(&mut self, at: u64, (numbers, answers): &Report) {
        let now = self.engine.at(self.clock(at));
        assert!(numbers.iter().all(|retired| self.engine.adopt(now, retired)));
        assert!(answers.iter().all(|entry| self.engine.adopt_answer(now, entry)));
    }

    fn seal(&mut self) {
        self.groups.extend(self.engine.seal(Vec::new()));
    }

    /// Moves the number to `next`, a shard on another node.
    fn give(&mut self, at: u64, next: &mut Self) {
        self.engine.remove_pool(0);
        let now = self.clock(at);
        let apart = self.facts().settle_apart(now, |_| Some(PoolId(1)), |_| true);
        next.hear_apart(at, self, &apart);
        next.enter();
    }

    /// Moves the pool's bucket to `next` while the pool is missing from both nodes' lists, and then
    /// adds the pool to `next`.
    fn give_unlisted(&mut self, at: u64, next: &mut Self) {
        self.engine.remove_pool(0);
        let apart = self.facts().settle_apart(self.clock(at), |_| None, |_| false);
        next.hear_apart(at, self, &apart);
        next.enter();
    }

    fn hear_apart(&mut self, at: u64, other: &Self, apart: &Apart) {
        let (now, there) = (self.engine.at(self.clock(at)), other.clock(at));
        for (pool, until) in &apart.doubts {
            let until = now + until.since(there) - there.since(*until);
            assert!(self.engine.hold_pool(now, *pool, until));
        }
        self.hear(at, other, &(apart.numbers.clone(), apart.answers.clone()));
    }

    fn newest(&self) -> Slot {
        self.engine.shard().newest(number()).unwrap()
    }
}

#[test]
fn a_row_does_not_get_back_a_number_that_went_to_another_in_between() {
    for ahead in [-200, -40, 0, 40, 50_000] {
        let (mut a, mut b) = (Shard::new(0), Shard::new(ahead));
        b.enter();
        b.gives(1000, None, Some(1));
        b.give(1030, &mut a);
        a.give(1035, &mut b);
        // The lockout of the first allocation is over.
        b.gives(1050, Some(9), None);
        b.give(1060, &mut a);
        assert_eq!(a.ask(1065, None, Some(1)), EXHAUSTED, "{ahead} ms");
        a.gives(1066, Some(9), None);
    }
}

#[test]
fn an_expired_allocation_of_a_number_that_left_its_pool_is_not_moved() {
    let mut shard = Shard::new(0);
    shard.enter();
    shard.gives(1000, None, Some(1));
    shard.engine.remove_pool(0);
    let until = shard.facts().settle().0[0].slot.locked_until;
    let report = |at| shard.facts().settle_apart(at, |_| None, |_| true);
    assert_eq!(report(until - Millis(1)).numbers.len(), 1, "while it is locked it does");
    let Apart { numbers, answers, .. } = report(until);
    assert!(numbers.is_empty());
    let given: Vec<_> = answers.iter().map(|entry| entry.answer).collect();
    assert_eq!(given, [RecordedAnswer::Overflow], "the row does not get the number again");
}

/// A move omits the newest allocation, so the next owner's state contains only an older one. The
/// next owner must not report the older allocation as the newest.
#[test]
fn an_allocation_omitted_by_a_move_stays_the_newest_when_the_pool_returns() {
    for ahead in [-50_000, 0, 50_000] {
        let (mut a, mut b, mut c) = (Shard::new(0), Shard::new(ahead), Shard::new(-ahead));
        b.enter();
        b.gives(1000, None, None);
        b.give(1100, &mut c);
        c.give(1110, &mut a);
        a.gives(1120, None, None);
        let newest = a.newest().allocated_at;
        a.give_unlisted(1200, &mut b);
        b = b.again(1210);
        b.give(1220, &mut c);
        // Unlike `a`, shard `c` has only an older allocation of the number. It must not report that
        // allocation to `a` as the newest.
        c.give(1230, &mut a);
        assert_eq!(a.newest().allocated_at, newest, "{ahead} ms");
    }
}

/// Another visitor may have received the number from another shard before the row is repeated.
#[test]
fn a_row_does_not_get_back_a_number_that_may_have_gone_out_elsewhere() {
    let (mut a, mut b) = (Shard::new(0), Shard::new(0));
    b.enter();
    b.gives(1000, None, Some(1));
    b.give(1050, &mut a);
    a.gives(1060, None, None);
    a.give_unlisted(1150, &mut b);
    assert_eq!(b.ask(1160, None, Some(1)), EXHAUSTED);
    b.gives(1170, None, Some(2));
    assert!(matches!(b.ask(1220, None, Some(2)), Outcome::Kept { .. }), "it is known again");
}

#[test]
fn a_visitor_keeps_a_number_that_moves_to_another_shard_of_the_node() {
    for ahead in [-600, 0, 600] {
        let (mut one, mut two, mut b) = (Shard::new(0), Shard::new(0), Shard::new(ahead));
        one.enter();
        one.gives(1000, Some(1), None);
        one.give(1010, &mut b);
        b.gives(1060, Some(2), None);
        b.give(1070, &mut two);
        // Shard `one` still has the first holder in its state.
        let report = two.leave();
        one.hear_at_home(1080, &report);
        one.enter();
        assert!(matches!(one.ask(1085, Some(1), None), Outcome::Exhausted { .. }), "{ahead} ms");
        one.gives(1086, Some(2), None);
    }
}

#[test]
fn of_facts_from_two_shards_of_a_node_the_newer_wins() {
    let (mut a3, mut a4, mut a5) = (Shard::new(0), Shard::new(0), Shard::new(0));
    let mut b = Shard::new(50_000);
    b.enter();
    b.gives(1000, Some(1), None);
    b.give(1005, &mut a4);
    let report = a4.leave();
    a5.hear_at_home(1010, &report);
    a5.enter();
    a5.gives(1060, Some(2), None);
    let newer = a5.leave();
    for report in [a4.known(), newer] {
        a3.hear_at_home(1070, &report);
    }
    a3.enter();
    assert!(matches!(a3.ask(1080, Some(1), None), Outcome::Exhausted { .. }));
}

/// A new map reassigns the pool from `b` to `a`, and a move returns it to `b`. The last allocation
/// by `a` is older than the last one by `b`, so `a` must not report it as the newest.
#[test]
fn an_allocation_older_than_a_hold_is_not_reported_as_the_newest() {
    for (ahead, is_restarted) in [(-600, false), (0, true), (0, false), (50_000, true)] {
        let (mut a, mut b) = (Shard::new(0), Shard::new(ahead));
        a.enter();
        a.gives(1000, None, Some(1));
        a.give(1010, &mut b);
        b.gives(1060, None, Some(2));
        b.engine.remove_pool(0);
        a.enter_by_a_map(1065);
        if is_restarted {
            a = a.again(1110);
        }
        a.give(1120, &mut b);
        let newest = b.engine.shard().newest(number()).unwrap();
        assert_eq!(newest.allocated_at, b.clock(1060), "{ahead} ms");
        // Shard `b` must assume that another owner has handed the number out since `b` last did.
        assert_eq!(b.ask(1130, None, Some(1)), EXHAUSTED, "{ahead} ms");
        assert_eq!(b.ask(1131, None, Some(2)), EXHAUSTED, "{ahead} ms");
    }
}

/// A new map reassigns the pool from `b` to `a`, and a move returns it to `b`.
#[test]
fn an_unseen_allocation_does_not_replace_the_previous_one_in_another_journal() {
    for ahead in [-600, 0, 50_000] {
        let (mut a, mut b) = (Shard::new(ahead), Shard::new(0));
        b.enter();
        b.gives(1000, None, None);
        let newest = b.newest().allocated_at;
        b.engine.remove_pool(0);
        a.enter_by_a_map(1005);
        a.gives(1050, None, None);
        let (now, unseen) = (a.clock(1055), a.newest().allocated_at);
        assert!(a.engine.withdraw(now, number(), unseen));
        a.give(1055, &mut b);
        assert_eq!(b.newest().allocated_at, newest, "{ahead} ms");
        assert!(matches!(b.ask(1055, None, None), Outcome::Exhausted { .. }));
        b = b.again(1070);
        assert_eq!(b.newest().allocated_at, newest, "{ahead} ms");
    }
}

#[test]
fn an_unseen_allocation_does_not_end_the_doubt_about_the_previous_one() {
    let mut shard = Shard::new(0);
    shard.enter();
    shard.gives(1000, None, None);
    let (now, until) = (shard.clock(1020), shard.clock(1040));
    let now = shard.engine.at(now);
    assert!(shard.engine.hold_pool(now, spec().id, until));
    assert!(shard.engine.is_doubted(number()));
    shard.gives(1050, None, None);
    assert!(!shard.engine.is_doubted(number()));
    let (now, unseen) = (shard.clock(1055), shard.newest().allocated_at);
    let now = shard.engine.at(now);
    assert!(shard.engine.withdraw(now, number(), unseen));
    assert!(shard.engine.is_doubted(number()), "another owner may have handed it out since");
    let shard = shard.again(1070);
    assert!(shard.engine.is_doubted(number()), "nor does a restart");
}

/// After startup, each shard has the remembered answers of all its node's shards. The number was
/// once in a bucket that another shard now moves here. That shard also reports its remembered
/// answers. They must give no row a number that is in rotation here.
#[test]
fn a_reported_answer_gives_no_row_a_number_that_is_in_rotation_here() {
    let mut shard = Shard::new(0);
    shard.enter();
    shard.gives(1000, None, Some(1));
    shard.gives(1050, None, None);
    let row = RowKey { batch: [1; 16], row: 0 };
    let answer = RecordedAnswer::Number(number());
    for (row, at) in [(row, shard.clock(1000)), (RowKey { batch: [2; 16], row: 0 }, Millis(START))]
    {
        let entry = AnswerEntry { row, at, answer, pool: spec().id };
        assert!(shard.engine.adopt_answer(shard.clock(1060), &entry));
    }
    assert_eq!(shard.ask(1070, None, Some(1)), EXHAUSTED);
    assert_eq!(shard.ask(1070, None, Some(2)), EXHAUSTED);
}

#[test]
fn an_allocation_after_a_hold_is_reported() {
    let (mut a, mut b) = (Shard::new(0), Shard::new(0));
    a.enter();
    a.gives(1000, None, Some(1));
    a.give(1010, &mut b);
    b.gives(1060, None, Some(3));
    b.engine.remove_pool(0);
    a.enter_by_a_map(1065);
    assert_eq!(a.ask(1109, None, Some(1)), EXHAUSTED, "another row has had it since");
    a.gives(1110, None, Some(2));
    a.give(1120, &mut b);
    assert_eq!(b.ask(1130, None, Some(3)), EXHAUSTED);
    b.gives(1131, None, Some(2));
}

/// Another owner may have handed the number out after the first lockout ended, even if that lockout
/// still seems to be running here because a clock was set back.
#[test]
fn a_repeated_batch_gets_nothing_of_a_held_pool_even_during_a_lockout() {
    let mut a = Shard::new(0);
    a.enter();
    a.gives(1000, None, Some(1));
    a.gives(1010, None, Some(1));
    let now = a.clock(1015);
    a.engine.hold_unrecorded(spec().id, now + spec().lockout);
    assert_eq!(a.ask(1020, None, Some(1)), EXHAUSTED);
    assert_eq!(a.ask(1055, None, Some(1)), EXHAUSTED, "it was over before the hold was");
    a.gives(1056, None, Some(2));
}

/// The snapshot first includes the number as it was when it left shard `a`. The number then returns
/// with another allocation, before the allocation times by other nodes' clocks are written to the
/// snapshot.
#[test]
fn a_snapshot_in_the_middle_of_a_move_leads_to_the_same_state() {
    for ahead in [-600, 0, 50_000] {
        let (mut a, mut b) = (Shard::new(0), Shard::new(ahead));
        a.enter();
        a.gives(1000, None, Some(1));
        a.give(1010, &mut b);
        b.gives(1060, None, None);
        b.give(1110, &mut a);
        a.give(1120, &mut b);
        a.seal();
        let mut writer = SnapshotWriter::new(&snapshot_header(&a.engine));
        let from = a.engine.group();
        let mut step = a.engine.snapshot(SnapshotStep::FIRST, PIECE_ENTRIES, &mut writer);
        while !matches!(step, SnapshotStep::Moved(_)) {
            step = a.engine.snapshot(step, PIECE_ENTRIES, &mut writer);
        }
        b.gives(1130, Some(7), Some(7));
        let report = b.leave();
        a.hear(1135, &b, &report);
        while step != SnapshotStep::Done {
            step = a.engine.snapshot(step, PIECE_ENTRIES, &mut writer);
        }
        let bytes = writer.finish(a.engine.group());
        a.enter();
        a.seal();
        let mut restore = load(&bytes, vec![spec()]);
        for group in a.groups.iter().filter(|group| group.header.n >= from) {
            restore.group(&group.header, &group.body).unwrap();
        }
        let tip = Tip::after(&a.groups.last().unwrap().header).raise_epoch();
        let engine = restore.finish(tip, a.clock(1140), false).0;
        let mut again = Shard { engine, ahead: 0, groups: Vec::new() };
        let local_at = |shard: &Shard| shard.engine.shard().newest_local_at(number());
        assert_eq!(local_at(&again), local_at(&a), "{ahead} ms");
        for shard in [&mut a, &mut again] {
            assert_eq!(shard.ask(1145, None, Some(1)), EXHAUSTED, "{ahead} ms");
            shard.gives(1146, None, Some(7));
        }
    }
}
