//! Where management is listened for, and how much of it strangers may take up.
//!
//! Owns connections and the time of their heads. What a request may be, and how long its answer may
//! take, is the management API's. Source: docs/spec/management.md, "Limits".

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ringwell_directory::Listen;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Open at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// For the whole head of a request, from the end of the answer before it.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 16 * 1024;
const FIELDS_MAX: usize = 64;
/// No list takes as long; who does not read an answer has its place no longer.
const CONNECTION_TIME_MAX: Duration = Duration::from_hours(2);
/// After a connection could not be accepted: mostly because there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens for clients of the management API.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, String),
}

impl Listener {
    pub(super) async fn bind(address: &Listen) -> io::Result<Self> {
        match address {
            Listen::Tcp { host, port } => {
                Ok(Self::Tcp(TcpListener::bind((host.as_str(), *port)).await?))
            }
            Listen::Unix(path) => {
                // Left by a server that was killed.
                let _ = std::fs::remove_file(path);
                Ok(Self::Unix(UnixListener::bind(path)?, address.to_string()))
            }
        }
    }

    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string()),
            Self::Unix(_, address) => address.clone(),
        }
    }

    /// Until the process ends.
    pub(super) async fn serve(self, router: Router) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            // Nobody closes the semaphore.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let accepted = match &self {
                Self::Tcp(tcp) => tcp.accept().await.map(|(stream, _)| {
                    tokio::spawn(converse(stream, router.clone(), place));
                }),
                Self::Unix(unix, _) => unix.accept().await.map(|(stream, _)| {
                    tokio::spawn(converse(stream, router.clone(), place));
                }),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "management cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection to its end.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    _place: OwnedSemaphorePermit,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
    http.max_buf_size(HEAD_BYTES_MAX).max_headers(FIELDS_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // How a client has gone is nobody's business.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, connection).await;
}
