//! Runs every case of `fixtures/api/` against the real program over a socket.
//!
//! Each case has its own server, so that each pool begins with its first numbers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test reports failures by panicking"
)]

#[path = "../../ringwell-wire/tests/cases/mod.rs"]
mod cases;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cases::{Case, Request};
use tempfile::TempDir;

/// The time limit for a server's startup and for an answer. It suffices even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// There are two shards, so that batches also gather rows from another shard. The journal is on
/// disk, as by default. The deadline is long because test machines may be slow, and no expected
/// answer depends on the deadline.
const CONFIGURATION: &str = "shards = 2\ndeadline = \"10s\"\n[journal]\nsegment_bytes = \"1MiB\"\n";

#[test]
fn every_case_is_answered_as_its_files_say() {
    let faults: Vec<String> = cases::all().iter().flat_map(run).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn run(case: &Case) -> Vec<String> {
    let server = Server::start(case);
    let exchange = |(turn, (request, wanted)): (usize, &(Request, cases::Response))| {
        let name = format!("{} {}", case.name, turn + 1);
        let answer = server.ask(request);
        cases::compare(&name, wanted, answer.status, |name| answer.header(name), &answer.body)
    };
    case.exchanges.iter().enumerate().flat_map(exchange).collect()
}

/// A running program and its files. Dropping this value kills the program and removes the files.
struct Server {
    program: Child,
    port: u16,
    files: TempDir,
}

struct HttpAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Server {
    fn start(case: &Case) -> Self {
        let files = TempDir::new().unwrap();
        // This port is free now, and another program is unlikely to take it before the server does.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = files.path().join("ringwell.toml");
        let listen = format!("data = \"data\"\nlisten = [\"127.0.0.1:{port}\"]\n");
        let settings = case.settings.clone().unwrap_or_default();
        let configuration = [&listen, CONFIGURATION, &settings, &cases::pools()].concat();
        std::fs::write(&path, configuration).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwell"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RINGWELL_")) {
            command.env_remove(name);
        }
        command.envs(case.environment.iter().map(|(name, value)| (name, value)));
        command.arg("serve").arg("--config").arg(&path);
        // The program's output matters only if it does not start.
        let log = std::fs::File::create(files.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let program = command.spawn().unwrap();
        let mut server = Self { program, port, files };
        server.wait(&case.name);
        server
    }

    fn wait(&mut self, case: &str) {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || std::fs::read_to_string(self.files.path().join("log")).unwrap_or_default();
            if let Some(status) = self.program.try_wait().unwrap() {
                panic!("{case}: the server ended, {status}\n{}", log());
            }
            assert!(started.elapsed() < PATIENCE, "{case}: the server did not start\n{}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn ask(&self, request: &Request) -> HttpAnswer {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
        for (name, value) in &request.headers {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        if !request.body.is_empty() || request.method == "POST" {
            bytes.extend(format!("content-length: {}\r\n", request.body.len()).into_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&request.body);
        socket.write_all(&bytes).unwrap();
        HttpAnswer::read(BufReader::new(socket), &request.method)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing the program does no harm, because its files are removed as well.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl HttpAnswer {
    fn read(mut from: impl BufRead, method: &str) -> Self {
        let mut line = || {
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let first = line();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {first:?}"));
        let has_body = method != "HEAD" && status != 204;
        let lines = std::iter::from_fn(|| Some(line()).filter(|line| !line.is_empty()));
        let header = |line: String| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        };
        let headers: Vec<_> = lines.map(header).collect();
        let mut answer = Self { status, headers, body: Vec::new() };
        // An answer to HEAD contains the length of a body that is not sent.
        if has_body {
            let length = answer.header("content-length").expect("answers have a length");
            answer.body.resize(length.parse().unwrap(), 0);
            from.read_exact(&mut answer.body).unwrap();
        }
        answer
    }

    fn header(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }
}
