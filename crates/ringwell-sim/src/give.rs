//! The giver's side of a move: as `ringwell-node/src/handover/give.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolId};
use ringwell_directory::{BucketHold, bucket};
use ringwell_driver::store::Leaving;
use ringwell_engine::Facts;

use crate::change::{Done, Step, Stepper, Waiting, Want};
use crate::event::{Event, Task};
use crate::post::{Adopted, Asker, Post, Take, digest, hold_word};
use crate::served::read_served;
use crate::world::{SECOND, World};

/// Numbers, or answers, that travel at once: few, so that a run has many pieces.
const PIECE: usize = 16;
/// How long a move that was cut off waits before it goes on.
const AGAIN_US: u64 = SECOND;

/// A move that is being made.
#[derive(Debug)]
pub(crate) struct Giving {
    to: u16,
    buckets: Vec<u16>,
    stage: Stage,
    steps: VecDeque<(u16, Step)>,
    holds: Vec<(u64, u64)>,
    /// Until when all pools are held, also those that are not there yet.
    held_until: Millis,
    told: Facts,
    at: Millis,
    pieces: VecDeque<Post>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preparing,
    Holds,
    GivingUp,
    Knowing,
    Telling,
    Delivered,
}

impl Giving {
    fn new(to: u16, buckets: Vec<u16>, stage: Stage) -> Self {
        Self {
            to,
            buckets,
            stage,
            steps: VecDeque::new(),
            holds: Vec::new(),
            held_until: Millis::ZERO,
            told: Facts::default(),
            at: Millis(u64::MAX),
            pieces: VecDeque::new(),
        }
    }
}

impl World {
    /// Moves `buckets`, all of this node's, to the shard `to`, unless something speaks against it.
    pub(crate) fn give(&mut self, node: usize, buckets: Vec<u16>, to: u16) {
        let served = read_served(&self.nodes[node].files);
        let is_own = self.cluster.home(to) == node;
        let Some(running) = self.running(node).filter(|running| running.is_serving) else { return };
        let is_busy = served.is_some_and(|served| !served.leaving.is_empty());
        if is_busy || running.giving.is_some() {
            return;
        }
        let stage = if is_own { Stage::GivingUp } else { Stage::Preparing };
        let (version, digest) = (running.owners.version(), digest(&running.directory, &buckets));
        running.giving = Some(Giving::new(to, buckets.clone(), stage));
        self.tell(node, &[], || format!("gives buckets {buckets:?} to shard {to}"));
        if is_own {
            self.change(node, Want::GiveUp(None));
        } else {
            let prepare = Post::Prepare { shard: to, version, buckets, digest };
            self.post(node, to, &prepare, Asker::Give);
        }
    }

    /// What is being given, and to whom.
    pub(crate) fn giving(&self, node: usize) -> Option<(Vec<u16>, u16)> {
        let giving = self.nodes[node].running.as_ref()?.giving.as_ref()?;
        Some((giving.buckets.clone(), giving.to))
    }

    /// What was posted to the next owner has been answered.
    pub(crate) fn give_answered(&mut self, node: usize, answer: Result<(), &'static str>) {
        let shards = self.cluster.shards_of(node);
        let Some(running) = self.running(node) else { return };
        let Some(giving) = running.giving.as_mut() else { return };
        match (giving.stage, answer) {
            (Stage::Preparing, Ok(())) => {
                giving.stage = Stage::Holds;
                giving.steps = shards.into_iter().map(|s| (s, Step::TellHolds)).collect();
                self.give_next_step(node);
            }
            (Stage::Telling, Ok(())) => self.tell_next_piece(node),
            (_, Err(why)) => self.give_ends(node, why),
            (Stage::Holds | Stage::GivingUp | Stage::Knowing | Stage::Delivered, Ok(())) => {}
        }
    }

    fn give_next_step(&mut self, node: usize) {
        let Some(giving) = self.running(node).and_then(|running| running.giving.as_mut()) else {
            return;
        };
        if let Some((shard, step)) = giving.steps.pop_front() {
            let hop = self.chance.between(5, 300);
            return self.later(node, shard, hop, Task::Step(Stepper::Give, step));
        }
        match giving.stage {
            Stage::Holds => {
                giving.stage = Stage::GivingUp;
                let (to, buckets) = (giving.to, giving.buckets.clone());
                let holds = giving.holds.clone();
                let leaving = Leaving { to, buckets, holds, from: Vec::new(), body_bytes: None };
                self.change(node, Want::GiveUp(Some(leaving)));
            }
            Stage::Knowing => {
                giving.stage = Stage::Telling;
                self.lay_out_pieces(node);
                self.tell_next_piece(node);
            }
            Stage::Preparing | Stage::GivingUp | Stage::Telling | Stage::Delivered => {}
        }
    }

    /// A shard has said what it knows.
    pub(crate) fn give_stepped(&mut self, node: usize, done: Done) {
        let Some(running) = self.running(node) else { return };
        let Some(giving) = running.giving.as_mut() else { return };
        match done {
            Done::Holds(holds) => {
                let is_here = |pool: &PoolId| giving.buckets.contains(&bucket(*pool));
                let pools = running.directory.pools().map(|pool| pool.id());
                let pools: Vec<PoolId> = pools.filter(is_here).collect();
                for (held, until) in holds {
                    if held.is_none() {
                        giving.held_until = giving.held_until.max(until);
                    }
                    let is_held = |pool: &&PoolId| held.is_none_or(|held| held == **pool);
                    let held = pools.iter().filter(is_held).map(|pool| (pool.0, until.0));
                    giving.holds.extend(held);
                }
            }
            Done::All { known, answers, holds, at } => {
                giving.told.add(known, answers);
                giving.told.add_holds(holds);
                giving.at = giving.at.min(at);
            }
            Done::Taken | Done::Known(_) | Done::Clash(_) => {}
        }
        self.give_next_step(node);
    }

    /// The buckets are served no more, and that is durable: the next owner is told.
    pub(crate) fn given_up(&mut self, node: usize) {
        self.tell(node, &[], || "has given them up".to_owned());
        if self.giving(node).is_some_and(|(_, to)| self.cluster.home(to) == node) {
            // Within a node all has come with the buckets.
            return self.give_delivered(node, true);
        }
        self.tell_next_owner(node);
    }

    fn tell_next_owner(&mut self, node: usize) {
        let shards = self.cluster.shards_of(node);
        let Some(running) = self.running(node) else { return };
        let Some(giving) = running.giving.as_mut() else { return };
        // Buckets that have moved on since had been taken: the answer was lost.
        let owners = &running.owners;
        let is_still = |bucket: &u16| owners.get(*bucket).is_some_and(|o| o.shard == giving.to);
        let still: Vec<u16> = giving.buckets.iter().copied().filter(is_still).collect();
        if still.is_empty() {
            giving.stage = Stage::Delivered;
            return self.change(node, Want::Delivered);
        }
        let pools = still.iter().flat_map(|bucket| running.directory.pools_in(*bucket));
        let numbers: Vec<NumberRange> = pools.flat_map(|pool| pool.numbers()).copied().collect();
        giving.stage = Stage::Knowing;
        let ask = |shard| {
            let (numbers, buckets) = (numbers.clone(), still.clone());
            (shard, Step::TellAll { numbers, buckets })
        };
        giving.steps = shards.iter().map(|shard| (*shard, Step::TellHolds)).collect();
        giving.steps.extend(shards.into_iter().map(ask));
        giving.buckets.clone_from(&still);
        self.give_next_step(node);
    }

    fn lay_out_pieces(&mut self, node: usize) {
        let Some(running) = self.running(node) else { return };
        let owners = &running.owners;
        let Some(giving) = running.giving.as_mut() else { return };
        let owner = |bucket: &u16| Some((*bucket, owners.get(*bucket)?));
        let buckets: Vec<_> = giving.buckets.iter().filter_map(owner).collect();
        let directory = Arc::clone(&running.directory);
        let still = giving.buckets.clone();
        let goes = |pool: &PoolId| still.contains(&bucket(*pool));
        let told = std::mem::take(&mut giving.told);
        let (numbers, answers) =
            told.settle_apart(|number| directory.pool_by_number(number).filter(goes));
        let empty = Adopted {
            shard: giving.to,
            at: giving.at,
            version: owners.version(),
            buckets: buckets.clone(),
            numbers: Vec::new(),
            answers: Vec::new(),
            holds: Vec::new(),
        };
        let pieces = &mut giving.pieces;
        let holds = giving.holds.chunks(PIECE).map(<[_]>::to_vec);
        pieces.extend(holds.map(|holds| Post::Adopt(Adopted { holds, ..empty.clone() })));
        let numbers = numbers.chunks(PIECE).map(<[_]>::to_vec);
        pieces.extend(numbers.map(|numbers| Post::Adopt(Adopted { numbers, ..empty.clone() })));
        let answers = answers.chunks(PIECE).map(<[_]>::to_vec);
        pieces.extend(answers.map(|answers| Post::Adopt(Adopted { answers, ..empty.clone() })));
        let of_bucket = |bucket: &u16| {
            let mut known = running.holds.get(*bucket).unwrap_or_default();
            known.until = known.until.max(giving.held_until);
            let word = hold_word(*bucket, known, giving.at);
            Some(word).filter(|_| known != BucketHold::default())
        };
        let holds = giving.buckets.iter().filter_map(of_bucket).collect();
        pieces.push_back(Post::Take(Take { version: owners.version(), buckets, holds }));
    }

    fn tell_next_piece(&mut self, node: usize) {
        let Some(giving) = self.running(node).and_then(|running| running.giving.as_mut()) else {
            return;
        };
        let to = giving.to;
        if let Some(piece) = giving.pieces.pop_front() {
            return self.post(node, to, &piece, Asker::Give);
        }
        giving.stage = Stage::Delivered;
        self.change(node, Want::Delivered);
    }

    /// Nothing is on its way any more, and that is noted, or could not be.
    pub(crate) fn give_delivered(&mut self, node: usize, is_noted: bool) {
        if !is_noted {
            return self.give_ends(node, "the map could not be stored");
        }
        if let Some(running) = self.running(node) {
            running.giving = None;
        }
        self.tell(node, &[], || "has given them".to_owned());
        self.tell_all(node);
    }

    /// The move ends here, or goes on later if the buckets are given up already.
    pub(crate) fn give_ends(&mut self, node: usize, why: &'static str) {
        let Some(running) = self.running(node) else { return };
        let Some(giving) = running.giving.take() else { return };
        self.tell(node, &[], || format!("does not get on with the move: {why}"));
        if giving.stage == Stage::Telling && giving.pieces.is_empty() {
            // Buckets may have moved on from there.
            self.learn_from(node, giving.to, Waiting::Nobody);
        }
        if !matches!(giving.stage, Stage::Preparing | Stage::Holds | Stage::GivingUp) {
            let life = self.nodes[node].life;
            self.queue.add(self.now + AGAIN_US, Event::GiveOn(node, life));
        }
    }

    /// Goes on with a move that was cut off, if there is one.
    pub(crate) fn give_on(&mut self, node: usize) {
        let served = read_served(&self.nodes[node].files);
        let life = self.nodes[node].life;
        let Some(running) = self.running(node) else { return };
        let Some(served) = served else { return };
        // With a new cluster file its owners count, and what was leaving is forgotten.
        let is_of_file = served.version == running.owners.version();
        let Some(leaving) = served.leaving.into_iter().next().filter(|_| is_of_file) else {
            return;
        };
        if running.giving.is_some() || !running.is_serving {
            return self.queue.add(self.now + AGAIN_US, Event::GiveOn(node, life));
        }
        let mut giving = Giving::new(leaving.to, leaving.buckets, Stage::Knowing);
        giving.holds = leaving.holds;
        running.giving = Some(giving);
        self.tell(node, &[], || "goes on with a move".to_owned());
        self.tell_next_owner(node);
    }
}
