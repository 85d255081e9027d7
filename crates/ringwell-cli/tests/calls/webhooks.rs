//! Webhooks that the server sends to receivers that fail, hang or reset connections.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};

use super::Switchboard;
use super::phone::Phone;
use super::phone::Provider;
use super::support::client::HttpAnswer;
use super::support::server::Server;
use super::support::site::TOKEN;

const PATIENCE: Duration = Duration::from_secs(30);

/// Maps a request's index to the HTTP status of the answer. `None` makes the receiver hang.
type Behaviour = fn(usize) -> Option<u16>;

/// A webhook receiver. While it hangs, it sends nothing until the sender gives up.
struct Receiver {
    port: u16,
    got: Arc<Mutex<Vec<Delivery>>>,
}

/// One request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    pub(crate) status: Option<u16>,
    pub(crate) at: Instant,
}

impl Receiver {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let got: Arc<Mutex<Vec<Delivery>>> = Arc::default();
        let (all, count) = (Arc::clone(&got), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (all, count) = (Arc::clone(&all), Arc::clone(&count));
                thread::spawn(move || serve(stream, behaviour, &all, &count));
            }
        });
        Self { port, got }
    }

    fn got(&self) -> Vec<Delivery> {
        self.got.lock().unwrap().clone()
    }

    /// Waits until `count` events have been received, and returns them.
    fn taken(&self, count: usize) -> Vec<Delivery> {
        let until = Instant::now() + PATIENCE;
        loop {
            let taken: Vec<_> =
                self.got().into_iter().filter(|it| it.status == Some(200)).collect();
            let names: std::collections::BTreeSet<_> =
                taken.iter().map(|it| it.headers["webhook-id"].clone()).collect();
            if names.len() >= count {
                return taken;
            }
            assert!(Instant::now() < until, "{} of {count} events: {:#?}", names.len(), self.got());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Reads the headers of a request, with names in lower case, and its body. Returns `None` if the
/// request ends too early.
pub(crate) fn read_request(
    reader: &mut BufReader<TcpStream>,
) -> Option<(BTreeMap<String, String>, String)> {
    let (mut headers, mut line) = (BTreeMap::new(), String::new());
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((headers, String::from_utf8(body).ok()?))
}

fn serve(
    stream: TcpStream,
    behaviour: Behaviour,
    all: &Mutex<Vec<Delivery>>,
    count: &AtomicUsize,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (headers, body) = read_request(&mut reader)?;
    let status = behaviour(count.fetch_add(1, Ordering::Relaxed));
    all.lock().unwrap().push(Delivery { headers, body, status, at: Instant::now() });
    let Some(status) = status else {
        thread::sleep(PATIENCE);
        return None;
    };
    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).ok()
}

/// Starts a switchboard that may send webhooks to these receivers.
fn board(receivers: &[&Receiver]) -> Switchboard {
    let ports: Vec<String> = receivers.iter().map(|it| it.port.to_string()).collect();
    let allowed = format!(
        "[calls.webhooks]\nallow_networks = [\"127.0.0.0/8\"]\nallow_http = true\n\
         allow_ports = [{}]\n",
        ports.join(", ")
    );
    Switchboard::new(&allowed)
}

impl Switchboard {
    pub(crate) fn manage(&self, path: &str, body: &Value) -> HttpAnswer {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.server.client().post(path, &headers, &body.to_string()).unwrap()
    }

    /// Creates an endpoint. Returns its id and secret.
    fn endpoint(&self, receiver: &Receiver) -> (String, String) {
        let url = format!("http://127.0.0.1:{}/in", receiver.port);
        let made = self.manage("/v1/webhooks", &json!({ "url": url, "company_key": "company" }));
        assert_eq!(made.status, 201, "{}", made.body);
        let made = made.json();
        (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
    }

    /// Makes a complete call, from ringing to the end.
    pub(crate) fn whole_call(&self, name: &str) {
        let number = self.visitor("17");
        self.call_of(name, number);
    }

    pub(crate) fn call_of(&self, name: &str, number: u64) {
        let twilio = Provider::twilio(&self.phone);
        let ring = format!("CallSid={name}&From=%2B14155551234&To=%2B1{number}");
        assert_eq!(twilio.post("/t/main/answer", &ring).status, 200);
        let done = format!("CallSid={name}&DialCallStatus=completed&DialCallDuration=5");
        assert_eq!(twilio.post("/t/main/dial?leg=0&last=1", &done).status, 200);
    }
}

/// Returns whether `delivery` is signed according to the Standard Webhooks specification. Does not
/// use the server's code.
pub(crate) fn is_signed(delivery: &Delivery, secret: &str) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let (id, time) = (&delivery.headers["webhook-id"], &delivery.headers["webhook-timestamp"]);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let code = hmac::sign(&key, format!("{id}.{time}.{}", delivery.body).as_bytes());
    let wanted = format!("v1,{}", STANDARD.encode(code));
    delivery.headers["webhook-signature"].split(' ').any(|one| one == wanted)
}

/// Verifies `deliveries` with the Standard Webhooks libraries for Python and JavaScript, if
/// `cargo xtask telephony` has installed them.
pub(crate) fn verified_by_libraries(deliveries: &[Delivery], secret: &str) {
    let Some(home) = std::env::var_os("RINGWELL_TELEPHONY") else { return };
    let (home, here) = (Path::new(&home), Path::new(env!("CARGO_MANIFEST_DIR")));
    let scripts = here.join("../../clients/telephony");
    let lines: Vec<String> = deliveries
        .iter()
        .map(|it| json!({ "secret": secret, "headers": it.headers, "body": it.body }).to_string())
        .collect();
    let mut python = Command::new(home.join("python/bin/python"));
    python.arg(scripts.join("verify.py"));
    let mut node = Command::new("node");
    node.arg(scripts.join("verify.mjs")).arg(home.join("node"));
    for mut command in [python, node] {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.trim(), format!("{} verified", lines.len()));
    }
}

#[test]
fn every_event_arrives_signed_at_a_receiver_that_fails() {
    // Every third request fails. Five seconds after a failure, the server sends the event again
    // with the same id.
    let receiver = Receiver::start(|count| Some(if count % 3 == 2 { 500 } else { 200 }));
    let board = board(&[&receiver]);
    let (_, secret) = board.endpoint(&receiver);
    board.whole_call("CA1");
    board.whole_call("CA2");
    let taken = receiver.taken(6);
    for delivery in receiver.got() {
        assert!(is_signed(&delivery, &secret), "{delivery:#?}");
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"company");
        let company = STANDARD.encode(hmac::sign(&key, delivery.body.as_bytes()));
        assert_eq!(delivery.headers["signature"], company);
    }
    let mut kinds: Vec<String> = taken
        .iter()
        .map(|it| serde_json::from_str::<Value>(&it.body).unwrap()["type"].to_string())
        .collect();
    kinds.sort();
    assert_eq!(kinds.iter().filter(|kind| *kind == "\"call.completed\"").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "\"call.started\"").count(), 2);
    verified_by_libraries(&taken, &secret);
    let call = board.call("CA1", |_| true);
    assert!(call["timeline"].as_array().unwrap().iter().any(|line| line["kind"] == "webhook"));
}

#[test]
fn a_failed_delivery_says_why() {
    let answers = Receiver::start(|_| Some(503));
    let board = board(&[&answers]);
    board.endpoint(&answers);
    board.whole_call("CA1");
    let reason = "the endpoint answered 503";
    let until = Instant::now() + PATIENCE;
    loop {
        let call = board.call("CA1", |_| true);
        let lines = call["timeline"].as_array().unwrap().iter();
        let sent: Vec<_> = lines.filter(|line| line["kind"] == "webhook").collect();
        if sent.len() == 3 && sent.iter().all(|line| line["reason"] == reason) {
            break;
        }
        assert!(Instant::now() < until, "{call:#}");
        thread::sleep(Duration::from_millis(20));
    }
    let shown = board.get("/v1/webhooks").json();
    assert_eq!(shown["endpoints"][0]["reason"], reason, "{shown:#}");
}

#[test]
fn a_hanging_endpoint_delays_no_other() {
    let (hangs, well) = (Receiver::start(|_| None), Receiver::start(|_| Some(200)));
    let board = board(&[&hangs, &well]);
    let _ = board.endpoint(&hangs);
    let (_, secret) = board.endpoint(&well);
    let number = board.visitor("17");
    let began = Instant::now();
    for call in 0..20 {
        board.call_of(&format!("CA{call}"), number);
    }
    let taken = well.taken(60);
    assert!(taken.iter().all(|it| is_signed(it, &secret)));
    let last = taken.iter().map(|it| it.at).max().unwrap();
    assert!(last - began < Duration::from_secs(10), "{:?}", last - began);
    // At most ten requests may wait for the hanging receiver at once.
    assert!(hangs.got().len() <= 10, "{}", hangs.got().len());
}

#[test]
fn after_kill_9_every_event_arrives() {
    let receiver = Receiver::start(|count| Some(if count < 10 { 503 } else { 200 }));
    let board = board(&[&receiver]);
    let (_, secret) = board.endpoint(&receiver);
    let number = board.visitor("17");
    for call in 0..10 {
        board.call_of(&format!("CA{call}"), number);
    }
    let Switchboard { site, server, .. } = board;
    server.kill();
    let server = Server::start(site.serve(&[]));
    let board = Switchboard { phone: Phone::at(&server), site, server };
    let taken = receiver.taken(30);
    assert!(taken.iter().all(|it| is_signed(it, &secret)));
    let calls = board.get("/v1/calls").json();
    assert_eq!(calls["calls"].as_array().unwrap().len(), 10);
}

#[test]
fn endpoints_are_made_tested_rotated_replayed_and_removed() {
    let receiver = Receiver::start(|_| Some(200));
    let board = board(&[&receiver]);
    for url in ["http://127.0.0.1:1/", "https://10.0.0.1/", "https://me:secret@example.com/", "x"] {
        let refused = board.manage("/v1/webhooks", &json!({ "url": url }));
        assert_eq!(refused.status, 400, "{url}: {}", refused.body);
    }
    board.whole_call("CA1");
    let (id, secret) = board.endpoint(&receiver);
    let path = |what: &str| format!("/v1/webhooks/{id}/{what}");
    assert_eq!(board.manage(&path("test"), &json!({})).status, 202);
    assert!(receiver.taken(1)[0].body.contains("webhook.test"));
    // Events that are older than the endpoint can be sent, too.
    let replayed = board.manage(&path("replays"), &json!({ "only": "all" })).json();
    assert_eq!(replayed["deliveries"], 3);
    receiver.taken(4);
    let new = board.manage(&path("secret"), &json!({})).json();
    assert_eq!(board.manage(&path("test"), &json!({})).status, 202);
    let last = receiver.taken(5).pop().unwrap();
    assert!(is_signed(&last, &secret) && is_signed(&last, new["secret"].as_str().unwrap()));
    // A third secret can be added, but a fourth is refused.
    assert_eq!(board.manage(&path("secret"), &json!({})).status, 200);
    assert_eq!(board.manage(&path("test"), &json!({})).status, 202);
    let last = receiver.taken(6).pop().unwrap();
    assert!(is_signed(&last, &secret) && is_signed(&last, new["secret"].as_str().unwrap()));
    let refused = board.manage(&path("secret"), &json!({}));
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("three secrets are already in use: the oldest expires at 20"));
    let shown = board.get("/v1/webhooks").json();
    assert_eq!(shown["endpoints"][0]["state"], "enabled");
    assert_eq!(shown["endpoints"][0]["reason"], Value::Null);
    assert!(!shown.to_string().contains("whsec_"));
    for (what, body) in [("replays", json!({ "only": "x" })), ("replays", json!({ "x": 1 }))] {
        assert_eq!(board.manage(&path(what), &body).status, 400, "{body}");
    }
    assert_eq!(board.manage("/v1/webhooks/we_none/test", &json!({})).status, 404);
}
