//! The reference model, which judges every answer. It shares no code with the rules that it judges.
//!
//! It receives each number that an owner hands out, the time of each answer, and the state after
//! each restart. Visitors' times are in true time (microseconds), and an owner's times are in its
//! shard time (milliseconds). Numbers, pools and shards are plain integers here, on purpose.
//! Source: docs/spec/simulation.md, "What is checked".

mod checks;
mod clocks;
mod holders;
mod losses;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use clocks::{LENGTHENED_MS, SKEW_MAX_MS};
use clocks::{lifetime_ms, lockout_ms};
pub use values::Violation;
pub(crate) use values::{
    Grant, Holding, Judged, Loss, Model, PoolRule, Recovery, Row, Shown, TakenUp, Wanted,
};
use values::{Holder, Known, Shard, broken};

impl Model {
    /// Returns the lifetime of a pool in a shard.
    fn lifetime(&self, shard: u16, pool: u64) -> u64 {
        let pool = self.shards.get(&shard).and_then(|shard| shard.pools.get(&pool));
        pool.map_or(0, |pool| pool.lifetime_ms)
    }

    /// Records that an owner has given a number to a row.
    pub(crate) fn granted(&mut self, mut grant: Grant) -> Judged {
        self.check_grant(&grant)?;
        let lifetime = self.lifetime(grant.shard, grant.pool);
        let shard = self.shards.entry(grant.shard).or_default();
        grant.believed_ms = shard.believed_ms;
        grant.lifetime_ms = lifetime;
        let known = shard.numbers.entry(grant.number).or_default();
        if grant.is_fresh {
            let until = grant.at_ms + lockout_ms(lifetime);
            *known = Known { allocated_at: grant.at_ms, until };
            let Grant { shard, at_ms, .. } = grant;
            self.holders.entry(grant.number).or_default().push(Holder {
                shard,
                at_ms,
                withdrawn: None,
            });
        } else {
            // The earliest permitted end of the lockout depends on why the number was kept. It is
            // never before the previous end.
            let is_repeated = grant.retry.is_some_and(|row| self.decided.contains(&row));
            let wanted = if is_repeated { grant.at_ms + 1 } else { grant.at_ms + lifetime + 1 };
            if grant.until_ms < known.until.max(wanted) {
                let text = format!("kept until {}, known until {}", grant.until_ms, known.until);
                return Err(broken("kept too short", grant.shard, grant.number, text));
            }
            known.until = grant.until_ms;
        }
        self.decided.extend(grant.retry);
        self.asked_again(grant.retry);
        self.granted.entry((grant.batch, grant.row)).or_default().push(grant);
        Ok(())
    }

    /// Records that an owner lacked the answer to a row and has given a new one. The owner must
    /// keep the new answer from now on.
    fn asked_again(&mut self, retry: Option<(u64, u16)>) {
        let place = retry.and_then(|row| self.by_retry.get(&row).copied());
        let Some((number, index)) = place else { return };
        let held = self.held.get_mut(&number).and_then(|held| held.get_mut(index));
        if let Some(held) = held.filter(|held| held.is_unreported) {
            held.is_answered_anew = true;
        }
    }

    /// Records that the owner of a number ended its lockout at `at_ms`.
    pub(crate) fn released(&mut self, shard: u16, number: u64, at_ms: u64) {
        let known = self.shards.entry(shard).or_default().numbers.get_mut(&number);
        if let Some(known) = known {
            known.until = at_ms + 1;
        }
    }

    /// Records that a client requests the end of a lockout. From now on, nothing is promised to the
    /// holder.
    pub(crate) fn release_asked(&mut self, number: u64, at_ms: u64, now_us: u64) {
        for held in self.held.get_mut(&number).into_iter().flatten() {
            if held.grant.at_ms == at_ms {
                held.until_us = held.until_us.min(now_us);
            }
        }
    }

    /// Judges the answer to a row when it is sent.
    pub(crate) fn answered(&mut self, row: &Row) -> Judged {
        self.rows += 1;
        self.probed += u64::from(row.is_probe);
        if !self.answered.insert((row.sent, row.row)) {
            let text = format!("batch {} row {} was answered twice", row.batch, row.row);
            return Err(broken("two answers", 0, 0, text));
        }
        match row.shown {
            Shown::Number(number) => self.take_number(row, number),
            Shown::Exhausted => self.check_repeat_exhausted(row),
            Shown::Refused(why) if row.is_probe => {
                let text = format!(
                    "batch {} row {} of pool {}: {why}, long after the last fault",
                    row.batch, row.row, row.pool
                );
                Err(broken("not live", 0, 0, text))
            }
            Shown::Refused(_) => Ok(()),
        }
    }

    /// Returns the true time until which no other visitor may get the number. For a number that was
    /// newly handed out, this is one lifetime after the grant. For a number that was kept, it is
    /// calculated from shard time, which may gain on true time while it approaches the wall clock.
    fn promised_until(grant: &Grant) -> u64 {
        let left_ms = lifetime_ms(grant.until_ms - grant.at_ms);
        let fresh_ms = grant.lifetime_ms;
        let promised_ms = if grant.is_fresh { fresh_ms } else { left_ms.min(grant.lifetime_ms) };
        grant.true_us + promised_ms * 1000
    }

    /// Reports that the answer to a batch is sent `late_us` after the last permitted time.
    pub(crate) fn answered_late(batch: u64, shard: u16, late_us: u64) -> Judged {
        if late_us == 0 {
            return Ok(());
        }
        let text = format!("batch {batch} was answered {late_us} us too late");
        Err(broken("late", shard, 0, text))
    }

    /// Checks that at least `wanted` rows of probes were answered.
    pub(crate) fn check_probes(&self, wanted: u64) -> Judged {
        if self.probed >= wanted {
            return Ok(());
        }
        let text = format!("{} of {wanted} rows were answered after the faults", self.probed);
        Err(broken("not live", 0, 0, text))
    }

    fn take_number(&mut self, row: &Row, number: u64) -> Judged {
        let grants = self.granted.get(&(row.batch, row.row)).into_iter().flatten();
        // If a frame was duplicated, it is unknown which of the two grants this answer belongs to.
        // The model assumes the first grant, because it promises less than the second one.
        let is_it = |grant: &&Grant| grant.number == number && grant.pool == row.pool;
        let grant = { grants }.find(|grant| is_it(grant) && grant.true_us >= row.since_us);
        let Some(grant) = grant.cloned() else {
            let text = format!(
                "batch {} row {} of pool {} was answered with {number}, which no owner gave it",
                row.batch, row.row, row.pool
            );
            return Err(broken("phantom", 0, number, text));
        };
        self.numbers_out += 1;
        self.check_leaving(&grant, row)?;
        self.check_double(&grant)?;
        self.check_repeat(&grant)?;
        let until_us = Self::promised_until(&grant);
        let (retry, visitor, pool) = (grant.retry, grant.visitor, grant.pool);
        let is_lost = grant.is_lost;
        let keeper = self.server(number).unwrap_or(grant.shard);
        // The number may have left its pool before the answer was sent.
        let was_lent = !checks::is_in_pool(&self.shards, grant.shard, &grant);
        let all = self.held.entry(number).or_default();
        all.push(Holding {
            grant,
            until_us,
            keeper,
            believed_us: 0,
            leapt_ms: 0,
            is_unreported: false,
            is_answered_anew: false,
            was_lent,
            was_away: false,
            is_lost,
            is_unknown: false,
            is_forgotten: is_lost,
            forgotten_us: 0,
            is_newer: false,
        });
        let place = (number, all.len() - 1);
        if let Some(retry) = retry {
            self.by_retry.insert(retry, place);
        }
        if let Some(visitor) = visitor {
            self.by_visitor.insert((pool, visitor), place);
        }
        Ok(())
    }

    /// Returns the shard that has a number in its rotation.
    fn server(&self, number: u64) -> Option<u16> {
        let has = |shard: &Shard| shard.pools.values().any(|pool| pool.numbers.contains(&number));
        self.shards.iter().find(|(_, shard)| has(shard)).map(|(shard, _)| *shard)
    }

    /// Judges the state that the shards of a node have read from their files.
    pub(crate) fn recovered_all(&mut self, recoveries: &[Recovery]) -> Judged {
        for recovery in recoveries {
            self.believe(recovery);
        }
        let shards: Vec<u16> = recoveries.iter().map(|recovery| recovery.shard).collect();
        recoveries.iter().try_for_each(|recovery| self.recovered(recovery, &shards))
    }

    fn recovered(&mut self, recovery: &Recovery, shards: &[u16]) -> Judged {
        self.forget(recovery, shards)?;
        for pool in recovery.pools.keys() {
            self.check_one_owner(recovery.shard, *pool)?;
        }
        for (pool, rule) in &recovery.pools {
            let is_received = |held: &Holding| shards.contains(&held.keeper);
            self.kept_by(recovery.shard, *pool, &rule.numbers, is_received);
        }
        let shard = self.shards.entry(recovery.shard).or_default();
        let known = |&(number, allocated_at, until): &(u64, u64, u64)| {
            (number, Known { allocated_at, until })
        };
        shard.numbers = recovery.numbers.iter().map(known).collect();
        shard.holds = recovery.holds.iter().copied().collect();
        shard.pools.clone_from(&recovery.pools);
        self.check_recovered(recovery)
    }

    /// Records that the numbers now belong to this shard. Leaps of this shard's clock count even if
    /// they occurred while the numbers were in transit. The answer to a batch has moved together
    /// with its number only if `is_received` returns `true`.
    fn kept_by(
        &mut self,
        shard: u16,
        pool: u64,
        numbers: &[u64],
        is_received: impl Fn(&Holding) -> bool,
    ) {
        for number in numbers {
            for held in self.held.get_mut(number).into_iter().flatten() {
                held.was_lent |= held.grant.pool != pool;
                let is_at_home = checks::is_in_pool(&self.shards, held.keeper, &held.grant);
                // If the number is still where it was handed out, this shard has an older list.
                if held.keeper == shard || (is_at_home && held.grant.pool != pool) {
                    continue;
                }
                // The previous owner cannot report an answer that it lacks.
                held.is_answered_anew |= held.is_unreported;
                held.is_unreported |= !is_received(held);
                held.keeper = shard;
                let since = held.grant.true_us;
                let own = |leap: &&(u64, u16, i64)| leap.1 == shard && leap.0 >= since;
                let leaps: Vec<i64> = self.leaps.iter().filter(own).map(|leap| leap.2).collect();
                for jump in leaps {
                    held.leap(jump);
                }
            }
        }
    }

    /// Whether it is known that this shard handed out a number at `at_ms`.
    pub(crate) fn is_known_since(&self, shard: u16, number: u64, at_ms: u64) -> bool {
        let known = self.shards.get(&shard).and_then(|shard| shard.numbers.get(&number));
        known.is_some_and(|known| known.allocated_at == at_ms)
    }

    /// Returns the numbers that a disconnected client's batch got and that no client can request
    /// again, each with its shard and the time of its grant.
    pub(crate) fn unseen(&self, batch: u64) -> Vec<(u16, u64, u64)> {
        let grants = self.granted.range((batch, 0)..=(batch, u16::MAX)).flat_map(|(_, all)| all);
        let plain = grants.filter(|it| it.is_fresh && it.visitor.is_none() && it.retry.is_none());
        plain.map(|grant| (grant.shard, grant.number, grant.at_ms)).collect()
    }

    /// Returns the pools that a shard serves.
    pub(crate) fn pools_of(&self, shard: u16) -> Vec<u64> {
        self.shards.get(&shard).map_or_else(Vec::new, |it| it.pools.keys().copied().collect())
    }

    /// Whether a shard serves a pool exactly as described by `rule`.
    pub(crate) fn has_pool(&self, shard: u16, pool: u64, rule: &PoolRule) -> bool {
        let known = self.shards.get(&shard).and_then(|shard| shard.pools.get(&pool));
        known.is_some_and(|known| {
            known.lifetime_ms == rule.lifetime_ms && known.numbers == rule.numbers
        })
    }

    /// Records that a pool no longer belongs to this shard.
    pub(crate) fn left(&mut self, shard: u16, pool: u64) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.pools.remove(&pool);
        }
    }

    /// Judges a pool that was added to a running shard, or was changed there.
    pub(crate) fn taken_up(&mut self, taken_up: &TakenUp) -> Judged {
        self.know_again(taken_up);
        let Some((pool, rule)) = &taken_up.pool else { return Ok(()) };
        self.check_one_owner(taken_up.shard, *pool)?;
        let is_received =
            |held: &Holding| held.grant.pool == *pool && taken_up.are_answers_received;
        self.kept_by(taken_up.shard, *pool, &rule.numbers, is_received);
        let shard = self.shards.entry(taken_up.shard).or_default();
        let before = shard.pools.insert(*pool, rule.clone());
        let before = before.iter().flat_map(|before| &before.numbers);
        let gone: Vec<u64> =
            before.copied().filter(|number| !rule.numbers.contains(number)).collect();
        for number in gone {
            let has = |known: &Shard| known.pools.values().any(|it| it.numbers.contains(&number));
            let owner = self.shards.iter().find(|(_, known)| has(known)).map(|(id, _)| *id);
            for held in self.held.get_mut(&number).into_iter().flatten() {
                held.was_away |= held.grant.pool == *pool;
                if let Some(owner) = owner.filter(|_| held.keeper == taken_up.shard) {
                    held.keeper = owner;
                }
            }
        }
        if taken_up.is_still {
            return Ok(());
        }
        self.check_locked(taken_up.shard, *pool, rule, (taken_up.now_us, taken_up.now_ms))
    }

    /// Replaces the recorded state of a shard with its current state.
    pub(crate) fn know_again(&mut self, taken_up: &TakenUp) {
        let shard = self.shards.entry(taken_up.shard).or_default();
        let known = |&(number, allocated_at, until): &(u64, u64, u64)| {
            (number, Known { allocated_at, until })
        };
        shard.numbers = taken_up.numbers.iter().map(known).collect();
        shard.holds = taken_up.holds.iter().copied().collect();
    }

    /// Records that a shard's process has ended. The shard's state is unknown until it starts
    /// again.
    pub(crate) fn stopped(&mut self, shard: u16) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.numbers.clear();
            shard.holds.clear();
            shard.pools.clear();
        }
    }
}
