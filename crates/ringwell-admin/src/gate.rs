//! The checks that each request must pass before it reaches a handler.
//!
//! Owns the limits on requests, the accepted host names, and the memory limit for all bodies.
//! Authenticated requests have a valid token or session. They have a separate limit, so that a
//! flood of unauthenticated requests does not block them. Source: docs/spec/management.md,
//! "Limits".

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;
use hyper::body::Frame;
use ringwell_core::Millis;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limit::Limit;

/// The maximum size of a list of pools. A list is read only after the request's token has been
/// checked. A list of 100,000 pools takes about 10 MB.
pub(crate) const LIST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The ratio of the limit for authenticated requests to the limit for all other requests.
const UNAUTHENTICATED_DIVISOR: u32 = 2;
/// The number of bytes at the beginning of each body that are not counted, because they are in the
/// connection's buffer.
const BUFFERED_BYTES: usize = 16 * 1024;

/// A connection's flag, set once a request with a valid token or session has arrived on it. A
/// connection with this flag is not closed to make room for a new connection. The listener adds the
/// flag to the extensions of each request.
#[derive(Clone, Debug, Default)]
pub struct Recognized(pub Arc<AtomicBool>);

#[derive(Debug)]
pub(crate) struct Gate {
    /// The accepted host names. `None` accepts any.
    hosts: Option<Vec<String>>,
    known: Limit,
    strangers: Limit,
    bodies: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(
        hosts: Option<Vec<String>>,
        requests_per_second: u32,
        bodies_bytes: usize,
    ) -> Self {
        Self {
            hosts,
            known: Limit::new(requests_per_second),
            strangers: Limit::new((requests_per_second / UNAUTHENTICATED_DIVISOR).max(1)),
            bodies: Arc::new(Semaphore::new(bodies_bytes.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Admits a request, or returns the seconds until a request would be admitted. `is_known` is
    /// true for a request with a valid token or session.
    pub(crate) fn take(&self, is_known: bool, now: Millis) -> Result<(), u64> {
        if is_known { self.known.take(now) } else { self.strangers.take(now) }
    }

    /// Whether the request names this server as its host. An attacker's page whose host name
    /// resolves to this server (DNS rebinding) sends its own host name. A client that sends no host
    /// name is not a browser, so it is accepted.
    pub(crate) fn is_meant(&self, request: &Request) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let field = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or(""));
        let names = [field, request.uri().authority().map(Authority::as_str)];
        names.into_iter().flatten().all(|host| is_one_of(hosts, host))
    }

    /// Wraps the request's body so that its memory is counted.
    pub(crate) fn meter(&self, request: Request) -> (Request, Arc<Room>) {
        let free = Arc::clone(&self.bodies);
        let room =
            Arc::new(Room { free, taken: Mutex::default(), is_over: AtomicBool::new(false) });
        let metered = Arc::clone(&room);
        (request.map(|inner| Body::new(Metered { inner, room: metered })), room)
    }
}

/// Whether `host` is this machine or one of `hosts`. `host` may include a port.
fn is_one_of(hosts: &[String], host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _port)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_loopback = name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    is_loopback
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// One body's memory, which counts towards the limit for all bodies until the request is answered.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    /// The number of bytes received, and the memory reserved for them.
    taken: Mutex<(usize, Option<OwnedSemaphorePermit>)>,
    is_over: AtomicBool,
}

impl Room {
    /// Whether the body was refused for lack of memory.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let before = taken.0.saturating_sub(BUFFERED_BYTES);
        taken.0 = taken.0.saturating_add(bytes);
        let more = u32::try_from(taken.0.saturating_sub(BUFFERED_BYTES) - before).ok();
        let more = more.and_then(|n| Arc::clone(&self.free).try_acquire_many_owned(n).ok());
        let Some(more) = more else {
            self.is_over.store(true, Ordering::Relaxed);
            return false;
        };
        match &mut taken.1 {
            Some(permit) => permit.merge(more),
            none @ None => *none = Some(more),
        }
        true
    }
}

/// A body whose bytes are counted. Trailer fields are refused: the HTTP library accepts a bare LF
/// before them, and could then parse the next request as a trailer field.
struct Metered {
    inner: Body,
    room: Arc<Room>,
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.data_ref().map(Bytes::len) {
                None => Some(Err(axum::Error::new("trailer fields are not accepted"))),
                Some(bytes) if self.room.take(bytes) => Some(Ok(frame)),
                Some(_) => Some(Err(axum::Error::new("not enough memory for the request body"))),
            },
            end => end,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_accepts_only_its_own_names() {
        let hosts = vec!["Admin.example".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST:8081",
            "localhost.",
            "127.0.0.1",
            "127.0.0.53:1",
            "[::1]:8081",
            "admin.example",
            "admin.example:8081",
        ] {
            assert!(is_one_of(&hosts, host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "10.0.0.1", "[fe80::1]", ":80"] {
            assert!(!is_one_of(&hosts, host), "{host}");
        }
    }

    #[test]
    fn unauthenticated_clients_take_nothing_from_the_others() {
        let (gate, now) = (Gate::new(None, 4, 0), Millis(1_000_000));
        let passed = |is_known| (0..100).filter(|_| gate.take(is_known, now).is_ok()).count();
        assert_eq!([passed(false), passed(true), passed(false)], [2, 4, 0]);
    }
}
