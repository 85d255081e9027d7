use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn key(n: u64) -> RowKey {
    let mut batch = [0; 16];
    batch[..8].copy_from_slice(&n.to_le_bytes());
    RowKey { batch, row: 0 }
}

fn number() -> RecordedAnswer {
    RecordedAnswer::Number(PromoNumber::from_e164(12_005_550_000).unwrap())
}

#[test]
fn a_pool_with_too_many_answers_displaces_its_own() {
    let mut answers = Answers::new(1000);
    let now = Millis(5);
    for n in 0..20 {
        answers.remember(now, PoolId(n % 2), key(n), number());
    }
    for n in 100..10_000 {
        answers.remember(now, PoolId(7), key(n), number());
    }
    assert_eq!(answers.len(), 1000);
    for n in (0..20).chain(9_020..10_000) {
        assert!(answers.get(now, key(n)).is_some(), "{n}");
    }
    // When a pool that was added later gets its first answers, the pool with the most answers loses
    // its oldest ones.
    for n in 0..400 {
        answers.remember(now, PoolId(8), key(20_000 + n), number());
    }
    for n in (0..20).chain(20_000..20_400).chain(9_420..10_000) {
        assert!(answers.get(now, key(n)).is_some(), "{n}");
    }
    assert_eq!(answers.len(), 1000);
}

#[test]
fn a_walk_visits_every_answer_once_and_ends_while_more_arrive() {
    let mut answers = Answers::new(10_000);
    let mut next = 0;
    let mut come = |answers: &mut Answers, count: u64| {
        for n in next..next + count {
            answers.remember(Millis(n), PoolId(n % 3), key(n), number());
        }
        next += count;
    };
    come(&mut answers, 4_000);
    let (mut met, mut pieces) = (Vec::new(), 0);
    let mut place = answers.first();
    while let Some(from) = place {
        place = answers.piece(from, 100, |entry| met.push(entry.row));
        come(&mut answers, 60);
        pieces += 1;
        assert!(pieces < 200, "it does not end");
    }
    let once: BTreeSet<_> = met.iter().copied().collect();
    assert_eq!(once.len(), met.len());
    assert!((0..4_000).all(|n| once.contains(&key(n))));
}

proptest! {
    /// Compares the answers with a simple rule: the newest answer of each row is kept until it is
    /// too old or there are too many answers.
    #[test]
    fn the_remembered_answer_is_the_last_one(
        rows in prop::collection::vec((0..40_u64, 0..4_u64, 0..3_u64), 1..300),
        rows_max in 1..60_usize,
    ) {
        let mut answers = Answers::new(rows_max);
        let mut last = BTreeMap::new();
        let mut now = Millis(0);
        for (row, pool, wait) in rows {
            now = now + Millis(wait * ANSWER_AGE.0 / 8);
            answers.remember(now, PoolId(pool), key(row), number());
            last.insert(key(row), now);
            prop_assert!(answers.len() <= rows_max);
            prop_assert_eq!(answers.get(now, key(row)), Some((now, number())));
            for (row, at) in &last {
                let known = answers.get(now, *row);
                prop_assert!(known.is_none_or(|(known_at, _)| known_at == *at));
                prop_assert!(known.is_none() || now.since(*at) <= ANSWER_AGE);
            }
        }
        let mut walked = 0;
        let mut place = answers.first();
        while let Some(from) = place {
            place = answers.piece(from, 7, |_| walked += 1);
        }
        prop_assert_eq!(walked, answers.len());
        prop_assert_eq!(answers.iter().count(), answers.len());
    }
}

/// Adding an answer never moves more than a small part of the rows, however many answers are
/// remembered.
#[test]
fn a_table_holds_a_thousandth_of_all_rows() {
    let mut answers = Answers::new(200_000);
    for n in 0..200_000 {
        answers.remember(Millis(1), PoolId(1), key(n), number());
    }
    let largest = answers.by_row.iter().map(HashMap::len).max().unwrap();
    assert!(largest < 2 * 200_000 / PARTS, "{largest}");
}
