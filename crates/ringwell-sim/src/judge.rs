//! Reports changes on shards to the reference model. Does not report the rows that shards serve.

use std::rc::Rc;

use ringwell_config::Durability;
use ringwell_core::{Millis, PoolId, PoolSpec, PromoNumber, Shard, Slot};
use ringwell_directory::bucket;
use ringwell_driver::Bug;
use ringwell_engine::lifetime;

use crate::clients::UNSEEN_US;
use crate::model::{Judged, PoolRule, TakenUp, Violation};
use crate::pace::MS;
use crate::world::World;

/// The time for which a starting node waits for another node's answer.
const SILENT_US: u64 = 1_000 * MS;

impl World {
    /// Reports the pools that shards have gained or lost, and the lockouts and holds that they have
    /// adopted, since the last poll of a task.
    pub(crate) fn judge_changes(&mut self) -> Judged {
        let changed = std::mem::take(&mut *self.shared.changed.borrow_mut());
        let answers_lost = std::mem::take(&mut *self.shared.answers_lost.borrow_mut());
        for shard in changed {
            self.judge_changed(shard, answers_lost.contains(&shard))?;
        }
        Ok(())
    }

    /// Reports a node that begins to serve with data from before some of its buckets moved, or with
    /// buckets that another node has served until now. The model then assigns to the node the pools
    /// that it owns according to this data.
    pub(crate) fn judge_all_pools(&mut self, node: usize) -> Judged {
        // A new map moves buckets without the remembered answers.
        let are_answers_lost = self.nodes[node].older.is_none();
        let shards = self.cluster.shards_of(node);
        shards.into_iter().try_for_each(|shard| self.judge_changed(shard, are_answers_lost))
    }

    /// Reports a node that begins to serve.
    pub(crate) fn judge_serving(&mut self, node: usize) -> Judged {
        let Some(running) = self.nodes[node].running.as_ref() else { return Ok(()) };
        // A node without files cannot distinguish its first start from later ones. At a first
        // start, other nodes may not exist yet, so the node does not hold numbers of nodes that do
        // not answer.
        let has_waited = self.now() >= running.began_us + SILENT_US;
        let is_unasked = has_waited && self.durability == Durability::Memory;
        for (id, thread) in &running.threads {
            let engine = thread.shard.engine.borrow();
            let now = (self.shared.now.get(), thread.shard.clock_now());
            let is_still = is_unasked || !engine.may_serve(now.1);
            let begun = TakenUp { is_still, ..state(*id, engine.shard(), now) };
            self.shared.model.borrow_mut().serves(&begun)?;
        }
        Ok(())
    }

    /// Checks that a client's numbers are free some time after the client disconnected, at least on
    /// the node that received the request.
    pub(crate) fn judge_unseen(&mut self, node: usize, life: u32, batch: u64) -> Judged {
        let Some(running) = self.nodes[node].running.as_ref() else { return Ok(()) };
        if self.nodes[node].life != life {
            return Ok(());
        }
        for (id, number, at_ms) in self.shared.model.borrow().unseen(batch) {
            let Some(thread) = running.threads.get(&id) else { continue };
            // The shard that received the request is not known here, so all shards must have had
            // time to process the disconnection.
            let mut threads = running.threads.values();
            let has_time = threads.all(|it| it.was_idle_at + UNSEEN_US / 2 > self.now());
            let engine = thread.shard.engine.borrow();
            let rules = engine.shard();
            let slot = PromoNumber::from_code(number).and_then(|it| rules.find(it));
            let slot = slot.and_then(|slot| rules.slots().get(slot as usize));
            let now = thread.shard.clock_now();
            let is_its =
                |slot: &&Slot| slot.allocated_at.0 == at_ms && !slot.is_free(now + Millis(1));
            // A shard answers another shard only after the group with the answer's records is
            // stored.
            let is_stored = thread.shard.commit.durable() >= engine.newest_group();
            if has_time && is_stored && slot.as_ref().is_some_and(is_its) {
                let text = format!(
                    "the client of batch {batch} disconnected without an answer, but the number \
                    is still locked out"
                );
                return Err(Violation { rule: "held for no client", text, number, shard: id });
            }
        }
        Ok(())
    }

    fn judge_changed(&mut self, id: u16, are_answers_lost: bool) -> Judged {
        let node = self.cluster.home(id);
        let Some(running) = self.nodes[node].running.as_ref() else { return Ok(()) };
        let Some(thread) = running.threads.get(&id) else { return Ok(()) };
        let is_listing = running.life.is_listing.get();
        let shard = Rc::clone(&thread.shard);
        let engine = shard.engine.borrow();
        let rules = engine.shard();
        let now_ms = shard.clock_now();
        let mut model = self.shared.model.borrow_mut();
        let mut pools = pools(rules, self.bug);
        pools.retain(|(pool, _)| self.nodes[node].is_own_bucket(bucket(PoolId(*pool))));
        for pool in model.pools_of(id) {
            if !pools.iter().any(|(known, _)| *known == pool) {
                model.left(id, pool);
            }
        }
        let known = state(id, rules, (self.shared.now.get(), now_ms));
        let are_answers_received = !are_answers_lost && !is_listing;
        let is_still = !engine.may_serve(now_ms);
        let taken_up = TakenUp { are_answers_received, is_still, ..known };
        model.know_again(&taken_up);
        for (pool, rule) in pools {
            if !model.has_pool(id, pool, &rule) {
                model.taken_up(&TakenUp { pool: Some((pool, rule)), ..taken_up.clone() })?;
            }
        }
        Ok(())
    }
}

/// Returns a shard's numbers and holds as the model represents them.
fn state(shard: u16, rules: &Shard, now: (u64, Millis)) -> TakenUp {
    let slots = rules.slots().iter().filter(|slot| rules.find(slot.number).is_some());
    let numbers = slots.map(|s| (s.number.to_code(), s.allocated_at.0, s.locked_until.0));
    TakenUp {
        shard,
        are_answers_received: true,
        is_still: false,
        pool: None,
        numbers: numbers.collect(),
        holds: pool_holds(rules, now.1),
        now_us: now.0,
        now_ms: now.1.0,
    }
}

/// Returns a shard's pools as the model represents them.
fn pools(shard: &Shard, bug: Option<Bug>) -> Vec<(u64, PoolRule)> {
    let mut pools = Vec::new();
    for index in 0..shard.pools_end() {
        let id = shard.pool_id(index);
        if !shard.is_pool(index, id) {
            continue;
        }
        let run = shard.pool_slots(index);
        let slots = shard.slots().get(run.start as usize..run.end as usize).unwrap_or_default();
        let numbers = slots.iter().map(|slot| slot.number.to_code());
        pools.push((id.0, pool_rule(shard.lockout(index), numbers, bug)));
    }
    pools
}

/// Returns a pool's rules as the model represents them.
pub(crate) fn rule(spec: &PoolSpec, bug: Option<Bug>) -> PoolRule {
    let numbers = spec.numbers.iter().flat_map(|range| range.iter()).map(PromoNumber::to_code);
    pool_rule(spec.lockout, numbers, bug)
}

fn pool_rule(locked: Millis, numbers: impl Iterator<Item = u64>, bug: Option<Bug>) -> PoolRule {
    let is_short = bug == Some(Bug::NoRounding);
    let Millis(lifetime_ms) = if is_short { locked } else { lifetime(locked) };
    // The last three digits of a number are its index in the pool. The number with the index 999 is
    // not in the rotation.
    let mut numbers: Vec<u64> = numbers.filter(|number| number % 1000 != 999).collect();
    numbers.sort_unstable();
    PoolRule { lifetime_ms, numbers }
}

/// Returns the time until which each pool is held, as the model represents it.
pub(crate) fn pool_holds(shard: &Shard, now: Millis) -> Vec<(u64, u64)> {
    let mut holds = Vec::new();
    for (pool, until) in shard.holds(now) {
        let all = 0..pool.map_or(shard.pools_end(), |_| 0);
        holds.extend(all.map(|index| (shard.pool_id(index).0, until.0)));
        holds.extend(pool.map(|PoolId(pool)| (pool, until.0)));
    }
    holds
}
