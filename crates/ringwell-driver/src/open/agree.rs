//! Combines the facts of shards that were read separately.

use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::Directory;
use ringwell_engine::{Clocks, Reading, Recorded};

use super::read::Read;
use crate::canary::{Bug, planted};
use crate::store::Files;

/// The configuration turns a number that a visitor holds into an overflow number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{number} is the overflow number of ring pool {pool} now, but was handed out to a visitor \
     whose lockout runs for another {seconds} seconds: choose another overflow number, or start \
     after that"
)]
pub struct OverflowTaken {
    /// The number.
    pub number: PromoNumber,
    /// A pool whose overflow number it is.
    pub pool: PoolId,
    /// The seconds until its lockout ends.
    pub seconds: u64,
}

/// Combines shards that were read separately: their lockouts, and the time. `reading` is a reading
/// of the machine's clocks, `heard` the last heartbeat of another process that served these shards.
///
/// # Errors
/// [`OverflowTaken`]
pub fn agree<F: Files>(
    reads: &mut [Read<F>],
    directory: &Directory,
    reading: &Reading,
    heard: Option<Recorded>,
) -> Result<Clocks, OverflowTaken> {
    let heard = heard.filter(|_| !planted(Bug::WallAtTakeOver));
    // Only the last owner's time counts: a shard to which it wrote nothing has the clocks of an
    // earlier owner.
    let believed = |it: Recorded| Recorded { clocks: it.clocks.filter(|_| heard.is_none()), ..it };
    let recorded: Vec<Recorded> =
        reads.iter().map(Read::recorded).map(believed).chain(heard).collect();
    let clocks = if planted(Bug::WallAtStart) {
        // The wall clock determines how long the process was away, although the machine was not
        // booted.
        let resumed = Reading { boot: u64::MAX, ..*reading }.resume(&recorded);
        Clocks { boot: reading.boot, ..resumed }
    } else {
        reading.resume(&recorded)
    };
    let now = clocks.shard(reading.since_boot);
    for read in reads.iter_mut() {
        // All shards of a process share one time, the newest. Adopted lockouts and holds for doubts
        // count from it, even if a clock was set back. Adopted lockouts were lengthened by an
        // amount that the shard's own journal does not show.
        read.restore.resume(clocks, now, &read.recovered.tip);
    }
    adopt(reads);
    check_overflow(directory, reads, now)?;
    Ok(clocks)
}

/// Passes every lockout to the shard that owns its number now. If there are any to pass, the
/// directory or the number of shards has changed; every shard then gets all answers of repeatable
/// batches, because it may own their pools now.
fn adopt<F: Files>(reads: &mut [Read<F>]) {
    adopt_doubts(reads);
    let retired: Vec<_> = reads.iter().flat_map(|read| read.restore.retired()).copied().collect();
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

/// Reports held pools to every shard, because they may be its own now. A doubtful part of one
/// journal may concern any shard: numbers may have moved, and the part that would show it is
/// missing.
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

/// An overflow number is shared, so no visitor may hold it.
fn check_overflow<F: Files>(
    directory: &Directory,
    reads: &[Read<F>],
    now: Millis,
) -> Result<(), OverflowTaken> {
    for retired in reads.iter().flat_map(|read| read.restore.retired()) {
        let number = retired.slot.number;
        if retired.slot.locked_until > now
            && let Some(pool) = directory.overflow_pools(number).first()
        {
            let seconds = (retired.slot.locked_until - now).0.div_ceil(1000);
            return Err(OverflowTaken { number, pool: *pool, seconds });
        }
    }
    Ok(())
}
