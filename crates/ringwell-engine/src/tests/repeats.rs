//! Repeated batches.

use super::*;

#[test]
fn a_repeated_batch_gets_the_same_answer_and_uses_up_no_number() {
    let mut rig = Rig::new();
    let first = rig.allocate(0, None, Some(1));
    let Outcome::Kept { number } = first else { panic!("{first:?}") };
    assert_eq!(rig.allocate(0, None, Some(1)), Outcome::Kept { number });
    rig.apply(&Input::Seal);
    let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    let mut again = Rig { engine, specs: specs(), groups: vec![], now: rig.now, history: vec![] };
    assert_eq!(again.allocate(0, None, Some(1)), Outcome::Kept { number });
    assert_eq!(again.engine.counts().allocated, 0);
}

#[test]
fn a_repeated_row_of_a_returning_visitor_is_remembered_across_a_restart() {
    let mut rig = Rig::new();
    let Outcome::Kept { number } = rig.allocate(0, Some(1), None) else { panic!() };
    assert_eq!(rig.allocate(0, Some(1), Some(2)), Outcome::Kept { number });
    rig.apply(&Input::Seal);
    let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    let now = rig.now + Millis(100);
    let mut again = Rig { engine, specs: specs(), groups: vec![], now, history: vec![] };
    assert_eq!(again.allocate(0, Some(1), Some(2)), Outcome::Kept { number });
}

#[test]
fn a_repeated_row_gets_no_number_that_has_gone_to_another_visitor() {
    let mut rig = Rig::new();
    let [own, other] = [1, 2].map(|retry| match rig.allocate(1, None, Some(retry)) {
        Outcome::Kept { number } => number,
        outcome => panic!("{outcome:?}"),
    });
    // The lockout is over, and no other visitor has the number. A new lockout begins, because the
    // visitor may see the number only now.
    rig.now = rig.now + Millis(15);
    assert_eq!(rig.allocate(1, None, Some(1)), Outcome::Kept { number: own });
    assert_eq!(rig.allocate(1, None, None), Outcome::Allocated { number: other });
    let until = rig.now + Millis(15);
    assert_eq!(rig.allocate(1, None, None), Outcome::Exhausted { until });
    // The number that the other row received has gone to another visitor.
    assert_eq!(rig.allocate(1, None, Some(2)), Outcome::Exhausted { until: Millis::ZERO });
    rig.apply(&Input::Seal);
    let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    let mut again = Rig { engine, specs: specs(), groups: vec![], now: rig.now, history: vec![] };
    assert_eq!(again.allocate(1, None, Some(1)), Outcome::Kept { number: own });
    assert_eq!(again.allocate(1, None, Some(2)), Outcome::Exhausted { until: Millis::ZERO });
}

#[test]
fn a_visitor_has_one_number_of_a_pool_whatever_is_repeated() {
    let mut rig = Rig::new();
    let Outcome::Kept { number: first } = rig.allocate(1, Some(1), Some(1)) else { panic!() };
    rig.now = rig.now + Millis(20);
    let Outcome::Kept { number: second } = rig.allocate(1, Some(1), None) else { panic!() };
    assert_ne!(first, second, "the other one has been free for longer");
    rig.now = rig.now + Millis(5);
    let again = rig.allocate(1, Some(1), Some(1));
    assert_eq!(again, Outcome::Kept { number: second });
    rig.apply(&Input::Seal);
    let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    let mut after = Rig { engine, specs: specs(), groups: vec![], now: rig.now, history: vec![] };
    assert_eq!(after.allocate(1, Some(1), Some(1)), again, "this answer is remembered");
}

#[test]
fn a_visitor_gets_one_number_of_a_pool_after_returning_one() {
    let mut rig = Rig::new();
    let Outcome::Kept { number: first } = rig.allocate(1, Some(1), Some(1)) else { panic!() };
    let now = rig.engine.at(rig.now);
    assert!(rig.engine.release(now, first, None));
    rig.now = rig.now + Millis(2);
    let again = rig.allocate(1, Some(1), Some(1));
    assert!(matches!(again, Outcome::Kept { .. }), "{again:?}");
    assert_eq!(rig.allocate(1, Some(1), None), again);
}

#[test]
fn a_snapshot_ends_even_if_answers_arrive_faster_than_it_is_written() {
    let (engine, _) = Restore::new(specs(), 5_000).finish(Tip::FIRST.raise_epoch(), START, false);
    let mut rig = Rig { engine, specs: specs(), groups: vec![], now: START, history: vec![] };
    let mut row = 0_u64;
    let mut answer = |rig: &mut Rig, count| {
        for _ in 0..count {
            row += 1;
            let mut batch = [0; 16];
            batch[..8].copy_from_slice(&row.to_le_bytes());
            let retry = Some(RowKey { batch, row: 0 });
            let ask = Ask { pool: 1, id: PoolId(2), params: [b"", b""], visitor: None, retry };
            let mut outcome = Outcome::Refused(Refusal::Late);
            let now = rig.engine.at(rig.now);
            rig.engine.allocate(now, &ask, &mut outcome);
        }
        rig.apply(&Input::Seal);
    };
    answer(&mut rig, 3_000);
    let mut writer = SnapshotWriter::new(&snapshot_header(&rig.engine));
    let mut step = SnapshotStep::FIRST;
    let mut pieces = 0;
    while step != SnapshotStep::Done {
        step = rig.engine.snapshot(step, PIECE_ENTRIES, &mut writer);
        answer(&mut rig, 2_000);
        pieces += 1;
        assert!(pieces < 20, "it never ends");
    }
}

#[test]
fn the_count_of_remembered_rows_is_limited_and_the_oldest_are_dropped_first() {
    let (engine, _) = Restore::new(specs(), 2).finish(Tip::FIRST.raise_epoch(), START, false);
    let mut rig = Rig { engine, specs: specs(), groups: vec![], now: START, history: vec![] };
    for retry in 1..=3 {
        rig.allocate(0, None, Some(retry));
    }
    assert_eq!(rig.engine.answers_remembered(), 2);
    rig.allocate(0, None, Some(2));
    assert_eq!(rig.engine.counts().repeated, 1);
    rig.allocate(0, None, Some(1));
    assert_eq!((rig.engine.counts().repeated, rig.engine.counts().allocated), (1, 4));
}

#[test]
fn a_repeated_row_gets_no_number_that_has_moved_to_another_pool() {
    let mut rig = Rig::new();
    rig.put(0, 1, Some(0));
    let numbers = [1, 2].map(|retry| rig.allocate(0, None, Some(retry)));
    assert!(numbers.contains(&Outcome::Kept { number: shared(0) }), "{numbers:?}");
    rig.put(0, 1, None);
    rig.put(1, 1, Some(0));
    let again = [1, 2].map(|retry| rig.allocate(0, None, Some(retry)));
    for (first, again) in numbers.iter().zip(again) {
        let is_shared = *first == Outcome::Kept { number: shared(0) };
        let wanted = if is_shared { Outcome::Exhausted { until: Millis::ZERO } } else { *first };
        assert_eq!(again, wanted);
    }
}

/// The answer may be sent after the remaining lockout is over, so a new lockout begins.
#[test]
fn a_row_repeated_shortly_before_its_lockout_ends_is_locked_anew() {
    let mut rig = Rig::new();
    let first = rig.allocate(0, None, Some(1));
    let Outcome::Kept { number } = first else { panic!("{first:?}") };
    rig.now = rig.now + Millis(39);
    assert_eq!(rig.allocate(0, None, Some(1)), first);
    let until = rig.engine.shard().newest(number).unwrap().locked_until;
    assert_eq!(until, rig.now + Millis(40));
}

/// Returns the remembered answers, each as row, time and answer. After a restart, the engine may
/// list an answer twice, once from the snapshot and once from the journal, with another answer in
/// between. Such duplicates are removed.
pub(super) fn remembered(
    engine: &Engine,
) -> Vec<(RowKey, Millis, ringwell_journal::RecordedAnswer)> {
    let mut all: Vec<_> = engine.answers.iter().map(|it| (it.row, it.at, it.answer)).collect();
    all.sort_by_key(|(row, ..)| *row);
    all.dedup();
    all
}

#[test]
fn an_unseen_answer_is_replaced_even_after_a_restart() {
    let mut rig = Rig::new();
    let [first, second] = [1, 2].map(|retry| rig.allocate(1, None, Some(retry)));
    let (Outcome::Kept { number }, now) = (first, rig.now) else { panic!("{first:?}") };
    assert!(rig.engine.withdraw(now, number, now));
    assert!(!rig.engine.withdraw(now, number, now), "a doubled message changes nothing");
    assert_eq!(rig.engine.answers_remembered(), 1);
    rig.apply(&Input::Seal);
    let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    assert_eq!(remembered(&engine), remembered(&rig.engine));
    let mut again = Rig { engine, specs: specs(), groups: vec![], now, history: vec![] };
    for rig in [&mut rig, &mut again] {
        rig.now = rig.now + Millis(1);
        assert_eq!(rig.allocate(1, None, None), Outcome::Allocated { number });
        let until = START + Millis(15);
        assert_eq!(rig.allocate(1, None, Some(1)), Outcome::Exhausted { until });
        assert_eq!(rig.allocate(1, None, Some(2)), second);
    }
}

#[test]
fn a_number_that_was_given_twice_is_not_taken_back() {
    let mut rig = Rig::new();
    let now = rig.now;
    let take_back = |rig: &mut Rig, outcome| {
        let Outcome::Kept { number } = outcome else { panic!("{outcome:?}") };
        rig.engine.withdraw(now, number, now)
    };
    let by_row = rig.allocate(0, None, Some(1));
    assert_eq!(rig.allocate(0, None, Some(1)), by_row);
    assert!(!take_back(&mut rig, by_row), "the row was repeated");
    let by_visitor = rig.allocate(0, Some(1), None);
    assert_eq!(rig.allocate(0, Some(1), None), by_visitor);
    assert!(!take_back(&mut rig, by_visitor), "the visitor came back");
    // No record shows whether the row was repeated before the restart.
    let by_other_row = rig.allocate(0, None, Some(2));
    rig.apply(&Input::Seal);
    let engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
    let mut again = Rig { engine, specs: specs(), groups: vec![], now, history: vec![] };
    assert!(!take_back(&mut again, by_other_row));
    assert!(take_back(&mut rig, by_other_row));
}

#[test]
fn a_repeated_row_gets_no_second_number_after_a_later_allocation_of_the_first_was_undone() {
    let mut rig = Rig::new();
    let Outcome::Kept { number: first } = rig.allocate(1, Some(1), Some(1)) else { panic!() };
    rig.now = rig.now + Millis(20);
    let Outcome::Kept { number: second } = rig.allocate(1, Some(1), None) else { panic!() };
    assert_eq!(rig.allocate(1, None, None), Outcome::Allocated { number: first });
    // This row's client has disconnected.
    rig.withdraw(0);
    assert_eq!(rig.allocate(1, Some(1), Some(1)), Outcome::Kept { number: second });
}

/// The number last sent to each visitor of a pool, and the time when its lockout was then due to
/// end.
type ShownLast = std::collections::BTreeMap<(u32, u8), (PromoNumber, Millis)>;

/// Applies the inputs. A row of a repeatable batch always has the same pool and visitor.
fn assert_one_number_a_visitor(inputs: &[Input], replays: bool) -> Result<(), TestCaseError> {
    let mut rig = Rig::new();
    let mut shown = ShownLast::new();
    for (place, input) in inputs.iter().enumerate() {
        let Input::Allocate { pool, visitor, retry } = *input else {
            let before: Vec<Slot> = rig.engine.shard().slots().to_vec();
            rig.apply(input);
            // A lockout that was ended on request, or whose allocation was undone, protects no
            // visitor.
            for (then, now) in before.iter().zip(rig.engine.shard().slots()) {
                if now.locked_until < then.locked_until {
                    shown.retain(|_, (number, _)| *number != then.number);
                }
            }
            if replays && place % 7 == 6 {
                rig.apply(&Input::Seal);
                rig.engine = rig.replay(Restore::new(rig.specs.clone(), 100), 1);
            }
            continue;
        };
        let (pool, visitor) =
            retry.map_or((pool, visitor), |row| (u32::from(row % 2), Some(row % 3)));
        let outcome = rig.allocate(pool, visitor, retry);
        let (Some(visitor), Some(number)) = (visitor, outcome.number()) else { continue };
        let now = rig.engine.at(rig.now);
        let until = rig.engine.shard().newest(number).unwrap().locked_until;
        if let Some((last, last_until)) = shown.insert((pool, visitor), (number, until)) {
            prop_assert!(
                last == number || last_until <= now,
                "input {place} {input:?}: {number} while {last} is locked until {last_until:?}, it \
                 is {now:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_visitor_has_one_number_of_a_pool_whatever_happens(inputs in inputs()) {
        let is_plain = |input: &Input| !matches!(input, Input::Put { .. } | Input::Adopt { .. });
        let inputs: Vec<Input> = inputs.into_iter().filter(is_plain).collect();
        for replays in [false, true] {
            assert_one_number_a_visitor(&inputs, replays)?;
        }
    }
}
