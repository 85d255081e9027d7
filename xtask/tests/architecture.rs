//! Tests that `docs/ARCHITECTURE.md` names only existing files and functions, and that it names
//! every crate, every folder of samples and every thread.
//!
//! An item that directly follows a file, as in "`file`, `item`" or "`file` (`item`, `item`)", must
//! be defined in that file. Paths are interpreted as the page describes: `node/http.rs` is
//! `crates/ringwell-node/src/http.rs`, and `cli/tests/crash.rs` is below `crates/ringwell-cli`. A
//! file name without folders refers to a file that the same section named in full before.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// File names in backticks that are not files in the repository, because a running server writes
/// these files.
const WRITTEN_BY_SERVERS: [&str; 1] = ["cluster-map.json"];

/// File name extensions.
const ENDINGS: [&str; 7] = [".rs", ".toml", ".json", ".js", ".rb", ".md", ".cfg"];

/// Words that precede the name of an item where Rust code or JavaScript defines it.
const KEYWORDS: [&str; 9] =
    ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "mod ", "impl ", "macro_rules! "];

/// The texts between a file and its item, or between two items of a file.
const SEPARATORS: [&str; 2] = [", ", " ("];

static REPOSITORY: LazyLock<Repository> = LazyLock::new(Repository::read);

#[test]
fn every_named_file_and_function_exists() {
    let wrong = faults(&page(), &REPOSITORY);
    assert!(wrong.is_empty(), "docs/ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

#[test]
fn a_missing_file_or_function_is_found() {
    for (text, count) in [
        ("`xtask/src/ci.rs`, `run`", 0),
        ("`core/pool.rs`, then `pool.rs`", 0),
        ("`pool.rs`, without its folders", 1),
        ("`core/gone.rs`", 1),
        ("`core/gone/`", 1),
        ("`core/pool.rs`, `gone_function`", 1),
        ("`core/shard.rs` (`lockout`, `extend`)", 0),
        ("`core/shard.rs` (`lockout`, `gone_function`)", 1),
        ("`core/pool.rs` (`plant_in_core`)", 1),
        ("`web/snippet/src/index.js` (`isStored`)", 0),
        ("`web/snippet/src/consent.js` (`isStored`)", 1),
        ("the trait `GoneTrait`", 1),
    ] {
        assert_eq!(faults(text, &REPOSITORY).len(), count, "{text}");
    }
}

#[test]
fn every_crate_is_on_the_map() {
    let page = page();
    let map = page.split("```").nth(1).unwrap();
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let names = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let missing: Vec<_> = names.filter(|name| !map.contains(&format!("crates/{name} "))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_folder_of_samples_is_on_the_map() {
    let page = page();
    let line = page.lines().find(|line| line.starts_with("fixtures/")).unwrap();
    let listed: Vec<&str> = line.split([' ', ',']).collect();
    let folders = fs::read_dir(root().join("fixtures")).unwrap();
    let names = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let missing: Vec<_> = names.filter(|name| !listed.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_thread_is_in_the_table() {
    let (page, mut missing) = (page(), Vec::new());
    for file in REPOSITORY.paths.iter().filter(|file| is_rust(file) && file.contains("/src/")) {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        for part in text.split(".name(\"").skip(1) {
            let (name, rest) = part.split_once('"').unwrap();
            // A thread builder takes an owned name.
            if rest.starts_with(".to_owned())") && !page.contains(&format!("`{name}`")) {
                missing.push(format!("{name} ({file})"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// The tracked files, their folders, and every word of the sources.
struct Repository {
    paths: BTreeSet<String>,
    words: BTreeSet<String>,
}

impl Repository {
    fn read() -> Self {
        let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = Command::new("git").args(listed).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "git ls-files failed");
        let (mut paths, mut words) = (BTreeSet::new(), BTreeSet::new());
        for file in String::from_utf8(output.stdout).unwrap().split('\0') {
            paths.extend(Path::new(file).ancestors().map(|path| path.display().to_string()));
            // This test file is skipped, because it contains names of functions that do not exist.
            if is_rust(file) && file != "xtask/tests/architecture.rs" {
                let text = fs::read_to_string(root().join(file)).unwrap_or_default();
                let all = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                words.extend(all.map(str::to_owned));
            }
        }
        Self { paths, words }
    }

    /// Converts a path from the page to a path in the repository.
    fn find(&self, named: &str) -> Option<String> {
        let (first, rest) = named.split_once('/').unwrap_or((named, ""));
        let of_crate = format!("crates/ringwell-{first}");
        let places =
            [named.to_owned(), format!("{of_crate}/src/{rest}"), format!("{of_crate}/{rest}")];
        let mut places = places.iter().map(|place| place.trim_end_matches('/'));
        places.find(|place| self.paths.contains(*place)).map(str::to_owned)
    }
}

/// The names in `text` of files and items that do not exist.
fn faults(text: &str, repository: &Repository) -> Vec<String> {
    let mut wrong = Vec::new();
    for section in text.split("\n## ") {
        // The files that the section has named in full so far.
        let mut named: Vec<String> = Vec::new();
        // If a file is named directly before an item, that file must define the item, and the items
        // that directly follow.
        let mut before: Option<String> = None;
        for (at, part) in without_blocks(section).split('`').enumerate() {
            if at % 2 == 0 {
                before = before.filter(|_| SEPARATORS.contains(&part));
                continue;
            }
            let path = is_path(part).then(|| {
                let bare = |file: &&String| file.ends_with(&format!("/{part}"));
                repository.find(part).or_else(|| named.iter().rev().find(bare).cloned())
            });
            match path {
                Some(Some(path)) => {
                    before = Some(path.clone());
                    named.push(path);
                }
                Some(None) => wrong.push(format!("no file `{part}`")),
                None if is_item(part) => {
                    let name = part.rsplit("::").next().unwrap();
                    let is_there = match &before {
                        Some(file) if is_code(file) => defines(file, name),
                        _ => repository.words.contains(name),
                    };
                    if !is_there {
                        wrong.push(format!("no item `{part}`"));
                    }
                }
                None => before = None,
            }
        }
    }
    wrong
}

/// The text without blocks of code, and with one space between words.
fn without_blocks(text: &str) -> String {
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    prose.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_path(part: &str) -> bool {
    let is_plain = part.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    let is_file = ENDINGS.iter().any(|ending| part.ends_with(ending));
    // Text that starts with a slash is the path of an HTTP request.
    is_plain
        && !part.starts_with('/')
        && (is_file || part.contains('/'))
        && !WRITTEN_BY_SERVERS.contains(&part)
}

/// Whether `part` is the name of an item, possibly with its type, and not a command or a setting.
fn is_item(part: &str) -> bool {
    !part.is_empty()
        && part.chars().all(|c| c.is_alphanumeric() || "_:".contains(c))
        && !part.starts_with(|c: char| c.is_numeric())
}

fn is_rust(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|kind| kind == "rs")
}

fn is_code(file: &str) -> bool {
    is_rust(file) || Path::new(file).extension().is_some_and(|kind| kind == "js")
}

/// Whether the source file `file` defines the item `name`.
fn defines(file: &str, name: &str) -> bool {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    KEYWORDS.iter().any(|keyword| {
        let start = format!("{keyword}{name}");
        text.match_indices(&start).any(|(at, _)| ends(&text[at + start.len()..]))
    })
}

fn page() -> String {
    fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
