//! Tests that no server uses a data directory while `ringwell restore` writes to it, or after a
//! restore was interrupted.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use support::batch;
use support::server::{Server, ringwell};
use support::site::{Pool, Site};
use tempfile::TempDir;

const LONG: Duration = Duration::from_mins(30);
const PATIENCE: Duration = Duration::from_secs(30);

/// A server's configuration and backup. The server's data directory was removed after the backup.
/// The backup's list can be replaced with a pipe, so that a restore waits while it checks the copy.
struct Lost {
    folder: TempDir,
    site: Site,
    copy: PathBuf,
    list: Vec<u8>,
}

impl Lost {
    fn new() -> Self {
        Self::with("")
    }

    /// `settings` may contain FOLDER, which is replaced with a directory outside the data directory.
    fn with(settings: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let settings = settings.replace("FOLDER", text(folder.path()));
        let site = Site::new(vec![Pool::new(1, 3, LONG)], &format!("shards = 1\n{settings}"));
        let server = Server::start(site.serve(&[]));
        assert!(!is_overflow(&server, &site));
        let copy = folder.path().join("copy");
        let taken = run(&["backup", "--config", text(&site.config()), "--to", text(&copy)]);
        assert!(taken.status.success(), "{taken:?}");
        server.kill();
        fs::remove_dir_all(site.data()).unwrap();
        let list = fs::read(copy.join("backup.json")).unwrap();
        Self { folder, site, copy, list }
    }

    /// The arguments of both forms of the command.
    fn forms(&self) -> [Vec<String>; 2] {
        let [config, copy, data] =
            [&self.site.config(), &self.copy, self.site.data()].map(|path| text(path).to_owned());
        let restore = "restore".to_owned();
        [
            vec![restore.clone(), "--config".to_owned(), config, copy.clone()],
            vec![restore, copy, data],
        ]
    }

    /// Starts a restore that waits while it reads the backup's list. The restore goes on when the
    /// list is written to the returned pipe and the pipe is closed.
    fn restore_that_waits(&self, form: &[String]) -> (Child, File) {
        let list = self.copy.join("backup.json");
        fs::remove_file(&list).unwrap();
        assert!(Command::new("mkfifo").arg(&list).status().unwrap().success());
        let form: Vec<&str> = form.iter().map(String::as_str).collect();
        let mut restore = ringwell(&form);
        let restore = restore.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, opened) = mpsc::channel();
        // The pipe cannot be opened before the restore reads it.
        thread::spawn(move || sender.send(File::create(list).unwrap()));
        (restore, opened.recv_timeout(PATIENCE).unwrap())
    }

    fn put_list_back(&self) {
        let list = self.copy.join("backup.json");
        fs::remove_file(&list).unwrap();
        fs::write(list, &self.list).unwrap();
    }

    /// Kills a restore while it checks the copy.
    fn kill_a_restore(&self, form: &[String]) {
        let (mut restore, _pipe) = self.restore_that_waits(form);
        restore.kill().unwrap();
        restore.wait().unwrap();
        self.put_list_back();
    }

    /// Checks that a server refuses to start. Returns the error message.
    fn refused_start(&self, flags: &[&str]) -> String {
        let refused = Server::try_start(self.site.serve(flags)).unwrap_err();
        assert_eq!(refused.code, Some(1), "{}", refused.log);
        refused.log
    }

    /// Checks that all pools are held after the start.
    fn is_held(&self) {
        let server = Server::start(self.site.serve(&[]));
        assert!(is_overflow(&server, &self.site));
        server.stop();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn in_data(&self, name: &str) -> PathBuf {
        self.site.data().join(name)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run<S: AsRef<str>>(args: &[S]) -> Output {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    ringwell(&args).output().unwrap()
}

/// Runs a command that must fail. Returns the error message.
fn refused<S: AsRef<str>>(args: &[S]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn is_overflow(server: &Server, site: &Site) -> bool {
    batch::one(&mut server.client(), &site.pools[0], "someone").overflow
}

const DATABASES: &str = "\
    management.address = \"127.0.0.1:0\"\n\
    [directory]\ndatabase = \"sqlite:FOLDER/pools.sqlite\"\n\
    [calls]\nlisten = \"127.0.0.1:0\"\ndatabase = \"sqlite:FOLDER/calls.sqlite\"";

#[test]
fn no_server_starts_while_a_restore_checks_its_copy() {
    for (settings, form) in [("", 0), ("", 1), (DATABASES, 0)] {
        let lost = Lost::with(settings);
        let (restore, mut pipe) = lost.restore_that_waits(&lost.forms()[form]);
        let in_use = format!("in use by process {}", restore.id());
        for flags in [&[][..], &["--restored"]] {
            let said = lost.refused_start(flags);
            assert!(said.contains(&in_use), "{said}");
        }
        let second = refused(&lost.forms()[form]);
        assert!(second.contains(&in_use), "{second}");
        pipe.write_all(&lost.list).unwrap();
        drop(pipe);
        let done = restore.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        lost.is_held();
    }
}

#[test]
fn no_server_starts_after_a_restore_was_killed_while_it_checked_its_copy() {
    for (settings, form) in [("", 0), ("", 1), (DATABASES, 0)] {
        let lost = Lost::with(settings);
        let form = &lost.forms()[form];
        // A new machine has no databases.
        let databases = ["pools.sqlite", "calls.sqlite"].map(|name| lost.path(name));
        for path in &databases {
            let _ = fs::remove_file(path);
        }
        for _ in 0..2 {
            lost.kill_a_restore(form);
            for flags in [&[][..], &["--restored"]] {
                let said = lost.refused_start(flags);
                assert!(said.contains("a restore was interrupted"), "{said}");
                assert!(said.contains("Run `ringwell restore` again with the same copy"), "{said}");
            }
        }
        assert!(!databases.iter().any(|path| path.exists()), "created by the refused servers");
        let done = run(form);
        assert!(done.status.success(), "{done:?}");
        assert!(!lost.in_data(".restoring").exists());
        lost.is_held();
    }
}

#[test]
fn a_faulty_copy_leaves_no_mark_except_that_of_an_interrupted_restore() {
    let lost = Lost::new();
    let form = &lost.forms()[1];
    let faulty = |list: &[u8]| fs::write(lost.copy.join("backup.json"), list).unwrap();
    faulty(b"{}");
    let said = refused(form);
    assert!(said.contains("nothing was restored"), "{said}");
    assert!(!lost.site.data().exists());
    fs::create_dir(lost.site.data()).unwrap();
    refused(form);
    assert!(!lost.in_data(".restoring").exists());
    assert!(!lost.in_data("RESTORED").exists());
    // An earlier restore may have replaced databases already.
    faulty(&lost.list);
    lost.kill_a_restore(form);
    faulty(b"{}");
    refused(form);
    assert!(lost.refused_start(&[]).contains("a restore was interrupted"));
    // The remedy that the message names.
    fs::remove_dir_all(lost.in_data(".restoring")).unwrap();
    let server = Server::start(lost.site.serve(&["--restored"]));
    assert!(server.log().contains("restored from a copy"), "{}", server.log());
    server.stop();
    faulty(&lost.list);
    assert!(refused(form).contains("is not empty"));
}

/// Files that the interrupted restore did not write are not replaced.
#[test]
fn a_restore_that_is_repeated_replaces_only_files_of_a_restore() {
    let lost = Lost::new();
    let form = &lost.forms()[1];
    lost.kill_a_restore(form);
    let other = lost.in_data("identity.json");
    fs::write(&other, "another server's").unwrap();
    let said = refused(form);
    assert!(said.contains("is not empty"), "{said}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "another server's");
}

/// The first restore has replaced the database of ring pools, and fails at the call log.
#[test]
fn a_restore_that_failed_between_two_databases_can_be_run_again() {
    let lost = Lost::with(DATABASES);
    let form = &lost.forms()[0];
    let [pools, calls] = ["pools.sqlite", "calls.sqlite"].map(|name| lost.path(name));
    fs::write(&pools, "the replaced database").unwrap();
    fs::write(lost.path("calls.sqlite-wal"), "").unwrap();
    let in_the_way = lost.path("calls.sqlite.before-restore-wal");
    fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        let said = refused(form);
        assert!(said.contains("cannot replace"), "{said}");
        assert!(lost.refused_start(&[]).contains("a restore was interrupted"));
    }
    fs::remove_dir(&in_the_way).unwrap();
    let done = run(form);
    assert!(done.status.success(), "{done:?}");
    let kept = lost.path("pools.sqlite.before-restore");
    assert_eq!(fs::read_to_string(kept).unwrap(), "the replaced database");
    assert!(calls.exists());
    lost.is_held();
}

#[test]
fn a_server_in_use_is_not_marked_as_restored() {
    let lost = Lost::new();
    let server = Server::start(lost.site.serve(&[]));
    let said = lost.refused_start(&["--restored"]);
    assert!(said.contains(&format!("in use by process {}", server.pid())), "{said}");
    assert!(!lost.in_data("RESTORED").exists());
}
