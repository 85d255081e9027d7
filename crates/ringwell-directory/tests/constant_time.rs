//! Tests that comparing a secret executes the same number of instructions for all presented strings
//! of the same length. Counts instructions instead of measuring time.
//!
//! The test runs its own executable again under `valgrind --tool=callgrind`, which counts the
//! instructions of one function. Skipped with a message if valgrind is missing.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::hint::black_box;
use std::process::Command;

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{Directory, PoolFields, RingPool, RingPoolKey, Token, TokenHash};

const KEY: &str = "k3y-of-pool-16-that-is-32-bytes!";
/// The right key, and keys that differ from it in the first byte, in the last byte, and in all
/// bytes.
const PRESENTED: [&str; 4] = [
    KEY,
    "X3y-of-pool-16-that-is-32-bytes!",
    "k3y-of-pool-16-that-is-32-bytesX",
    "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
];
/// The environment variable that makes the process call the counted functions. Its value is the
/// index of the text to present.
const COUNTED: &str = "RINGWELL_COUNTED";
const TEST: &str = "every_presented_key_causes_the_same_work";

#[inline(never)]
fn counted_key(key: &RingPoolKey, presented: &[u8]) -> bool {
    key.matches(black_box(presented))
}

#[inline(never)]
fn counted_pool(directory: &Directory, pool: PoolId, presented: &[u8]) -> bool {
    directory.check_key(directory.lookup(pool), black_box(presented))
}

#[inline(never)]
fn counted_token(hashes: &[TokenHash], presented: &[u8]) -> bool {
    TokenHash::any_matches(hashes, black_box(presented))
}

fn directory() -> Directory {
    let first = PromoNumber::from_e164(12_000_000_000).unwrap();
    let pool = RingPool::new(PoolFields {
        id: PoolId(16),
        name: None,
        key: RingPoolKey::parse(KEY).unwrap(),
        next_key: None,
        lifetime: Millis(1000),
        numbers: vec![NumberRange::new(first, 10).unwrap()],
        overflow: None,
        tracking: None,
    });
    Directory::new(1, vec![pool.unwrap()], 1).unwrap()
}

fn compare(presented: &[u8]) {
    let key = RingPoolKey::parse(KEY).unwrap();
    let others = [[7; 32], [8; 32]].map(|bytes| Token::from_random(bytes).hash());
    let hashes = [Token::parse(KEY).unwrap().hash(), others[0], others[1]];
    let is_ours = presented == KEY.as_bytes();
    assert_eq!(counted_key(&key, presented), is_ours);
    assert_eq!(counted_pool(&directory(), PoolId(16), presented), is_ours);
    assert_eq!(counted_token(&hashes, presented), is_ours);
}

/// The count of instructions that `function` executes for the text with the index `presented`.
fn instructions(function: &str, presented: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--test-threads=1"])
        .env(COUNTED, presented.to_string())
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: valgrind is not installed; `apt-get install valgrind` does so");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let count = said.lines().find_map(|line| line.split_once("Collected :"));
    Some(count.unwrap().1.trim().parse().unwrap())
}

#[test]
fn every_presented_key_causes_the_same_work() {
    if let Ok(presented) = std::env::var(COUNTED) {
        return compare(PRESENTED[presented.parse::<usize>().unwrap()].as_bytes());
    }
    for function in ["counted_key", "counted_pool", "counted_token"] {
        let counts = (0..PRESENTED.len()).map(|presented| instructions(function, presented));
        let Some(counts) = counts.collect::<Option<Vec<_>>>() else { return };
        assert!(counts[0] > 50, "{function} was not counted: {counts:?}");
        assert!(counts.iter().all(|count| *count == counts[0]), "{function}: {counts:?}");
    }
}
