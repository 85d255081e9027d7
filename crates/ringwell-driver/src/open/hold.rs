//! Buckets that arrived without their previous owner's lockouts. Their pools hand out no number for
//! a lifetime.

use std::collections::BTreeSet;
use std::path::Path;

use ringwell_core::{Millis, Shard};
use ringwell_directory::{BucketHold, BucketHolds, Directory, Placement, RingPool, bucket};
use ringwell_engine::Engine;

use crate::canary::{Bug, planted};
use crate::rows::spec;
use crate::store::{FileError, Files, ServedMap};

/// The cluster file is older than the one that was last in use with this data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster file has version {version}, but version {served} was last used with this data \
    directory: use the newest file on every node"
)]
pub struct OldMap {
    /// The version of the cluster file.
    pub version: u64,
    /// The version that was last in use with this data directory.
    pub served: u64,
}

/// Returns the buckets of `shards` that another node may have served last. The first map causes no
/// holds, because no number was handed out before it. A node that starts with a later map but has
/// recorded none may have been stopped before it recorded the first. If the node has missed a map,
/// its buckets may have been on other nodes in between. In both cases, returns all buckets of
/// `shards`.
///
/// # Errors
/// [`OldMap`]
pub(super) fn new_buckets(
    placement: &Placement,
    version: u64,
    shards: &[u16],
    served: Option<&ServedMap>,
) -> Result<BTreeSet<u16>, OldMap> {
    let of = |shards: &[u16]| -> BTreeSet<u16> {
        shards.iter().flat_map(|shard| placement.buckets_of(*shard)).collect()
    };
    Ok(match served {
        Some(served) if served.version > version => {
            return Err(OldMap { version, served: served.version });
        }
        Some(served) if served.version + 1 < version => of(shards),
        Some(served) => of(shards).difference(&served.buckets).copied().collect(),
        None if version > 1 => of(shards),
        None => BTreeSet::new(),
    })
}

/// Buckets that are held because they are new here.
pub(super) struct New {
    pub(super) buckets: BTreeSet<u16>,
    /// The longest lifetime in those earlier lists of pools whose lockouts may still run.
    pub(super) at_least: Millis,
}

/// Returns the holds for a startup at `now`. These are the holds of the buckets that are `new`
/// here, and all holds from the last run with this data directory, even if they have ended.
///
/// If the clock has jumped forward by `ahead`, the earlier holds are lengthened by the same amount.
/// The lengthened holds are written to disk before a snapshot records the time of this startup.
/// Once that time is recorded, a later startup cannot detect the jump.
///
/// # Errors
/// [`FileError`]
pub(super) fn known_holds(
    files: &impl Files,
    data: &Path,
    served: Option<ServedMap>,
    ahead: Option<Millis>,
    new: New,
    now: Millis,
) -> Result<BucketHolds, FileError> {
    let mut holds = BucketHolds::default();
    if let Some(mut served) = served {
        if let Some(ahead) = ahead.filter(|_| !served.holds.is_empty()) {
            served.holds.lengthen(ahead);
            served.write(files, data)?;
        }
        holds = served.holds;
    }
    if !planted(Bug::NoHoldAfterMove) {
        let until = if new.at_least > Millis::ZERO { now + new.at_least } else { Millis::ZERO };
        for bucket in new.buckets {
            holds.add(bucket, BucketHold { since: now, until });
        }
    }
    Ok(holds)
}

/// Holds the pools in buckets that came without the previous node's lockouts, so that they hand out
/// no number for a lifetime. Includes expired holds; see `Facts::settle_apart`. Returns how many
/// pools of `shard` are held at `now`.
pub fn hold_buckets(
    engine: &mut Engine,
    shard: u16,
    directory: &Directory,
    holds: &BucketHolds,
    now: Millis,
) -> u64 {
    if holds.is_empty() {
        return 0;
    }
    let mut held = 0;
    for pool in directory.pools_of(shard) {
        let Some(until) = holds.until(pool.id(), spec(pool).lockout) else { continue };
        let since = holds.get(bucket(pool.id())).map(|hold| hold.since).unwrap_or_default();
        let until = until.max(locked_before(engine.shard(), pool, since));
        engine.hold_unrecorded(pool.id(), until);
        held += u64::from(until > now);
    }
    held
}

/// Returns the latest end of the pool's lockouts that began before `since`, the time when the
/// bucket came here. After such a lockout began, its number may have been handed out on another
/// node. The hold must last at least until the lockout ends. Otherwise, the number's state would no
/// longer count as doubtful.
fn locked_before(shard: &Shard, pool: &RingPool, since: Millis) -> Millis {
    let first = pool.numbers().first().and_then(|range| shard.find(range.first()));
    let Some(pool) = first.and_then(|slot| shard.pool_of(slot)) else { return Millis::ZERO };
    let slots = shard.pool_slots(pool).filter(|slot| shard.local_at(*slot) < since);
    let ends = slots.map(|slot| shard.slots()[slot as usize].locked_until);
    ends.filter(|_| !planted(Bug::LockoutOutlastsDoubt)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
