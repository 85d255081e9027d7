//! The nodes' records of each other's journals, which reveal a node that comes back without its own
//! journal.
//!
//! A node that has lost its disk or restored it from a copy cannot detect this on its own, because
//! its journal is consistent. Other nodes therefore store the name of each shard's data directory
//! and the progress of its journal. A node asks them for these records before it hands out any
//! number. Another node may have recorded a different journal for a shard, or a longer one than
//! this node has. The shard's buckets are then held, as if a new map had just assigned them to the
//! shard. Source: docs/spec/cluster.md, "A lost disk".

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_directory::{BucketHold, Owners, SHARDS_MAX};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::Path;
use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::change::{ChangeError, ask};
use crate::kept::{read_served, write_gaps, write_served};
use crate::message::Message;
use crate::message::{Step, StepResult};
use crate::moves::{self, to_its_end};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;
use crate::store::{Identity, SeenJournals};

/// The time limit for another node's answer. A node that does not answer while this node starts is
/// asked again while this node serves.
const PATIENCE: Duration = Duration::from_secs(1);

/// The interval between two reports on the progress of journals, and between two attempts to query
/// a node that does not answer.
const EVERY: Duration = Duration::from_secs(1);

/// The pause before another attempt to record a hold if the disk has failed.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// The maximum length of a data directory's name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A shard's journal: the shard, the name of its data directory, and the number of its next group.
pub type JournalWord = (u16, String, u64);

/// A request for another node's records of some journals, a report on some journals, or both.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The shards whose journals the sender asks about.
    shards: Vec<u16>,
    /// The journals whose state is to be recorded.
    journals: Vec<JournalWord>,
}

/// Durably stores another node's report, and answers with the previous records of the shards that
/// the node asks about. The report is stored even if that node stops waiting. Otherwise, the report
/// could be in `peers.json` but not in this process's memory. The next report from another node
/// would then remove it from the file.
///
/// # Errors
/// The reason why the report cannot be recorded.
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
            return Err(format!(
                "shard {shard} belongs to this node, or the name of its journal is invalid"
            ));
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

/// Asks all other nodes for their records, and holds the buckets of shards whose journals are in
/// doubt. Then records which buckets this node serves, and reports its journals to the other nodes.
/// Runs before a node hands out a number. Returns one shard of each node that must be asked again.
/// If a hold could not be stored, returns one shard of every other node. The other nodes must then
/// keep their old records, so that the next startup again finds the journals in doubt.
pub async fn begin<P: Platform>(platform: &P, node: &Arc<Node>, peers: &Peers) -> Vec<u16> {
    if node.membership.is_none() {
        return Vec::new();
    }
    // The owners of buckets are requested first. This node must not serve buckets that have moved
    // to another node, so the numbers of these buckets need no query.
    let mut unasked = moves::ask_owners(platform, node, peers).await;
    if !node.begun.is_first && !unasked.is_empty() && unasked.len() == node.others().len() {
        unasked = moves::wait_for_newer(platform, node, peers, unasked).await;
    }
    // A new data directory cannot be from before a move; see the warning below. Buckets whose
    // journals are in logs do not move.
    let may_have_moved = !node.begun.is_first && node.config.journal.replicated.is_none();
    if !unasked.is_empty() && may_have_moved {
        tracing::warn!(
            shards = ?unasked,
            "the nodes of these shards do not answer, so the owners of buckets could not be \
            checked: if this data \
                directory is from before a move of buckets, numbers may be handed out twice until \
                these nodes answer"
        );
    }
    if !node.answers_wait() {
        // There is no journal to compare, but other nodes may have lockouts of numbers that came
        // here from those nodes.
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
                its disk, stop this node, and start it again when another node is running. Until \
                another node answers, this node may hand out numbers that visitors still have"
        );
    }
    if !away.is_empty() && node.begun.has_past_in_log && node.begun.served_lists.is_none() {
        tracing::warn!(
            shards = ?away,
            "this data directory does not contain the list of ring pools that the node served \
            last, and the nodes of these shards do not answer. Their visitors may still have \
            numbers of this node's pools, so the pools answer with overflow numbers for the \
            longest lifetime"
        );
    }
    arrivals::begin(platform, node, peers).await;
    if !settle(platform, node, peers, &doubtful).await {
        return others(node);
    }
    let tips = tips(node, peers).await;
    for other in others(node).into_iter().filter(|other| !away.contains(other)) {
        // If a node no longer answers, it gets the report once it answers again.
        say(platform, peers, other, &tips).await;
    }
    away
}

/// Reports the progress of this node's journals to the other nodes, and asks the nodes that did not
/// answer at startup.
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
            // Also exchanges the owners of buckets. If this node has served buckets that it did not
            // own, it does so with all other nodes, because the buckets' owners must hold them.
            moves::learn_from(&platform, &node, &peers, *other).await;
        }
        for other in asked {
            match question(&platform, &node, &peers, other).await {
                Some(doubts) if settle(&platform, &node, &peers, &doubts).await => {
                    arrivals::withhold_overflow(&platform, &node, &peers, vec![other]).await;
                }
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

/// Reports the progress of this node's journals for the last time, after all requests have been
/// answered.
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
        // At this point, it no longer matters whether the other nodes were reached.
        let _ = end.await;
    }
}

/// Returns one shard of each node that records this node's journals. A node without journals has
/// nothing to lose, so no node records it.
fn others(node: &Node) -> Vec<u16> {
    if node.answers_wait() { node.others() } else { Vec::new() }
}

/// Asks `other`'s node for its records of this node's journals. Returns the shards whose recorded
/// journal differs from the one that this startup found, or is longer. Returns `None` if that node
/// does not answer.
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

/// Holds the buckets of these shards from now on. Also records which buckets this node serves.
/// Returns `false` if the hold is not stored in a file.
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
        tracing::warn!(
            error,
            "the buckets that this node serves could not be recorded: after the next startup, \
            pools may answer with overflow numbers for one lifetime"
        );
    }
    matches!(done, Some(Ok(())))
}

async fn settle_now<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    doubtful: &BTreeSet<u16>,
) -> Result<(), String> {
    // By now, other nodes may hand buckets over to this node, and interrupted moves may continue.
    let _one = node.changes.lock().await;
    if !doubtful.is_empty() {
        // Pools are held first, so that no number is handed out twice even if a node is silent or
        // the disk fails to record the holds.
        let holds = async |earlier| {
            hold(node, peers, doubtful, earlier).await.map_err(|error| error.to_string())
        };
        holds(Millis::ZERO).await?;
        tracing::error!(
            shards = ?doubtful,
            "according to another node, these shards had a different or longer journal: \
            some answered allocations are unknown here, so the shards' pools answer with overflow \
            numbers for one lifetime"
        );
        let earlier = arrivals::earlier_elsewhere(platform, node, peers).await;
        if earlier > Millis::ZERO {
            holds(earlier).await?;
        }
        note_gap(platform, node).await?;
    }
    let Some(owners) = node.owners() else { return Ok(()) };
    let before = read_served(platform, node).map_err(|error| error.to_string())?;
    let before = before.filter(|before| before.version == owners.version());
    let leaving = before.map(|before| before.leaving).unwrap_or_default();
    write_served(platform, node, &owners, leaving).await.map_err(|error| error.to_string())?;
    if doubtful.is_empty() { Ok(()) } else { rename(platform, node).await }
}

/// Draws a new name for the data directory once the hold is durable. The journal continues from an
/// earlier position than other nodes have recorded. If a copy of the data is restored later, the
/// journal's length alone may not reveal the restoration.
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

/// Holds the buckets that these shards have, or had when the data directory was last served. The
/// holds last for the lifetimes of the buckets' pools, and for at least `earlier`. With a new map,
/// another of this node's shards may have such a bucket but none of its allocations.
async fn hold(
    node: &Node,
    peers: &Peers,
    doubtful: &BTreeSet<u16>,
    earlier: Millis,
) -> Result<(), ChangeError> {
    let directory = node.directory();
    let former = node.begun.served_owners.as_ref().map(Owners::placement);
    let former = former.filter(|_| !planted(Bug::FormerShardBelieved));
    let placement = directory.placement();
    let had = |shard: u16| {
        let of = former.iter().flat_map(move |former| former.buckets_of(shard));
        of.filter(|bucket| node.is_own(placement.of_bucket(*bucket)))
    };
    let mut holds = node.bucket_holds();
    for shard in doubtful {
        let (reply, answer) = oneshot::channel();
        if !peers.send_when_there_is_room(*shard, Message::Ping(reply)).await {
            return Err(ChangeError::Shard(*shard));
        }
        let since = answer.await.map_err(|_| ChangeError::Shard(*shard))?;
        for bucket in placement.buckets_of(*shard).chain(had(*shard)) {
            let until = if earlier > Millis::ZERO { since + earlier } else { Millis::ZERO };
            holds.add(bucket, BucketHold { since, until });
        }
    }
    node.set_bucket_holds(holds.clone());
    for shard in node.shards() {
        ask(peers, shard, Step::HoldBuckets(holds.clone())).await?;
    }
    Ok(())
}

/// Records a gap from the end of the journals, as this startup found them, until now. Answers that
/// were sent in this period are missing.
async fn note_gap<P: Platform>(platform: &P, node: &Node) -> Result<(), String> {
    let mut gaps = node.gaps();
    gaps.add(node.begun.recorded_until, node.dated(platform));
    write_gaps(platform, node, gaps).await
}

/// Returns the progress of this node's journals.
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

/// Sends `said` to `shard`'s node, and returns the node's answer, if any.
async fn post<P: Platform>(
    platform: &P,
    peers: &Peers,
    shard: u16,
    said: &Exchange,
) -> Option<Vec<JournalWord>> {
    let body = serde_json::to_vec(said).ok()?.into();
    let answer = peers.post(shard, Path::Journals, body)?;
    let answer = platform.within(PATIENCE, answer).await?.ok()?.ok()?;
    serde_json::from_slice(&answer).ok()
}
