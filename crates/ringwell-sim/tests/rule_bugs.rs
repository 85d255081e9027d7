//! Bugs that are planted in the rules of `ringwell-core`: each must be found.
//!
//! As `bugs.rs`, for bugs that affect the whole process. `planted_bugs.rs` builds all for it.
#![cfg(canary)]

use ringwell_sim::{Bug, Kind, Options, plant_in_core, run};

/// A single test, because a planted bug affects the whole process.
#[test]
fn bugs_in_the_rules_are_found() {
    let undone = &[Kind::Manage, Kind::Move, Kind::Visitor, Kind::Retry];
    let cases: [(Bug, u64, &[Kind], &[&str]); 5] = [
        (Bug::LockCompare, 0, &[], &["double in shard time", "double"]),
        (Bug::NotFifo, 0, &[], &["not the one free longest"]),
        (Bug::TwoOfAPool, 0, &[Kind::Retry, Kind::Visitor], &["visitor moved"]),
        (Bug::UndoneEndsDoubt, 1_072, undone, &["attribution"]),
        (Bug::DoubtsIgnored, 1_072, undone, &["attribution"]),
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
}
