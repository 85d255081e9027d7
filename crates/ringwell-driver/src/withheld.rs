//! Overflow numbers that pools do not have yet, because a visitor may still hold them.
//!
//! `partial_change.rs` decides which numbers these are while the node serves. At startup, `open/agree.rs`
//! decides about numbers that this node's visitors may hold, and `open/doubted.rs` and
//! `arrivals/overflow.rs` about numbers that other nodes' visitors may hold.

use std::collections::BTreeMap;

use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::{Directory, Fault, RingPool};

/// An overflow number that its pools do not have yet.
#[derive(Clone, Debug)]
pub(crate) struct Withheld {
    pub(crate) number: PromoNumber,
    /// The pools as they are in the list, with the overflow number.
    pub(crate) pools: Vec<RingPool>,
    /// Until this shard time, a visitor may hold the number.
    pub(crate) until: Millis,
}

/// Takes the overflow numbers in `until` out of their pools. Returns these pools too.
///
/// # Errors
/// Never fails, because a pool without an overflow number breaks no rule.
pub(crate) fn take_out(
    directory: Directory,
    until: &[(PromoNumber, Millis)],
) -> Result<(Directory, Vec<Withheld>), Vec<Fault>> {
    let of = |(number, until): &(PromoNumber, Millis)| {
        let pools = directory.overflow_pools(*number);
        let pools = pools.iter().filter_map(|id| directory.pool(*id)).cloned().collect();
        Withheld { number: *number, pools, until: *until }
    };
    let withheld: Vec<Withheld> = until.iter().map(of).collect();
    if withheld.is_empty() {
        return Ok((directory, withheld));
    }
    let pools = withheld.iter().flat_map(|it| &it.pools).map(RingPool::without_overflow);
    Ok((directory.change(pools.collect(), &[])?, withheld))
}

/// Like [`take_out`], for the list that a process begins with. If a number is in both `locked` and
/// `doubted`, the later end counts.
pub(crate) fn begin(
    directory: Directory,
    locked: &[(PromoNumber, Millis)],
    doubted: &[(PromoNumber, Millis)],
) -> (Directory, Vec<Withheld>) {
    let until = latest(locked.iter().chain(doubted).copied());
    #[expect(clippy::expect_used, reason = "without an overflow number, a pool breaks no rule")]
    take_out(directory, &until).expect("a valid list")
}

/// Returns each number once, with the latest of its ends.
pub(crate) fn latest(
    all: impl IntoIterator<Item = (PromoNumber, Millis)>,
) -> Vec<(PromoNumber, Millis)> {
    let mut until = BTreeMap::<PromoNumber, Millis>::new();
    for (number, end) in all {
        let last = until.entry(number).or_insert(end);
        *last = (*last).max(end);
    }
    until.into_iter().collect()
}

/// Returns the numbers in `withheld` with their times.
pub(crate) fn ends(withheld: &[Withheld]) -> Vec<(PromoNumber, Millis)> {
    withheld.iter().map(|it| (it.number, it.until)).collect()
}

/// Logs the overflow numbers that are now withheld, and those that are no longer withheld.
pub(crate) fn report(before: &[Withheld], after: &[Withheld], now: Millis) {
    let is_in = |list: &[Withheld], it: &Withheld| {
        list.iter().any(|other| other.number == it.number && other.until == it.until)
    };
    for it in after.iter().filter(|it| !is_in(before, it)) {
        let pools: Vec<PoolId> = it.pools.iter().map(RingPool::id).collect();
        warn(it.number, &pools, it.until.0.saturating_sub(now.0).div_ceil(1_000));
    }
    for it in before.iter().filter(|it| after.iter().all(|other| other.number != it.number)) {
        tracing::info!(
            number = %it.number,
            "a number that was withheld because a visitor might hold it is an overflow number \
             from now on, unless the list of ring pools has changed"
        );
    }
}

/// Logs that `number` is not yet the overflow number of `pools`.
pub(crate) fn warn(number: PromoNumber, pools: &[PoolId], seconds: u64) {
    let ring_pools = pools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    tracing::warn!(
        %number,
        ring_pools,
        seconds,
        "a visitor may still hold a number that is to become an overflow number, probably because \
         the directory's database was restored from an older copy. For this many seconds, the ring \
         pools have no overflow number, and rows for them fail if no number is free. The pools \
         then get the overflow number by themselves"
    );
}
