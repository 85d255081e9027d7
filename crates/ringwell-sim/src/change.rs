//! From one state of the directory to the next while a node serves: as
//! `ringwell-node/src/change.rs`, and what `handover.rs` does around it.
//!
//! One change at a time; its steps are taken on the threads of the shards (`step.rs`), and anything
//! may happen between two of them.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber, Retired};
use ringwell_directory::{Changes, Directory, Owners, RingPool, bucket};
use ringwell_driver::open::spec;
use ringwell_driver::store::{FileError, Leaving, ServedMap};
use ringwell_engine::Facts;
use ringwell_journal::AnswerEntry;

use crate::bug::Bug;
use crate::cluster::ranges;
use crate::event::{Event, Task};
use crate::files::DATA;
use crate::model::{Judged, Violation};
use crate::post::{Caller, Take, read_hold};
use crate::served::read_served;
use crate::world::World;

/// What is to change.
#[derive(Debug)]
pub(crate) enum Want {
    /// The buckets that this node gives away go.
    GiveUp(Option<Leaving>),
    /// What was given away has arrived: nothing is on its way any more.
    Delivered,
    /// Buckets come.
    Take(Take, Caller),
    /// What another node knows of owners, and who waits for it.
    Learn(Box<Owners>, Waiting),
    /// The newest list of pools.
    Manage,
}

/// Who waits until owners have been learnt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    Nobody,
    /// A batch, on its thread.
    Batch(u16, u64),
    /// Another node, which gets this one's owners.
    Caller(Caller),
}

/// A step that a shard takes.
#[derive(Debug)]
pub(crate) enum Step {
    Leave {
        removed: Vec<(u32, PoolId)>,
        smaller: Vec<(u32, PoolSpec)>,
    },
    Tell(Vec<NumberRange>),
    TellAll {
        numbers: Vec<NumberRange>,
        buckets: Vec<u16>,
    },
    TellHolds,
    Enter {
        known: Vec<Retired>,
        answers: Vec<AnswerEntry>,
        holds: Vec<(PoolId, Millis)>,
        put: Vec<(u32, PoolSpec)>,
    },
    Use(Arc<Directory>),
}

/// What a shard says of a step.
#[derive(Debug)]
pub(crate) enum Done {
    Taken,
    Known(Vec<Retired>),
    All {
        known: Vec<Retired>,
        answers: Vec<AnswerEntry>,
        holds: Vec<(Option<PoolId>, Millis)>,
        at: Millis,
    },
    Holds(Vec<(Option<PoolId>, Millis)>),
    Clash(u64),
}

/// For whom a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepper {
    Change,
    Give,
}

/// A change that is being made.
#[derive(Debug)]
pub(crate) struct Changing {
    want: Want,
    owners: Owners,
    before: Arc<Directory>,
    next: Option<Arc<Directory>>,
    steps: VecDeque<(u16, Step)>,
    held: Vec<(Option<NumberRange>, Millis)>,
    known: Vec<Retired>,
    /// Of buckets that move to another shard of this node.
    all: Facts,
}

impl World {
    /// Has a change made when those before it are.
    pub(crate) fn change(&mut self, node: usize, want: Want) {
        if let Some(running) = self.running(node) {
            running.changes.push_back(want);
            self.change_next(node);
        }
    }

    fn change_next(&mut self, node: usize) {
        let Some(running) = self.running(node) else { return };
        if running.changing.is_some() {
            return;
        }
        let Some(want) = running.changes.pop_front() else { return };
        let (owners, before) = (running.owners.clone(), Arc::clone(&running.directory));
        running.changing = Some(Changing {
            want: Want::Manage,
            owners: owners.clone(),
            before,
            next: None,
            steps: VecDeque::new(),
            held: Vec::new(),
            known: Vec::new(),
            all: Facts::default(),
        });
        self.begin_change(node, want, owners);
    }

    fn begin_change(&mut self, node: usize, want: Want, mut owners: Owners) {
        let shards = self.cluster.shards_of(node);
        let own = |shard: u16| shards.contains(&shard);
        let mut reply = None;
        let is_new = match &want {
            Want::GiveUp(leaving) => match self.give_up(node, &mut owners, leaving.clone()) {
                Ok(()) => true,
                Err(_) if self.has_stopped(node) => return,
                Err(_) => {
                    self.give_ends(node, "the map could not be stored");
                    false
                }
            },
            Want::Delivered => {
                let kept = self.keep(node, owners.clone(), Vec::new());
                if self.has_stopped(node) {
                    return;
                }
                self.give_delivered(node, kept.is_ok());
                false
            }
            Want::Take(take, from) => match self.take(node, &mut owners, take) {
                Ok(true) => true,
                Ok(false) => {
                    reply = Some((*from, Ok(None)));
                    false
                }
                Err(None) => return,
                Err(Some(why)) => {
                    reply = Some((*from, Err(why)));
                    false
                }
            },
            Want::Learn(told, _) => {
                if self.bug == Some(Bug::HearsayBelieved) {
                    owners.learn(told, |_| false)
                } else {
                    owners.learn(told, own)
                }
            }
            Want::Manage => true,
        };
        if let Some((from, answer)) = reply {
            self.answer_post(node, from, answer);
        }
        let Some(changing) = self.running(node).and_then(|running| running.changing.as_mut())
        else {
            return;
        };
        (changing.want, changing.owners) = (want, owners);
        if is_new {
            self.apply(node);
        } else {
            self.change_ends(node, false);
        }
    }

    /// Writes down, durably, what this node serves by `owners`.
    pub(crate) fn keep(
        &mut self,
        node: usize,
        owners: Owners,
        leaving: Vec<Leaving>,
    ) -> Result<(), FileError> {
        let shards = self.cluster.shards_of(node);
        let holds = self.running(node).map(|running| running.holds.clone()).unwrap_or_default();
        let map = ServedMap::of(owners, |shard| shards.contains(&shard), leaving, holds);
        map.write(&self.nodes[node].files, Path::new(DATA))
    }

    /// Notes that buckets leave.
    fn give_up(
        &mut self,
        node: usize,
        owners: &mut Owners,
        leaving: Option<Leaving>,
    ) -> Result<(), FileError> {
        let Some((buckets, to)) = self.giving(node) else { return Ok(()) };
        for bucket in &buckets {
            owners.give(*bucket, to);
        }
        if self.bug == Some(Bug::GivenNotKept) {
            return Ok(());
        }
        self.keep(node, owners.clone(), leaving.into_iter().collect())
    }

    /// Notes that buckets come. `Ok(false)`: they came before; `Err(None)`: it has stopped.
    fn take(
        &mut self,
        node: usize,
        owners: &mut Owners,
        take: &Take,
    ) -> Result<bool, Option<&'static str>> {
        let is_stale_taken = self.bug == Some(Bug::StaleTake);
        let Some(running) = self.running(node).filter(|running| running.is_serving) else {
            return Err(Some("it is starting or stopping"));
        };
        if running.owners.version() != take.version {
            return Err(Some("the cluster files differ"));
        }
        let mut taken = 0;
        for (bucket, owner) in &take.buckets {
            let mut owner = *owner;
            let known = owners.get(*bucket).map_or(0, |known| known.moves);
            if is_stale_taken && known > owner.moves {
                owner.moves = known + 1;
            }
            taken += usize::from(owners.take(*bucket, owner));
        }
        if taken == 0 {
            let shards = self.cluster.shards_of(node);
            let is_own = |of: u16| owners.get(of).is_some_and(|own| shards.contains(&own.shard));
            let is_gone = take.buckets.iter().any(|(of, _)| !is_own(*of));
            return if is_gone { Err(Some("they have moved on")) } else { Ok(false) };
        }
        let now = self.shard_time(node);
        if let Some(running) = self.running(node) {
            take.holds.iter().map(|word| read_hold(*word, now)).for_each(|(bucket, hold)| {
                running.holds.add(bucket, hold);
            });
        }
        let leaving = read_served(&self.nodes[node].files).map(|served| served.leaving);
        match self.keep(node, owners.clone(), leaving.unwrap_or_default()) {
            Ok(()) => Ok(true),
            Err(_) if self.has_stopped(node) => Err(None),
            Err(_) => Err(Some("the map could not be stored")),
        }
    }

    /// Lays out the steps to the next directory.
    fn apply(&mut self, node: usize) {
        let pools = self.cluster.ring_pools(&BTreeSet::new(), self.bug);
        let shards = self.cluster.shards_of(node);
        let Some(changing) = self.running(node).and_then(|running| running.changing.as_mut())
        else {
            return;
        };
        let before = &changing.before;
        let next = match changing.want {
            Want::Manage => before
                .replace(&pools)
                .unwrap_or_else(|faults| unreachable!("clashing pools: {faults:?}")),
            _ => before.moved(changing.owners.placement()),
        };
        let next = Arc::new(next);
        let steps = &mut changing.steps;
        steps.extend(shards.iter().map(|shard| (*shard, Step::TellHolds)));
        let changes: Vec<(u16, Changes)> =
            shards.iter().map(|shard| (*shard, Changes::between(before, &next, *shard))).collect();
        for (shard, changes) in changes.iter().filter(|(_, changes)| !changes.is_empty()) {
            let smaller = smaller(before, &changes.put);
            steps.push_back((*shard, Step::Leave { removed: changes.removed.clone(), smaller }));
        }
        let removed: BTreeSet<PoolId> =
            changes.iter().flat_map(|(_, changes)| &changes.removed).map(|(_, id)| *id).collect();
        for (shard, changes) in changes {
            if changes.put.is_empty() {
                continue;
            }
            let moved = changes.put.iter().filter(|(_, pool)| removed.contains(&pool.id()));
            let (numbers, buckets): (Vec<_>, Vec<u16>) =
                moved.map(|(_, pool)| (pool.numbers().to_vec(), bucket(pool.id()))).unzip();
            let numbers = numbers.concat();
            for other in shards.iter().filter(|_| !buckets.is_empty()) {
                let (numbers, buckets) = (numbers.clone(), buckets.clone());
                steps.push_back((*other, Step::TellAll { numbers, buckets }));
            }
            for other in shards.iter().filter(|other| **other != shard) {
                steps.push_back((*other, Step::Tell(changes.entering.clone())));
            }
            let put = changes.put.iter().map(|(index, pool)| (*index, spec(pool))).collect();
            let (known, answers, holds) = (Vec::new(), Vec::new(), Vec::new());
            steps.push_back((shard, Step::Enter { known, answers, holds, put }));
        }
        steps.extend(shards.iter().map(|shard| (*shard, Step::Use(Arc::clone(&next)))));
        changing.next = Some(next);
        self.change_goes_on(node);
    }

    fn change_goes_on(&mut self, node: usize) {
        let bug = self.bug;
        let Some(running) = self.running(node) else { return };
        let Some(changing) = running.changing.as_mut() else { return };
        let Some((shard, mut step)) = changing.steps.pop_front() else {
            return self.change_ends(node, true);
        };
        match &mut step {
            Step::Enter { known, answers, holds, put } => {
                (*known, *answers) = std::mem::take(&mut changing.all).settle();
                let mut others = std::mem::take(&mut changing.known);
                let is_known =
                    |number| known.binary_search_by_key(&number, |k| k.slot.number).is_ok();
                others.retain(|retired| !is_known(retired.slot.number));
                let without = |retired| Retired { visitor: None, ..retired };
                known.extend(others.into_iter().map(without));
                let is_planted = bug == Some(Bug::LatePoolsNotHeld);
                let buckets = Some(&running.holds).filter(|_| !is_planted);
                let of_bucket = |pool: &PoolSpec| buckets?.until(pool.id, pool.lifetime);
                let of = |pool: &PoolSpec| until(&changing.held, pool).max(of_bucket(pool));
                holds.extend(put.iter().filter_map(|(_, pool)| Some((pool.id, of(pool)?))));
            }
            Step::Use(next) => running.directory = Arc::clone(next),
            Step::Leave { .. } | Step::Tell(_) | Step::TellAll { .. } | Step::TellHolds => {}
        }
        let hop = self.chance.between(5, 300);
        self.later(node, shard, hop, Task::Step(Stepper::Change, step));
    }

    /// A shard has taken a step.
    pub(crate) fn stepped(&mut self, node: usize, stepper: Stepper, done: Done) -> Judged {
        if let Done::Clash(number) = done {
            let text = "two pools of a shard would have this number".to_owned();
            return Err(Violation { rule: "clash", text, number, shard: 0 });
        }
        if stepper == Stepper::Give {
            self.give_stepped(node, done);
            return Ok(());
        }
        let Some(running) = self.running(node) else { return Ok(()) };
        let Some(changing) = running.changing.as_mut() else { return Ok(()) };
        match done {
            Done::Known(known) => changing.known.extend(known),
            Done::Holds(holds) => {
                for (pool, until) in holds {
                    let Some(pool) = pool else {
                        changing.held.push((None, until));
                        continue;
                    };
                    let pool = changing.before.pool(pool);
                    let numbers = pool.map_or(&[][..], RingPool::numbers);
                    changing.held.extend(numbers.iter().map(|range| (Some(*range), until)));
                }
            }
            Done::All { known, answers, .. } => changing.all.add(known, answers),
            Done::Taken | Done::Clash(_) => {}
        }
        self.change_goes_on(node);
        Ok(())
    }

    /// Whether pools that come now come by a change of the list: what batches got of a pool that was
    /// taken off the list and comes back elsewhere, nobody tells.
    pub(crate) fn is_list_changing(&self, node: usize) -> bool {
        let running = self.nodes[node].running.as_ref();
        let changing = running.and_then(|running| running.changing.as_ref());
        changing.is_some_and(|changing| matches!(changing.want, Want::Manage))
    }

    /// The change is made, or there was nothing to change.
    fn change_ends(&mut self, node: usize, is_made: bool) {
        let Some(running) = self.running(node) else { return };
        let Some(changing) = running.changing.take() else { return };
        if is_made {
            running.owners = changing.owners;
        }
        match changing.want {
            Want::GiveUp(_) if is_made => self.given_up(node),
            Want::Take(_, from) if is_made => {
                self.tell(node, &[], || "has taken buckets".to_owned());
                self.answer_post(node, from, Ok(None));
            }
            Want::Learn(_, Waiting::Batch(thread, batch)) => {
                self.later(node, thread, 10, Task::Learnt(batch));
            }
            Want::Learn(_, Waiting::Caller(caller)) => {
                let owners = self.running(node).map(|running| Box::new(running.owners.clone()));
                self.answer_post(node, caller, Ok(owners));
            }
            Want::GiveUp(_)
            | Want::Take(..)
            | Want::Learn(_, Waiting::Nobody)
            | Want::Delivered
            | Want::Manage => {}
        }
        self.change_next(node);
    }

    /// A step has been taken on a shard's thread: who asked for it goes on.
    pub(crate) fn step_done(&mut self, node: usize, stepper: Stepper, done: Done) {
        let life = self.nodes[node].life;
        let hop = self.chance.between(5, 60);
        self.queue.add(self.now + hop, Event::Stepped(node, life, stepper, done));
    }
}

/// Until when a pool is to be held because some of its numbers were: nobody knows their lockouts.
fn until(held: &[(Option<NumberRange>, Millis)], pool: &PoolSpec) -> Option<Millis> {
    let is_shared = |range: &NumberRange| {
        pool.numbers.iter().any(|own| own.first() <= range.last() && range.first() <= own.last())
    };
    held.iter()
        .filter(|(range, _)| range.as_ref().is_none_or(is_shared))
        .map(|(_, until)| *until)
        .max()
}

/// Of the pools that stay: those that give up numbers, without them.
fn smaller(before: &Directory, put: &[(u32, Arc<RingPool>)]) -> Vec<(u32, PoolSpec)> {
    let mut smaller = Vec::new();
    for (index, pool) in put {
        let here = before.lookup(pool.id()).is_some_and(|entry| entry.index() == *index);
        let Some(old) = before.pool(pool.id()).filter(|_| here) else { continue };
        let stays = |number: &PromoNumber| pool.numbers().iter().any(|r| r.contains(*number));
        let kept = old.numbers().iter().flat_map(|range| range.iter()).filter(stays);
        let kept: Vec<u64> = kept.map(PromoNumber::to_code).collect();
        if (kept.len() as u64) < old.number_count() {
            smaller.push((*index, PoolSpec { numbers: ranges(&kept), ..spec(old) }));
        }
    }
    smaller
}
