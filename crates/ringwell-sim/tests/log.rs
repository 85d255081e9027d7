//! Simulates machines that share a log, with many seeds. No seed may break a promise.

use std::collections::BTreeSet;

use ringwell_sim::{LogFault, LogOptions, LogReport, run_log};

/// The number of seeds that are run for each commit. `RINGWELL_SIM_SEEDS` overrides it.
const SEEDS: u64 = 150;

fn check(options: &LogOptions) -> LogReport {
    let report = run_log(options);
    if let Some(broken) = &report.violation {
        panic!("seed {}: {broken:?}\nringwell-sim --shared-log has its story", options.seed);
    }
    report
}

#[test]
fn no_seed_of_a_shared_log_breaks_a_promise() {
    let wanted = std::env::var("RINGWELL_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut struck, mut take_overs, mut from_the_living) = (BTreeSet::new(), 0, 0);
    let seeds = wanted.unwrap_or(SEEDS);
    for seed in 0..seeds {
        let report = check(&LogOptions { seed, ..LogOptions::default() });
        struck.extend(report.faults.into_iter().map(|(fault, _)| fault));
        take_overs += report.take_overs;
        from_the_living += report.from_the_living;
    }
    if seeds >= SEEDS {
        let never: Vec<_> = LogFault::ALL.iter().filter(|fault| !struck.contains(fault)).collect();
        assert!(never.is_empty(), "{never:?}");
        assert!(take_overs > 500 && from_the_living > 200, "{take_overs}, {from_the_living}");
    }
}

#[test]
fn the_same_seed_of_a_shared_log_is_the_same_run() {
    for seed in 0..20 {
        let once = check(&LogOptions { seed, ..LogOptions::default() });
        let again = check(&LogOptions { seed, keeps_tale: true, ..LogOptions::default() });
        assert_eq!((once.hash, once.rows), (again.hash, again.rows), "seed {seed}");
    }
}
