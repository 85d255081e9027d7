//! Performs a run's final checks after the last fault: requests a number from every pool, and looks
//! up every number's visitor.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ringwell_core::{Millis, PromoNumber};
use ringwell_driver::lookup;
use ringwell_engine::Past;

use super::judge::Grant;
use super::process::{Process, ProcessPhase, Served};
use super::servers::lock;
use super::world::{Event, World};
use crate::model::{Judged, Violation};
use crate::pace::SECOND;

/// The results of look-ups, by the index of the look-up.
type Found = Rc<RefCell<BTreeMap<usize, Result<Past, String>>>>;

/// Returns the remaining time until all holds and lockouts have ended.
fn left_us(process: &Process) -> u64 {
    let ProcessPhase::Serving(serving) = &*process.state.borrow() else { return 0 };
    let left = |served: &Served| {
        let (now, engine) = (served.shard.clock_now(), served.shard.engine.borrow());
        let rules = engine.shard();
        let locked = rules.slots().iter().map(|slot| slot.locked_until);
        let held = rules.holds(now).map(|(_, until)| until);
        locked.chain(held).max().map_or(0, |until| until.since(now).0 * 1000)
    };
    serving.shards.values().map(left).max().unwrap_or(0)
}

impl World {
    /// Sends one row for every pool to the pool's owner.
    pub(super) fn probe(&mut self) {
        if self.is_postponed() {
            return;
        }
        self.judge.borrow_mut().must_serve = true;
        let pools: Vec<u64> = self.cluster.pools.keys().copied().collect();
        self.probes += pools.len() as u64;
        let owns = |at: &usize| {
            let process = self.machines[*at].process.as_ref();
            process.is_some_and(|process| process.owns_all(&self.servers))
        };
        let owner = (0..self.machines.len()).find(owns);
        if let Some(at) = owner {
            self.tell_state(at);
            self.send(at, pools);
        }
    }

    /// Postpones the probes until lockouts and holds have ended. If shard time has leapt, lockouts
    /// and holds end later by the length of the leap, possibly after the calm period.
    fn is_postponed(&mut self) -> bool {
        let most_us = self.judge.borrow().leapt_ms() * 1000;
        let now = self.now();
        if self.end_us > self.calm_end_us || most_us == 0 {
            return false;
        }
        let left_us = self.machines.iter().filter_map(|it| it.process.as_ref()).map(left_us);
        let left_us = left_us.max().unwrap_or(0).min(most_us);
        if left_us == 0 {
            return false;
        }
        self.queue.retain(|_, event| !matches!(event, Event::Probe));
        for round in 1..4 {
            self.add(now + left_us + round * SECOND, Event::Probe);
        }
        self.end_us += left_us + SECOND;
        true
    }

    /// Records when the lockouts and holds of each shard end.
    fn tell_state(&self, at: usize) {
        let Some(process) = self.machines[at].process.as_ref() else { return };
        let ProcessPhase::Serving(serving) = &*process.state.borrow() else { return };
        for (id, served) in &serving.shards {
            let (now, engine) = (served.shard.clock_now(), served.shard.engine.borrow());
            let rules = engine.shard();
            let longest = rules.slots().iter().map(|slot| slot.locked_until).max();
            let held = rules.holds(now).next();
            self.tell(at, || {
                format!("shard {id}: now {now:?}, last lockout until {longest:?}, hold {held:?}")
            });
        }
    }

    /// For each number that a visitor has seen, checks that a look-up finds that visitor.
    pub(super) fn check_look_ups(&mut self) -> Judged {
        let owner = (0..self.machines.len()).find(|at| {
            self.machines[*at].process.as_ref().is_some_and(|it| it.owns_all(&self.servers))
        });
        let Some(at) = owner else { return Ok(()) };
        let look_ups = self.judge.borrow().look_ups();
        let found = Found::default();
        for from in (0..look_ups.len()).step_by(64) {
            for (which, (grant, _)) in look_ups.iter().enumerate().skip(from).take(64) {
                self.look_up(at, which, grant, &found);
            }
            self.run_until(self.now() + 3 * SECOND)?;
        }
        let found = found.borrow();
        for (which, (grant, may_be_gone)) in look_ups.iter().enumerate() {
            let is_right = match found.get(&which) {
                Some(Ok(Past { held: Some(held), .. })) if held.allocated_at.0 == grant.at_ms => {
                    held.params == grant.params.as_bytes() || held.pool.is_none() && *may_be_gone
                }
                Some(Ok(Past { held: None, .. })) => *may_be_gone,
                _ => false,
            };
            if !is_right {
                let first = lock(&self.servers).streams[usize::from(grant.shard)].ends().start;
                let text = format!(
                    "the look-up found {:?}, but the number was handed out with the parameters {} \
                    in group {}; the log begins with message {first}",
                    found.get(&which),
                    grant.params,
                    grant.group
                );
                let (shard, number) = (grant.shard, grant.number);
                return Err(Violation { rule: "attribution", text, number, shard });
            }
        }
        Ok(())
    }

    fn look_up(&self, at: usize, which: usize, grant: &Grant, found: &Found) {
        let Some(process) = self.machines[at].process.as_ref() else { return };
        let ProcessPhase::Serving(serving) = &*process.state.borrow() else { return };
        let served = serving.shards.get(&grant.shard);
        let (Some(served), Some(number)) = (served, PromoNumber::from_code(grant.number)) else {
            return;
        };
        let moment = ringwell_engine::Moment::Shard(Millis(grant.at_ms));
        let look_up =
            lookup::attribution(Rc::clone(&served.shard), served.reader(), number, moment);
        let found = Rc::clone(found);
        process.platform.executor.spawn(async move {
            let past = look_up.await;
            found.borrow_mut().insert(which, past);
        });
    }
}
