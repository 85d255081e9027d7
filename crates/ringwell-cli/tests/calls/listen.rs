//! `ringwell webhooks listen`, with requests from a real server and from unauthenticated clients.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};

use super::Switchboard;
use super::support::client::Client;
use super::support::server::{ringwell, signal};
use super::support::site::TOKEN;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A running `ringwell webhooks listen`. Killed when dropped.
struct Listening {
    child: Child,
    address: String,
}

impl Listening {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.strip_prefix("receiving webhooks on ");
        let address = address.and_then(|rest| rest.split(';').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }

    /// Waits until the command ends by itself, and returns all lines that it printed.
    fn lines(mut self) -> Vec<Value> {
        let stdout = BufReader::new(self.child.stdout.take().unwrap());
        let lines = stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let lines = lines.collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the same command with the default action for SIGHUP, even if the tests run under nohup.
fn without_nohup(command: &Command) -> Command {
    let mut usual = Command::new("env");
    usual.arg("--default-signal=HUP").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        usual.env(name, value);
    }
    usual
}

#[test]
fn webhooks_listen_registers_itself_and_prints_the_events_of_a_call() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let allowed = format!(
        "[calls.webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nallow_http = true\n\
         allow_ports = [{free}]\n"
    );
    let board = Switchboard::new(&allowed);
    let listen = |port: u16, more: &[&str]| {
        let mut command = ringwell(&["webhooks", "listen", "--register", "--json"]);
        command.env("RINGWELL_TOKEN", TOKEN).args(["--listen", &format!("127.0.0.1:{port}")]);
        command.args(["--url", &format!("http://{}", board.server.address())]).args(more);
        command
    };
    let refused = listen(0, &[]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("port"), "{said}");

    let types = ["--types", "call.started,call.completed", "--count", "2"];
    let listening = Listening::start(listen(free, &types));
    assert_eq!(board.get("/v1/webhooks").json()["endpoints"].as_array().unwrap().len(), 1);
    board.whole_call("CA1");
    let lines = listening.lines();
    let mut kinds: Vec<_> = lines.iter().map(|it| it["body"]["type"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["call.completed", "call.started"]);
    for line in &lines {
        assert_eq!((&line["verified"], &line["attempt"]), (&json!(true), &json!(1)), "{line}");
        assert_eq!(line["body"]["data"]["attribution"]["parameters"]["id"], "17");
    }
    let left = || board.get("/v1/webhooks").json()["endpoints"].as_array().unwrap().len();
    assert_eq!(left(), 0);

    // SIGHUP arrives when the terminal or the ssh session is closed.
    for name in ["INT", "TERM", "HUP"] {
        let mut listening = Listening::start(without_nohup(&listen(free, &[])));
        assert_eq!(left(), 1);
        signal(listening.child.id(), name);
        assert!(listening.child.wait().unwrap().success(), "SIG{name}");
        assert_eq!(left(), 0, "SIG{name}");
    }

    // If the server hangs, a second signal ends the command at once.
    let mut listening = Listening::start(listen(free, &[]));
    board.server.signal("STOP");
    let began = Instant::now();
    signal(listening.child.id(), "INT");
    std::thread::sleep(Duration::from_millis(500));
    assert!(listening.child.try_wait().unwrap().is_none());
    signal(listening.child.id(), "INT");
    let ended = listening.child.wait().unwrap();
    board.server.signal("CONT");
    assert_eq!(ended.code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn webhooks_listen_continues_under_nohup_when_its_terminal_is_closed() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, SECRET).unwrap();
    let listen = ringwell(&["webhooks", "listen", "--listen", "127.0.0.1:0", "--secret-file"]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(listen.get_program());
    command.args(listen.get_args()).arg(&file);
    let mut listening = Listening::start(command);
    signal(listening.child.id(), "HUP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(listening.child.try_wait().unwrap().is_none());
    signal(listening.child.id(), "TERM");
    assert!(listening.child.wait().unwrap().success());
}

#[test]
fn webhooks_listen_trusts_only_its_own_secrets() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n{SECRET}\n")).unwrap();
    let mut command = ringwell(&["webhooks", "listen", "--listen", "127.0.0.1:0", "--json"]);
    command.args(["--count", "2", "--answer", "202", "--secret-file"]).arg(&file);
    let listening = Listening::start(command);
    let mut client = Client::connect(&listening.address).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut send = |id: &str, seconds: u64, body: &str, sent: &str| {
        let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let code = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
        let headers = [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", format!("v1,{}", STANDARD.encode(code))),
        ];
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        client.post("/any/path", &headers, sent).unwrap().status
    };
    let body = r#"{"type":"webhook.test","data":{}}"#;
    assert_eq!(send("evt_1", now, body, body), 202);
    assert_eq!(send("evt_1", now, body, body), 202);
    assert_eq!(send("evt_2", now, body, &body.replace("test", "tesT")), 401);
    assert_eq!(send("evt_2", now - 400, body, body), 401);
    assert_eq!(send("evt.2", now, body, body), 401);
    let huge = "x".repeat((1 << 20) + 1);
    assert_eq!(send("evt_3", now, &huge, &huge), 413);
    let mut other = Client::connect(&listening.address).unwrap();
    assert_eq!(other.get("/", &[]).unwrap().status, 405);
    assert_eq!(other.post("/", &[], body).unwrap().status, 401);
    let mut last = Client::connect(&listening.address).unwrap();
    drop(other);
    let key = hmac::Key::new(
        hmac::HMAC_SHA256,
        &STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
    );
    let code = STANDARD.encode(hmac::sign(&key, format!("evt_4.{now}.{body}").as_bytes()));
    let (time, code) = (now.to_string(), format!("v1,{code}"));
    let headers =
        [("webhook-id", "evt_4"), ("webhook-timestamp", &time), ("webhook-signature", &code)];
    assert_eq!(last.post("/", &headers, body).unwrap().status, 202);
    let lines = listening.lines();
    let verified: Vec<_> = lines.iter().map(|line| line["verified"].as_bool().unwrap()).collect();
    assert_eq!(verified, [true, true, false, false, false, false, true], "{lines:#?}");
    assert_eq!(lines[1]["attempt"], 2);
    assert!(lines[3]["reason"].as_str().unwrap().contains("400 s"), "{}", lines[3]);
    assert!(lines[2].get("body").is_none());
}

#[test]
fn webhooks_listen_prints_the_source_of_its_secret() {
    let command = || ringwell(&["webhooks", "listen", "--listen", "127.0.0.1:0"]);
    let output = command().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--secret-file"), "{said}");
}
