//! The longest lifetime that a number can have. Like a lockout, it is measured in shard time. It
//! covers past lists of pools, because a lockout may outlast the list under which it began.
//!
//! One list may shorten a pool's lifetime or remove a number from a pool. The next list may put the
//! number into another pool. A hold for unknown allocations must last as long as the lifetime in
//! the list under which they were made, even across restarts. Invariant: [`Lifetimes::longest`] is
//! at least as long as the remaining time of any lockout that began under one of this node's lists.

use ringwell_core::Millis;
use ringwell_directory::{BUCKETS, BucketHolds, Directory, RingPool};
use ringwell_engine::lockout;
use serde::{Deserialize, Serialize};

use crate::canary::{Bug, planted};
use crate::lists::LIST_SPREAD;

/// The longest lifetimes of the current list and of earlier ones, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lifetimes {
    /// The longest lifetime of the current list.
    current: u64,
    /// The longest lifetime of earlier lists whose lockouts may still run.
    earlier: u64,
    /// The shard time at which the last of these lockouts ends.
    until: u64,
}

impl Lifetimes {
    /// Returns the longest lifetime of the lists whose lockouts may run at `now`.
    #[must_use]
    pub fn longest(&self, now: Millis) -> Millis {
        Millis(self.current).max(self.earlier(now))
    }

    /// Returns the longest lifetime of earlier lists whose lockouts may still run at `now`; 0 if
    /// there is none.
    #[must_use]
    pub fn earlier(&self, now: Millis) -> Millis {
        if self.until > now.0 { Millis(self.earlier) } else { Millis::ZERO }
    }

    /// Whether holds based on these lifetimes last at least as long as holds based on `other`, at
    /// `now` and at any later time.
    #[must_use]
    pub fn covers(&self, other: Self, now: Millis) -> bool {
        self.current >= other.longest(now).0
    }

    /// Returns the time until which numbers from held buckets may be locked if their lockouts are
    /// unknown; zero if there are no such buckets.
    #[must_use]
    pub fn held_until(&self, holds: &BucketHolds, now: Millis) -> Millis {
        let since = holds.last_since();
        if since == Millis::ZERO || planted(Bug::HeldBucketsForgotten) {
            return Millis::ZERO;
        }
        since + self.longest(now) + LIST_SPREAD
    }

    /// Accounts for a new list in which some pools have a shorter lifetime or fewer numbers than
    /// before. The longest of their lifetimes was `before`.
    #[must_use]
    pub fn shortened(self, before: Millis, now: Millis) -> Self {
        if before == Millis::ZERO {
            return self;
        }
        let (earlier, ends) = (self.earlier(now).max(before), now + before + LIST_SPREAD);
        Self { earlier: earlier.0, until: self.until.max(ends.0), ..self }
    }

    /// Accounts for a new list whose longest lifetime is `next`. Other nodes may use the previous
    /// list for another [`LIST_SPREAD`].
    #[must_use]
    pub fn followed_by(self, next: Millis, now: Millis) -> Self {
        let Self { current, until, .. } = self;
        let earlier = self.earlier(now).0;
        if next.0 >= current {
            return Self { current: next.0, earlier, until };
        }
        let ends = (now + Millis(current) + LIST_SPREAD).0;
        Self { current: next.0, earlier: current.max(earlier), until: until.max(ends) }
    }
}

/// Returns the longest lifetime of all pools, in shard time.
#[must_use]
pub fn longest(directory: &Directory) -> Millis {
    let pools = (0..BUCKETS).flat_map(|bucket| directory.pools_in(bucket));
    pools.map(|pool| lockout(pool.lifetime())).max().unwrap_or_default()
}

/// Returns, in shard time, the longest lifetime of the pools in `before` that are missing from
/// `next` or have a shorter lifetime or different numbers there. Returns 0 if there are none.
#[must_use]
pub fn longest_shortened(before: &Directory, next: &Directory) -> Millis {
    let is_changed = |bucket: &u16| {
        let [before, next] = [before, next].map(|list| list.pools_in(*bucket));
        // Both lists share the buckets that did not change.
        !std::ptr::eq(before, next)
    };
    let pools = (0..BUCKETS).filter(is_changed).flat_map(|bucket| before.pools_in(bucket));
    let is_shortened = |pool: &&std::sync::Arc<RingPool>| {
        next.pool(pool.id()).is_none_or(|after| {
            after.lifetime() < pool.lifetime() || after.numbers() != pool.numbers()
        })
    };
    let lockouts = pools.filter(is_shortened).map(|pool| lockout(pool.lifetime()));
    lockouts.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests report failures by panicking")]

    use ringwell_config::demo_pools;
    use ringwell_core::{NumberRange, PoolId};
    use ringwell_directory::PoolFields;

    use super::*;

    #[test]
    fn the_longer_lifetime_of_a_former_list_covers_a_shorter_one() {
        let now = Millis(1_000_000);
        let long = Lifetimes::default().followed_by(Millis(40_000), now);
        let short = long.followed_by(Millis(5_000), now);
        let over = now + Millis(40_000) + LIST_SPREAD;
        assert!(long.covers(short, now) && long.covers(long, now) && short.covers(short, over));
        // The longer lifetime counts only until `over`.
        assert!(!short.covers(short, now) && !short.covers(long, over));
    }

    #[test]
    fn an_earlier_longer_lifetime_counts_until_its_lockouts_have_ended() {
        let now = Millis(1_000_000);
        let first = Lifetimes::default().followed_by(Millis(40_000), now);
        assert_eq!(first.longest(now), Millis(40_000));
        let shorter = first.followed_by(Millis(5_000), now);
        // A further list change does not affect how long the longer lifetime counts.
        let again = shorter.followed_by(Millis(5_000), now + Millis(20_000));
        for lifetimes in [shorter, again] {
            assert_eq!(lifetimes.longest(now + Millis(49_999)), Millis(40_000));
            assert_eq!(lifetimes.longest(now + Millis(50_000)), Millis(5_000));
        }
        let longer = shorter.followed_by(Millis(60_000), now);
        assert_eq!(longer.longest(now), Millis(60_000));
        // A lockout of one minute may begin at any time until the list with that lifetime is
        // replaced.
        let last = longer.followed_by(Millis(1_000), now + Millis(10_000));
        assert_eq!(last.longest(now + Millis(79_999)), Millis(60_000));
        assert_eq!(last.longest(now + Millis(80_000)), Millis(1_000));
    }

    #[test]
    fn a_lifetime_that_was_shortened_counts_beside_longer_ones() {
        let now = Millis(1_000_000);
        let hour = Millis(3_600_000);
        let known = Lifetimes::default().followed_by(hour, now).shortened(Millis(40_000), now);
        assert_eq!(known.longest(now), hour);
        assert_eq!(known.earlier(now + Millis(49_999)), Millis(40_000));
        assert_eq!(known.earlier(now + Millis(50_000)), Millis::ZERO);
        assert_eq!(known.shortened(Millis::ZERO, now), known);
    }

    #[test]
    fn an_equal_lifetime_changes_nothing() {
        let now = Millis(1_000_000);
        let first = Lifetimes::default().followed_by(Millis(40_000), now);
        assert_eq!(first.followed_by(Millis(40_000), now), first);
    }

    #[test]
    fn only_pools_with_shorter_lifetimes_or_other_numbers_count_as_shortened() {
        let (long, short) = (Millis(60_000), Millis(5_000));
        let pools = |lifetime| demo_pools(20, 10, lifetime).unwrap();
        let mixed: Vec<_> =
            pools(long).into_iter().take(1).chain(pools(short).split_off(1)).collect();
        let before = Directory::new(1, mixed, 1).unwrap();
        let fields = |pool| before.pool(PoolId(pool)).unwrap().fields().clone();
        let check = |put: Vec<PoolFields>, removed: &[PoolId], wanted| {
            let put = put.into_iter().map(|fields| RingPool::new(fields).unwrap()).collect();
            let next = before.change(put, removed).unwrap();
            let wanted = if wanted == Millis::ZERO { wanted } else { lockout(wanted) };
            assert_eq!(longest_shortened(&before, &next), wanted);
        };
        check(Vec::new(), &[], Millis::ZERO);
        check(Vec::new(), &[PoolId(1)], long);
        check(Vec::new(), &[PoolId(2)], short);
        for (pool, lifetime) in [(1, long), (2, short)] {
            let with = |change: &dyn Fn(&mut PoolFields)| {
                let mut fields = fields(pool);
                change(&mut fields);
                vec![fields]
            };
            check(with(&|it| it.name = None), &[], Millis::ZERO);
            check(with(&|it| it.lifetime = lifetime + Millis(1)), &[], Millis::ZERO);
            check(with(&|it| it.lifetime = lifetime - Millis(1)), &[], lifetime);
            let fewer = NumberRange::new(fields(pool).numbers[0].first(), 9).unwrap();
            check(with(&|it| it.numbers = vec![fewer]), &[], lifetime);
            let both = |it: &mut PoolFields| {
                it.lifetime = lifetime + Millis(1);
                it.numbers = vec![fewer];
            };
            check(with(&both), &[], lifetime);
        }
    }
}
