//! Tests the model with forged histories, without a simulator. The model must reject each history
//! that breaks a promise.

use std::collections::BTreeMap;

use super::{Grant, Judged, Loss, Model, PoolRule, Recovery, Row, Shown};

const FIRST: u64 = 2_005_550_000;
const SECOND: u64 = 1_000_000;

fn model() -> Model {
    let mut model = Model::default();
    model.recovered_all(&[recovery(1, 0)]).unwrap();
    model
}

/// Returns the state of a shard that restarted at `now_us`. Its only pool has two numbers, which
/// are not locked out.
fn recovery(next_n: u64, now_us: u64) -> Recovery {
    let numbers = vec![FIRST, FIRST + 1];
    let pool = PoolRule { lifetime_ms: 1000, numbers };
    Recovery {
        pools: BTreeMap::from([(7, pool)]),
        shard: 0,
        next_n,
        loss: Loss::Nothing,
        lost_since_us: u64::MAX,
        now_us,
        now_ms: now_us / 1000,
        boots: 1,
        numbers: vec![(FIRST, 0, 0), (FIRST + 1, 0, 0)],
        holds: Vec::new(),
    }
}

/// Builds the grant of `number` to row 0 of `batch` at `now_us`. The sequence number of its group
/// is `batch`, too.
fn grant(batch: u64, number: u64, now_us: u64) -> Grant {
    let at = now_us / 1000;
    let times = (now_us, at, at + 1002);
    let (params, deadline) = (format!("b={batch}"), now_us + SECOND);
    Grant::new((batch, 0), None, None, (0, 7, number), times, batch, true, params, deadline)
}

fn answer(model: &mut Model, batch: u64, shown: Shown, now_us: u64) -> Judged {
    model.answered(&row(batch, shown, now_us))
}

fn row(batch: u64, shown: Shown, now_us: u64) -> Row {
    Row {
        sent: batch,
        batch,
        row: 0,
        retry: None,
        pool: 7,
        shown,
        is_probe: false,
        since_us: 0,
        deadline_us: now_us + SECOND,
        now_us,
    }
}

fn rule(judged: Judged) -> &'static str {
    judged.unwrap_err().rule
}

#[test]
fn a_number_returned_after_its_lockout_is_right() {
    let mut model = model();
    for (batch, number, at) in [(1, FIRST, 0), (2, FIRST + 1, 1), (3, FIRST, SECOND + 2000)] {
        model.granted(grant(batch, number, at)).unwrap();
        answer(&mut model, batch, Shown::Number(number), at).unwrap();
    }
}

#[test]
fn a_number_within_its_lockout_is_not() {
    let mut model = model();
    model.granted(grant(1, FIRST, 0)).unwrap();
    assert_eq!(rule(model.granted(grant(2, FIRST, SECOND / 2))), "double in shard time");
}

#[test]
fn two_visitors_of_one_number_are_found_whatever_the_shards_believe() {
    let mut model = model();
    model.granted(grant(1, FIRST, 0)).unwrap();
    answer(&mut model, 1, Shown::Number(FIRST), 10).unwrap();
    // Even if the shard has lost its whole state undetected, the second visitor is found.
    model.shards.values_mut().for_each(|shard| shard.numbers.clear());
    model.granted(grant(2, FIRST, SECOND - 1)).unwrap();
    assert_eq!(rule(answer(&mut model, 2, Shown::Number(FIRST), SECOND)), "double");
}

#[test]
fn an_answer_that_is_lost_after_a_restart_is_found() {
    let mut model = model();
    model.granted(grant(5, FIRST, 0)).unwrap();
    answer(&mut model, 5, Shown::Number(FIRST), 10).unwrap();
    assert_eq!(rule(model.recovered_all(&[recovery(5, SECOND / 10)])), "forgotten");
    let mut model = self::model();
    model.granted(grant(5, FIRST, 0)).unwrap();
    answer(&mut model, 5, Shown::Number(FIRST), 10).unwrap();
    // This time, the shard's journal contains the group of batch 5, but the shard's state lacks the
    // allocation of that batch.
    assert_eq!(rule(model.recovered_all(&[recovery(6, SECOND / 10)])), "forgotten");
}

#[test]
fn a_lying_disk_is_to_blame_and_a_damaged_end_must_be_held() {
    let lied = Recovery { loss: Loss::Lied, ..recovery(5, SECOND / 10) };
    let mut model = model();
    model.granted(grant(5, FIRST, 0)).unwrap();
    answer(&mut model, 5, Shown::Number(FIRST), 10).unwrap();
    model.recovered_all(&[lied]).unwrap();
    assert_eq!(model.excused, 1);
    let rotten = Recovery { loss: Loss::Doubted, ..recovery(5, SECOND / 10) };
    assert_eq!(rule(model.recovered_all(std::slice::from_ref(&rotten))), "not held");
    let held = Recovery { holds: vec![(7, 1200)], ..rotten };
    model.recovered_all(&[held]).unwrap();
    assert_eq!(rule(model.granted(grant(6, FIRST, SECOND / 2))), "held");
}

#[test]
fn an_unallocated_number_and_a_row_answered_twice_are_found() {
    let mut model = model();
    assert_eq!(rule(answer(&mut model, 1, Shown::Number(FIRST), 0)), "phantom");
    let mut model = self::model();
    answer(&mut model, 1, Shown::Refused("late"), 0).unwrap();
    assert_eq!(rule(answer(&mut model, 1, Shown::Refused("late"), 0)), "two answers");
}

#[test]
fn another_pool_s_number_and_the_overflow_number_are_found() {
    let mut model = model();
    assert_eq!(rule(model.granted(grant(1, FIRST + 2, 0))), "wrong pool");
    assert_eq!(rule(model.granted(grant(1, FIRST + 999, 0))), "wrong pool");
}

#[test]
fn the_wrong_order_and_an_overflow_without_cause_are_found() {
    let mut model = model();
    model.granted(grant(1, FIRST, 0)).unwrap();
    assert_eq!(rule(model.exhausted(0, 7, 1, None)), "overflow without cause");
    model.granted(grant(2, FIRST + 1, 1000)).unwrap();
    model.exhausted(0, 7, 1, None).unwrap();
    // Both numbers are free again. The first one has been free for longer, so it must be next.
    assert_eq!(rule(model.granted(grant(3, FIRST + 1, 3 * SECOND))), "wrong order");
}

#[test]
fn a_repeated_batch_must_get_the_same_number() {
    let mut model = model();
    for (batch, number) in [(1, FIRST), (2, FIRST + 1)] {
        let retry = Some((1, 0));
        let granted = Grant { retry, ..grant(batch, number, batch * 1000) };
        model.granted(granted).unwrap();
        let shown = Shown::Number(number);
        let judged = model.answered(&Row { retry, ..row(batch, shown, batch * 1000) });
        assert_eq!(
            judged.err().map(|broken| broken.rule),
            (batch == 2).then_some("another answer")
        );
    }
}

#[test]
fn refused_rows_of_probes_are_found() {
    let mut model = model();
    let refused = row(1, Shown::Refused("paced"), 0);
    assert_eq!(model.answered(&refused), Ok(()));
    let probe = Row { is_probe: true, ..row(2, Shown::Refused("paced"), 0) };
    assert_eq!(rule(model.answered(&probe)), "not live");
    assert_eq!(rule(model.check_probes(2)), "not live");
}
