//! Sends the figures of an open page as they change (server-sent events).
//!
//! Limits the number of open pages and the duration of a stream. Caches figures of the newest
//! sample, so that figures shown on several pages are computed only once.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use ringwell_core::Millis;
use ringwell_store::Role;
use tokio::sync::{OnceCell, watch};

use super::Ui;
use super::asked::Live;
use super::sample::{Sample, Watcher};
use super::session::Session;

/// The maximum number of pages that may be open at once.
const STREAMS_MAX: usize = 100;
/// The interval between comment lines, which keep proxies from closing the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The longest duration of a stream. After that, the browser reconnects, and its session is checked
/// again.
const STREAM_TIME_MAX: Duration = Duration::from_hours(1);

/// The figures of the open pages as of one sample.
#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<OfSample>);

#[derive(Debug, Default)]
struct OfSample {
    at: Millis,
    /// The figures of each open page. A cell is empty until they have been computed; it contains
    /// `None` if the computation failed.
    pages: HashMap<PageKey, Arc<OnceCell<Option<Arc<Live>>>>>,
}

/// The key under which a page's figures are cached. Pages with the same key show the same figures.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PageKey {
    path: String,
    query: Option<String>,
    role: Role,
    /// The call log's change count, if the page shows calls.
    calls: Option<u64>,
}

impl Figures {
    /// The entry for the figures of `page`, as of the sample at `at`.
    fn of(&self, at: Millis, page: PageKey) -> Arc<OnceCell<Option<Arc<Live>>>> {
        // The map is consistent after each statement, so a poisoned lock is harmless.
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.at != at {
            *newest = OfSample { at, pages: HashMap::new() };
        }
        Arc::clone(newest.pages.entry(page).or_default())
    }
}

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
