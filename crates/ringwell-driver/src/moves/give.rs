//! The giver's side of a move.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_core::{Millis, PoolId, Retired};
use ringwell_directory::{BucketHold, Owner, Owners};
use ringwell_journal::AnswerEntry;
use serde::Serialize;
use tokio::sync::oneshot;

use super::error::MoveError;
use super::owner_exchange::{announce_owners, learn_from};
use super::owners::{digest, use_owners};
use super::payload::{Adopted, Prepare, Prepared, Take, answer_word, hold_word, number_word};
use crate::Path;
use crate::canary::{Bug, planted};
use crate::change::{ChangeError, ask, known_apart};
use crate::kept::{read_served, write_served};
use crate::link::limits::frame_bytes_max;
use crate::message::Message;
use crate::message::{Known, Step, StepResult};
use crate::node::{Node, Phase};
use crate::platform::Platform;
use crate::queue::Peers;
use crate::store::{Leaving, ServedMap};

/// The maximum number of promo numbers or answers in one request. A request of this size is about
/// 50 KB long. The actual limit is lower if the next owner accepts only smaller requests.
const PIECE: usize = 512;

/// The maximum size of one bucket in a request, in bytes: its index, its owner and its hold.
const BUCKET_BYTES: usize = 160;

/// The minimum size, in bytes, of a request without its buckets: one number and all other fields.
const PIECE_BYTES_MIN: usize = 512;

/// The pause before an interrupted move is continued.
const AGAIN: Duration = Duration::from_secs(1);

/// The result of moving buckets.
#[derive(Debug, Serialize)]
pub struct MoveReport {
    buckets: usize,
    ring_pools: usize,
    /// The count of numbers whose state was sent.
    numbers: usize,
    took_ms: u64,
}

/// Moves `buckets`, all of which belong to this node, to the shard `to`.
///
/// # Errors
/// Returns [`MoveError`], which shows whether any bucket has moved.
pub async fn give<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    buckets: BTreeSet<u16>,
    to: u16,
) -> Result<MoveReport, MoveError> {
    let began = platform.moment();
    let _one = node.moves.lock().await;
    let owners = node.owners().ok_or(MoveError::NoCluster)?;
    let buckets = check(platform, node, &owners, buckets, to)?;
    let directory = node.directory();
    let ring_pools = buckets.iter().map(|bucket| directory.pools_in(*bucket).len()).sum();
    let mut given = MoveReport { buckets: buckets.len(), ring_pools, numbers: 0, took_ms: 0 };
    if node.is_own(to) {
        give_up(platform, node, peers, &buckets, to, None).await?;
    } else if !buckets.is_empty() {
        let not_taken = |reason| MoveError::NotTaken { shard: to, reason };
        let (version, digest) = (owners.version(), digest(&directory, &buckets));
        let prepare =
            Prepare { shard: to, version, buckets: buckets.clone(), digest: digest.clone() };
        let prepared = post(peers, to, Path::Prepare, &prepare).await.map_err(not_taken)?;
        // A node that runs an older release confirms that it can take the buckets, but does not
        // report the maximum request size.
        let prepared = serde_json::from_slice::<Prepared>(&prepared).ok();
        let body_bytes = prepared.map(|prepared| prepared.body_bytes);
        if buckets.len() * BUCKET_BYTES + PIECE_BYTES_MIN > at_once(node, body_bytes) {
            let reason = "the node's limits.body_bytes is too small for this many buckets: move \
                          fewer buckets, or raise this limit";
            return Err(not_taken(reason.to_owned()));
        }
        let (holds, _) = holds(node, peers, &buckets).await?;
        let from = buckets.iter().filter_map(|bucket| Some(owners.get(*bucket)?.shard)).collect();
        let leaving = Leaving { to, buckets: buckets.clone(), holds, from, body_bytes };
        give_up(platform, node, peers, &buckets, to, Some((&leaving, digest))).await?;
        match deliver(platform, node, peers, &leaving).await {
            Ok(numbers) => given.numbers = numbers,
            Err(reason) => {
                node.is_leaving.notify_one();
                return Err(MoveError::OnTheirWay { shard: to, reason });
            }
        }
    }
    given.took_ms = u64::try_from(platform.moment().since(began).as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        to,
        buckets = given.buckets,
        ring_pools,
        numbers = given.numbers,
        took_ms = given.took_ms,
        "buckets have moved"
    );
    announce_owners(platform, node, peers);
    Ok(given)
}

/// Records the move, and makes the old owner stop serving the buckets. If they move to another
/// node, their pools must still have the given digest, which that node has agreed to.
async fn give_up<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    buckets: &[u16],
    to: u16,
    leaving: Option<(&Leaving, String)>,
) -> Result<(), MoveError> {
    let _one = node.changes.lock().await;
    let agreed = leaving.as_ref().map(|(_, digest)| digest);
    let is_changed = agreed.is_some_and(|agreed| *agreed != digest(&node.directory(), buckets));
    if is_changed && !planted(Bug::ListChangedUnseen) {
        let reason = "the list of the pools in these buckets has changed: try again".to_owned();
        return Err(MoveError::NotTaken { shard: to, reason });
    }
    let mut owners = node.owners().ok_or(MoveError::NoCluster)?;
    for bucket in buckets {
        owners.give(*bucket, to);
    }
    if !planted(Bug::GivenNotKept) {
        let leaving = leaving.into_iter().map(|(leaving, _)| leaving.clone()).collect();
        write_served(platform, node, &owners, leaving).await?;
    }
    // On disk, the buckets are already released, so the remaining steps are repeated until they
    // succeed.
    let used = use_owners(platform, node, peers, owners).await;
    used.map_err(|error| MoveError::OnTheirWay { shard: to, reason: error.to_string() })
}

/// Continues interrupted moves whenever there are any.
pub async fn resume<P: Platform>(platform: P, node: Arc<Node>, peers: Peers) {
    while !planted(Bug::MoveNotResumed) {
        if let Some(reason) = resume_once(&platform, &node, &peers).await {
            tracing::warn!(reason, "released buckets are not accepted yet: trying again");
            platform.sleep_until(platform.moment() + AGAIN).await;
        } else {
            node.is_leaving.notified().await;
        }
    }
}

/// Tries each interrupted move once. If not all buckets were delivered, returns the reason.
async fn resume_once<P: Platform>(platform: &P, node: &Arc<Node>, peers: &Peers) -> Option<String> {
    let _one = node.moves.lock().await;
    let served = match read_served(platform, node) {
        Ok(served) => served?,
        Err(error) => return Some(error.to_string()),
    };
    if node.owners().is_none_or(|owners| owners.version() != served.version) {
        // The interrupted moves belong to an earlier cluster file. The new cluster file determines
        // the owners, and startup records them.
        return None;
    }
    for leaving in &served.leaving {
        if let Err(reason) = deliver(platform, node, peers, leaving).await {
            return Some(reason);
        }
        tracing::info!(to = leaving.to, buckets = leaving.buckets.len(), "buckets have moved");
        announce_owners(platform, node, peers);
    }
    None
}

/// Returns the buckets to move, without those that already belong to `to`.
fn check<P: Platform>(
    platform: &P,
    node: &Node,
    owners: &Owners,
    buckets: BTreeSet<u16>,
    to: u16,
) -> Result<Vec<u16>, MoveError> {
    if node.config.journal.replicated.is_some() {
        return Err(MoveError::InLog);
    }
    let leaving = read_served(platform, node)?.map(|served| served.leaving);
    if let Some(first) = leaving.iter().flatten().next() {
        return Err(MoveError::Busy(format!("{} to shard {}", first.buckets.len(), first.to)));
    }
    let membership = node.membership.as_ref().ok_or(MoveError::NoCluster)?;
    if node.phase() != Phase::Serving {
        return Err(MoveError::NotServing);
    }
    if to >= membership.cluster().shards() {
        return Err(MoveError::NoShard(to));
    }
    let mut moving = Vec::new();
    for bucket in buckets {
        let owner = owners.get(bucket).ok_or(MoveError::NoBucket(bucket))?;
        let shard = owner.shard;
        if shard == to {
            continue;
        }
        if !node.is_own(shard) {
            let node = membership.cluster().node_of(shard);
            let node = membership.cluster().nodes()[node].name.clone();
            return Err(MoveError::Elsewhere { bucket, shard, node });
        }
        moving.push(bucket);
    }
    Ok(moving)
}

/// Returns the held pools in `buckets`, each with the end of its hold. If a shard holds all its
/// pools, all pools in `buckets` are returned. The second value is the end of that hold, or zero if
/// there is none. The hold also applies to pools that are added later.
async fn holds(
    node: &Node,
    peers: &Peers,
    buckets: &[u16],
) -> Result<(Vec<(u64, u64)>, Millis), ChangeError> {
    let directory = node.directory();
    let pools = buckets.iter().flat_map(|bucket| directory.pools_in(*bucket));
    let pools: BTreeSet<PoolId> = pools.map(|pool| pool.id()).collect();
    let (mut holds, mut of_all) = (Vec::new(), Millis::ZERO);
    for shard in node.shards() {
        let step = Step::ReportHolds { includes_past: false };
        if let StepResult::Holds(held) = ask(peers, shard, step).await? {
            for (held, until) in held {
                match held {
                    Some(pool) if pools.contains(&pool) => holds.push((pool.0, until.0)),
                    Some(_) => {}
                    None => {
                        of_all = of_all.max(until);
                        holds.extend(pools.iter().map(|pool| (pool.0, until.0)));
                    }
                }
            }
        }
    }
    Ok((holds, of_all))
}

/// Sends the complete state of the buckets to the next owner, and hands the buckets over. Returns
/// the count of numbers sent.
async fn deliver<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    leaving: &Leaving,
) -> Result<usize, String> {
    let owners = node.owners().ok_or("this server is not a node of a cluster")?;
    let owner = |bucket: &u16| Some((*bucket, owners.get(*bucket)?));
    // Skips buckets that the taker has accepted and since moved to another shard. This happens if
    // the taker's answer to this node was lost.
    let buckets = leaving.buckets.iter().filter_map(owner);
    let buckets: Vec<_> = buckets.filter(|(_, owner)| owner.shard == leaving.to).collect();
    let still: Vec<u16> = buckets.iter().map(|(bucket, _)| *bucket).collect();
    if still.is_empty() {
        return delivered(platform, node).await.map(|()| 0);
    }
    let known = known_apart(platform, node, peers, node.directory(), &still).await;
    let (Known { numbers, answers, at }, doubts) = known.map_err(|error| error.to_string())?;
    let (version, moved) = (owners.version(), buckets.clone());
    // Holds may have been added since the buckets were released. For example, this node may have
    // been restarted and found the end of a journal damaged.
    let held = holds(node, peers, &still).await.map_err(|error| error.to_string())?;
    let (mut all_holds, held_until) = held;
    all_holds.extend(&leaving.holds);
    all_holds.extend(doubts.iter().map(|(pool, until)| (pool.0, until.0)));
    let known_holds = node.bucket_holds();
    let of_bucket = |bucket: &u16| {
        let mut known = known_holds.get(*bucket).unwrap_or_default();
        known.until = known.until.max(held_until);
        Some(hold_word(*bucket, known, at)).filter(|_| known != BucketHold::default())
    };
    let bucket_holds = still.iter().filter_map(of_bucket).collect();
    let empty =
        Adopted { shard: leaving.to, version, at: at.0, buckets: moved, ..Adopted::default() };
    let limit = at_once(node, leaving.body_bytes);
    let with = |holds: &[_]| Adopted { holds: holds.to_vec(), ..empty.clone() };
    post_pieces(peers, leaving.to, limit, &all_holds, with).await?;
    let with = |piece: &[Retired]| {
        let numbers = piece.iter().map(number_word).collect();
        Adopted { numbers, ..empty.clone() }
    };
    let sent_numbers = if planted(Bug::TakeBeforeTold) { &[][..] } else { &numbers };
    post_pieces(peers, leaving.to, limit, sent_numbers, with).await?;
    let with = |piece: &[AnswerEntry]| {
        let answers = piece.iter().map(answer_word).collect();
        Adopted { answers, ..empty.clone() }
    };
    post_pieces(peers, leaving.to, limit, &answers, with).await?;
    let gaps = node.gaps().of(&still, node.dating(node.clocks(platform)));
    let take = Take { version, buckets, holds: bucket_holds, gaps };
    if let Err(reason) = post(peers, leaving.to, Path::Take, &take).await {
        // The taker may have moved the buckets to another shard.
        learn_from(platform, node, peers, leaving.to).await;
        // This node may also have asked to take the buckets back. In that case, the taker agreed,
        // but its answer, or this node's record of it, was lost.
        let is_back = still.iter().any(|bucket| node.is_claimed(*bucket));
        if is_back && !planted(Bug::AbortNotCompleted) {
            take_back(platform, node, peers, leaving).await.map_err(|error| error.to_string())?;
        }
        return Err(reason);
    }
    delivered(platform, node).await?;
    Ok(numbers.len())
}

/// Returns the maximum size that the other node accepts for a request about a move. If that node
/// did not report its limit, returns this node's limit, because the two are most likely the same.
fn at_once(node: &Node, said: Option<usize>) -> usize {
    said.unwrap_or_else(|| frame_bytes_max(node))
}

/// Makes the next owner adopt the entries of `all`, in pieces small enough for it.
async fn post_pieces<T>(
    peers: &Peers,
    to: u16,
    limit: usize,
    all: &[T],
    with: impl Fn(&[T]) -> Adopted,
) -> Result<(), String> {
    let (mut rest, mut most) = (all, PIECE);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(most.min(rest.len()));
        let body = serde_json::to_vec(&with(piece)).map_err(|error| error.to_string())?;
        if body.len() > limit && most > 1 {
            most /= 2;
            continue;
        }
        post_body(peers, to, Path::Adopt, body.into()).await?;
        rest = after;
    }
    Ok(())
}

/// Takes back the buckets that are in transit. The next owner must confirm that it has not accepted
/// them and will never accept them in this move. Otherwise, both nodes could serve them.
///
/// # Errors
/// Returns [`MoveError`]; the move then continues.
pub async fn abort<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
) -> Result<MoveReport, MoveError> {
    let began = platform.moment();
    let _one = node.moves.lock().await;
    let served = read_served(platform, node)?;
    let owners = node.owners().ok_or(MoveError::NoCluster)?;
    let is_of_file = |served: &ServedMap| served.version == owners.version();
    let leaving = served.filter(is_of_file).and_then(|served| served.leaving.into_iter().next());
    let leaving = leaving.ok_or(MoveError::NothingLeaves)?;
    let back = take_back(platform, node, peers, &leaving).await?;
    let directory = node.directory();
    let ring_pools = back.iter().map(|(bucket, _)| directory.pools_in(*bucket).len()).sum();
    let took_ms = u64::try_from(platform.moment().since(began).as_millis()).unwrap_or(u64::MAX);
    Ok(MoveReport { buckets: back.len(), ring_pools, numbers: 0, took_ms })
}

/// Takes back the buckets of `leaving`, except those that have since moved on to another shard.
/// Returns the buckets taken back, with their owners.
async fn take_back<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    leaving: &Leaving,
) -> Result<Vec<(u16, Owner)>, MoveError> {
    let owners = node.owners().ok_or(MoveError::NoCluster)?;
    let shard = leaving.to;
    let mut back = Vec::new();
    for (place, bucket) in leaving.buckets.iter().enumerate() {
        let from = leaving.from.get(place).copied().or_else(|| node.shards().next());
        let still = owners.get(*bucket).filter(|owner| owner.shard == shard);
        back.extend(
            still
                .zip(from)
                .map(|(owner, shard)| (*bucket, Owner { moves: owner.moves + 1, shard })),
        );
    }
    let version = owners.version();
    let abandon = Take { version, buckets: back.clone(), holds: Vec::new(), gaps: Vec::new() };
    let not_back = |reason| MoveError::NotTakenBack { shard, reason };
    if !planted(Bug::AbortUnasked) {
        post(peers, shard, Path::Abandon, &abandon).await.map_err(not_back)?;
    }
    let _change = node.changes.lock().await;
    let mut owners = node.owners().ok_or(MoveError::NoCluster)?;
    for (bucket, owner) in &back {
        owners.take(*bucket, *owner);
    }
    write_served(platform, node, &owners, Vec::new()).await?;
    use_owners(platform, node, peers, owners).await?;
    node.forget_claimed(&leaving.buckets);
    tracing::info!(shard, buckets = back.len(), "buckets in transit were taken back");
    announce_owners(platform, node, peers);
    Ok(back)
}

/// Records that no bucket is in transit any more.
async fn delivered<P: Platform>(platform: &P, node: &Node) -> Result<(), String> {
    let _one = node.changes.lock().await;
    let owners = node.owners().ok_or("this server is not a node of a cluster")?;
    write_served(platform, node, &owners, Vec::new()).await.map_err(|error| error.to_string())
}

/// Posts a request to `shard`'s node.
async fn post(
    peers: &Peers,
    shard: u16,
    path: Path,
    what: &impl Serialize,
) -> Result<Bytes, String> {
    let body = serde_json::to_vec(what).map_err(|error| error.to_string())?.into();
    post_body(peers, shard, path, body).await
}

async fn post_body(peers: &Peers, shard: u16, path: Path, body: Bytes) -> Result<Bytes, String> {
    let (reply, answer) = oneshot::channel();
    if !peers.send_when_there_is_room(shard, Message::Post { to: shard, path, body, reply }).await {
        return Err("there is no link to that node".to_owned());
    }
    answer.await.map_err(|_| "the link to that node was closed".to_owned())?
}
