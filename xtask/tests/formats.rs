//! Tests that the changelog names the versions of the formats that the code writes.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_to_string(root.join(path)).unwrap()
}

/// Returns the number that follows `name` in a source file.
fn constant(path: &str, name: &str) -> String {
    let text = read(path);
    let (_, rest) = text.split_once(name).unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn the_changelog_names_the_formats_of_this_version() {
    let journal = constant("crates/ringwell-journal/src/segment.rs", "FORMAT_VERSION: u32 = ");
    let snapshot = constant("crates/ringwell-journal/src/snapshot.rs", "SNAPSHOT_VERSION: u32 = ");
    let directory = constant("crates/ringwell-store/src/schema.rs", "STEPS: [Step; ");
    let calls = read("crates/ringwell-calls/src/log.rs").matches(" Step {").count();
    let link = constant("crates/ringwell-mesh/src/frame/version.rs", "const VERSION: u8 = ");
    let formats = format!(
        "**Formats**: journal {journal}, snapshot {snapshot}, directory schema {directory}, call \
         log schema {calls}, link {link}."
    );
    let changelog = read("CHANGELOG.md");
    let newest = changelog.split("\n## ").nth(1).unwrap();
    assert!(newest.replace('\n', " ").contains(&formats), "the changelog lacks: {formats}");
}
