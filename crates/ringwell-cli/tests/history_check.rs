//! Tests `ringwell check` as people and scripts use it: the output and the exit codes.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwell"));
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/history");
    command.arg("check").args(arguments).current_dir(fixtures).output().unwrap()
}

/// Copies the lines of `clean.jsonl` whose kinds satisfy `is_kept` to a file in `folder`. Returns
/// the file's path.
fn part_of_clean(folder: &Path, is_kept: impl Fn(&str) -> bool) -> String {
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/history/clean.jsonl");
    let whole = fs::read_to_string(whole).unwrap();
    let is_kept = |line: &&str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        is_kept(line["k"].as_str().unwrap())
    };
    let path = folder.join("history.jsonl");
    fs::write(&path, whole.lines().filter(is_kept).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    path.to_str().unwrap().to_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_clean_history_is_reported_as_clean_with_the_judged_rules() {
    let output = check(&["clean.jsonl"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    for part in [
        "clean\n",
        "4 batches (1 without an answer), 6 rows (1 overflow), 3 numbers, 6 records, 2 look-ups",
        "judged: C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_file_given_twice_is_refused_and_not_reported_as_a_violation() {
    let output = check(&["clean.jsonl", "./clean.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("./clean.jsonl is given twice"), "{text}");
}

#[test]
fn a_violation_is_reported_with_its_lines_and_the_nearest_fault() {
    let output = check(&["c1-double-by-clients.jsonl"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    for part in [
        "violated: C1: 2000000001 was given to rows aaaa0001-0-0 and aaaa0001-2-0",
        "c1-double-by-clients.jsonl:5: {\"k\":\"inv\"",
        "nearest fault:\n  c1-double-by-clients.jsonl:4: {\"k\":\"nem\"",
        "not judged: C2: no `jrn` lines",
        "not judged: C1: the part \"according to journals\"",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_history_without_a_journal_is_not_simply_reported_as_clean() {
    let folder = tempfile::tempdir().unwrap();
    let path = part_of_clean(folder.path(), |kind| kind != "jrn");
    let path = path.as_str();
    let text = stdout(&check(&[path]));
    assert!(text.starts_with("clean according to "), "{text}");
    assert!(text.contains(" of 11 rules") && text.contains("load finish HISTORY"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&stdout(&check(&[path, "--json"]))).unwrap();
    assert_eq!((&json["clean"], &json["complete"]), (&true.into(), &false.into()));
}

#[test]
fn the_advice_names_only_lines_that_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let without = |kind: &str| {
        let path = part_of_clean(folder.path(), |other| other != kind);
        stdout(&check(&[&path]))
    };
    let text = without("att");
    assert!(text.contains("--look-up URL") && !text.contains("--journal DATA"), "{text}");
    let text = without("fin");
    assert!(!text.contains("--look-up URL") && text.contains("--journal DATA"), "{text}");
}

#[test]
fn a_history_without_batches_is_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = part_of_clean(folder.path(), |kind| ["run", "cfg"].contains(&kind));
    let output = check(&[&path]);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(said.contains("nothing was judged"), "{said}");
}

#[test]
fn programs_get_the_same_as_json() {
    let output = check(&["c9-late.jsonl", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["clean"], &json["first"]["rule"]), (&false.into(), &"C9".into()));
    assert_eq!(json["violations"]["C9"], 1);
}

#[test]
fn an_unreadable_file_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.jsonl");
    fs::write(&path, "{\"k\":\"run\",\"v\":1,\"run\":\"x\"}\n{\"k\":\"inv\"}\n").unwrap();
    let path = path.to_str().unwrap();
    let output = check(&[path]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(&format!("{path}:2: `rows` is missing")), "{errors}");
    assert_eq!(check(&["no-such-file.jsonl"]).status.code(), Some(2));
}
