//! The driver of two nodes on a simulated machine, from seeds: see `world`.

#![allow(missing_docs, unreachable_pub, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests: a panic is their report")]

mod world;

use std::time::Duration;

use world::{Faults, Summary, World};

const HARD: Faults = Faults { kill_one_in: 4_000, lose_one_in: 50 };
const CALM: Faults = Faults { kill_one_in: 0, lose_one_in: 0 };

fn run(seed: u64, faults: Faults) -> Summary {
    World::run(seed, faults, Duration::from_secs(6))
}

#[cfg(not(canary))]
#[test]
fn no_number_goes_to_two_clients_whatever_is_lost_and_killed() {
    let mut all = Summary::default();
    for seed in 0..20 {
        let summary = run(seed, HARD);
        assert_eq!(summary.doubles, [0_u64; 0], "seed {seed}");
        all.polls += summary.polls;
        all.kills += summary.kills;
        all.numbers += summary.numbers;
    }
    println!("TWO NODES {} polls, {} kills, {} numbers", all.polls, all.kills, all.numbers);
    assert!(all.kills > 20 && all.numbers > 1_000, "{all:?}");
}

#[cfg(not(canary))]
#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..5 {
        assert_eq!(run(seed, HARD), run(seed, HARD), "seed {seed}");
    }
}

#[cfg(not(canary))]
#[test]
fn numbers_of_clients_that_hang_up_are_free_again() {
    for seed in 0..10 {
        assert_eq!(run(seed, CALM).leaks, 0, "seed {seed}");
    }
}

/// With `--cfg canary`: each planted bug breaks what the tests above hold.
#[cfg(canary)]
#[test]
fn planted_bugs_are_found() {
    use ringwell_driver::canary::{Bug, plant};

    type Broken = fn(&Summary) -> bool;
    let cases: [(Bug, Faults, Broken); 2] = [
        (Bug::ReplyBeforeFlush, HARD, |summary| !summary.doubles.is_empty()),
        (Bug::HoldUnanswered, CALM, |summary| summary.leaks > 0),
    ];
    for (bug, faults, is_broken) in cases {
        plant(Some(bug));
        let seed = (0..400).find(|seed| is_broken(&run(*seed, faults)));
        plant(None);
        println!("FOUND {bug:?} with seed {seed:?}");
        assert!(seed.is_some(), "{bug:?} was not found");
    }
}
