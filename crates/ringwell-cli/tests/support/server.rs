//! The program `ringwell` as a process: its startup, signals, shutdown and log.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::Client;

/// The time after which a process is considered to have failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a command that runs the program without the `RINGWELL_*` variables of the tests'
/// environment.
pub(crate) fn ringwell(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwell"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RINGWELL_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// A server that is ready. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: String,
    log: Log,
}

/// A server that ended before it was ready.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: Option<i32>,
    pub(crate) log: String,
}

/// A process's stderr, read by a separate thread.
#[derive(Debug)]
struct Log {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts `command`, and returns once it serves. The command must be `serve` or `demo`, let the
    /// system choose the port, and log in JSON.
    pub(crate) fn try_start(command: Command) -> Result<Self, Refused> {
        Self::try_start_within(command, PATIENCE)
    }

    /// Like [`Self::try_start`], but with another time limit, for startups that wait for other
    /// processes.
    pub(crate) fn try_start_within(
        mut command: Command,
        patience: Duration,
    ) -> Result<Self, Refused> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut log, addresses) = Log::follow(child.stderr.take().unwrap());
        match addresses.recv_timeout(patience) {
            Ok(address) => Ok(Self { child, address, log }),
            Err(RecvTimeoutError::Disconnected) => {
                let code = child.wait().unwrap().code();
                Err(Refused { code, log: log.end() })
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("the server was not ready after {patience:?}:\n{}", log.end());
            }
        }
    }

    pub(crate) fn start(command: Command) -> Self {
        Self::try_start(command)
            .unwrap_or_else(|it| panic!("the server ended with {:?}:\n{}", it.code, it.log))
    }

    /// Starts `command` and kills it after the time `after`, whether or not it serves by then.
    pub(crate) fn start_and_kill(mut command: Command, after: Duration) {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the log up to now.
    pub(crate) fn log(&self) -> String {
        self.log.text.lock().unwrap().clone()
    }

    /// Waits until the server's log contains `text`.
    pub(crate) fn says(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < until, "it does not say {text:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the server with `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the server with `kill -9`, or shuts it down properly.
    pub(crate) fn end(self, is_killed: bool) {
        if is_killed {
            self.kill();
        } else {
            self.stop();
        }
    }

    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Makes the server reload its configuration. Returns the log line about the reload.
    pub(crate) fn reload(&self) -> String {
        let before = self.log().matches("SIGHUP").count();
        self.signal("HUP");
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let log = self.log();
            if log.matches("SIGHUP").count() > before {
                return log.lines().rev().find(|line| line.contains("SIGHUP")).unwrap().to_owned();
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("SIGHUP was not answered in the log:\n{}", self.log());
    }

    /// Waits until the process ends.
    pub(crate) fn wait(&mut self, limit: Duration) -> ExitStatus {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "still there after {limit:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGTERM, and checks that the server shuts down without an error. Returns the complete
    /// log.
    pub(crate) fn stop(mut self) -> String {
        self.terminate();
        let status = self.wait(PATIENCE);
        let log = self.log.end();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }
}

/// Sends a signal. After `STOP`, waits until all threads of the process have stopped: on a busy
/// machine, `kill` may return while threads on other cores are still running.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -s {name} {pid}: {status}");
    let until = Instant::now() + PATIENCE;
    while name == "STOP" && !is_halted(pid) {
        assert!(Instant::now() < until, "{pid} still runs {PATIENCE:?} after SIGSTOP");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether all threads of the process are stopped, according to their `stat` files
/// (proc(5)).
fn is_halted(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stats = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")));
    { stats }.all(|stat| stat.is_ok_and(|stat| stat.contains(") T ")))
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            // A test may have failed because of this server.
            println!("the log of server {}:\n{}", self.pid(), self.log());
        }
        // An error is ignored, because it means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Log {
    /// Reads `stderr` to its end on a separate thread. Sends the server's address to the returned
    /// receiver once it is logged.
    fn follow(stderr: impl Read + Send + 'static) -> (Self, Receiver<String>) {
        let text = Arc::new(Mutex::new(String::new()));
        let (sender, receiver) = channel();
        let into = Arc::clone(&text);
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(address) = address_of(&line) {
                    let _ = sender.send(address);
                }
                let mut text = into.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        (Self { text, reader: Some(reader) }, receiver)
    }

    /// Returns the complete log. The process must have ended.
    fn end(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.text.lock().unwrap().clone()
    }
}

/// Returns the server's first address if `line` is the log message `serving`.
fn address_of(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let addresses = (line["message"] == "serving").then(|| line["addresses"].as_str())??;
    serde_json::from_str::<Vec<String>>(addresses).ok()?.into_iter().next()
}
