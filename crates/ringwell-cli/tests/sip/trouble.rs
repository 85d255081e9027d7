//! Calls while something is wrong: a server that hangs or restarts, a DNS resolver that does not
//! answer, long or unreadable answers, destinations to which nothing can be sent, and a caller who
//! gives up early.

use std::fs;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::peer::{Peer, Recorder, Request, header};
use super::phone::Phone;
use super::proxy::{self, ANSWERS, BUSY, Callee, REFUSED, TALK, calls};
use super::support::batch::BULK;
use super::support::server::Server;
use super::support::site::{Pool, Site};
use super::{DEFAULT, GATEWAY, Kamailio, SWITCH, alone, free_port, patient, sipp};

const FROM: &str = "<sip:+14155551234@127.0.0.1>;tag=t1";

/// A server that accepts connections, but never answers.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Starts a Kamailio through which calls pass. Requests and reports go to the two addresses.
fn through(folder: &Path, route: &str, reports: &str, default: &str) -> Kamailio {
    proxy::start(
        folder,
        format!("http://{route}/v1/sip/route"),
        format!("http://{reports}/t/switch/status"),
        default.to_owned(),
    )
}

/// Sends a request outside of a call, such as the first INVITE, to Kamailio at `port`.
fn ask(trunk: &Peer, port: u16, method: &str, number: &str, call: &str) {
    let uri = format!("sip:{number}@127.0.0.1:{port}");
    let to = format!("<{uri}>");
    let more = "";
    trunk.request(
        port,
        &Request { method, uri: &uri, call, branch: call, from: FROM, to: &to, more },
    );
}

/// Sends a request from the caller within the call that `answer` belongs to.
fn within(trunk: &Peer, port: u16, method: &str, answer: &str, uri: &str) {
    let (call, to) = (header(answer, "Call-ID"), header(answer, "To"));
    let more = format!("Route: {}\r\n", header(answer, "Record-Route"));
    let branch = format!("{method}{call}");
    let request = Request { method, uri, call, branch: &branch, from: FROM, to, more: &more };
    trunk.request(port, &request);
}

/// Waits for the final answer to an INVITE, and confirms it.
fn final_answer(trunk: &Peer, port: u16, number: &str, call: &str) -> (u16, String) {
    let (status, answer) = trunk.status(call);
    let uri = format!("sip:{number}@127.0.0.1:{port}");
    let (method, to, more) = ("ACK", header(&answer, "To"), "");
    let request = Request { method, uri: &uri, call, branch: call, from: FROM, to, more };
    trunk.request(port, &request);
    (status, answer)
}

fn numbers(count: u64) -> Vec<String> {
    (0..count).map(|at| format!("+1888555{at:04}")).collect()
}

/// With 2 processes, each of which waits a second for each request of a call, 120 calls would take
/// at least 60 seconds.
#[test]
fn calls_are_connected_in_time_while_the_server_hangs() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (listener, server) = silent();
    let default = Callee::start(folder.path(), "default", ANSWERS);
    let children = |of: &'static str| (of, "children=2".to_owned());

    let mut changes = proxy::changes(
        format!("http://{server}/v1/sip/route"),
        format!("http://{server}/t/switch/status"),
        default.address(),
    );
    changes.push(children("children=16"));
    let kamailio = Kamailio::start(folder.path(), proxy::CONFIGURATION, &changes);
    let start = Instant::now();
    let talks = sipp(folder.path(), ("talk", TALK), kamailio.port, &numbers(120), "20");
    assert_eq!(talks.len(), 120);
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    drop(kamailio);

    let fewer = Some(children("children=8"));
    let kamailio = Kamailio::redirecting(folder.path(), &server, fewer);
    let start = Instant::now();
    assert_eq!(super::call(folder.path(), kamailio.port, &numbers(120)).len(), 120);
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());

    // Kamailio asks again every 5 seconds.
    drop(listener);
    let contact = format!("sip:+18005551001@{GATEWAY}");
    let answer = format!(r#"{{"call":"c_1","contact":"{contact}","contacts":["{contact}"]}}"#);
    let _recorder = Recorder::on(TcpListener::bind(&server).unwrap(), &answer, Duration::ZERO);
    let until = Instant::now() + Duration::from_secs(30);
    while super::call(folder.path(), kamailio.port, &numbers(1))[0].contact != contact {
        assert!(Instant::now() < until, "Kamailio should ask again");
        thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn the_messages_of_a_call_do_not_wait_for_its_reports() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (trunk, gateway) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"));
    let recorder = Recorder::start(&format!("sip:+18005551001@{}", gateway.address));
    let (_listener, reports) = silent();
    // Kamailio waits 30 s for the answer to a report.
    let kamailio = through(folder.path(), &recorder.address, &reports, DEFAULT);
    let (port, number, call) = (kamailio.port, "+18885550100", "wait@h");
    ask(&trunk, port, "INVITE", number, call);
    let invite = gateway.wait_for("INVITE ", call);
    let start = Instant::now();
    gateway.answer(port, &invite, "180 Ringing", ";tag=g1");
    trunk.wait_for("SIP/2.0 180", call);
    gateway.answer(port, &invite, "200 OK", ";tag=g1");
    let answer = trunk.wait_for("SIP/2.0 200", call);
    within(&trunk, port, "ACK", &answer, &format!("sip:peer@{}", gateway.address));
    within(&trunk, port, "BYE", &answer, &format!("sip:peer@{}", gateway.address));
    gateway.wait_for("BYE ", call);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn reports_arrive_later_if_the_server_is_down() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (trunk, gateway) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"));
    let address = format!("127.0.0.1:{}", free_port());
    let default = format!("sip:default@{}", gateway.address);
    let kamailio = through(folder.path(), &address, &address, &default);
    let (port, number, call) = (kamailio.port, "+18885550100", "down@h");
    ask(&trunk, port, "INVITE", number, call);
    let invite = gateway.wait_for("INVITE sip:default@", call);
    gateway.answer(port, &invite, "200 OK", ";tag=g1");
    let answer = trunk.wait_for("SIP/2.0 200", call);
    within(&trunk, port, "ACK", &answer, &format!("sip:peer@{}", gateway.address));
    thread::sleep(Duration::from_secs(3));
    within(&trunk, port, "BYE", &answer, &format!("sip:peer@{}", gateway.address));
    gateway.wait_for("BYE ", call);
    thread::sleep(Duration::from_secs(3));
    let listener = TcpListener::bind(&address).unwrap();
    let recorder = Recorder::on(listener, "{}", Duration::ZERO);
    recorder.wait(1, "ended");
    let reports = recorder.bodies("/status");
    let of = |event: &str| reports.iter().find(|it| it["event"] == event).unwrap().clone();
    let (answered, ended) = (of("answered"), of("ended"));
    assert_eq!((&answered["to"], &answered["from"]), (&number.into(), &"+14155551234".into()));
    assert_eq!(ended["status"], "answered");
    let ms = |report: &Value| report["waited_ms"].as_u64().unwrap();
    let seconds = (ms(&answered) - ms(&ended)) / 1000;
    assert!((2..6).contains(&seconds), "{reports:?}");
}

/// Returns the settings of a server whose pools have the given destinations.
fn settings(destinations: &[&[&str]]) -> String {
    let start = SWITCH.split("[[calls.destination]]").next().unwrap().to_owned();
    let of = |(at, to): (usize, &&[&str])| {
        let to: Vec<_> = to.iter().map(|it| format!("\"{it}\"")).collect();
        let (pool, to) = (at + 1, to.join(", "));
        format!("[[calls.destination]]\nring_pools = [{pool}]\nto = [{to}]\n")
    };
    let all: String = destinations.iter().enumerate().map(of).collect();
    start + &all
}

#[test]
fn a_destination_that_cannot_be_sent_to_is_passed_over() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let answers = Callee::start(folder.path(), "answers", ANSWERS);
    let busy = Callee::start(folder.path(), "busy", BUSY);
    let (answers, _answers) = (answers.address(), answers);
    let (busy, _busy) = (busy.address(), busy);
    let bad = [
        "sip:desk@no-such-host.invalid",
        "sip:desk@127.0.0.1:9;transport=tcp",
        "sips:desk@127.0.0.1:9",
        "sip:desk@[::1]:9",
    ];
    let mut all: Vec<Vec<&str>> = bad.iter().map(|it| vec![*it, &answers]).collect();
    all.push(vec![&busy, bad[0], &answers]);
    all.push(vec![bad[0], bad[1]]);
    let lists: Vec<&[&str]> = all.iter().map(Vec::as_slice).collect();
    let pools = (1..=6).map(|id| Pool::new(id, 100, Duration::from_mins(10))).collect();
    let site = Site::new(pools, &settings(&lists));
    Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let reports = Phone::at(&server);
    let kamailio = through(folder.path(), server.address(), reports.address(), DEFAULT);
    let number = |pool: usize| format!("+1{}", site.pools[pool].first);
    let good: Vec<_> = (0..5).map(number).collect();
    assert_eq!(sipp(folder.path(), ("talk", TALK), kamailio.port, &good, "5").len(), 5);
    let failed = REFUSED.replace("STATUS", "500");
    sipp(folder.path(), ("refused", &failed), kamailio.port, &[number(5)], "5");
    // A call to an unknown number ends, too.
    let (unknown, nowhere) = (REFUSED.replace("STATUS", "404"), "+12125550000".to_owned());
    sipp(folder.path(), ("unknown", &unknown), kamailio.port, std::slice::from_ref(&nowhere), "5");
    for (name, call) in calls(&server, 7) {
        let is_failed = [number(5), nowhere.clone()].iter().any(|it| call["to"] == **it);
        let expected = if is_failed { "failed" } else { "answered" };
        assert_eq!(call["outcome"], expected, "{name}: {call:#}");
    }
}

/// Returns whether Kamailio can have a `resolv.conf` of its own here.
fn has_mount_namespaces() -> bool {
    let is_here =
        Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|it| it.success());
    if !is_here {
        println!("SKIPPED: no mount namespace here: `unshare -rm true` does not work");
    }
    is_here
}

/// Starts a DNS resolver at `ip`, which answers that `known` has the address 127.0.0.1, and that no
/// other name exists.
fn resolve(ip: &str, known: &str) -> io::Result<()> {
    let socket = UdpSocket::bind((ip, 53))?;
    // A name is a list of labels. The type A and the class IN follow.
    let mut question = Vec::new();
    for label in known.split('.') {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((_, from)) = socket.recv_from(&mut bytes) {
            let name = bytes[12..].iter().position(|it| *it == 0).unwrap();
            let asked = &bytes[12..12 + name + 5];
            let mut answer = bytes[..2].to_vec();
            if asked == question {
                answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
                answer.extend(asked);
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            } else {
                answer.extend([0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
                answer.extend(asked);
            }
            socket.send_to(&answer, from).unwrap();
        }
    });
    Ok(())
}

/// Names without a domain are usual in local networks and in Kubernetes. The resolver finds them
/// through the search list in `resolv.conf`.
#[test]
fn calls_reach_a_host_whose_name_has_no_domain() {
    let _alone = alone();
    if !has_mount_namespaces() {
        return;
    }
    let [_, _, high, low] = process::id().to_be_bytes();
    let ip = format!("127.53.{high}.{low}");
    if let Err(refused) = resolve(&ip, "pbx.lan.example") {
        println!("SKIPPED: no DNS resolver can be started here: {refused}");
        return;
    }
    let folder = TempDir::new().unwrap();
    let list = format!("nameserver {ip}\nsearch lan.example\n");
    fs::write(folder.path().join("resolv.conf"), list).unwrap();
    let (trunk, gateway, call) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"), "short@h");
    let contact = format!("sip:desk@pbx:{}", gateway.address.rsplit(':').next().unwrap());
    let answer = format!(r#"{{"call":"c_1","contact":"{contact}","contacts":["{contact}"]}}"#);
    let recorder = Recorder::answering(&answer, Duration::ZERO);
    let kamailio = through(folder.path(), &recorder.address, &recorder.address, DEFAULT);
    ask(&trunk, kamailio.port, "INVITE", "+18885550100", call);
    let invite = gateway.wait_for(&format!("INVITE {contact}"), call);
    gateway.answer(kamailio.port, &invite, "200 OK", ";tag=g1");
    let answer = trunk.wait_for("SIP/2.0 200", call);
    within(&trunk, kamailio.port, "ACK", &answer, &contact);
    gateway.wait_for("ACK ", call);
}

/// If the DNS resolver does not answer, only the first calls to a host wait for it.
#[test]
fn calls_do_not_wait_for_a_resolver_that_never_answers() {
    let _alone = alone();
    if !has_mount_namespaces() {
        return;
    }
    // Destinations with and without a user.
    for (unreachable, reachable) in [("sip:desk@", "sip:peer@"), ("sip:", "sip:")] {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("resolv.conf"), "nameserver 192.0.2.53\nsearch a.example\n")
            .unwrap();
        let (trunk, gateway) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"));
        let contact = format!("{unreachable}pbx.example.com");
        let other = format!("{reachable}{}", gateway.address);
        let answer =
            format!(r#"{{"call":"c_1","contact":"{contact}","contacts":["{contact}","{other}"]}}"#);
        let recorder = Recorder::answering(&answer, Duration::ZERO);
        let kamailio = through(folder.path(), &recorder.address, &recorder.address, DEFAULT);
        let mut waited = Vec::new();
        for call in ["first@h", "second@h"] {
            let start = Instant::now();
            ask(&trunk, kamailio.port, "INVITE", "+18885550100", call);
            gateway.wait_for(&format!("INVITE {other}"), call);
            waited.push(start.elapsed());
        }
        // Four requests that take 1 s each: for the host's service and address, both with and
        // without the domain.
        assert!(waited[0] < Duration::from_secs(8), "{waited:?}");
        assert!(waited[1] < Duration::from_millis(900), "{waited:?}");
    }
}

/// After a hang, the server processes Kamailio's request late. The time in the report of the answer
/// shows that the call began earlier.
#[test]
fn a_call_during_a_hang_begins_no_later_than_its_answer() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (trunk, gateway) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"));
    let site = Site::new(vec![Pool::new(1, 10, Duration::from_mins(10))], &settings(&[&[DEFAULT]]));
    Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let (number, call) = (format!("+1{}", site.pools[0].first), "hang@h");
    let default = format!("sip:default@{}", gateway.address);
    let changes = proxy::changes(
        format!("http://{}/v1/sip/route", server.address()),
        format!("http://{}/t/switch/status", Phone::at(&server).address()),
        default,
    );
    let kamailio = Kamailio::start(folder.path(), proxy::CONFIGURATION, &changes);
    let port = kamailio.port;
    server.signal("STOP");
    ask(&trunk, port, "INVITE", &number, call);
    let invite = gateway.wait_for("INVITE sip:default@", call);
    gateway.answer(port, &invite, "200 OK", ";tag=g1");
    let answer = trunk.wait_for("SIP/2.0 200", call);
    within(&trunk, port, "ACK", &answer, &format!("sip:peer@{}", gateway.address));
    thread::sleep(Duration::from_secs(5));
    server.signal("CONT");
    thread::sleep(Duration::from_secs(2));
    within(&trunk, port, "BYE", &answer, &format!("sip:peer@{}", gateway.address));
    gateway.wait_for("BYE ", call);
    let logged = calls(&server, 1).remove(call).unwrap();
    assert!(logged["talk_seconds"].as_u64().unwrap() >= 6, "{logged:#}");
    assert_eq!(logged["started_at"], logged["answered_at"], "{logged:#}");
}

#[test]
fn a_caller_who_gives_up_before_the_server_answers_is_reported() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (trunk, gateway) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"));
    let contact = format!("sip:+18005551001@{}", gateway.address);
    let answer = format!(r#"{{"call":"c_1","contact":"{contact}","contacts":["{contact}"]}}"#);
    let recorder = Recorder::answering(&answer, Duration::from_secs(2));
    let kamailio = through(folder.path(), &recorder.address, &recorder.address, DEFAULT);
    let (port, number, call) = (kamailio.port, "+18885550100", "early@h");
    ask(&trunk, port, "INVITE", number, call);
    trunk.wait_for("SIP/2.0 100", call);
    ask(&trunk, port, "CANCEL", number, call);
    trunk.wait_for("SIP/2.0 487", call);
    let ended = recorder.wait(1, "ended").remove(0);
    assert_eq!((&ended["call_id"], &ended["status"]), (&call.into(), &"caller_gave_up".into()));
    assert_eq!(gateway.hears("INVITE ", call), None);

    // Kamailio has no record of a call that rang before it was restarted.
    ask(&trunk, port, "CANCEL", number, "unknown@h");
    assert_eq!(trunk.status("unknown@h").0, 481);
}

#[test]
fn a_visitor_with_long_parameters_can_call() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (trunk, gateway) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"));
    let to = format!("sip:desk@{}", gateway.address);
    let pools = vec![Pool::new(1, 10, Duration::from_mins(10))];
    let site = Site::new(pools, &settings(&[&[&to]]));
    Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let suffix = site.pools[0].suffix(&format!("gclid={}", "x".repeat(7900)));
    let body = format!(r#"{{"requests":[{{"api_suffix":"{suffix}"}}]}}"#);
    let shown = server.client().post(BULK, &[], &body).unwrap().json();
    let number = format!("+1{}", shown["responses"][0]["promo_number"].as_str().unwrap());
    let redirecting = Kamailio::redirecting(folder.path(), server.address(), Some(patient()));
    ask(&trunk, redirecting.port, "INVITE", &number, "redirect@h");
    let (status, answer) = final_answer(&trunk, redirecting.port, &number, "redirect@h");
    assert_eq!((status, header(&answer, "Contact").contains(&to)), (302, true), "{answer}");
    drop(redirecting);
    let reports = Phone::at(&server);
    let kamailio = through(folder.path(), server.address(), reports.address(), DEFAULT);
    ask(&trunk, kamailio.port, "INVITE", &number, "proxy@h");
    gateway.wait_for("INVITE sip:desk@", "proxy@h");
}

/// Only a readable answer may report that a number is unknown.
#[test]
fn an_unreadable_answer_sends_the_call_to_the_default_destination() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let (trunk, number) = (Peer::new("127.0.0.1"), "+18885550100");
    let long = format!(r#"{{"call":"c_1","contact":"sip:a@h","x":"{}"}}"#, "y".repeat(100_000));
    let unknown = r#"{"call":"c_1"}"#;
    for (at, (answer, expected)) in
        [("", 302), ("no JSON", 302), ("{}", 302), (long.as_str(), 302), (unknown, 404)]
            .into_iter()
            .enumerate()
    {
        let recorder = Recorder::answering(answer, Duration::ZERO);
        let patient = Some(patient());
        let kamailio = Kamailio::redirecting(folder.path(), &recorder.address, patient);
        let call = format!("answer{at}@h");
        ask(&trunk, kamailio.port, "INVITE", number, &call);
        let (status, answer) = final_answer(&trunk, kamailio.port, number, &call);
        assert_eq!(status, expected, "{answer}");
        let is_default = header(&answer, "Contact").contains(DEFAULT);
        assert_eq!(is_default, expected == 302, "{answer}");
    }
}

/// Also checks that Kamailio starts without errors.
#[test]
fn the_list_of_sources_may_be_long() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let recorder = Recorder::start(&format!("sip:+18005551001@{GATEWAY}"));
    let networks: Vec<_> = (0..200).map(|at| format!("10.0.{at}.0/24")).collect();
    let list = format!("{},127.0.0.1", networks.join(","));
    let sources = ("RINGWELL_SOURCES \"127.0.0.1\"", format!("RINGWELL_SOURCES \"{list}\""));
    let kamailio = Kamailio::redirecting(folder.path(), &recorder.address, Some(sources.clone()));
    let log = fs::read_to_string(folder.path().join("kamailio.log")).unwrap();
    assert!(!log.contains("ERROR"), "{log}");
    drop(kamailio);
    let route = format!("http://{}/v1/sip/route", recorder.address);
    let mut changes = proxy::changes(route.clone(), route, DEFAULT.to_owned());
    changes.push(sources);
    let _kamailio = Kamailio::start(folder.path(), proxy::CONFIGURATION, &changes);
    let log = fs::read_to_string(folder.path().join("kamailio.log")).unwrap();
    assert!(!log.contains("ERROR"), "{log}");
}
