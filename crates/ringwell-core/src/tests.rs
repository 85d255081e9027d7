//! Tests the allocation rules with tables and against a reference model.

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;

use crate::{
    Exhausted, Fact, Millis, NumberRange, PoolId, PoolSpec, Position, PromoNumber, Rebuild, Shard,
    VisitorId,
};

const FIRST: u64 = 18_885_550_000;

fn spec(id: u64, first: u64, size: u32, lifetime: u64) -> PoolSpec {
    let first = PromoNumber::from_e164(first).unwrap();
    let numbers = vec![NumberRange::new(first, size).unwrap()];
    PoolSpec { id: PoolId(id), lockout: Millis(lifetime), numbers }
}

fn visitor(name: &str) -> VisitorId {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    VisitorId(id)
}

/// Runs a table. The first line creates the pool. Each other line is `TIME [WHAT] -> RESULT`, where
/// WHAT is empty (allocate), `visitor=NAME` (allocate or keep) or `release nK`.
fn check(table: &str) {
    let mut lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    let header: BTreeMap<&str, &str> =
        lines.next().unwrap().split_whitespace().filter_map(|w| w.split_once('=')).collect();
    let seconds = |text: &str| text.trim_end_matches('s').parse::<u64>().unwrap() * 1000;
    let pool = spec(1, FIRST, header["size"].parse().unwrap(), seconds(header["lockout"]));
    let mut shard = Rebuild::new(vec![pool]).finish();
    for (at, line) in lines.enumerate() {
        let (ask, wanted) = line.split_once("->").unwrap();
        let mut words = ask.split_whitespace();
        let now = Millis(seconds(words.next().unwrap()) + 1_000_000);
        let position = Position(at as u64 + 1);
        let grant = match (words.next(), words.next()) {
            (None, _) => shard.allocate(now, 0, None, position),
            (Some("release"), Some(number)) => {
                let slot = number.trim_start_matches('n').parse::<u32>().unwrap() - 1;
                let since = shard.slots()[slot as usize].allocated_at;
                shard.release(now, slot, since, position).ok_or(Exhausted { until: now })
            }
            (Some(word), _) => {
                let id = visitor(word.strip_prefix("visitor=").unwrap());
                let kept = shard.keep(now, 0, id, position);
                kept.map_or_else(|| shard.allocate(now, 0, Some(id), position), Ok)
            }
        };
        let mut got = String::new();
        match grant {
            Ok(grant) => write!(got, "n{}", grant.number.to_e164() - FIRST + 1).unwrap(),
            Err(_) => got.push_str("none"),
        }
        assert_eq!(got, wanted.trim(), "line {}: {line}", at + 2);
    }
}

#[test]
fn a_number_returns_when_its_lockout_ends_and_not_before() {
    check(
        "pool size=2 lockout=30s
         0s  -> n1
         1s  -> n2
         29s -> none
         30s -> n1
         30s -> none
         31s -> n2",
    );
}

#[test]
fn the_number_that_has_been_free_longest_is_allocated_first() {
    check(
        "pool size=3 lockout=10s
         0s  -> n1
         20s -> n2
         40s -> n3
         60s -> n1
         61s -> n2",
    );
}

#[test]
fn a_visitor_keeps_the_number_and_the_lockout_starts_again() {
    check(
        "pool size=2 lockout=10s
         0s  visitor=a -> n1
         1s            -> n2
         9s  visitor=a -> n1
         10s           -> none
         11s           -> n2
         18s           -> none
         19s           -> n1
         20s visitor=a -> none
         21s visitor=a -> n2",
    );
}

#[test]
fn a_visitor_whose_lockout_has_run_out_gets_the_next_number_like_everyone() {
    check(
        "pool size=3 lockout=10s
         0s  visitor=a -> n1
         10s visitor=a -> n2
         11s visitor=a -> n2",
    );
}

#[test]
fn a_released_number_goes_to_the_end_of_the_free_ones() {
    check(
        "pool size=3 lockout=10s
         0s            -> n1
         1s            -> n2
         2s release n2 -> n2
         3s            -> n3
         4s            -> n2
         5s            -> none
         6s release n2 -> n2
         7s release n2 -> none
         10s           -> n2
         10s           -> n1",
    );
}

#[test]
fn a_late_release_does_not_touch_the_next_visitors_allocation() {
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 1, 10)]).finish();
    let first = shard.allocate(Millis(100), 0, None, Position(1)).unwrap();
    shard.allocate(Millis(110), 0, None, Position(2)).unwrap();
    assert_eq!(shard.release(Millis(111), first.slot, Millis(100), Position(3)), None);
    assert!(shard.allocate(Millis(112), 0, None, Position(4)).is_err());
}

#[test]
fn a_held_pool_hands_out_nothing_until_the_hold_ends() {
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 1, 10), spec(2, FIRST + 9, 1, 10)]).finish();
    shard.hold(Some(PoolId(1)), Millis(500));
    let until = Millis(500);
    assert_eq!(shard.allocate(Millis(499), 0, None, Position(1)), Err(Exhausted { until }));
    assert!(shard.allocate(Millis(499), 1, None, Position(2)).is_ok());
    assert!(shard.allocate(Millis(500), 0, None, Position(3)).is_ok());
}

#[test]
fn a_number_is_held_as_long_as_its_pool_is() {
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 1, 10), spec(2, FIRST + 9, 1, 10)]).finish();
    shard.hold(Some(PoolId(2)), Millis(500));
    assert_eq!([0, 1].map(|slot| shard.is_held(slot, Millis(499))), [false, true]);
    assert!(!shard.is_held(1, Millis(500)) && !shard.is_held(1, Millis(501)));
    assert!(!shard.is_held(2, Millis(499)), "there is no such slot");
}

#[test]
fn the_indices_of_pools_end_after_the_last_one() {
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 1, 10), spec(2, FIRST + 9, 1, 10)]).finish();
    assert_eq!(shard.pools_end(), 2);
    shard.put_pool(2, &spec(3, FIRST + 20, 1, 10), None).unwrap();
    assert_eq!(shard.pools_end(), 3);
    assert_eq!((0..shard.pools_end()).map(|at| shard.pool_id(at).0).max(), Some(3));
}

#[test]
fn a_pool_counts_its_locked_numbers() {
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 3, 10), spec(2, FIRST + 9, 1, 10)]).finish();
    for at in 1..=2 {
        shard.allocate(Millis(100 + at), 0, None, Position(at)).unwrap();
    }
    assert_eq!([102, 110, 111, 112].map(|now| shard.locked(0, Millis(now))), [2, 2, 1, 0]);
    assert_eq!(shard.locked(1, Millis(102)), 0);
}

#[test]
fn a_number_is_found_with_any_hint_and_after_its_pool_has_gone() {
    let [number, unknown] = [FIRST, FIRST + 5].map(|n| PromoNumber::from_e164(n).unwrap());
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 2, 10)]).finish();
    shard.allocate(Millis(100), 0, None, Position(1)).unwrap();
    let known = shard.newest(number).unwrap();
    assert_eq!((known.number, known.allocated_at), (number, Millis(100)));
    assert_eq!(shard.retired(number), None);
    for is_in_rotation in [true, false] {
        for hint in [0, 1, 7] {
            assert_eq!(shard.newest_hinted(hint, number), Some(known), "{is_in_rotation}");
            assert_eq!(shard.newest_hinted(hint, unknown), None);
        }
        shard.remove_pool(0, None);
    }
    let retired = shard.retired(number).unwrap();
    assert_eq!((retired.slot, retired.pool), (known, PoolId(1)));
}

#[test]
fn facts_from_another_clock_are_listed_even_if_their_pool_has_gone_and_nothing_else_is() {
    let number = PromoNumber::from_e164(FIRST).unwrap();
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 1, 10), spec(2, FIRST + 9, 1, 10)]).finish();
    shard.allocate(Millis(100), 1, None, Position(1)).unwrap();
    let slot = crate::Slot {
        number,
        allocated_at: Millis(90),
        locked_until: Millis(200),
        position: Position(2),
    };
    let (local_at, pool) = (Millis(110), PoolId(1));
    let from = crate::Retired { slot, local_at, pool, visitor: None };
    shard.adopt(Millis(111), &from).unwrap();
    let foreign_times: Vec<_> = shard.foreign_times().collect();
    assert_eq!(foreign_times, [(number, Millis(90), shard.local_at(0))]);
    shard.remove_pool(0, None);
    shard.remove_pool(1, None);
    assert_eq!(shard.foreign_times().collect::<Vec<_>>(), foreign_times);
}

#[test]
fn among_numbers_that_become_free_at_once_a_carried_one_is_allocated_last() {
    let mut shard = Rebuild::new(vec![spec(1, FIRST, 9, 30_000)]).finish();
    let start = Millis(1_000_000);
    for position in 1..=9 {
        shard.allocate(start, 0, None, Position(position)).unwrap();
    }
    // After this step, numbers no longer become free in ring order, so a heap orders the slots.
    shard.release(Millis(1_000_001), 8, start, Position(10)).unwrap();
    shard.carried(0, PromoNumber::from_e164(FIRST).unwrap(), Position(11));
    let again = (12..=20).map(|position| {
        let grant = shard.allocate(Millis(1_030_000), 0, None, Position(position)).unwrap();
        grant.number.to_e164() - FIRST + 1
    });
    assert_eq!(again.collect::<Vec<_>>(), [9, 2, 3, 4, 5, 6, 7, 8, 1]);
}

#[test]
fn a_pool_without_numbers_may_be_tried_again_after_a_lifetime() {
    let empty = PoolSpec { numbers: vec![], ..spec(1, FIRST, 1, 30_000) };
    let mut shard = Rebuild::new(vec![empty]).finish();
    let error = shard.allocate(Millis(1_000_000), 0, None, Position(1)).unwrap_err();
    assert_eq!(error.until, Millis(1_030_000));
}

#[test]
fn a_number_that_left_its_pool_stays_known_and_moves_locked_to_its_new_shard() {
    let mut old = Rebuild::new(vec![]);
    let mut slot = Rebuild::new(vec![spec(1, FIRST, 1, 10)]).finish().slots()[0];
    (slot.allocated_at, slot.locked_until, slot.position) = (Millis(100), Millis(900), Position(7));
    old.learn(0, Fact { slot, pool: PoolId(1), visitor: None });
    let mut new = Rebuild::new(vec![spec(2, FIRST, 1, 10)]);
    for retired in old.retired() {
        new.adopt(retired);
    }
    let mut new = new.finish();
    assert!(new.allocate(Millis(899), 0, None, Position(1)).is_err());
    assert!(new.allocate(Millis(900), 0, None, Position(2)).is_ok());
    assert_eq!(old.finish().newest(slot.number), Some(slot));
}

#[test]
fn a_lockout_extended_by_another_shard_returns_with_the_number() {
    let number = PromoNumber::from_e164(FIRST).unwrap();
    let known = |allocated_at, until, position, visitor| {
        let slot = crate::Slot {
            number,
            allocated_at: Millis(allocated_at),
            locked_until: Millis(until),
            position: Position(position),
        };
        (slot, Fact { slot, pool: PoolId(1), visitor: Some(VisitorId([visitor; 16])) })
    };
    let adopted = |here, there| {
        let mut own = Rebuild::new(vec![spec(1, FIRST, 1, 10)]);
        own.learn(0, here);
        let mut other = Rebuild::new(vec![]);
        other.learn(0, there);
        other.retired().for_each(|retired| own.adopt(retired));
        own.finish().slots()[0]
    };
    let (short, here) = known(100, 150, 7, 1);
    // The other shard reports the same allocation with a lockout that its visitor has extended.
    let (_, there) = known(100, 170, 3, 1);
    assert_eq!(adopted(here, there), crate::Slot { locked_until: Millis(170), ..short });
    assert_eq!(adopted(there, here).locked_until, Millis(170));
    // The other shard reports a later allocation. The slot keeps the position of this shard's own
    // record.
    let (_, there) = known(160, 165, 3, 2);
    let (at, until) = (Millis(160), Millis(165));
    let slot = crate::Slot { allocated_at: at, locked_until: until, ..short };
    assert_eq!(adopted(here, there), slot);
}

#[test]
fn a_shorter_lifetime_than_before_a_restart_leaves_no_free_number_after_a_locked_one() {
    let mut before = Rebuild::new(vec![spec(1, FIRST, 4, 10)]);
    for (hint, until) in [(0, 1_000), (1, 1_001)] {
        let mut slot = crate::Slot::new(PromoNumber::from_e164(FIRST + u64::from(hint)).unwrap());
        (slot.allocated_at, slot.locked_until) = (Millis(1), Millis(until));
        slot.position = Position(until);
        before.learn(hint, Fact { slot, pool: PoolId(1), visitor: None });
    }
    let mut shard = before.finish();
    let mut given = Vec::new();
    for (at, now) in (2_000..).zip([20, 21, 30, 31, 40]) {
        given.push(
            shard.allocate(Millis(now), 0, None, Position(at)).unwrap().number.to_e164() - FIRST,
        );
    }
    assert_eq!(given, [2, 3, 2, 3, 2]);
}

#[test]
fn a_visitor_of_one_pool_is_not_known_to_another_that_the_number_moves_to() {
    let mut moved = Rebuild::new(vec![spec(2, FIRST, 2, 10)]);
    let mut slot = crate::Slot::new(PromoNumber::from_e164(FIRST).unwrap());
    (slot.allocated_at, slot.locked_until, slot.position) = (Millis(1), Millis(90), Position(1));
    let visitor = VisitorId([7; 16]);
    moved.learn(0, Fact { slot, pool: PoolId(1), visitor: Some(visitor) });
    let mut shard = moved.finish();
    assert_eq!(shard.keep(Millis(50), 0, visitor, Position(2)), None);
}

#[test]
fn doubtful_time_lengthens_the_lockouts_that_ran_and_no_others() {
    let mut state = Rebuild::new(vec![spec(1, FIRST, 2, 10)]);
    for (hint, until) in [(0, 50), (1, 150)] {
        let number = PromoNumber::from_e164(FIRST + u64::from(hint)).unwrap();
        let mut slot = crate::Slot::new(number);
        (slot.allocated_at, slot.locked_until) = (Millis(1), Millis(until));
        slot.position = Position(until);
        state.learn(hint, Fact { slot, pool: PoolId(1), visitor: None });
    }
    state.lengthen(Millis(100), Millis(1000));
    let until: Vec<u64> = state.finish().slots().iter().map(|s| s.locked_until.0).collect();
    assert_eq!(until, [50, 1150]);
}

/// The steps of a random test on a shard with two pools.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Allocate { pool: u32, visitor: Option<u8> },
    Release { slot: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..30_u64).prop_map(Step::Wait),
        (0..2_u32, proptest::option::of(0..4_u8))
            .prop_map(|(pool, visitor)| Step::Allocate { pool, visitor }),
        (0..2_u32).prop_map(|pool| Step::Allocate { pool, visitor: None }),
        (0..7_u32).prop_map(|slot| Step::Release { slot }),
    ];
    proptest::collection::vec(step, 1..200)
}

fn two_pools() -> Shard {
    Rebuild::new(vec![spec(1, FIRST, 5, 40), spec(2, FIRST + 100, 2, 15)]).finish()
}

proptest! {
    #[test]
    fn two_live_allocations_never_share_a_number(steps in steps()) {
        let mut shard = two_pools();
        let mut now = Millis(1_000);
        // The reference model: the end of each number's lockout, when the number becomes free.
        let mut locked: BTreeMap<PromoNumber, Millis> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            let position = Position(at as u64 + 1);
            match *step {
                Step::Wait(ms) => now = now + Millis(ms),
                Step::Allocate { pool, visitor } => {
                    let id = visitor.map(|v| VisitorId([v; 16]));
                    let kept = id.and_then(|id| shard.keep(now, pool, id, position));
                    if let Some(kept) = kept {
                        prop_assert!(locked[&kept.number] > now, "kept a number that was free");
                        locked.insert(kept.number, kept.locked_until);
                        continue;
                    }
                    let mine = |n: &PromoNumber| (n.to_e164() >= FIRST + 100) == (pool == 1);
                    let until = |n: PromoNumber| locked.get(&n).copied().unwrap_or_default();
                    let free: Vec<Millis> = shard.slots().iter().map(|s| s.number)
                        .filter(mine).map(until).filter(|t| *t <= now).collect();
                    match shard.allocate(now, pool, id, position) {
                        Err(_) => prop_assert!(free.is_empty(), "free numbers were not found"),
                        Ok(grant) => {
                            prop_assert!(until(grant.number) <= now, "handed out while locked");
                            prop_assert_eq!(Some(&until(grant.number)), free.iter().min());
                            locked.insert(grant.number, grant.locked_until);
                        }
                    }
                }
                Step::Release { slot } => {
                    let held = shard.slots()[slot as usize];
                    let grant = shard.release(now, slot, held.allocated_at, position);
                    let soon = now + Millis(1);
                    prop_assert_eq!(grant.is_some(), held.locked_until > soon);
                    if grant.is_some() {
                        locked.insert(held.number, soon);
                    }
                }
            }
        }
    }

    /// The moving head of a ring and the heap that replaces the ring choose the same numbers.
    #[test]
    fn the_ring_and_the_heap_choose_the_same_number(
        waits in proptest::collection::vec(0..12_u64, 1..150)
    ) {
        let (mut ring, mut heap) = (two_pools(), two_pools());
        heap.break_rings();
        let mut now = Millis(1_000);
        for (at, wait) in waits.into_iter().enumerate() {
            now = now + Millis(wait);
            let position = Position(at as u64 + 1);
            prop_assert_eq!(
                ring.allocate(now, 0, None, position),
                heap.allocate(now, 0, None, position)
            );
        }
        prop_assert_eq!(ring.slots(), heap.slots());
    }
}

impl Shard {
    fn break_rings(&mut self) {
        for pool in &mut self.pools {
            pool.changed(&self.slots, pool.slot_range().start);
        }
    }
}
