//! The data directory: only one process may use it at a time, and only its owner can read it. It is
//! flushed even if it already existed at startup.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::server::signal;
use super::*;

/// Returns a command that runs `command` with this umask.
fn with_umask(umask: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("umask {umask}; exec \"$0\" \"$@\"");
    shell.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
    shell.stdin(std::process::Stdio::null());
    shell
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn all_below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        found.extend(entries.flat_map(|entry| all_below(&entry)));
    }
    found
}

/// In earlier versions, if the lock file was removed, a second process could create a new lock
/// file. Both processes then served requests.
#[test]
fn a_server_whose_lock_was_removed_ends_and_admits_no_other_before() {
    let site = Site::new(pools(1, 3, LONG), "");
    let mut server = Server::start(site.serve(&[]));
    let number = batch::one(&mut server.client(), &site.pools[0], "a").number;
    fs::remove_file(site.data().join("LOCK")).unwrap();
    let second = Server::try_start(site.serve(&[]));
    let status = server.wait(Duration::from_secs(10));
    assert_eq!(status.code(), Some(1), "{}", server.log());
    assert!(server.log().contains("LOCK was removed or replaced"), "{}", server.log());
    if let Err(refused) = &second {
        assert!(refused.log.contains("is in use by process"), "{}", refused.log);
    }
    // The second process can get the lock only after the first process has ended.
    let second = second.unwrap_or_else(|_| Server::start(site.serve(&[])));
    assert_ne!(batch::one(&mut second.client(), &site.pools[0], "b").number, number);
    second.stop();
}

#[test]
fn a_server_whose_lock_was_replaced_ends() {
    let site = Site::new(pools(1, 3, LONG), "");
    let mut server = Server::start(site.serve(&[]));
    let lock = site.data().join("LOCK");
    fs::rename(&lock, site.data().join("LOCK.old")).unwrap();
    fs::copy(site.data().join("LOCK.old"), &lock).unwrap();
    assert_eq!(server.wait(Duration::from_secs(10)).code(), Some(1), "{}", server.log());
}

/// In earlier versions, startup opened a named pipe and blocked until a writer opened it too.
#[test]
fn a_named_pipe_in_place_of_a_file_is_refused() {
    let site = Site::new(pools(1, 3, LONG), "");
    Server::start(site.serve(&[])).stop();
    let name = site.data().join("identity.json");
    fs::remove_file(&name).unwrap();
    assert!(Command::new("mkfifo").arg(&name).status().unwrap().success());
    let log = refused(&site, &[]).log;
    assert!(log.contains("identity.json: it is not a regular file"), "{log}");
}

#[test]
fn a_foreign_file_in_place_of_the_lock_is_neither_followed_nor_changed() {
    let site = Site::new(pools(1, 3, LONG), "");
    let (lock, other) = (site.data().join("LOCK"), site.config().with_file_name("precious"));
    fs::create_dir(site.data()).unwrap();
    fs::set_permissions(site.data(), Permissions::from_mode(0o700)).unwrap();
    fs::write(&other, "1234").unwrap();
    symlink(&other, &lock).unwrap();
    let log = refused(&site, &[]).log;
    assert!(log.contains("is not a Ringwell lock file"), "{log}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "1234");

    fs::remove_file(&lock).unwrap();
    fs::hard_link(&other, &lock).unwrap();
    assert!(refused(&site, &[]).log.contains("is not a Ringwell lock file"));
    fs::remove_file(&lock).unwrap();
    fs::write(&lock, "what somebody wrote down").unwrap();
    assert!(refused(&site, &[]).log.contains("is not a Ringwell lock file"));
    assert_eq!(fs::read_to_string(&other).unwrap(), "1234");
    assert_eq!(fs::read_to_string(&lock).unwrap(), "what somebody wrote down");

    // Earlier versions wrote a lock in this form, which must be accepted.
    fs::write(&lock, "4242\n").unwrap();
    Server::start(site.serve(&[])).stop();
}

#[test]
fn other_users_cannot_use_anything_in_the_data_directory_whatever_the_umask() {
    let database = "management.address = \"127.0.0.1:0\"\n\
                    [directory]\ndatabase = \"sqlite:data/directory.db\"";
    let site = Site::new(pools(1, 3, LONG), database);
    for umask in ["000", "022"] {
        let server = Server::start(with_umask(umask, &site.serve(&[])));
        batch::one(&mut server.client(), &site.pools[0], "a");
        let files = all_below(site.data());
        assert!(files.len() > 5, "{files:?}");
        for file in files {
            let wanted = if file.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&file), wanted, "{} with umask {umask}", file.display());
        }
        server.stop();
    }
}

#[test]
fn a_data_directory_accessible_to_others_causes_a_warning() {
    let site = Site::new(pools(1, 3, LONG), "");
    fs::create_dir(site.data()).unwrap();
    for (mode, words) in [(0o755, Some("has mode 0755")), (0o700, None)] {
        fs::set_permissions(site.data(), Permissions::from_mode(mode)).unwrap();
        let check = site.serve(&["--check"]).output().unwrap();
        let said = String::from_utf8(check.stderr).unwrap();
        assert_eq!(said.contains("has mode"), words.is_some(), "{said}");
        let log = Server::start(site.serve(&[])).stop();
        assert_eq!(log.contains("has mode"), words.is_some(), "{log}");
        assert!(words.is_none_or(|words| said.contains(words) && log.contains(words)));
    }
}

/// An earlier process may have created a directory but ended before it flushed the parent
/// directory. A power cut would then remove the new directory with all its contents, so startup
/// must flush the parent directory.
#[test]
fn a_start_flushes_the_names_of_directories_that_are_there() {
    let strace = Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "true"]).status();
    if !strace.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no strace, or no right to trace a process");
        return;
    }
    let site = Site::new(pools(1, 3, LONG), "");
    fs::create_dir_all(site.data().join("journal/0")).unwrap();
    let calls = site.config().with_file_name("calls");
    let serve = site.serve(&[]);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-qq", "-e", "trace=fsync", "-o"]).arg(&calls);
    traced.arg(serve.get_program()).args(serve.get_args());
    let server = Server::start(traced);
    let calls = fs::read_to_string(calls).unwrap();
    for parent in [site.data().parent().unwrap(), &site.data().join("journal")] {
        assert!(calls.contains(&format!("<{}>", parent.display())), "{parent:?}:\n{calls}");
    }
    // Kills the server itself, because it would continue if only strace were killed.
    let pid = fs::read_to_string(site.data().join("LOCK")).unwrap();
    signal(pid.trim().parse().unwrap(), "KILL");
    drop(server);
}

/// The server must refuse to replace journals in files with a new log in NATS. The log would be
/// empty, so all allocations in the files would be lost.
#[cfg(feature = "nats")]
#[test]
fn journals_in_files_are_not_replaced_with_a_log() {
    let site = Site::new(pools(1, 3, LONG), "");
    Server::start(site.serve(&[])).stop();
    let config = fs::read_to_string(site.config()).unwrap();
    let log = "journal.engine = \"nats\"\njournal.servers = [\"nats://127.0.0.1:1\"]\n\
               journal.monitor = [\"http://127.0.0.1:1\"]\n";
    fs::write(site.config(), format!("{log}{config}")).unwrap();
    let refused = Server::try_start(site.serve(&[])).unwrap_err();
    assert_eq!(refused.code, Some(1), "{}", refused.log);
    assert!(refused.log.contains("allocations in them would be forgotten"), "{}", refused.log);
}
