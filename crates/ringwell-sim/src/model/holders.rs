//! The holders of a number according to the grants of its owners, and the results that look-ups
//! must return.

use std::collections::{BTreeMap, BTreeSet};

use super::values::{Grant, Holder, Model, Wanted};

impl Model {
    /// Records that the owner undid an allocation that no visitor had seen, so the allocation has
    /// no holder. `group` is the group that contains the record that undoes it.
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

    /// Drops all promises about numbers whose newest grant was made by `shard`.
    pub(super) fn forget_holders(&mut self, shard: u16) {
        self.holders.retain(|_, holders| holders.last().is_none_or(|newest| newest.shard != shard));
    }

    /// Returns a look-up for each allocation that a visitor has seen and that was not lost.
    pub(crate) fn attributions(&self) -> Vec<Wanted> {
        let fresh = self.held.values().flatten().filter(|held| held.grant.is_fresh);
        let kept = fresh.filter(|held| !held.is_lost && !held.is_forgotten);
        kept.map(|held| self.wanted(&held.grant)).collect()
    }

    /// Returns the look-ups of [`Self::attributions`], with `next_us` and `end_us` filled in.
    /// Numbers with a grant that `counts` rejects are omitted.
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

    /// Returns a look-up for each allocation that a visitor has seen but that its shard has lost.
    /// These look-ups must not return another visitor. Omits numbers with a grant that `counts`
    /// rejects, and allocations whose loss no node can detect.
    pub(crate) fn lost_attributions(&self, counts: impl Fn(&Grant) -> bool) -> Vec<Wanted> {
        let all = || self.granted.values().flatten();
        let left_out: BTreeSet<u64> =
            all().filter(|grant| !counts(grant)).map(|grant| grant.number).collect();
        let seen = self.held.values().flatten().filter(|held| !held.is_unknown);
        let seen: BTreeSet<_> = seen.map(|held| (held.grant.number, held.grant.at_ms)).collect();
        let lost = all().filter(|grant| grant.is_lost && grant.is_fresh);
        let lost = lost.filter(|it| seen.contains(&(it.number, it.at_ms)));
        let wanted = lost.filter(|it| !left_out.contains(&it.number)).map(|grant| {
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

    /// Returns the grants of the look-up's number that are newer than the look-up's allocation.
    pub(crate) fn grants_after(&self, wanted: &Wanted) -> Vec<&Grant> {
        let all = self.granted.values().flatten();
        all.filter(|it| it.number == wanted.number && it.true_us > wanted.true_us).collect()
    }

    /// Whether a grant is still valid, that is, whether its owner has not undone it.
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
        // The allocations of another shard are in another journal, and their times are from another
        // clock.
        let is_here = later.first().is_some_and(|next| next.shard == grant.shard);
        // An allocation may have been lost with its group. If the clock was set back after that,
        // later allocations may have earlier times.
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
            // The record may have been dropped because of a later allocation, even if no visitor
            // ever saw the later allocation's number.
            is_newest: all.last().is_some_and(|newest| is_it(&newest)),
            next_us: None,
            end_us: None,
            is_lost: false,
        }
    }
}
