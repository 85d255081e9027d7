//! Tests adding, changing and removing pools against a model that has numbers but no slots.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::{
    Millis, NumberRange, PoolId, PoolSpec, Position, PromoNumber, Rebuild, Retired, Shard, Slot,
    VisitorId,
};

mod adopt;

const FIRST: u64 = 18_885_550_000;
const NUMBERS: u8 = 12;
const POOLS: u32 = 3;

fn number(at: u8) -> PromoNumber {
    PromoNumber::from_e164(FIRST + u64::from(at)).unwrap()
}

/// Returns the ranges of the numbers whose bits are set, with adjacent numbers in one range. The
/// list is rotated by `turn` places.
fn ranges(bits: u16, turn: u8) -> Vec<NumberRange> {
    let mut found: Vec<NumberRange> = Vec::new();
    for at in (0..NUMBERS).filter(|at| bits >> at & 1 == 1) {
        match found.last_mut() {
            Some(last) if last.last().to_e164() + 1 == number(at).to_e164() => {
                *last = NumberRange::new(last.first(), last.count() + 1).unwrap();
            }
            _ => found.push(NumberRange::new(number(at), 1).unwrap()),
        }
    }
    let by = usize::from(turn) % found.len().max(1);
    found.rotate_left(by);
    found
}

fn spec(pool: u32, bits: u16, turn: u8, lifetime: u64) -> PoolSpec {
    let id = PoolId(u64::from(pool) + 100);
    PoolSpec { id, lockout: Millis(lifetime), numbers: ranges(bits, turn) }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Put { pool: u32, bits: u16, turn: u8, lifetime: u64 },
    Remove(u32),
    Allocate { pool: u32, visitor: Option<u8> },
    Release(u8),
    Adopt { number: u8, until: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..30_u64).prop_map(Step::Wait),
        (0..POOLS, any::<u16>(), any::<u8>(), 5..40_u64)
            .prop_map(|(pool, bits, turn, lifetime)| Step::Put { pool, bits, turn, lifetime }),
        (0..POOLS).prop_map(Step::Remove),
        (0..POOLS, proptest::option::of(0..3_u8))
            .prop_map(|(pool, visitor)| Step::Allocate { pool, visitor }),
        (0..POOLS).prop_map(|pool| Step::Allocate { pool, visitor: None }),
        (0..NUMBERS).prop_map(Step::Release),
        (0..NUMBERS, 0..60_u64).prop_map(|(number, until)| Step::Adopt { number, until }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// The model's state of a number.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    allocated_at: Millis,
    locked_until: Millis,
    position: u64,
    holder: Option<(u32, u8)>,
}

#[derive(Default)]
struct Model {
    pools: BTreeMap<u32, (u16, Millis)>,
    numbers: BTreeMap<u8, Known>,
}

impl Model {
    fn of(&self, at: u8) -> Known {
        self.numbers.get(&at).copied().unwrap_or_default()
    }

    fn members(&self, pool: u32) -> Vec<u8> {
        let bits = self.pools.get(&pool).map_or(0, |(bits, _)| *bits);
        (0..NUMBERS).filter(|at| bits >> at & 1 == 1).collect()
    }

    /// Returns the number that a visitor has in the pool, or the newest one if there are several.
    fn newest_of(&self, holder: (u32, u8)) -> Option<u8> {
        let numbers = self.members(holder.0).into_iter();
        let theirs = numbers.filter(|at| self.of(*at).holder == Some(holder));
        theirs.max_by_key(|at| (self.of(*at).allocated_at, self.of(*at).position))
    }

    /// Keeps each visitor only for the newest number that the visitor got in this pool. Removes
    /// visitors who got their number in another pool.
    fn forget_visitors(&mut self, pool: u32) {
        for at in self.members(pool) {
            let known = self.of(at);
            let is_newest =
                |holder: &(u32, u8)| holder.0 == pool && self.newest_of(*holder) == Some(at);
            let holder = known.holder.filter(is_newest);
            self.numbers.insert(at, Known { holder, ..known });
        }
    }

    fn is_in_another(&self, pool: u32, bits: u16) -> bool {
        self.pools.iter().any(|(other, (theirs, _))| *other != pool && theirs & bits != 0)
    }
}

struct Rig {
    shard: Shard,
    model: Model,
    now: Millis,
    position: u64,
}

impl Rig {
    fn step(&mut self, step: &Step) {
        self.position += 1;
        match *step {
            Step::Wait(ms) => self.now = self.now + Millis(ms),
            Step::Put { pool, bits, turn, lifetime } => self.put(pool, bits, turn, lifetime),
            Step::Remove(pool) => {
                self.shard.remove_pool(pool, None);
                self.model.pools.remove(&pool);
            }
            Step::Allocate { pool, visitor } => self.allocate(pool, visitor),
            Step::Release(at) => self.release(at),
            Step::Adopt { number, until } => self.adopt(number, self.now + Millis(until)),
        }
        self.compare();
    }

    fn put(&mut self, pool: u32, bits: u16, turn: u8, lifetime: u64) {
        let bits = bits & ((1 << NUMBERS) - 1);
        let put = self.shard.put_pool(pool, &spec(pool, bits, turn, lifetime), None);
        assert_eq!(put.is_err(), self.model.is_in_another(pool, bits));
        if put.is_ok() {
            self.model.pools.insert(pool, (bits, Millis(lifetime)));
            self.model.forget_visitors(pool);
        }
    }

    fn allocate(&mut self, pool: u32, visitor: Option<u8>) {
        let Some(&(_, lifetime)) = self.model.pools.get(&pool) else {
            assert!(!self.shard.is_pool(pool, PoolId(u64::from(pool) + 100)));
            return;
        };
        let (now, position) = (self.now, Position(self.position));
        let id = visitor.map(|v| VisitorId([v; 16]));
        let members = self.model.members(pool);
        let holder = visitor.map(|v| (pool, v));
        let theirs = holder.and_then(|holder| self.model.newest_of(holder));
        let theirs = theirs.filter(|at| self.model.of(*at).locked_until > now);
        let kept = id.and_then(|id| self.shard.keep(now, pool, id, position));
        assert_eq!(kept.map(|kept| kept.number), theirs.map(number), "a visitor's number");
        if let Some(at) = theirs {
            let known = self.model.of(at);
            let locked_until = known.locked_until.max(now + lifetime);
            let position = self.position;
            self.model.numbers.insert(at, Known { locked_until, position, ..known });
            return;
        }
        let free = members.iter().map(|at| self.model.of(*at).locked_until);
        let longest = free.filter(|until| *until <= now).min();
        match self.shard.allocate(now, pool, id, position) {
            Err(_) => assert_eq!(longest, None, "free numbers were not found"),
            Ok(grant) => {
                let at = u8::try_from(grant.number.to_e164() - FIRST).unwrap();
                assert!(members.contains(&at), "a number that the pool does not have");
                assert_eq!(Some(self.model.of(at).locked_until), longest, "not the longest free");
                let (locked_until, position) = (now + lifetime, self.position);
                let known = Known { allocated_at: now, locked_until, position, holder };
                self.model.numbers.insert(at, known);
                self.model.forget_visitors(pool);
            }
        }
    }

    fn release(&mut self, at: u8) {
        let known = self.model.of(at);
        let Some(slot) = self.shard.find(number(at)) else { return };
        let position = Position(self.position);
        if self.shard.release(self.now, slot, known.allocated_at, position).is_some() {
            let locked_until = self.now + Millis(1);
            let position = self.position;
            let known = Known { locked_until, position, holder: None, ..known };
            self.model.numbers.insert(at, known);
        }
    }

    fn adopt(&mut self, at: u8, locked_until: Millis) {
        let slot = Slot {
            number: number(at),
            allocated_at: self.now,
            locked_until,
            position: Position(self.position),
        };
        let known = self.model.of(at);
        let from = Retired { slot, local_at: self.now, pool: PoolId(7), visitor: None };
        let adopted = self.shard.adopt(self.now, &from);
        let is_newer = (self.now, locked_until) > (known.allocated_at, known.locked_until);
        assert_eq!(adopted.is_some(), is_newer);
        if is_newer {
            let locked_until = locked_until.max(known.locked_until);
            // If both shards have the same allocation but the other shard has not recorded its
            // visitor, the visitor recorded here is kept.
            let holder = known.holder.filter(|_| known.allocated_at == self.now);
            let (allocated_at, position) = (self.now, self.position);
            let known = Known { allocated_at, locked_until, position, holder };
            self.model.numbers.insert(at, known);
        }
    }

    /// Checks that every number is in the same pool and has the same state as in the model.
    fn compare(&self) {
        let mut in_rotation = BTreeSet::new();
        for pool in 0..POOLS {
            let id = PoolId(u64::from(pool) + 100);
            assert_eq!(self.shard.is_pool(pool, id), self.model.pools.contains_key(&pool));
            for at in self.model.members(pool) {
                let slot = self.shard.find(number(at)).expect("in rotation");
                assert_eq!(self.shard.pool_of(slot), Some(pool));
                in_rotation.insert(at);
            }
        }
        assert_eq!(self.shard.number_count(), in_rotation.len());
        for at in 0..NUMBERS {
            assert_eq!(self.shard.find(number(at)).is_some(), in_rotation.contains(&at));
            let known = self.model.of(at);
            let newest = self.shard.newest(number(at)).unwrap_or(Slot::new(number(at)));
            assert_eq!(
                (newest.allocated_at, newest.locked_until),
                (known.allocated_at, known.locked_until)
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn pools_change_in_any_order_and_no_lockout_is_lost(steps in steps()) {
        let shard = Rebuild::new(vec![]).finish();
        let (now, position) = (Millis(1_000), 0);
        let mut rig = Rig { shard, model: Model::default(), now, position };
        for step in &steps {
            rig.step(step);
        }
    }
}

#[test]
fn visitors_keep_their_numbers_when_the_pool_grows() {
    let mut shard = Rebuild::new(vec![spec(0, 0b11, 0, 50), spec(1, 0b1_1100, 0, 50)]).finish();
    let visitors = [1, 2, 3].map(|name| VisitorId([name; 16]));
    for visitor in visitors {
        shard.allocate(Millis(100), 1, Some(visitor), Position(1)).unwrap();
    }
    shard.put_pool(1, &spec(1, 0b111_1100, 0, 50), None).unwrap();
    for (at, visitor) in (2..).zip(visitors) {
        let kept = shard.keep(Millis(120), 1, visitor, Position(2)).unwrap();
        assert_eq!((kept.number, kept.locked_until), (number(at), Millis(170)));
    }
}

#[test]
fn room_left_by_a_pool_is_reused() {
    let mut shard = Rebuild::new(vec![spec(0, 0b1111, 0, 50)]).finish();
    for turn in 0..100 {
        let bits = if turn % 2 == 0 { 0b11_1111 } else { 0b1111 };
        shard.put_pool(0, &spec(0, bits, 0, 50), None).unwrap();
    }
    assert!(shard.slots().len() <= 16, "{} slots for 4 numbers", shard.slots().len());
}

#[test]
fn a_number_that_is_in_another_pool_changes_nothing() {
    let mut shard = Rebuild::new(vec![spec(0, 0b11, 0, 50), spec(1, 0b1100, 0, 50)]).finish();
    let refused = shard.put_pool(0, &spec(0, 0b111, 0, 50), None).unwrap_err();
    assert_eq!((refused.number, refused.pool), (number(2), PoolId(101)));
    assert_eq!(shard.pool_slots(0), 0..2);
}

#[test]
fn a_hold_waits_for_its_pool_and_survives_its_removal_and_return() {
    let mut shard = Rebuild::new(vec![spec(0, 0b11, 0, 50)]).finish();
    let (id, until) = (PoolId(101), Millis(500));
    shard.hold(Some(id), until);
    shard.put_pool(1, &spec(1, 0b1100, 0, 50), None).unwrap();
    for _ in 0..2 {
        assert_eq!(shard.holds(Millis(1)).collect::<Vec<_>>(), [(Some(id), until)]);
        let asked = shard.allocate(Millis(499), 1, None, Position(1));
        assert_eq!(asked.unwrap_err().until, until);
        shard.remove_pool(1, None);
        assert_eq!(shard.holds(Millis(1)).collect::<Vec<_>>(), [(Some(id), until)]);
        shard.put_pool(1, &spec(1, 0b1100, 0, 50), None).unwrap();
    }
    assert!(shard.allocate(until, 1, None, Position(1)).is_ok());
    assert!(shard.allocate(Millis(1), 0, None, Position(2)).is_ok(), "others go on");
}

#[test]
fn a_hold_of_all_pools_applies_to_later_pools_too() {
    let mut shard = Rebuild::new(vec![spec(0, 0b11, 0, 50)]).finish();
    let until = Millis(500);
    shard.hold(None, until);
    shard.hold(Some(PoolId(101)), until + Millis(1));
    shard.put_pool(1, &spec(1, 0b1100, 0, 50), None).unwrap();
    shard.put_pool(2, &spec(2, 0b11_0000, 0, 50), None).unwrap();
    let held = [(None, until), (Some(PoolId(101)), until + Millis(1))];
    assert_eq!(shard.holds(Millis(1)).collect::<Vec<_>>(), held);
    let ends = [until, until + Millis(1), until];
    assert_eq!([0, 1, 2].map(|pool| shard.next_free(pool, Millis(1)).unwrap()), ends);
    assert_eq!(shard.holds(until).collect::<Vec<_>>(), held[1..]);
    assert!([0, 2].iter().all(|pool| shard.allocate(until, *pool, None, Position(1)).is_ok()));
}

#[test]
fn a_change_of_the_lifetime_alone_leaves_every_number_where_it_is() {
    let mut shard = Rebuild::new(vec![spec(0, 0b11, 0, 50), spec(1, 0b1100, 0, 50)]).finish();
    shard.hold(Some(PoolId(101)), Millis(70));
    shard.put_pool(1, &spec(1, 0b1100, 0, 80), None).unwrap();
    assert_eq!((shard.pool_slots(1), shard.slots().len()), (2..4, 4));
    assert_eq!(shard.lockout(1), Millis(80));
    assert_eq!(shard.next_free(1, Millis(1)), Some(Millis(70)), "it is held as before");
}

/// If an application keeps adding and removing pools, the holds of removed pools must not
/// accumulate.
#[test]
fn holds_of_removed_pools_are_dropped_when_they_are_over_and_many() {
    let mut shard = Rebuild::new(Vec::new()).finish();
    let many = 3 * u64::try_from(crate::shard::HOLDS_KEPT_MIN).unwrap();
    for pool in 0..many {
        shard.hold(Some(PoolId(pool + 1)), Millis(pool));
        shard.forget_holds(Millis(pool));
    }
    let kept = shard.holds(Millis::ZERO).count();
    assert!(kept <= crate::shard::HOLDS_KEPT_MIN + 1, "{kept} holds");
    for pool in 0..many {
        shard.hold(Some(PoolId(pool + 1)), Millis(many));
        shard.forget_holds(Millis(many - 1));
    }
    assert_eq!(shard.holds(Millis(many - 1)).count() as u64, many, "one that runs is kept");
}

#[test]
fn counts_holds_and_visitors_stay_when_the_numbers_change() {
    let mut shard = Rebuild::new(vec![spec(0, 0b1, 0, 50)]).finish();
    let visitor = VisitorId([1; 16]);
    shard.allocate(Millis(10), 0, Some(visitor), Position(1)).unwrap();
    shard.allocate(Millis(11), 0, None, Position(2)).unwrap_err();
    shard.hold(Some(PoolId(100)), Millis(90));
    shard.put_pool(0, &spec(0, 0b11, 0, 50), None).unwrap();
    let counts = shard.counts(0);
    assert_eq!((counts.allocated, counts.exhausted), (1, 1));
    assert_eq!(shard.next_free(0, Millis(20)), Some(Millis(90)));
    assert!(shard.keep(Millis(20), 0, visitor, Position(3)).is_none(), "it is held");
    // The visitor loses the number when another visitor gets it.
    let next = shard.allocate(Millis(90), 0, None, Position(4)).unwrap();
    let next = if next.number == number(0) {
        next
    } else {
        shard.allocate(Millis(90), 0, None, Position(5)).unwrap()
    };
    assert_eq!(next.number, number(0));
    assert_eq!(shard.keep(Millis(91), 0, visitor, Position(6)), None);
}

#[test]
fn moved_numbers_are_reported_if_they_have_state() {
    let mut shard = Rebuild::new(vec![spec(0, 0b111, 0, 50), spec(1, 0b1000, 0, 50)]).finish();
    for position in 1..=2 {
        shard.allocate(Millis(10), 0, None, Position(position)).unwrap();
    }
    let mut moved = Vec::new();
    shard.put_pool(0, &spec(0, 0b100, 0, 50), Some(&mut moved)).unwrap();
    assert_eq!(moved, [number(0), number(1)], "they left");
    moved.clear();
    shard.put_pool(1, &spec(1, 0b1001, 0, 50), Some(&mut moved)).unwrap();
    assert_eq!(moved, [number(0)], "it came back, in another pool");
    moved.clear();
    shard.remove_pool(1, Some(&mut moved));
    assert_eq!(moved, [number(0)], "it left again");
    assert_eq!(shard.retired_after(None).count(), 2);
}

/// The change below replaces the pool's ring with an `Order`, which depends on positions.
#[test]
fn after_a_change_a_carried_number_goes_to_the_end_of_its_equals() {
    let backwards = PoolSpec {
        numbers: [6, 4, 2].map(|at| NumberRange::new(number(at), 1).unwrap()).to_vec(),
        ..spec(1, 0, 0, 50)
    };
    let mut shard = Rebuild::new(vec![spec(0, 0b11, 0, 50), spec(1, 0b101_0100, 0, 50)]).finish();
    for position in 1..=3 {
        shard.allocate(Millis(10), 1, None, Position(position)).unwrap();
    }
    shard.put_pool(1, &backwards, None).unwrap();
    shard.carried(0, number(2), Position(9));
    let again =
        (10..13).map(|at| shard.allocate(Millis(60), 1, None, Position(at)).unwrap().number);
    assert_eq!(again.collect::<Vec<_>>(), [number(4), number(6), number(2)]);
}

/// After a pool is removed, only its hold and its numbers' history may be kept, because many pools
/// are added and removed over the years.
#[test]
fn a_removed_pool_that_was_never_held_leaves_nothing_behind() {
    let mut shard = Rebuild::new(vec![spec(0, 0b11, 0, 50)]).finish();
    shard.remove_pool(0, None);
    assert!(shard.holds_elsewhere.is_empty() && shard.retired.is_empty());
}
