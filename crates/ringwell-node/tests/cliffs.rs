//! The steps of a shard must stay short, no matter how much data the shard has. They are measured
//! in CPU time of the current thread, which other programs on the machine do not affect.
//!
//! `cargo test -p ringwell-node --release --test cliffs -- --nocapture` prints the figures.

#![allow(clippy::unwrap_used, reason = "helpers of tests end a test by failing")]

use std::fs;
use std::time::Duration;

use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber};
use ringwell_engine::{Ask, Engine, Outcome, Refusal, Restore, RowKey};
use ringwell_journal::Tip;
use rustix::time::{ClockId, clock_gettime};

const START: Millis = Millis(1_700_000_000_000);
const LIFETIME: Millis = Millis(1_800_000);

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn engine(numbers: u32) -> Engine {
    let first = PromoNumber::from_e164(12_005_550_000).unwrap();
    let numbers = vec![NumberRange::new(first, numbers).unwrap()];
    let spec = PoolSpec { id: PoolId(1), lockout: LIFETIME, numbers };
    Restore::new(vec![spec], 1_000_000).finish(Tip::FIRST.raise_epoch(), START, false).0
}

/// Allocates a number for one row, and returns the outcome and the CPU time.
fn allocate(engine: &mut Engine, clock: Millis, retry: Option<RowKey>) -> (Outcome, Duration) {
    let now = engine.at(clock);
    let ask = Ask { pool: 0, id: PoolId(1), params: [b"m1=autos", b""], visitor: None, retry };
    let mut outcome = Outcome::Refused(Refusal::Late);
    let begun = cpu();
    engine.allocate(now, &ask, &mut outcome);
    let took = cpu().saturating_sub(begun);
    if engine.is_full() {
        while engine.seal(Vec::new()).is_some() {}
    }
    (outcome, took)
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn remembering_one_row_does_not_move_all_others() {
    const ROWS: u64 = 1_000_000;
    let mut engine = engine(1);
    allocate(&mut engine, START, None);
    let before = resident_bytes();
    let (mut longest, mut whole) = (Duration::ZERO, Duration::ZERO);
    for n in 0..ROWS {
        let mut batch = [0; 16];
        batch[..8].copy_from_slice(&(n / 500).to_le_bytes());
        let retry = Some(RowKey { batch, row: u16::try_from(n % 500).unwrap() });
        let (outcome, took) = allocate(&mut engine, START, retry);
        assert!(matches!(outcome, Outcome::Exhausted { .. }), "{outcome:?}");
        (longest, whole) = (longest.max(took), whole + took);
    }
    assert_eq!(engine.answers_remembered(), 1_000_000);
    let bytes = resident_bytes().saturating_sub(before);
    println!(
        "a million rows: {} MB, {} ns per row, the longest {longest:?}",
        bytes / 1_000_000,
        whole.as_nanos() / u128::from(ROWS)
    );
    assert!(longest < Duration::from_millis(20), "{longest:?}");
}

#[test]
fn the_first_release_of_a_large_pool_is_short() {
    const NUMBERS: u32 = 100_000;
    const ROWS: u32 = 40_000;
    let mut engine = engine(NUMBERS);
    let mean_of = |engine: &mut Engine, what: &str| {
        let mut whole = Duration::ZERO;
        for n in 0..ROWS {
            let clock = engine.now() + Millis(u64::from(n % 100 == 0));
            let (outcome, took) = allocate(engine, clock, None);
            assert!(matches!(outcome, Outcome::Allocated { .. }), "{outcome:?}");
            whole += took;
        }
        println!("{what}: {} ns per row", (whole / ROWS).as_nanos());
    };
    mean_of(&mut engine, "a ring");
    mean_of(&mut engine, "a ring");
    let number = engine.shard().slots()[17].number;
    let now = engine.at(START + Millis(5_000));
    let begun = cpu();
    assert!(engine.release(now, number, None));
    let first = cpu().saturating_sub(begun);
    let number = engine.shard().slots()[18].number;
    let begun = cpu();
    assert!(engine.release(now, number, None));
    println!("the first release: {first:?}, the second: {:?}", cpu().saturating_sub(begun));
    engine.at(now + LIFETIME);
    mean_of(&mut engine, "a heap");
    assert!(first < Duration::from_millis(20), "{first:?}");
}
