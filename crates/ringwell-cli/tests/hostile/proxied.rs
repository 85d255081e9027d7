//! Sends the hostile requests through a real `HAProxy`, which sends requests from different clients
//! over the same connection to the server. No client's bytes may affect answers to other clients.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::raw::{Vector, start};
use super::support::batch::BULK;
use super::support::client::{Client, HttpAnswer};
use super::support::server::{Server, ringwell};
use super::support::site::{Pool, Site};
use super::{bodies, framing, heads};

const SOON: Duration = Duration::from_secs(30);

/// A proxy in front of one server, as `ringwell haproxy` configures it. Killed when dropped.
struct Proxy {
    child: Child,
    address: String,
    folder: TempDir,
}

impl Proxy {
    /// Starts the proxy. Returns `None` if `HAProxy` is missing.
    fn start(site: &Site, server: &Server) -> Option<Self> {
        let runs =
            |path: &&str| Command::new(path).arg("-v").stdout(Stdio::null()).status().is_ok();
        let Some(haproxy) = ["haproxy", "/usr/sbin/haproxy"].into_iter().find(runs) else {
            eprintln!("SKIPPED: HAProxy is not installed; `apt-get install haproxy` does so");
            return None;
        };
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let map = format!(
            "version = 1\nsecret = \"the-secret-of-this-cluster\"\n[[node]]\nname = \"a\"\n\
             shards = [0]\nlink = \"unix:{}\"\nlisten = [\"{}\"]\n",
            path("a.link"),
            server.address()
        );
        fs::write(path("cluster.toml"), map).unwrap();
        // This port is free now, and the proxy will bind it shortly.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let made = ringwell(&["haproxy", "--cluster", &path("cluster.toml"), "--bind", &address])
            .args(["--stats-socket", &path("admin.sock"), "--config"])
            .arg(site.config())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let text = String::from_utf8(made.stdout).unwrap();
        // The lines that set a user and a group are removed, because only root can switch users.
        let mine = |line: &&str| !["    user haproxy", "    group haproxy"].contains(line);
        let text: Vec<&str> = text.lines().filter(mine).collect();
        fs::write(path("haproxy.cfg"), text.join("\n") + "\n").unwrap();
        let child = Command::new(haproxy)
            .args(["-db", "-f", &path("haproxy.cfg")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(path("haproxy.log")).unwrap())
            .spawn()
            .unwrap();
        let proxy = Self { child, address, folder };
        let until = Instant::now() + SOON;
        // Sends a batch without rows, because the proxy does not forward requests for metrics and
        // health.
        while proxy.ask("{}").is_none_or(|answer| answer.status != 403) {
            let log = || fs::read_to_string(proxy.folder.path().join("haproxy.log"));
            assert!(Instant::now() < until, "the proxy does not reach the server: {:?}", log());
            thread::sleep(Duration::from_millis(20));
        }
        Some(proxy)
    }

    fn ask(&self, body: &str) -> Option<HttpAnswer> {
        Client::connect(&self.address).ok()?.post(BULK, &[], body).ok()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // An error is ignored, because it means that the proxy has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that another client gets two numbers on a separate connection.
fn check_bystander(proxy: &Proxy, pool: &Pool, after: &str, place: usize) {
    let mut client = Client::connect(&proxy.address).unwrap();
    for turn in 0..2 {
        let id = format!("bystander-{place}-{turn}");
        let row = format!(r#"{{"api_suffix":"{}","request_id":"{id}"}}"#, pool.suffix("a=1"));
        let answer = client.post(BULK, &[], &format!(r#"{{"requests":[{row}]}}"#));
        let answer = answer.unwrap_or_else(|error| panic!("after {after:?}: {error}"));
        let json = answer.json();
        let rows = json["responses"].as_array().map_or(0, Vec::len);
        let own = rows == 1 && json["responses"][0]["request_id"] == id.as_str();
        assert!(
            own && json["responses"][0]["promo_number"].is_string(),
            "after {after:?}: {answer:?}"
        );
    }
}

/// Returns the status of the first answer, or `None` if none has arrived yet.
fn status(stream: &mut TcpStream) -> Option<u16> {
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut bytes = [0; 64];
    match stream.read(&mut bytes) {
        Ok(length) => String::from_utf8_lossy(&bytes[..length]).split(' ').nth(1)?.parse().ok(),
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::InvalidInput);
            None
        }
    }
}

#[test]
fn requests_through_the_proxy_never_affect_other_clients_answers() {
    let (site, server) = start("limits.connections = 400");
    let Some(proxy) = Proxy::start(&site, &server) else { return };
    let pool = &site.pools[0];
    let vectors: Vec<Vector> = [
        framing::lengths(pool),
        framing::codings(pool),
        framing::chunked_bodies(pool),
        framing::unread_chunks(),
        heads::fields(),
        heads::request_lines(),
        heads::paths_and_methods(),
        bodies::refused_batches(),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(vectors.len() > 100, "{}", vectors.len());
    // The streams stay open, so that an incomplete request may still be in transit while other
    // clients are served.
    let mut hostile = Vec::new();
    for (place, vector) in vectors.iter().enumerate() {
        let mut stream = TcpStream::connect(&proxy.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        // An error is ignored, because the proxy may close the connection before everything is
        // sent.
        let _ = stream.write_all(&vector.bytes);
        check_bystander(&proxy, pool, vector.name, place);
        hostile.push(stream);
    }
    let statuses: Vec<_> = hostile.iter_mut().map(status).collect();
    let count = |wanted: u16| statuses.iter().filter(|status| **status == Some(wanted)).count();
    // The proxy or the server must refuse some of the requests and accept others.
    assert!(count(400) > 30 && count(200) > 5, "{statuses:?}");
    assert_eq!(count(500) + count(502), 0, "{statuses:?}");
}
