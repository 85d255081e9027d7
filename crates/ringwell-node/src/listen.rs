//! The sockets that clients connect to: for each TCP address one listener per shard, and for each
//! unix socket one listener that all shards share.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ringwell_config::{Config, Listen};
use ringwell_driver::membership::Membership;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The maximum number of connections that wait in the kernel to be accepted. Beyond this number,
/// new connections are delayed or refused.
const BACKLOG: i32 = 4096;

/// A listener of one shard that is not yet attached to a runtime.
#[derive(Debug)]
pub(crate) enum Listener {
    /// An address `host:port`, without TLS.
    Tcp(std::net::TcpListener),
    /// An address `host:port`, for TLS.
    Secure(std::net::TcpListener),
    /// A path in the file system.
    Unix(std::os::unix::net::UnixListener),
}

/// The reason why the process cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}")]
pub struct ListenError {
    address: String,
    reason: String,
}

/// Checks that the process can listen on `addresses` now, but keeps no socket. Startup runs this
/// check before it creates files, so that a failed start leaves none behind.
///
/// # Errors
/// The [`ListenError`] names the first address that is not free, and the remedy.
pub fn check_free(addresses: &[Listen]) -> Result<(), ListenError> {
    Listeners::probe(addresses)
}

/// Like [`check_free`], for one address that is not for clients.
///
/// # Errors
/// Returns the error of the operating system.
pub fn try_bind(address: &Listen) -> io::Result<()> {
    Listeners::none(0).add(address).map(drop)
}

/// Checks that all addresses can be bound. This check runs before this process takes over shards
/// from another one. If the bind failed only afterwards, neither process would serve the shards.
///
/// # Errors
/// The [`ListenError`] names the address and the remedy.
pub(crate) fn probe(config: &Config, member: Option<&Membership>) -> Result<(), ListenError> {
    let secure = config.tls.iter().flat_map(|tls| &tls.listen);
    let all = config.listen.iter().chain(secure).chain(&config.site_listen);
    let link = member.map(|member| &member.own().link);
    Listeners::probe(&all.chain(link).cloned().collect::<Vec<_>>())
}

/// All listeners: `shards[i]` contains the listeners of shard i. Unix sockets are unlinked when
/// this is dropped.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// By shard.
    pub(crate) shards: Vec<Vec<Listener>>,
    /// The addresses that were bound, in the form that clients use.
    pub(crate) addresses: Vec<String>,
    paths: Vec<PathBuf>,
}

impl Listeners {
    /// Binds the addresses for `shards` shards.
    ///
    /// # Errors
    /// The [`ListenError`] names the address and the remedy.
    pub(crate) fn bind(addresses: &[Listen], shards: usize) -> Result<Self, ListenError> {
        let mut all = Self::none(shards);
        for address in addresses {
            let text = match address {
                Listen::Unix(path) => format!("unix:{}", path.display()),
                Listen::Tcp { host, port } => format!("{host}:{port}"),
            };
            let added = all.add(address);
            added.map_err(|error| ListenError { reason: explain(&error), address: text })?;
        }
        Ok(all)
    }

    /// Creates an empty list of listeners for each of `shards` shards.
    fn none(shards: usize) -> Self {
        let shards = (0..shards).map(|_| Vec::new()).collect();
        Self { shards, addresses: vec![], paths: vec![] }
    }

    fn add(&mut self, address: &Listen) -> io::Result<()> {
        match address {
            Listen::Unix(path) => self.add_unix(path),
            Listen::Tcp { host, port } => self.add_tcp(host, *port, Listener::Tcp),
        }
    }

    /// Fails in the same cases as [`Self::bind`], but keeps no socket. It can therefore run before
    /// the journals are created, so that a failed start leaves no journals behind. The sockets that
    /// it binds never listen: otherwise, a client that connected now would be disconnected.
    ///
    /// # Errors
    /// The [`ListenError`] names the address and the remedy.
    pub(crate) fn probe(addresses: &[Listen]) -> Result<(), ListenError> {
        Self::bind(addresses, 0).map(drop)
    }

    /// Checks that a unix socket can have this path, even if another program listens there now.
    ///
    /// # Errors
    /// The [`ListenError`] names the address and the remedy.
    pub(crate) fn check(address: &Listen) -> Result<(), ListenError> {
        let Listen::Unix(path) = address else { return Ok(()) };
        let checked = SockAddr::unix(path).and_then(|_| refuse_other_file(path));
        checked.map_err(|error| ListenError {
            reason: explain(&error),
            address: format!("unix:{}", path.display()),
        })
    }

    /// Binds addresses like [`Self::bind`], but for TLS.
    ///
    /// # Errors
    /// The same errors as those of [`Self::bind`].
    pub(crate) fn bind_secure(&mut self, addresses: &[Listen]) -> Result<(), ListenError> {
        for address in addresses {
            let added = match address {
                Listen::Unix(_) => {
                    Err(io::Error::other("TLS requires a TCP address, not a Unix socket"))
                }
                Listen::Tcp { host, port } => self.add_tcp(host, *port, Listener::Secure),
            };
            added.map_err(|error| ListenError {
                reason: explain(&error),
                address: address.to_string(),
            })?;
            if let Some(bound) = self.addresses.last_mut() {
                bound.insert_str(0, "https://");
            }
        }
        Ok(())
    }

    /// Returns the addresses as text for the log; `None` if there are none.
    pub(crate) fn listed(&self) -> Option<tracing::field::DebugValue<&[String]>> {
        (!self.addresses.is_empty()).then(|| tracing::field::debug(&*self.addresses))
    }

    fn add_unix(&mut self, path: &Path) -> io::Result<()> {
        let socket = bind_unix(path)?;
        self.paths.push(path.to_owned());
        if self.shards.is_empty() {
            return Ok(());
        }
        socket.listen(BACKLOG)?;
        let listener = std::os::unix::net::UnixListener::from(socket);
        self.addresses.push(format!("unix:{}", path.display()));
        for shard in &mut self.shards {
            shard.push(Listener::Unix(listener.try_clone()?));
        }
        Ok(())
    }

    fn add_tcp(
        &mut self,
        host: &str,
        port: u16,
        made: impl Fn(std::net::TcpListener) -> Listener,
    ) -> io::Result<()> {
        let wanted = (host, port)
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::other("the host name resolves to no address"))?;
        // If all sockets had SO_REUSEPORT, a second server of the same user could silently share
        // the port. This first socket is bound without that option, so binding it fails if any
        // process listens on the port.
        let exclusive = tcp_socket(wanted)?;
        exclusive.bind(&wanted.into())?;
        let bound = exclusive
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("the bound address is not an IP address"))?;
        drop(exclusive);
        for shard in &mut self.shards {
            let socket = tcp_socket(bound)?;
            socket.set_reuse_port(true)?;
            socket.bind(&bound.into())?;
            socket.listen(BACKLOG)?;
            shard.push(made(socket.into()));
        }
        self.addresses.push(bound.to_string());
        Ok(())
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for path in &self.paths {
            // A leftover socket file is harmless, because the next server that starts there removes
            // it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Binds a unix socket, and replaces a stale socket file. The socket does not listen yet.
fn bind_unix(path: &Path) -> io::Result<Socket> {
    let address = SockAddr::unix(path)?;
    refuse_other_file(path)?;
    if is_socket(path) && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address)?;
    Ok(socket)
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn refuse_other_file(path: &Path) -> io::Result<()> {
    if is_socket(path) || !path.exists() {
        return Ok(());
    }
    let text = "a file that is not a socket already exists at that path: move the file away, or \
        choose another path";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}

fn explain(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program already listens on this address: stop that program, or choose \
            another address with --listen"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 and other users' directories require more permissions"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        io::ErrorKind::InvalidInput => {
            "; the path of a Unix socket can have at most 107 bytes: choose a shorter path"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A probe must not accept connections, because a supervisor that waits for the socket would
    /// mistake the probe for the server.
    #[test]
    fn a_probe_accepts_no_connection() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let connected = scope.spawn(|| {
                let mut connected = false;
                while !ended.load(Ordering::Relaxed) {
                    connected |= UnixStream::connect(&path).is_ok();
                }
                connected
            });
            for _ in 0..20_000 {
                Listeners::probe(&[Listen::Unix(path.clone())]).expect("a free path");
            }
            ended.store(true, Ordering::Relaxed);
            assert!(!connected.join().expect("a client"), "a probe has accepted a connection");
        });
        assert!(!path.exists(), "a probe has left its socket");
    }
}
