//! The destinations of batches: endpoints over TCP or unix sockets, and connections to them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::num::{IntErrorKind, ParseIntError};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mio::Interest;
use mio::event::Source;

/// The time limit for opening a connection before the measurement starts.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// One endpoint: `http://HOST:PORT`, `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(TargetAddress);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetAddress {
    Tcp(String),
    Unix(PathBuf),
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("`unix:` must be followed by the path of a socket");
            }
            return Ok(Self(TargetAddress::Unix(PathBuf::from(path))));
        }
        if text.starts_with("https://") {
            return Err(
                "https is not supported: use an address on which the server accepts plain HTTP",
            );
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(
                "must not contain a user or a password: the API needs only the pools' keys",
            );
        }
        if !path.is_empty() {
            return Err("must not contain a path: specify only the host and the port");
        }
        let port = authority.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(_))) if !host.is_empty() => {
                Ok(Self(TargetAddress::Tcp(authority.to_owned())))
            }
            None if text.starts_with("http://") && !authority.is_empty() => {
                Ok(Self(TargetAddress::Tcp(format!("{authority}:80"))))
            }
            Some((host, Err(error))) if !host.is_empty() && is_large(&error) => {
                Err("the port must be 1 to 65535")
            }
            _ => Err("an endpoint must be http://HOST:PORT, HOST:PORT or unix:PATH"),
        }
    }
}

fn is_large(error: &ParseIntError) -> bool {
    *error.kind() == IntErrorKind::PosOverflow
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TargetAddress::Tcp(authority) => f.write_str(authority),
            TargetAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Target {
    /// The value of the `Host` header.
    pub(crate) fn host(&self) -> &str {
        match &self.0 {
            TargetAddress::Tcp(authority) => authority,
            TargetAddress::Unix(_) => "localhost",
        }
    }

    /// Resolves the endpoint's name once, so that reconnecting never waits for name resolution.
    ///
    /// # Errors
    /// If the name cannot be resolved to an address.
    pub(crate) fn resolve(&self) -> io::Result<Endpoint> {
        match &self.0 {
            TargetAddress::Unix(path) => Ok(Endpoint::Unix(path.clone())),
            TargetAddress::Tcp(authority) => {
                let first = authority.to_socket_addrs()?.next();
                first
                    .map(Endpoint::Tcp)
                    .ok_or_else(|| io::Error::other("the host name has no address"))
            }
        }
    }
}

/// An endpoint with a resolved address.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Endpoint {
    /// Connects, and waits until the connection is open. Used for the first connections, before the
    /// measurement starts.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_MAX)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Tcp(mio::net::TcpStream::from_std(stream)))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(mio::net::UnixStream::from_std(stream)))
            }
        }
    }

    /// Begins to connect; [`Stream::is_open`] reports the result.
    pub(crate) fn begin(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(address) => mio::net::TcpStream::connect(*address).map(Stream::Tcp),
            Self::Unix(path) => mio::net::UnixStream::connect(path).map(Stream::Unix),
        }
    }

    /// Opens a blocking connection for consecutive requests. Each read, each write and connecting
    /// over TCP time out after `patience`.
    pub(crate) fn connect_blocking(&self, patience: Duration) -> io::Result<Box<dyn Blocking>> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, patience)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// A blocking stream.
pub(crate) trait Blocking: io::Read + io::Write {}

impl Blocking for TcpStream {}
impl Blocking for UnixStream {}

/// A non-blocking stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Stream {
    /// Whether the connection is open. Returns `false` while the connection is being opened, and an
    /// error if it could not be opened.
    pub(crate) fn is_open(&self) -> io::Result<bool> {
        let (fault, peer) = match self {
            Self::Tcp(stream) => {
                let peer = stream.peer_addr().map(|_| ());
                if peer.is_ok() {
                    stream.set_nodelay(true)?;
                }
                (stream.take_error()?, peer)
            }
            Self::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(|_| ())),
        };
        match (fault, peer) {
            (Some(fault), _) => Err(fault),
            (None, Ok(())) => Ok(true),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => io::Read::read(stream, into),
            Self::Unix(stream) => io::Read::read(stream, into),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => io::Write::write(stream, bytes),
            Self::Unix(stream) => io::Write::write(stream, bytes),
        }
    }

    /// Registers the stream, so that polls report under `token` when it becomes readable or
    /// writable.
    pub(crate) fn register(
        &mut self,
        registry: &mio::Registry,
        token: mio::Token,
    ) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => stream.register(registry, token, both),
            Self::Unix(stream) => stream.register(registry, token, both),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn endpoints_are_urls_addresses_or_sockets() {
        let read = |text: &str| text.parse::<Target>().map(|target| target.to_string());
        assert_eq!(read("http://127.0.0.1:8080/").unwrap(), "127.0.0.1:8080");
        assert_eq!(read("[::1]:8080").unwrap(), "[::1]:8080");
        assert_eq!(read("http://example.test").unwrap(), "example.test:80");
        assert_eq!(read("unix:/run/a.sock").unwrap(), "unix:/run/a.sock");
        for wrong in ["", "host", ":8080", "host:x", "http://h:1/path", "https://h:1", "unix:"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
