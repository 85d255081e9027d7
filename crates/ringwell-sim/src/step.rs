//! A shard's part of a change and of a move: as `ringwell-node/src/change/shard.rs`. What is done
//! there piece by piece between batches is done at once here; batches come between the steps.

use std::collections::HashSet;

use ringwell_core::{Millis, NumberRange, PoolSpec, Retired, Shard};
use ringwell_directory::bucket;
use ringwell_journal::position_parts;

use crate::bug::Bug;
use crate::change::{Done, Step, Stepper};
use crate::cluster::rule;
use crate::model::{Judged, TakenUp};
use crate::thread::Thread;
use crate::world::World;

impl World {
    /// Takes a step.
    pub(crate) fn take_step(
        &mut self,
        node: usize,
        thread: &mut Thread,
        stepper: Stepper,
        step: Step,
    ) -> Judged {
        let now = thread.engine.at(self.shard_time(node));
        let done = match step {
            Step::Leave { removed, smaller } => {
                for (index, id) in removed {
                    if thread.engine.shard().is_pool(index, id) {
                        thread.engine.remove_pool(index);
                        self.model.left(thread.shard, id.0);
                    }
                }
                self.put(node, thread, smaller, true)?
            }
            Step::Tell(numbers) => Done::Known(known(thread, &numbers)),
            Step::TellAll { numbers, buckets } => {
                let mut known = known(thread, &numbers);
                let mut given: HashSet<_> = known.iter().map(|k| k.slot.number).collect();
                let had = thread.engine.shard().retired_after(None);
                let had = had.filter(|retired| buckets.contains(&bucket(retired.pool)));
                let had = had.filter(|retired| given.insert(retired.slot.number)).copied();
                known.extend(had.collect::<Vec<_>>());
                let mut answers = Vec::new();
                let mut next = thread.engine.answers_first();
                while let Some(place) = next {
                    let is_wanted = |number| given.contains(&number);
                    next = thread.engine.answers_for(place, u32::MAX, is_wanted, &mut answers);
                }
                if self.bug == Some(Bug::FactsMissGroup) {
                    let newest = thread.engine.newest_group();
                    known.retain(|known| position_parts(known.slot.position).0 < newest);
                }
                let holds = thread.engine.shard().holds(Millis::ZERO).collect();
                Done::All { known, answers, holds, at: now }
            }
            Step::TellHolds => Done::Holds(thread.engine.shard().holds(now).collect()),
            Step::Enter { known, answers, holds, put } => {
                for retired in known {
                    let is_refused = thread.engine.refusal().is_some();
                    if is_refused || !thread.engine.adopt(now, &retired) {
                        thread.engine.adopt_unrecorded(&retired);
                    }
                }
                let tell = |answer| {
                    let engine = &mut thread.engine;
                    engine.refusal().is_none() && engine.adopt_answer(now, answer)
                };
                let are_answers_told = answers.iter().all(tell) && !self.is_list_changing(node);
                for (pool, until) in holds {
                    let is_refused = thread.engine.refusal().is_some();
                    if is_refused || !thread.engine.hold_pool(now, pool, until) {
                        thread.engine.hold_unrecorded(pool, until);
                    }
                }
                self.commit_soon(node, thread);
                self.put(node, thread, put, are_answers_told)?
            }
            Step::Use(directory) => {
                thread.directory = directory;
                Done::Taken
            }
        };
        self.step_done(node, stepper, done);
        Ok(())
    }

    fn put(
        &mut self,
        node: usize,
        thread: &mut Thread,
        pools: Vec<(u32, PoolSpec)>,
        are_answers_told: bool,
    ) -> Result<Done, crate::model::Violation> {
        for (index, spec) in pools {
            while thread.engine.make_room(&spec) {}
            if let Err(clash) = thread.engine.put_pool(index, &spec) {
                return Ok(Done::Clash(clash.number.to_code()));
            }
            let taken_up = self.taken_up(node, thread, Some(&spec));
            let taken_up = TakenUp { are_answers_told, ..taken_up };
            self.model.taken_up(&taken_up)?;
        }
        Ok(Done::Taken)
    }

    /// What a shard knows of the numbers in rotation, for the model.
    fn taken_up(&self, node: usize, thread: &Thread, spec: Option<&PoolSpec>) -> TakenUp {
        let now_ms = self.shard_time(node);
        let shard = thread.engine.shard();
        let slots = shard.slots().iter().filter(|slot| shard.find(slot.number).is_some());
        let numbers = slots.map(|s| (s.number.to_code(), s.allocated_at.0, s.locked_until.0));
        TakenUp {
            shard: thread.shard,
            are_answers_told: true,
            pool: spec.map(|spec| (spec.id.0, rule(spec, self.bug))),
            numbers: numbers.collect(),
            holds: pool_holds(shard, now_ms),
            now_us: self.now,
            now_ms: now_ms.0,
        }
    }

    /// The model hears what a shard knows after it has taken over something.
    pub(crate) fn know_again(&mut self, node: usize, thread: &Thread) {
        let taken_up = self.taken_up(node, thread, None);
        self.model.know_again(&taken_up);
    }
}

/// What the shard knows of those numbers that are in nobody's rotation here.
fn known(thread: &Thread, numbers: &[NumberRange]) -> Vec<Retired> {
    let shard = thread.engine.shard();
    numbers.iter().flat_map(|range| shard.retired_in(*range)).copied().collect()
}

/// Until when each pool is held, for the model.
pub(crate) fn pool_holds(shard: &Shard, now: Millis) -> Vec<(u64, u64)> {
    let mut holds = Vec::new();
    for (pool, until) in shard.holds(now) {
        let all = 0..pool.map_or(shard.pools_end(), |_| 0);
        holds.extend(all.map(|index| (shard.pool_id(index).0, until.0)));
        holds.extend(pool.map(|pool| (pool.0, until.0)));
    }
    holds
}
