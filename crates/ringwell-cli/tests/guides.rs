//! Runs the commands in the README and the guides as a reader would: page by page, from top to
//! bottom, in an empty directory.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The namespaces in which a page's commands run. The commands may use any port, and their
/// processes end with the namespaces.
const UNSHARE: [&str; 4] = ["--net", "--pid", "--fork", "--mount-proc"];

/// Pages whose `sh packages` blocks install software. Other tests run these blocks:
/// deploy/package/trial, and the gem's `test/new_app_test.rb`.
const ELSEWHERE: [&str; 2] = ["debian.md", "rails.md"];

const BEFORE: &str = "set -euo pipefail\nip link set lo up\n";

/// Commands that wait, as a reader would, until the server is ready.
const READY: &str = "curl -sf -o /dev/null --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:8080/readyz\n";

/// The URL of a file in the latest release, without the file name.
const RELEASES: &str = "https://github.com/ringwell/ringwell/releases/latest/download/";

/// Commands that stop a demo that the page has started, and create a release of the program under
/// test in a separate folder.
const RELEASE: &str =
    "if [ -e demo-data/LOCK ]; then kill \"$(cat demo-data/LOCK)\"; wait; rm -r demo-data; fi
mkdir -p release/ringwell-0/bin
ln -s \"$(command -v ringwell)\" release/ringwell-0/bin/ringwell
tar -C release -czf release/ringwell-x86_64-linux-musl.tar.gz ringwell-0\n";

/// Commands that stop the server that a page has started, and remove the server's data.
const END: &str = "kill $!\nwait $!\nrm -r demo-data\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the beginning of a command that runs in separate namespaces.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(UNSHARE);
    command
}

/// Returns the code blocks of a page, each as its info string and its text.
fn blocks(page: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(page).unwrap();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(info) if !is_inside => found.push((info.to_owned(), String::new())),
            Some(_) => {}
            None if is_inside => {
                let block = &mut found.last_mut().unwrap().1;
                block.push_str(line);
                block.push('\n');
            }
            None => continue,
        }
        is_inside = !line.starts_with("```") || !is_inside;
    }
    found
}

/// Runs the commands of `page`. If a command fails, returns the output.
fn failure(page: &Path) -> Option<String> {
    let name = page.file_name().unwrap().to_str().unwrap();
    let mut script = BEFORE.to_owned();
    for (info, block) in blocks(page) {
        match info.as_str() {
            "sh" => script += &block,
            "sh demo" => {
                script += &block.replace(
                    "cargo run --release -- demo &\n",
                    &format!("ringwell demo &\n{READY}"),
                );
            }
            "sh release" => {
                let block = block.replace(RELEASES, "file://$PWD/release/");
                assert!(block.contains("file://"), "{block}");
                script += &[RELEASE, &block, READY, END].concat();
            }
            "sh packages" => assert!(ELSEWHERE.contains(&name), "{name}: who runs this block?"),
            "erb" | "json" | "ruby" | "text" => {}
            other => panic!("{name}: a block is {other:?}"),
        }
    }
    if script == BEFORE {
        return None;
    }
    let folder = TempDir::new().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_ringwell")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = apart();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RINGWELL_")) {
        command.env_remove(name);
    }
    command.args(["timeout", "120", "bash", "-c", &script]);
    let output = command.env("PATH", path).current_dir(folder.path()).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (!output.status.success()).then(|| format!("{}: {}\n{out}\n{err}", name, output.status))
}

#[test]
fn every_command_of_readme_and_guides_has_the_documented_result() {
    let probe = apart().arg("true").output().unwrap();
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr);
        eprintln!("SKIPPED: no namespaces for the pages' commands here: {}", why.trim());
        return;
    }
    let mut pages = vec![root().join("README.md")];
    let guides = fs::read_dir(root().join("docs/guides")).unwrap();
    pages.extend(guides.map(|entry| entry.unwrap().path()));
    pages.sort();
    assert!(pages.len() >= 8, "{pages:?}");
    let failed: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = pages.iter().map(|page| scope.spawn(|| failure(page))).collect();
        running.into_iter().filter_map(|page| page.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn the_readme_is_read_in_a_minute_or_two() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= 900, "{words} words");
}
