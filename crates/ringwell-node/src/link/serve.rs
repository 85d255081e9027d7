//! What other nodes ask this one: rows of its shards, releases, look-ups, signs of life.
//!
//! Comes in on an address of its own, from who knows the cluster's secret. Everything is checked
//! here as if it came from a stranger. Source: docs/spec/link.md.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};
use ringwell_core::Millis;
use ringwell_directory::Entry;
use ringwell_engine::{Outcome, Refusal};
use ringwell_mesh::frame::{self, FrameError, RowAnswer};
use ringwell_wire::Span;
use tokio::sync::oneshot;

use ringwell_driver::{Path, Platform};

use super::call::{FRAME, SPEAKS};
use super::translate::{self, AttributionJson, ReleaseJson};
use crate::clock::coarse_time;
use crate::handover;
use crate::http::{AnswerBody, close, read_frame};
use crate::shard::HttpShard;
use crate::witness;
use ringwell_driver::message::{Message, PeerRow, PeerRows, Unanswered};
use ringwell_driver::node::{Node, Phase};

/// What a row takes in a frame beside its parameters, at most.
const ROW_BYTES: usize = 64;

/// What nodes say to each other of owners, moves and journals: not bound to what clients may send. All
/// 1,024 buckets with their owners and holds take a third of it.
const JSON_BYTES_MAX: usize = 256 * 1024;

/// The longest frame with rows: of the longest batch.
pub(crate) fn frame_bytes_max(node: &Node) -> usize {
    let limits = &node.config.limits;
    limits.body_bytes + limits.rows * ROW_BYTES
}

/// Answers a request of another node.
pub(crate) async fn answer(
    thread: &Rc<HttpShard>,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    match dispatch(thread, request).await {
        Ok((kind, body)) => {
            let mut response = Response::new(AnswerBody::from(body));
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err((status, reason)) => {
            thread.stats.links_refused.add(1);
            if let Some(left_out) = thread.stats.strangers.pass(coarse_time()) {
                tracing::warn!(
                    shard = thread.id,
                    %status,
                    reason,
                    left_out,
                    "another node's request was refused"
                );
            }
            let mut response = Response::new(AnswerBody::from(format!("{reason}\n").into_bytes()));
            *response.status_mut() = status;
            if status == StatusCode::UNAUTHORIZED {
                close(&mut response);
            }
            if status == StatusCode::UPGRADE_REQUIRED {
                response.headers_mut().insert(UPGRADE, HeaderValue::from_static("ringwell-link/2"));
            }
            response
        }
    }
}

type Refused = (StatusCode, String);

async fn dispatch(
    thread: &Rc<HttpShard>,
    request: Request<Incoming>,
) -> Result<(HeaderValue, Vec<u8>), Refused> {
    let refused = |status, reason: &str| Err((status, reason.to_owned()));
    let (head, body) = request.into_parts();
    let presented = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    if !is_of_the_cluster(&thread.node, presented) {
        return refused(StatusCode::UNAUTHORIZED, "the cluster's secret is missing or another");
    }
    if head.method != Method::POST {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "links use POST only");
    }
    let path = Path::parse(head.uri.path());
    let limit = match path {
        Some(
            Path::Prepare
            | Path::Adopt
            | Path::Take
            | Path::Abandon
            | Path::Owners
            | Path::Journals,
        ) => JSON_BYTES_MAX,
        _ => frame_bytes_max(&thread.node),
    };
    let body = read_frame(thread, body, limit).await;
    let body = body.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    let Some(path) = path else {
        return refused(StatusCode::NOT_FOUND, "there is nothing at this path of a link");
    };
    let answer = match path {
        Path::Rows => rows(thread, body, speaks(&head.headers)).await,
        Path::Unanswered => unanswered(thread, &body),
        Path::Ping => ping(thread, &body).await,
        Path::Attribution => attribution(thread, &body).await,
        Path::Release => release(thread, &body).await,
        Path::Prepare | Path::Adopt | Path::Take | Path::Abandon | Path::Owners => {
            moves(thread, path, &body).await
        }
        Path::Journals => journals(thread, &body).await,
    };
    Ok((if path.is_frame() { FRAME } else { translate::JSON }, answer?))
}

fn is_of_the_cluster(node: &Node, presented: &[u8]) -> bool {
    let presented = presented.strip_prefix(b"Bearer ").unwrap_or_default();
    let membership = node.membership.as_ref();
    membership.is_some_and(|membership| membership.cluster().secret_matches(presented))
}

/// The highest version of frames that the caller reads.
fn speaks(headers: &HeaderMap) -> u8 {
    let version = headers.get(SPEAKS).and_then(|value| value.to_str().ok()?.parse().ok());
    version.unwrap_or(1)
}

/// Serves rows of a batch that another node took in, which reads frames up to version `speaks`.
async fn rows(thread: &Rc<HttpShard>, body: Bytes, speaks: u8) -> Result<Vec<u8>, Refused> {
    let limits = frame::Limits { rows_max: thread.node.config.limits.rows, ..Default::default() };
    let (ask, read) = frame::read_ask(&body, &limits).map_err(|error| malformed(&error))?;
    let deadline = thread.platform.moment() + Duration::from_millis(ask.remaining_ms.into());
    check_shard(&thread.node, ask.shard)?;
    check_phase(&thread.node)?;
    let mut outcomes = vec![Outcome::Refused(Refusal::Moved); read.len()];
    let mut own = Vec::with_capacity(read.len());
    let mut places = Vec::with_capacity(read.len());
    for (place, row) in read.into_iter().enumerate() {
        let directory = thread.directory();
        let entry = directory.lookup(row.pool).filter(|entry| entry.shard() == ask.shard);
        let Some(pool) = entry.map(Entry::index) else { continue };
        let params = row.params.map(|range| Span::new(range.start, range.end));
        let (id, visitor) = (row.pool, row.visitor);
        own.push(PeerRow { pool, id, row: row.row, params, visitor });
        places.push(place);
    }
    let (reply, answer) = oneshot::channel();
    let rows = PeerRows { text: body, rows: own, retry: ask.retry, deadline, reply };
    let mut missing = Refusal::Late;
    let mut at = Millis::ZERO;
    if !places.is_empty() {
        if !thread.peers.send(ask.shard, Message::Rows(rows)) {
            missing = Refusal::Busy;
        }
        let answer = thread.platform.by(deadline, answer).await;
        let answer = answer.and_then(Result::ok);
        at = answer.as_ref().map_or(at, |answer| answer.at);
        let mut answered = answer.into_iter().flat_map(|answer| answer.outcomes);
        for place in places {
            outcomes[place] = answered.next().unwrap_or(Outcome::Refused(missing));
        }
    }
    let map_version = translate::map_version(&thread.node);
    let mut rows: Vec<_> = outcomes.iter().map(translate::row_answer).collect();
    if speaks < frame::VERSION {
        take_back(thread, ask.shard, at, &mut rows);
    }
    let mut out = Vec::new();
    frame::write_answer(&mut out, &frame::Answer { at, map_version, rows });
    Ok(out)
}

/// Releases numbers that a frame of version 1 has no room for; their rows were busy.
fn take_back(thread: &HttpShard, shard: u16, at: Millis, rows: &mut [RowAnswer]) {
    let mut unseen = Vec::new();
    for row in rows {
        let Some(number) = row.number().filter(|number| number.to_nanp().is_none()) else {
            continue;
        };
        if matches!(row, RowAnswer::Allocated { .. }) {
            unseen.push(Unanswered { number, allocated_at: at });
        }
        *row = RowAnswer::Busy;
    }
    if !unseen.is_empty() {
        // If the queue is full, their lockouts end by themselves.
        let _ = thread.peers.send(shard, Message::Unanswered(unseen));
    }
}

/// Releases numbers that no client has seen.
fn unanswered(thread: &HttpShard, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let limits = frame::Limits { rows_max: thread.node.config.limits.rows, ..Default::default() };
    let unseen = frame::read_unanswered(body, &limits).map_err(|error| malformed(&error))?;
    check_shard(&thread.node, unseen.shard)?;
    let allocated_at = unseen.allocated_at;
    let numbers = unseen.numbers.into_iter().map(|number| Unanswered { number, allocated_at });
    if thread.peers.send(unseen.shard, Message::Unanswered(numbers.collect())) {
        Ok(Vec::new())
    } else {
        Err(busy())
    }
}

/// Answers when the shard's own queue has come to it.
async fn ping(thread: &HttpShard, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let shard = frame::read_ping(body).map_err(|error| malformed(&error))?;
    check_shard(&thread.node, shard)?;
    check_phase(&thread.node)?;
    let (reply, answer) = oneshot::channel();
    let at = if thread.peers.send(shard, Message::Ping(reply)) { answer.await.ok() } else { None };
    let map_version = translate::map_version(&thread.node);
    let mut out = Vec::new();
    let at = at.ok_or_else(busy)?;
    frame::write_answer(&mut out, &frame::Answer { at, map_version, rows: Vec::new() });
    Ok(out)
}

async fn attribution(thread: &HttpShard, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let wanted: AttributionJson = serde_json::from_slice(body).map_err(|error| unread(&error))?;
    check_shard(&thread.node, wanted.shard)?;
    let (number, at) = wanted.wanted().ok_or_else(|| unread(&"not a number"))?;
    let (reply, answer) = oneshot::channel();
    if !thread.peers.send(wanted.shard, Message::Attribution { number, at, reply }) {
        return Err(busy());
    }
    let past = answer.await.map_err(|_| busy())?;
    let past = past.map_err(|reason| (StatusCode::INTERNAL_SERVER_ERROR, reason))?;
    serde_json::to_vec(&translate::past_to_json(past)).map_err(|error| unread(&error))
}

async fn release(thread: &HttpShard, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let wanted: ReleaseJson = serde_json::from_slice(body).map_err(|error| unread(&error))?;
    check_shard(&thread.node, wanted.shard)?;
    let (number, allocated_at) = wanted.wanted().ok_or_else(|| unread(&"not a number"))?;
    let (reply, answer) = oneshot::channel();
    if !thread.peers.send(wanted.shard, Message::Release { number, allocated_at, reply }) {
        return Err(busy());
    }
    let released = answer.await.ok().and_then(Result::ok).ok_or_else(busy)?;
    serde_json::to_vec(&released).map_err(|error| unread(&error))
}

/// What has to do with buckets that move.
async fn moves(thread: &HttpShard, path: Path, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let (node, peers) = (&thread.node, &thread.peers);
    let done = match path {
        Path::Prepare => {
            let wanted = read_json(body)?;
            let prepared = handover::prepare(node, &wanted);
            prepared.map_err(|reason| (StatusCode::CONFLICT, reason))?;
            let prepared = ringwell_driver::moves::Prepared { body_bytes: JSON_BYTES_MAX };
            return serde_json::to_vec(&prepared).map_err(|error| unread(&error));
        }
        Path::Adopt => handover::adopt(peers, read_json(body)?).await,
        Path::Take => handover::take(node, peers, read_json(body)?).await,
        Path::Abandon => handover::abandon(node, peers, read_json(body)?).await,
        _ => {
            handover::learn(node, peers, read_json(body)?).await;
            let owners = node.owners().ok_or_else(|| unread(&"no node of a cluster"))?;
            return serde_json::to_vec(&ringwell_driver::moves::OwnersCopy { owners })
                .map_err(|error| unread(&error));
        }
    };
    done.map(|()| b"true".to_vec()).map_err(|reason| (StatusCode::CONFLICT, reason))
}

/// Says what is known of another node's journals, and remembers what it says of them.
async fn journals(thread: &HttpShard, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let known = witness::learn(&thread.server, read_json(body)?).await;
    let known = known.map_err(|reason| (StatusCode::CONFLICT, reason))?;
    serde_json::to_vec(&known).map_err(|error| unread(&error))
}

fn read_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| unread(&error))
}

fn check_shard(node: &Node, shard: u16) -> Result<(), Refused> {
    if node.shards().any(|own| own == shard) {
        return Ok(());
    }
    Err((StatusCode::NOT_FOUND, format!("shard {shard} is not of this node: the maps differ")))
}

/// A node that starts asks others first whether it may hand anything out.
fn check_phase(node: &Node) -> Result<(), Refused> {
    if node.phase() == Phase::Starting {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "the node is starting".to_owned()));
    }
    Ok(())
}

fn malformed(error: &FrameError) -> Refused {
    let status = match error {
        FrameError::Version { .. } => StatusCode::UPGRADE_REQUIRED,
        _ => StatusCode::BAD_REQUEST,
    };
    (status, error.to_string())
}

fn unread(error: &dyn std::fmt::Display) -> Refused {
    (StatusCode::BAD_REQUEST, error.to_string())
}

fn busy() -> Refused {
    (StatusCode::SERVICE_UNAVAILABLE, "the shard has more to do than it may queue".to_owned())
}
