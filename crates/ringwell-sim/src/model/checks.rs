//! The individual promises, each written as a check of the model's state.

use std::collections::BTreeMap;

use super::clocks::{BELIEVED_MS, lockout_ms};
use super::values::{
    Grant, Holding, Judged, Known, Loss, Model, PoolRule, Recovery, Row, Shard, TakenUp, broken,
};

/// Whether `shard` has the number's original pool, and the number is still in that pool.
pub(super) fn is_in_pool(shards: &BTreeMap<u16, Shard>, shard: u16, grant: &Grant) -> bool {
    let pool = shards.get(&shard).and_then(|known| known.pools.get(&grant.pool));
    pool.is_some_and(|pool| pool.numbers.contains(&grant.number))
}

impl Model {
    /// Checks that an owner may give this number to this row at this time.
    pub(super) fn check_grant(&self, grant: &Grant) -> Judged {
        let Grant { shard: shard_id, pool: pool_id, number, at_ms, .. } = *grant;
        let fault = |rule, text| Err(broken(rule, shard_id, number, text));
        let shard = self.shards.get(&shard_id);
        let Some(pool) = shard.and_then(|shard| shard.pools.get(&pool_id)) else {
            return fault("wrong pool", format!("pool {pool_id} does not belong to this shard"));
        };
        if !pool.numbers.contains(&number) {
            return fault("wrong pool", format!("the number is not in rotation in pool {pool_id}"));
        }
        if grant.true_us > grant.deadline_us {
            let late = grant.true_us - grant.deadline_us;
            return fault(
                "granted late",
                format!("the number was handed out {late} us after the deadline"),
            );
        }
        self.check_visitor(grant)?;
        if !grant.is_fresh {
            return Ok(());
        }
        if grant.until_ms != at_ms + lockout_ms(pool.lifetime_ms) {
            let text = format!("locked from {at_ms} until {}", grant.until_ms);
            return fault("wrong lockout", text);
        }
        let Some(shard) = self.shards.get(&shard_id) else { return Ok(()) };
        if let Some(until) = shard.holds.get(&pool_id).filter(|until| **until > at_ms) {
            return fault(
                "held",
                format!("the pool is held until {until}, but the time is {at_ms}"),
            );
        }
        let known = shard.numbers.get(&number).copied().unwrap_or_default();
        if known.until > at_ms {
            let text = format!("locked out until {}, but handed out again at {at_ms}", known.until);
            return fault("double in shard time", text);
        }
        let of_pool = |number: &u64| (*number, shard.numbers.get(number).copied());
        let of_pool = pool.numbers.iter().map(of_pool);
        let of_pool = of_pool.map(|(other, known)| (other, known.unwrap_or_default()));
        let older = { of_pool }.find(|(_, other)| other.until < known.until);
        if let Some((other, Known { until, .. })) = older {
            let text =
                format!("free since {}, but {other} has been free since {until}", known.until);
            return fault("wrong order", text);
        }
        Ok(())
    }

    /// Checks that a visitor who returns in time gets the same number, even in a repeated batch.
    fn check_visitor(&self, grant: &Grant) -> Judged {
        let Some(visitor) = grant.visitor else { return Ok(()) };
        let Some(held) = self.at(self.by_visitor.get(&(grant.pool, visitor))) else {
            return Ok(());
        };
        let may_move = held.grant.number == grant.number
            || held.is_lost
            || held.is_forgotten
            || held.keeper != grant.shard
            || held.believed_us > 0
            || held.until_us <= grant.true_us
            || held.was_lent
            || !self.is_at_home(held);
        if may_move {
            return Ok(());
        }
        let text = format!(
            "visitor {visitor} got this number while the visitor's previous number, {}, was still \
            locked out",
            held.grant.number
        );
        Err(broken("visitor moved", grant.shard, grant.number, text))
    }

    /// Checks that the grant's lockout does not overlap that of another holder who has seen the
    /// number.
    pub(super) fn check_double(&self, new: &Grant) -> Judged {
        for held in self.held.get(&new.number).into_iter().flatten() {
            if held.grant.holder() == new.holder() || held.is_lost || new.is_lost {
                continue;
            }
            let is_older = held.grant.true_us <= new.true_us;
            let (first, first_until, then) = if is_older {
                (&held.grant, held.until_us, new)
            } else {
                (new, Self::promised_until(new), &held.grant)
            };
            // If a wall clock was set ahead and the new time was trusted, lockouts end early,
            // including those that other shards of the machine adopted.
            let clock = self.shards.get(&first.shard);
            let believed_ms = clock.map_or(0, |clock| clock.believed_ms - first.believed_ms);
            let excused_us = if is_older {
                held.believed_us
            } else {
                u64::try_from(believed_ms.max(0)).unwrap_or(0) * 1000
            };
            if then.true_us < first_until.saturating_sub(excused_us) {
                let text = format!(
                    "handed out to batch {} row {} at {} us and to batch {} row {} at {} us; the \
                    first lockout ends at {first_until} us",
                    first.batch, first.row, first.true_us, then.batch, then.row, then.true_us
                );
                return Err(broken("double", new.shard, new.number, text));
            }
        }
        Ok(())
    }

    /// Checks that a repeated batch gets the same numbers as before.
    pub(super) fn check_repeat(&self, new: &Grant) -> Judged {
        let Some(row) = new.retry else { return Ok(()) };
        let Some(held) = self.at(self.by_retry.get(&row)) else { return Ok(()) };
        let is_excused =
            held.is_lost || held.is_forgotten || held.keeper != new.shard || !self.is_at_home(held);
        // Answers are remembered for a day. If the owner's clock has leapt, a day may have passed
        // according to that clock.
        let is_old = held.leapt_ms >= BELIEVED_MS;
        // If the number's lockout has ended, or the number left its pool for a while, the row gets
        // the visitor's current number.
        let until_us = held.until_us.saturating_sub(held.believed_us);
        let is_visitors =
            new.visitor.is_some() && (held.was_lent || held.was_away || until_us <= new.true_us);
        if is_excused || is_old || is_visitors || held.grant.number == new.number {
            return Ok(());
        }
        let text = format!(
            "row {} of batch {} was answered with {} before",
            row.1, row.0, held.grant.number
        );
        Err(broken("another answer", new.shard, new.number, text))
    }

    /// Judges an owner's report that all numbers of a pool are locked out.
    pub(crate) fn exhausted(
        &mut self,
        shard_id: u16,
        pool_id: u64,
        at_ms: u64,
        retry: Option<(u64, u16)>,
    ) -> Judged {
        let was_decided = retry.is_some_and(|row| !self.decided.insert(row));
        self.asked_again(retry);
        let Some(shard) = self.shards.get(&shard_id) else { return Ok(()) };
        let Some(pool) = shard.pools.get(&pool_id) else { return Ok(()) };
        let is_held = shard.holds.get(&pool_id).is_some_and(|until| *until > at_ms);
        if let Some(row) = retry {
            if is_held {
                self.held_back.insert(row);
            } else {
                self.held_back.remove(&row);
            }
        }
        let is_free = |number: &&u64| shard.numbers.get(*number).is_none_or(|k| k.until <= at_ms);
        let free = pool.numbers.iter().filter(is_free).copied();
        match { free }.next() {
            Some(number) if !is_held && !was_decided => {
                let text = format!("pool {pool_id} handed out no number, but this number was free");
                Err(broken("overflow without cause", shard_id, number, text))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a repeated row is not left without a number before the lockout of its earlier
    /// number has ended.
    pub(super) fn check_repeat_exhausted(&self, row: &Row) -> Judged {
        let Some(retry) = row.retry else { return Ok(()) };
        let Some(held) = self.at(self.by_retry.get(&retry)) else { return Ok(()) };
        let was_held_back = self.held_back.contains(&retry);
        let is_excused = held.is_lost || held.is_forgotten || held.leapt_ms > 0 || was_held_back;
        // A number that has been in another pool belongs to no visitor. The row is then served like
        // a new row.
        let is_new = held.grant.visitor.is_some() && held.was_lent;
        if is_excused || is_new || !self.is_at_home(held) || held.until_us <= row.now_us {
            return Ok(());
        }
        let text = format!(
            "row {} of batch {} got this number before, but the repeated row got none",
            retry.1, retry.0
        );
        Err(broken("another answer", held.grant.shard, held.grant.number, text))
    }

    /// Whether the number is still in its original pool and the pool's owner has the answer that
    /// contained the number.
    fn is_at_home(&self, held: &Holding) -> bool {
        !held.is_unreported && is_in_pool(&self.shards, held.keeper, &held.grant)
    }

    fn at(&self, place: Option<&(u64, usize)>) -> Option<&Holding> {
        let (number, index) = place?;
        self.held.get(number)?.get(*index)
    }

    /// Checks that a restarted shard has kept the allocations that it had sent to clients, and that
    /// their numbers are locked out at least as long as before.
    pub(super) fn check_recovered(&self, recovery: &Recovery) -> Judged {
        let Some(shard) = self.shards.get(&recovery.shard) else { return Ok(()) };
        let fault = |rule, number, text| Err(broken(rule, recovery.shard, number, text));
        if recovery.loss == Loss::Doubted {
            for number in shard.numbers.keys() {
                let pool = shard.pools.iter().find(|(_, pool)| pool.numbers.contains(number));
                let Some((id, pool)) = pool else { continue };
                let until = shard.holds.get(id).copied().unwrap_or_default();
                if until < recovery.now_ms + pool.lifetime_ms {
                    let text = format!(
                        "pool {id} is held only until {until}; the time is {}",
                        recovery.now_ms
                    );
                    return fault("not held", *number, text);
                }
            }
        }
        for held in self.held.values().flatten() {
            let Grant { number, at_ms, lifetime_ms, .. } = held.grant;
            // Numbers from another owner have times from another clock.
            let is_ours = held.grant.shard == recovery.shard && held.keeper == recovery.shard;
            if !is_ours || held.is_lost || held.is_forgotten || held.until_us <= recovery.now_us {
                continue;
            }
            let Some(known) = shard.numbers.get(&number) else { continue };
            let until = if held.grant.is_fresh { at_ms + lockout_ms(lifetime_ms) } else { at_ms };
            if known.allocated_at < at_ms && held.grant.is_fresh {
                let text = format!(
                    "the number was handed out at {at_ms}, but the newest known allocation is \
                    from {}",
                    known.allocated_at
                );
                return fault("forgotten", number, text);
            }
            if known.until < until && known.allocated_at == at_ms {
                let text = format!(
                    "locked until {} after a restart, but was locked until {until}",
                    known.until
                );
                return fault("forgotten", number, text);
            }
        }
        Ok(())
    }

    /// Checks that a pool that this shard serves is not served by any other shard.
    pub(super) fn check_one_owner(&self, shard: u16, pool: u64) -> Judged {
        let serves =
            |(other, known): &(&u16, &Shard)| **other != shard && known.pools.contains_key(&pool);
        match { self.shards.iter() }.find(serves) {
            Some((other, _)) => {
                let text = format!("pool {pool} is served by this shard and by shard {other}");
                Err(broken("two owners", shard, 0, text))
            }
            None => Ok(()),
        }
    }

    /// Judges a shard that begins to serve. At this time, it has already queried the other nodes.
    pub(crate) fn serves(&mut self, begun: &TakenUp) -> Judged {
        self.know_again(begun);
        if begun.is_still {
            return Ok(());
        }
        let (id, now) = (begun.shard, (begun.now_us, begun.now_ms));
        let pools = self.shards.get(&id).into_iter().flat_map(|shard| &shard.pools);
        pools.into_iter().try_for_each(|(pool, rule)| self.check_locked(id, *pool, rule, now))
    }

    /// Checks the numbers that a shard has taken over or starts with. The shard must have all
    /// their running lockouts, or it must hold the pool.
    pub(super) fn check_locked(
        &self,
        id: u16,
        pool: u64,
        rule: &PoolRule,
        (true_us, shard_ms): (u64, u64),
    ) -> Judged {
        let Some(shard) = self.shards.get(&id) else { return Ok(()) };
        let held_until = shard.holds.get(&pool).copied().unwrap_or_default();
        for number in &rule.numbers {
            let known = shard.numbers.get(number).map_or(0, |known| known.until).max(held_until);
            for held in self.held.get(number).into_iter().flatten() {
                let left_us =
                    held.until_us.saturating_sub(held.believed_us).saturating_sub(true_us);
                if held.is_lost || left_us == 0 {
                    continue;
                }
                if (known + 1).saturating_sub(shard_ms) * 1000 < left_us {
                    let text = format!(
                        "in pool {pool}, the number is free from {known} on; the time is \
                         {shard_ms}, but the number must stay locked out for another {left_us} us"
                    );
                    return Err(broken("forgotten", id, *number, text));
                }
            }
        }
        Ok(())
    }

    /// Checks that a number is sent before the deadline and that no other visitor has it when it is
    /// sent, regardless of when it was granted.
    pub(super) fn check_leaving(&self, grant: &Grant, row: &Row) -> Judged {
        let fault = |rule, text| Err(broken(rule, grant.shard, grant.number, text));
        let late_us = row.now_us.saturating_sub(row.deadline_us);
        if late_us > 0 {
            let text = format!("the number was sent {late_us} us after the deadline");
            return fault("number left late", text);
        }
        let all = self.held.get(&grant.number).into_iter().flatten();
        let others = all.filter(|held| held.grant.holder() != grant.holder());
        let mut others =
            others.filter(|held| !held.is_lost && !held.is_forgotten && !grant.is_lost);
        let is_others = |held: &&Holding| {
            held.grant.true_us > grant.true_us && held.until_us > row.now_us + held.believed_us
        };
        match others.find(is_others) {
            Some(held) => {
                let text = format!(
                    "the number is sent at {} us, but batch {} row {} has it until {} us",
                    row.now_us, held.grant.batch, held.grant.row, held.until_us
                );
                fault("double", text)
            }
            None => Ok(()),
        }
    }
}
