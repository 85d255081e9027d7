//! Tests that the simulator finds bugs planted in the rules of `ringwell-core`. Each must be found.
//!
//! Works like `bugs.rs`, but for bugs that affect the whole process. `planted_bugs.rs` builds the
//! crates with the bugs.
#![cfg(canary)]

use ringwell_config::demo_pools;
use ringwell_core::{Millis, PoolId, PoolSpec, Position, PromoNumber, Retired, Slot, VisitorId};
use ringwell_directory::Directory;
use ringwell_driver::rows;
use ringwell_engine::{Ask, Engine, Outcome, Refusal, Restore};
use ringwell_journal::{AnswerEntry, RecordedAnswer, RowKey, Tip};
use ringwell_sim::{Bug, Kind, Options, plant_in_core, run};

/// This is a single test because a planted bug affects the whole process.
#[test]
fn bugs_in_the_rules_are_found() {
    let undone = &[Kind::Manage, Kind::Move, Kind::Visitor, Kind::Retry];
    let cases: [(Bug, u64, &[Kind], &[&str]); 4] = [
        (Bug::LockCompare, 0, &[], &["double in shard time", "double"]),
        (Bug::NotFifo, 0, &[], &["wrong order"]),
        (Bug::TwoOfAPool, 0, &[Kind::Retry, Kind::Visitor], &["visitor moved"]),
        (Bug::DoubtsIgnored, 200, undone, &["attribution"]),
    ];
    for (bug, from, on, rules) in cases {
        plant_in_core(Some(bug));
        let broken = (from..from + 100).find_map(|seed| {
            let on = on.to_vec();
            run(&Options { seed, on, bug: Some(bug), ..Options::default() }).violation
        });
        plant_in_core(None);
        let broken = broken.unwrap_or_else(|| panic!("{bug:?} was not found"));
        assert!(rules.contains(&broken.rule), "{bug:?} showed as {broken:?}");
    }
    let by_hand: [(Bug, fn() -> bool); 4] = [
        (Bug::UndoneReplaces, an_undone_allocation_ends_no_other),
        (Bug::UndoneEndsDoubt, an_undone_allocation_leaves_its_number_in_doubt),
        (Bug::LeftUndone, an_allocation_of_a_number_that_has_left_is_not_undone),
        (Bug::RotationIgnored, a_number_in_rotation_here_is_not_a_reported_answer),
    ];
    for (bug, holds) in by_hand {
        assert!(holds(), "{bug:?}");
        plant_in_core(Some(bug));
        let is_found = !holds();
        plant_in_core(None);
        assert!(is_found, "{bug:?} was not found");
    }
}

const NOW: Millis = Millis(1_000_000);

fn pool() -> PoolSpec {
    let directory = Directory::new(1, demo_pools(1, 3, Millis(5_000)).unwrap(), 1).unwrap();
    rows::spec(directory.pools_of(0).next().unwrap())
}

/// Builds an engine with one pool, and returns it with the pool and the pool's first number.
fn engine() -> (Engine, PoolId, PromoNumber) {
    let pool = pool();
    let (id, first) = (pool.id, pool.numbers[0].first());
    let (engine, _) = Restore::new(vec![pool], 10).finish(Tip::FIRST.raise_epoch(), NOW, false);
    (engine, id, first)
}

fn allocate(engine: &mut Engine, pool: PoolId, at: Millis) -> PromoNumber {
    let ask = Ask { pool: 0, id: pool, params: [b"", b""], visitor: None, retry: None };
    let mut outcome = Outcome::Refused(Refusal::Late);
    engine.allocate(at, &ask, &mut outcome);
    let Outcome::Allocated { number } = outcome else { panic!("{outcome:?}") };
    number
}

/// Tests that another shard's report of an undone allocation does not replace a known allocation.
fn an_undone_allocation_ends_no_other() -> bool {
    let (mut engine, pool, number) = engine();
    let mut report = |allocated_at, locked_until, local_at, visitor| {
        let position = Position::NONE;
        let slot = Slot { number, allocated_at, locked_until: Millis(locked_until), position };
        engine.adopt(NOW, &Retired { slot, local_at: Millis(local_at), pool, visitor })
    };
    let seen = Millis(990_000);
    assert!(report(seen, 1_004_000, 990_000, Some(VisitorId([1; 16]))));
    assert!(report(Millis::ZERO, 1_005_000, 995_000, None));
    engine.shard().newest(number).unwrap().allocated_at == seen
}

/// Tests that a number stays in doubt after its allocation is undone. The number's pool was held
/// for longer than the lockout, so another node may have handed out the number in the meantime.
fn an_undone_allocation_leaves_its_number_in_doubt() -> bool {
    let (mut engine, pool, _) = engine();
    let allocate = |engine: &mut Engine, after| allocate(engine, pool, NOW + Millis(after));
    let first = allocate(&mut engine, 0);
    for after in [1, 2] {
        assert_ne!(allocate(&mut engine, after), first);
    }
    assert!(engine.hold_pool(NOW + Millis(10), pool, NOW + Millis(8_000)));
    assert_eq!(allocate(&mut engine, 9_000), first);
    assert!(engine.withdraw(NOW + Millis(9_000), first, NOW + Millis(9_000)));
    engine.shard().is_doubted(engine.shard().find(first).unwrap())
}

/// While the number was away, another shard may have received the allocation.
fn an_allocation_of_a_number_that_has_left_is_not_undone() -> bool {
    let (mut engine, id, _) = engine();
    let number = allocate(&mut engine, id, NOW);
    engine.remove_pool(0);
    engine.put_pool(0, &pool()).unwrap();
    let is_undone = engine.withdraw(NOW + Millis(1), number, NOW);
    let next = allocate(&mut engine, id, NOW + Millis(2));
    assert!(engine.withdraw(NOW + Millis(3), next, NOW + Millis(2)), "it has not left since");
    !is_undone
}

fn a_number_in_rotation_here_is_not_a_reported_answer() -> bool {
    let (mut engine, pool, number) = engine();
    let row = RowKey { batch: [1; 16], row: 0 };
    let answer = RecordedAnswer::Number(number);
    assert!(engine.adopt_answer(NOW, &AnswerEntry { row, at: Millis(999_000), answer, pool }));
    let (mut known, first) = (Vec::new(), engine.answers_first().unwrap());
    engine.answers_for(first, 10, |_| true, &mut known);
    known.iter().all(|entry| entry.answer == RecordedAnswer::Overflow)
}
