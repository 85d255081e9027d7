//! The nodes' records of each other's journals, which reveal a node that returns without its own.
//!
//! A node that has lost its disk, or restored it from a copy, cannot detect that alone, because its
//! journal is consistent. Other nodes store the name of each shard's data directory and its
//! journal's progress. A node asks them before it hands anything out. If a node has a record of
//! another journal, or of a longer one, the buckets of that shard are held like those that arrive
//! by a new map. Source: docs/spec/cluster.md, "A lost disk".

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_directory::{BucketHold, SHARDS_MAX};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::Path;
use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::change::{ChangeError, ask};
use crate::kept::write_gaps;
use crate::message::Message;
use crate::message::{Step, StepResult};
use crate::moves::{self, to_its_end};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;
use crate::store::{Identity, SeenJournals, ServedMap};

/// A node that does not answer during startup is asked again while this one serves.
const PATIENCE: Duration = Duration::from_secs(1);

/// The interval between two reports on the journals' progress, or between two queries.
const EVERY: Duration = Duration::from_secs(1);

/// The pause before another attempt to record a hold, if the disk has failed.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// The longest name of a data directory that is remembered.
const NAME_BYTES_MAX: usize = 64;

/// A shard's journal: the shard, the name of its data directory, and the number of its next group.
pub type JournalWord = (u16, String, u64);

/// Asks for the records of some shards' journals, and then reports their state.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The requested journals.
    shards: Vec<u16>,
    /// The journals to record.
    journals: Vec<JournalWord>,
}

/// Answers another node with the previous records of the shards, after storing its report durably.
/// The report is stored even if that node stops waiting; otherwise the file would have a record
/// that this process lacks, and that the node's next report would replace.
///
/// # Errors
/// The reason why it cannot be recorded.
pub async fn learn<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    said: Exchange,
) -> Result<Vec<JournalWord>, String> {
    let (at, of) = (platform.clone(), Arc::clone(node));
    let work = async move { learn_now(&at, &of, said).await };
    if planted(Bug::ReportGivenUp) {
        return work.await;
    }
    to_its_end(platform, work).await.ok_or("the server is stopping")?
}

async fn learn_now<P: Platform>(
    platform: &P,
    node: &Node,
    said: Exchange,
) -> Result<Vec<JournalWord>, String> {
    let mut seen = node.seen.lock().await;
    let data = node.config.data.clone();
    let known = match &*seen {
        Some(known) => known.clone(),
        None if node.answers_wait() => {
            SeenJournals::read(&platform.files(), &data).map_err(|e| e.to_string())?
        }
        None => SeenJournals::default(),
    };
    let of = |shard: &u16| known.shards.get(shard).map(|(name, n)| (*shard, name.clone(), *n));
    let answer = said.shards.iter().filter_map(of).collect();
    let mut next = known.clone();
    for (shard, name, n) in said.journals {
        if shard >= SHARDS_MAX || name.len() > NAME_BYTES_MAX || node.is_own(shard) {
            return Err(format!("shard {shard} is of this node, or its journal has no such name"));
        }
        next.shards.insert(shard, (name, n));
    }
    if next != known && node.answers_wait() {
        let write = next.clone();
        let files = platform.files();
        let written = platform.offload(move || write.write(&files, &data)).await;
        written.ok_or("the server is stopping")?.map_err(|error| error.to_string())?;
    }
    *seen = Some(next);
    Ok(answer)
}

/// Runs before a node hands out a number: asks all others, holds doubtful buckets, records what it
/// serves, and makes the others record its journals. Returns the nodes to query again. These are
/// all nodes if the disk did not store a hold, because the next start must find the doubt again.
pub async fn begin<P: Platform>(platform: &P, node: &Arc<Node>, peers: &Peers) -> Vec<u16> {
    if node.membership.is_none() {
        return Vec::new();
    }
    // Buckets that have moved to another node must not be served, so their numbers need no query.
    let unasked = moves::ask_owners(platform, node, peers).await;
    // A new data directory is not from before a move; see the warning below.
    if !unasked.is_empty() && !node.begun.is_first {
        tracing::warn!(
            shards = ?unasked,
            "the nodes of these shards could not be asked for the owners of buckets: if this data \
                directory is from before a move of buckets, numbers may be handed out twice \
                until they answer"
        );
    }
    if !node.answers_wait() {
        // There is no journal to compare, but the others may have lockouts of numbers that came
        // from them.
        arrivals::begin(platform, node, peers).await;
        return Vec::new();
    }
    let mut asked = Vec::new();
    for other in others(node) {
        let (at, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
        let question = async move { question(&at, &node, &peers, other).await };
        asked.push((other, platform.task(question)));
    }
    let (mut away, mut doubtful) = (Vec::new(), BTreeSet::new());
    for (other, doubts) in asked {
        match doubts.await {
            Ok(Some(doubts)) => doubtful.extend(doubts),
            Ok(None) | Err(_) => away.push(other),
        }
    }
    away.extend(unasked.into_iter().filter(|other| !away.contains(other)).collect::<Vec<_>>());
    if !away.is_empty() && node.begun.is_first {
        tracing::warn!(
            shards = ?away,
            "this data directory is new, and the nodes of these shards do not answer yet. This is \
                normal at the first start of a cluster. If this node has served before and lost \
                its disk, stop it until another node answers: it may hand out numbers that \
                visitors still have"
        );
    }
    arrivals::begin(platform, node, peers).await;
    if !settle(platform, node, peers, &doubtful).await {
        return others(node);
    }
    let tips = tips(node, peers).await;
    for other in others(node).into_iter().filter(|other| !away.contains(other)) {
        // A node that no longer answers gets the report when it does.
        say(platform, peers, other, &tips).await;
    }
    away
}

/// Reports the journals' progress to others, and queries those that did not answer at startup.
pub async fn go_on<P: Platform>(platform: P, node: Arc<Node>, peers: Peers, mut away: Vec<u16>) {
    let others = others(&node);
    if others.is_empty() {
        return;
    }
    let mut sent: Vec<(u16, Vec<JournalWord>)> = Vec::new();
    let mut ask_from = platform.moment();
    loop {
        platform.sleep_until(platform.moment() + EVERY).await;
        let is_time = platform.moment() >= ask_from;
        let asked = if is_time { std::mem::take(&mut away) } else { Vec::new() };
        for other in others.iter().filter(|other| asked.contains(other) || !node.stale().is_empty())
        {
            // Exchanges the owners of buckets too, even with nodes that must hold stale ones.
            moves::learn_from(&platform, &node, &peers, *other).await;
        }
        for other in asked {
            match question(&platform, &node, &peers, other).await {
                Some(doubts) if settle(&platform, &node, &peers, &doubts).await => {}
                Some(_) => {
                    ask_from = platform.moment() + TRY_AGAIN;
                    away.push(other);
                }
                None => away.push(other),
            }
        }
        let tips = tips(&node, &peers).await;
        for other in others.iter().filter(|other| !away.contains(other)) {
            let is_known = sent.iter().any(|(to, words)| to == other && *words == tips);
            if !is_known && say(&platform, &peers, *other, &tips).await {
                sent.retain(|(to, _)| to != other);
                sent.push((*other, tips.clone()));
            }
        }
    }
}

/// Reports a last time, when all requests have been answered.
pub async fn end<P: Platform>(platform: &P, node: &Node, peers: &Peers) {
    let others = others(node);
    if others.is_empty() {
        return;
    }
    let tips = tips(node, peers).await;
    let mut said = Vec::new();
    for other in others {
        let (at, peers, tips) = (platform.clone(), peers.clone(), tips.clone());
        said.push(platform.task(async move { say(&at, &peers, other, &tips).await }));
    }
    for end in said {
        // It no longer matters whether they were reached.
        let _ = end.await;
    }
}

/// A shard of each node that records this one's journals. A node without journals has nothing to
/// lose.
fn others(node: &Node) -> Vec<u16> {
    let membership = node.membership.as_ref().filter(|_| node.answers_wait());
    membership.iter().flat_map(|member| member.first_shards_of_others()).collect()
}

/// The shards of this node for which the node of `other` has a record of a different or a longer
/// journal than this start found. `None` if it does not answer.
async fn question<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    other: u16,
) -> Option<BTreeSet<u16>> {
    let asks = Exchange { shards: node.shards().collect(), journals: Vec::new() };
    let known = post(platform, peers, other, &asks).await?;
    let is_other = |(shard, name, n): &&JournalWord| {
        let found = node.begun.journals.iter().find(|(own, _)| own == shard);
        found.is_some_and(|(_, next)| *name != node.begun.identity || n > next)
    };
    Some(known.iter().filter(is_other).map(|(shard, ..)| *shard).collect())
}

/// Holds the buckets of these shards from now on, and records what this node serves. Returns
/// `false` if the hold is not stored in any file.
async fn settle<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    doubtful: &BTreeSet<u16>,
) -> bool {
    let (at, peers, doubtful) = (platform.clone(), peers.clone(), doubtful.clone());
    let node = Arc::clone(node);
    let work = async move { settle_now(&at, &node, &peers, &doubtful).await };
    let done = to_its_end(platform, work).await;
    if let Some(Err(error)) = &done {
        tracing::warn!(error, "pools may be held for a lifetime after the next start");
    }
    matches!(done, Some(Ok(())))
}

async fn settle_now<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    doubtful: &BTreeSet<u16>,
) -> Result<(), String> {
    // Other nodes may hand buckets over from now on, and interrupted moves continue.
    let _one = node.changes.lock().await;
    if !doubtful.is_empty() {
        // Holds come first: neither a silent node nor a disk that fails to record them must let a
        // number be handed out twice.
        let holds = async |earlier| {
            hold(node, peers, doubtful, earlier).await.map_err(|error| error.to_string())
        };
        holds(Millis::ZERO).await?;
        tracing::error!(
            shards = ?doubtful,
            "another node has a record of another journal of these shards, or of a longer one: \
                its answered allocations are unknown here, and their pools answer with \
                overflow numbers for one lifetime"
        );
        let earlier = arrivals::earlier_elsewhere(platform, node, peers).await;
        if earlier > Millis::ZERO {
            holds(earlier).await?;
        }
        note_gap(platform, node).await?;
    }
    let Some(owners) = node.owners() else { return Ok(()) };
    let before =
        ServedMap::read(&platform.files(), &node.config.data).map_err(|error| error.to_string())?;
    let before = before.filter(|before| before.version == owners.version());
    let leaving = before.map(|before| before.leaving).unwrap_or_default();
    let kept = moves::keep(platform, node, &owners, leaving).await;
    kept.map_err(|error| error.to_string())?;
    if doubtful.is_empty() { Ok(()) } else { rename(platform, node).await }
}

/// Draws a new name for the data directory, once the hold is durable. The journal continues from an
/// older place, so its length alone would not distinguish it from a copy that is restored later.
async fn rename<P: Platform>(platform: &P, node: &Node) -> Result<(), String> {
    let has_log = node.config.journal.replicated.is_some();
    if has_log || planted(Bug::CopyKeepsName) {
        return Ok(());
    }
    let (files, data) = (platform.files(), node.config.data.clone());
    let drawn = platform.offload(move || Identity::rename(&files, &data)).await;
    let drawn = drawn.ok_or("the server is stopping")?.map_err(|error| error.to_string())?;
    node.set_identity(drawn.id);
    Ok(())
}

/// Holds the buckets of these shards for the lifetimes of their pools, and at least for `earlier`.
async fn hold(
    node: &Node,
    peers: &Peers,
    doubtful: &BTreeSet<u16>,
    earlier: Millis,
) -> Result<(), ChangeError> {
    let directory = node.directory();
    let mut holds = node.bucket_holds();
    for shard in doubtful {
        let (reply, answer) = oneshot::channel();
        if !peers.send_when_there_is_room(*shard, Message::Ping(reply)).await {
            return Err(ChangeError::Shard(*shard));
        }
        let since = answer.await.map_err(|_| ChangeError::Shard(*shard))?;
        for bucket in directory.placement().buckets_of(*shard) {
            let until = if earlier > Millis::ZERO { since + earlier } else { Millis::ZERO };
            holds.add(bucket, BucketHold { since, until });
        }
    }
    node.set_bucket_holds(holds.clone());
    for shard in doubtful {
        ask(peers, *shard, Step::HoldBuckets(holds.clone())).await?;
    }
    Ok(())
}

/// Records that answers sent after the end of this start's journals are unknown here.
async fn note_gap<P: Platform>(platform: &P, node: &Node) -> Result<(), String> {
    let wall = Millis(u64::try_from(platform.wall().as_millis()).unwrap_or(u64::MAX));
    let mut gaps = node.gaps();
    gaps.add(node.begun.recorded_until, wall);
    write_gaps(platform, node, gaps).await
}

/// The progress of this node's journals.
async fn tips(node: &Node, peers: &Peers) -> Vec<JournalWord> {
    let mut tips = Vec::new();
    for shard in node.shards() {
        if let Ok(StepResult::Stored(group)) = ask(peers, shard, Step::TellStored).await {
            tips.push((shard, node.identity(), group.saturating_add(1)));
        }
    }
    tips
}

async fn say<P: Platform>(platform: &P, peers: &Peers, other: u16, tips: &[JournalWord]) -> bool {
    let said = Exchange { shards: Vec::new(), journals: tips.to_vec() };
    post(platform, peers, other, &said).await.is_some()
}

/// A node's answer, if there is one.
async fn post<P: Platform>(
    platform: &P,
    peers: &Peers,
    shard: u16,
    said: &Exchange,
) -> Option<Vec<JournalWord>> {
    let body = serde_json::to_vec(said).ok()?.into();
    let (reply, answer) = oneshot::channel();
    if !peers.send(shard, Message::Post { path: Path::Journals, body, reply }) {
        return None;
    }
    let answer = platform.within(PATIENCE, answer).await?.ok()?.ok()?;
    serde_json::from_slice(&answer).ok()
}
