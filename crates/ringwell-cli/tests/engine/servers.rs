//! nats-servers on this machine, for tests.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringwell_config::Replicated;
use serde_json::Value;
use tempfile::TempDir;

use crate::net::Net;
use crate::support::server::signal;

/// The time limit for servers to find each other.
const PATIENCE: Duration = Duration::from_mins(1);

/// The NATS subject at which the test's client receives answers.
const INBOX: &str = "_INBOX.test";

/// One to three servers. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Nats {
    folder: TempDir,
    /// The nats-server program. `other` is the program of another release, if there is one.
    program: PathBuf,
    other: Option<PathBuf>,
    servers: Vec<One>,
}

#[derive(Debug)]
struct One {
    child: Option<Child>,
    is_other_release: bool,
    host: String,
    clients: u16,
    monitor: u16,
    config: PathBuf,
    store: PathBuf,
    /// The command, with its arguments, that runs the server on another host.
    within: Vec<OsString>,
}

/// The location and the configuration of the servers.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) count: usize,
    /// A setting of JetStream.
    pub(crate) setting: &'a str,
    /// Further lines of the configuration.
    pub(crate) guard: &'a str,
    /// The network whose first hosts run the servers.
    pub(crate) net: Option<&'a Net>,
    /// The folder of each server's store.
    pub(crate) stores: &'a [PathBuf],
}

impl Default for Layout<'_> {
    /// Returns the layout of three servers that flush each message.
    fn default() -> Self {
        Self { count: 3, setting: "sync_interval: always", guard: "", net: None, stores: &[] }
    }
}

impl Nats {
    /// Starts `count` servers that flush each message. Returns `None` if nats-server is missing.
    pub(crate) fn start(count: usize) -> Option<Self> {
        Self::start_with(count, "sync_interval: always")
    }

    /// Starts `count` servers with `setting` in their JetStream configuration.
    pub(crate) fn start_with(count: usize, setting: &str) -> Option<Self> {
        Self::start_in(&Layout { count, setting, ..Layout::default() })
    }

    /// Starts `count` servers that flush each message, with the additional configuration lines
    /// `guard`.
    pub(crate) fn start_guarded(count: usize, guard: &str) -> Option<Self> {
        Self::start_in(&Layout { count, guard, ..Layout::default() })
    }

    /// Starts servers with the given layout. Returns `None` if nats-server is missing.
    pub(crate) fn start_in(layout: &Layout<'_>) -> Option<Self> {
        let Layout { count, setting, guard, net, stores } = *layout;
        let program = program()?;
        let folder = TempDir::new().unwrap();
        let ports: Vec<[u16; 3]> = (0..count).map(|_| free_ports()).collect();
        let host = |index| net.map_or_else(|| "127.0.0.1".to_owned(), |net| net.address(index));
        let route =
            |(index, [.., route]): (usize, &[u16; 3])| format!("nats://{}:{route}", host(index));
        let routes: Vec<String> = ports.iter().enumerate().map(route).collect();
        let one = |(index, &[clients, monitor, route]): (usize, &[u16; 3])| {
            let own = || folder.path().join(format!("store{index}"));
            let store = stores.get(index).map_or_else(own, |store| store.join("store"));
            let host = host(index);
            let cluster = if count == 1 {
                String::new()
            } else {
                format!("cluster {{ name: rw, listen: \"{host}:{route}\", routes: {routes:?} }}\n")
            };
            let config = folder.path().join(format!("{index}.conf"));
            let text = format!(
                "server_name: n{index}\nlisten: \"{host}:{clients}\"\n\
                 http: \"{host}:{monitor}\"\nmax_payload: 2MB\n\
                 jetstream {{ store_dir: {:?}, max_file_store: 4GB, {setting} }}\n{guard}{cluster}",
                store.display().to_string()
            );
            fs::write(&config, text).unwrap();
            let outer = net.map(|net| net.on(index, &Command::new("true")));
            let within = outer.map_or_else(Vec::new, |outer| {
                let words = [outer.get_program()].into_iter().chain(outer.get_args());
                words.filter(|word| *word != "true").map(OsString::from).collect()
            });
            One {
                child: None,
                is_other_release: false,
                host,
                clients,
                monitor,
                config,
                store,
                within,
            }
        };
        let servers = ports.iter().enumerate().map(one).collect();
        let other = std::env::var_os("RINGWELL_OTHER_NATS").map(PathBuf::from);
        let mut nats = Self { folder, program, other, servers };
        (0..count).for_each(|index| nats.begin(index));
        nats.wait_until_ready();
        Some(nats)
    }

    fn begin(&mut self, index: usize) {
        let log = fs::File::create(self.folder.path().join(format!("{index}.log"))).unwrap();
        let One { within, config, is_other_release, .. } = &self.servers[index];
        let other = self.other.as_ref().filter(|_| *is_other_release);
        let program = other.unwrap_or(&self.program).as_os_str();
        let words: Vec<&OsStr> = within.iter().map(OsString::as_os_str).chain([program]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("-c").arg(config);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.servers[index].child = Some(child);
    }

    /// Makes server `index` run the other release after its next start. A second call switches back
    /// to the first release.
    pub(crate) fn change_release(&mut self, index: usize) {
        let one = &mut self.servers[index];
        one.is_other_release = !one.is_other_release;
    }

    pub(crate) fn wait_until_ready(&self) {
        let until = Instant::now() + PATIENCE;
        let is_ready = |one: &One| {
            let page = get((&one.host, one.monitor), "/healthz");
            page.is_some_and(|page| page["status"] == "ok")
        };
        while !self.servers.iter().all(is_ready) {
            assert!(Instant::now() < until, "the servers are not ready: {self:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the settings for a node whose journals are on these servers.
    pub(crate) fn settings(&self) -> String {
        let of = |scheme: &str, port: fn(&One) -> u16| {
            let one = |server: &One| format!("{scheme}://{}:{}", server.host, port(server));
            self.servers.iter().map(one).collect::<Vec<_>>()
        };
        format!(
            "journal.engine = \"nats\"\njournal.servers = {:?}\njournal.monitor = {:?}\n\
             journal.replicas = {}\njournal.stream_bytes = \"512MiB\"\n",
            of("nats", |one| one.clients),
            of("http", |one| one.monitor),
            self.servers.len()
        )
    }

    /// Returns the settings for a client that uses only the first server.
    pub(crate) fn replicated(&self, stream: &str) -> Replicated {
        let of = |scheme: &str, one: &One, port: u16| format!("{scheme}://{}:{port}", one.host);
        let monitor = self.servers.iter().map(|one| of("http", one, one.monitor)).collect();
        let first = &self.servers[0];
        Replicated {
            servers: vec![of("nats", first, first.clients)],
            monitor,
            stream: stream.to_owned(),
            replicas: u32::try_from(self.servers.len()).unwrap(),
            stream_bytes: 1 << 30,
            ..Replicated::default()
        }
    }

    /// Publishes a message that Ringwell did not write.
    pub(crate) fn publish(&self, subject: &str, body: &str) {
        let One { host, clients, .. } = &self.servers[0];
        let mut server = TcpStream::connect((host.as_str(), *clients)).unwrap();
        let text = format!(
            "CONNECT {{\"verbose\":false}}\r\nPUB {subject} {}\r\n{body}\r\nPING\r\n",
            body.len()
        );
        server.write_all(text.as_bytes()).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut answer = Vec::new();
        let mut block = [0; 4096];
        while !answer.windows(4).any(|bytes| bytes == b"PONG") {
            let got = server.read(&mut block).unwrap();
            assert!(got > 0, "the server closed the connection");
            answer.extend_from_slice(&block[..got]);
        }
    }

    /// Makes a stream elect another server as its leader.
    pub(crate) fn step_down(&self, stream: &str) {
        self.publish(&format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}"), "");
    }

    /// Changes a setting of a stream, as an operator does.
    pub(crate) fn change_stream(&self, stream: &str, setting: &str, value: impl Into<Value>) {
        let leader = &self.servers[self.leader(stream)];
        let mut config =
            stream_of((&leader.host, leader.monitor), stream).unwrap()["config"].clone();
        config[setting] = value.into();
        self.publish(&format!("$JS.API.STREAM.UPDATE.{stream}"), &config.to_string());
    }

    /// Changes the configuration of all servers while they run, as an operator does.
    pub(crate) fn reconfigure(&self, change: impl Fn(&str) -> String) {
        for one in &self.servers {
            let text = fs::read_to_string(&one.config).unwrap();
            fs::write(&one.config, change(&text)).unwrap();
        }
        self.signal_all("HUP");
    }

    pub(crate) fn has_stream(&self, stream: &str) -> bool {
        self.servers.iter().any(|one| stream_of((&one.host, one.monitor), stream).is_some())
    }

    /// Returns the metadata of a stream, as text.
    pub(crate) fn notes(&self, stream: &str) -> String {
        let found = self.servers.iter().find_map(|one| stream_of((&one.host, one.monitor), stream));
        found.unwrap()["config"]["metadata"].to_string()
    }

    pub(crate) fn signal_all(&self, name: &str) {
        for child in self.servers.iter().filter_map(|one| one.child.as_ref()) {
            signal(child.id(), name);
        }
    }

    /// Kills the server that leads a stream. Returns the server's index.
    pub(crate) fn kill_leader(&mut self, stream: &str) -> usize {
        let index = self.leader(stream);
        self.kill(index);
        index
    }

    /// Returns the index of the server that leads a stream.
    pub(crate) fn leader(&self, stream: &str) -> usize {
        let until = Instant::now() + PATIENCE;
        loop {
            let alive = self.servers.iter().filter(|one| one.child.is_some());
            let leader = { alive }.find_map(|one| leader_of((&one.host, one.monitor), stream));
            let index = leader.and_then(|name| name.strip_prefix('n')?.parse().ok());
            if let Some(index) = index {
                return index;
            }
            assert!(Instant::now() < until, "{stream} has no leader");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the server to which Ringwell is connected.
    pub(crate) fn connected(&self) -> usize {
        let is_connected = |one: &One| {
            let page = get((&one.host, one.monitor), "/connz").unwrap();
            let clients = page["connections"].as_array().unwrap();
            clients.iter().any(|client| client["name"] == "ringwell")
        };
        self.servers.iter().position(is_connected).unwrap()
    }

    /// Returns the count of messages in a stream.
    pub(crate) fn messages(&self, stream: &str) -> u64 {
        let state = self.servers.iter().find_map(|one| stream_of((&one.host, one.monitor), stream));
        state.unwrap()["state"]["messages"].as_u64().unwrap()
    }

    /// Returns whether every server has all messages of these streams.
    pub(crate) fn are_in_step(&self, streams: &[&str]) -> bool {
        streams.iter().all(|stream| {
            let leader = &self.servers[self.leader(stream)];
            let Some(state) = stream_of((&leader.host, leader.monitor), stream) else {
                return false;
            };
            let replicas = state["cluster"]["replicas"].as_array();
            let others = replicas.map_or(0, |all| {
                all.iter().filter(|it| it["current"] == true && it["lag"].is_null()).count()
            });
            others + 1 == self.servers.len()
        })
    }

    /// Returns the sequence number of a stream's first message, and the stream's size in bytes.
    pub(crate) fn first_and_bytes(&self, stream: &str) -> (u64, u64) {
        let state = self.servers.iter().find_map(|one| stream_of((&one.host, one.monitor), stream));
        let state = &state.unwrap()["state"];
        (state["first_seq"].as_u64().unwrap(), state["bytes"].as_u64().unwrap())
    }

    /// Returns the folder in which a server keeps its streams.
    pub(crate) fn store(&self, index: usize) -> &Path {
        &self.servers[index].store
    }

    pub(crate) fn pid(&self, index: usize) -> u32 {
        self.servers[index].child.as_ref().unwrap().id()
    }

    /// Stops a server gracefully, so that it hands over the streams that it leads.
    pub(crate) fn stop(&mut self, index: usize) {
        if let Some(mut child) = self.servers[index].child.take() {
            signal(child.id(), "TERM");
            let _ = child.wait();
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.servers[index].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn kill_all(&mut self) {
        (0..self.servers.len()).for_each(|index| self.kill(index));
    }

    /// Starts a killed server. If no other server is down, waits until all servers are ready.
    pub(crate) fn restart(&mut self, index: usize) {
        self.begin(index);
        if self.servers.iter().all(|one| one.child.is_some()) {
            self.wait_until_ready();
        }
    }
}

/// A blocking client of one server, without Ringwell's code.
pub(crate) struct NatsClient(BufReader<TcpStream>);

impl NatsClient {
    /// Appends message `n` to a stream. The stream's last message must be `n - 1`. Returns the
    /// answer.
    pub(crate) fn append(&mut self, stream: &str, n: u64, body: &[u8]) -> String {
        let subject = format!("{}.groups", stream.to_lowercase());
        let headers = format!(
            "NATS/1.0\r\nNats-Expected-Stream: {stream}\r\n\
             Nats-Expected-Last-Sequence: {}\r\n\r\n",
            n - 1
        );
        let all = headers.len() + body.len();
        let head = format!("HPUB {subject} {INBOX} {} {all}\r\n{headers}", headers.len());
        self.answer_to(&[head.as_bytes(), body, b"\r\n"].concat())
    }

    /// Publishes a message from a stream once more, as a program that copies messages would.
    pub(crate) fn publish_again(&mut self, stream: &str, place: u64) {
        let request = format!("{{\"seq\":{place}}}");
        let get = format!("$JS.API.STREAM.MSG.GET.{stream}");
        let found: Value = serde_json::from_str(&self.ask(&get, request.as_bytes())).unwrap();
        let message = STANDARD.decode(found["message"]["data"].as_str().unwrap()).unwrap();
        self.ask(&format!("{}.groups", stream.to_lowercase()), &message);
    }

    fn ask(&mut self, subject: &str, body: &[u8]) -> String {
        let head = format!("PUB {subject} {INBOX} {}\r\n", body.len());
        self.answer_to(&[head.as_bytes(), body, b"\r\n"].concat())
    }

    fn answer_to(&mut self, message: &[u8]) -> String {
        self.0.get_mut().write_all(message).unwrap();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed the connection");
            if line.starts_with("PING") {
                self.0.get_mut().write_all(b"PONG\r\n").unwrap();
            }
            assert!(!line.starts_with("-ERR"), "{line}");
            if line.starts_with("MSG") {
                let length: usize = line.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
                let mut answer = vec![0; length + 2];
                self.0.read_exact(&mut answer).unwrap();
                return String::from_utf8(answer).unwrap();
            }
        }
    }
}

impl Nats {
    pub(crate) fn client(&self) -> NatsClient {
        let One { host, clients, .. } = &self.servers[0];
        let mut server = TcpStream::connect((host.as_str(), *clients)).unwrap();
        server.set_nodelay(true).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\nSUB {INBOX} 1\r\n");
        server.write_all(hello.as_bytes()).unwrap();
        NatsClient(BufReader::new(server))
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Finds the nats-server program: the one that the variable `NATS_SERVER` names, or else one on the
/// `PATH`.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let program = named.unwrap_or_else(|| "nats-server".into());
    let version = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    match version {
        Ok(output) if output.status.success() => Some(program),
        _ => {
            eprintln!("skipped: there is no nats-server (`cargo xtask engine` gets one)");
            None
        }
    }
}

/// Returns ports that are free now.
fn free_ports() -> [u16; 3] {
    let bound = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    bound.map(|listener| listener.local_addr().unwrap().port())
}

/// Returns the name of the server that leads `stream`, according to the server at `monitor`.
fn leader_of(monitor: (&str, u16), stream: &str) -> Option<String> {
    stream_of(monitor, stream)?["cluster"]["leader"].as_str().map(str::to_owned)
}

/// Returns the state of `stream`, according to the server at `monitor`.
fn stream_of(monitor: (&str, u16), stream: &str) -> Option<Value> {
    let page = get(monitor, "/jsz?streams=true&config=true&accounts=true")?;
    let accounts = page["account_details"].as_array()?;
    let mut streams = accounts.iter().filter_map(|it| it["stream_detail"].as_array()).flatten();
    streams.find(|it| it["name"] == stream).cloned()
}

fn get(monitor: (&str, u16), path: &str) -> Option<Value> {
    let mut server = TcpStream::connect(monitor).ok()?;
    server.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    write!(server, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    server.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// Returns the configuration in a Kubernetes manifest.
fn of_kubernetes(manifest: &str) -> String {
    let (_, rest) = manifest.split_once("journal.conf: |\n").unwrap();
    let lines = rest.lines().take_while(|line| line.starts_with("    "));
    lines.map(str::trim_start).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_programs_read_the_configurations_of_deploy() {
    let Some(program) = program() else { return };
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats");
    let read = |name: &str| fs::read_to_string(format!("{deploy}/{name}")).unwrap();
    let of_pod = of_kubernetes(&read("kubernetes.yaml"));
    let texts = ["journal-1.conf", "journal-2.conf", "journal-3.conf"].map(read);
    let folder = TempDir::new().unwrap();
    for text in texts.iter().chain([&of_pod]) {
        assert!(text.contains("sync_interval: always") && text.contains("max_payload: 2MB"));
        let file = folder.path().join("journal.conf");
        fs::write(&file, text).unwrap();
        let mut check = Command::new(&program);
        check.arg("-t").arg("-c").arg(&file).env("POD_NAME", "journal-0");
        let output = check.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // Checks that the servers' configurations differ only in the server's own name and addresses.
    let plain = |text: &str, n: usize| {
        let settings = text.lines().filter(|line| !line.starts_with('#'));
        let settings = settings.collect::<Vec<_>>().join("\n");
        let own = settings.replace(&format!("journal-{n} "), "journal-N ");
        own.replace(&format!(": \"10.0.0.{n}:"), ": \"10.0.0.N:")
    };
    assert_eq!(plain(&texts[0], 1), plain(&texts[1], 2));
    assert_eq!(plain(&texts[0], 1), plain(&texts[2], 3));
}
