//! Serves other nodes' requests: rows for this node's shards, releases, look-ups and pings.
//!
//! These requests arrive at a separate address, from senders that know the cluster secret. Even so,
//! everything is checked as if the sender were untrusted. Source: docs/spec/link.md.

use std::time::Duration;

use bytes::Bytes;
use ringwell_core::Millis;
use ringwell_directory::{Directory, Entry};
use ringwell_engine::{Outcome, Refusal};
use ringwell_mesh::frame::{self, FrameError, ReadRow, RowAnswer};
use ringwell_wire::Span;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::sync::oneshot;

use super::limits::JSON_BYTES_MAX;
pub use super::limits::{body_bytes_max, frame_bytes_max};
use super::translate::{self, AttributionJson, ReleaseJson};
use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::message::{Message, PeerRow, PeerRows, Unanswered};
use crate::moves::{self, OwnersCopy, Prepared};
use crate::node::{Node, Phase};
use crate::platform::{Path, Platform};
use crate::queue::Peers;
use crate::shard::Shard;
use crate::witness;

/// Whether a request with this secret comes from one of the cluster's nodes.
#[must_use]
pub fn is_of_the_cluster(node: &Node, secret: &[u8]) -> bool {
    let membership = node.membership.as_ref();
    membership.is_some_and(|membership| membership.cluster().secret_matches(secret))
}

/// An HTTP status and the reason as text.
pub type Refused = (u16, String);

const BAD_REQUEST: u16 = 400;
const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
const UPGRADE_REQUIRED: u16 = 426;
const INTERNAL_SERVER_ERROR: u16 = 500;
const SERVICE_UNAVAILABLE: u16 = 503;

/// Answers a request that `shard` received from another node. The other node can read frames up to
/// version `speaks`.
///
/// # Errors
/// [`Refused`]
pub async fn answer<P: Platform>(
    shard: &Shard<P>,
    path: Path,
    body: Bytes,
    speaks: u8,
) -> Result<Vec<u8>, Refused> {
    match path {
        Path::Rows => rows(shard, body, speaks).await,
        Path::Unanswered => unanswered(shard, &body),
        Path::Ping => ping(shard, &body).await,
        Path::Attribution => attribution(shard, &body).await,
        Path::Release => release(shard, &body).await,
        Path::Prepare | Path::Adopt | Path::Take | Path::Abandon | Path::Owners => {
            answer_move(shard, path, &body).await
        }
        Path::Journals => journals(shard, &body).await,
        Path::Locked => {
            let (node, wanted) = (&shard.node, read_json(&body)?);
            let locked = arrivals::locked(&shard.platform, node, &shard.peers, wanted).await;
            let locked = locked.map_err(|reason| (CONFLICT, reason))?;
            serde_json::to_vec(&locked).map_err(|error| unread(&error))
        }
    }
}

/// Serves rows of a batch that another node received.
async fn rows<P: Platform>(shard: &Shard<P>, body: Bytes, speaks: u8) -> Result<Vec<u8>, Refused> {
    let limits = frame::Limits { rows_max: shard.node.config.limits.rows, ..Default::default() };
    let (ask, read) = frame::read_ask(&body, &limits).map_err(|error| malformed(&error))?;
    let unit =
        if planted(Bug::DeadlineUnit) { Duration::from_micros } else { Duration::from_millis };
    let deadline = shard.platform.moment() + unit(ask.remaining_ms.into());
    check_shard(&shard.node, ask.shard)?;
    check_phase(&shard.node)?;
    let mut outcomes = vec![Outcome::Refused(Refusal::Moved); read.len()];
    let (own, places) = rows_of(&shard.directory(), ask.shard, &read);
    let (reply, answer) = oneshot::channel();
    let rows = PeerRows { text: body, rows: own, retry: ask.retry, deadline, traced: None, reply };
    let mut missing = Refusal::Late;
    let mut at = Millis::ZERO;
    if !places.is_empty() {
        if !shard.peers.send(ask.shard, Message::Rows(rows)) {
            missing = Refusal::Busy;
        }
        let answer = shard.platform.by(deadline, answer).await;
        let answer = answer.and_then(Result::ok);
        at = answer.as_ref().map_or(at, |answer| answer.at);
        let mut answered = answer.into_iter().flat_map(|answer| answer.outcomes);
        for place in places {
            outcomes[place] = answered.next().unwrap_or(Outcome::Refused(missing));
        }
    }
    let map_version = translate::map_version(&shard.node);
    let mut rows: Vec<_> = outcomes.iter().map(translate::row_answer).collect();
    if speaks < frame::NUMBERS_OF_THE_WORLD {
        take_back(&shard.peers, ask.shard, at, &mut rows);
    }
    let mut out = Vec::new();
    frame::write_answer(&mut out, &frame::Answer { at, map_version, rows });
    Ok(out)
}

/// Returns the rows whose pools `shard` owns, and the indices of these rows.
fn rows_of(directory: &Directory, shard: u16, read: &[ReadRow]) -> (Vec<PeerRow>, Vec<usize>) {
    let (mut own, mut places) = (Vec::with_capacity(read.len()), Vec::with_capacity(read.len()));
    for (place, row) in read.iter().enumerate() {
        let entry = directory.lookup(row.pool).filter(|entry| entry.shard() == shard);
        let Some(pool) = entry.map(Entry::index) else { continue };
        let params = row.params.clone().map(|range| Span::new(range.start, range.end));
        let (id, visitor) = (row.pool, row.visitor);
        own.push(PeerRow { pool, id, row: row.row, params, visitor });
        places.push(place);
    }
    (own, places)
}

/// Releases the numbers that do not fit into a frame of version 1, and answers their rows as busy.
fn take_back(peers: &Peers, shard: u16, at: Millis, rows: &mut [RowAnswer]) {
    let mut unseen = Vec::new();
    for row in rows {
        let Some(number) = row.number().filter(|number| number.to_nanp().is_none()) else {
            continue;
        };
        let is_kept = matches!(row, RowAnswer::Kept { .. });
        unseen.push(Unanswered { number, allocated_at: at, is_kept });
        *row = RowAnswer::Busy;
    }
    if !unseen.is_empty() {
        // If the queue is full, the numbers stay locked until their lockouts end.
        let _ = peers.send(shard, Message::Unanswered(unseen));
    }
}

/// Releases numbers that no client has seen.
fn unanswered<P: Platform>(shard: &Shard<P>, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let limits = frame::Limits { rows_max: shard.node.config.limits.rows, ..Default::default() };
    let unseen = frame::read_unanswered(body, &limits).map_err(|error| malformed(&error))?;
    check_shard(&shard.node, unseen.shard)?;
    let frame::Unanswered { allocated_at, kept: is_kept, numbers, .. } = unseen;
    let numbers = numbers.into_iter();
    let numbers = numbers.map(|number| Unanswered { number, allocated_at, is_kept });
    if shard.peers.send(unseen.shard, Message::Unanswered(numbers.collect())) {
        Ok(Vec::new())
    } else {
        Err(busy())
    }
}

/// Answers a ping once the shard has processed its own queue up to that ping.
async fn ping<P: Platform>(shard: &Shard<P>, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let pinged = frame::read_ping(body).map_err(|error| malformed(&error))?;
    check_shard(&shard.node, pinged)?;
    check_phase(&shard.node)?;
    let (reply, answer) = oneshot::channel();
    let at = if shard.peers.send(pinged, Message::Ping(reply)) { answer.await.ok() } else { None };
    let map_version = translate::map_version(&shard.node);
    let mut out = Vec::new();
    let at = at.ok_or_else(busy)?;
    frame::write_answer(&mut out, &frame::Answer { at, map_version, rows: Vec::new() });
    Ok(out)
}

async fn attribution<P: Platform>(shard: &Shard<P>, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let wanted: AttributionJson = read_json(body)?;
    check_shard(&shard.node, wanted.shard)?;
    if !planted(Bug::StartingAnswers) {
        check_phase(&shard.node)?;
    }
    let (number, at) = wanted.wanted().ok_or_else(|| unread(&"not a number"))?;
    let (reply, answer) = oneshot::channel();
    let message = Message::Attribution { number, at, keep_alives: wanted.keep_alives, reply };
    if !shard.peers.send(wanted.shard, message) {
        return Err(busy());
    }
    let past = answer.await.map_err(|_| busy())?;
    let past = past.map_err(|reason| (INTERNAL_SERVER_ERROR, reason))?;
    serde_json::to_vec(&translate::past_to_json(past)).map_err(|error| unread(&error))
}

async fn release<P: Platform>(shard: &Shard<P>, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let wanted: ReleaseJson = read_json(body)?;
    check_shard(&shard.node, wanted.shard)?;
    let (number, (allocated_at, seen_at)) =
        wanted.wanted().ok_or_else(|| unread(&"not a number"))?;
    let (reply, answer) = oneshot::channel();
    let message = Message::Release { number, allocated_at, seen_at, reply };
    if !shard.peers.send(wanted.shard, message) {
        return Err(busy());
    }
    let released = answer.await.ok().and_then(Result::ok).ok_or_else(busy)?;
    serde_json::to_vec(&released).map_err(|error| unread(&error))
}

/// Answers requests about buckets that move.
async fn answer_move<P: Platform>(
    shard: &Shard<P>,
    path: Path,
    body: &[u8],
) -> Result<Vec<u8>, Refused> {
    let (node, peers) = (&shard.node, &shard.peers);
    let done = match path {
        Path::Prepare => {
            let wanted = read_json(body)?;
            let prepared = moves::prepare(node, &wanted);
            prepared.map_err(|reason| (CONFLICT, reason))?;
            let prepared = Prepared { body_bytes: JSON_BYTES_MAX };
            return serde_json::to_vec(&prepared).map_err(|error| unread(&error));
        }
        Path::Adopt => moves::adopt(peers, read_json(body)?).await,
        Path::Take => moves::take(&shard.platform, node, peers, read_json(body)?).await,
        Path::Abandon => moves::abandon(&shard.platform, node, peers, read_json(body)?).await,
        _ => {
            let received: OwnersCopy = read_json(body)?;
            let learnt = moves::learn(&shard.platform, node, peers, received).await;
            let copy = moves::copy_owners(node, learnt.held);
            let copy = copy.ok_or_else(|| unread(&"this server is not a node of a cluster"))?;
            return serde_json::to_vec(&copy).map_err(|error| unread(&error));
        }
    };
    done.map(|()| b"true".to_vec()).map_err(|reason| (CONFLICT, reason))
}

/// Returns what this node has recorded about another node's journals, and records the state that
/// the other node reports.
async fn journals<P: Platform>(shard: &Shard<P>, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let known = witness::learn(&shard.platform, &shard.node, read_json(body)?).await;
    let known = known.map_err(|reason| (CONFLICT, reason))?;
    serde_json::to_vec(&known).map_err(|error| unread(&error))
}

fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| unread_json(&error))
}

fn check_shard(node: &Node, shard: u16) -> Result<(), Refused> {
    if node.is_own(shard) {
        return Ok(());
    }
    Err((
        NOT_FOUND,
        format!("shard {shard} does not belong to that node: the two nodes' maps differ"),
    ))
}

/// Refuses requests while the node is starting, because the node must first ask the other nodes
/// whether it may hand out numbers.
fn check_phase(node: &Node) -> Result<(), Refused> {
    if node.phase() == Phase::Starting {
        return Err((SERVICE_UNAVAILABLE, "the node is starting".to_owned()));
    }
    Ok(())
}

fn malformed(error: &FrameError) -> Refused {
    let status = match error {
        FrameError::Version { .. } => UPGRADE_REQUIRED,
        _ => BAD_REQUEST,
    };
    (status, error.to_string())
}

fn unread(error: &dyn std::fmt::Display) -> Refused {
    (BAD_REQUEST, error.to_string())
}

/// Returns the reason why JSON could not be read. It is logged, so it contains the position of the
/// error but not the value, which may be a promo number.
fn unread_json(error: &serde_json::Error) -> Refused {
    let what = match error.classify() {
        Category::Data => "unexpected content",
        Category::Syntax | Category::Eof | Category::Io => "not JSON",
    };
    (BAD_REQUEST, format!("{what}, at line {} column {}", error.line(), error.column()))
}

fn busy() -> Refused {
    (SERVICE_UNAVAILABLE, "the shard's queue is full".to_owned())
}
