//! Bugs that are planted in the driver must be found: all is built once more, with them in it.

#![allow(clippy::unwrap_used, reason = "tests: a panic is their report")]

use std::path::Path;
use std::process::Command;

#[test]
fn bugs_that_are_planted_in_the_driver_are_found() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("canary");
    let arguments = ["test", "--offline", "-p", "ringwell-driver", "--test", "two_nodes"];
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", "--cfg canary")
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let report = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let report = report.concat();
    assert!(output.status.success(), "{report}");
    // A filter that matches nothing succeeds as well.
    assert!(report.contains("1 passed"), "{report}");
}
