//! Tests that bugs planted in production code are found. The project's crates are built again with
//! the bugs in them.
//!
//! Dependencies are not built again: only the project's own crates get `--cfg canary`, and the
//! build enables the same features as a build of the whole workspace.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the test program `program` with `--cfg canary`, runs its tests whose names contain
/// `name`, and returns how many tests passed.
fn passed(program: &str, name: &str) -> u32 {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--offline", "--workspace", "--features", "ringwell-cli/nats"])
        .args(["--test", program, name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTC_WORKSPACE_WRAPPER", compiler())
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let printed = printed.concat();
    assert!(output.status.success(), "{printed}");
    println!("{printed}");
    let (before, _) = printed.split_once(" passed").unwrap_or_else(|| panic!("{printed}"));
    before.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap()
}

/// Returns the path of a compiler wrapper that sets `canary` for the crates of the workspace.
fn compiler() -> &'static Path {
    static COMPILER: OnceLock<PathBuf> = OnceLock::new();
    COMPILER.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rustc-with-planted-bugs");
        let script = "#!/bin/sh\nexec \"$@\" --cfg canary\n";
        // The script is written only if it has changed, because a new modification time makes cargo
        // build everything again.
        if fs::read_to_string(&path).is_ok_and(|text| text == script) {
            return path;
        }
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    })
}

#[test]
fn bugs_planted_in_the_rules_are_found() {
    // A program that runs no tests would succeed too, so the number of passed tests is checked.
    assert_eq!(passed("rule_bugs", ""), 1);
}

#[test]
fn bugs_planted_in_the_log_are_found() {
    assert_eq!(passed("log_bugs", ""), 1);
}

#[test]
fn bugs_planted_in_the_driver_are_found() {
    assert_eq!(passed("bugs", ""), 1);
}

#[test]
fn bugs_that_the_simulator_misses_are_found_by_tests_of_the_driver() {
    assert_eq!(passed("driver", "bugs::"), 1);
}
