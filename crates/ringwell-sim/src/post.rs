//! What nodes tell each other about buckets that move, and how it travels: as
//! `ringwell-node/src/handover/{words,learn}.rs`. Bytes are left out, what they say is not.

use ringwell_core::{Millis, NumberRange, PoolId, Retired, Slot};
use ringwell_directory::{BucketHold, Directory, Owner, Owners};
use ringwell_engine::Refusal;
use ringwell_journal::AnswerEntry;

use crate::bug::Bug;
use crate::change::{Waiting, Want};
use crate::event::{Event, Task};
use crate::thread::Thread;
use crate::world::{MS, SECOND, World};

/// Whoever does not answer by then is not reached.
const PATIENCE_US: u64 = SECOND;
/// Whoever refuses rows as moved is asked for its map this often at most.
const LEARN_EVERY_US: u64 = 20 * MS;
/// What time is rounded off.
const ROUNDING: Millis = Millis(1);

/// The answer to what was posted: owners if that was asked for.
pub(crate) type Posted = Result<Option<Box<Owners>>, &'static str>;

/// Who has posted something, and which of its posts it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    node: usize,
    life: u32,
    id: u64,
}

/// What goes on when the answer is there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    Give,
    Learn(Waiting),
}

#[derive(Clone, Debug)]
pub(crate) enum Post {
    Prepare { shard: u16, version: u64, buckets: Vec<u16>, digest: Vec<PoolDigest> },
    Adopt(Adopted),
    Take(Take),
    Owners(Box<Owners>),
}

/// What two nodes must know alike of a pool before it moves.
pub(crate) type PoolDigest = (PoolId, Millis, Vec<NumberRange>);

/// What the owner before knows, a part of it; `at` is what time it is there.
#[derive(Clone, Debug)]
pub(crate) struct Adopted {
    pub(crate) shard: u16,
    pub(crate) at: Millis,
    pub(crate) version: u64,
    pub(crate) buckets: Vec<(u16, Owner)>,
    pub(crate) numbers: Vec<Retired>,
    pub(crate) answers: Vec<AnswerEntry>,
    pub(crate) holds: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Take {
    pub(crate) version: u64,
    pub(crate) buckets: Vec<(u16, Owner)>,
    pub(crate) holds: Vec<HoldWord>,
}

/// A bucket that is held: how long ago it came without lockouts, and how much longer it is held.
pub(crate) type HoldWord = (u16, u64, u64);

pub(crate) fn hold_word(bucket: u16, hold: BucketHold, at: Millis) -> HoldWord {
    let since = if hold.since > Millis::ZERO { at.since(hold.since).0.max(1) } else { 0 };
    (bucket, since, hold.until.since(at).0)
}

pub(crate) fn read_hold(word: HoldWord, here: Millis) -> (u16, BucketHold) {
    let (bucket, since, left) = word;
    let since = if since > 0 { here - Millis(since) + ROUNDING } else { Millis::ZERO };
    let until = if left > 0 { here + Millis(left) + ROUNDING } else { Millis::ZERO };
    (bucket, BucketHold { since, until })
}

/// Of the pools of these buckets.
pub(crate) fn digest(directory: &Directory, buckets: &[u16]) -> Vec<PoolDigest> {
    let pools = buckets.iter().flat_map(|bucket| directory.pools_in(*bucket));
    let mut all: Vec<PoolDigest> =
        pools.map(|pool| (pool.id(), pool.lifetime(), pool.numbers().to_vec())).collect();
    all.sort_by_key(|(pool, _, _)| *pool);
    all
}

/// An end told `there` in another node's time, in the time of this shard.
fn in_time_of(until: Millis, here: Millis, there: Millis) -> Millis {
    if until > there { here + until.since(there) + ROUNDING } else { here - there.since(until) }
}

impl World {
    /// Posts something to the node of `shard`.
    pub(crate) fn post(&mut self, node: usize, shard: u16, post: &Post, asker: Asker) {
        let id = self.id();
        let (to, life) = (self.cluster.home(shard), self.nodes[node].life);
        let Some(running) = self.running(node) else { return };
        running.posted.insert(id, asker);
        let from = Caller { node, life, id };
        if to != node {
            let nothing = Event::Posted(node, life, id, Err("no answer"));
            self.queue.add(self.now + PATIENCE_US, nothing);
        }
        let there = self.nodes[to].life;
        for delay in self.post_ways(node, to) {
            let post = post.clone();
            self.queue.add(self.now + delay, Event::Post { node: to, life: there, from, post });
        }
    }

    fn post_ways(&mut self, from: usize, to: usize) -> Vec<u64> {
        if from == to { vec![20] } else { self.ways(from, to) }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is made for this, and may travel twice")]
    pub(crate) fn answer_post(&mut self, node: usize, to: Caller, answer: Posted) {
        let (life, id) = (to.life, to.id);
        for delay in self.post_ways(node, to.node) {
            let answer = Event::Posted(to.node, life, id, answer.clone());
            self.queue.add(self.now + delay, answer);
        }
    }

    pub(crate) fn post_arrives(&mut self, node: usize, life: u32, from: Caller, post: Post) {
        let is_there = self.nodes[node].running.as_ref().is_some_and(|r| r.is_serving);
        if self.nodes[node].life != life || !is_there {
            return self.answer_post(node, from, Err("there is no way to it"));
        }
        let paused_until = self.nodes[node].paused_until;
        if paused_until > self.now {
            return self.queue.add(paused_until, Event::Post { node, life, from, post });
        }
        match post {
            Post::Prepare { shard, version, buckets, digest } => {
                let can = self.prepare(node, shard, version, &buckets, &digest);
                self.answer_post(node, from, can.map(|()| None));
            }
            Post::Adopt(adopted) => {
                let hop = self.chance.between(5, 60);
                self.later(node, adopted.shard, hop, Task::Adopt(adopted, from));
            }
            Post::Take(take) => self.change(node, Want::Take(take, from)),
            Post::Owners(told) => self.change(node, Want::Learn(told, Waiting::Caller(from))),
        }
    }

    /// Whether this node can take the buckets.
    fn prepare(
        &self,
        node: usize,
        shard: u16,
        version: u64,
        buckets: &[u16],
        wanted: &[PoolDigest],
    ) -> Result<(), &'static str> {
        let running = self.nodes[node].running.as_ref().ok_or("it is not there")?;
        if running.owners.version() != version {
            return Err("the cluster files differ");
        }
        if running.threads.get(&shard).is_none_or(|thread| thread.refusal.is_some()) {
            return Err("the shard's journal takes no writes");
        }
        if digest(&running.directory, buckets) != wanted {
            return Err("the two nodes have different lists of the pools in these buckets");
        }
        Ok(())
    }

    pub(crate) fn posted(
        &mut self,
        node: usize,
        id: u64,
        answer: Result<Option<Box<Owners>>, &'static str>,
    ) {
        let asker = self.running(node).and_then(|running| running.posted.remove(&id));
        match (asker, answer) {
            (Some(Asker::Give), answer) => self.give_answered(node, answer.map(|_| ())),
            (Some(Asker::Learn(waiting)), Ok(Some(owners))) => {
                self.change(node, Want::Learn(owners, waiting));
            }
            (Some(Asker::Learn(Waiting::Batch(thread, batch))), _) => {
                self.later(node, thread, 10, Task::Learnt(batch));
            }
            (None | Some(Asker::Learn(Waiting::Nobody | Waiting::Caller(_))), _) => {}
        }
    }

    /// Has a shard take over what the owner before knew; the answer waits until that is durable.
    pub(crate) fn adopt(&mut self, node: usize, thread: &mut Thread, told: Adopted, from: Caller) {
        if thread.engine.refusal().is_some() {
            return self.answer_post(node, from, Err("the shard's journal takes no writes"));
        }
        let version = told.version;
        if self.running(node).is_none_or(|running| running.owners.version() != version) {
            return self.answer_post(node, from, Err("the cluster files differ"));
        }
        let now = thread.engine.at(self.shard_time(node));
        let forgets = self.bug == Some(Bug::AdoptForgets);
        let is_taken = self.running(node).is_some_and(|running| {
            let is_known =
                |bucket, moves| running.owners.get(bucket).is_some_and(|o| o.moves >= moves);
            told.buckets.iter().any(|(bucket, owner)| is_known(*bucket, owner.moves))
        });
        for mut known in told.numbers.into_iter().filter(|_| !is_taken) {
            let is_own = thread.engine.shard().find(known.slot.number).is_some();
            known.local_at = if is_own { Millis::ZERO } else { now };
            let until = in_time_of(known.slot.locked_until, now, told.at);
            known.slot = Slot { locked_until: until, ..known.slot };
            known.visitor = known.visitor.filter(|_| !forgets);
            // Groups are far smaller here than what makes the one that gathers full.
            assert!(thread.engine.adopt(now, &known), "a group has room");
        }
        for answer in told.answers.iter().filter(|_| !forgets && !is_taken) {
            let answer = AnswerEntry { at: now - told.at.since(answer.at), ..*answer };
            assert!(thread.engine.adopt_answer(now, &answer), "a group has room");
        }
        for (pool, until) in told.holds {
            let until = in_time_of(Millis(until), now, told.at);
            assert!(thread.engine.hold_pool(now, PoolId(pool), until), "a group has room");
        }
        self.know_again(node, thread);
        let group = thread.engine.newest_group();
        if thread.durable >= group || self.bug == Some(Bug::AdoptUnstored) {
            self.answer_post(node, from, Ok(None));
        } else {
            thread.adopted.push((group, from));
        }
        self.commit_soon(node, thread);
    }

    /// The journal has got further, or refuses.
    pub(crate) fn adopted(&mut self, node: usize, thread: &mut Thread, why: Option<Refusal>) {
        let durable = thread.durable;
        let is_over = |(group, _): &mut (u64, Caller)| why.is_some() || *group <= durable;
        let over: Vec<_> = thread.adopted.extract_if(.., is_over).collect();
        for (group, from) in over {
            let answer = if group <= durable { Ok(None) } else { Err("the journal refuses") };
            self.answer_post(node, from, answer);
        }
    }

    /// Tells every other node who owns what, and learns from it.
    pub(crate) fn tell_all(&mut self, node: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let first = self.cluster.shards_of(other).first().copied();
            if let Some(shard) = first {
                self.learn_from(node, shard, Waiting::Nobody);
            }
        }
    }

    pub(crate) fn learn_from(&mut self, node: usize, shard: u16, waiting: Waiting) {
        let Some(running) = self.running(node) else { return };
        let owners = Box::new(running.owners.clone());
        self.post(node, shard, &Post::Owners(owners), Asker::Learn(waiting));
    }

    /// Asks the node of `shard`, which does not own what it was asked for, who does; `false` if it
    /// was asked just now.
    pub(crate) fn learn_owners(
        &mut self,
        node: usize,
        thread: &mut Thread,
        shard: u16,
        batch: u64,
    ) -> bool {
        let is_too_soon = thread.learnt_at.is_some_and(|at| self.now < at + LEARN_EVERY_US);
        if is_too_soon || self.cluster.home(shard) == node {
            return false;
        }
        thread.learnt_at = Some(self.now);
        self.learn_from(node, shard, Waiting::Batch(thread.shard, batch));
        true
    }
}
