//! Overflow numbers that other nodes' visitors may hold, because the list of pools changed while
//! this node was stopped.
//!
//! The database may have been restored from a copy that was made before another node handed such a
//! number out. `arrivals/overflow.rs` then asks the other nodes.

use std::collections::BTreeSet;
use std::path::Path;

use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::Directory;

use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::node::Begun;
use crate::store::{FileError, Files, ServedOverflow, overflow_numbers};

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
    let next = ServedOverflow::of(directory, &withheld);
    if recorded.as_ref() != Some(&next)
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
