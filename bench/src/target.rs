//! The address of a server under test: TCP or a unix socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// `HOST:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket's path.
    Unix(PathBuf),
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text
                .parse()
                .map(Self::Tcp)
                .with_context(|| format!("{text:?} is neither HOST:PORT nor unix:PATH")),
        }
    }
}

/// A byte stream over TCP or a unix socket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Target {
    /// Opens one connection, with Nagle's algorithm switched off.
    ///
    /// # Errors
    /// If the address refuses connections, or the process has no free file descriptor.
    pub(crate) async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await;
                let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                Ok(Box::new(
                    stream.with_context(|| format!("cannot connect to {}", path.display()))?,
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn an_address_is_tcp_unless_it_begins_with_unix() {
        assert!(matches!("127.0.0.1:80".parse(), Ok(Target::Tcp(_))));
        assert_eq!("unix:/tmp/x".parse::<Target>().unwrap(), Target::Unix("/tmp/x".into()));
        assert!("nowhere".parse::<Target>().is_err());
    }
}
