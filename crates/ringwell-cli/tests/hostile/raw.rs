//! Sends raw bytes to the server, and reads its answers without a client library.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::metrics;
use super::support::batch::BULK;
use super::support::client::request;
use super::support::server::Server;
use super::support::site::{Pool, Site};

/// The time limit for an answer. It suffices even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The status line and the header fields, as received.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|field| field.1)
    }
}

/// A connection that can send any bytes.
#[derive(Debug)]
pub(crate) struct Raw {
    stream: BufReader<TcpStream>,
}

impl Raw {
    pub(crate) fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes. Ignores errors: if the server has closed the connection, the attempt to read
    /// the answer shows this.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Sends all bytes. Fails if the server closes the connection before then.
    pub(crate) fn must_send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn end_of_sending(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Reads the next answer. Returns `None` if the connection ends instead.
    pub(crate) fn reply(&mut self, has_body: bool) -> Option<Reply> {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            match self.stream.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    assert!(ended(&error), "neither an answer nor an end: {error}");
                    return None;
                }
            }
            if line == "\r\n" {
                break;
            }
            head += &line;
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let mut reply = Reply { status, head, body: String::new() };
        let length = reply.header("content-length").map_or(0, |text| text.parse().unwrap());
        if has_body && status >= 200 {
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).unwrap();
            reply.body = String::from_utf8(body).unwrap();
        }
        Some(reply)
    }

    /// Reads until the connection ends. Returns the number of bytes read.
    pub(crate) fn rest(&mut self) -> usize {
        let mut rest = 0;
        let mut buffer = [0; 8192];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return rest,
                Ok(bytes) => rest += bytes,
                Err(error) => {
                    assert!(ended(&error), "the connection is still open: {error}");
                    return rest;
                }
            }
        }
    }
}

/// Returns whether `error` means that the connection ended, and not that the read timed out.
fn ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// The expected state of the connection after the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The server answers the next request on the connection.
    Kept,
    /// The server closes the connection without sending another byte.
    Closed,
}

/// A test vector: a request that is invalid or looks invalid, and the expected answer.
#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) statuses: &'static [u16],
    /// A text that the head or body of the last answer must contain.
    pub(crate) says: &'static str,
    pub(crate) then: Then,
}

/// Creates a vector after which the connection must stay open.
pub(crate) fn kept(
    name: &'static str,
    bytes: impl Into<Vec<u8>>,
    statuses: &'static [u16],
    says: &'static str,
) -> Vector {
    Vector { name, bytes: bytes.into(), statuses, says, then: Then::Kept }
}

/// Creates a vector after which the server must close the connection.
pub(crate) fn closed(
    name: &'static str,
    bytes: impl Into<Vec<u8>>,
    statuses: &'static [u16],
    says: &'static str,
) -> Vector {
    Vector { name, bytes: bytes.into(), statuses, says, then: Then::Closed }
}

/// Creates a vector with a head that the HTTP library must refuse. The library must answer 400
/// without a body, and then close the connection.
pub(crate) fn malformed(name: &'static str, bytes: impl Into<Vec<u8>>) -> Vector {
    closed(name, bytes, &[400], "connection: close")
}

/// Creates a site with one large pool, and starts its server.
pub(crate) fn start(settings: &str) -> (Site, Server) {
    let pools = vec![Pool::new(1, 5_000, Duration::from_mins(30))];
    let site = Site::new(pools, &format!("durability = \"memory\"\n{settings}"));
    let server = Server::start(site.serve(&[]));
    (site, server)
}

/// Returns the body of a one-row batch that gets a number.
pub(crate) fn good_body(pool: &Pool) -> String {
    format!(r#"{{"requests":[{{"api_suffix":"{}","request_id":"A"}}]}}"#, pool.suffix("m1=autos"))
}

/// Returns a request with a one-row batch that gets a number.
pub(crate) fn good(pool: &Pool) -> String {
    request("POST", BULK, &[], &good_body(pool))
}

/// Sends every vector on a separate connection. Fails with a list of the unexpected results.
pub(crate) fn check(server: &Server, pool: &Pool, vectors: &[Vector]) {
    let faults: Vec<String> =
        vectors.iter().filter_map(|vector| run(server, pool, vector).err()).collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), vectors.len(), faults.join("\n"));
}

fn run(server: &Server, pool: &Pool, vector: &Vector) -> Result<(), String> {
    let Vector { name, bytes, statuses, says, then } = vector;
    let mut raw = Raw::connect(server);
    raw.send(bytes);
    let has_body = !bytes.starts_with(b"HEAD ");
    let mut last = String::new();
    for wanted in *statuses {
        let Some(reply) = raw.reply(has_body) else {
            return Err(format!("{name}: closed instead of {wanted}"));
        };
        last = format!("{}{}", reply.head, reply.body);
        if reply.status != *wanted {
            return Err(format!("{name}: expected {wanted}, not {last}"));
        }
    }
    if !last.contains(says) {
        return Err(format!("{name}: {says:?} is not in {last}"));
    }
    match then {
        Then::Closed => {
            if raw.rest() > 0 {
                return Err(format!("{name}: more than {statuses:?} was answered"));
            }
        }
        Then::Kept => {
            raw.send(good(pool).as_bytes());
            let status = raw.reply(true).map(|reply| reply.status);
            if status != Some(200) {
                return Err(format!("{name}: the next request on it got {status:?}"));
            }
        }
    }
    let mut fresh = server.client();
    match fresh.send(good(pool).as_bytes()).and_then(|()| fresh.receive()) {
        Ok(answer) if answer.body.contains("promo_number") => Ok(()),
        other => Err(format!("{name}: the next connection got {other:?}")),
    }
}

/// Waits until the connection that reads the metrics is the only open one.
pub(crate) fn wait_until_nobody_is_connected(server: &Server) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let open = metrics::sum(server, "ringwell_connections");
        if open == 1 {
            return;
        }
        assert!(Instant::now() < until, "{open} connections are still open");
        std::thread::sleep(Duration::from_millis(5));
    }
}
