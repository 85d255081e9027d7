//! Tests that clashes between new pools and existing ones are found.

use ringwell_core::{Millis, PoolId};

use super::*;
use crate::{Directory, PoolFields, RingPoolKey};

fn pool(id: u64, first: u64, count: u32, overflow: u64) -> RingPool {
    RingPool::new(PoolFields {
        id: PoolId(id),
        name: None,
        key: RingPoolKey::parse("key-of-a-pool").unwrap(),
        next_key: None,
        lifetime: Millis(1000),
        numbers: vec![NumberRange::new(PromoNumber::from_e164(first).unwrap(), count).unwrap()],
        overflow: PromoNumber::from_e164(overflow),
        tracking: None,
    })
    .unwrap()
}

/// Adds the pools `put` to a directory, and returns the faults, one per line.
fn faults(put: Vec<RingPool>) -> String {
    let there = vec![pool(1, 12_000_000_000, 100, 19_000_000_000), pool(2, 13_000_000_000, 10, 0)];
    let state = Directory::new(1, there, 2).unwrap();
    let faults = state.change(put, &[]).err().unwrap_or_default();
    faults.iter().fold(String::new(), |text, fault| text + &fault.to_string() + "\n")
}

#[test]
fn a_new_pool_has_no_number_of_another() {
    let hint = "a number can be in one pool only";
    assert_eq!(
        faults(vec![pool(7, 14_000_000_000, 1, 0), pool(8, 12_000_000_099, 5, 0)]),
        format!("ring_pool[1].numbers: 2000000099 is in ring pool 1 too; {hint}\n")
    );
    assert_eq!(
        faults(vec![pool(7, 12_999_999_990, 50, 0)]),
        format!("ring_pool[0].numbers: 3000000000 is in ring pool 2 too; {hint}\n")
    );
    assert_eq!(
        faults(vec![pool(7, 14_000_000_000, 5, 0), pool(8, 14_000_000_004, 5, 0)]),
        format!("ring_pool[1].numbers: 4000000004 is in ring pool 7 too; {hint}\n")
    );
    // The new pool replaces pool 1, which has some of these numbers.
    assert_eq!(faults(vec![pool(1, 12_000_000_050, 100, 0)]), "");
}

#[test]
fn neither_an_overflow_number_nor_a_rotation_may_take_from_the_other() {
    let hint = "many visitors share an overflow number: take it out of rotation";
    assert_eq!(
        faults(vec![pool(7, 14_000_000_000, 1, 12_000_000_050)]),
        format!(
            "ring_pool[0].overflow_number: 2000000050 is in the rotation of ring pool 1; {hint}\n"
        )
    );
    assert_eq!(
        faults(vec![pool(7, 18_999_999_999, 2, 0)]),
        format!("ring_pool[0].numbers: 9000000000 is the overflow number of ring pool 1; {hint}\n")
    );
}

#[test]
fn two_new_pools_have_different_ids() {
    assert_eq!(
        faults(vec![pool(7, 14_000_000_000, 1, 0), pool(7, 15_000_000_000, 1, 0)]),
        "ring_pool[1].id: another pool already has the id 7; give each pool a different id\n"
    );
}
