//! A shard that is rebuilt from its records equals the shard that wrote them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Fact, Rebuild};
use crate::shard::Grant;
use crate::{
    Millis, NumberRange, PoolId, PoolSpec, Position, PromoNumber, Retired, Shard, Slot, VisitorId,
};

const FIRST: u64 = 18_885_550_000;
const POOLS: u32 = 3;
/// The count of numbers in each pool. They form two ranges.
const NUMBERS: u32 = 5;

fn number(pool: u32, at: u32) -> PromoNumber {
    // The second range has the lower numbers, so slots are not in the order of numbers.
    let at = if at < 2 { at + 10 } else { at };
    PromoNumber::from_e164(FIRST + u64::from(pool * 100 + at)).unwrap()
}

fn spec(pool: u32) -> PoolSpec {
    let range = |at, count| NumberRange::new(number(pool, at), count).unwrap();
    PoolSpec {
        id: PoolId(u64::from(pool) + 7),
        lockout: Millis(20 + 10 * u64::from(pool)),
        numbers: vec![range(0, 2), range(2, NUMBERS - 2)],
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Allocate { pool: u32, visitor: Option<u8> },
    Release(u32),
    Extend(u32),
    Hold { pool: Option<u32>, length: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slots = POOLS * NUMBERS;
    let pool = proptest::option::weighted(0.8, 0..POOLS + 1);
    let step = prop_oneof![
        3 => (0..30_u64).prop_map(Step::Wait),
        6 => (0..POOLS, proptest::option::of(0..3_u8))
            .prop_map(|(pool, visitor)| Step::Allocate { pool, visitor }),
        2 => (0..slots).prop_map(Step::Release),
        1 => (0..slots).prop_map(Step::Extend),
        1 => (pool, 1..40_u64).prop_map(|(pool, length)| Step::Hold { pool, length }),
    ];
    proptest::collection::vec(step, 1..80)
}

/// The record that a step writes.
#[derive(Clone, Copy, Debug)]
enum Record {
    Allocated(Fact),
    Relocked { number: PromoNumber, until: Millis, is_release: bool, position: Position },
    Held(Option<PoolId>, Millis),
}

struct Rig {
    shard: Shard,
    now: Millis,
    records: Vec<Record>,
}

impl Rig {
    fn new() -> Self {
        let shard = Rebuild::new((0..POOLS).map(spec).collect()).finish();
        Self { shard, now: Millis(1_000), records: Vec::new() }
    }

    fn position(&self) -> Position {
        Position(self.records.len() as u64 + 1)
    }

    fn run<'a>(&mut self, steps: impl Iterator<Item = &'a Step>) {
        for step in steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait(ms) => self.now = self.now + Millis(ms),
            Step::Allocate { pool, visitor } => {
                let id = visitor.map(|v| VisitorId([v; 16]));
                self.ask(pool, id);
            }
            Step::Release(slot) => {
                let since = self.shard.slots()[slot as usize].allocated_at;
                let grant = self.shard.release(self.now, slot, since, self.position());
                self.relocked(grant, true);
            }
            // A lockout that has ended is not extended, because the number's visitor may or may not
            // be known by then.
            Step::Extend(slot) if self.shard.slots()[slot as usize].is_free(self.now) => {}
            Step::Extend(slot) => {
                let grant = self.shard.extend(self.now, slot, self.position());
                self.relocked(grant, false);
            }
            Step::Hold { pool, length } => {
                let (pool, until) = (pool.map(|pool| spec(pool).id), self.now + Millis(length));
                self.shard.hold(pool, until);
                self.records.push(Record::Held(pool, until));
            }
        }
    }

    /// Requests a number as a client does, and returns it.
    fn ask(&mut self, pool: u32, visitor: Option<VisitorId>) -> Option<PromoNumber> {
        let (now, position) = (self.now, self.position());
        let kept = visitor.and_then(|id| self.shard.keep(now, pool, id, position));
        if kept.is_some() {
            self.relocked(kept, false);
            return kept.map(|grant| grant.number);
        }
        let grant = self.shard.allocate(now, pool, visitor, position).ok()?;
        let slot = self.shard.slots()[grant.slot as usize];
        self.records.push(Record::Allocated(Fact { slot, pool: spec(pool).id, visitor }));
        Some(grant.number)
    }

    fn relocked(&mut self, grant: Option<Grant>, is_release: bool) {
        let position = self.position();
        self.records.extend(grant.map(|grant| Record::Relocked {
            number: grant.number,
            until: grant.locked_until,
            is_release,
            position,
        }));
    }

    /// Returns the entries for every number with a history, as in a snapshot taken now.
    fn snapshot(&self) -> Vec<Fact> {
        let numbers = (0..POOLS).flat_map(|pool| (0..NUMBERS).map(move |at| (pool, at)));
        let facts = numbers.map(|(pool, at)| {
            let index = self.shard.find(number(pool, at)).unwrap();
            let slot = self.shard.slots()[index as usize];
            Fact { slot, pool: spec(pool).id, visitor: self.shard.visitor(index) }
        });
        facts.filter(|fact| fact.slot.position > Position::NONE).collect()
    }
}

/// Replays records whose hints are right, wrong or missing.
fn replay(into: &mut Rebuild, records: &[Record], hint: impl Fn(PromoNumber) -> u32) {
    for record in records {
        match *record {
            Record::Allocated(fact) => into.learn(hint(fact.slot.number), fact),
            Record::Relocked { number, until, is_release, position } => {
                into.relock(hint(number), number, until, is_release, position);
            }
            Record::Held(pool, until) => into.hold(pool, until),
        }
    }
}

/// Compares all state that could let clients distinguish the two shards, now or later.
fn assert_same(mut rebuilt: Shard, rig: &mut Rig, pools: std::ops::Range<u32>) {
    for pool in pools.clone() {
        for at in 0..NUMBERS {
            let number = number(pool, at);
            assert_eq!(rebuilt.newest(number), rig.shard.newest(number));
            let slot = rig.shard.find(number).unwrap();
            if !rig.shard.slots()[slot as usize].is_free(rig.now) {
                let again = rebuilt.find(number).and_then(|slot| rebuilt.visitor(slot));
                assert_eq!(again, rig.shard.visitor(slot), "{number}");
            }
        }
    }
    let now = rig.now;
    let holds = |shard: &Shard| -> BTreeMap<Option<PoolId>, Millis> {
        let of_pools = |id: PoolId| pools.clone().any(|pool| spec(pool).id == id);
        shard.holds(now).filter(|(id, _)| id.is_none_or(of_pools)).collect()
    };
    assert_eq!(holds(&rebuilt), holds(&rig.shard));
    for turn in 0..60_u32 {
        rig.now = rig.now + Millis(3);
        let pool = pools.start + turn % (pools.end - pools.start);
        let visitor = (turn % 4 == 3).then_some(VisitorId([(turn % 3) as u8; 16]));
        let position = Position(1_000 + u64::from(turn));
        let ask = |shard: &mut Shard, pool: u32| {
            let kept = visitor.and_then(|id| shard.keep(rig.now, pool, id, position));
            kept.map_or_else(|| shard.allocate(rig.now, pool, visitor, position), Ok)
        };
        let (again, live) = (ask(&mut rebuilt, pool - pools.start), ask(&mut rig.shard, pool));
        let parts = |grant: &Grant| (grant.number, grant.locked_until, grant.previous);
        assert_eq!(again.as_ref().map(parts), live.as_ref().map(parts), "turn {turn}");
    }
}

proptest! {
    /// The result depends neither on the hints nor on whether records are read twice.
    #[test]
    fn replaying_the_records_gives_the_same_shard(
        steps in steps(), again in 0..80_usize, wrong in 0..40_u32
    ) {
        let mut rig = Rig::new();
        rig.run(steps.iter());
        let right = |number| rig.shard.find(number).unwrap();
        let mut by_hints = Rebuild::new((0..POOLS).map(spec).collect());
        replay(&mut by_hints, &rig.records, right);
        let mut without = Rebuild::new((0..POOLS).map(spec).collect());
        replay(&mut without, &rig.records, |_| wrong);
        replay(&mut without, &rig.records[again.min(rig.records.len())..], |_| wrong);
        let (by_hints, without) = (by_hints.finish(), without.finish());
        prop_assert_eq!(by_hints.slots(), without.slots());
        prop_assert_eq!(by_hints.number_count(), (POOLS * NUMBERS) as usize);
        assert_same(without, &mut rig, 0..POOLS);
    }

    /// A snapshot that is taken during operation reads some numbers later than others. Together
    /// with the records after its beginning, it must still give the same shard.
    #[test]
    fn a_snapshot_and_the_records_after_its_beginning_give_the_same_shard(
        steps in steps(), began in 0..80_usize, ended in 0..80_usize
    ) {
        let last = steps.len() - 1;
        let (began, ended) = (began.min(ended).min(last), began.max(ended).min(last));
        let mut rig = Rig::new();
        let (mut early, mut late, mut from) = (Vec::new(), Vec::new(), 0);
        for (at, step) in steps.iter().enumerate() {
            if at == began {
                (early, from) = (rig.snapshot(), rig.records.len());
            }
            if at == ended {
                late = rig.snapshot();
            }
            rig.step(step);
        }
        let mut rebuild = Rebuild::new((0..POOLS).map(spec).collect());
        let is_early = |fact: &Fact| fact.slot.number.to_e164().is_multiple_of(2);
        let early = early.iter().filter(|fact| is_early(fact));
        let late = late.iter().filter(|fact| !is_early(fact));
        for fact in early.chain(late) {
            let slot = rebuild.restore(u32::MAX, *fact);
            prop_assert_eq!(slot, rig.shard.find(fact.slot.number));
        }
        let holds = |record: &&Record| matches!(record, Record::Held(..));
        let held: Vec<Record> = rig.records[..from].iter().filter(holds).copied().collect();
        replay(&mut rebuild, &held, |_| 0);
        replay(&mut rebuild, &rig.records[from..], |_| 0);
        assert_same(rebuild.finish(), &mut rig, 0..POOLS);
    }

    /// Numbers of a removed pool still have their earlier state when they return to rotation.
    #[test]
    fn the_records_of_a_removed_pool_return_with_it(steps in steps()) {
        let mut rig = Rig::new();
        // Omits the holds that apply to all pools.
        let is_of_all = |step: &&Step| matches!(step, Step::Hold { pool: None, .. });
        rig.run(steps.iter().filter(|step| !is_of_all(step)));
        let mut rebuild = Rebuild::new(vec![spec(0)]);
        replay(&mut rebuild, &rig.records, |_| u32::MAX);
        replay(&mut rebuild, &rig.records, |_| u32::MAX);
        let facts: BTreeMap<PromoNumber, Fact> =
            rig.snapshot().into_iter().map(|fact| (fact.slot.number, fact)).collect();
        let gone = facts.values().filter(|fact| fact.pool != spec(0).id);
        let known: Vec<Fact> = rebuild
            .retired()
            .map(|&Retired { slot, pool, visitor, .. }| Fact { slot, pool, visitor })
            .collect();
        let slots = |facts: &[Fact]| facts.iter().map(|f| (f.slot, f.pool)).collect::<Vec<_>>();
        prop_assert_eq!(slots(&known), slots(&gone.copied().collect::<Vec<_>>()));
        let mut shard = rebuild.finish();
        for pool in 1..POOLS {
            shard.put_pool(pool, &spec(pool), None).unwrap();
        }
        assert_same(shard, &mut rig, 0..POOLS);
    }
}

#[test]
fn holds_are_reported_with_their_latest_end() {
    let mut rebuild = Rebuild::new(vec![spec(0)]);
    for (pool, until) in [(Some(PoolId(1)), 5), (None, 9), (Some(PoolId(1)), 8), (None, 3)] {
        rebuild.hold(pool, Millis(until));
    }
    let holds: Vec<_> = rebuild.holds().collect();
    assert_eq!(holds, [(None, Millis(9)), (Some(PoolId(1)), Millis(8))]);
}

#[test]
fn doubtful_time_lengthens_the_holds_that_ran_and_no_others() {
    let mut rebuild = Rebuild::new(vec![spec(0)]);
    for (pool, until) in [(PoolId(1), 99), (PoolId(2), 100), (PoolId(3), 101)] {
        rebuild.hold(Some(pool), Millis(until));
    }
    rebuild.lengthen(Millis(100), Millis(1_000));
    let ends: Vec<u64> = rebuild.holds().map(|(_, until)| until.0).collect();
    assert_eq!(ends, [99, 100, 1_101]);
}

#[test]
fn a_report_without_newer_data_changes_nothing() {
    let mut rebuild = Rebuild::new(vec![spec(0)]);
    let slot = Slot {
        number: number(0, 0),
        allocated_at: Millis(5),
        locked_until: Millis(50),
        position: Position(3),
    };
    let visitor = Some(VisitorId([1; 16]));
    rebuild.learn(0, Fact { slot, pool: spec(0).id, visitor });
    let same = Slot { position: Position(9), ..slot };
    let local_at = same.allocated_at;
    rebuild.adopt(&Retired { slot: same, local_at, pool: spec(0).id, visitor: None });
    let shard = rebuild.finish();
    assert_eq!(shard.slots()[0], slot);
    assert_eq!(shard.visitor(0), visitor, "the visitor keeps the number");
}

#[test]
fn after_a_restart_a_carried_number_goes_to_the_end_of_its_equals() {
    let mut rebuild = Rebuild::new(vec![spec(0)]);
    for at in 0..NUMBERS {
        let slot = Slot {
            number: number(0, at),
            allocated_at: Millis(10),
            locked_until: Millis(60),
            position: Position(u64::from(NUMBERS - at)),
        };
        rebuild.learn(at, Fact { slot, pool: spec(0).id, visitor: None });
    }
    let mut shard = rebuild.finish();
    shard.carried(0, number(0, 4), Position(9));
    let again = (10..15).map(|at| shard.allocate(Millis(60), 0, None, Position(at)).unwrap().slot);
    assert_eq!(again.collect::<Vec<_>>(), [3, 2, 1, 0, 4]);
}

/// A shard hands out a number at time 100. At 150, the number's pool moves to another of the node's
/// shards. Later the pool moves back, and the visitor keeps the number until 400. The node stops
/// while the pool moves to the other shard for the second time. The shard with the longer lockout
/// must win.
#[test]
fn for_one_allocation_the_shard_with_the_longer_lockout_wins() {
    let pool = spec(0).id;
    let known = |locked_until, position| Slot {
        number: number(0, 0),
        allocated_at: Millis(100),
        locked_until: Millis(locked_until),
        position: Position(position),
    };
    for visitor in [None, Some(VisitorId([1; 16]))] {
        let own = Some(VisitorId([1; 16]));
        let mut rebuild = Rebuild::new(vec![spec(0)]);
        let fact = Fact { slot: known(300, 7), pool, visitor: own };
        rebuild.learn_foreign(fact, Millis(150));
        let slot = known(400, 3);
        rebuild.adopt(&Retired { slot, local_at: Millis(100), pool, visitor });
        let shard = rebuild.finish();
        assert_eq!(shard.slots()[0], known(400, 7));
        assert_eq!((shard.local_at(0), shard.visitor(0)), (Millis(150), own));
    }
}

#[test]
fn an_older_allocation_lengthens_a_lockout_and_changes_nothing_else() {
    let pool = spec(0).id;
    let known = |allocated_at, locked_until| Slot {
        number: number(0, 0),
        allocated_at: Millis(allocated_at),
        locked_until: Millis(locked_until),
        position: Position(7),
    };
    let mut rebuild = Rebuild::new(vec![spec(0)]);
    let visitor = Some(VisitorId([1; 16]));
    rebuild.learn(0, Fact { slot: known(110, 300), pool, visitor });
    rebuild.adopt(&Retired { slot: known(100, 400), local_at: Millis(100), pool, visitor: None });
    let shard = rebuild.finish();
    assert_eq!((shard.slots()[0], shard.visitor(0)), (known(110, 400), visitor));
}

#[test]
fn the_later_end_of_a_lockout_wins_whichever_shard_reports_it() {
    let known = |allocated_at, locked_until, position| Slot {
        number: number(0, 0),
        allocated_at: Millis(allocated_at),
        locked_until: Millis(locked_until),
        position: Position(position),
    };
    let mut rebuild = Rebuild::new(vec![spec(0)]);
    let pool = spec(0).id;
    rebuild.learn(0, Fact { slot: known(100, 300, 7), pool, visitor: None });
    let slot = known(110, 200, 3);
    rebuild.adopt(&Retired { slot, local_at: slot.allocated_at, pool, visitor: None });
    assert_eq!(rebuild.finish().slots()[0], known(110, 300, 7));
}

/// Lockouts are lengthened without a record if the time is uncertain at a startup, or if another
/// shard's state is adopted. A snapshot includes the longer lockout. The record of the allocation,
/// which may be read after the snapshot, does not include it.
#[test]
fn a_repeated_record_does_not_shorten_a_lockout_of_a_snapshot() {
    let pool = spec(0).id;
    let slot = |number, until| Slot {
        number,
        allocated_at: Millis(100),
        locked_until: Millis(until),
        position: Position(7),
    };
    // One number is in rotation, and the other belonged to a removed pool.
    for number in [number(0, 0), number(1, 0)] {
        let visitor = Some(VisitorId([1; 16]));
        let mut rebuild = Rebuild::new(vec![spec(0)]);
        rebuild.restore(u32::MAX, Fact { slot: slot(number, 170), pool, visitor });
        rebuild.learn(u32::MAX, Fact { slot: slot(number, 120), pool, visitor: None });
        rebuild.relock(u32::MAX, number, Millis(120), true, Position(7));
        let shard = rebuild.finish();
        assert_eq!(shard.newest(number), Some(slot(number, 170)));
        assert_eq!(shard.newest_visitor(u32::MAX, number), visitor);
    }
}

/// An earlier startup lengthened the lockout by less than this startup does, and the visitor then
/// extended it. The extension's record therefore contains an earlier end than this startup has set.
#[test]
fn a_visitor_keeps_a_number_whose_lockout_was_lengthened_beyond_its_next_end() {
    let visitor = Some(VisitorId([1; 16]));
    for number in [number(0, 0), number(1, 0)] {
        let mut rebuild = Rebuild::new(vec![spec(0)]);
        let slot = Slot {
            number,
            allocated_at: Millis(100),
            locked_until: Millis(120),
            position: Position(7),
        };
        rebuild.learn(u32::MAX, Fact { slot, pool: spec(0).id, visitor });
        rebuild.lengthen(Millis(110), Millis(500));
        rebuild.relock(u32::MAX, number, Millis(150), false, Position(8));
        let shard = rebuild.finish();
        assert_eq!(shard.newest(number).unwrap().locked_until, Millis(150));
        assert_eq!(shard.newest_visitor(u32::MAX, number), visitor);
    }
}

#[test]
fn the_local_time_of_an_allocation_is_restored_from_a_record_and_from_a_snapshot() {
    // One number is in rotation, and the other belonged to a removed pool.
    for number in [number(0, 0), number(1, 0)] {
        let slot = Slot {
            number,
            allocated_at: Millis(90),
            locked_until: Millis(200),
            position: Position(3),
        };
        let fact = Fact { slot, pool: spec(0).id, visitor: None };
        let mut record = Rebuild::new(vec![spec(0)]);
        record.learn_foreign(fact, Millis(110));
        assert_eq!(record.finish().newest_local_at(number), Some(Millis(110)));
        // A snapshot's entry for an allocation is ignored if a newer allocation followed.
        for (at, local_at) in [(90, 110), (80, 90)] {
            let mut snapshot = Rebuild::new(vec![spec(0)]);
            snapshot.restore(u32::MAX, fact);
            snapshot.restore_foreign(number, Millis(at), Millis(110));
            assert_eq!(snapshot.finish().newest_local_at(number), Some(Millis(local_at)));
        }
    }
}

#[test]
fn of_two_shards_the_one_with_the_later_allocation_by_this_clock_wins() {
    let known = |allocated_at, locked_until, position| Slot {
        number: number(0, 0),
        allocated_at: Millis(allocated_at),
        locked_until: Millis(locked_until),
        position: Position(position),
    };
    let (pool, here) = (spec(0).id, VisitorId([1; 16]));
    let mut rebuild = Rebuild::new(vec![spec(0)]);
    let fact = Fact { slot: known(90, 200, 7), pool, visitor: Some(here) };
    rebuild.learn_foreign(fact, Millis(110));
    let (local_at, there) = (Millis(100), Some(VisitorId([2; 16])));
    rebuild.adopt(&Retired { slot: known(100, 150, 3), local_at, pool, visitor: there });
    let shard = rebuild.finish();
    assert_eq!((shard.slots()[0], shard.visitor(0)), (fact.slot, Some(here)));
}
