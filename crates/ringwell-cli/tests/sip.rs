//! Calls over SIP: a real Kamailio with `deploy/kamailio.cfg`, and a real `SIPp` that acts as the
//! callers. In `sip/proxy.rs`, Kamailio uses `deploy/kamailio-proxy.cfg`, and `SIPp` acts as both
//! the callers and the destinations.
//!
//! To install the programs on Debian:
//! `apt-get install kamailio kamailio-utils-modules kamailio-json-modules sip-tester`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "also the helpers of tests end a test by failing"
)]

#[path = "sip/asterisk.rs"]
mod asterisk;
#[path = "sip/freeswitch.rs"]
mod freeswitch;
#[path = "sip/odd.rs"]
mod odd;
#[path = "sip/peer.rs"]
mod peer;
#[path = "calls/phone.rs"]
#[allow(dead_code, reason = "other tests play the provider")]
mod phone;
#[path = "sip/proxy.rs"]
mod proxy;
mod support;
#[path = "sip/trouble.rs"]
mod trouble;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::batch::{self, Ask, BULK};
use support::server::Server;
use support::site::{Pool, Site, TOKEN};

/// The number of pools and the number of visitors per pool. Each pool has its own destination.
const POOLS: u64 = 50;
const VISITORS: u64 = 40;
/// The number of calls that `SIPp` starts per second.
const RATE: &str = "200";
/// The maximum number of concurrent calls. If a machine is too slow for the rate, there are fewer
/// calls per second, but no call is abandoned.
const CALLS_MAX: &str = "50";
/// The time to wait for a result: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
const GATEWAY: &str = "127.0.0.1:5099";
const DEFAULT: &str = "sip:+18005550100@127.0.0.1:5099";
const CONFIGURATION: &str = include_str!("../../../deploy/kamailio.cfg");
const SCENARIO: &str = include_str!("sip/caller.xml");

/// Makes the tests with switches run one at a time, so that the timers of callers and switches do
/// not expire on a busy machine.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a change to Kamailio's configuration that makes it wait 30 seconds for a server. One
/// second is too short on a busy machine.
fn patient() -> (&'static str, String) {
    ("\"connection_timeout\", 1", "\"connection_timeout\", 30".to_owned())
}

/// A running Kamailio on its own port. Killed when dropped.
struct Kamailio {
    child: Child,
    port: u16,
}

impl Kamailio {
    fn redirecting(folder: &Path, server: &str, also: Option<(&str, String)>) -> Self {
        let changes = [
            ("http://127.0.0.1:8080/v1/sip/route", format!("http://{server}/v1/sip/route")),
            ("change-me-token", TOKEN.to_owned()),
            ("!RINGWELL_GATEWAY!127.0.0.1:5080!", format!("!RINGWELL_GATEWAY!{GATEWAY}!")),
            ("sip:+18005550100@127.0.0.1:5080", DEFAULT.to_owned()),
        ];
        let changes: Vec<_> = changes.into_iter().chain(also).collect();
        Self::start(folder, CONFIGURATION, &changes)
    }

    /// Starts Kamailio with `configuration`, in which the first text of each pair in `changes` is
    /// replaced with the second. If `folder` contains `resolv.conf`, Kamailio uses this file.
    fn start(folder: &Path, configuration: &str, changes: &[(&str, String)]) -> Self {
        let port = free_port();
        let listen = ("listen=udp:127.0.0.1:5060", format!("listen=udp:127.0.0.1:{port}"));
        let mut text = configuration.to_owned();
        for (from, to) in [&listen].into_iter().chain(changes) {
            assert!(text.contains(from), "the configuration has no {from}");
            text = text.replace(from, to);
        }
        let file = folder.join("kamailio.cfg");
        fs::write(&file, text).unwrap();
        let log = fs::File::create(folder.join("kamailio.log")).unwrap();
        // Debian installs the program in a directory that is not on users' `PATH`.
        let program = ["/usr/sbin/kamailio", "/usr/local/sbin/kamailio"];
        let program = program.iter().find(|path| Path::new(path).exists());
        let program = program.expect("kamailio is not installed: see the first lines of this file");
        let resolver = folder.join("resolv.conf");
        let mut command = Command::new(program);
        if resolver.exists() {
            let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
            command = Command::new("unshare");
            command.args(["-rm", "sh", "-c", script]).arg(resolver).arg(program);
        }
        let child = command
            .args(["-DD", "-E", "-m", "16", "-M", "4"])
            .arg("-f")
            .arg(&file)
            .arg("-P")
            .arg(folder.join("kamailio.pid"))
            .arg("-Y")
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let kamailio = Self { child, port };
        kamailio.wait(folder);
        kamailio
    }

    /// Waits until Kamailio answers OPTIONS.
    fn wait(&self, folder: &Path) {
        let said = || fs::read_to_string(folder.join("kamailio.log")).unwrap();
        assert!(is_up(self.port), "kamailio: {}", said());
    }
}

impl Drop for Kamailio {
    fn drop(&mut self) {
        support::server::signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

/// Returns whether the switch at `port` answers OPTIONS with 200 within [`PATIENCE`]. `FreeSWITCH`
/// answers 503 until all of its parts have started.
fn is_up(port: u16) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let own = socket.local_addr().unwrap();
    let to = format!("127.0.0.1:{port}");
    let until = Instant::now() + PATIENCE;
    // Each request is different, because a repeated request would get the earlier answer.
    for at in 0.. {
        let question = format!(
            "OPTIONS sip:{to} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{at}\r\n\
             From: <sip:a@{own}>;tag=1\r\nTo: <sip:{to}>\r\nCall-ID: {at}@{own}\r\n\
             CSeq: 1 OPTIONS\r\nMax-Forwards: 9\r\nContent-Length: 0\r\n\r\n"
        );
        let _ = socket.send_to(question.as_bytes(), &to);
        let mut answer = [0; 4096];
        if socket.recv(&mut answer).is_ok() && answer.starts_with(b"SIP/2.0 200 ") {
            return true;
        }
        if Instant::now() > until {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    false
}

/// Returns a port that is free for UDP and TCP, because switches open both.
fn free_port() -> u16 {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = udp.local_addr().unwrap().port();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The server's settings for a switch that requests destinations. The switch sends its reports to
/// the account `switch`.
const SWITCH: &str = "[calls]\nlisten = \"127.0.0.1:0\"\n[[calls.account]]\nname = \"switch\"\n\
                      provider = \"generic\"\npublic_url = \"https://calls.example\"\n\
                      secret_files = [\"main.secret\"]\n\
                      [[calls.destination]]\nring_pools = [1]\nto = [\"+18005551001\"]\n";

/// The destination of one call.
#[derive(Debug)]
struct Redirect {
    to: String,
    sip_call: String,
    contact: String,
    /// Ringwell's id for the call. Empty if the switch did not query the server.
    call: String,
}

/// Makes `SIPp` call each of `numbers` once, and returns the destinations. Fails if a call gets an
/// answer other than 302, or none.
fn call(folder: &Path, port: u16, numbers: &[String]) -> Vec<Redirect> {
    let lines = sipp(folder, ("caller", SCENARIO), port, numbers, RATE);
    let redirects = lines.into_iter().map(|fields| {
        let [to, sip_call, contact, call, _] = <[String; 5]>::try_from(fields).unwrap();
        Redirect { to, sip_call, contact, call }
    });
    redirects.collect()
}

/// Makes `SIPp` call each of `numbers` once with the given scenario. Returns the fields of the
/// lines that `SIPp` logs. Fails if a call deviates from the scenario.
fn sipp(
    folder: &Path,
    (name, text): (&str, &str),
    port: u16,
    numbers: &[String],
    rate: &str,
) -> Vec<Vec<String>> {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let (scenario, list) = (file("xml"), file("csv"));
    fs::write(&scenario, text).unwrap();
    let mut text = "SEQUENTIAL\n".to_owned();
    for (at, number) in numbers.iter().enumerate() {
        writeln!(text, "{number};+1415555{at:04};").unwrap();
    }
    fs::write(&list, text).unwrap();
    let log = file("log");
    let _ = fs::remove_file(&log);
    let output = Command::new("sipp")
        .arg(format!("127.0.0.1:{port}"))
        .arg("-sf")
        .arg(&scenario)
        .arg("-inf")
        .arg(&list)
        .args(["-i", "127.0.0.1", "-p", &free_port().to_string(), "-r", rate, "-nostdin"])
        .args(["-l", CALLS_MAX, "-max_invite_retrans", "9", "-max_non_invite_retrans", "30"])
        .args(["-m", &numbers.len().to_string(), "-timeout", "300s", "-timeout_error"])
        .args(["-trace_logs", "-log_file"])
        .arg(&log)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("sipp is not installed: see the first lines of this file");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    let is_call = |fields: &Vec<String>| !["began", "ended"].contains(&fields[0].as_str());
    lines(&log).into_iter().filter(is_call).collect()
}

/// Returns the fields of each line in a `SIPp` log file.
fn lines(log: &Path) -> Vec<Vec<String>> {
    let lines = fs::read_to_string(log).unwrap();
    let fields = |line: &str| line.split(';').map(|field| field.trim().to_owned()).collect();
    lines.lines().filter(|line| !line.is_empty()).map(fields).collect()
}

/// Returns the duration of each call in a scenario, in seconds and by number. Each duration is
/// measured from the call's first request to its last answer: on a busy machine, calls take longer
/// than the scenario specifies.
fn whole_seconds(folder: &Path, name: &str) -> BTreeMap<String, u64> {
    let mut calls: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for fields in lines(&folder.join(format!("{name}.log"))) {
        if ["began", "ended"].contains(&fields[0].as_str()) {
            calls.entry(fields[1].clone()).or_default().push(fields[2].parse().unwrap());
        }
    }
    let seconds = |ticks: Vec<u64>| (ticks.last().unwrap() - ticks[0]).div_ceil(1000);
    calls.into_iter().map(|(number, ticks)| (number, seconds(ticks))).collect()
}

fn destination(pool: u64) -> String {
    format!("+1800555{:04}", 1000 + pool)
}

/// Allocates a number to each visitor of each pool. Returns the numbers as they are dialed, each
/// with its pool and its visitor.
fn visitors(server: &Server, site: &Site, count: u64) -> BTreeMap<String, (u64, String)> {
    let mut shown = BTreeMap::new();
    for pool in &site.pools {
        let ask = |at| Ask { pool: pool.id, id: format!("{}-{at}", pool.id) };
        let asks: Vec<_> = (0..count).map(ask).collect();
        let body = batch::body(&asks, &site.pools);
        for row in batch::rows(&server.client().post(BULK, &[], &body).unwrap()) {
            assert!(!row.overflow);
            shown.insert(format!("+1{}", row.number), (pool.id, row.id));
        }
    }
    shown
}

/// Returns a call from the log once its visitor is known. Sometimes the server finds the visitor
/// only after it has answered the switch.
fn logged(server: &Server, call: &str) -> Value {
    let bearer = format!("Bearer {TOKEN}");
    let mut client = server.client();
    let until = Instant::now() + PATIENCE;
    loop {
        let path = format!("/v1/calls/{call}");
        let answer = client.get(&path, &[("authorization", &bearer)]).unwrap();
        if answer.status == 200 {
            let call = answer.json();
            if call["attribution"]["parameters"]["id"].is_string() {
                return call;
            }
        }
        assert!(Instant::now() < until, "{}: {}", answer.status, answer.body);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn kamailio_sends_each_call_to_its_destination_and_the_log_has_its_visitor() {
    let _alone = alone();
    let pools: Vec<_> =
        (1..=POOLS).map(|id| Pool::new(id, VISITORS, Duration::from_mins(10))).collect();
    let mut settings = "[calls]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for pool in &pools {
        let (id, to) = (pool.id, destination(pool.id));
        writeln!(settings, "[[calls.destination]]\nring_pools = [{id}]\nto = [\"{to}\"]").unwrap();
    }
    let site = Site::new(pools, &settings);
    let server = Server::start(site.serve(&[]));
    let folder = tempfile::TempDir::new().unwrap();
    let kamailio = Kamailio::redirecting(folder.path(), server.address(), Some(patient()));
    let shown = visitors(&server, &site, VISITORS);
    let numbers: Vec<_> = shown.keys().cloned().collect();

    let redirects = call(folder.path(), kamailio.port, &numbers);
    assert_eq!(redirects.len(), numbers.len());
    for redirect in &redirects {
        let (pool, visitor) = &shown[&redirect.to];
        let to = destination(*pool);
        assert_eq!(redirect.contact, format!("sip:{to}@{GATEWAY}"), "{redirect:?}");
        let call = logged(&server, &redirect.call);
        assert_eq!(call["provider_call_id"], *redirect.sip_call, "{call:#}");
        assert_eq!((&call["to"], &call["destination"]), (&redirect.to.clone().into(), &to.into()));
        assert_eq!(call["pool"]["id"], *pool, "{call:#}");
        assert_eq!(call["attribution"]["parameters"]["id"], **visitor, "{call:#}");
    }

    // Kamailio also refuses a blocked caller. The caller of the first number is +14155550000.
    let authorization = format!("Bearer {TOKEN}");
    let body = r#"{"caller":"+14155550000","answer":"busy"}"#;
    let headers = [("authorization", authorization.as_str())];
    assert_eq!(server.client().post("/v1/blocks", &headers, body).unwrap().status, 201);
    let busy = proxy::REFUSED.replace("STATUS", "486");
    sipp(folder.path(), ("blocked", &busy), kamailio.port, &numbers[..1], RATE);

    // If the server is down, callers are still connected.
    server.kill();
    let redirects = call(folder.path(), kamailio.port, &numbers[..20]);
    assert_eq!(redirects.len(), 20);
    for redirect in redirects {
        assert_eq!((redirect.contact.as_str(), redirect.call.as_str()), (DEFAULT, ""));
    }
}

#[test]
fn kamailio_passes_over_a_server_that_does_not_answer() {
    let _alone = alone();
    let folder = tempfile::TempDir::new().unwrap();
    // This server accepts connections, but never reads from them.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let kamailio = Kamailio::redirecting(folder.path(), &address, None);
    let numbers: Vec<_> = (0..20).map(|at| format!("+1200000{at:04}")).collect();
    let redirects = call(folder.path(), kamailio.port, &numbers);
    assert_eq!(redirects.len(), numbers.len());
    for redirect in redirects {
        assert_eq!((redirect.contact.as_str(), redirect.call.as_str()), (DEFAULT, ""));
    }
}
