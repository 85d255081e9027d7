//! Overflow numbers that other nodes' visitors may hold, because the list of pools changed while
//! this node was stopped.
//!
//! The database may have been restored from a copy that was made before another node handed such a
//! number out. `arrivals/overflow.rs` then asks the other nodes.

use std::collections::BTreeSet;
use std::path::Path;

use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::Directory;

use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::node::Begun;
use crate::store::{FileError, Files, ServedOverflow, overflow_numbers};

/// A number that was not an overflow number before is one in the list of pools, which is in a file,
/// although allocations were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{number} is now the overflow number of ring pool {pool}, but allocations were lost, so a \
     visitor may hold it for another {seconds} seconds: keep the earlier overflow number until then"
)]
pub struct OverflowDoubted {
    /// The number.
    pub number: PromoNumber,
    /// A pool that has this overflow number.
    pub pool: PoolId,
    /// The number of seconds until no visitor can hold the number.
    pub seconds: u64,
}

/// Returns an overflow number that is new although lockouts may be missing from the journals. If
/// there is none, records the current overflow numbers. All pools are held until `held_until`.
///
/// # Errors
/// [`FileError`]
pub(super) fn check<F: Files>(
    facts: &Begun,
    (files, data): (&F, &Path),
    directory: &Directory,
    (held_until, now): (Millis, Millis),
) -> Result<Option<OverflowDoubted>, FileError> {
    let recorded = ServedOverflow::read(files, data)?;
    let of_buckets = facts.lifetimes.held_until(&facts.holds, now);
    let until = held_until.max(of_buckets).max(facts.unknown_until);
    let is_new = |number: &PromoNumber| {
        recorded.as_ref().is_some_and(|it| it.doubted_until(*number, now).is_some())
    };
    if until > now
        && let Some(number) = overflow_numbers(directory).find(is_new)
        && let Some(pool) = directory.overflow_pools(number).first()
    {
        let seconds = until.since(now).0.div_ceil(1_000);
        return Ok(Some(OverflowDoubted { number, pool: *pool, seconds }));
    }
    record(&ServedOverflow::of(directory, &[]), recorded.as_ref(), (files, data))?;
    Ok(None)
}

/// Finds the overflow numbers that were not overflow numbers in the list that was served last from
/// this data directory. Records the current overflow numbers. If the clock has jumped forward by
/// `ahead`, numbers are withheld for that much longer.
///
/// # Errors
/// [`FileError`]
pub(super) fn find<F: Files>(
    facts: &mut Begun,
    (files, data): (&F, &Path),
    directory: &Directory,
    ahead: Option<Millis>,
    now: Millis,
) -> Result<(), FileError> {
    if !facts.withholds_others {
        return Ok(());
    }
    let recorded = ServedOverflow::read(files, data)?;
    if let Some(mut served) = recorded.clone().filter(|_| !planted(Bug::OverflowBelieved)) {
        served.lengthen(ahead.unwrap_or_default());
        let otherwise = arrivals::unknown_until(facts.lifetimes, now);
        let until = |number| Some((number, served.doubted_until(number, otherwise)?));
        let numbers: BTreeSet<PromoNumber> = overflow_numbers(directory).collect();
        let doubted = numbers.into_iter().filter_map(until).filter(|(_, until)| *until > now);
        facts.doubted_overflow = doubted.collect();
    }
    // If a number is in both lists, the later entry counts.
    let withheld = [&facts.withheld[..], &facts.doubted_overflow].concat();
    record(&ServedOverflow::of(directory, &withheld), recorded.as_ref(), (files, data))
}

/// Records the overflow numbers `next`.
fn record<F: Files>(
    next: &ServedOverflow,
    recorded: Option<&ServedOverflow>,
    (files, data): (&F, &Path),
) -> Result<(), FileError> {
    if recorded.unwrap_or(&ServedOverflow::default()) != next
        && let Err(error) = next.write(files, data)
    {
        if !error.is_full() {
            return Err(error);
        }
        tracing::warn!(
            %error,
            "the overflow numbers could not be recorded: if the directory's database is restored \
             from an older copy and this server is restarted, a number that a visitor holds may \
             become an overflow number"
        );
    }
    Ok(())
}
