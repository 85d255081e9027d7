//! A webhook receiver: accepts requests at any path, verifies them according to Standard Webhooks,
//! and passes them on.
//!
//! Limits the size and duration of requests, and remembers the ids of earlier deliveries. Does not
//! depend on the sender, or on how the requests are processed afterwards.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use ringwell_calls::webhook::sign::{self, Mismatch};
use ringwell_config::Listen;
use ringwell_core::Millis;
use serde_json::Value;

use crate::listener::Listener;

/// The maximum number of open connections. One sender needs fewer.
const CONNECTIONS_MAX: usize = 64;
/// The maximum length of a body. Ringwell's own events are a few kilobytes long.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The time limit for receiving a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// The maximum number of deliveries whose ids are remembered.
const NAMES_MAX: usize = 10_000;

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// The time of arrival according to this machine's clock.
    pub(crate) at: Millis,
    /// The event's id. Empty if the request has none.
    pub(crate) id: String,
    /// The event's type. Empty if the body has none.
    pub(crate) kind: String,
    /// The body as JSON. `null` if the body is not JSON.
    pub(crate) body: Value,
    /// The number of times that the event has been received, including this request. 0 if the
    /// signature is invalid.
    pub(crate) times: u32,
    /// The result of the signature check. `Ok` if the request is signed with one of the secrets.
    pub(crate) checked: Result<(), Mismatch>,
}

/// A receiver's secrets, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Answering {
    /// The accepted secrets.
    pub(crate) secrets: Vec<String>,
    /// The answer to verified events. Unverified requests are answered with 401.
    pub(crate) status: StatusCode,
}

/// Listens for webhooks.
pub(crate) struct Receiver(Listener);

struct Inner<F> {
    answering: Answering,
    names: Mutex<Names>,
    take: F,
}

impl Receiver {
    /// Binds `address` without accepting requests yet.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub(crate) async fn bind(address: &Listen) -> io::Result<Self> {
        Listener::bind(address).await.map(Self)
    }

    /// Returns the address, with the port that the system chose for port 0.
    pub(crate) fn address(&self) -> String {
        self.0.address()
    }

    /// Passes each request to `take` until the future is dropped.
    pub(crate) async fn serve<F>(self, answering: Answering, take: F)
    where
        F: Fn(Received) + Send + Sync + 'static,
    {
        let inner = Inner { answering, names: Mutex::default(), take };
        let router = Router::new().fallback(receive::<F>).with_state(Arc::new(inner));
        self.0.serve(router, CONNECTIONS_MAX).await;
    }
}

async fn receive<F>(State(inner): State<Arc<Inner<F>>>, request: Request) -> StatusCode
where
    F: Fn(Received) + Send + Sync + 'static,
{
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED;
    }
    let body = match tokio::time::timeout(BODY_TIME_MAX, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return StatusCode::PAYLOAD_TOO_LARGE,
        Err(_) => return StatusCode::REQUEST_TIMEOUT,
    };
    let at = now();
    let id = field(&head.headers, "webhook-id").to_owned();
    let secrets: Vec<&str> = inner.answering.secrets.iter().map(String::as_str).collect();
    let checked = sign::verify(
        &secrets,
        &id,
        field(&head.headers, "webhook-timestamp"),
        field(&head.headers, "webhook-signature"),
        &body,
        at.0 / 1000,
    );
    let times = match checked {
        Ok(()) => inner.names.lock().unwrap_or_else(PoisonError::into_inner).count(&id),
        Err(_) => 0,
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let kind = body["type"].as_str().unwrap_or_default().to_owned();
    let status = if checked.is_ok() { inner.answering.status } else { StatusCode::UNAUTHORIZED };
    (inner.take)(Received { at, id, kind, body, times, checked });
    status
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn now() -> Millis {
    Millis(u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default())
}

/// The ids of the latest deliveries, with a count for each id.
#[derive(Debug, Default)]
struct Names {
    counts: HashMap<String, u32>,
    order: VecDeque<String>,
}

impl Names {
    /// Counts a delivery with the id `name`, and returns the new count.
    fn count(&mut self, name: &str) -> u32 {
        if let Some(count) = self.counts.get_mut(name) {
            *count = count.saturating_add(1);
            return *count;
        }
        if self.order.len() == NAMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(name.to_owned());
        self.counts.insert(name.to_owned(), 1);
        1
    }
}

#[cfg(test)]
#[test]
fn deliveries_are_counted_and_the_oldest_names_forgotten() {
    let mut names = Names::default();
    assert_eq!((names.count("a"), names.count("a"), names.count("b")), (1, 2, 1));
    for place in 0..NAMES_MAX {
        names.count(&place.to_string());
    }
    assert_eq!(names.order.len(), NAMES_MAX);
    assert_eq!(names.counts.len(), NAMES_MAX);
    assert_eq!(names.count("a"), 1);
}
