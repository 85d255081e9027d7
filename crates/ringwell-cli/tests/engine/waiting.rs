//! A process that waits for the NATS servers, or as a standby, takes no calls and obeys signals.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::servers::Nats;
use crate::support::server::{Server, signal};
use crate::support::site::{Pool, Site};

const LIMIT: Duration = Duration::from_secs(30);
const CALLS: &str = "[calls]\nlisten = \"127.0.0.1:0\"\n";

fn pools() -> Vec<Pool> {
    vec![Pool::new(1, 10, Duration::from_mins(1))]
}

/// Starts a process. Returns it and its address for calls once its log contains `text`.
fn start(mut command: Command, text: &str) -> (Child, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut calls = None;
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    for line in log.by_ref() {
        let fields: Value = serde_json::from_str(&line).unwrap();
        if fields["message"] == "calls" {
            calls = fields["address"].as_str().map(str::to_owned);
        }
        if line.contains(text) {
            break;
        }
    }
    assert!(child.try_wait().unwrap().is_none(), "the process has ended");
    // The rest of the log is read, so that the process can write it.
    std::thread::spawn(move || log.for_each(drop));
    (child, calls.unwrap())
}

/// Checks that the process refuses calls, and that the signal ends it without an error.
fn refuses_calls_and_obeys((mut child, calls): (Child, String), name: &str) {
    let refused = TcpStream::connect(&calls);
    signal(child.id(), name);
    let until = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Has no effect if the process has ended.
    let _ = child.kill();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{name}: {status}");
    assert!(refused.is_err(), "{calls} accepts a connection");
}

#[test]
fn a_process_that_waits_for_the_servers_takes_no_calls_and_obeys_a_signal() {
    // Accepts connections, and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = format!(
        "journal.engine = \"nats\"\njournal.servers = [\"nats://{0}\"]\n\
         journal.monitor = [\"http://{0}\"]\njournal.replicas = 1\n\
         journal.stream_bytes = \"512MiB\"\n{CALLS}",
        silent.local_addr().unwrap()
    );
    let site = Site::new(pools(), &settings);
    for name in ["TERM", "INT"] {
        refuses_calls_and_obeys(start(site.serve(&[]), "\"calls\""), name);
    }
}

#[test]
fn a_standby_takes_no_calls_and_obeys_a_signal() {
    let Some(nats) = Nats::start(1) else { return };
    let settings = format!("{}journal.standby = true\n{CALLS}", nats.settings());
    let site = Site::new(pools(), &settings);
    let server = Server::start(site.serve(&[]));
    let elsewhere = || {
        let mut command = site.serve(&[]);
        command.env("RINGWELL_DATA", site.data().with_file_name("other"));
        command
    };
    for name in ["TERM", "INT"] {
        refuses_calls_and_obeys(start(elsewhere(), "standing by"), name);
    }
    server.stop();
}
