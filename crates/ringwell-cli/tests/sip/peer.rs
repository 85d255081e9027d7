//! SIP messages written by hand, for requests that `SIPp` does not send, and an HTTP server that
//! records what Kamailio sends to Ringwell.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The time after which a message that should not arrive counts as absent.
const SILENCE: Duration = Duration::from_millis(200);
/// The time to wait for a message: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// One end of calls: a trunk, a gateway, or a stranger.
pub(super) struct Peer {
    socket: UdpSocket,
    pub(super) address: String,
}

/// The parts of a request that differ between tests.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) uri: &'a str,
    pub(super) call: &'a str,
    /// The branch of the Via header, which distinguishes transactions.
    pub(super) branch: &'a str,
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    /// Further headers, each with its line end.
    pub(super) more: &'a str,
}

impl Peer {
    pub(super) fn new(ip: &str) -> Self {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        Self { socket, address }
    }

    pub(super) fn send(&self, port: u16, message: &str) {
        self.socket.send_to(message.as_bytes(), ("127.0.0.1", port)).unwrap();
    }

    pub(super) fn request(&self, port: u16, it: &Request<'_>) {
        let (Request { method, uri, call, branch, from, to, more }, own) = (it, &self.address);
        let message = format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{branch}\r\n{more}\
             From: {from}\r\nTo: {to}\r\nCall-ID: {call}\r\nCSeq: 7 {method}\r\n\
             Contact: <sip:peer@{own}>\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
        );
        self.send(port, &message);
    }

    /// Answers `request` with `status`. Adds `tag` to its To header if it has none.
    pub(super) fn answer(&self, port: u16, request: &str, status: &str, tag: &str) {
        let mut lines = vec![format!("SIP/2.0 {status}")];
        for line in request.lines() {
            let name = line.split(':').next().unwrap();
            if ["Via", "Record-Route", "From", "Call-ID", "CSeq"].contains(&name) {
                lines.push(line.to_owned());
            } else if name == "To" {
                let tag = if line.contains(";tag=") { "" } else { tag };
                lines.push(format!("{line}{tag}"));
            }
        }
        lines.push(format!("Contact: <sip:peer@{}>", self.address));
        let message = format!("{}\r\nContent-Length: 0\r\n\r\n", lines.join("\r\n"));
        self.send(port, &message);
    }

    fn next(&self, start: &str, call: &str, patience: Duration) -> Option<String> {
        let until = Instant::now() + patience;
        let mut bytes = [0; 8192];
        while Instant::now() < until {
            let Ok(length) = self.socket.recv(&mut bytes) else { continue };
            let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if message.starts_with(start) && header(&message, "Call-ID") == call {
                return Some(message);
            }
        }
        None
    }

    /// Waits for a message in the call that begins with `start`. Skips all others.
    pub(super) fn wait_for(&self, start: &str, call: &str) -> String {
        let message = self.next(start, call, PATIENCE);
        message.unwrap_or_else(|| panic!("no {start:?} of the call {call}"))
    }

    /// Waits for the final answer to a call's request, and returns its status.
    pub(super) fn status(&self, call: &str) -> (u16, String) {
        loop {
            let message = self.wait_for("SIP/2.0 ", call);
            let status = message[8..11].parse().unwrap();
            if status >= 200 {
                return (status, message);
            }
        }
    }

    /// Returns the first message in the call that arrives within a short time.
    pub(super) fn hears(&self, start: &str, call: &str) -> Option<String> {
        self.next(start, call, SILENCE)
    }
}

/// Returns the value of a header, or an empty string.
pub(super) fn header<'a>(message: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| {
        let (own, value) = line.split_once(':')?;
        (own == name).then(|| value.trim())
    };
    message.lines().find_map(value).unwrap_or_default()
}

/// An HTTP server in place of Ringwell. It sends every call to one destination, and records the
/// paths and bodies of all requests.
pub(super) struct Recorder {
    pub(super) address: String,
    heard: Arc<Mutex<Vec<(String, String)>>>,
}

impl Recorder {
    pub(super) fn start(contact: &str) -> Self {
        let answer = serde_json::json!({
            "call": "c_1", "contact": contact, "timeout": 30, "contacts": [contact],
        });
        Self::answering(&answer.to_string(), Duration::ZERO)
    }

    /// Answers each request with `answer` after `delay`.
    pub(super) fn answering(answer: &str, delay: Duration) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer, delay)
    }

    pub(super) fn on(listener: TcpListener, answer: &str, delay: Duration) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (answer, all) = (answer.to_owned(), Arc::clone(&heard));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, all) = (answer.clone(), Arc::clone(&all));
                thread::spawn(move || {
                    thread::sleep(delay);
                    serve(&stream.unwrap(), &answer, &all);
                });
            }
        });
        Self { address, heard }
    }

    /// Returns the bodies of all requests to paths that end in `ending`, without the query. Fails if
    /// one is not JSON.
    pub(super) fn bodies(&self, ending: &str) -> Vec<Value> {
        let heard = self.heard.lock().unwrap();
        let here =
            heard.iter().filter(|(path, _)| path.split('?').next().unwrap().ends_with(ending));
        here.map(|(_, body)| serde_json::from_str(body).expect(body)).collect()
    }

    /// Waits for the report of a call event, and returns its `call_id`.
    pub(super) fn wait(&self, count: usize, event: &str) -> Vec<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut all = self.bodies("/status");
            all.retain(|report| report["event"] == event);
            if all.len() >= count || Instant::now() > until {
                assert!(all.len() >= count, "{count} {event}: {all:?}");
                return all;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn serve(stream: &TcpStream, answer: &str, heard: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        let text = line.trim().to_ascii_lowercase();
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        } else if path.is_empty() {
            line.split(' ').nth(1).unwrap_or_default().clone_into(&mut path);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() || path.is_empty() {
        return;
    }
    heard.lock().unwrap().push((path, String::from_utf8_lossy(&body).into_owned()));
    let length = answer.len();
    let _ = write!(
        &*stream,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{answer}"
    );
}
