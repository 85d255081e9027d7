//! Bugs that are planted in the rules of `ringwell-core`: each must be found.
//!
//! As `bugs.rs`, for bugs that affect the whole process. `planted_bugs.rs` builds all for it.
#![cfg(canary)]

use ringwell_sim::{Bug, Kind, Options, plant_in_core, run};

/// A single test, because a planted bug affects the whole process.
#[test]
fn bugs_in_the_rules_are_found() {
    let cases: [(Bug, &[Kind], &[&str]); 3] = [
        (Bug::LockCompare, &[], &["double in shard time", "double"]),
        (Bug::NotFifo, &[], &["not the one free longest"]),
        (Bug::TwoOfAPool, &[Kind::Retry, Kind::Visitor], &["visitor moved"]),
    ];
    for (bug, on, rules) in cases {
        plant_in_core(Some(bug));
        let broken = (0..100).find_map(|seed| {
            let on = on.to_vec();
            run(&Options { seed, on, bug: Some(bug), ..Options::default() }).violation
        });
        plant_in_core(None);
        let broken = broken.unwrap_or_else(|| panic!("{bug:?} was not found"));
        assert!(rules.contains(&broken.rule), "{bug:?} showed as {broken:?}");
    }
}
