//! Clients' requests: traces them, and reads their bodies within limits.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, Uri};
use ringwell_driver::Traced;
use ringwell_trace::{Kind, Parent, Span, TRACEPARENT};
use ringwell_wire::RequestError;

use crate::memory::Room;
use crate::shard::HttpShard;

/// Returns the tracing span of a request, if tracing is on and the trace is sampled.
pub(crate) fn trace(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    name: &'static str,
) -> Option<Box<Span>> {
    let parent = || {
        let header = headers.get(TRACEPARENT);
        Parent::Header(header.and_then(|value| value.to_str().ok()))
    };
    let mut span = ringwell_trace::begin(name, Kind::Server, parent)?;
    span.text("http.request.method", method.as_str());
    // The span omits the query, because a query may contain a ring pool key.
    span.text("url.path", uri.path());
    Some(span)
}

/// The trace context to be sent to other nodes.
pub(crate) fn traced(span: &Span) -> Traced {
    Traced(span.context().place())
}

/// Whether the body is sent in chunks. If such a body is left unread, [`close`] the connection:
/// trailer fields may follow the chunks, so the end of the body is not certain.
pub(crate) fn has_chunks(body: &Incoming) -> bool {
    body.size_hint().exact().is_none()
}

/// Discards a body that is not needed, and returns whether all of it has arrived. If not, [`close`]
/// the connection: the HTTP library would end it without announcing that.
pub(crate) async fn discard(head: &Parts, mut body: Incoming) -> bool {
    // If the client waits for permission to send the body, polling the body would grant it.
    if has_chunks(&body) || head.headers.contains_key(header::EXPECT) {
        return body.is_end_stream();
    }
    while !body.is_end_stream() {
        match poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None) => break,
            Poll::Ready(Some(Err(_))) | Poll::Pending => return false,
        }
    }
    true
}

/// Reads a body within the limits on its size, on the time that it takes, and on the memory of all
/// bodies together. The memory counts as free again when the [`Room`] is dropped.
///
/// # Errors
/// The [`RequestError`] names the limit that was exceeded. The connection must then be closed.
pub(crate) async fn read_body(
    thread: &HttpShard,
    body: Incoming,
) -> Result<(Bytes, Room<'_>), RequestError> {
    read_within(thread, body, thread.node.config.limits.body_bytes, thread.server.bodies.room())
        .await
}

/// Reads a body with its own size limit. The body does not count towards the memory of all bodies.
/// Used for authenticated nodes, and for bodies that are too small to matter.
///
/// # Errors
/// The same errors as those of [`read_body`].
pub(crate) async fn read_frame(
    thread: &HttpShard,
    body: Incoming,
    limit: usize,
) -> Result<Bytes, RequestError> {
    read_within(thread, body, limit, Room::unbounded()).await.map(|(bytes, _)| bytes)
}

/// Like [`read_body`], but with its own size limit, and with memory from `room`.
///
/// # Errors
/// The same errors as those of [`read_body`].
pub(crate) async fn read_within<'a>(
    thread: &HttpShard,
    body: Incoming,
    limit: usize,
    room: Room<'a>,
) -> Result<(Bytes, Room<'a>), RequestError> {
    let limits = &thread.node.config.limits;
    let mut read = pin!(collect(body, limit, room));
    // Most bodies arrive together with the head, so they need no timer.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
        return done;
    }
    let done = tokio::time::timeout(limits.body_timeout, read).await;
    let done = done.unwrap_or(Err(RequestError::TooSlow));
    if matches!(done, Err(RequestError::NoRoom)) {
        thread.stats.bodies_refused.add(1);
    }
    done
}

async fn collect(
    mut body: Incoming,
    limit: usize,
    mut room: Room<'_>,
) -> Result<(Bytes, Room<'_>), RequestError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(RequestError::TooLarge { limit });
    }
    // The HTTP library returns nearly every body in one piece, which is passed on unchanged. That
    // piece is in the connection's buffer and needs no memory of its own.
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| RequestError::Broken)?;
        // Refuses trailer fields. The HTTP library accepts a bare LF before and within trailer
        // fields, so it could mistake the next request for one of them.
        let Ok(data) = frame.into_data() else { return Err(RequestError::Broken) };
        let bytes = first.len().max(all.len()) + data.len();
        if bytes > limit {
            return Err(RequestError::TooLarge { limit });
        }
        if first.is_empty() {
            first = data;
            continue;
        }
        if bytes > taken {
            let wanted = bytes.max(2 * taken).min(limit);
            if !room.take(wanted - taken) {
                return Err(RequestError::NoRoom);
            }
            taken = wanted;
            all.reserve(taken - all.len());
        }
        if all.is_empty() {
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&data);
    }
    Ok((if all.is_empty() { first } else { all.freeze() }, room))
}
