//! A blocking HTTP/1.1 client with one persistent connection and one request at a time.

use std::fmt::Debug;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

/// The time limit for each read and each write, in all tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// A persistent connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write + Debug + Send {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// A complete answer.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    /// The header fields, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl HttpAnswer {
    /// Returns the body as JSON, or `null` if the body is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    }
}

impl Client {
    /// Connects to `address`, which is `HOST:PORT` or `unix:PATH`.
    pub(crate) fn connect(address: &str) -> io::Result<Self> {
        if let Some(path) = address.strip_prefix("unix:") {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            return Ok(Self { stream: BufReader::new(Box::new(stream)) });
        }
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<HttpAnswer> {
        self.send(request("GET", path, headers, "").as_bytes())?;
        self.receive()
    }

    pub(crate) fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<HttpAnswer> {
        self.send(request("POST", path, headers, body).as_bytes())?;
        self.receive()
    }

    /// Sends raw bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one answer.
    pub(crate) fn receive(&mut self) -> io::Result<HttpAnswer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("status {status_line:?}")))?;
        let mut answer = HttpAnswer { status, headers: Vec::new(), body: String::new() };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = answer.header("content-length").and_then(|length| length.parse().ok());
        let length = length.or((status == 204).then_some(0));
        let mut body = vec![0; length.ok_or_else(|| io::Error::other("no content-length"))?];
        self.stream.read_exact(&mut body)?;
        answer.body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok(answer)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if line.ends_with("\r\n") {
            line.truncate(line.len() - 2);
            return Ok(line);
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Returns the text of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let more: String =
        headers.iter().flat_map(|(name, value)| [name, ": ", value, "\r\n"]).collect();
    let length = match method {
        "POST" | "PUT" => format!("content-length: {}\r\n", body.len()),
        _ => String::new(),
    };
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}{length}\r\n{body}")
}
