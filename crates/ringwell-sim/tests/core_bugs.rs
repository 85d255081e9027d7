//! Bugs in `ringwell-core` must be found too: all is built once more, with them in it.

use std::path::Path;
use std::process::Command;

#[test]
fn bugs_that_are_planted_in_the_rules_are_found() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("canary");
    let arguments = ["test", "--offline", "--lib", "-p", "ringwell-sim", "bugs_in_the_rules"];
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RUSTFLAGS", "--cfg canary")
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    assert!(output.status.success(), "{told}");
    // A filter that matches nothing succeeds as well.
    assert!(told.contains("1 passed"), "{told}");
}
