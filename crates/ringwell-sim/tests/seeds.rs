//! Runs many seeds. None of them may break a promise.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ringwell_sim::{Kind, Options, Report, run};

/// The number of seeds that are run for each commit. `RINGWELL_SIM_SEEDS` overrides it.
const SEEDS: u64 = 60;

/// The number of seeds that are run twice.
const SEEDS_TWICE: u64 = 10;

fn seeds() -> u64 {
    let wanted = std::env::var("RINGWELL_SIM_SEEDS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

fn check(options: &Options) -> Report {
    let report = run(options);
    if let Some(broken) = &report.violation {
        panic!("{broken:?}\n{}\nrun ringwell-sim with this seed for its story", report.line("-"));
    }
    report
}

#[test]
fn no_seed_breaks_a_promise_and_every_kind_of_fault_strikes() {
    let (next, seeds) = (AtomicU64::new(0), seeds());
    let struck = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let on = match seed {
                        // Calls are made only in runs with `Kind::Call`: see the test of calls
                        // below.
                        0 => vec![Kind::Call, Kind::CallElsewhere, Kind::CallLate],
                        // At its normal rate, this fault would happen too rarely in these seeds.
                        1..10 => vec![Kind::LostWrite],
                        10..20 => vec![Kind::MapChange, Kind::GainsFirst],
                        _ => Vec::new(),
                    };
                    let report = check(&Options { seed, on, ..Options::default() });
                    struck.lock().unwrap().extend(report.faults.into_iter().map(|(kind, _)| kind));
                }
            });
        }
    });
    let struck = struck.into_inner().unwrap();
    let never: Vec<_> = Kind::ALL.iter().filter(|kind| !struck.contains(kind)).collect();
    assert!(seeds < SEEDS || never.is_empty(), "{never:?}");
}

#[test]
fn the_same_seed_is_the_same_run_to_the_last_bit() {
    for seed in 0..SEEDS_TWICE {
        let once = check(&Options { seed, ..Options::default() });
        let again = check(&Options { seed, keeps_tale: true, ..Options::default() });
        assert_eq!((once.hash, once.rows), (again.hash, again.rows), "seed {seed}");
    }
}

/// Each run has bursts of requests with hours of quiet time between them, and lifetimes of up to
/// twenty minutes.
#[test]
fn no_seed_of_many_hours_breaks_a_promise() {
    let mut hours = 0;
    for seed in 0..3 {
        let options = Options { seed, has_hours: true, ..Options::default() };
        let report = check(&options);
        hours += report.length_us / 3_600_000_000;
        if seed == 0 {
            assert_eq!(check(&options).hash, report.hash);
        }
    }
    assert!(hours > 15, "only {hours} hours");
}

/// Calls are made while nodes crash, buckets move and clocks are set. The runs of other tests make
/// no calls, because looking up the calls would change the order of all other events. The seeds
/// that are known to find planted bugs would then no longer find them.
#[test]
fn a_call_during_faults_is_attributed_to_the_visitor_who_was_shown_its_number() {
    let (mut calls, seeds) = (0, seeds() / 2);
    for seed in 0..seeds {
        let on = match seed % 4 {
            0 => vec![Kind::Call],
            1 => vec![Kind::Call, Kind::CallElsewhere, Kind::Kill, Kind::Power],
            2 => vec![Kind::Call, Kind::CallElsewhere, Kind::CallLate, Kind::Move, Kind::Manage],
            _ => vec![Kind::Call, Kind::ClockForward, Kind::ClockRight, Kind::BootClock],
        };
        let report = check(&Options { seed, on, ..Options::default() });
        calls += report.attributed_calls;
    }
    assert!(calls > seeds, "only {calls} calls were attributed");
}

/// Kinds of faults that end processes, except map changes. If they are disabled, processes run for
/// a long time. After a wall clock is set, shard time approaches it slowly. In a long-running
/// process, the corrections of shard time add up to several milliseconds, which can change results.
const ENDS: [Kind; 15] = [
    Kind::Kill,
    Kind::Power,
    Kind::CrashAtCall,
    Kind::Stop,
    Kind::Rot,
    Kind::RotAtEnd,
    Kind::Full,
    Kind::FlushError,
    Kind::WriteError,
    Kind::StandsStill,
    Kind::LostDisk,
    Kind::CopyBack,
    Kind::Restored,
    Kind::Shorten,
    Kind::CrashAfter,
];

/// Frequent faults for seeds in which visitors call numbers while processes end.
const CALLS: [Kind; 5] = [Kind::Visitor, Kind::Retry, Kind::Kill, Kind::Power, Kind::Call];

/// Seeds that once broke a promise: see docs/spec/simulation.md.
#[test]
fn seeds_that_have_failed_hold() {
    let newer = [
        Kind::CrashAfter,
        Kind::Hasty,
        Kind::LostDisk,
        Kind::SlowSpell,
        Kind::BootClock,
        Kind::LargePools,
    ];
    let cases: [(u64, &[Kind], &[Kind]); 40] = [
        (260_078, &[], &[]),
        (260_078, &[Kind::StandsStill, Kind::Manage], &[]),
        (260_078, &[Kind::Manage, Kind::Move, Kind::Visitor, Kind::Retry], &[]),
        (5_459, &[Kind::Manage], &[]),
        (1_072, &[Kind::Manage, Kind::Move], &[]),
        (1_072, &[Kind::Manage, Kind::Move, Kind::Visitor, Kind::Retry], &[]),
        (36, &[Kind::Move, Kind::StandsStill, Kind::LostDisk, Kind::LateList], &[]),
        (
            117,
            &[Kind::Move, Kind::StandsStill, Kind::LostDisk, Kind::LateList],
            &[
                Kind::SlowDisk,
                Kind::SameKey,
                Kind::ClockRight,
                Kind::LostDisk,
                Kind::Restored,
                Kind::CopyBack,
            ],
        ),
        (5_259, &[Kind::Move, Kind::Manage, Kind::Call, Kind::MapChange], &[]),
        (5_381, &[Kind::Move, Kind::Manage, Kind::Call, Kind::MapChange], &[]),
        (1_003, &[Kind::Move, Kind::Manage, Kind::Call, Kind::MapChange], &[]),
        (5_447, &[Kind::Move, Kind::Manage, Kind::Call, Kind::MapChange], &[]),
        (1_461, &[Kind::Move, Kind::Abort, Kind::Retry, Kind::Visitor], &[]),
        (615, &[Kind::Move, Kind::Restored, Kind::CopyBack], &[]),
        (58, &[Kind::Move, Kind::FrameDelayed, Kind::Kill], &newer),
        (300_124, &[], &[]),
        (320_049, &[Kind::Retry, Kind::Visitor, Kind::Single, Kind::Hurry], &[]),
        (330_042, &[Kind::StandsStill, Kind::Manage], &[]),
        (350_011, &[Kind::Os, Kind::Power, Kind::Stop, Kind::CopyBack, Kind::Restored], &[]),
        (24, &[Kind::CopyBack, Kind::Move], &[]),
        (58, &[Kind::Move, Kind::CopyBack, Kind::Restored], &[]),
        (21, &[Kind::Move, Kind::CopyBack, Kind::Restored], &[]),
        (511, &[], &[]),
        (1_143, &[], &[]),
        (247, &[Kind::MapChange, Kind::ClockBack], &ENDS),
        (6_074, &CALLS, &[]),
        (6_074, &CALLS, &[Kind::Move]),
        (1_001_029, &[], &[]),
        (1_003_000, &[], &[]),
        (1_003_313, &[], &[]),
        (2_000_758, &[], &[]),
        (2_001_341, &[], &[]),
        (35, &[], &[]),
        (1_014, &[], &[]),
        (1_034, &[], &[]),
        (1_038, &[], &[]),
        (1_399, &[], &[]),
        (1_431, &[], &[]),
        (1_663, &[], &[]),
        (1_895, &[], &[]),
    ];
    for (seed, on, off) in cases {
        check(&Options { seed, on: on.to_vec(), off: off.to_vec(), ..Options::default() });
    }
}

/// The runs use durabilities that do not wait for a flush, or restore copies of data that were made
/// before a move.
#[test]
fn no_seed_of_a_weaker_durability_or_of_old_data_breaks_a_promise() {
    for seed in 0..seeds() {
        let on = match seed % 5 {
            0 => vec![Kind::Os, Kind::Power],
            1 => vec![Kind::Os, Kind::Power, Kind::Stop, Kind::Kill],
            2 => vec![Kind::Memory, Kind::Visitor, Kind::Kill],
            3 => vec![Kind::Memory, Kind::ClockForward, Kind::ClockRight, Kind::Call],
            _ => vec![Kind::CopyBack, Kind::Move],
        };
        check(&Options { seed, on, ..Options::default() });
    }
}
