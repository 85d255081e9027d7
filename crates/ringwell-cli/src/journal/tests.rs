//! Tests with the journal in `fixtures/journal/v1` and damaged copies of it.

use std::fs;
use std::path::PathBuf;

use clap::Parser;
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: Args,
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/journal/v1")
}

/// Runs `ringwell journal WORDS DIRECTORY`. Returns whether it succeeded, and its output.
fn journal(words: &[&str], directory: &Path) -> anyhow::Result<(bool, String)> {
    let directory = directory.to_str().unwrap();
    let words = [&["journal"], words, &[directory]].concat();
    let mut out = Vec::new();
    let code = match Program::parse_from(words).args.command {
        Command::Inspect(options) => inspect::run(&options, &mut out)?,
        Command::Verify(options) => verify::run(&options, &mut out)?,
        Command::Erase(options) => erase::run(&options, &mut out)?,
        Command::Replay(options) => replay::run(&options, &mut out)?,
    };
    Ok((code == ExitCode::SUCCESS, String::from_utf8(out)?))
}

/// Copies the fixture and flips one bit of the byte at `index` in `file`.
fn damaged(file: &str, index: usize) -> TempDir {
    let copy = TempDir::new().unwrap();
    for entry in fs::read_dir(fixture().join("0")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if path.ends_with(file) {
            bytes[index] ^= 1;
        }
        fs::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    copy
}

#[test]
fn inspect_shows_every_record_with_numbers_as_ten_digits() {
    let (_, text) = journal(&["inspect"], &fixture()).unwrap();
    for expected in [
        "0000000000000001.rpj: 65536 bytes, shard 0, from frame 1, epoch 1",
        "frame 3 at offset 12288: 2 records",
        "allocate 8005550101 from pool 150 until 2026-09-21T14:13:50.000Z (utm_source=fixture&x=1)",
        "extend 8005550101 until",
        "release 8005550102 at",
        "with a visitor id, row 0 of batch b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7b7 (ppp",
        "answer with the overflow number of pool 150, row 1 of batch b7b7",
        "answer with 8005550101 of pool 150 again, row 2 of batch b7b7",
        "hold all until",
        "hold pool 150 until",
        "carry 8005550103 of pool 150 from",
        "tick",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn inspect_writes_a_json_object_a_line() {
    let (_, text) = journal(&["inspect", "--json", "--number", "8005550103"], &fixture()).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let record = lines.last().unwrap();
    assert_eq!(record["record"], "carry");
    assert_eq!(record["number"], "8005550103");
    assert_eq!(lines.iter().filter(|line| line["record"].is_string()).count(), 1);

    let (_, text) = journal(&["inspect", "--json"], &fixture()).unwrap();
    let allocates: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["record"] == "allocate")
        .collect();
    assert!(allocates[0]["batch"].is_null() && allocates[0]["row"].is_null(), "{}", allocates[0]);
    let with_key = allocates.iter().find(|line| line["row"] == 0).unwrap();
    assert_eq!(with_key["batch"], "b7".repeat(16));
}

#[test]
fn verify_confirms_that_a_sound_journal_is_sound() {
    let (sound, text) = journal(&["verify"], &fixture()).unwrap();
    assert!(sound, "{text}");
    let summary = "2 segments with 77824 bytes in total, frames 1 to 5, 12 records";
    assert!(text.contains(summary), "{text}");
    assert!(text.contains("5 entries, fits the journal"), "{text}");
    assert!(text.contains("verdict: clean"), "{text}");
    // The shard's own directory is accepted in place of the data directory.
    assert_eq!(journal(&["verify"], &fixture().join("0")).unwrap().1, text);
}

#[test]
fn verify_names_file_and_offset_of_damage() {
    let copy = damaged("0000000000000001.rpj", 8192 + 100);
    let (sound, text) = journal(&["verify"], copy.path()).unwrap();
    assert!(!sound);
    assert!(text.contains("segment 0000000000000001 is damaged at offset 8192: frame 2"), "{text}");
}

#[test]
fn verify_reports_a_damaged_end_and_a_damaged_snapshot() {
    let copy = damaged("0000000000000002.rpj", 8192 + 90);
    let (sound, text) = journal(&["verify"], copy.path()).unwrap();
    assert!(!sound);
    assert!(text.contains("cut before frame 5, which is corrupted"), "{text}");

    let copy = damaged("00000000000000000004.rps", 200);
    let (sound, text) = journal(&["verify"], copy.path()).unwrap();
    assert!(!sound);
    assert!(text.contains("00000000000000000004.rps: is damaged"), "{text}");
}

#[test]
fn replay_gives_the_same_state_with_and_without_the_snapshot() {
    let (_, with) = journal(&["replay"], &fixture()).unwrap();
    let (_, without) = journal(&["replay", "--without-snapshot"], &fixture()).unwrap();
    assert_eq!(with, without);
    let lines: Vec<_> = with.lines().collect();
    assert_eq!(
        lines[0],
        "8005550101 pool 150 allocated 2026-09-21T14:14:10.000Z locked until \
         2026-09-21T14:14:40.000Z"
    );
    assert_eq!(lines.len(), 4);
    assert!(lines[3].starts_with("shard 0: 3 numbers, state "), "{with}");
}

#[test]
fn a_directory_without_a_journal_is_an_error() {
    let empty = TempDir::new().unwrap();
    let error = journal(&["verify"], empty.path()).unwrap_err();
    assert!(error.to_string().contains("contains no journal"));
}

#[test]
fn reading_changes_no_file() {
    let copy = damaged("0000000000000001.rpj", 8192 + 100);
    let state = || {
        let mut files: Vec<_> = fs::read_dir(copy.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap(), path)
            })
            .collect();
        files.sort();
        files
    };
    let before = state();
    for command in ["inspect", "verify", "replay"] {
        let _ = journal(&[command], copy.path());
    }
    assert_eq!(state(), before);
}
