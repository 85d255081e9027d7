//! Holds this node's pools when they receive numbers from other nodes' pools.
//!
//! A node has records only of its own shards' lockouts. Before one of its pools receives numbers
//! from outside the node's pools, the node asks every other node for the numbers' lockouts. It
//! holds the pool for as long as one of these lockouts may still run. A node that does not answer
//! is assumed to have just handed the numbers out. At startup, a node does the same for each bucket
//! whose list of pools differs from the one that the node last served. Source:
//! docs/spec/cluster.md, "Numbers that change nodes".

mod locked;
mod overflow;
mod query;
mod returned;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber, Retired, Slot};
use ringwell_directory::{Arrivals, BucketHold, Directory, Owners, bucket, without};
use tokio::sync::oneshot;

use crate::canary::{Bug, planted};
use crate::kept::{read_served, write_served};
use crate::lifetimes::Lifetimes;
use crate::lists::list;
use crate::message::{Message, Step, StepResult};
use crate::node::{Node, Phase};
use crate::platform::Platform;
use crate::queue::Peers;
use crate::store::ServedMap;

use query::{Elsewhere, RANGES_MAX, ask_others};

pub use locked::locked;
pub(crate) use overflow::{taken_elsewhere, withhold_overflow};
pub(crate) use query::earlier_elsewhere;
pub use query::{Locked, Wanted};

pub use crate::lists::LIST_SPREAD;

/// Makes one of this node's shards execute `step`. Returns `None` if the shard has ended.
async fn ask(peers: &Peers, shard: u16, step: Step) -> Option<StepResult> {
    let (reply, answer) = oneshot::channel();
    if !peers.send_when_there_is_room(shard, Message::Change(step, reply)).await {
        return None;
    }
    answer.await.ok()
}

/// Returns the current shard time of `shard`, or `None` if the shard has ended.
pub(crate) async fn now(peers: &Peers, shard: u16) -> Option<Millis> {
    let (reply, answer) = oneshot::channel();
    if !peers.send_when_there_is_room(shard, Message::Ping(reply)).await {
        return None;
    }
    answer.await.ok()
}

/// Returns the numbers that are not in rotation on this node but are recorded by one of its shards,
/// and, if `in_rotation` is set, those that are in rotation and locked. Each number comes with the
/// allocation whose lockout ends last.
async fn known_here(
    node: &Node,
    peers: &Peers,
    pools: &[(PoolId, Vec<NumberRange>)],
    in_rotation: bool,
) -> BTreeMap<PromoNumber, Slot> {
    let numbers: Vec<_> = pools.iter().flat_map(|(_, ranges)| ranges).copied().collect();
    let mut known = BTreeMap::new();
    for shard in node.shards() {
        let step = Step::Report { numbers: numbers.clone(), includes_free: true };
        let mut slots: Vec<Slot> = Vec::new();
        if let Some(StepResult::Known(retired)) = ask(peers, shard, step).await {
            slots.extend(retired.into_iter().map(|retired| retired.slot));
        }
        if in_rotation {
            let step = Step::ReportLocked { numbers: numbers.clone() };
            if let Some(StepResult::Locked(locked)) = ask(peers, shard, step).await {
                slots.extend(locked);
            }
        }
        for slot in slots {
            let last = known.entry(slot.number).or_insert(slot);
            if slot.locked_until > last.locked_until {
                *last = slot;
            }
        }
    }
    known
}

/// The state of this node's own records of arriving numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Records {
    /// Only the records of numbers that were here before may be outdated.
    Current,
    /// All records may be outdated, even those of numbers in this node's pools.
    Doubted,
    /// Like `Doubted`, and the numbers are already in rotation.
    InRotation,
}

/// The rule for arriving numbers: which nodes to ask, and how to treat doubtful cases.
struct Rule {
    /// One shard of each node that is asked about the numbers.
    nodes: Vec<u16>,
    /// Whether an unreachable node counts as having handed the numbers out.
    counts_silent: bool,
    /// Whether the numbers may come from buckets of this node whose lockouts are unknown.
    may_be_own: bool,
    records: Records,
}

/// Holds these pools for as long as one of their listed numbers may be locked on another node. If
/// this node's information about a number may be outdated, another node may have handed the number
/// out. A hold is then recorded even if it ends at once. Returns the latest end of the holds, or
/// `None` if no hold was recorded.
async fn hold_pools<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    pools: &[(PoolId, Vec<NumberRange>)],
    Rule { mut nodes, counts_silent, may_be_own, records }: Rule,
) -> Option<Millis> {
    let first = node.shards().next()?;
    if pools.is_empty() || planted(Bug::ArrivalsNotHeld) {
        return None;
    }
    let in_rotation = records == Records::InRotation;
    let known = known_here(node, peers, pools, in_rotation).await;
    // If the shard has ended, the change that follows detects it.
    let now = now(peers, first).await?;
    // After a number was locked here, another node may have taken over its bucket and extended the
    // lockout. An operator may also have ended the lockout there. So the other nodes are asked
    // about each locked number.
    let locked = known.values().filter(|slot| !slot.is_free(now));
    let locked: Vec<_> = locked.filter_map(|slot| NumberRange::new(slot.number, 1)).collect();
    let rest = |(pool, ranges): &(PoolId, Vec<NumberRange>)| {
        (*pool, ranges.iter().flat_map(|range| without(*range, &locked)).collect())
    };
    let rest = pools.iter().map(rest);
    let one = |range: &NumberRange| (PoolId(0), vec![*range]);
    let asked: Vec<(PoolId, Vec<NumberRange>)> = rest.chain(locked.iter().map(one)).collect();
    let (left, earlier) = ask_others(platform, &mut nodes, peers, &asked, counts_silent).await;
    let earlier = if planted(Bug::OtherLifetimesIgnored) { Millis::ZERO } else { earlier };
    let now = self::now(peers, first).await?;
    let until = |left: Option<Millis>| {
        // A silent node may have handed the number out under a list that this node has never seen.
        let longest = node.lifetimes().longest(now).max(earlier);
        // Adds a millisecond, because shard times are rounded down.
        now + left.map_or(longest + LIST_SPREAD, |left| left + Millis(left.0.min(1)))
    };
    let (left, of_locked) = left.split_at(pools.len());
    let locked = locked.iter().filter_map(|one| known.get(&one.first())).zip(of_locked);
    let locked = locked.map(|(slot, it)| (slot, it, slot.locked_until.max(until(it.left))));
    let locked: Vec<_> = locked.collect();
    let longer = locked.iter().filter(|(slot, _, until)| slot.locked_until < *until);
    let longer = longer.filter(|_| !in_rotation);
    lengthen(peers, first, longer.map(|(slot, _, until)| (slot.number, *until))).await;
    // If another node reports a different allocation, the visitor recorded here is not the newest.
    let passed = locked.iter().filter(|(slot, it, _)| it.is_of_other(slot));
    let passed = passed.filter(|_| !planted(Bug::OtherVisitorIgnored));
    let passed: BTreeMap<_, _> = passed.map(|(slot, _, until)| (slot.number, *until)).collect();
    let unknown_until = if may_be_own { node.unknown_until(now) } else { node.begun.unknown_until };
    let (mut holds, mut held_until) = (node.bucket_holds(), None);
    for (pool, ranges) in pools {
        let of = ranges.iter().flat_map(|range| passed.range(range.first()..=range.last()));
        if let Some(until) = of.map(|(_, until)| *until).max() {
            held_until = held_until.max(Some(until));
            holds.add(bucket(*pool), BucketHold { since: Millis::ZERO, until });
        }
    }
    for ((pool, numbers), it) in asked.iter().zip(left) {
        if numbers.is_empty() {
            continue;
        }
        let until = until(it.left).max(unknown_until);
        let is_known = || {
            numbers.iter().any(|range| known.range(range.first()..=range.last()).next().is_some())
        };
        let is_doubted = records != Records::Current || is_known();
        if until > now || is_doubted {
            held_until = held_until.max(Some(until));
            holds.add(bucket(*pool), BucketHold { since: Millis::ZERO, until });
        }
    }
    node.set_bucket_holds(holds);
    held_until
}

/// Makes the shard record new, later ends for these lockouts. If a number moves between this node's
/// shards, its lockout moves with it.
async fn lengthen(peers: &Peers, shard: u16, locked: impl Iterator<Item = (PromoNumber, Millis)>) {
    let retired = |(number, until)| Retired::without_allocation(number, until);
    let known: Vec<Retired> = locked.map(retired).collect();
    if !known.is_empty() {
        let (answers, holds, put) = (Vec::new(), Vec::new(), Vec::new());
        // A missing result is ignored: a shard that has ended hands out no numbers.
        let _ = ask(peers, shard, Step::Enter { known, answers, holds, put }).await;
    }
}

/// Returns the pools in `buckets` with all their numbers.
fn pools_in(
    directory: &Directory,
    buckets: impl Iterator<Item = u16>,
) -> Vec<(PoolId, Vec<NumberRange>)> {
    let pools = buckets.flat_map(|bucket| directory.pools_in(bucket));
    pools.map(|pool| (pool.id(), pool.numbers().to_vec())).collect()
}

/// Returns the pools of each bucket whose list of pools has changed since this node agreed to take
/// the bucket over. Each pool comes with all its numbers, because the giver may not have sent all
/// their lockouts.
fn changed_since_prepared(
    node: &Node,
    buckets: impl Iterator<Item = u16>,
) -> Vec<(PoolId, Vec<NumberRange>)> {
    let (directory, prepared) = (node.directory(), node.prepared());
    let is_changed = |bucket: &u16| prepared.get(bucket) != Some(&list(&directory, *bucket));
    pools_in(&directory, buckets.filter(is_changed))
}

/// Records the current lists of `buckets`, which this node has agreed to take over.
pub(crate) fn note_prepared(node: &Node, buckets: &[u16]) {
    let directory = node.directory();
    node.prepare(buckets.iter().map(|bucket| (*bucket, list(&directory, *bucket))));
}

/// Holds the pools from [`changed_since_prepared`]. Must run before the buckets are taken over.
pub(crate) async fn hold_taken<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    buckets: impl Iterator<Item = u16>,
) {
    let pools = changed_since_prepared(node, buckets);
    let nodes = node.others();
    let rule = Rule { nodes, counts_silent: true, may_be_own: true, records: Records::Doubted };
    hold_pools(platform, node, peers, &pools, rule).await;
}

/// Returns the latest time at which a number that enters a pool may still be locked by an
/// allocation missing from this node's data. Used if part of the data's history is missing at
/// `now`.
#[must_use]
pub(crate) fn unknown_until(lifetimes: Lifetimes, now: Millis) -> Millis {
    now + lifetimes.longest(now) + LIST_SPREAD
}

/// Runs at startup, before any number is handed out. Holds the pools of each bucket whose list of
/// pools differs from the list last served from this data directory. Such pools may have received
/// numbers from other nodes' pools, or from buckets whose lockouts are unknown here. If nothing has
/// been served from this data directory yet, unreachable nodes cause no hold, because they may not
/// have started yet. Also holds the pools whose numbers were on other nodes in the meantime. Then
/// withholds overflow numbers.
pub(crate) async fn begin<P: Platform>(platform: &P, node: &Node, peers: &Peers) {
    hold_changed(platform, node, peers).await;
    node.lists_are_checked();
}

async fn hold_changed<P: Platform>(platform: &P, node: &Node, peers: &Peers) {
    let served = node.begun.served_lists.as_ref();
    let is_alone = node.others().is_empty();
    if (is_alone && served.is_none()) || planted(Bug::ListsForgotten) {
        return;
    }
    let Some(first) = node.shards().next() else { return };
    let Some(now) = now(peers, first).await else { return };
    if is_alone && node.unknown_until(now) <= now {
        return;
    }
    let directory = node.directory();
    let is_changed = |bucket: &u16| {
        served.is_none_or(|served| served.get(bucket).copied() != list(&directory, *bucket))
    };
    let own = node.shards().flat_map(|shard| directory.placement().buckets_of(shard));
    // If `cluster-map.json` cannot be read, leaving buckets cannot be handed over and need no hold.
    let own = own.chain(leaving(platform, node).await.unwrap_or_default());
    let (changed, unchanged): (Vec<u16>, Vec<u16>) = own.partition(is_changed);
    let pools = pools_in(&directory, changed.into_iter());
    // If this machine does not know the list that was served last, any number may be new here.
    let has_served = served.is_some() || node.begun.has_past_in_log;
    if !has_served && planted(Bug::FirstStartSilent) {
        return;
    }
    let rule = Rule {
        nodes: node.others(),
        counts_silent: has_served,
        may_be_own: true,
        records: if has_served { Records::Doubted } else { Records::Current },
    };
    let held = hold_pools(platform, node, peers, &pools, rule).await;
    let pools = pools_in(&directory, unchanged.into_iter());
    let pools = returned::returned(platform, node, peers, pools).await;
    let rule = Rule {
        nodes: node.others(),
        counts_silent: false,
        may_be_own: false,
        records: Records::InRotation,
    };
    if held.max(hold_pools(platform, node, peers, &pools, rule).await).is_some() {
        hold_on_all_shards(node, peers).await;
    }
    withhold_overflow(platform, node, peers, node.others()).await;
}

/// Makes all of this node's shards apply the node's bucket holds.
async fn hold_on_all_shards(node: &Node, peers: &Peers) {
    let holds = node.bucket_holds();
    for shard in node.shards() {
        // A missing result is ignored: a shard that has ended hands out no numbers.
        let _ = ask(peers, shard, Step::HoldBuckets(holds.clone())).await;
    }
}

/// Holds and returns the pools of `shard` that share numbers with pools in other nodes' lists. A
/// node that does not answer causes no hold, except on the pools in `conflicting`, which shared
/// numbers with such pools before. After the shard was suspended, `may_be_locked` is set: pools
/// with numbers that are locked on other nodes are then held too. `free` omits numbers that are
/// locked here.
pub(crate) async fn confirm<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    shard: u16,
    (conflicting, may_be_locked): (&BTreeSet<PoolId>, bool),
    free: impl AsyncFn(&[NumberRange]) -> Vec<NumberRange>,
) -> BTreeSet<PoolId> {
    let Some(owners) = node.owners() else { return BTreeSet::new() };
    let _one = node.changes.lock().await;
    let directory = node.directory();
    let whole = directory.pools_of(shard).map(|pool| (pool.id(), pool.numbers().to_vec()));
    let whole: Vec<_> = whole.collect();
    let mut nodes = node.others();
    let (left, _) = ask_others(platform, &mut nodes, peers, &whole, false).await;
    let is_unknown = nodes.len() < node.others().len() && !planted(Bug::ConflictForgotten);
    let (mut elsewhere, mut unknown, mut pools) = (BTreeSet::new(), Vec::new(), Vec::new());
    for ((pool, numbers), Elsewhere { left, .. }) in whole.into_iter().zip(left) {
        if left.is_none() {
            elsewhere.insert(pool);
        } else if is_unknown && conflicting.contains(&pool) {
            elsewhere.insert(pool);
            unknown.push((pool, numbers));
            continue;
        } else if !may_be_locked && !conflicting.contains(&pool) {
            continue;
        }
        if left.is_none_or(|left| left == Millis::ZERO) {
            pools.push((pool, numbers));
            continue;
        }
        // If another node handed a number out before the number's pool moved here, that node still
        // reports the lockout. While a number is locked here, no other node can hand it out.
        let free = free(&numbers).await;
        pools.extend(free.chunks(RANGES_MAX).map(|ranges| (pool, ranges.to_vec())));
    }
    let (may_be_own, records) = (false, Records::Current);
    let rule = Rule { nodes, counts_silent: false, may_be_own, records };
    let held = hold_pools(platform, node, peers, &pools, rule).await;
    let rule = Rule { nodes: node.others(), counts_silent: true, may_be_own, records };
    let unknown = hold_pools(platform, node, peers, &unknown, rule).await;
    if held.max(unknown).is_some() {
        // A missing result is ignored: a shard that has ended hands out no numbers.
        let _ = ask(peers, shard, Step::HoldBuckets(node.bucket_holds())).await;
        record(platform, node, &owners, "the times when pools stop overflowing").await;
    }
    elsewhere
}

/// Holds the pools of these buckets after another node has served them with data from before they
/// moved. The holds last for as long as the pools' numbers may be locked on that node. That node
/// has stopped, and may be one of the nodes that do not answer now. Silent nodes therefore count as
/// having handed the numbers out. If that node has an older cluster file (`is_of_older`), this
/// node's file may not contain it, so it is not asked. Each pool is then held for its own lifetime.
pub(crate) async fn hold_stale<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    (buckets, is_of_older): (&[u16], bool),
) {
    let Some(owners) = node.owners() else { return };
    let first = node.shards().next().filter(|_| is_of_older);
    if let Some(first) = first
        && let Some(since) = now(peers, first).await
    {
        let mut holds = node.bucket_holds();
        for bucket in buckets {
            holds.add(*bucket, BucketHold { since, until: Millis::ZERO });
        }
        node.set_bucket_holds(holds);
        hold_on_all_shards(node, peers).await;
    }
    let pools = pools_in(&node.directory(), buckets.iter().copied());
    let nodes = node.others();
    let rule = Rule { nodes, counts_silent: true, may_be_own: false, records: Records::Doubted };
    if hold_pools(platform, node, peers, &pools, rule).await.is_none() && first.is_none() {
        return;
    }
    hold_on_all_shards(node, peers).await;
    record(platform, node, &owners, "the times when pools stop overflowing").await;
}

/// Runs before the list of pools changes. Holds the pools that receive numbers from other nodes'
/// pools. [`note`] records these holds.
pub(crate) async fn hold<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    next: &Directory,
    found: &Arrivals,
) {
    let Some(first) = node.shards().next() else { return };
    // If the shard has ended, the change that follows detects it.
    let Some(now) = now(peers, first).await else { return };
    let changed = changed(next, found);
    // A change of owners does not change any list.
    let lists = node.lists();
    let is_new = |of: &u16| changed.get(of).is_some_and(|list| lists.get(of) != list.as_ref());
    // If `cluster-map.json` cannot be read, leaving buckets cannot be handed over and need no hold.
    let leaving = leaving(platform, node).await.unwrap_or_default().into_iter().filter(is_new);
    let mut pools = found.pools.clone();
    pools.extend(pools_in(next, leaving));
    let nodes = node.others();
    let rule = Rule { nodes, counts_silent: true, may_be_own: true, records: Records::Current };
    let held_until = hold_pools(platform, node, peers, &pools, rule).await;
    if let Some(left) = held_until.map(|until| until.since(now)).filter(|left| left.0 > 0) {
        node.held_changes.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            pools = pools.len(),
            seconds = left.0.div_ceil(1_000),
            "some numbers that these ring pools received may be locked on another node, or another \
             node does not answer. The pools hand out only overflow numbers until all such \
             lockouts have ended"
        );
    }
}

/// Returns the new digest of each bucket whose list of pools has changed.
fn changed(next: &Directory, found: &Arrivals) -> BTreeMap<u16, Option<u64>> {
    found.buckets.iter().map(|bucket| (*bucket, list(next, *bucket))).collect()
}

/// Runs once all holds of the changed pools are durable, and before their numbers are handed out.
/// Records the changed lists and the holds from [`hold`]. If the lists were recorded earlier, a
/// startup after a crash would not hold the pools.
pub(crate) async fn note<P: Platform>(
    platform: &P,
    node: &Node,
    next: &Directory,
    found: &Arrivals,
) {
    let Some(owners) = node.owners() else { return };
    // During startup, the lists and holds are recorded when startup ends.
    if node.set_lists(&changed(next, found)) && node.phase() == Phase::Serving {
        record(platform, node, &owners, "the changed lists of pools").await;
    }
}

/// Returns the buckets that this node has released but the next owner has not accepted yet. If a
/// number enters a pool of such a bucket now, it did not belong to this node when the bucket was
/// released. So this node must not report its own information about the number as the newest.
///
/// # Errors
/// The reason why the buckets are unknown.
async fn leaving<P: Platform>(platform: &P, node: &Node) -> Result<BTreeSet<u16>, String> {
    let (files, data) = (platform.files(), node.config.data.clone());
    let read = platform.offload(move || ServedMap::read(&files, &data)).await;
    let served = read.ok_or("the node is stopping")?.map_err(|error| error.to_string())?;
    Ok(served.into_iter().flat_map(|it| it.leaving).flat_map(|it| it.buckets).collect())
}

/// Records the node's holds and lists. The owners in `cluster-map.json` may be newer than the
/// owners in use, because a take-over of buckets is recorded before it takes effect.
async fn record<P: Platform>(platform: &P, node: &Node, owners: &Owners, what: &str) {
    let recorded = match read_served(platform, node) {
        Ok(served) => {
            let (known, leaving) = served.map(|it| (it.owners, it.leaving)).unwrap_or_default();
            let is_present = |known: &Owners| known.version() == owners.version();
            let known = known.filter(|known| is_present(known) && !planted(Bug::TakenOverwritten));
            write_served(platform, node, known.as_ref().unwrap_or(owners), leaving).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = recorded {
        tracing::warn!(%error, "{what} could not be recorded: after the next startup, pools may \
            answer with overflow numbers for one lifetime, or hand out locked-out numbers");
    }
}
