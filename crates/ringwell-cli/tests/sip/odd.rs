//! Tests unusual Call-IDs, numbers and callers: their calls must be connected. Also tests forged
//! requests, which must be neither forwarded nor reported.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use super::peer::{Peer, Recorder, Request, header};
use super::support::server::Server;
use super::support::site::{Pool, Site};
use super::{DEFAULT, GATEWAY, Kamailio, SWITCH, alone, logged, patient, phone, proxy, visitors};

/// Call-IDs that RFC 3261 allows or that occur in practice. The second value is the id in the call
/// log, or nothing if it is a hash.
const IDS: [(&str, bool); 13] = [
    ("plain-1@127.0.0.1", true),
    ("a/b*c(d)e@h", true),
    ("a%20b'c@h", true),
    ("a[1]{2}<3>@h", true),
    ("a!?=~`|^$b@h", true),
    ("$var(from)$ci@h", true),
    ("RINGWELL_TOKEN@h", true),
    ("a\"q\"b@h", false),
    ("a\\b\\\"c@h", false),
    ("a\",\"to\":\"+18885550100\",\"x\":\"y", false),
    ("caf\u{e9}@h", false),
    ("tab\tand space@h", false),
    ("a", true),
];

/// The server accepts ids of up to 200 characters.
fn ids() -> Vec<(String, bool)> {
    let fixed = IDS.iter().map(|(id, kept)| ((*id).to_owned(), *kept));
    fixed
        .chain([("l".repeat(200), true), ("m".repeat(201), false), ("n".repeat(5000), false)])
        .collect()
}

fn is_hash(id: &str) -> bool {
    id.strip_prefix("md5-").is_some_and(|it| it.len() == 32)
}

/// The spellings of a number in the user part of a SIP address.
fn spellings(number: &str) -> Vec<String> {
    let ten = number.strip_prefix("+1").unwrap();
    let (area, exchange, line) = (&ten[..3], &ten[3..6], &ten[6..]);
    vec![
        format!("{number};npdi"),
        format!("{number};npdi=yes;rn=+14155550000"),
        format!("+1-{area}-{exchange}-{line}"),
        format!("+1.{area}.{exchange}.{line}"),
        format!("+1({area}){exchange}-{line}"),
        format!("%2B1{ten}"),
        format!("1{ten}"),
        ten.to_owned(),
    ]
}

/// Returns a branch that is unique to this call. A second request with the same `name` is a
/// retransmission.
fn branch(name: &str, call: &str) -> String {
    let hash = call.bytes().fold(17_u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
    format!("{name}{hash:x}")
}

/// Sends an INVITE from the trunk, and returns the final answer.
fn invite(trunk: &Peer, port: u16, user: &str, call: &str, from: &str) -> (u16, String) {
    let uri = format!("sip:{user}@127.0.0.1:{port}");
    let uri = uri.replace("sip:@", "sip:");
    let to = format!("<{uri}>");
    let branch = branch("i", call);
    let ask =
        Request { method: "INVITE", uri: &uri, call, branch: &branch, from, to: &to, more: "" };
    trunk.request(port, &ask);
    let (status, answer) = trunk.status(call);
    trunk.request(port, &Request { method: "ACK", to: header(&answer, "To"), ..ask });
    (status, answer)
}

fn contact(answer: &str) -> String {
    header(answer, "Contact").trim_matches(['<', '>']).split(['>', ';']).next().unwrap().to_owned()
}

/// Checks that Kamailio redirects a call to its own default destination.
fn goes_to_default(trunk: &Peer, port: u16, user: &str, call: &str) {
    let (status, answer) = invite(trunk, port, user, call, FROM);
    assert_eq!((status, contact(&answer)), (302, DEFAULT.to_owned()), "{user} {call}: {answer}");
}

const FROM: &str = "<sip:+14155551234@127.0.0.1>;tag=t1";

#[test]
fn kamailio_connects_calls_with_odd_ids_numbers_and_callers() {
    let _alone = alone();
    let site = Site::new(vec![Pool::new(1, 10, Duration::from_mins(10))], SWITCH);
    phone::Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let folder = tempfile::TempDir::new().unwrap();
    let kamailio = Kamailio::redirecting(folder.path(), server.address(), Some(patient()));
    let trunk = Peer::new("127.0.0.1");
    let shown = visitors(&server, &site, 1);
    let (number, (_, visitor)) = shown.first_key_value().unwrap();
    let right = format!("sip:+18005551001@{GATEWAY}");
    let check = |user: &str, id: &str, kept: bool, from: &str| {
        let (status, answer) = invite(&trunk, kamailio.port, user, id, from);
        assert_eq!((status, contact(&answer)), (302, right.clone()), "{user} {id}: {answer}");
        let call = logged(&server, header(&answer, "X-Ringwell-Call"));
        assert_eq!(call["attribution"]["parameters"]["id"], **visitor, "{call:#}");
        assert_eq!(call["to"], **number, "{call:#}");
        let logged = call["provider_call_id"].as_str().unwrap();
        assert!(if kept { logged == id } else { is_hash(logged) }, "{id}: {logged}");
        call
    };
    for (id, kept) in ids() {
        check(number, &id, kept, FROM);
    }
    for (at, user) in spellings(number).iter().enumerate() {
        check(user, &format!("user{at}@h"), true, FROM);
    }
    let callers = [
        ("<sip:+1-415-555-1234@h>;tag=t", Some("+14155551234")),
        ("<sip:+14155551234;verstat=TN-Validation-Passed@h>;tag=t", Some("+14155551234")),
        ("<sip:%2B1415%2d5551234@h>;tag=t", Some("+14155551234")),
        ("<sip:+14155551234%00%22@h>;tag=t", None),
        ("\"a\\\"b\" <sip:alice@h>;tag=t", None),
        ("<sip:a%22%5c@h>;tag=t", None),
        ("<sip:h>;tag=t", None),
    ];
    for (at, (from, expected)) in callers.iter().enumerate() {
        let call = check(number, &format!("from{at}@h"), true, from);
        assert_eq!(call["from"]["e164"].as_str(), *expected, "{from}: {call:#}");
    }
    let logged = proxy::logged_calls(&server).len();

    // Users that are not numbers go to the default destination.
    let users =
        ["alice", "", "a%22%5c", "%00", "%zz", "-.-", "+1", "+1888555010012345678901234567890"];
    for (at, user) in users.iter().enumerate() {
        goes_to_default(&trunk, kamailio.port, user, &format!("none{at}@h"));
    }

    // An INVITE with a To tag belongs to no call. Addresses that are not in the list are refused.
    let uri = format!("sip:{number}@127.0.0.1:{}", kamailio.port);
    let (call, to) = ("tag@h", format!("<{uri}>;tag=x"));
    let (branch, more) = ("tag", "");
    let ask = Request { method: "INVITE", uri: &uri, call, branch, from: FROM, to: &to, more };
    trunk.request(kamailio.port, &ask);
    assert_eq!(trunk.status(call).0, 481);
    let stranger = Peer::new("127.0.0.2");
    let (status, answer) = invite(&stranger, kamailio.port, number, "stranger@h", FROM);
    assert_eq!(status, 403, "{answer}");
    assert_eq!(proxy::logged_calls(&server).len(), logged);

    server.kill();
    for (at, (id, _)) in ids().iter().enumerate() {
        goes_to_default(&trunk, kamailio.port, number, &format!("{at}{id}"));
    }
    for (at, user) in spellings(number).iter().enumerate() {
        goes_to_default(&trunk, kamailio.port, user, &format!("down{at}@h"));
    }
}

#[test]
fn kamailio_takes_the_caller_from_the_asserted_identity() {
    let _alone = alone();
    let recorder = Recorder::start("sip:+18005551001@127.0.0.1:9");
    let folder = tempfile::TempDir::new().unwrap();
    let asserted = ("$avp(from) = $fU;", "$avp(from) = $ai;".to_owned());
    let kamailio = Kamailio::redirecting(folder.path(), &recorder.address, Some(asserted));
    let (trunk, port) = (Peer::new("127.0.0.1"), kamailio.port);
    for (at, identity) in ["P-Asserted-Identity: <sip:+14155550001@h>\r\n", ""].iter().enumerate() {
        let (call, uri) = (format!("pai{at}@h"), format!("sip:+18885550100@127.0.0.1:{port}"));
        let ask = Request {
            method: "INVITE",
            uri: &uri,
            call: &call,
            branch: &call,
            from: FROM,
            to: &format!("<{uri}>"),
            more: identity,
        };
        trunk.request(port, &ask);
        assert_eq!(trunk.status(&call).0, 302);
    }
    let from: Vec<_> = recorder.bodies("/route").iter().map(|it| it["from"].clone()).collect();
    assert_eq!(from, ["sip:+14155550001@h", "anonymous"]);
}

/// A Kamailio through which calls pass, a trunk and a gateway.
struct Path {
    recorder: Recorder,
    kamailio: Kamailio,
    trunk: Peer,
    gateway: Peer,
    _folder: tempfile::TempDir,
}

/// A call that was answered: the Route header for the caller's requests, and the To header.
struct Call {
    id: String,
    route: String,
    to: String,
}

impl Path {
    fn new() -> Self {
        let (trunk, gateway) = (Peer::new("127.0.0.1"), Peer::new("127.0.0.1"));
        let recorder = Recorder::start(&format!("sip:+18005551001@{}", gateway.address));
        let folder = tempfile::TempDir::new().unwrap();
        let default = format!("sip:default@{}", gateway.address);
        let kamailio = proxy::start(
            folder.path(),
            format!("http://{}/v1/sip/route", recorder.address),
            format!("http://{}/t/switch/status", recorder.address),
            default,
        );
        Self { recorder, kamailio, trunk, gateway, _folder: folder }
    }

    /// Makes a call that the gateway answers.
    fn call(&self, user: &str, id: &str, more: &str) -> (Call, String) {
        let port = self.kamailio.port;
        let uri = format!("sip:{user}@127.0.0.1:{port}").replace("sip:@", "sip:");
        let to = format!("<{uri}>");
        let ask = Request {
            method: "INVITE",
            uri: &uri,
            call: id,
            branch: id,
            from: FROM,
            to: &to,
            more,
        };
        let branch = branch("i", id);
        self.trunk.request(port, &Request { branch: &branch, ..ask });
        let invite = self.gateway.wait_for("INVITE ", id);
        self.gateway.answer(port, &invite, "200 OK", ";tag=g1");
        let answer = self.trunk.wait_for("SIP/2.0 200", id);
        let route = header(&answer, "Record-Route").to_owned();
        let call = Call { id: id.to_owned(), route, to: header(&answer, "To").to_owned() };
        self.of_caller("ACK", &call, "ack");
        self.gateway.wait_for("ACK ", id);
        (call, invite)
    }

    /// Sends a request from the caller within a call.
    fn of_caller(&self, method: &str, call: &Call, branch: &str) {
        let more = format!("Route: {}\r\n", call.route);
        let uri = format!("sip:peer@{}", self.gateway.address);
        let branch = self::branch(branch, &call.id);
        let (call, to) = (call.id.as_str(), call.to.as_str());
        let ask = Request { method, uri: &uri, call, branch: &branch, from: FROM, to, more: &more };
        self.trunk.request(self.kamailio.port, &ask);
    }

    /// Sends a request from the callee within a call.
    fn of_callee(&self, method: &str, call: &Call, branch: &str) {
        let more = format!("Route: {}\r\n", call.route);
        let uri = format!("sip:peer@{}", self.trunk.address);
        let (to, from, branch) = (FROM, call.to.as_str(), self::branch(branch, &call.id));
        let ask =
            Request { method, uri: &uri, call: &call.id, branch: &branch, from, to, more: &more };
        self.gateway.request(self.kamailio.port, &ask);
    }

    /// Returns how many reports say that a call has ended.
    fn ends(&self) -> usize {
        self.recorder.bodies("/status").iter().filter(|it| it["event"] == "ended").count()
    }
}

#[test]
fn calls_through_kamailio_have_one_id_from_the_invite_to_the_bye() {
    let _alone = alone();
    let path = Path::new();
    let port = path.kamailio.port;
    for (at, (id, kept)) in ids().into_iter().enumerate() {
        let (call, _) = path.call("+1-888-555-0100;npdi=yes", &id, "");
        // Either side hangs up. A repeated BYE is not reported again.
        let (other, from_caller) = (&path.gateway, at % 2 == 0);
        let (asks, answers): (fn(&Path, &Call), &Peer) = if from_caller {
            (|path, call| path.of_caller("BYE", call, "bye"), other)
        } else {
            (|path, call| path.of_callee("BYE", call, "bye"), &path.trunk)
        };
        asks(&path, &call);
        let bye = answers.wait_for("BYE ", &id);
        answers.answer(port, &bye, "200 OK", "");
        path.recorder.wait(at + 1, "ended");
        asks(&path, &call);
        assert_eq!(answers.hears("BYE ", &id), None);
        assert_eq!(path.ends(), at + 1, "{id}");
        let question = path.recorder.bodies("/route").pop().unwrap();
        assert_eq!(
            (&question["to"], &question["from"]),
            (&"+18885550100".into(), &"+14155551234".into())
        );
        let logged = question["call_id"].as_str().unwrap().to_owned();
        assert!(if kept { logged == id } else { is_hash(&logged) }, "{id}: {logged}");
        let reports = path.recorder.bodies("/status");
        let own: Vec<_> = reports.iter().filter(|it| it["call_id"] == *logged).collect();
        let events: Vec<_> = own.iter().map(|it| it["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["answered", "ended"], "{id}: {reports:?}");
        let members = |it: &serde_json::Value| it.as_object().unwrap().len();
        assert_eq!((members(own[0]), members(own[1])), (4, 3), "{id}: {own:?}");
        assert_eq!((&own[0]["to"], &own[0]["from"]), (&question["to"], &question["from"]));
        assert_eq!(own[1]["status"], "answered", "{id}: {own:?}");
    }
    let all = path.recorder.bodies("/route");
    let all: BTreeSet<_> = all.iter().map(|it| it["call_id"].as_str().unwrap()).collect();
    assert_eq!(all.len(), ids().len(), "different calls have different ids");

    // Users that are not numbers reach the default destination.
    for user in ["alice", "", "a%22%5c"] {
        let id = format!("default-{}@h", user.len());
        let (_, invite) = path.call(user, &id, "");
        assert!(invite.starts_with("INVITE sip:default@"), "{invite}");
    }
}

#[test]
fn forged_requests_are_neither_forwarded_nor_reported() {
    let _alone = alone();
    let path = Path::new();
    let (port, trunk, gateway) = (path.kamailio.port, &path.trunk, &path.gateway);
    let uri = format!("sip:+19005551234@{}", gateway.address);
    // A Route header from an earlier call proves nothing about another call or another caller.
    let (call, _) = path.call("+18885550100", "real@h", "");
    let own = format!("Route: {}\r\n", call.route);
    let plain = format!("Route: <sip:127.0.0.1:{port};lr>\r\n");
    let on = format!("Route: <sip:127.0.0.1:{port};lr=on;rw=00>\r\n");
    let injection = "forged\",\"to\":\"+18885550100\",\"from\":\"+15005550006\",\"status\":\"answered\",\
                     \"talk_seconds\":600,\"x\":\"y";
    let mut at = 0;
    for (more, caller, id) in [
        (&plain, FROM, "forged@h"),
        (&plain, FROM, injection),
        (&plain, FROM, "real@h"),
        (&on, FROM, "real@h"),
        (&own, FROM, "forged@h"),
        (&own, FROM, injection),
        (&own, "<sip:a@x>;tag=other", "real@h"),
        (&String::new(), FROM, "real@h"),
    ] {
        for method in ["BYE", "INVITE", "UPDATE", "REFER", "MESSAGE", "ACK"] {
            at += 1;
            let branch = format!("f{at}");
            let to = "<sip:b@y>;tag=made-up";
            let ask =
                Request { method, uri: &uri, call: id, branch: &branch, from: caller, to, more };
            trunk.request(port, &ask);
            let is_there = gateway.hears(method, id);
            assert_eq!(is_there, None, "{method} {more} {caller}");
            if method != "ACK" {
                let (status, answer) = trunk.status(id);
                assert!((400..500).contains(&status), "{answer}");
                trunk.request(port, &Request { method: "ACK", to: header(&answer, "To"), ..ask });
            }
        }
    }
    assert_eq!(path.ends(), 0, "{:?}", path.recorder.bodies("/status"));

    // An address that is not in the list is refused, even with the right headers.
    let stranger = Peer::new("127.0.0.2");
    for (method, to, id) in [("BYE", call.to.as_str(), "real@h"), ("INVITE", "<sip:b@y>", "new@h")]
    {
        let ask = Request { method, uri: &uri, call: id, branch: id, from: FROM, to, more: &own };
        stranger.request(port, &ask);
        assert_eq!(stranger.status(id).0, 403);
        assert_eq!(gateway.hears(method, id), None);
    }
    assert_eq!((path.ends(), path.recorder.bodies("/route").len()), (0, 1));

    // A first INVITE cannot choose the hops after the gateway.
    let hop = format!("Route: <sip:127.0.0.1:{port};lr>, <sip:127.0.0.1:9;lr>\r\n");
    let (_, invite) = path.call("+18885550100", "preloaded@h", &hop);
    assert_eq!(header(&invite, "Route"), "", "{invite}");

    // The real call can still end.
    path.of_caller("BYE", &call, "end");
    gateway.wait_for("BYE ", "real@h");
    assert_eq!(path.recorder.wait(1, "ended")[0]["call_id"], "real@h");
}

#[test]
fn another_invite_of_either_side_is_forwarded_and_is_no_new_answer() {
    let _alone = alone();
    let path = Path::new();
    let (port, trunk, gateway) = (path.kamailio.port, &path.trunk, &path.gateway);
    let (call, _) = path.call("+18885550100", "real@h", "");
    path.of_caller("INVITE", &call, "again");
    let again = gateway.wait_for("INVITE ", "real@h");
    gateway.answer(port, &again, "200 OK", "");
    trunk.wait_for("SIP/2.0 200", "real@h");
    path.of_caller("ACK", &call, "again-ack");
    gateway.wait_for("ACK ", "real@h");
    path.of_callee("INVITE", &call, "back");
    let back = trunk.wait_for("INVITE ", "real@h");
    trunk.answer(port, &back, "200 OK", "");
    gateway.wait_for("SIP/2.0 200", "real@h");
    path.of_callee("ACK", &call, "back-ack");
    trunk.wait_for("ACK ", "real@h");
    assert_eq!(path.ends(), 0);
    path.of_callee("BYE", &call, "end");
    let bye = trunk.wait_for("BYE ", "real@h");
    trunk.answer(port, &bye, "200 OK", "");
    assert_eq!(path.recorder.wait(1, "ended")[0]["call_id"], "real@h");
    sleep(Duration::from_millis(200));
    let reports = path.recorder.bodies("/status");
    let events: Vec<_> = reports.iter().map(|it| it["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["answered", "ended"], "{reports:?}");
}
