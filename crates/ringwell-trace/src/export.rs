//! Sends spans to the collector in OTLP, as JSON over HTTP/1.1 without TLS. To send spans to
//! another machine, run a collector on this machine that forwards them.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The maximum number of spans in one request.
const GROUP_MAX: usize = 512;
/// The time for which spans are collected before they are sent.
const GATHER: Duration = Duration::from_secs(1);
/// The time limit for a request. After that, the request and its spans are dropped.
const SEND_MAX: Duration = Duration::from_secs(5);
/// The pause after a failed request.
const PAUSE: Duration = Duration::from_secs(10);
/// The shortest time between two log lines about lost spans.
const LINE_EVERY: Duration = Duration::from_mins(1);

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Exporter {
    collector: String,
    waiting: mpsc::Receiver<Value>,
}

impl Exporter {
    pub(crate) const fn new(collector: String, waiting: mpsc::Receiver<Value>) -> Self {
        Self { collector, waiting }
    }

    /// Sends collected spans until the process ends. Spans that the collector does not accept are
    /// lost.
    pub async fn run(mut self) {
        let mut group = Vec::with_capacity(GROUP_MAX);
        let mut lost = Lost::default();
        while self.waiting.recv_many(&mut group, GROUP_MAX).await > 0 {
            sleep(GATHER).await;
            while group.len() < GROUP_MAX
                && let Ok(span) = self.waiting.try_recv()
            {
                group.push(span);
            }
            let sent = timeout(SEND_MAX, post(&self.collector, &body(&group))).await;
            let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {SEND_MAX:?}")));
            if let Err(reason) = sent {
                if let Some(spans) = lost.count(group.len(), Instant::now()) {
                    let collector = &self.collector;
                    tracing::warn!(collector, spans, reason, "spans are lost");
                }
                sleep(PAUSE).await;
            }
            group.clear();
        }
    }
}

/// The count of lost spans, and the time of the last log line that reported them.
#[derive(Debug, Default)]
struct Lost {
    spans: usize,
    last: Option<Instant>,
}

impl Lost {
    /// Adds `spans` to the count. If another log line is due, returns the count of spans that were
    /// lost since the last line.
    fn count(&mut self, spans: usize, now: Instant) -> Option<usize> {
        self.spans += spans;
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.spans))
    }
}

fn body(spans: &[Value]) -> String {
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", "ringwell"),
            text("service.version", version),
        ] },
        "scopeSpans": [{ "scope": { "name": "ringwell", "version": version }, "spans": spans }],
    }] })
    .to_string()
}

async fn post(collector: &str, body: &str) -> Result<(), String> {
    let stream = TcpStream::connect(collector).await.map_err(|error| error.to_string())?;
    let said = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    let request = Request::post("/v1/traces")
        .header(header::HOST, collector)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::from(body.to_owned())));
    let request = request.map_err(|error| error.to_string())?;
    // When this function returns, the `JoinSet` is dropped, which ends the connection's task.
    let mut works = JoinSet::new();
    works.spawn(connection);
    let response = sender.send_request(request).await.map_err(said)?;
    let status = response.status();
    // Reads and ignores the body of the collector's answer.
    let _ = response.into_body().collect().await;
    if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
}

#[cfg(test)]
#[test]
fn one_line_a_minute_counts_all_lost_spans() {
    let (mut lost, start) = (Lost::default(), Instant::now());
    let lines = [(0, 1), (11, 2), (59, 3), (60, 4), (61, 5)];
    let lines = lines.map(|(at, spans)| lost.count(spans, start + Duration::from_secs(at)));
    assert_eq!(lines, [Some(1), None, None, Some(9), None]);
}
