//! Tests that the simulator finds bugs planted in the code for a log shared by machines. Each must
//! be found.
//!
//! Works like `bugs.rs`, but runs machines that share a log. `planted_bugs.rs` builds the crates
//! with the bugs.
#![cfg(canary)]

use ringwell_sim::{Bug, LogFault, LogOptions, Violation, run_log};

/// The number of seeds within which a bug must be found.
const SEEDS_MAX: u64 = 400;

/// A bug, the faults that are frequent, and a list of promises. The bug must break one of these
/// promises.
type Case = (Bug, &'static [LogFault], &'static [&'static str]);

const CASES: &[Case] = &[
    (
        Bug::TakenIsTheirs,
        &[LogFault::NoQuorum, LogFault::AckLost],
        &["fenced without an owner", "refused", "not live"],
    ),
    (
        Bug::TakenIsMine,
        &[LogFault::Hasty, LogFault::Deaf],
        &["forgotten", "double", "broken chain"],
    ),
    (Bug::EpochNotRaised, &[LogFault::Kill], &["broken chain"]),
    (
        Bug::PlaceAlone,
        &[LogFault::LostTail, LogFault::Hasty, LogFault::Pause],
        &["broken chain", "not live", "double", "forgotten"],
    ),
    (
        Bug::MessageId,
        &[LogFault::Hasty, LogFault::Deaf, LogFault::Slow],
        &["forgotten", "double", "broken chain"],
    ),
    (Bug::WallAtTakeOver, &[LogFault::Clock, LogFault::Kill], &["forgotten", "double"]),
    (
        Bug::Pipelined,
        &[LogFault::Hasty, LogFault::Slow, LogFault::AckLost],
        &["broken chain", "forgotten", "double", "panic"],
    ),
    (Bug::SnapshotAhead, &[LogFault::Kill, LogFault::Wipe], &["held without cause", "refused"]),
    (
        Bug::ForeignCountedTwice,
        &[LogFault::Foreign, LogFault::Hole, LogFault::Kill, LogFault::Wipe],
        &["broken chain", "double", "forgotten", "refused"],
    ),
    (Bug::FewLeaders, &[LogFault::Hole, LogFault::Kill], &["refused"]),
    (
        Bug::LostLogIgnored,
        &[LogFault::LostStream, LogFault::Wipe, LogFault::Kill],
        &["forgotten", "double"],
    ),
    (
        Bug::ReachedIgnored,
        &[LogFault::LostStreams, LogFault::Wipe, LogFault::Kill],
        &["forgotten", "double"],
    ),
    (Bug::StartIgnored, &[LogFault::Rot, LogFault::Wipe, LogFault::Kill], &["needless start"]),
    (Bug::OneServerAsked, &[LogFault::Hole, LogFault::Wipe], &["attribution"]),
];

#[test]
fn every_bug_planted_in_the_log_is_found() {
    let mut missed = Vec::new();
    for (bug, on, rules) in CASES {
        let of = |seed, bug| LogOptions { seed, on: on.to_vec(), bug, ..LogOptions::default() };
        // Without the bug, the same seed must not break a promise.
        let holds = |seed: &u64| run_log(&of(*seed, None)).violation.is_none();
        let breaks = |seed| run_log(&of(seed, Some(*bug))).violation.map(|broken| (seed, broken));
        // With many seeds, the bug first breaks a promise that is not listed for it. Such seeds do
        // not count.
        let is_promise = |(_, broken): &(u64, Violation)| rules.contains(&broken.rule);
        let mut broken = (0..SEEDS_MAX).filter_map(breaks).filter(is_promise);
        match broken.find(|(seed, _)| holds(seed)) {
            Some((seed, broken)) => {
                println!("{}: seed {seed}, {}: {}", bug.name(), broken.rule, broken.text);
            }
            None => missed.push(format!("{bug:?} was not found")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
