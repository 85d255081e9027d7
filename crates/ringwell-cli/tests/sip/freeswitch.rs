//! Tests a real `FreeSWITCH` with `deploy/freeswitch.xml`. `SIPp` acts as both the callers and the
//! destinations.
//!
//! Debian has no `FreeSWITCH` package. Set `RINGWELL_FREESWITCH` to the path of the program, which
//! must have at least the modules in `MODULES`. Tested with 1.10.12, sofia-sip 1.13.17 and spandsp
//! 0d2e6ac.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::asterisk::with_sound;
use super::phone::{Phone, SECRET};
use super::proxy::{ANSWERS, BUSY, Callee, GIVES_UP, REFUSED, RINGS, TALK, calls, logged_calls};
use super::support::server::Server;
use super::support::site::{Pool, Site, TOKEN};
use super::{SWITCH, alone, free_port, is_up, logged, sipp, visitors};

const DIALPLAN: &str = include_str!("../../../../deploy/freeswitch.xml");
/// The dialplan that the switch uses if the server sends none.
const FALLBACK: &str = "<context name=\"from-trunk\"><extension name=\"default\"><condition>\
                        <action application=\"bridge\" \
                        data=\"sofia/gateway/carrier/+18005550100\"/>\
                        </condition></extension></context>";
const MODULES: [&str; 7] =
    ["logfile", "sofia", "dialplan_xml", "dptools", "commands", "curl", "xml_curl"];
const FOLDERS: [&str; 6] = ["conf", "log", "db", "run", "htdocs", "scripts"];

/// A running `FreeSWITCH`, which is killed when the test ends.
struct FreeSwitch {
    child: Child,
    port: u16,
}

fn parameters(all: &[(&str, &str)]) -> String {
    let one = |text: String, (name, value): &(&str, &str)| {
        text + &format!("<param name=\"{name}\" value=\"{value}\"/>\n")
    };
    all.iter().fold(String::new(), one)
}

/// Returns the complete configuration. `carrier` is the port to which the switch sends calls for
/// telephone numbers.
fn document(port: u16, carrier: u16, bindings: &str, dialplan: &str) -> String {
    let modules = format!("<load module=\"mod_{}\"/>", MODULES.join("\"/><load module=\"mod_"));
    let carrier = format!("127.0.0.1:{carrier}");
    let gateway = parameters(&[
        ("proxy", &carrier),
        ("realm", &carrier),
        ("username", "ringwell"),
        ("password", "none"),
        ("register", "false"),
        ("caller-id-in-from", "true"),
    ]);
    let profile = parameters(&[
        ("sip-ip", "127.0.0.1"),
        ("rtp-ip", "127.0.0.1"),
        ("sip-port", &port.to_string()),
        // Only UDP is used, because the port may be in use for TCP.
        ("bind-params", "transport=udp"),
        ("context", "from-trunk"),
        ("dialplan", "XML"),
        ("auth-calls", "false"),
        ("inbound-codec-prefs", "PCMU"),
        ("outbound-codec-prefs", "PCMU"),
        ("rtp-timer-name", "soft"),
    ]);
    format!(
        "<document type=\"freeswitch/xml\">\n<section name=\"configuration\">\n\
         <configuration name=\"modules.conf\"><modules>{modules}</modules></configuration>\n\
         <configuration name=\"switch.conf\"><settings>\n\
         <param name=\"sessions-per-second\" value=\"1000\"/></settings></configuration>\n\
         <configuration name=\"logfile.conf\"><profiles><profile name=\"default\">\n\
         <mappings><map name=\"all\" value=\"debug,info,notice,warning,err,crit,alert\"/>\n\
         </mappings></profile></profiles></configuration>\n\
         <configuration name=\"curl.conf\"><settings/></configuration>\n\
         <configuration name=\"xml_curl.conf\"><bindings>{bindings}</bindings></configuration>\n\
         <configuration name=\"sofia.conf\"><profiles><profile name=\"trunk\">\n\
         <gateways><gateway name=\"carrier\">{gateway}</gateway></gateways>\n\
         <settings>{profile}</settings></profile></profiles></configuration>\n\
         </section>\n<section name=\"dialplan\">{dialplan}</section>\n</document>\n"
    )
}

impl FreeSwitch {
    /// Starts the switch with `deploy/freeswitch.xml`, in which the first text of each pair in
    /// `changes` is replaced with the second.
    fn start(folder: &Path, carrier: u16, changes: &[(&str, String)]) -> Self {
        let mut dialplan = DIALPLAN.to_owned();
        for (from, to) in changes {
            assert!(dialplan.contains(from), "the configuration has no {from}");
            dialplan = dialplan.replace(from, to);
        }
        let dialplan = dialplan.split_once("<include>").unwrap().1.replace("</include>", "");
        Self::run(&folder.join(format!("freeswitch-{carrier}")), carrier, "", &dialplan)
    }

    /// Starts a switch that requests a dialplan from `server` for each call, as docs/spec/sip.md
    /// describes.
    fn asking(folder: &Path, carrier: u16, server: &str) -> Self {
        let url = format!("http://{server}/v1/freeswitch/dialplan?gateway=carrier");
        let binding = parameters(&[
            ("gateway-url\" bindings=\"dialplan", &url),
            ("gateway-credentials", &format!("ringwell:{TOKEN}")),
            ("auth-scheme", "basic"),
            ("timeout", "1"),
        ]);
        let bindings = format!("<binding name=\"ringwell\">{binding}</binding>");
        Self::run(&folder.join("freeswitch-asking"), carrier, &bindings, FALLBACK)
    }

    fn run(folder: &Path, carrier: u16, bindings: &str, dialplan: &str) -> Self {
        let program = PathBuf::from(std::env::var_os("RINGWELL_FREESWITCH").unwrap());
        let port = free_port();
        for part in FOLDERS {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let text = document(port, carrier, bindings, dialplan);
        fs::write(folder.join("conf/freeswitch.xml"), text).unwrap();
        let mut command = Command::new(&program);
        command.args(["-nonat", "-nf", "-nc", "-nort"]);
        for part in FOLDERS {
            command.arg(format!("-{part}")).arg(folder.join(part));
        }
        let said = fs::File::create(folder.join("said")).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap();
        let switch = Self { child, port };
        switch.wait(folder);
        switch
    }

    /// Waits until the switch answers OPTIONS.
    fn wait(&self, folder: &Path) {
        let said = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let all = || said("said") + &said("log/freeswitch.log");
        assert!(is_up(self.port), "FreeSWITCH has not started: {}", all());
    }
}

impl Drop for FreeSwitch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks the logged calls of the switch that gets its dialplan from the server.
fn check_asked(server: &Server, shown: &BTreeMap<String, (u64, String)>, count: usize) {
    let asked: Vec<_> =
        logged_calls(server).into_iter().filter(|call| call["account"] == "sip").collect();
    assert_eq!(asked.len(), count);
    for call in asked {
        let visitor = &shown[call["to"].as_str().unwrap()].1;
        let call = logged(server, call["id"].as_str().unwrap());
        assert_eq!(call["attribution"]["parameters"]["id"], **visitor, "{call:#}");
    }
}

fn block_first_caller(server: &Server) {
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("authorization", authorization.as_str())];
    let body = r#"{"caller":"+14155550000","answer":"busy"}"#;
    assert_eq!(server.client().post("/v1/blocks", &headers, body).unwrap().status, 201);
}

#[test]
#[ignore = "needs a FreeSWITCH, which Debian does not have: RINGWELL_FREESWITCH names its program"]
fn freeswitch_connects_each_call_and_reports_its_end() {
    let _alone = alone();
    let folder = tempfile::TempDir::new().unwrap();
    let pools = vec![Pool::new(1, 100, Duration::from_mins(10))];
    let site = Site::new(pools, SWITCH);
    Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let changes = [
        ("127.0.0.1:8080/", format!("{}/", server.address())),
        ("127.0.0.1:8090/", format!("{}/", Phone::at(&server).address())),
        ("Bearer TOKEN", format!("Bearer {TOKEN}")),
        ("Bearer SECRET", format!("Bearer {SECRET}")),
    ];
    let shown = visitors(&server, &site, 60);
    let numbers: Vec<_> = shown.keys().cloned().collect();
    let to_caller = |scenario: &str| with_sound(scenario, "INVITE");
    let check = |calls_made: usize, of: &[String], outcome: &str| {
        let calls = calls(&server, calls_made);
        let mine = calls.values().filter(|it| of.iter().any(|number| it["to"] == **number));
        let mine: Vec<_> = mine.collect();
        assert_eq!(mine.len(), of.len());
        for call in mine {
            assert_eq!(call["outcome"], outcome, "{call:#}");
            assert_eq!(call["destination"], "+18005551001", "{call:#}");
            let visitor = &shown[call["to"].as_str().unwrap()].1;
            let call = logged(&server, call["id"].as_str().unwrap());
            assert_eq!(call["attribution"]["parameters"]["id"], **visitor, "{call:#}");
            let talked = call["talk_seconds"].as_u64().unwrap_or_default();
            let wanted = if outcome == "answered" { 1..=3 } else { 0..=0 };
            assert!(wanted.contains(&talked), "{call:#}");
        }
    };

    // These destinations answer.
    let answers = Callee::start(folder.path(), "answers", &with_sound(ANSWERS, "SIP/2.0 200 OK"));
    let switch = FreeSwitch::start(folder.path(), answers.port, &changes);
    let talk = to_caller(TALK);
    let call = |name: &str, numbers: &[String]| {
        sipp(folder.path(), (name, &talk), switch.port, numbers, "10")
    };
    assert_eq!(call("talk", &numbers[..40]).len(), 40);
    check(40, &numbers[..40], "answered");
    let refused = |status: &str| to_caller(&REFUSED.replace("STATUS", status));

    // Some destinations are busy, and others ring until the caller gives up.
    let busy = Callee::start(folder.path(), "busy", BUSY);
    let busy_switch = FreeSwitch::start(folder.path(), busy.port, &changes);
    sipp(folder.path(), ("busies", &refused("486")), busy_switch.port, &numbers[40..50], "10");
    check(50, &numbers[40..50], "busy");
    let rings = Callee::start(folder.path(), "rings", RINGS);
    let ringing_switch = FreeSwitch::start(folder.path(), rings.port, &changes);
    let gives_up = to_caller(GIVES_UP);
    sipp(folder.path(), ("gives_up", &gives_up), ringing_switch.port, &numbers[50..60], "10");
    check(60, &numbers[50..60], "caller_gave_up");

    // This switch gets its dialplan from the server. It does not report the end of calls.
    let asking = FreeSwitch::asking(folder.path(), answers.port, server.address());
    sipp(folder.path(), ("asking", &talk), asking.port, &numbers[50..55], "10");
    check_asked(&server, &shown, 5);

    // `switch` and `asking` also refuse a blocked caller. The caller of the first number is
    // +14155550000.
    block_first_caller(&server);
    sipp(folder.path(), ("blocked", &refused("486")), switch.port, &numbers[..1], "10");
    sipp(folder.path(), ("also_blocked", &refused("486")), asking.port, &numbers[..1], "10");

    // If the server is down, callers are still connected.
    server.kill();
    assert_eq!(call("alone", &numbers[10..34]).len(), 24);
    sipp(folder.path(), ("asking_alone", &talk), asking.port, &numbers[34..40], "10");
    let log = folder.path().join("answers.log");
    assert_eq!(answers.end(folder.path(), "answers"), 75);
    let log = fs::read_to_string(log).unwrap();
    let called = |number: &str| log.lines().filter(|line| line.ends_with(number)).count();
    assert_eq!((called("18005551001"), called("+18005550100")), (45, 30), "{log}");
}
