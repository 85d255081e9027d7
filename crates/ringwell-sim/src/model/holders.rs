//! The holders of a number according to its owners' grants, and the required results of look-ups.

use std::collections::{BTreeMap, BTreeSet};

use super::{Grant, Model};

/// A grant that may count as its number's newest: its row, and its owner's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) shard: u16,
    pub(super) at_ms: u64,
    /// The group whose record undoes it.
    pub(super) withdrawn: Option<u64>,
}

/// A look-up to make, and its required result.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) shard: u16,
    pub(crate) number: u64,
    /// The time when it was allocated.
    pub(crate) at_ms: u64,
    pub(crate) true_us: u64,
    /// The last time at which it was still the newest; `None` if it still is.
    pub(crate) late_ms: Option<u64>,
    pub(crate) params: String,
    /// Whether it must be found, however old it is.
    pub(crate) is_newest: bool,
    /// The true time at which the number may have gone out again, if it did.
    pub(crate) next_us: Option<u64>,
    /// The true time at which it went to another visitor, if it did: look-ups must report it.
    pub(crate) end_us: Option<u64>,
    /// Whether its owner has lost it, and no other visitor may be named.
    pub(crate) is_lost: bool,
}

impl Model {
    /// Records that an allocation that no visitor saw was undone by its owner, so that it has no
    /// holder. `group` contains the record of that.
    pub(crate) fn withdrawn(
        &mut self,
        shard: u16,
        number: u64,
        (allocated_at, at_ms): (u64, u64),
        group: u64,
    ) {
        self.released(shard, number, at_ms);
        let holders = self.holders.get_mut(&number).into_iter().flatten();
        for holder in holders.filter(|it| (it.shard, it.at_ms) == (shard, allocated_at)) {
            holder.withdrawn = Some(group);
        }
    }

    /// Drops all promises about numbers whose newest holder `shard` knew.
    pub(super) fn forget_holders(&mut self, shard: u16) {
        self.holders.retain(|_, holders| holders.last().is_none_or(|newest| newest.shard != shard));
    }

    /// The required results of look-ups.
    pub(crate) fn attributions(&self) -> Vec<Wanted> {
        let fresh = self.held.values().flatten().filter(|held| held.grant.is_fresh);
        let kept = fresh.filter(|held| !held.is_lost && !held.is_forgotten);
        kept.map(|held| self.wanted(&held.grant)).collect()
    }

    /// Look-ups of kept allocations, with `next_us` and `end_us`. Omits numbers with any grant that
    /// `counts` rejects.
    pub(crate) fn dated_attributions(&self, counts: impl Fn(&Grant) -> bool) -> Vec<Wanted> {
        let mut times: BTreeMap<u64, Vec<(u64, bool)>> = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        for grant in self.granted.values().flatten() {
            if grant.is_fresh {
                let stands = self.stands(grant);
                times.entry(grant.number).or_default().push((grant.true_us, stands));
            }
            if grant.is_lost || !counts(grant) {
                left_out.insert(grant.number);
            }
        }
        let wanted = self.attributions().into_iter();
        let dated = wanted.filter(|wanted| !left_out.contains(&wanted.number)).map(|wanted| {
            let all = times.get(&wanted.number).into_iter().flatten();
            let later = all.copied().filter(|(us, _)| *us > wanted.true_us);
            let next_us = later.clone().map(|(us, _)| us).min();
            let end_us = later.filter_map(|(us, stands)| stands.then_some(us)).min();
            Wanted { next_us, end_us, ..wanted }
        });
        dated.collect()
    }

    /// Look-ups of allocations that visitors have seen and their owner has lost: no other visitor
    /// may be named. Omits numbers with any grant that `counts` rejects.
    pub(crate) fn lost_attributions(&self, counts: impl Fn(&Grant) -> bool) -> Vec<Wanted> {
        let all = || self.granted.values().flatten();
        let left_out: BTreeSet<u64> =
            all().filter(|grant| !counts(grant)).map(|grant| grant.number).collect();
        let held = self.held.values().flatten().filter(|held| held.is_lost && !held.is_unknown);
        let held = held.filter(|held| held.grant.is_fresh);
        let lost = held.map(|held| &held.grant).filter(|it| !left_out.contains(&it.number));
        let wanted = lost.map(|grant| {
            let later = all().filter(|it| it.number == grant.number && it.true_us > grant.true_us);
            Wanted {
                next_us: later.map(|it| it.true_us).min(),
                late_ms: None,
                is_newest: false,
                is_lost: true,
                ..self.wanted(grant)
            }
        });
        wanted.collect()
    }

    /// The grants of its number that were made after this one.
    pub(crate) fn grants_after(&self, wanted: &Wanted) -> Vec<&Grant> {
        let all = self.granted.values().flatten();
        all.filter(|it| it.number == wanted.number && it.true_us > wanted.true_us).collect()
    }

    /// Whether a grant has not been undone by its owner.
    fn stands(&self, grant: &Grant) -> bool {
        let holders = self.holders.get(&grant.number).into_iter().flatten();
        let mut same = holders.filter(|it| (it.shard, it.at_ms) == (grant.shard, grant.at_ms));
        same.any(|holder| holder.withdrawn.is_none())
    }

    fn wanted(&self, grant: &Grant) -> Wanted {
        let all = self.holders.get(&grant.number).map_or(&[][..], Vec::as_slice);
        let holders: Vec<_> = all.iter().filter(|it| it.withdrawn.is_none()).collect();
        let is_it = |holder: &&Holder| (holder.shard, holder.at_ms) == (grant.shard, grant.at_ms);
        let place = holders.iter().position(is_it);
        let later = place.map_or(&[][..], |place| &holders[place + 1..]);
        // Another shard's allocations are in another journal, by another clock.
        let is_here = later.first().is_some_and(|next| next.shard == grant.shard);
        // An allocation lost with its group may have been later by the clock than the following
        // ones.
        let here = later.iter().filter(|next| is_here && next.shard == grant.shard);
        let next_ms = here.map(|next| next.at_ms).min().filter(|next_ms| *next_ms > grant.at_ms);
        Wanted {
            shard: grant.shard,
            number: grant.number,
            at_ms: grant.at_ms,
            true_us: grant.true_us,
            late_ms: match next_ms {
                Some(next_ms) => Some(next_ms - 1),
                None => (place.is_none() || !later.is_empty()).then_some(grant.at_ms),
            },
            params: grant.params.clone(),
            // Its record may have been dropped during a later allocation that no visitor saw in the
            // end.
            is_newest: all.last().is_some_and(|newest| is_it(&newest)),
            next_us: None,
            end_us: None,
            is_lost: false,
        }
    }
}
