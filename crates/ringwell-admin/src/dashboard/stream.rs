//! Sends the figures of an open page as they change (server-sent events).
//!
//! Limits the number of open pages and the duration of a stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::asked::Live;
use super::figures::PageKey;
use super::sample::{Sample, Watcher};
use super::session::Session;
use super::ui::Ui;

/// The maximum number of pages that may be open at once.
const STREAMS_MAX: usize = 100;
/// The interval between comment lines, which keep proxies from closing the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The longest duration of a stream. After that, the browser reconnects, and its session is checked
/// again.
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

/// Sends the changed figures of the page at `path`.
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
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many dashboard pages are open: close some\n",
        )
            .into_response();
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
    /// Whether the page may have changed. A page about calls is rendered again only if the call log
    /// has changed, so keeping it open costs nothing while no calls arrive.
    fn has_news(&mut self) -> bool {
        let Some(calls) = self.ui.dashboard.0.calls.get() else { return true };
        if self.path != "calls" && !self.path.starts_with("calls/") {
            return true;
        }
        let changes = Some(calls.changes());
        std::mem::replace(&mut self.calls_seen, changes) != changes
    }

    /// Computes the page's figures. Returns `None` if the page can no longer be shown.
    async fn live(&mut self, session: &Session) -> Option<Arc<Live>> {
        let at = self.samples.borrow_and_update().at;
        let (path, query) = (&self.path, self.query.as_deref());
        let page = PageKey {
            path: path.clone(),
            query: self.query.clone(),
            role: session.role,
            calls: self.calls_seen,
        };
        let figures = self.ui.dashboard.0.figures.of(at, page);
        let made = figures.get_or_init(|| async {
            Some(Arc::new(self.ui.live(path, query, session).await.ok()?))
        });
        made.await.clone()
    }

    /// Waits for the next event and returns it. Returns `None` if the stream has ended.
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
            let live = self.live(&session).await?;
            let is_new = |(name, text): &&(String, String)| self.sent.get(name) != Some(text);
            let new: HashMap<_, _> = live.iter().filter(is_new).cloned().collect();
            if new.is_empty() {
                continue;
            }
            let text = serde_json::to_string(&new).ok()?;
            self.sent.extend(new);
            return Some(format!("data: {text}\n\n").into());
        }
    }
}
