use ringwell_core::PoolId;

use super::*;

const HELD: PastAllocation = PastAllocation {
    pool: None,
    allocated_at: Millis(100),
    allocated_wall: Millis(1_000),
    locked_until: Millis(1_050),
    params: Vec::new(),
    next_allocated_at: None,
    keep_alives: None,
};

/// Another shard received the allocation made at 10 s while its clock was 2 s ahead. A shard that
/// received a number records the number's arrival as the time of the allocation.
#[test]
fn the_order_of_the_shards_answers_does_not_matter() {
    let held = |pool, at, wall| PastAllocation {
        pool,
        allocated_at: Millis(at),
        allocated_wall: Millis(wall),
        locked_until: Millis(wall + 5),
        params: Vec::new(),
        next_allocated_at: None,
        keep_alives: None,
    };
    let pool = Some(PoolId(1));
    // The allocation at 10 arrived elsewhere at 100, after the one at 90 was made.
    let all = [held(None, 10, 100), held(pool, 90, 90), held(pool, 10, 10)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let newest = newest(order.map(|place: usize| &all[place])).unwrap();
        assert_eq!(newest.allocated_at, Millis(90), "{order:?}");
    }
}

#[test]
fn the_shard_that_made_an_allocation_dates_it_whichever_shard_answers_first() {
    let at = |made_at, wall, pool| PastAllocation {
        allocated_at: Millis(made_at),
        allocated_wall: Millis(wall),
        pool,
        ..HELD
    };
    let pool = Some(PoolId(1));
    let all = [at(10, 10_000, pool), at(10, 19_000, None), at(17, 17_000, pool)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let found = newest(order.map(|index: usize| &all[index])).unwrap();
        assert_eq!(found.allocated_at, Millis(17), "{order:?}");
    }
}

#[test]
fn a_visitor_from_before_a_period_as_an_overflow_number_is_not_named() {
    let names = |at, until: Option<u64>| {
        let past = Past { held: Some(HELD), ..Past::default() };
        not_before_overflow(past, Millis(at), until.map(Millis)).held.is_some()
    };
    assert!(names(9_000, None));
    assert!(names(1_049, Some(u64::MAX)), "the lockout runs");
    assert!(!names(1_050, Some(u64::MAX)), "it may be any visitor's call");
    assert!(!names(9_000, Some(1_001)), "it went to no visitor since");
    assert!(names(9_000, Some(1_000)), "allocated after the period");
    for (until, is_kept) in [(None, true), (Some(1_000), false), (Some(u64::MAX), true)] {
        let past = not_before_overflow(Past::default(), Millis(9_000), until.map(Millis));
        assert_eq!(past.missing, (!is_kept).then_some(Missing::NotKept), "{until:?}");
    }
}

#[test]
fn what_a_shard_lacks_is_before_its_newest_allocation_and_in_the_period_that_it_lost() {
    let may_follow = |newest: Option<u64>, wall: Option<u64>, lost: Option<u64>| {
        let [newest, newest_wall, lost_until] = [newest, wall, lost].map(|at| at.map(Millis));
        Gap { missing: Missing::NotKept, newest, newest_wall, lost_until }.may_follow(&HELD)
    };
    // The arguments: the newest allocation that the shard has recorded, the wall-clock time of
    // that allocation, and the end of a lost period.
    assert!(may_follow(None, None, None));
    assert!(!may_follow(Some(100), None, None), "it received this allocation");
    assert!(may_follow(Some(90), None, None), "it received another one, perhaps later");
    assert!(!may_follow(Some(90), Some(999), None), "it received an earlier one");
    assert!(may_follow(Some(90), Some(1_000), None), "the order of both is unknown");
    assert!(!may_follow(None, None, Some(1_000)));
    assert!(may_follow(None, None, Some(1_001)), "lost after this allocation");
    assert!(!may_follow(Some(90), Some(999), Some(1_000)));
    assert!(may_follow(Some(90), Some(999), Some(1_001)), "and lost after it");
    assert!(may_follow(Some(90), None, Some(999)), "lost before, but received at any time");
}
