//! A disk that fails or is full, and system calls that are interrupted. strace changes the results
//! of the running server's system calls.

use std::process::{Child, Command, Stdio};

use super::support::server::{Server, signal};
use super::trial::{PATIENCE, Trial, can_run, wait_until};

/// An strace process that is attached to all threads of a server.
struct Injected(Child);

impl Injected {
    /// Changes the results of the server's system calls from now on, according to `rules`
    /// (strace(1), "Tampering").
    fn into(server: &Server, rules: &[&str]) -> Self {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64,fdatasync,fsync"]);
        for rule in rules {
            strace.arg("-e").arg(format!("inject={rule}"));
        }
        strace.arg("-p").arg(server.pid().to_string());
        Self(strace.stdin(Stdio::null()).spawn().unwrap())
    }

    /// Stops changing the results of system calls.
    fn end(mut self) {
        signal(self.0.id(), "INT");
        self.0.wait().unwrap();
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        // An error is ignored, because it means that the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_strace() -> bool {
    // A sandbox may forbid tracing another program's threads.
    can_run("strace", &["-f", "-qq", "-o", "/dev/null", "true"], "right to trace a process")
}

fn readiness(server: &Server) -> (u16, String) {
    let answer = server.client().get("/readyz", &[]).unwrap();
    (answer.status, answer.body)
}

/// Makes the disk fail according to `rules`. The server must keep running but store nothing more,
/// and all rows must overflow. The next process must still have all answered allocations.
fn fail(rules: &[&str]) {
    let mut trial = Trial::new("");
    let server = trial.start();
    trial.load(&server);
    trial.fault("the disk fails");
    let injected = Injected::into(&server, rules);
    trial.wait_for_overflow(&server);
    let (status, body) = readiness(&server);
    assert_eq!(status, 503, "{body}");
    assert!(body.contains(r#""journals":["failed","failed"]"#), "{body}");
    assert_eq!(server.client().get("/healthz", &[]).unwrap().status, 200, "it lives");
    server.says("the journal failed");

    // The disk works again, but the server must not use it, because its contents are unknown.
    injected.end();
    trial.wait_for_answers(20);
    trial.wait_for_overflow(&server);
    server.kill();
    let server = trial.start();
    trial.wait_for_numbers(&server);
    trial.wait_for_answers(50);
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn a_failed_write_ends_the_journal_until_a_restart_and_loses_nothing() {
    if has_strace() {
        fail(&["pwrite64:error=EIO"]);
    }
}

/// After the first `EINVAL`, the server assumes that the file system does not support direct
/// writes. It then flushes after each write. A new segment is opened for direct writes again, and
/// also needs a flush at its beginning.
#[test]
fn a_failed_flush_ends_the_journal_until_a_restart_and_loses_nothing() {
    if has_strace() {
        fail(&["pwrite64:error=EINVAL:when=1", "fdatasync:error=EIO:when=5+", "fsync:error=EIO"]);
    }
}

#[test]
fn a_full_disk_costs_numbers_until_it_has_room_again() {
    if !has_strace() {
        return;
    }
    let mut trial = Trial::new("");
    let server = trial.start();
    trial.load(&server);
    for error in ["ENOSPC", "EDQUOT"] {
        trial.fault("the disk is full");
        // Each thread retries four times per second. Its 16 injected failures are therefore used up
        // after a few seconds, and its writes succeed again.
        let injected = Injected::into(&server, &[&format!("pwrite64:error={error}:when=1..16")]);
        trial.wait_for_overflow(&server);
        wait_until("not both journals are full", || {
            let (status, body) = readiness(&server);
            status == 503 && body.contains(r#""journals":["full","full"]"#)
        });
        trial.wait_for_numbers(&server);
        injected.end();
        assert_eq!(readiness(&server).0, 200);
    }
    trial.wait_for_answers(50);
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn interrupted_or_late_writes_are_repeated_without_visible_effect() {
    if !has_strace() {
        return;
    }
    let mut trial = Trial::new("");
    let mut server = trial.start();
    trial.load(&server);
    trial.unnoticed();
    // Interrupts every other write of each thread. The interruptions must be over before `end`,
    // because a call that is in progress when strace detaches would fail for another reason.
    let injected = Injected::into(&server, &["pwrite64:error=EINTR:when=1..21+2"]);
    trial.wait_for_answers(400);
    injected.end();
    trial.unnoticed();
    let injected = Injected::into(&server, &["pwrite64:delay_enter=50000"]);
    trial.wait_for_answers(50);
    assert_eq!(readiness(&server).0, 200);
    injected.end();
    server.terminate();
    assert_eq!(server.wait(PATIENCE).code(), Some(0), "{}", server.log());
    let server = trial.start();
    wait_until("it is not ready", || readiness(&server).0 == 200);
    trial.judge(&server).assert_clean();
    server.stop();
}

/// The first write of each thread fails, so that all shards record their failures at the same time
/// in one file.
#[test]
fn shards_that_fail_at_the_same_moment_record_it_without_another_error() {
    if !has_strace() {
        return;
    }
    let mut trial = Trial::new("durability = \"os\"\n");
    let serve = || {
        let mut serve = trial.serve();
        serve.args(["--shards", "16"]);
        serve
    };
    let (mut server, again) = (Server::start(serve()), serve());
    trial.load(&server);
    trial.fault("the disk fails");
    let injected = Injected::into(&server, &["pwrite64:error=EIO:when=1"]);
    trial.wait_for_overflow(&server);
    injected.end();
    server.says("the journal failed");
    let log = server.log();
    assert!(!log.contains("unflushed.json"), "{log}");
    let record = trial.site.data().join("unflushed.json");
    assert_eq!(std::fs::read_to_string(record).unwrap(), r#"{"boot":0}"#);
    server.kill();
    server = Server::start(again);
    server.says("a write or a flush failed before the last stop");
    server.stop();
}
