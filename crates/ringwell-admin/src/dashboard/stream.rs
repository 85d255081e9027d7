//! Figures of an open page, sent as they change (server-sent events).
//!
//! Owns how many pages may be open, and when a stream ends. One look at the node serves all of them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::Ui;
use super::sample::{Sample, Watcher};

/// Pages that may be open at once.
const STREAMS_MAX: usize = 100;
/// A comment line, so that proxies keep the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A browser that reconnects continues its session; an ended session is reported as ended.
const STREAM_TIME_MAX: Duration = Duration::from_hours(1);

struct Streamed {
    ui: Ui,
    headers: HeaderMap,
    path: String,
    query: Option<String>,
    samples: watch::Receiver<Arc<Sample>>,
    _watcher: Watcher,
    until: tokio::time::Instant,
    sent: HashMap<String, String>,
    /// The call log's change count at the last check.
    calls_seen: Option<u64>,
    is_over: bool,
}

/// Sends the changes of the page at `path`.
pub(super) async fn get(
    State(ui): State<Ui>,
    Path(path): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if ui.session(&headers).await.is_none() {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Some((watcher, samples)) = ui.sampler().watch(STREAMS_MAX) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response();
    };
    let streamed = Streamed {
        path,
        query: uri.query().map(str::to_owned),
        samples,
        _watcher: watcher,
        until: tokio::time::Instant::now() + STREAM_TIME_MAX,
        sent: HashMap::new(),
        calls_seen: None,
        is_over: false,
        headers,
        ui,
    };
    let events = futures_util::stream::unfold(streamed, |mut streamed| async move {
        let event = streamed.next().await?;
        Some((Ok::<_, Infallible>(event), streamed))
    });
    let mut response = Body::from_stream(events).into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl Streamed {
    /// Whether the page can have changed. Pages of calls are rendered again only when the log has
    /// changed, so that many open ones cost nothing while no call comes.
    fn has_news(&mut self) -> bool {
        let Some(calls) = self.ui.dashboard.0.calls.get() else { return true };
        if self.path != "calls" && !self.path.starts_with("calls/") {
            return true;
        }
        let changes = Some(calls.changes());
        std::mem::replace(&mut self.calls_seen, changes) != changes
    }

    /// The next event; `None` if the stream has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        loop {
            let changed = tokio::time::timeout(HEARTBEAT, self.samples.changed()).await;
            if tokio::time::Instant::now() >= self.until || matches!(changed, Ok(Err(_))) {
                return None;
            }
            let Some(session) = self.ui.session(&self.headers).await else {
                self.is_over = true;
                return Some(Bytes::from_static(b"event: end\ndata: \n\n"));
            };
            if changed.is_err() {
                return Some(Bytes::from_static(b":\n\n"));
            }
            if !self.has_news() {
                continue;
            }
            let view = self.ui.view(&self.path, self.query.as_deref(), &session).await.ok()?;
            let is_new = |(name, text): &(String, String)| self.sent.get(name) != Some(text);
            let new: HashMap<_, _> = view.live.into_iter().filter(is_new).collect();
            if new.is_empty() {
                continue;
            }
            let text = serde_json::to_string(&new).ok()?;
            self.sent.extend(new);
            return Some(format!("data: {text}\n\n").into());
        }
    }
}
