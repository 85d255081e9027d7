//! Bugs in production code must be found: everything is built again with them in it.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::path::Path;
use std::process::Command;

/// Runs tests of this crate that is built with `--cfg canary`; returns how many have passed.
fn passed(arguments: &[&str]) -> u32 {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("canary");
    let output = Command::new(cargo)
        .args(["test", "--offline", "-p", "ringwell-sim"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", "--cfg canary")
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(output.status.success(), "{text}");
    let (before, _) = text.split_once(" passed").unwrap_or_else(|| panic!("{text}"));
    before.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap()
}

#[test]
fn bugs_planted_in_the_rules_are_found() {
    // A filter that matches nothing succeeds as well.
    assert_eq!(passed(&["--lib", "bugs_in_the_rules"]), 1);
}

#[test]
fn bugs_planted_in_the_log_are_found() {
    assert_eq!(passed(&["--test", "log_bugs"]), 1);
}

#[test]
fn bugs_planted_in_the_driver_are_found() {
    assert_eq!(passed(&["--test", "bugs"]), 1);
}
