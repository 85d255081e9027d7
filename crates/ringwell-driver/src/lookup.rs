//! A shard's part of an attribution look-up. It follows a number's records through memory and
//! files.

use std::rc::Rc;
use std::time::Duration;

use ringwell_core::{Position, PromoNumber};
use ringwell_directory::{Entry, bucket};
use ringwell_engine::{Missing, Moment, Past, Step};
use ringwell_journal::{Clocks, Group, position_parts};

use crate::canary::{Bug, planted};
use crate::platform::Platform;
use crate::shard::Shard;
use crate::store::{ReadError, Reader};

/// The time after which a look-up returns a partial result. Look-ups can be long: a number that is
/// handed out every second has a record for each second of the day.
const TIME_MAX: Duration = Duration::from_secs(2);

/// If one step of a look-up takes this long, the machine or its disk must have stalled. This says
/// nothing about the number, so the duration of one such step is added to the time limit.
const SUSPENSION_MIN: Duration = Duration::from_secs(1);

/// The time limit within which a shared log must show that no other process has taken the shard
/// over.
const LOG_TIME_MAX: Duration = Duration::from_secs(2);

/// Looks up the holder of `number` at `at` in this shard's history.
///
/// # Errors
/// The part of the history that cannot be read, as text for the operator.
pub async fn attribution<P: Platform>(
    shard: Rc<Shard<P>>,
    reader: impl Reader,
    number: PromoNumber,
    at: Moment,
) -> Result<Past, String> {
    look_up(shard, reader, (number, at), false).await
}

/// Like [`attribution`], but also collects the keep-alives of the allocation if `wants_keep_alives`
/// is set.
///
/// # Errors
/// As [`attribution`].
pub async fn look_up<P: Platform>(
    shard: Rc<Shard<P>>,
    reader: impl Reader,
    (number, at): (PromoNumber, Moment),
    wants_keep_alives: bool,
) -> Result<Past, String> {
    let clocks = shard.clocks();
    shard.engine.borrow_mut().set_clocks(clocks);
    confirm_owner(&shard, &reader, at, clocks).await?;
    let doubts = || {
        let engine = shard.engine.borrow();
        (engine.shard().find(number).is_some(), engine.is_doubted(number))
    };
    // The number may be handed out during the walk. This ends the doubt about the earlier
    // allocation, which the walk has found.
    let (was_in_rotation, was_doubted) = doubts();
    let mut past = walk(&shard, &reader, (number, at), wants_keep_alives, clocks).await?;
    let (is_in_rotation, is_doubted) = doubts();
    let (is_doubted, is_in_rotation) =
        (was_doubted || is_doubted, was_in_rotation && is_in_rotation);
    // Another shard made this allocation, and a later one may exist elsewhere. The shard that made
    // an allocation reports it, unless the record is no longer kept.
    if let Some(held) = past.held.take_if(|held| held.pool.is_none() && is_doubted)
        && !planted(Bug::UnreadUnreported)
    {
        past.missing.get_or_insert(Missing::NotKept);
        (past.later, past.later_by) = (Some(held.allocated_at), Some(held.allocated_wall));
    }
    // A list of pools may name this shard as the number's owner before the shard has received the
    // number and put it on hold.
    past.is_doubted = is_doubted || !is_in_rotation;
    // This shard may have received the number but have no record of it, because its data was lost
    // or was restored from an earlier copy. So the gaps in its history matter if it owns the number
    // or if other nodes report that it does. A lockout on another shard then proves nothing,
    // because this shard may have ended it. If the number is currently in no pool, any shard may
    // have had it.
    let directory = shard.directory();
    let pool = directory.pool_by_number(number);
    let owner = pool.and_then(|pool| directory.lookup(pool)).map(Entry::shard);
    let may_be_own = pool.is_none() || owner == Some(shard.id);
    let is_own = may_be_own && !planted(Bug::OwnGapsForgotten);
    let bucket = pool.map(bucket);
    let is_claimed = bucket.is_some_and(|bucket| shard.node.is_claimed(bucket));
    let is_here = is_own || is_claimed || shard.engine.borrow().shard().newest(number).is_some();
    let dating = shard.node.dating(clocks);
    let past = shard.node.gaps().judge(past, at, dating, (bucket, is_here));
    let overflow_until = match at {
        Moment::Wall(at) => shard.node.overflow_periods(|periods| periods.end(number, at, dating)),
        Moment::Shard(_) => None,
    };
    Ok(Past { overflow_until, ..past })
}

/// Makes sure that no other process took the shard over before `at`. Applies only to a shared
/// journal.
///
/// # Errors
/// Another process has taken the shard over, or it is unknown whether one has.
async fn confirm_owner<P: Platform>(
    shard: &Shard<P>,
    reader: &impl Reader,
    at: Moment,
    clocks: Clocks,
) -> Result<(), String> {
    if !reader.is_shared() {
        return Ok(());
    }
    let (newest, tip) = {
        let engine = shard.engine.borrow();
        (engine.newest_group(), engine.tip())
    };
    let is_before = match at {
        Moment::Wall(at) => at <= clocks.wall(tip.last_at),
        Moment::Shard(at) => at <= tip.last_at,
    };
    if is_before && shard.commit.durable() >= newest {
        return Ok(());
    }
    let stored = shard.platform.within(LOG_TIME_MAX, shard.commit.wait(newest)).await;
    match stored {
        Some(Ok(())) => {}
        Some(Err(_)) => return Err("the journal does not accept writes".to_owned()),
        None => return Err("the journal's log does not answer".to_owned()),
    }
    let reader = reader.clone();
    let is_followed = shard.platform.offload(move || reader.is_followed(newest)).await;
    match is_followed.ok_or("the server is stopping")? {
        Ok(false) => Ok(()),
        Ok(true) => Err(format!("another process serves shard {}: query that process", shard.id)),
        Err(error) => Err(error.to_string()),
    }
}

/// Follows the records of `number` as [`attribution`] does, but ignores gaps.
async fn walk<P: Platform>(
    shard: &Shard<P>,
    reader: &impl Reader,
    (number, at): (PromoNumber, Moment),
    wants_keep_alives: bool,
    clocks: Clocks,
) -> Result<Past, String> {
    let mut last = shard.platform.moment();
    let (mut until, mut stood_still) = (last + TIME_MAX, false);
    let at = match at {
        Moment::Wall(at) if planted(Bug::ShardTimeInLookups) => Moment::Shard(at),
        at => at,
    };
    // If this shard was idle before the machine was rebooted, another shard may have recorded newer
    // clock readings.
    let mut noted = reader.noted();
    noted.extend(&shard.node.begun.noted);
    let (mut walk, mut step) = shard.engine.borrow().attribution(number, at, &noted);
    if wants_keep_alives {
        walk = walk.with_keep_alives();
    }
    loop {
        let position = match step {
            Step::Done(past) => return Ok(past),
            Step::Read(position) => position,
        };
        let pending = {
            let engine = shard.engine.borrow();
            engine.pending_record(position).map(|record| walk.feed(&record, Some(clocks)))
        };
        let fed = if let Some(fed) = pending {
            fed
        } else {
            let now = shard.platform.moment();
            if now.since(last) >= SUSPENSION_MIN && !stood_still {
                stood_still = true;
                until = until + now.since(last);
            }
            last = now;
            if now > until {
                return Ok(walk.end(Missing::TooLong));
            }
            // The walk ends with the oldest history that is still kept.
            let group = match read(shard, reader, position).await? {
                Ok(group) => group,
                Err(missing) => return Ok(walk.end(missing)),
            };
            let record = group.record(position).map_err(|error| error.to_string())?;
            walk.feed(&record, group.header.clocks)
        };
        step = fed.map_err(|broken| {
            format!("the history of {} leads to a record of another number", broken.number)
        })?;
    }
}

/// Returns the group that contains `position`, or the reason why it is unavailable. If the group is
/// being written, waits for it.
async fn read<P: Platform>(
    shard: &Shard<P>,
    reader: &impl Reader,
    position: Position,
) -> Result<Result<Group, Missing>, String> {
    let (group, _) = position_parts(position);
    shard.commit.wait(group).await.map_err(|_| "the journal does not accept writes".to_owned())?;
    let reader = reader.clone();
    let read = shard.platform.offload(move || reader.read(group)).await;
    match read.ok_or("the server is stopping")? {
        Ok(group) => Ok(Ok(group)),
        Err(ReadError::Gone(_)) => Ok(Err(Missing::NotKept)),
        // The log may answer a moment later, so this is not reported as damage.
        Err(error @ ReadError::Log(_)) => Err(error.to_string()),
        Err(
            error @ (ReadError::NotYet(_)
            | ReadError::Damaged { .. }
            | ReadError::File(_)
            | ReadError::LogDamaged(_)),
        ) => {
            tracing::error!(shard = shard.id, %error, "a look-up cannot read the history that it \
                needs");
            Ok(Err(Missing::Damaged))
        }
    }
}
