//! The program as people run it: checks, texts, wrong usage, and what the demo writes.

#![expect(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn ringwell(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwell"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RINGWELL_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    ringwell(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn sample() -> String {
    format!("{}/../../deploy/ringwell.toml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_good_configuration_is_counted() {
    let output = run(&["serve", "--config", &sample(), "--check"]);
    assert_eq!(stdout(&output), "ok: 2 pools, 71 numbers\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn every_fault_of_a_configuration_is_told_and_it_is_not_served() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ringwell.toml");
    fs::write(&path, "data = \"d\"\nlisten = [\"here\"]\n[limits]\nrow = 1\n[[ring_pool]]\n")
        .unwrap();
    let path = path.to_str().unwrap();
    for args in [&["serve", "--config", path, "--check"][..], &["serve", "--config", path]] {
        let output = ringwell(args).env("RINGWELL_SHARDS", "x").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stdout(&output), "");
        let said = stderr(&output).replace(path, "ringwell.toml");
        let places: Vec<&str> = said.lines().filter_map(|line| line.split(": ").next()).collect();
        let five = "ringwell.toml:5";
        assert_eq!(
            places,
            ["RINGWELL_SHARDS", "ringwell.toml:2", "ringwell.toml:4", five, five, five, five, five]
        );
        assert!(
            said.contains(
                "ringwell.toml:4: limits.row: there is no such field; did you mean rows?\n"
            )
        );
    }
}

#[test]
fn flags_and_variables_stand_above_the_configuration() {
    let output = ringwell(&["serve", "--check", "--shards", "2", "--durability", "memory"])
        .env("RINGWELL_CONFIG", sample())
        .env("RINGWELL_DEADLINE", "50ms")
        .output()
        .unwrap();
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("ok: 2 pools, 71 numbers\n", Some(0))
    );
}

#[test]
fn wrong_usage_is_told_on_stderr_and_exits_with_2() {
    let wrong: [&[&str]; 8] = [
        &[],
        &["serv"],
        &["serve"],
        &["serve", "--config", "x", "--durability", "ram"],
        &["demo", "--lifetime", "soon"],
        &["demo", "--listen", "here"],
        &["demo", "--shards", "300"],
        &["completions", "dos"],
    ];
    for args in wrong {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(!stderr(&output).is_empty(), "{args:?}");
    }
    let said = stderr(&run(&["demo", "--listen", "here"]));
    assert!(said.contains("must be HOST:PORT or unix:PATH; write e.g."), "{said}");
}

#[test]
fn a_demo_that_cannot_be_exits_with_1() {
    let output = run(&["demo", "--data", "/nowhere", "--pools", "0"]);
    assert_eq!(stderr(&output), "error: a demo has 1 to 1,000,000 pools, not 0\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn each_token_is_new_and_comes_with_the_line_for_the_configuration() {
    let (first, second) = (stdout(&run(&["token"])), stdout(&run(&["token"])));
    assert_ne!(first, second);
    let (token, line) = first.split_once('\n').unwrap();
    assert!(token.starts_with("rw_") && token.len() == 67, "{token}");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ringwell.toml");
    let text = fs::read_to_string(sample()).unwrap();
    fs::write(&path, text.replace("token_sha256 = []", line)).unwrap();
    assert!(run(&["serve", "--check", "--config", path.to_str().unwrap()]).status.success());
}

#[test]
fn shells_get_completions_and_readers_a_manual() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&run(&["completions", shell]));
        assert!(script.contains("durability") && script.contains("journal"), "{shell}");
    }
    let page = stdout(&run(&["man"]));
    for heading in [".TH ringwell 1", ".TH ringwell-serve 1", ".TH ringwell-demo 1"] {
        assert!(page.contains(heading), "{heading}");
    }
}

#[test]
fn help_has_examples() {
    for args in [&["--help"][..], &["serve", "--help"], &["demo", "--help"]] {
        let output = run(args);
        assert!(stdout(&output).contains("\n  ringwell "), "{args:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn the_help_of_serve_names_every_variable() {
    let help = stdout(&run(&["serve", "--help"]));
    for (name, _) in ringwell_directory::VARIABLES {
        assert!(help.contains(name), "{name}");
    }
}

/// Starts a demo, and gives what it printed up to its last line.
fn demo(data: &Path) -> String {
    let data = data.to_str().unwrap();
    let args = ["demo", "--data", data, "--listen", "127.0.0.1:0", "--durability", "memory"];
    let mut child = ringwell(&args)
        .args(["--pools", "3", "--shards", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<String> = lines.take_while(|line| line != "Ctrl-C ends it.").collect();
    child.kill().unwrap();
    child.wait().unwrap();
    said.join("\n")
}

#[test]
fn a_demo_lists_its_pools_and_keeps_its_token() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("demo's data");
    let said = demo(&data);
    assert!(said.contains("made    3 ring pools of 500 numbers, lifetime 30m"), "{said}");
    assert!(said.contains("/api/2013-07-01/bulk.json"), "{said}");
    assert!(said.contains("/v1/attributions?number=2000000000'"), "{said}");
    assert!(!said.contains(":0/"), "the address is the one that was bound: {said}");

    let list = fs::read_to_string(data.join("demo-pools.csv")).unwrap();
    assert_eq!(list.lines().count(), 4);
    let token_file = data.join("demo-token");
    assert_eq!(fs::metadata(&token_file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&token_file).unwrap();
    demo(&data);
    assert_eq!(fs::read_to_string(&token_file).unwrap(), token);
}
