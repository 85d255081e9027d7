//! Tests a real Asterisk with `deploy/asterisk-extensions.conf`. `SIPp` acts as both the callers
//! and the destinations.
//!
//! Debian 12 has no Asterisk package, but Debian 11 and sid do. Set `RINGWELL_ASTERISK` to the path
//! of a folder with an installation, which root can create with
//! `debootstrap --variant=minbase --include=asterisk bullseye FOLDER`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::phone::{Phone, SECRET};
use super::proxy::{ANSWERS, Callee, REFUSED, TALK, calls};
use super::support::server::Server;
use super::support::site::{Pool, Site, TOKEN};
use super::{SWITCH, free_port, logged, sipp, visitors, whole_seconds};

const EXTENSIONS: &str = include_str!("../../../../deploy/asterisk-extensions.conf");
/// The directory of the configuration, within the folder that `RINGWELL_ASTERISK` names.
const PLACE: &str = "/tmp/ringwell";
const DESCRIPTION: &str = "Content-Type: application/sdp\nContent-Length: [len]\n\nv=0\n\
                           o=- 1 1 IN IP4 [local_ip]\ns=-\nc=IN IP4 [local_ip]\nt=0 0\n\
                           m=audio [media_port] RTP/AVP 0\na=rtpmap:0 PCMU/8000\n";

/// Adds a description of the audio (SDP) to `message` in the scenario. Without one, Asterisk
/// accepts no call.
pub(super) fn with_sound(scenario: &str, message: &str) -> String {
    let at = scenario.find(message).unwrap();
    let (before, rest) = scenario.split_at(at);
    format!("{before}{}", rest.replacen("Content-Length: 0\n", DESCRIPTION, 1))
}

/// A running Asterisk, which is killed when the test ends.
struct Asterisk {
    child: Child,
    port: u16,
}

impl Asterisk {
    /// Starts Asterisk. It sends calls for telephone numbers to the port `carrier`.
    fn start(root: &Path, carrier: u16, changes: &[(&str, String)]) -> Self {
        let (folder, port) = (root.join(&PLACE[1..]), free_port());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let mut folders = "[directories]\n".to_owned();
        for name in ["etcdir", "varlibdir", "dbdir", "spooldir", "rundir", "logdir"] {
            writeln!(folders, "ast{name} => {PLACE}").unwrap();
        }
        write("asterisk.conf", &folders);
        let mut modules = "[modules]\nautoload=yes\n".to_owned();
        for name in ["chan_sip", "chan_iax2", "chan_skinny", "chan_unistim", "pbx_dundi"] {
            writeln!(modules, "noload={name}.so").unwrap();
        }
        write("modules.conf", &modules);
        write("logger.conf", "[logfiles]\nfull => notice,warning,error,verbose(4)\n");
        let endpoint = "type=endpoint\ndisallow=all\nallow=ulaw\ndirect_media=no\n";
        write(
            "pjsip.conf",
            &format!(
                "[transport]\ntype=transport\nprotocol=udp\nbind=127.0.0.1:{port}\n\
                 [trunk]\n{endpoint}context=from-trunk\n\
                 [trunk]\ntype=identify\nendpoint=trunk\nmatch=127.0.0.1\n\
                 [carrier]\ntype=aor\ncontact=sip:127.0.0.1:{carrier}\n\
                 [carrier]\n{endpoint}aors=carrier\n"
            ),
        );
        let mut text = EXTENSIONS.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "the configuration has no {from}");
            text = text.replace(from, to);
        }
        write("extensions.conf", &text);
        let child = Command::new("chroot")
            .arg(root)
            .args(["asterisk", "-f", "-n", "-C", &format!("{PLACE}/asterisk.conf")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_mins(1);
        let log = folder.join("full");
        while !fs::read_to_string(&log).unwrap_or_default().contains("Asterisk Ready") {
            assert!(Instant::now() < until, "Asterisk has not started: see {}", log.display());
            sleep(Duration::from_millis(100));
        }
        Self { child, port }
    }
}

impl Drop for Asterisk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs an Asterisk, which Debian 12 does not have: RINGWELL_ASTERISK names its folder"]
fn asterisk_connects_each_call_and_reports_its_end() {
    let root = PathBuf::from(std::env::var_os("RINGWELL_ASTERISK").expect("RINGWELL_ASTERISK"));
    let folder = tempfile::TempDir::new().unwrap();
    let answers = Callee::start(folder.path(), "answers", &with_sound(ANSWERS, "SIP/2.0 200 OK"));
    let pools = vec![Pool::new(1, 60, Duration::from_mins(10))];
    let site = Site::new(pools, SWITCH);
    Phone::write_secrets(&site);
    let server = Server::start(site.serve(&[]));
    let changes = |server: &Server| {
        [
            ("http://127.0.0.1:8080/", format!("http://{}/", server.address())),
            ("http://127.0.0.1:8090/", format!("http://{}/", Phone::at(server).address())),
            ("ringwell:TOKEN", format!("ringwell:{TOKEN}")),
            ("ringwell:SECRET", format!("ringwell:{SECRET}")),
        ]
    };
    let asterisk = Asterisk::start(&root, answers.port, &changes(&server));
    let shown = visitors(&server, &site, 40);
    let numbers_shown: Vec<_> = shown.keys().cloned().collect();
    let talk = with_sound(TALK, "INVITE");
    let call = |name: &str, numbers: &[String]| {
        sipp(folder.path(), (name, &talk), asterisk.port, numbers, "10")
    };
    assert_eq!(call("talk", &numbers_shown).len(), 40);
    let most = whole_seconds(folder.path(), "talk");
    for (name, call) in calls(&server, 40) {
        assert_eq!(call["outcome"], "answered", "{name}: {call:#}");
        let seconds = call["talk_seconds"].as_u64().unwrap();
        let most = most[call["to"].as_str().unwrap()];
        assert!((1..=most).contains(&seconds), "{name}, {most} seconds: {call:#}");
        assert_eq!(call["destination"], "+18005551001", "{name}: {call:#}");
        let visitor = &shown[call["to"].as_str().unwrap()].1;
        let id = call["id"].as_str().unwrap();
        let call = logged(&server, id);
        assert_eq!(call["attribution"]["parameters"]["id"], **visitor, "{call:#}");
    }
    // The server recognizes spellings of numbers. Other users go to the default destination.
    let spelled = |number: &String| format!("+1-{}.{}", &number[2..5], &number[5..]);
    let odd: Vec<_> = numbers_shown[30..34].iter().map(spelled).collect();
    assert_eq!(call("spelled", &odd).len(), 4);
    // Parameters in the user part, or in the caller's address, must not add anything to Asterisk's
    // request.
    let parameters = talk.replacen("INVITE sip:[field0]@", "INVITE sip:[field0];npdi=yes@", 1);
    let parameters = parameters.replacen("<sip:[field1]@", "<sip:a&to=1&call_id=2@", 1);
    sipp(folder.path(), ("npdi", &parameters), asterisk.port, &numbers_shown[34..36], "10");
    let spelled: BTreeSet<_> =
        calls(&server, 46).values().map(|call| call["to"].as_str().unwrap().to_owned()).collect();
    assert!(spelled.iter().all(|to| numbers_shown.contains(to)), "{spelled:?}");
    assert_eq!(call("users", &["alice".to_owned(), "busier".to_owned()]).len(), 2);

    // Asterisk also refuses a blocked caller. The caller of the first number is +14155550000.
    let authorization = format!("Bearer {TOKEN}");
    let body = r#"{"caller":"+14155550000","answer":"busy"}"#;
    let headers = [("authorization", authorization.as_str())];
    assert_eq!(server.client().post("/v1/blocks", &headers, body).unwrap().status, 201);
    let busy = with_sound(&REFUSED.replace("STATUS", "486"), "INVITE");
    sipp(folder.path(), ("blocked", &busy), asterisk.port, &numbers_shown[..1], "10");

    // If the server is down, callers are still connected.
    server.kill();
    assert_eq!(call("alone", &numbers_shown[20..30]).len(), 10);
    assert_eq!(answers.end(folder.path(), "answers"), 58);
}
