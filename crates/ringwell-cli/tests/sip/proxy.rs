//! Calls that pass through Kamailio, which reports their progress.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::phone::{Phone, SECRET};
use super::support::server::{self, Server};
use super::support::site::{Pool, Site, TOKEN};
use super::{Kamailio, PATIENCE, alone, free_port, patient, sipp, whole_seconds};

pub(super) const CONFIGURATION: &str = include_str!("../../../../deploy/kamailio-proxy.cfg");
pub(crate) const TALK: &str = include_str!("talk.xml");
pub(crate) const REFUSED: &str = include_str!("refused.xml");
pub(crate) const GIVES_UP: &str = include_str!("gives_up.xml");
pub(crate) const ANSWERS: &str = include_str!("answers.xml");
pub(crate) const BUSY: &str = include_str!("busy.xml");
pub(crate) const RINGS: &str = include_str!("rings.xml");

/// `SIPp` as a destination. Killed when dropped.
pub(crate) struct Callee {
    child: Child,
    pub(crate) port: u16,
}

impl Callee {
    pub(crate) fn start(folder: &Path, name: &str, scenario: &str) -> Self {
        let (file, port) = (folder.join(format!("{name}.xml")), free_port());
        fs::write(&file, scenario).unwrap();
        let child = Command::new("sipp")
            .arg("-sf")
            .arg(&file)
            .args(["-i", "127.0.0.1", "-p", &port.to_string(), "-nostdin", "-trace_logs"])
            .arg("-log_file")
            .arg(folder.join(format!("{name}.log")))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sipp is not installed: see the first lines of tests/sip.rs");
        Self { child, port }
    }

    pub(super) fn address(&self) -> String {
        format!("sip:callee@127.0.0.1:{}", self.port)
    }

    /// Waits until the destination has finished its calls. Returns the number of calls that it
    /// received.
    pub(crate) fn end(mut self, folder: &Path, name: &str) -> usize {
        server::signal(self.child.id(), "USR1");
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(50));
        }
        let log = fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
        log.lines().filter(|line| !line.is_empty()).count()
    }
}

impl Drop for Callee {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server, a Kamailio through which calls pass, and four pools. The first pool's destination
/// answers, the second's is busy, and the third's rings forever. The fourth pool has two
/// destinations: the first is busy, and the second answers.
struct Switch {
    folder: tempfile::TempDir,
    server: Server,
    kamailio: Kamailio,
    answers: Callee,
    default: Callee,
    _others: [Callee; 2],
    site: Site,
}

impl Switch {
    fn new() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let answers = Callee::start(folder.path(), "answers", ANSWERS);
        let default = Callee::start(folder.path(), "default", ANSWERS);
        let busy = Callee::start(folder.path(), "busy", BUSY);
        let rings = Callee::start(folder.path(), "rings", RINGS);
        let pools = (1..=4).map(|id| Pool::new(id, 100, Duration::from_mins(10))).collect();
        let to = |pool: u64, to: &[&Callee]| {
            let to: Vec<_> = to.iter().map(|it| format!("\"{}\"", it.address())).collect();
            format!("[[calls.destination]]\nring_pools = [{pool}]\nto = [{}]\n", to.join(", "))
        };
        let settings = format!(
            "[calls]\nlisten = \"127.0.0.1:0\"\n[[calls.account]]\nname = \"switch\"\n\
             provider = \"generic\"\npublic_url = \"https://calls.example\"\n\
             secret_files = [\"main.secret\"]\n{}{}{}{}",
            to(1, &[&answers]),
            to(2, &[&busy]),
            to(3, &[&rings]),
            to(4, &[&busy, &answers]),
        );
        let site = Site::new(pools, &settings);
        Phone::write_secrets(&site);
        let server = Server::start(site.serve(&[]));
        let reports = format!("http://{}/t/switch/status", Phone::at(&server).address());
        let route = format!("http://{}/v1/sip/route", server.address());
        let kamailio = start(folder.path(), route, reports, default.address());
        Self { folder, server, kamailio, answers, default, _others: [busy, rings], site }
    }

    /// Returns the first `count` numbers of `pool`, as they are dialed.
    fn numbers(&self, pool: usize, count: u64) -> Vec<String> {
        let first = self.site.pools[pool - 1].first;
        (first..first + count).map(|number| format!("+1{number}")).collect()
    }

    fn call(&self, name: &str, scenario: &str, numbers: &[String], rate: &str) -> Vec<Vec<String>> {
        sipp(self.folder.path(), (name, scenario), self.kamailio.port, numbers, rate)
    }
}

/// Starts a Kamailio through which calls pass. It uses the given addresses for its requests and
/// reports, and the given default destination.
pub(super) fn start(folder: &Path, route: String, reports: String, default: String) -> Kamailio {
    let mut changes = changes(route, reports, default);
    changes.push(patient());
    Kamailio::start(folder, CONFIGURATION, &changes)
}

/// The changes to the configuration without [`patient`].
pub(super) fn changes(
    route: String,
    reports: String,
    default: String,
) -> Vec<(&'static str, String)> {
    vec![
        ("http://127.0.0.1:8080/v1/sip/route", route),
        ("http://127.0.0.1:8090/t/switch/status", reports),
        ("change-me-token", TOKEN.to_owned()),
        ("change-me-secret", SECRET.to_owned()),
        ("sip:+18005550100@127.0.0.1:5080", default),
        ("\"fr_timer\", 2000", "\"fr_timer\", 60000".to_owned()),
    ]
}

pub(crate) fn logged_calls(server: &Server) -> Vec<Value> {
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("authorization", authorization.as_str())];
    let answer = server.client().get("/v1/calls?limit=1000", &headers).unwrap().json();
    answer["calls"].as_array().unwrap().clone()
}

/// Waits until the log contains `count` calls and all of them have ended. Returns the calls, keyed
/// by SIP call id.
pub(crate) fn calls(server: &Server, count: usize) -> BTreeMap<String, Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let all = logged_calls(server);
        if all.len() == count && all.iter().all(|call| call["state"] == "ended") {
            let name = |call: &Value| call["provider_call_id"].as_str().unwrap().to_owned();
            return all.iter().map(|call| (name(call), call.clone())).collect();
        }
        assert!(Instant::now() < until, "{count} calls should have ended: {all:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn calls_that_pass_through_kamailio_have_their_outcome_and_their_seconds() {
    let _alone = alone();
    let switch = Switch::new();
    let busy = REFUSED.replace("STATUS", "486");
    let (talk, second) = (switch.numbers(1, 80), switch.numbers(4, 10));
    let (refused, given_up) = (switch.numbers(2, 10), switch.numbers(3, 10));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(switch.call("talk", TALK, &talk, "20").len(), 80));
        scope.spawn(|| assert_eq!(switch.call("second", TALK, &second, "5").len(), 10));
        scope.spawn(|| assert_eq!(switch.call("refused", &busy, &refused, "5").len(), 10));
        scope.spawn(|| assert_eq!(switch.call("gives_up", GIVES_UP, &given_up, "5").len(), 10));
    });
    // The times of events are truncated to seconds, so a logged duration may be one second too
    // long.
    let mut most = whole_seconds(switch.folder.path(), "talk");
    for name in ["second", "gives_up"] {
        most.append(&mut whole_seconds(switch.folder.path(), name));
    }
    for (name, call) in calls(&switch.server, 110) {
        let number = call["to"].as_str().unwrap().to_owned();
        let (ring, seconds) =
            (call["ring_seconds"].as_u64().unwrap(), call["talk_seconds"].as_u64());
        if refused.contains(&number) {
            assert_eq!(call["outcome"], "busy", "{name}: {call:#}");
            // Two events that are almost simultaneous may fall into different seconds.
            assert!(ring <= 1, "{name}: {call:#}");
        } else if given_up.contains(&number) {
            assert_eq!(call["outcome"], "caller_gave_up", "{name}: {call:#}");
            assert!((1..=most[&number] + 1).contains(&ring), "{name}: {call:#}");
        } else {
            assert_eq!(call["outcome"], "answered", "{name}: {call:#}");
            let (most, seconds) = (most[&number], seconds.unwrap());
            let is_right = seconds >= 1 && ring + seconds <= most + 1;
            assert!(is_right, "{name}, {most} seconds: {call:#}");
        }
    }
}

#[test]
fn no_call_gets_silence_when_the_server_dies_half_way() {
    let _alone = alone();
    let switch = Switch::new();
    let numbers = switch.numbers(1, 90);
    let Switch { folder, server, kamailio, answers, default, _others, site: _site } = switch;
    let port = kamailio.port;
    let calls = thread::scope(|scope| {
        // `SIPp` fails if a call is not answered, or is not hung up properly.
        let calls = scope.spawn(|| sipp(folder.path(), ("talk", TALK), port, &numbers, "15"));
        let half = Instant::now() + PATIENCE;
        while logged_calls(&server).len() < 30 && Instant::now() < half {
            thread::sleep(Duration::from_millis(100));
        }
        server.kill();
        calls.join().unwrap()
    });
    assert_eq!(calls.len(), 90);
    let before = answers.end(folder.path(), "answers");
    let after = default.end(folder.path(), "default");
    assert!(before > 0 && after > 0 && before + after == 90, "{before} before, {after} after");
}
