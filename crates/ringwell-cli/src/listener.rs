//! The listener of the management API, and its limits on unauthenticated clients.
//!
//! Owns the connections and the time limit for request heads. At the connection limit, each new
//! connection replaces the oldest one that has not presented a valid token or session. The
//! management API itself limits the size of each request and the time for its answer. Source:
//! docs/spec/management.md, "Limits".

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ringwell_admin::Recognized;
use ringwell_config::{Listen, Management};
use ringwell_node::try_bind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The maximum number of open connections to the management API. At this limit, an unauthenticated
/// connection is closed for each new connection.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// The time limit for the whole head of a request, measured from the end of the previous answer.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 16 * 1024;
const FIELDS_MAX: usize = 64;
/// The maximum duration of a connection. The limit disconnects clients that do not read their
/// answers. It allows an otherwise idle server to import the longest list, which takes a quarter of
/// an hour.
const CONNECTION_TIME_MAX: Duration = Duration::from_hours(2);
/// The pause after a failure to accept a connection. The usual cause is too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The maximum number of connections that wait to be accepted, as `TcpListener::bind` sets it.
const BACKLOG: u32 = 1024;

/// Creates the error for a listener that cannot use `address`. The tuple contains the listener's
/// name and the name of the setting for its address.
pub(crate) fn cannot_listen(
    (what, setting): (&str, &str),
    address: &Listen,
    error: io::Error,
) -> anyhow::Error {
    let advice = if error.kind() == io::ErrorKind::AddrInUse {
        format!("another program uses the address. Stop that program, or choose another {setting}")
    } else {
        format!("choose another {setting}")
    };
    anyhow::Error::from(error).context(format!("{what} cannot listen on {address}: {advice}"))
}

/// Returns the host names that the management address accepts in addition to the machine's own
/// names. Returns `None` if pages on other sites cannot make browsers send requests to the address.
/// This is the case for a unix socket, and for an address other than loopback, which a proxy or a
/// firewall protects.
pub(crate) fn hosts(management: &Management) -> Option<Vec<String>> {
    let Listen::Tcp { host, .. } = &management.address else { return None };
    let is_loopback = host.parse().map_or_else(
        |_| host.eq_ignore_ascii_case("localhost"),
        |address: IpAddr| address.is_loopback(),
    );
    is_loopback.then(|| management.hosts.clone())
}

/// The open connections.
#[derive(Default)]
struct OpenConnections {
    /// The connections in order of arrival.
    open: Mutex<VecDeque<OpenConnection>>,
}

/// One open connection.
#[derive(Clone, Default)]
struct OpenConnection {
    known: Recognized,
    cut: Arc<Notify>,
}

impl OpenConnections {
    fn open(&self) -> std::sync::MutexGuard<'_, VecDeque<OpenConnection>> {
        // The lock is never poisoned, because no thread panics while it holds the lock.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the oldest connection that has not presented a valid token or session.
    fn make_way(&self) {
        let open = self.open();
        let stranger = open.iter().find(|place| !place.known.0.load(Ordering::Relaxed));
        if let Some(stranger) = stranger {
            stranger.cut.notify_one();
        }
    }

    fn leave(&self, place: &OpenConnection) {
        self.open().retain(|other| !Arc::ptr_eq(&other.cut, &place.cut));
    }
}

/// Binds a unix socket. Replaces a stale socket at `path`, but no other file.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// An address at which a process will listen later. Until then, connections are refused, so that
/// clients and load balancers use another server.
pub(crate) struct Reserved {
    address: Listen,
    /// A bound socket, whose port the system has already chosen. `None` for unix sockets.
    socket: Option<TcpSocket>,
}

impl Reserved {
    /// Reserves `address`, or checks that the process can listen on it now.
    pub(crate) async fn new(address: &Listen) -> io::Result<Self> {
        let Listen::Tcp { host, port } = address else {
            try_bind(address)?;
            return Ok(Self { address: address.clone(), socket: None });
        };
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in lookup_host((host.as_str(), *port)).await? {
            match reserve(address) {
                Ok(socket) => {
                    let port = socket.local_addr()?.port();
                    let address = Listen::Tcp { host: address.ip().to_string(), port };
                    return Ok(Self { address, socket: Some(socket) });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Listens at the address. If another process now listens there, waits until that process ends.
    /// `place` has the same meaning as in [`cannot_listen`].
    pub(crate) async fn listen(self, place: (&str, &str)) -> Listener {
        let mut bound = match self.socket {
            Some(socket) => socket.listen(BACKLOG).map(Listener::Tcp),
            None => Listener::bind(&self.address).await,
        };
        let mut is_first = true;
        loop {
            let error = match bound {
                Ok(listener) => return listener,
                Err(error) => error,
            };
            if is_first {
                let error = cannot_listen(place, &self.address, error);
                tracing::error!(error = format!("{error:#}"), "will try again every second");
            }
            is_first = false;
            tokio::time::sleep(Duration::from_secs(1)).await;
            bound = Listener::bind(&self.address).await;
        }
    }
}

/// Binds a socket, as `TcpListener::bind` does, but does not listen. Fails if another socket
/// listens at the address.
fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A listener for clients of the management API, or for webhooks.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, String),
}

impl Listener {
    pub(crate) async fn bind(address: &Listen) -> io::Result<Self> {
        match address {
            Listen::Tcp { host, port } => {
                Ok(Self::Tcp(TcpListener::bind((host.as_str(), *port)).await?))
            }
            Listen::Unix(path) => Ok(Self::Unix(bind_unix(path)?, address.to_string())),
        }
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string()),
            Self::Unix(_, address) => address.clone(),
        }
    }

    /// Accepts and serves connections until the process ends. At most `most` connections are open
    /// at once.
    pub(crate) async fn serve(self, router: Router, most: usize) {
        let (room, places) = (Arc::new(Semaphore::new(most)), Arc::new(OpenConnections::default()));
        loop {
            let accepted = match &self {
                Self::Tcp(tcp) => tcp.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
                Self::Unix(unix, _) => unix.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            };
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, address = self.address(), "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if room.available_permits() == 0 {
                places.make_way();
            }
            // Acquiring a permit never fails, because the semaphore is never closed.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let place = OpenConnection::default();
            places.open().push_back(place.clone());
            tokio::spawn(hold(stream, router.clone(), Arc::clone(&places), place, permit));
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Serves one connection until it ends or is closed in favor of a new one.
async fn hold(
    stream: Stream,
    router: Router,
    places: Arc<OpenConnections>,
    place: OpenConnection,
    _permit: OwnedSemaphorePermit,
) {
    let router = router.layer(Extension(place.known.clone()));
    let served = async {
        match stream {
            Stream::Tcp(stream) => converse(stream, router).await,
            Stream::Unix(stream) => converse(stream, router).await,
        }
    };
    tokio::select! {
        () = served => {}
        () = place.cut.notified() => {}
    }
    places.leave(&place);
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    http.max_buf_size(HEAD_BYTES_MAX).max_headers(FIELDS_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // The result is ignored, because it does not matter why the connection ended.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, connection).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_accepts_only_its_own_names() {
        let at = |address: &str| {
            let management = Management {
                address: address.parse().unwrap(),
                hosts: vec!["admin.example".to_owned()],
                ..Management::default()
            };
            hosts(&management)
        };
        for address in ["127.0.0.1:8081", "[::1]:8081", "localhost:8081"] {
            assert_eq!(at(address), Some(vec!["admin.example".to_owned()]), "{address}");
        }
        for address in ["0.0.0.0:8081", "10.0.0.1:8081", "unix:/run/ringwell.sock"] {
            assert_eq!(at(address), None, "{address}");
        }
    }
}
