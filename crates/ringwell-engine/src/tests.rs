//! Tests the engine's guarantees: replay, snapshots, history and repeated batches.

use proptest::prelude::*;
use ringwell_core::{
    Millis, NumberRange, PoolId, PoolSpec, Position, PromoNumber, Retired, Slot, VisitorId,
};
use ringwell_journal::{
    Chunk, Group, NumberEntry, Record, RowKey, SnapshotHeader, SnapshotReader, SnapshotWriter, Tip,
    position_parts,
};

use crate::{
    Ask, Engine, Missing, Moment, Outcome, PIECE_ENTRIES, PastAllocation, Refusal, Restore,
    SnapshotStep, Step,
};

mod repeats;

const FIRST: u64 = 18_885_550_000;
const START: Millis = Millis(1_700_000_000_000);

fn specs() -> Vec<PoolSpec> {
    let pool = |id: u64, size, lifetime| PoolSpec {
        id: PoolId(id),
        lockout: Millis(lifetime),
        numbers: vec![
            NumberRange::new(PromoNumber::from_e164(FIRST + id * 100).unwrap(), size).unwrap(),
        ],
    };
    vec![pool(1, 4, 40), pool(2, 2, 15), pool(3, 3, 5)]
}

/// An engine, and everything that it has written.
struct Rig {
    engine: Engine,
    /// The current pools.
    specs: Vec<PoolSpec>,
    groups: Vec<Group>,
    now: Millis,
    /// The allocations made, each as number, time and parameters.
    history: Vec<(PromoNumber, Millis, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum Input {
    Wait(u64),
    Allocate {
        pool: u32,
        visitor: Option<u8>,
        retry: Option<u8>,
    },
    Release {
        slot: u32,
    },
    /// Undoes the unanswered allocation at the index `before`, counted back from the newest one.
    Withdraw {
        before: usize,
    },
    /// Sets the pool's numbers: `size` numbers of its own, and one number that can be in any pool.
    Put {
        pool: u32,
        size: u32,
        shared: Option<u8>,
    },
    /// Another shard, whose clock may be behind or ahead, reports a number that any pool may have.
    Adopt {
        shared: u8,
        lockout: u64,
        behind: i64,
    },
    Tick,
    Seal,
}

/// Returns one of the numbers that any pool may have.
fn shared(at: u8) -> PromoNumber {
    PromoNumber::from_e164(FIRST + 1000 + 2 * u64::from(at)).unwrap()
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let visitor = proptest::option::weighted(0.2, 0..4_u8);
    let retry = proptest::option::weighted(0.2, 0..6_u8);
    let input = prop_oneof![
        2 => (0..20_u64).prop_map(Input::Wait),
        5 => (0..3_u32, visitor, retry)
            .prop_map(|(pool, visitor, retry)| Input::Allocate { pool, visitor, retry }),
        1 => (0..9_u32).prop_map(|slot| Input::Release { slot }),
        1 => (0..3_usize).prop_map(|before| Input::Withdraw { before }),
        1 => (0..3_u32, 1..6_u32, proptest::option::of(0..4_u8))
            .prop_map(|(pool, size, shared)| Input::Put { pool, size, shared }),
        1 => (0..4_u8, 0..60_u64, prop_oneof![Just(1_000_000_i64), Just(-1_000_000), Just(1)])
            .prop_map(|(shared, lockout, behind)| Input::Adopt { shared, lockout, behind }),
        1 => Just(Input::Tick),
        2 => Just(Input::Seal),
    ];
    proptest::collection::vec(input, 1..200)
}

impl Rig {
    fn new() -> Self {
        let (engine, _) = Restore::new(specs(), 100).finish(Tip::FIRST.raise_epoch(), START, false);
        Self { engine, specs: specs(), groups: vec![], now: START, history: vec![] }
    }

    fn allocate(&mut self, pool: u32, visitor: Option<u8>, retry: Option<u8>) -> Outcome {
        let now = self.engine.at(self.now);
        let params = format!("m1={}", self.history.len());
        let ask = Ask {
            pool,
            id: PoolId(u64::from(pool) + 1),
            params: [params.as_bytes(), b""],
            visitor: visitor.map(|v| VisitorId([v; 16])),
            retry: retry.map(|r| RowKey { batch: [r; 16], row: u16::from(r) }),
        };
        let before = self.engine.counts().allocated;
        let mut outcome = Outcome::Refused(Refusal::Late);
        self.engine.allocate(now, &ask, &mut outcome);
        if let Some(number) = outcome.number()
            && self.engine.counts().allocated > before
        {
            self.history.push((number, now, params.into_bytes()));
        }
        outcome
    }

    fn apply(&mut self, input: &Input) {
        match *input {
            Input::Wait(ms) => self.now = self.now + Millis(ms),
            Input::Allocate { pool, visitor, retry } => {
                self.allocate(pool, visitor, retry);
            }
            Input::Release { slot } => {
                let now = self.engine.at(self.now);
                let since = self.engine.shard().slots()[slot as usize].allocated_at;
                self.engine.release_slot(now, slot, since);
            }
            Input::Withdraw { before } => self.withdraw(before),
            Input::Put { pool, size, shared: at } => self.put(pool, size, at),
            Input::Adopt { shared: at, lockout, behind } => {
                // Ensures that the other shard's report is newer than this shard's state.
                self.now = self.now + Millis(2);
                let now = self.engine.at(self.now);
                let (number, position) = (shared(at), Position::NONE);
                let locked_until = now + Millis(lockout);
                let allocated_at = Millis(now.0.checked_add_signed(-behind).unwrap());
                let slot = Slot { number, allocated_at, locked_until, position };
                // If a pool here contains the number, the report must not change the number's
                // newest allocation.
                let is_own = self.engine.shard().find(number).is_some();
                let local_at = if is_own { Millis::ZERO } else { now };
                let from = Retired { slot, local_at, pool: PoolId(9), visitor: None };
                assert!(self.engine.adopt(now, &from));
            }
            Input::Tick => {
                let now = self.engine.at(self.now);
                self.engine.tick(now);
            }
            Input::Seal => self.groups.extend(self.engine.seal(Vec::new())),
        }
    }

    fn withdraw(&mut self, before: usize) {
        let Some(place) = self.history.len().checked_sub(before + 1) else { return };
        let (number, at, _) = self.history[place];
        let now = self.engine.at(self.now);
        let is_undone = self.engine.withdraw(now, number, at);
        // If another shard owns the number by now, only the lockout recorded here ends.
        let newest = self.engine.shard().newest(number);
        if is_undone && newest.is_some_and(|newest| newest.allocated_at != at) {
            self.history.remove(place);
        }
    }

    fn put(&mut self, pool: u32, size: u32, at: Option<u8>) {
        let place = pool as usize;
        let mut spec = self.specs[place].clone();
        let own = NumberRange::new(spec.numbers[0].first(), size).unwrap();
        spec.numbers = vec![own];
        spec.numbers.extend(at.and_then(|at| NumberRange::new(shared(at), 1)));
        if self.engine.put_pool(pool, &spec).is_ok() {
            self.specs[place] = spec;
        }
    }

    fn replay(&self, mut restore: Restore, from: u64) -> Engine {
        for group in self.groups.iter().filter(|group| group.header.n >= from) {
            restore.group(&group.header, &group.body).unwrap();
        }
        let last = self.groups.last().map_or(Tip::FIRST, |group| Tip::after(&group.header));
        restore.finish(last.raise_epoch(), self.now, false).0
    }

    /// Returns the holder of `number` at `at`, found by reading the groups.
    fn attribution(
        &self,
        engine: &Engine,
        number: PromoNumber,
        at: Millis,
    ) -> Option<PastAllocation> {
        let (mut walk, mut step) = engine.attribution(number, Moment::Wall(at), &[]);
        loop {
            let position = match step {
                Step::Done(past) => return past.held,
                Step::Read(position) => position,
            };
            let (n, _) = position_parts(position);
            let Some(group) = self.groups.iter().find(|group| group.header.n == n) else {
                return walk.end(Missing::NotKept).held;
            };
            step = walk.feed(&group.record(position).unwrap(), None).unwrap();
        }
    }
}

/// Returns the engine's state of every number, without visitors. Visitors are omitted. After a
/// number has left a pool and returned, its visitor is known only after a restart.
fn state(engine: &Engine) -> Vec<(Option<Slot>, Option<Millis>, Option<u32>)> {
    let own = (1..=3).flat_map(|pool| (0..6).map(move |at| FIRST + pool * 100 + at));
    let own = own.map(|number| PromoNumber::from_e164(number).unwrap());
    let shard = engine.shard();
    own.chain((0..4).map(shared))
        .map(|number| {
            let newest = shard.newest(number).filter(|slot| *slot != Slot::new(number));
            let local_at = newest.and_then(|_| shard.newest_local_at(number));
            (newest, local_at, shard.find(number).and_then(|slot| shard.pool_of(slot)))
        })
        .collect()
}

/// Returns the outcomes of further allocations, which must be the same after a restart.
fn future(rig: &mut Rig) -> Vec<Outcome> {
    (0..60_u32)
        .map(|i| {
            rig.now = rig.now + Millis(3);
            rig.allocate(i % 3, None, None)
        })
        .map(|outcome| match outcome {
            Outcome::Allocated { number } => Outcome::Kept { number },
            other => other,
        })
        .collect()
}

pub(crate) fn snapshot_header(engine: &Engine) -> SnapshotHeader {
    let tip = engine.tip();
    SnapshotHeader {
        shard: 0,
        journal: [7; 16],
        replay_from: tip.next_n,
        prev_hash: tip.prev_hash,
        epoch: tip.epoch,
        created_at: tip.last_at,
        last_at: tip.last_at,
        numbers: 9,
        clocks: None,
    }
}

pub(crate) fn load(bytes: &[u8], specs: Vec<PoolSpec>) -> Restore {
    let mut rest = bytes;
    let mut reader = SnapshotReader::new(|buffer: &mut [u8]| {
        let count = rest.len().min(buffer.len());
        let (head, tail) = rest.split_at(count);
        buffer[..count].copy_from_slice(head);
        rest = tail;
        Ok::<_, ()>(count)
    })
    .unwrap();
    let mut restore = Restore::new(specs, 100);
    restore.begin_snapshot(reader.header());
    while let Some(chunk) = reader.next_chunk().unwrap() {
        match chunk {
            Chunk::Numbers(entries) => entries.for_each(|e| restore.number(&e)),
            Chunk::Answers(entries) => entries.for_each(|e| restore.answer(&e)),
            Chunk::Holds(entries) => entries.for_each(|e| restore.hold(&e)),
            Chunk::ForeignTimes(entries) => entries.for_each(|e| restore.foreign_time(&e)),
        }
    }
    restore
}

proptest! {
    #[test]
    fn replay_gives_the_same_state_and_the_same_future(inputs in inputs()) {
        let mut rig = Rig::new();
        for input in &inputs {
            rig.apply(input);
        }
        rig.apply(&Input::Seal);
        let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
        prop_assert_eq!(state(&engine), state(&rig.engine));
        prop_assert_eq!(repeats::remembered(&engine), repeats::remembered(&rig.engine));
        let (specs, history) = (rig.specs.clone(), rig.history.clone());
        let mut other = Rig { engine, specs, groups: vec![], now: rig.now, history };
        prop_assert_eq!(future(&mut other), future(&mut rig));
    }

    #[test]
    fn a_snapshot_taken_during_operation_and_the_tail_give_the_same_state(
        inputs in inputs(), from in 0..100_usize, pause in 1..10_usize
    ) {
        let mut rig = Rig::new();
        let from = from.min(inputs.len());
        inputs[..from].iter().for_each(|input| rig.apply(input));
        // The open group must be the first to be replayed, so all older groups are sealed.
        rig.apply(&Input::Seal);
        let mut writer = SnapshotWriter::new(&snapshot_header(&rig.engine));
        let replay_from = rig.engine.group();
        let mut step = SnapshotStep::FIRST;
        for (at, input) in inputs[from..].iter().enumerate() {
            rig.apply(input);
            if at % pause == 0 {
                step = rig.engine.snapshot(step, PIECE_ENTRIES, &mut writer);
            }
        }
        while step != SnapshotStep::Done {
            step = rig.engine.snapshot(step, PIECE_ENTRIES, &mut writer);
        }
        let bytes = writer.finish(rig.engine.group());
        rig.apply(&Input::Seal);
        let engine = rig.replay(load(&bytes, rig.specs.clone()), replay_from);
        prop_assert_eq!(state(&engine), state(&rig.engine));
        prop_assert_eq!(repeats::remembered(&engine), repeats::remembered(&rig.engine));
    }

    /// Includes numbers whose lockouts are over, because a repeated batch may lock them again.
    #[test]
    fn replay_knows_the_visitors_of_all_numbers_whatever_was_copied(
        inputs in inputs(), at in 0..100_usize
    ) {
        let mut rig = Rig::new();
        let (before, after) = inputs.split_at(at.min(inputs.len()));
        for input in before {
            rig.apply(input);
        }
        rig.apply(&Input::Seal);
        let now = rig.engine.at(rig.now);
        for group in &rig.groups {
            prop_assert!(rig.engine.carry(now, &mut group.records(), None).unwrap());
        }
        for input in after {
            rig.apply(input);
        }
        rig.apply(&Input::Seal);
        let again = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
        let (own, read) = (rig.engine.shard(), again.shard());
        for (slot, state) in (0..).zip(own.slots()) {
            let Some(visitor) = own.pool_of(slot).and_then(|_| own.visitor(slot)) else { continue };
            let found = read.find(state.number).and_then(|slot| read.visitor(slot));
            prop_assert_eq!(found, Some(visitor), "{}", state.number);
        }
    }

    #[test]
    fn every_allocation_is_attributed_until_the_number_goes_out_again(inputs in inputs()) {
        let mut rig = Rig::new();
        for input in &inputs {
            rig.apply(input);
        }
        rig.apply(&Input::Seal);
        for (place, (number, at, params)) in rig.history.iter().enumerate() {
            let held = rig.attribution(&rig.engine, *number, *at).unwrap();
            prop_assert_eq!(held.allocated_at, *at);
            prop_assert_eq!(&held.params, params);
            prop_assert!(held.locked_until >= *at);
            let before = rig.attribution(&rig.engine, *number, *at - Millis(1));
            // The time of another shard's allocation was read from that shard's clock.
            let is_foreign = |before: &PastAllocation| before.pool.is_none();
            prop_assert!(before.is_none_or(|b| is_foreign(&b) || b.allocated_at < *at));
            // Looks up the holder at the last moment before the number's next allocation.
            let later = rig.history[place + 1..].iter().find(|(other, ..)| other == number);
            let late = later.map_or(rig.now, |(_, next, _)| *next - Millis(1)).max(*at);
            let held = rig.attribution(&rig.engine, *number, late).unwrap();
            prop_assert!(is_foreign(&held) || held.allocated_at == *at);
            prop_assert!(is_foreign(&held) || &held.params == params);
        }
    }

    #[test]
    fn the_newest_allocation_of_each_number_survives_dropped_groups(
        inputs in inputs()
    ) {
        let mut rig = Rig::new();
        for input in &inputs {
            rig.apply(input);
        }
        rig.apply(&Input::Seal);
        let now = rig.engine.at(rig.now);
        for group in &rig.groups {
            if rig.engine.needs_group(group.header.n) {
                prop_assert!(rig.engine.carry(now, &mut group.records(), None).unwrap());
            }
        }
        let dropped = rig.groups.len();
        rig.apply(&Input::Seal);
        rig.groups.drain(..dropped);
        for slot in rig.engine.shard().slots().to_vec() {
            let newest = rig.history.iter().rev().find(|(number, ..)| *number == slot.number);
            let held = rig.attribution(&rig.engine, slot.number, now);
            // The parameters of another shard's allocation are only in that shard's journal.
            let is_own = newest.is_some_and(|(_, at, _)| *at == slot.allocated_at);
            let params = newest.filter(|_| is_own).map(|(_, _, params)| params.clone());
            let known = (slot.allocated_at > Millis::ZERO)
                .then(|| (slot.allocated_at, slot.locked_until, params.unwrap_or_default()));
            prop_assert_eq!(held.map(|h| (h.allocated_at, h.locked_until, h.params)), known);
        }
    }
}

#[test]
fn a_snapshot_contains_all_numbers_without_a_pool_in_several_pieces() {
    let mut restore = Restore::new(vec![], 1);
    for i in 1..=3000 {
        let number = PromoNumber::from_e164(FIRST + 1000 + i).unwrap();
        let (pool, position, visitor) = (PoolId(1), Position(i), None);
        let (allocated_at, locked_until) = (Millis(i), Millis(i + 5));
        restore.number(&NumberEntry {
            number,
            pool,
            allocated_at,
            locked_until,
            position,
            visitor,
        });
    }
    let (mut engine, _) = restore.finish(Tip::FIRST.raise_epoch(), START, false);
    let mut writer = SnapshotWriter::new(&snapshot_header(&engine));
    let (mut step, mut pieces) = (SnapshotStep::FIRST, 0);
    while step != SnapshotStep::Done {
        step = engine.snapshot(step, PIECE_ENTRIES, &mut writer);
        pieces += 1;
    }
    assert!(pieces > 5, "{pieces}");
    let again = load(&writer.finish(1), specs());
    let numbers: Vec<u64> =
        again.retired().map(|r| r.slot.number.to_e164() - FIRST - 1000).collect();
    assert_eq!(numbers, (1..=3000).collect::<Vec<_>>());
}

/// Shard 0 hands out the number. Then shard 1 hands it out and keeps it alive. Then shard 0 hands
/// it out again. Look-ups must find the history in both shards.
#[test]
fn the_history_of_a_number_that_moved_between_shards_is_found_in_both() {
    let mut rig = Rig::new();
    let Outcome::Allocated { number } = rig.allocate(2, None, None) else { panic!() };
    rig.apply(&Input::Seal);
    let (first_at, first_until) = (rig.now, rig.now + Millis(5));
    let elsewhere = |allocated_at, until| {
        let mut other = Restore::new(vec![], 1);
        let (pool, position, visitor) = (PoolId(3), Position(9), None);
        let locked_until = until;
        let entry = NumberEntry { number, pool, allocated_at, locked_until, position, visitor };
        other.number(&entry);
        other
    };
    let other = elsewhere(START + Millis(20), START + Millis(60));
    let mut restore = Restore::new(specs(), 100);
    restore.group(&rig.groups[0].header, &rig.groups[0].body).unwrap();
    other.retired().for_each(|retired| restore.adopt(retired));
    let tip = Tip::after(&rig.groups[0].header).raise_epoch();
    rig.now = START + Millis(60);
    rig.engine = restore.finish(tip, rig.now, false).0;
    let at = |rig: &Rig, ms| {
        let held = rig.attribution(&rig.engine, number, START + Millis(ms)).unwrap();
        (held.pool.is_some(), held.allocated_at, held.locked_until, held.next_allocated_at)
    };
    let second_at = START + Millis(20);
    assert_eq!(at(&rig, 19), (true, first_at, first_until, Some(second_at)));
    assert_eq!(at(&rig, 20), (false, second_at, START + Millis(60), None));
    // The numbers that were never handed out are allocated first, and `number` after them.
    let again = (0..3).map(|_| rig.allocate(2, None, None)).last();
    assert!(matches!(again, Some(Outcome::Allocated { number: n, .. }) if n == number));
    rig.apply(&Input::Seal);
    assert_eq!(at(&rig, 60), (true, rig.now, rig.now + Millis(5), None));
    assert_eq!(at(&rig, 19), (true, first_at, first_until, Some(rig.now)));
}

#[test]
fn an_allocation_that_no_visitor_saw_has_no_holder() {
    let mut rig = Rig::new();
    let Outcome::Allocated { number } = rig.allocate(1, None, None) else { panic!() };
    let (seen_at, seen_until) = (rig.now, rig.now + Millis(15));
    rig.now = rig.now + Millis(20);
    // The pool has two numbers, so the second allocation from here on gets `number` again.
    rig.allocate(1, None, None);
    assert_eq!(rig.allocate(1, None, None), Outcome::Allocated { number });
    let now = rig.engine.at(rig.now);
    assert!(rig.engine.withdraw(now, number, now));
    assert!(!rig.engine.withdraw(now, number, now), "a doubled message changes nothing");
    rig.apply(&Input::Seal);
    let replayed = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    for engine in [&rig.engine, &replayed] {
        let held = rig.attribution(engine, number, rig.now + Millis(100)).unwrap();
        assert_eq!((held.allocated_at, held.params), (seen_at, b"m1=0".to_vec()));
        assert_eq!((held.locked_until, held.next_allocated_at), (seen_until, None));
    }
    // The number is free again, and its next holder is the visitor who gets it now.
    rig.now = rig.now + Millis(1);
    assert_eq!(rig.allocate(1, None, None), Outcome::Allocated { number });
    rig.apply(&Input::Seal);
    let held = rig.attribution(&rig.engine, number, rig.now).unwrap();
    assert_eq!(held.allocated_at, rig.now);
}

#[test]
fn a_group_whose_numbers_have_all_gone_out_again_need_not_be_read() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.allocate(1, None, None);
        rig.allocate(1, None, None);
        rig.apply(&Input::Seal);
        rig.now = rig.now + Millis(15);
    }
    let needed: Vec<bool> = (1..=3).map(|n| rig.engine.needs_group(n)).collect();
    assert_eq!(needed, [false, false, true]);
}

#[test]
fn a_full_journal_refuses_rows_and_serves_again_on_request() {
    let mut rig = Rig::new();
    rig.engine.refuse(Some(Refusal::JournalFull));
    assert_eq!(rig.allocate(0, None, None), Outcome::Refused(Refusal::JournalFull));
    rig.engine.refuse(None);
    assert!(matches!(rig.allocate(0, None, None), Outcome::Allocated { .. }));
}

#[test]
fn a_batch_longer_than_a_group_fills_several() {
    let mut rig = Rig::new();
    let params = vec![b'x'; 16_000];
    let mut outcomes = Vec::new();
    for _ in 0..200 {
        rig.now = rig.now + Millis(20);
        let now = rig.engine.at(rig.now);
        let ask =
            Ask { pool: 1, id: PoolId(2), params: [&params, b""], visitor: None, retry: None };
        outcomes.push(Outcome::Refused(Refusal::Late));
        rig.engine.allocate(now, &ask, outcomes.last_mut().unwrap());
    }
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Allocated { .. })));
    assert!(rig.engine.is_full(), "the next batch waits");
    let newest = rig.engine.newest_group();
    while rig.engine.is_pending() {
        rig.apply(&Input::Seal);
    }
    let numbers: Vec<u64> = rig.groups.iter().map(|group| group.header.n).collect();
    assert_eq!(numbers, (1..=newest).collect::<Vec<_>>());
    assert!(numbers.len() > 3 && !rig.engine.is_full());
    let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    assert_eq!(state(&engine), state(&rig.engine));
}

#[test]
fn after_damage_to_answered_groups_nothing_is_allocated_for_the_longest_lifetime() {
    let (engine, doubts) = Restore::new(specs(), 9).finish(Tip::FIRST.raise_epoch(), START, true);
    assert_eq!(doubts.held_until, Some(START + Millis(40)));
    let mut rig =
        Rig { engine, specs: specs(), groups: vec![], now: START + Millis(39), history: vec![] };
    assert!(matches!(rig.allocate(2, None, None), Outcome::Exhausted { .. }));
    rig.now = START + Millis(40);
    assert!(matches!(rig.allocate(2, None, None), Outcome::Allocated { .. }));
    rig.apply(&Input::Seal);
    let hold = rig.groups[0].records().next().unwrap().unwrap().1;
    assert!(matches!(hold, Record::Hold { pool: None, .. }));
}

#[test]
fn a_pool_that_another_node_may_have_served_allocates_nothing_for_its_lifetime() {
    let mut rig = Rig::new();
    let (pool, lifetime) = (specs()[1].id, specs()[1].lockout);
    assert!(rig.engine.hold_pool(START, pool, START + lifetime));
    assert!(matches!(rig.allocate(0, None, None), Outcome::Allocated { .. }));
    rig.apply(&Input::Seal);
    let engine = rig.replay(Restore::new(specs(), 9), 1);
    let mut again =
        Rig { engine, specs: specs(), groups: vec![], now: START + Millis(14), history: vec![] };
    assert_eq!(again.allocate(1, None, None), Outcome::Exhausted { until: START + Millis(15) });
    again.now = START + Millis(15);
    assert!(matches!(again.allocate(1, None, None), Outcome::Allocated { .. }));
}

#[test]
fn a_clock_far_ahead_of_the_journal_lengthens_lockouts_and_one_behind_does_not_turn_time_back() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        rig.allocate(1, None, None);
    }
    rig.apply(&Input::Seal);
    let restart = |clock: Millis| {
        let mut restore = Restore::new(specs(), 9);
        restore.group(&rig.groups[0].header, &rig.groups[0].body).unwrap();
        restore.finish(Tip::after(&rig.groups[0].header).raise_epoch(), clock, false)
    };
    let (engine, doubts) = restart(START + Millis(2 * 86_400_000));
    assert_eq!(doubts.lengthened, Some(Millis(2 * 86_400_000)));
    assert!(engine.shard().slots()[4..6].iter().all(|slot| !slot.is_free(engine.now)));
    let (mut engine, doubts) = restart(START - Millis(5_000));
    assert_eq!(doubts.lengthened, None);
    assert_eq!(engine.at(START - Millis(5_000)), START);
}
