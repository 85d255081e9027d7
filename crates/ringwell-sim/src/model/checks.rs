//! The single promises, each as a question to what the model knows.

use std::collections::BTreeMap;

use super::{BELIEVED_MS, Grant, Holding, Judged, Known, Model, Recovery, Row, Wanted, broken};

impl Model {
    /// Whether an owner might give this number to this row now.
    pub(super) fn check_grant(&self, grant: &Grant) -> Judged {
        let Grant { shard: shard_id, pool: pool_id, number, at_ms, .. } = *grant;
        let fault = |rule, text| Err(broken(rule, shard_id, number, text));
        let Some(pool) = self.pools.get(&pool_id) else {
            return fault("wrong pool", format!("there is no pool {pool_id}"));
        };
        if !(pool.first..pool.first + pool.count).contains(&number) {
            return fault("wrong pool", format!("the number is not in rotation in pool {pool_id}"));
        }
        if grant.true_us > grant.deadline_us {
            let late = grant.true_us - grant.deadline_us;
            return fault("granted late", format!("{late} us after its deadline"));
        }
        if !grant.is_fresh {
            return Ok(());
        }
        if grant.until_ms != at_ms + pool.lifetime_ms + 1 {
            let text = format!("locked from {at_ms} until {}", grant.until_ms);
            return fault("wrong lockout", text);
        }
        self.check_visitor(grant)?;
        let Some(shard) = self.shards.get(&shard_id) else { return Ok(()) };
        if let Some(until) = shard.holds.get(&pool_id).filter(|until| **until > at_ms) {
            return fault("held", format!("the pool is held until {until}, it is {at_ms}"));
        }
        let known = shard.numbers.get(&number).copied().unwrap_or_default();
        if known.until > at_ms {
            let text = format!("locked out until {}, handed out again at {at_ms}", known.until);
            return fault("double in shard time", text);
        }
        let mut of_pool = shard.numbers.range(pool.first..pool.first + pool.count);
        let older = of_pool.find(|(_, other)| other.until < known.until);
        if let Some((other, Known { until, .. })) = older {
            let text =
                format!("free since {}, but {other} has been free since {until}", known.until);
            return fault("not the one free longest", text);
        }
        Ok(())
    }

    /// A visitor who comes back in time gets the same number.
    fn check_visitor(&self, grant: &Grant) -> Judged {
        let (Some(visitor), None) = (grant.visitor, grant.retry) else { return Ok(()) };
        let Some(held) = self.at(self.by_visitor.get(&(grant.pool, visitor))) else {
            return Ok(());
        };
        let believed = self.shards.get(&grant.shard).map_or(0, |shard| shard.believed_ms);
        let may_move = held.is_lost
            || held.is_forgotten
            || held.grant.shard != grant.shard
            || believed != held.grant.believed_ms
            || held.until_us <= grant.true_us;
        if may_move {
            return Ok(());
        }
        let text = format!(
            "visitor {visitor} got this number while {} was still locked for them",
            held.grant.number
        );
        Err(broken("visitor moved", grant.shard, grant.number, text))
    }

    /// No other holder who has seen the number may be within its lockout.
    pub(super) fn check_double(&self, new: &Grant) -> Judged {
        for held in self.held.get(&new.number).into_iter().flatten() {
            if held.grant.holder() == new.holder() || held.is_lost || new.is_lost {
                continue;
            }
            let is_older = held.grant.true_us <= new.true_us;
            let (first, first_until, then) = if is_older {
                (&held.grant, held.until_us, new)
            } else {
                (new, self.promised_until(new), &held.grant)
            };
            // A clock that was set forward, and believed, ends lockouts early, also those that other
            // shards of the machine have taken over.
            let home = |shard: u16| self.homes.get(usize::from(shard));
            let clock = self.shards.get(&first.shard);
            let believed_ms = match clock {
                Some(clock) if home(first.shard) == home(then.shard) => {
                    clock.believed_ms - first.believed_ms
                }
                _ => 0,
            };
            let excused_us = u64::try_from(believed_ms.max(0)).unwrap_or(0) * 1000;
            if then.true_us < first_until.saturating_sub(excused_us) {
                let text = format!(
                    "went to batch {} row {} at {} us and to batch {} row {} at {} us; its lockout \
                     ends at {first_until} us",
                    first.batch, first.row, first.true_us, then.batch, then.row, then.true_us
                );
                return Err(broken("double", new.shard, new.number, text));
            }
        }
        Ok(())
    }

    /// A batch that is sent again gets the same numbers.
    pub(super) fn check_repeat(&self, new: &Grant) -> Judged {
        let Some(row) = new.retry else { return Ok(()) };
        let Some(held) = self.at(self.by_retry.get(&row)) else { return Ok(()) };
        let is_excused = held.is_lost || held.is_forgotten || held.grant.shard != new.shard;
        // Answers are remembered for a day: one may have passed for the owner.
        let leapt_ms = self.shards.get(&new.shard).map_or(0, |shard| shard.leapt_ms);
        let is_old = leapt_ms - held.grant.leapt_ms >= BELIEVED_MS;
        if is_excused || is_old || held.grant.number == new.number {
            return Ok(());
        }
        let text = format!(
            "row {} of batch {} was answered with {} before",
            row.1, row.0, held.grant.number
        );
        Err(broken("another answer", new.shard, new.number, text))
    }

    /// … at least while they are locked for it.
    pub(super) fn check_repeat_exhausted(&self, row: &Row) -> Judged {
        let Some(retry) = row.retry else { return Ok(()) };
        let Some(held) = self.at(self.by_retry.get(&retry)) else { return Ok(()) };
        let shard = self.shards.get(&held.grant.shard);
        let was_believed = shard.is_none_or(|s| s.leapt_ms != held.grant.leapt_ms);
        let is_excused = held.is_lost || held.is_forgotten || was_believed;
        // Which shard said so is not known: a pool that has moved has left its answers behind.
        let has_moved = shard.is_none_or(|s| !s.numbers.contains_key(&held.grant.number));
        if is_excused || has_moved || held.until_us <= row.now_us {
            return Ok(());
        }
        let text = format!("row {} of batch {} had it and got none now", retry.1, retry.0);
        Err(broken("another answer", held.grant.shard, held.grant.number, text))
    }

    fn at(&self, place: Option<&(u64, usize)>) -> Option<&Holding> {
        let (number, index) = place?;
        self.held.get(number)?.get(*index)
    }

    /// What was answered is known after a restart, and locked for as long.
    pub(super) fn check_recovered(&self, recovery: &Recovery) -> Judged {
        let Some(shard) = self.shards.get(&recovery.shard) else { return Ok(()) };
        let fault = |rule, number, text| Err(broken(rule, recovery.shard, number, text));
        if recovery.is_rotten {
            for number in shard.numbers.keys() {
                let pool = self
                    .pools
                    .iter()
                    .find(|(_, pool)| (pool.first..pool.first + pool.count).contains(number));
                let Some((id, pool)) = pool else { continue };
                let until = shard.holds.get(id).copied().unwrap_or_default();
                if until < recovery.now_ms + pool.lifetime_ms {
                    let text =
                        format!("pool {id} is held until {until} only, it is {}", recovery.now_ms);
                    return fault("not held", *number, text);
                }
            }
        }
        for held in self.held.values().flatten() {
            let Grant { number, at_ms, pool, .. } = held.grant;
            let is_ours = held.grant.shard == recovery.shard;
            if !is_ours || held.is_lost || held.is_forgotten || held.until_us <= recovery.now_us {
                continue;
            }
            let Some(known) = shard.numbers.get(&number) else { continue };
            let until = if held.grant.is_fresh { at_ms + self.lifetime(pool) + 1 } else { at_ms };
            if known.allocated_at < at_ms && held.grant.is_fresh {
                let text = format!("answered at {at_ms}, known as of {}", known.allocated_at);
                return fault("forgotten", number, text);
            }
            if known.until < until && known.allocated_at == at_ms {
                let text = format!("locked until {} after a restart, not {until}", known.until);
                return fault("forgotten", number, text);
            }
        }
        Ok(())
    }

    /// What look-ups must find.
    pub(crate) fn attributions(&self) -> Vec<Wanted<'_>> {
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for ((_, number), at) in &self.newest {
            let known = newest.entry(*number).or_default();
            *known = (*known).max(*at);
        }
        let fresh = self.held.values().flatten().filter(|held| held.grant.is_fresh);
        let kept = fresh.filter(|held| !held.is_lost && !held.is_forgotten);
        let wanted = kept.map(|Holding { grant, .. }| Wanted {
            shard: grant.shard,
            number: grant.number,
            at_ms: grant.at_ms,
            params: &grant.params,
            is_newest: newest.get(&grant.number) == Some(&grant.at_ms),
        });
        wanted.collect()
    }
}
