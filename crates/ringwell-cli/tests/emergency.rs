//! Emergencies: tests the promises in the runbooks and the backup guide with the real program.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use support::batch;
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const LONG: Duration = Duration::from_mins(30);

/// Runs a command. Returns its exit code, and its stdout and stderr together.
fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        ringwell(args).env("RINGWELL_TOKEN", TOKEN).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    (status.code(), text)
}

/// Runs a command, which must succeed, and returns its output.
fn done(args: &[&str]) -> String {
    let (code, text) = run(args);
    assert_eq!(code, Some(0), "{args:?}: {text}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server with pool 1 in a SQLite database outside of its data directory.
struct Kept {
    folder: TempDir,
    site: Site,
    database: PathBuf,
}

impl Kept {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("directory.sqlite");
        let settings = format!(
            "shards = 1\nmanagement.address = \"127.0.0.1:0\"\n[directory]\n\
             database = \"sqlite:{}\"",
            database.display()
        );
        let mut site = Site::new(vec![Pool::new(1, 4, LONG)], &settings);
        Server::start(site.serve(&[])).stop();
        // The server has imported the pools, so from now on they are only in the database.
        site.write(Vec::new());
        Self { folder, site, database }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.database.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    fn start(&self) -> Server {
        Server::start(self.site.serve(&[]))
    }

    fn pools(server: &Server) -> String {
        done(&["pools", "list", "--url", &Self::url(server)])
    }

    fn url(server: &Server) -> String {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("\"management\"")).unwrap();
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line.get("fields").unwrap_or(&line)["address"].as_str().unwrap().to_owned()
    }

    fn backup(&self) -> PathBuf {
        let copy = self.folder.path().join("copy");
        done(&["backup", "--config", text(&self.site.config()), "--to", text(&copy)]);
        copy
    }
}

#[test]
fn an_orderly_stop_leaves_no_unwritten_part_of_the_directory() {
    let kept = Kept::new();
    let server = kept.start();
    done(&["pools", "rotate-key", "1", "--url", &Kept::url(&server)]);
    server.stop();
    assert!(kept.database.is_file());
    // The content of the write-ahead log is in the database. The file stays, because a start on a
    // full disk needs it.
    assert_eq!(std::fs::metadata(kept.beside("-wal")).unwrap().len(), 0);
}

#[test]
fn a_restore_by_the_configuration_brings_back_the_directory_of_the_backup() {
    let kept = Kept::new();
    let copy = kept.backup();
    let server = kept.start();
    let url = Kept::url(&server);
    assert!(Kept::pools(&server).contains("Ring pool 1"));
    done(&["pools", "remove", "1", "--yes", "--url", &url]);
    // The change is still in SQLite's write-ahead log next to the database.
    server.kill();
    assert!(kept.beside("-wal").exists());
    fs::remove_dir_all(kept.site.data()).unwrap();
    let config = kept.site.config();
    let restore = ["restore", "--config", text(&config), text(&copy)];
    let said = done(&restore);
    assert!(said.contains(&format!("{}: restored", kept.database.display())), "{said}");
    let replaced = kept.beside(".before-restore");
    assert!(said.contains(&format!("{} is the replaced file", replaced.display())), "{said}");
    assert!(!kept.site.data().join("directory.sqlite").exists());
    let server = kept.start();
    assert!(Kept::pools(&server).contains("Ring pool 1"));
    // The replaced files are kept until an operator removes them.
    assert!(kept.beside(".before-restore").exists());
    let (code, said) = run(&restore);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("in use by process"), "{said}");
    server.stop();
    let (code, said) = run(&restore);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is not empty"), "{said}");
    fs::remove_dir_all(kept.site.data()).unwrap();
    let (code, said) = run(&restore);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(".before-restore already exists"), "{said}");
    assert!(!kept.site.data().exists());
}

#[test]
fn a_restore_that_fails_at_a_database_can_be_run_again() {
    let kept = Kept::new();
    let copy = kept.backup();
    let server = kept.start();
    done(&["pools", "remove", "1", "--yes", "--url", &Kept::url(&server)]);
    server.kill();
    fs::remove_dir_all(kept.site.data()).unwrap();
    let config = kept.site.config();
    let restore = ["restore", "--config", text(&config), text(&copy)];
    let in_the_way = kept.beside(".before-restore-wal");
    fs::create_dir(&in_the_way).unwrap();
    let (code, said) = run(&restore);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot replace"), "{said}");
    fs::remove_dir(&in_the_way).unwrap();
    done(&restore);
    let server = kept.start();
    assert!(Kept::pools(&server).contains("Ring pool 1"));
    for left in [".restoring", ".restoring-wal"] {
        assert!(!kept.beside(left).exists(), "{left}");
    }
    assert!(!kept.site.data().join(".restoring").exists());
}

#[test]
fn a_database_in_use_is_not_replaced() {
    let kept = Kept::new();
    let copy = kept.backup();
    let server = kept.start();
    let other = kept.folder.path().join("other");
    let config = kept.site.config();
    let (code, said) = run(&["restore", "--config", text(&config), text(&copy), text(&other)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another server keeps its ring pools"), "{said}");
    assert!(!other.exists());
    assert!(Kept::pools(&server).contains("Ring pool 1"));
}

#[test]
fn journals_that_meet_an_empty_directory_are_reported() {
    let kept = Kept::new();
    fs::remove_file(&kept.database).unwrap();
    let server = kept.start();
    let warning = "the database contains no ring pools, but the data directory contains journals";
    assert!(server.log().contains(warning), "{}", server.log());
    assert!(server.log().contains("ringwell restore --config"), "{}", server.log());
    server.stop();
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("directory.sqlite");
    let settings = format!(
        "shards = 1\nmanagement.address = \"127.0.0.1:0\"\n[directory]\ndatabase = \"sqlite:{}\"",
        database.display()
    );
    let first = Server::start(Site::new(Vec::new(), &settings).serve(&[]));
    assert!(!first.log().contains(warning), "a first start: {}", first.log());
}

#[test]
fn a_backup_of_the_data_directory_alone_says_what_it_lacks() {
    let kept = Kept::new();
    let copy = kept.folder.path().join("alone");
    let said = done(&["backup", "--data", text(kept.site.data()), "--to", text(&copy)]);
    assert!(said.contains("No database of ring pools was copied"), "{said}");
    // A demo has none.
    fs::write(kept.site.data().join("demo-pools.csv"), "").unwrap();
    let copy = kept.folder.path().join("demo");
    let said = done(&["backup", "--data", text(kept.site.data()), "--to", text(&copy)]);
    assert!(!said.contains("database"), "{said}");
}

#[test]
fn the_variable_names_the_configuration_of_a_restore_without_a_data_directory() {
    let kept = Kept::new();
    let copy = kept.backup();
    let other = kept.folder.path().join("other");
    let restore = |args: &[&Path]| {
        let mut command = ringwell(&["restore"]);
        command.args(args).env("RINGWELL_CONFIG", kept.site.config()).output().unwrap()
    };
    let before = fs::read(&kept.database).unwrap();
    assert!(restore(&[&copy, &other]).status.success());
    assert!(other.join("directory.sqlite").is_file(), "only the copied data directory is written");
    assert_eq!(fs::read(&kept.database).unwrap(), before);
    assert!(!kept.beside(".before-restore").exists());
    fs::remove_dir_all(kept.site.data()).unwrap();
    assert!(restore(&[&copy]).status.success());
    assert!(kept.site.data().join("journal").is_dir());
    assert!(kept.beside(".before-restore").exists());
}

/// Returns the paths below `path` that users other than the owner can access.
fn open_to_others(path: &Path) -> Vec<PathBuf> {
    let mode = fs::metadata(path).unwrap().permissions().mode();
    let mut open = Vec::new();
    open.extend((mode & 0o077 != 0).then(|| path.to_owned()));
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            open.extend(open_to_others(&entry.unwrap().path()));
        }
    }
    open
}

#[test]
fn all_of_a_backup_is_private_whatever_the_umask() {
    let kept = Kept::new();
    let copy = kept.folder.path().join("copy");
    let config = kept.site.config();
    let program = ringwell(&["backup", "--config", text(&config), "--to", text(&copy)]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(program.get_program());
    let output = shell.args(program.get_args()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(open_to_others(&copy), [] as [&Path; 0]);
}

#[test]
fn a_backup_inside_the_data_directory_is_refused() {
    let kept = Kept::new();
    let data = kept.site.data();
    let link = kept.folder.path().join("link");
    std::os::unix::fs::symlink(data, &link).unwrap();
    let before = fs::read_dir(data).unwrap().count();
    let hidden = data.join("journal/../copy");
    for to in [data.join("copy"), data.join("new/copy"), link.join("copy"), hidden] {
        let (code, said) = run(&["backup", "--data", text(data), "--to", text(&to)]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("inside the data directory"), "{said}");
        assert_eq!(fs::read_dir(data).unwrap().count(), before);
    }
    let beside = data.with_file_name("data-copy");
    done(&["backup", "--data", text(data), "--to", text(&beside)]);
}

/// Returns a stopped server's data and a backup of it. A visitor with `gclid=Cj0secret` was given a
/// number.
fn visited() -> (Site, TempDir, PathBuf) {
    let site =
        Site::new(vec![Pool::new(1, 4, LONG)], "shards = 1\n[calls]\nlisten = \"127.0.0.1:0\"");
    let server = Server::start(site.serve(&[]));
    batch::one(&mut server.client(), &site.pools[0], "17&gclid=Cj0secret");
    server.stop();
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("copy");
    done(&["backup", "--config", text(&site.config()), "--to", text(&copy)]);
    (site, folder, copy)
}

#[test]
fn a_backup_is_not_damaged_by_erasing_in_it() {
    let (_site, _folder, copy) = visited();
    let (code, said) = run(&["journal", "erase", text(&copy), "--parameter", "gclid=Cj0secret"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is a backup"), "{said}");
    assert!(said.contains("delete the backup, and take a new one"), "{said}");
    done(&["backup", "--verify", text(&copy)]);
}

#[test]
fn an_erasure_that_finds_no_call_names_the_command_that_erases_the_visitor() {
    let (site, folder, _) = visited();
    let list = folder.path().join("erase.list");
    let server = Server::start(site.serve(&[]));
    let url = format!("http://{}", server.address());
    let whom = ["--parameter", "gclid=Cj0secret"];
    let said = done(
        &[&["calls", "erase"], &whom[..], &["--journal-list", text(&list), "--url", &url]].concat(),
    );
    let wanted = "ringwell journal erase DATA --parameter gclid=Cj0secret";
    assert!(said.contains(wanted), "{said}");
    server.stop();
    let said = done(&["journal", "erase", text(site.data()), "--list", text(&list)]);
    assert!(said.contains("the list is empty"), "{said}");
    assert!(said.contains("--parameter NAME=VALUE"), "{said}");
    let said = done(&[&["journal", "erase", text(site.data())], &whom[..]].concat());
    assert!(said.starts_with("1 allocation erased"), "{said}");
}

/// The Debian package sets the variable `RINGWELL_TOKEN_SHA256`. The server must warn if the
/// variable overrides the configuration.
#[test]
fn a_token_of_the_file_that_a_variable_overrides_is_reported() {
    let site = Site::new(vec![Pool::new(1, 4, LONG)], "");
    let hash = format!("{:064}", 7);
    let mut command = site.serve(&[]);
    command.env("RINGWELL_TOKEN_SHA256", &hash);
    let server = Server::start(command);
    let warning = "the variable RINGWELL_TOKEN_SHA256 overrides management.token_sha256";
    assert_eq!(server.log().matches(warning).count(), 1, "{}", server.log());
    server.reload();
    assert_eq!(server.log().matches(warning).count(), 2, "{}", server.log());
    server.stop();
    let server = Server::start(site.serve(&[]));
    assert!(!server.log().contains(warning), "{}", server.log());
}
