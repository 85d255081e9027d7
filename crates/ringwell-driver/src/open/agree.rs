//! Combines the facts of shards that were read separately.

use std::collections::BTreeMap;

use ringwell_core::{Millis, PoolId, PromoNumber, Retired};
use ringwell_directory::Directory;
use ringwell_engine::{Clocks, Reading, Recorded};

use super::read::Read;
use crate::canary::{Bug, planted};
use crate::store::Files;

/// The configuration makes a number an overflow number while a visitor holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{number} is now the overflow number of ring pool {pool}, but was handed out to a visitor \
     earlier, and its lockout runs for another {seconds} seconds: choose another overflow number, \
     or start again after the lockout has ended"
)]
pub struct OverflowTaken {
    /// The number.
    pub number: PromoNumber,
    /// A pool that has this overflow number.
    pub pool: PoolId,
    /// The number of seconds until the lockout ends.
    pub seconds: u64,
    /// The shard time when the lockout ends.
    pub until: Millis,
}

/// Combines the lockouts and the times of shards that were read separately. `reading` is a reading
/// of the machine's clocks. `last_heartbeat` comes from the last heartbeat of another process that
/// served these shards.
pub fn agree<F: Files>(
    reads: &mut [Read<F>],
    reading: &Reading,
    last_heartbeat: Option<Recorded>,
) -> Clocks {
    let last_heartbeat = last_heartbeat.filter(|_| !planted(Bug::WallAtTakeOver));
    // If there is a heartbeat, only its clocks count. If the last owner wrote nothing to a shard's
    // journal, that journal still contains the clocks of an earlier owner.
    let believed =
        |it: Recorded| Recorded { clocks: it.clocks.filter(|_| last_heartbeat.is_none()), ..it };
    let recorded: Vec<Recorded> =
        reads.iter().map(Read::recorded).map(believed).chain(last_heartbeat).collect();
    let clocks = if planted(Bug::WallAtStart) {
        // With this bug, the process's downtime is computed from the wall clock even though the
        // machine was not rebooted.
        let resumed = Reading { boot: u64::MAX, ..*reading }.resume(&recorded);
        Clocks { boot: reading.boot, ..resumed }
    } else {
        reading.resume(&recorded)
    };
    let now = clocks.shard(reading.since_boot);
    for read in reads.iter_mut() {
        // All shards of a process share one time, which continues from the newest recorded time.
        // Adopted lockouts, and the holds of shards whose history is in doubt, are counted from
        // this time, even if a clock was set back. If the remaining time of lockouts is uncertain,
        // `resume` lengthens them. This must be done before other shards adopt these lockouts,
        // because the journals of the other shards do not show by how much to lengthen them.
        read.restore.resume(clocks, now, &read.recovered.tip);
    }
    adopt(reads);
    clocks
}

/// Passes every lockout to the shard that now owns its number. If there are lockouts to pass, the
/// directory or the number of shards has changed. Every shard then gets all answers to rows of
/// repeatable batches, because it may now own these rows' pools.
fn adopt<F: Files>(reads: &mut [Read<F>]) {
    adopt_doubts(reads);
    let retired = reads.iter().flat_map(|read| read.restore.retired()).copied();
    let has_allocation = |it: &Retired| it.slot.allocated_at > Millis::ZERO;
    let retired: Vec<_> =
        retired.filter(|it| has_allocation(it) || !planted(Bug::ExtensionDropped)).collect();
    if retired.is_empty() || planted(Bug::NoAgreement) {
        return;
    }
    for number in &retired {
        for read in reads.iter_mut() {
            read.restore.adopt(number);
        }
    }
    let mut answers: Vec<_> = reads.iter().flat_map(|read| read.restore.answers()).collect();
    answers.sort_by_key(|answer| (answer.at, answer.row));
    for read in reads {
        read.restore.know_answers(&answers);
    }
}

/// Reports held pools to every shard, because each pool may now belong to any of them. If the
/// history of one shard is in doubt, the history of every shard counts as in doubt: numbers with
/// lost allocations may now belong to any shard.
fn adopt_doubts<F: Files>(reads: &mut [Read<F>]) {
    let holds: Vec<_> = reads.iter().flat_map(|read| read.restore.holds()).collect();
    let longest = reads.iter().map(|read| read.restore.lockout_max()).max().unwrap_or_default();
    let is_in_doubt = reads.iter().any(|read| read.is_in_doubt);
    for read in reads {
        for (pool, until) in &holds {
            read.restore.adopt_hold(*pool, *until);
        }
        read.restore.know_lockout(longest);
        read.is_in_doubt |= is_in_doubt;
    }
}

/// Returns the overflow numbers that visitors hold although overflow numbers are shared.
pub(super) fn overflow_taken<F: Files>(
    directory: &Directory,
    reads: &[Read<F>],
    now: Millis,
) -> Vec<OverflowTaken> {
    let mut taken = BTreeMap::<PromoNumber, OverflowTaken>::new();
    for retired in reads.iter().flat_map(|read| read.restore.retired()) {
        let (number, until) = (retired.slot.number, retired.slot.locked_until);
        if !retired.slot.is_free(now)
            && let Some(pool) = directory.overflow_pools(number).first()
        {
            let seconds = (until - now).0.div_ceil(1000);
            let found = OverflowTaken { number, pool: *pool, seconds, until };
            let last = taken.entry(number).or_insert(found);
            if until > last.until {
                *last = found;
            }
        }
    }
    taken.into_values().collect()
}
