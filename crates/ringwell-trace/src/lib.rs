//! Traces requests: reads W3C Trace Context, and exports spans in OTLP.
//!
//! Owns sampling, ids, the queue and the contents of spans. Does not depend on batches or calls.
//! There is one tracer per process, like the log, so that traced code need not pass a tracer
//! around. Invariants: while tracing is disabled, [`begin`] executes only one load and one branch.
//! No code waits for the collector; if the queue is full, spans are dropped.

mod context;
mod export;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc;

pub use context::{Context, TRACEPARENT, TraceId};
pub use export::Exporter;

/// The maximum number of spans that wait for the exporter.
const WAITING_MAX: usize = 4_096;

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// The sampling rate, and the queue for ended spans.
#[derive(Debug)]
struct Tracer {
    spans: mpsc::Sender<Value>,
    /// The sampling rate: of the traces that begin here, one in `one_in` is recorded.
    one_in: u64,
    begun: AtomicU64,
    dropped: AtomicU64,
}

/// The side of a request that a span describes. The values are defined by OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request was received.
    Server = 2,
    /// The request was sent.
    Client = 3,
}

/// The context in which a span begins.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'a> {
    /// The value of a request's `traceparent` header, if any. A valid header determines whether the
    /// trace is recorded; without one, the sampling rate does.
    Header(Option<&'a str>),
    /// An existing span of this or another node. If there is none, nothing is recorded.
    Span(Option<Context>),
    /// A trace whose id is derived from an object that outlives a request, such as a call. Either
    /// all spans of the trace are recorded, or none.
    Trace(TraceId),
}

/// An operation in progress. It ends when the span is dropped.
#[derive(Debug)]
pub struct Span {
    tracer: &'static Tracer,
    name: &'static str,
    kind: Kind,
    context: Context,
    parent: Option<[u8; 8]>,
    began: u64,
    attributes: Vec<Value>,
    has_failed: bool,
}

/// Enables tracing. Of the traces that begin in this process, one in `one_in` is recorded. Returns
/// the exporter, which sends to `http://COLLECTOR/v1/traces`, or `None` if tracing is already
/// enabled.
pub fn start(collector: String, one_in: u64) -> Option<Exporter> {
    let (spans, waiting) = mpsc::channel(WAITING_MAX);
    let (begun, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
    TRACER.set(Tracer { spans, one_in: one_in.max(1), begun, dropped }).ok()?;
    Some(Exporter::new(collector, waiting))
}

/// The count of spans that were dropped because too many were waiting.
pub fn dropped() -> u64 {
    TRACER.get().map_or(0, |tracer| tracer.dropped.load(Ordering::Relaxed))
}

/// Begins a span if its trace is recorded. Calls `parent` only while tracing is enabled.
#[inline]
pub fn begin<'a>(
    name: &'static str,
    kind: Kind,
    parent: impl FnOnce() -> Parent<'a>,
) -> Option<Box<Span>> {
    TRACER.get().and_then(|tracer| tracer.begin(name, kind, parent()))
}

impl Tracer {
    #[cold]
    fn begin(
        &'static self,
        name: &'static str,
        kind: Kind,
        parent: Parent<'_>,
    ) -> Option<Box<Span>> {
        let before = match parent {
            Parent::Header(header) => header.and_then(Context::parse),
            Parent::Span(span) => span,
            Parent::Trace(_) => None,
        };
        let is_kept = match (parent, before) {
            (_, Some(before)) => before.is_sampled,
            (Parent::Trace(trace), None) => trace.sum().is_multiple_of(self.one_in),
            (Parent::Header(_), None) => {
                self.begun.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
            }
            (Parent::Span(_), None) => false,
        };
        if !is_kept {
            return None;
        }
        let trace = match (parent, before) {
            (_, Some(before)) => before.trace,
            (Parent::Trace(trace), None) => trace,
            (Parent::Header(_) | Parent::Span(_), None) => TraceId::random()?,
        };
        let (context, parent) = (Context::within(trace)?, before.map(|before| before.span));
        let (began, attributes) = (now(), Vec::new());
        let tracer = self;
        let has_failed = false;
        Some(Box::new(Span { tracer, name, kind, context, parent, began, attributes, has_failed }))
    }
}

impl Span {
    /// Records a text attribute.
    pub fn text(&mut self, key: &str, value: &str) {
        self.attributes.push(json!({ "key": key, "value": { "stringValue": value } }));
    }

    /// Records an integer attribute.
    pub fn number(&mut self, key: &str, value: u64) {
        // OTLP writes 64-bit integers as text.
        let value = json!({ "intValue": value.to_string() });
        self.attributes.push(json!({ "key": key, "value": value }));
    }

    /// Records the status of an answer. A 5xx status counts as a failure.
    pub fn status(&mut self, status: u16) {
        self.number("http.response.status_code", status.into());
        self.has_failed |= status >= 500;
    }

    /// Records a failure.
    pub fn fail(&mut self, why: &str) {
        self.text("error.message", why);
        self.has_failed = true;
    }

    /// The span's context.
    #[must_use]
    pub const fn context(&self) -> Context {
        self.context
    }

    /// The value of the `traceparent` header for a request that is sent within this span.
    #[must_use]
    pub fn traceparent(&self) -> String {
        self.context.to_string()
    }

    /// Converts the ended span to JSON in OTLP format.
    fn ended(&mut self) -> Value {
        let mut span = json!({
            "traceId": self.context.trace.to_string(),
            "spanId": context::hex(&self.context.span),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": self.began.to_string(),
            "endTimeUnixNano": now().to_string(),
            "attributes": std::mem::take(&mut self.attributes),
            "status": { "code": if self.has_failed { 2 } else { 0 } },
        });
        if let (Some(parent), Some(members)) = (self.parent, span.as_object_mut()) {
            members.insert("parentSpanId".to_owned(), context::hex(&parent).into());
        }
        span
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let span = self.ended();
        if self.tracer.spans.try_send(span).is_err() {
            self.tracer.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The current time, in nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[test]
fn a_trace_is_kept_if_its_header_says_so_or_once_in_so_many() {
    let (spans, mut waiting) = mpsc::channel(2);
    let tracer: &'static Tracer = Box::leak(Box::new(Tracer {
        spans,
        one_in: 4,
        begun: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
    }));
    let begin = |header| tracer.begin("batch", Kind::Server, Parent::Header(header));
    let kept = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut span = begin(Some(kept)).unwrap();
    span.status(503);
    assert!(span.traceparent().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
    drop(span);
    let sent = waiting.try_recv().unwrap();
    assert_eq!(sent["parentSpanId"], "b7ad6b7169203331");
    assert_eq!((&sent["kind"], &sent["status"]["code"]), (&json!(2), &json!(2)));
    assert!(begin(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")).is_none());
    let without: Vec<bool> = (0..8).map(|_| begin(None).is_some()).collect();
    assert_eq!(without, [true, false, false, false, true, false, false, false]);
    // A span's parent can be in another process. If the parent span is missing, no span begins.
    let parent = Context::parse(kept).unwrap();
    let of = |parent| tracer.begin("rows", Kind::Client, Parent::Span(parent));
    assert_eq!(of(Some(parent)).unwrap().context().trace, parent.trace);
    assert!((0..8).all(|_| of(None).is_none()));
    let _ = waiting.try_recv();
    // All operations of one object form a trace, which is recorded as a whole or not at all.
    let kept = |text: &str| {
        let id = TraceId::of(text.as_bytes());
        let of = || tracer.begin("call", Kind::Server, Parent::Trace(id)).is_some();
        [of(), of()]
    };
    let calls: Vec<[bool; 2]> = (0..400).map(|call| kept(&format!("c_{call}"))).collect();
    assert!(calls.iter().all(|[one, other]| one == other));
    let some = calls.iter().filter(|both| both[0]).count();
    assert!((50..150).contains(&some), "{some} of 400");
    // The queue for the collector can hold only a few of these spans. The other spans were dropped
    // without waiting.
    assert!(tracer.dropped.load(Ordering::Relaxed) > 100);
}
