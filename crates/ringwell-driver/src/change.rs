//! Switches from one directory state to the next while the shards serve.
//!
//! Applies one change at a time, in steps that involve all of the node's shards. Numbers leave
//! their pools on every shard before they enter other pools on any shard. The numbers keep their
//! lockouts throughout. Rows are looked up in the new state only after every pool is in place. If a
//! row was looked up in the previous state and its pool has left the shard since, the row is
//! refused as moved and overflows. Separate threads compute, compare and drop the states; the
//! shards only put their numbers in place. Source: docs/spec/allocation.md, "Changes while the
//! shard serves".

mod ask;
mod error;
mod known;
mod shard;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringwell_core::{InRotation, Millis, NumberRange, PoolId, PoolSpec, PromoNumber, Retired};
use ringwell_directory::{Arrivals, Changes, Directory, Fault, RingPool, bucket, new_overflow};

pub use self::ask::ask;
pub use self::error::ChangeError;
pub use self::known::{known, known_apart};
pub use self::shard::{take, when_there_is_room};
use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::kept::write_overflow;
use crate::lifetimes;
use crate::message::{Known, Step, StepResult};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;
use crate::rows::spec;
use crate::store::{OverflowPeriods, read_lifetimes, write_lifetimes};

/// A change that is about to be applied.
struct Prepared {
    before: Arc<Directory>,
    next: Arc<Directory>,
    /// The changes to the pools of this node's shards, by shard.
    changes: BTreeMap<u16, Changes>,
    /// Numbers that this change turns into overflow numbers.
    overflow: Vec<(PromoNumber, PoolId)>,
    /// Numbers that stop being overflow numbers.
    no_overflow: Vec<(PromoNumber, PoolId)>,
    /// Only in a cluster: the numbers that move between this node's pools and other nodes' pools.
    arrivals: Option<Arrivals>,
    lifetimes: ChangedLifetimes,
}

/// The effect of a change on the pools' lifetimes.
#[derive(Clone, Copy)]
struct ChangedLifetimes {
    /// The longest lifetime before the change.
    before: Millis,
    /// The longest lifetime after the change.
    after: Millis,
    /// The result of [`lifetimes::longest_shortened`].
    shortened: Millis,
}

/// Moves all of this node's shards from the current directory state to the one that `make` derives
/// from it, and returns the new state.
///
/// # Errors
/// Returns [`ChangeError`]. After `Shard`, `Stopping` or `Clash`, part of the change may be in
/// effect. All other errors are found before any shard has changed.
pub async fn apply<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    make: impl FnOnce(&Directory) -> Result<Directory, Vec<Fault>> + Send + 'static,
) -> Result<Arc<Directory>, ChangeError> {
    let (before, shards) = (node.directory(), node.shards().collect::<Vec<_>>());
    let is_member = node.membership.is_some();
    let prepared = platform.offload(move || prepare(before, &shards, is_member, make)).await;
    let prepared = prepared.ok_or(ChangeError::Stopping)??;
    let taken = take_steps(platform, node, peers, &prepared).await;
    let next = Arc::clone(&prepared.next);
    // Dropping this may free the previous state, which takes a long time if all pools have changed.
    platform.offload(move || drop(prepared)).await;
    taken.map(|()| next)
}

/// Prepares the part of a change that involves no shard.
fn prepare(
    before: Arc<Directory>,
    shards: &[u16],
    is_member: bool,
    make: impl FnOnce(&Directory) -> Result<Directory, Vec<Fault>>,
) -> Result<Prepared, ChangeError> {
    let next = make(&before).map_err(ChangeError::Rules)?;
    let (overflow, no_overflow) = (new_overflow(&before, &next), new_overflow(&next, &before));
    let in_rotation = overflow.iter().find(|(number, _)| before.pool_by_number(*number).is_some());
    if let Some(&(number, pool)) = in_rotation {
        return Err(ChangeError::Overflow { number, pool, why: "it is in rotation" });
    }
    let changes = |shard: &u16| (*shard, Changes::between(&before, &next, *shard));
    let changes = shards.iter().map(changes).collect();
    let is_own = |shard| shards.contains(&shard);
    let arrivals = is_member.then(|| Arrivals::between(&before, &next, is_own));
    let lifetimes = ChangedLifetimes {
        before: lifetimes::longest(&before),
        after: lifetimes::longest(&next),
        shortened: lifetimes::longest_shortened(&before, &next),
    };
    let next = Arc::new(next);
    Ok(Prepared { before, next, changes, overflow, no_overflow, arrivals, lifetimes })
}

/// Records the lifetimes before they change. If allocations are lost, the next startup must hold
/// pools for as long as a lockout from before the change may run.
///
/// # Errors
/// Returns [`ChangeError::Lifetimes`] if a lifetime becomes shorter and the lifetimes cannot be
/// written, unless those recorded earlier are long enough.
async fn keep_lifetimes<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    changed: ChangedLifetimes,
) -> Result<(), ChangeError> {
    let ChangedLifetimes { before, after, shortened } = changed;
    let is_shorter = shortened > Millis::ZERO || after < before;
    // The current time is needed only if a lifetime becomes shorter, because the longer lifetime
    // then counts for a limited time.
    let now = match node.shards().next() {
        Some(first) if is_shorter => arrivals::now(peers, first).await,
        _ => Some(Millis::ZERO),
    };
    // If there is no answer, the shard has ended. The change's steps will report that.
    let Some(now) = now else { return Ok(()) };
    let known = node.lifetimes().followed_by(before.max(after), now);
    let lifetimes = known.shortened(shortened, now).followed_by(after, now);
    if node.lifetimes() == lifetimes {
        return Ok(());
    }
    if node.answers_wait() && !planted(Bug::LifetimesNotKept) {
        let (files, data) = (platform.files(), node.config.data.clone());
        let write = move || {
            let Err(error) = write_lifetimes(&files, &data, lifetimes) else { return Ok(()) };
            let recorded = read_lifetimes(&files, &data).ok().flatten();
            if recorded.is_some_and(|it| it.covers(known, now)) {
                tracing::warn!(
                    %error,
                    "lifetimes could not be recorded: if answered allocations are lost, ring pools \
                    may answer with overflow numbers for longer than needed after the next startup"
                );
            } else if is_shorter {
                return Err(ChangeError::Lifetimes(error));
            } else {
                tracing::warn!(
                    %error,
                    "a longer lifetime could not be recorded: fix the file error, and restart the \
                    server before you shorten a lifetime"
                );
            }
            Ok(())
        };
        platform.offload(write).await.transpose()?;
    }
    node.set_lifetimes(lifetimes);
    Ok(())
}

async fn take_steps<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    prepared: &Prepared,
) -> Result<(), ChangeError> {
    let Prepared { before, next, changes, overflow, arrivals, lifetimes, .. } = prepared;
    let shards: Vec<u16> = changes.keys().copied().collect();
    check_overflow(peers, &shards, overflow).await?;
    keep_lifetimes(platform, node, peers, *lifetimes).await?;
    if let Some(arrivals) = arrivals {
        arrivals::hold(platform, node, peers, next, arrivals).await;
        if planted(Bug::ListsBeforeHolds) {
            arrivals::note(platform, node, next, arrivals).await;
        }
    }
    let held = held(peers, &shards, before).await?;
    let bucket_holds = node.bucket_holds();
    let leaving = changes.iter().filter(|(_, changes)| !changes.is_empty());
    for (shard, changes) in leaving.filter(|_| !planted(Bug::EnterBeforeLeave)) {
        let smaller = smaller(before, &changes.put);
        let removed = changes.removed.clone();
        ask(peers, *shard, Step::Leave { removed, smaller }).await?;
    }
    let mut are_holds_recorded = true;
    for (shard, own) in changes {
        let put: Vec<_> = own.put.iter().map(|(index, pool)| (*index, spec(pool))).collect();
        if put.is_empty() {
            continue;
        }
        let others = shards.iter().filter(|other| *other != shard);
        // Free numbers are included, because the answer to a row of a repeated batch depends on the
        // number's last holder.
        let mut others = ask_known(peers, others, &own.entering, true).await?;
        let (mut known, answers) = match &moved(changes, *shard)[..] {
            [] => (Vec::new(), Vec::new()),
            buckets => {
                let Known { numbers, answers, .. } =
                    known(platform, node, peers, before, buckets).await?;
                (numbers, answers)
            }
        };
        let is_known = |number| known.binary_search_by_key(&number, |k| k.slot.number).is_ok();
        others.retain(|retired| !is_known(retired.slot.number));
        // The visitor in an adopted state may have received a newer number from another shard. So
        // the visitors are removed.
        known.extend(others.into_iter().map(|retired| Retired { visitor: None, ..retired }));
        let buckets = Some(&bucket_holds).filter(|_| !planted(Bug::LatePoolsNotHeld));
        let of_bucket = |pool: &PoolSpec| buckets?.until(pool.id, pool.lockout);
        let of = |pool: &PoolSpec| until(&held, pool).max(of_bucket(pool));
        let holds = put.iter().filter_map(|(_, pool)| Some((pool.id, of(pool)?)));
        let holds = holds.collect();
        match ask(peers, *shard, Step::Enter { known, answers, holds, put }).await? {
            StepResult::Clash(pool, InRotation { number, pool: owner }) => {
                return Err(ChangeError::Clash { pool, number, owner });
            }
            StepResult::Unrecorded => are_holds_recorded = false,
            _ => {}
        }
    }
    // If some holds are not recorded, the next startup treats the lists as changed, and asks the
    // other nodes about the numbers.
    if let Some(arrivals) = arrivals.as_ref().filter(|_| are_holds_recorded) {
        arrivals::note(platform, node, next, arrivals).await;
    }
    note_overflow(platform, node, prepared).await;
    node.use_directory(Arc::clone(next));
    let count = if planted(Bug::ChangeOneShard) { 1 } else { shards.len() };
    for shard in shards.into_iter().take(count) {
        ask(peers, shard, Step::Use(Arc::clone(next))).await?;
    }
    Ok(())
}

/// Records the numbers that become or stop being overflow numbers, for the next startup and for
/// later look-ups.
async fn note_overflow<P: Platform>(platform: &P, node: &Node, prepared: &Prepared) {
    let numbers = |all: &[(PromoNumber, PoolId)]| -> Vec<PromoNumber> {
        all.iter().map(|(number, _)| *number).collect()
    };
    let (begun, ended) = (numbers(&prepared.overflow), numbers(&prepared.no_overflow));
    if begun.is_empty() && ended.is_empty() {
        return;
    }
    // Must be durable before another node can hand out a number that stops being an overflow
    // number.
    write_overflow(platform, node, Arc::clone(&prepared.next)).await;
    let now = node.dated(platform);
    let mut periods = node.overflow_periods(OverflowPeriods::clone);
    let (files, data, stores) = (platform.files(), node.config.data.clone(), node.answers_wait());
    let changed = platform.offload(move || {
        periods.change(&begun, &ended, now);
        let written = if stores { periods.write(&files, &data) } else { Ok(()) };
        (periods, written)
    });
    let Some((periods, written)) = changed.await else { return };
    node.set_overflow_periods(periods);
    if let Err(error) = written {
        tracing::warn!(
            %error,
            "overflow numbers could not be recorded: after a restart, calls to these numbers may \
             be attributed to earlier visitors"
        );
    }
}

/// Returns the buckets of the pools that move to `shard` from this node's other shards.
fn moved(changes: &BTreeMap<u16, Changes>, shard: u16) -> Vec<u16> {
    let removed = changes.values().flat_map(|changes| &changes.removed);
    let removed: BTreeSet<PoolId> = removed.map(|(_, id)| *id).collect();
    let put = changes.get(&shard).into_iter().flat_map(|changes| &changes.put);
    let buckets = put.map(|(_, pool)| pool.id()).filter(|id| removed.contains(id)).map(bucket);
    buckets.collect::<BTreeSet<u16>>().into_iter().collect()
}

/// All shards' holds.
#[derive(Default)]
pub(crate) struct CollectedHolds {
    /// The latest end of the holds that apply to a whole shard because its entire history may be
    /// incomplete. Any number may have been in such a shard's pools.
    all: Option<Millis>,
    /// The numbers of held pools, in ascending order, each range with the end of its hold.
    numbers: Vec<(NumberRange, Millis)>,
}

pub(crate) async fn held(
    peers: &Peers,
    shards: &[u16],
    before: &Directory,
) -> Result<CollectedHolds, ChangeError> {
    let mut held = CollectedHolds::default();
    if planted(Bug::HoldsStayBehind) {
        return Ok(held);
    }
    for shard in shards {
        // Also requests holds that have ended: the history of a number from a held pool may still
        // be incomplete in the number's next pool.
        let step = Step::ReportHolds { includes_past: true };
        if let StepResult::Holds(holds) = ask(peers, *shard, step).await? {
            for (pool, until) in holds {
                let Some(pool) = pool else {
                    held.all = held.all.max(Some(until));
                    continue;
                };
                let numbers = before.pool(pool).map_or(&[][..], |pool| pool.numbers());
                held.numbers.extend(numbers.iter().map(|range| (*range, until)));
            }
        }
    }
    held.numbers.sort_unstable_by_key(|(range, until)| (range.first(), *until));
    Ok(held)
}

/// Returns the end of the hold that a pool needs because it contains numbers with unknown lockouts.
pub(crate) fn until(held: &CollectedHolds, pool: &PoolSpec) -> Option<Millis> {
    let of_range = |range: &NumberRange| {
        let from = held.numbers.partition_point(|(other, _)| other.last() < range.first());
        let others = held.numbers[from..].iter();
        let shared = others.take_while(|(other, _)| other.first() <= range.last());
        shared.map(|(_, until)| *until).max()
    };
    pool.numbers.iter().filter_map(of_range).max().max(held.all)
}

/// Asks each shard in `shards` for its states of the `numbers` that are not in its rotation.
pub(crate) async fn ask_known(
    peers: &Peers,
    shards: impl Iterator<Item = &u16>,
    numbers: &[NumberRange],
    includes_free: bool,
) -> Result<Vec<Retired>, ChangeError> {
    let mut all = Vec::new();
    for shard in shards {
        let step = Step::Report { numbers: numbers.to_vec(), includes_free };
        if let StepResult::Known(known) = ask(peers, *shard, step).await? {
            all.extend(known);
        }
    }
    Ok(all)
}

/// Checks that no visitor holds a future overflow number. None of these numbers is in rotation.
async fn check_overflow(
    peers: &Peers,
    shards: &[u16],
    new: &[(PromoNumber, PoolId)],
) -> Result<(), ChangeError> {
    let ranges: Vec<_> =
        new.iter().filter_map(|(number, _)| NumberRange::new(*number, 1)).collect();
    if ranges.is_empty() {
        return Ok(());
    }
    let known = ask_known(peers, shards.iter(), &ranges, false).await?;
    let locked = new.iter().find(|(number, _)| known.iter().any(|k| k.slot.number == *number));
    match locked {
        None => Ok(()),
        Some(&(number, pool)) => {
            Err(ChangeError::Overflow { number, pool, why: "a visitor holds it" })
        }
    }
}

/// Returns the pools that stay in place but lose numbers, each without the numbers that it loses.
fn smaller(before: &Directory, put: &[(u32, Arc<RingPool>)]) -> Vec<(u32, PoolSpec)> {
    let mut smaller = Vec::new();
    for (index, pool) in put {
        let here = before.lookup(pool.id()).is_some_and(|entry| entry.index() == *index);
        let Some(old) = before.pool(pool.id()).filter(|_| here) else { continue };
        let kept = common(old.numbers(), pool.numbers());
        let count: u64 = kept.iter().map(|range| u64::from(range.count())).sum();
        if count < old.number_count() {
            smaller.push((*index, PoolSpec { numbers: kept, ..spec(old) }));
        }
    }
    smaller
}

/// Returns the numbers that are in both lists, in the order of the first list.
fn common(one: &[NumberRange], other: &[NumberRange]) -> Vec<NumberRange> {
    let mut sorted = other.to_vec();
    sorted.sort_unstable_by_key(|range| range.first());
    let mut common = Vec::new();
    for range in one {
        let from = sorted.partition_point(|other| other.last() < range.first());
        for other in sorted[from..].iter().take_while(|other| other.first() <= range.last()) {
            let first = range.first().max(other.first());
            let last = range.last().min(other.last());
            let count = u32::try_from(last.to_e164() - first.to_e164() + 1).ok();
            common.extend(count.and_then(|count| NumberRange::new(first, count)));
        }
    }
    common
}

#[cfg(test)]
mod tests;
