//! Clients: their requests and repeats, disconnections, and releases.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use ringwell_core::{Millis, PromoNumber};
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::message::Message;
use ringwell_driver::stats::Kind as Counted;
use ringwell_driver::{Platform, Shard};
use ringwell_wire::{ResponseRow, RowError};
use tokio::sync::oneshot;

use crate::batches::{Batch, PROBES, RowAsk, index, sent};
use crate::event::Event;
use crate::fault::Kind;
use crate::machine::{Sim, micros};
use crate::message::{self, Mark, RowAnswer, Sent};
use crate::model::{Judged, Model, Row, Shown, Violation};
use crate::pace::{MS, SECOND};
use crate::random::mix;
use crate::world::World;

/// The maximum time by which an answer may miss its deadline, not counting delays of the answering
/// thread. An answer that contains a number must meet this limit even if the thread was delayed.
const LATE_MAX_US: u64 = 5 * MS;
/// The time after which a disconnected client's numbers must be free.
pub(crate) const UNSEEN_US: u64 = 200 * MS;
const ROWS_MAX: u64 = 8;
/// The number of idempotency keys that clients use for more than one batch.
const KEYS_SHARED: u64 = 3;
impl World {
    /// Sends the next client's batch.
    pub(crate) fn next_batch(&mut self) {
        let gap = self.clients.random.between(1, 2 * self.clients.gap_us);
        let gap = self.pace.until_batch_us(self.now(), gap);
        if self.now() + gap < self.clients.length_us {
            self.queue.add(self.now() + gap, Event::Client);
        }
        let index = self.clients.next;
        self.clients.next += 1;
        let batch = self.make_batch(index);
        if self.clients.only.as_ref().is_none_or(|only| only.contains(&index)) {
            self.clients.batches.insert(index, batch);
            self.send_batch(index);
        }
    }

    fn make_batch(&mut self, index: u32) -> Batch {
        let pools: Vec<u64> = self.cluster.pools.keys().copied().collect();
        let is_repeatable = self.faults.strikes(Kind::Retry);
        let has_same_key = is_repeatable && self.faults.strikes(Kind::SameKey);
        let same = self.faults.stream(Kind::SameKey).below(KEYS_SHARED);
        let key = if has_same_key { same } else { KEYS_SHARED + u64::from(index) };
        let mut rows = Vec::new();
        for row in 0..self.clients.random.between(1, ROWS_MAX) {
            let random = &mut self.clients.random;
            // Some pools are requested more often than others.
            let pool = pools[random.index(pools.len()).min(random.index(pools.len()))];
            let visitor = random.between(1, 6);
            let is_visitor = self.faults.strikes(Kind::Visitor);
            let visitor = is_visitor.then_some(visitor + pool * 100);
            let row = u16::try_from(row).unwrap_or(0);
            let mark = Mark { batch: index.into(), row, is_repeatable, visitor };
            rows.push(RowAsk { pool, visitor, mark });
        }
        let is_single = self.faults.strikes(Kind::Single);
        if is_single {
            rows.truncate(1);
        }
        let is_hurried = self.faults.strikes(Kind::Hurry);
        let hurry = self.faults.stream(Kind::Hurry).between(MS / 2, 60 * MS);
        let deadline_us = if is_hurried { hurry } else { 100 * MS };
        let aborts = self.faults.strikes(Kind::Abort);
        let after = self.faults.stream(Kind::Abort).between(50, 60 * MS);
        let abort_after = aborts.then_some(after);
        let key = is_repeatable.then_some(key);
        Batch { rows, key, is_single, deadline_us, abort_after, attempts: 0 }
    }

    /// Sends a batch to a shard on some node, for the first time or again.
    fn send_batch(&mut self, index: u32) {
        let Some(batch) = self.clients.batches.get_mut(&index) else { return };
        let id = sent(index, batch.attempts);
        batch.attempts += 1;
        let drawn = mix(self.clients.seed ^ mix(id));
        let shards = self.cluster.homes.len() as u64;
        let shard = u16::try_from(drawn % shards).unwrap_or(0);
        self.send_to(id, shard);
    }

    fn send_to(&mut self, batch: u64, shard: u16) {
        let node = self.cluster.home(shard);
        let (life, way) = (self.nodes[node].life, self.chance.between(20, 150));
        self.queue.add(self.now() + way, Event::Batch { node, life, shard, batch });
    }

    /// Handles a batch that has arrived at a shard.
    pub(crate) fn batch_arrives(&mut self, node: usize, life: u32, shard: u16, id: u64) {
        let is_there = self.nodes[node].life == life;
        let running = self.nodes[node].running.as_mut().filter(|it| is_there && it.is_serving);
        let batch = self.clients.batch(id).cloned();
        let thread = running.and_then(|running| {
            running.batches.insert(id);
            running.threads.get(&shard)
        });
        let (Some(thread), Some(batch)) = (thread, batch) else {
            return self.clients.unsent(id);
        };
        let asked = ask(thread.sim.clone(), Rc::clone(&thread.shard), id, batch);
        thread.sim.executor.spawn(asked);
    }

    /// Handles an answer that a node is sending.
    pub(crate) fn answer_leaves(&mut self, answered: message::Answered) -> Judged {
        let message::Answered { node, batch: id, shard, since_us, deadline_us, rows, is_failed } =
            answered;
        let now_us = self.now();
        if let Some(running) = self.nodes[node].running.as_mut() {
            running.batches.remove(&id);
        }
        if is_failed {
            let text = format!("batch {id} failed as a whole");
            return Err(Violation { rule: "panic", text, number: 0, shard });
        }
        let last_us = deadline_us + LATE_MAX_US;
        // If the thread was idle after the deadline, it had time to answer, so the late answer is a
        // violation.
        let idle_at = self.thread(node, shard).map_or(0, |thread| thread.was_idle_at);
        let late_us = if idle_at > deadline_us { now_us.saturating_sub(last_us) } else { 0 };
        Model::answered_late(id, shard, late_us)?;
        let (asked, retry) = (self.clients.rows(id), self.clients.retry(id));
        let batch = u64::from(index(id));
        for ((row, asked), answer) in (0..).zip(&asked).zip(&rows) {
            let RowAnswer { shown, .. } = *answer;
            if let Shown::Number(number) = shown {
                self.tell(node, &[number], || {
                    format!("the answer to batch {batch} row {row} is sent with {number}")
                });
                self.shared.mix(number);
            }
            let retry = retry.map(|first| (first, row));
            let row = Row {
                sent: id,
                batch,
                row,
                retry,
                pool: asked.pool,
                shown,
                is_probe: index(id) >= PROBES,
                since_us,
                deadline_us: last_us,
                now_us,
            };
            self.shared.model.borrow_mut().answered(&row)?;
        }
        // A repeated batch or a returning visitor gets the same number again, so clients do not
        // release such numbers.
        let is_plain = |(asked, _): &(&RowAsk, _)| asked.visitor.is_none() && retry.is_none();
        let given = asked.iter().zip(&rows).filter(is_plain);
        let given: Vec<_> = given.filter_map(|(_, row)| row.given).collect();
        self.answer_arrives(id, &given);
        Ok(())
    }

    /// Handles a client that disconnected before it received an answer.
    pub(crate) fn aborted(&mut self, node: usize, id: u64) {
        if let Some(running) = self.nodes[node].running.as_mut() {
            running.batches.remove(&id);
        }
        let (life, batch) = (self.nodes[node].life, u64::from(index(id)));
        self.queue.add(self.now() + UNSEEN_US, Event::Unseen { node, life, batch });
        self.clients.unsent(id);
    }

    pub(crate) fn send_again(&mut self, index: u32) {
        self.send_batch(index);
    }

    /// Schedules the batches that clients send again.
    pub(crate) fn clients_go_on(&mut self) {
        for index in std::mem::take(&mut self.clients.again) {
            let pause = self.clients.pause(index, 3 * SECOND);
            let pause = self.pace.again_us(pause);
            self.queue.add(self.now() + pause, Event::Again(index));
        }
    }

    /// Handles an answer that has arrived. Some clients repeat the batch although it was answered,
    /// and some release numbers.
    fn answer_arrives(&mut self, id: u64, allocations: &[(u64, u64)]) {
        if mix(id).is_multiple_of(2) {
            self.clients.unsent(id);
        }
        for &(number, at_ms) in allocations {
            if self.faults.strikes(Kind::Release) {
                let after = self.faults.stream(Kind::Release).between(MS, 2 * SECOND);
                self.queue.add(self.now() + after, Event::Release { number, at_ms });
            }
        }
    }

    /// Releases a number for a client, through any node.
    pub(crate) fn release_by_client(&mut self, code: u64, at_ms: u64) {
        let (node, now_us) = (self.chance.index(self.nodes.len()), self.now());
        let running = self.nodes[node].running.as_ref().filter(|running| running.is_serving);
        let Some(thread) = running.and_then(|running| running.first()) else { return };
        let Some(number) = PromoNumber::from_code(code) else { return };
        let directory = thread.shard.node.directory();
        let owner = directory.pool_by_number(number).and_then(|pool| directory.lookup(pool));
        let Some(owner) = owner else { return };
        self.shared.model.borrow_mut().release_asked(code, at_ms, now_us);
        let (reply, released) = oneshot::channel();
        let allocated_at = Some(Millis(at_ms));
        let release = Message::Release { number, allocated_at, seen_at: None, reply };
        if thread.shard.peers.send(owner.shard(), release) {
            thread.sim.executor.spawn(async move { drop(released.await) });
        }
    }

    /// Requests a number from every pool, through every shard of every node.
    pub(crate) fn probe(&mut self) {
        let shards = u16::try_from(self.cluster.homes.len()).unwrap_or(0);
        for shard in 0..shards {
            let index = self.clients.probes;
            self.clients.probes += 1;
            let rows = (0..).zip(self.cluster.pools.keys()).map(|(row, pool)| RowAsk {
                pool: *pool,
                visitor: None,
                mark: Mark { batch: index.into(), row, is_repeatable: false, visitor: None },
            });
            let batch = Batch {
                rows: rows.collect(),
                key: None,
                is_single: false,
                deadline_us: 100 * MS,
                abort_after: None,
                attempts: 1,
            };
            self.clients.batches.insert(index, batch);
            self.send_to(sent(index, 0), shard);
        }
    }

    /// Checks that all probes were answered.
    pub(crate) fn check_probes(&self) -> Judged {
        let probes = self.clients.probes - PROBES;
        let wanted = u64::from(probes) * self.cluster.pools.len() as u64;
        self.shared.model.borrow().check_probes(wanted)
    }
}

/// Processes a client's request until it is answered or the client disconnects.
async fn ask(sim: Sim, shard: Rc<Shard<Sim>>, id: u64, batch: Batch) {
    let since = sim.moment();
    let body = batch.body();
    let deadline = since + Duration::from_micros(batch.deadline_us);
    let terms = Terms { retry: batch.digest(&body), deadline, traced: None };
    let has_left = Cell::new(false);
    let render = |answered: &Answered<'_>| {
        has_left.set(true);
        sim.send(Sent::Answered(message::Answered {
            node: sim.life.node,
            batch: id,
            shard: shard.id,
            since_us: micros(since),
            deadline_us: micros(deadline),
            rows: (0..batch.rows.len()).map(|row| read_answer(answered, row)).collect(),
            is_failed: answered.is_failed(),
        }));
    };
    let answer = async {
        if let Some(row) = batch.rows.first().filter(|_| batch.is_single) {
            let (pool, query) = (row.pool.to_string(), Batch::query(row));
            let read = |batch: &mut ringwell_wire::Batch| {
                batch.parse_single(&pool, &query, false);
                Ok::<_, Infallible>(())
            };
            let _ = batch::answer(&shard, Counted::Single, &terms, read, render).await;
        } else {
            let read =
                |batch: &mut ringwell_wire::Batch| batch.parse(body, &shard.node.wire_limits);
            let _ = batch::answer(&shard, Counted::Bulk, &terms, read, render).await;
        }
    };
    match batch.abort_after {
        Some(after) => drop(sim.within(Duration::from_micros(after), answer).await),
        None => answer.await,
    }
    if !has_left.get() {
        sim.send(Sent::Aborted { node: sim.life.node, batch: id });
    }
}

/// Reads a row of the answer as the client sees it.
pub(crate) fn read_answer(answered: &Answered<'_>, row: usize) -> RowAnswer {
    let given = answered.given_number(row).map(|(number, at)| (number.to_code(), at.0));
    let shown = match answered.row(row) {
        ResponseRow::Number { number, overflow, .. } => {
            let of_rotation = (!overflow).then(|| number.to_code());
            assert_eq!(given.map(|(number, _)| number), of_rotation, "row {row}");
            Shown::Number(number.to_code())
        }
        ResponseRow::Error(RowError::PoolExhausted { .. } | RowError::NoNumbers { .. }) => {
            Shown::Exhausted
        }
        ResponseRow::Error(RowError::Unavailable { .. }) => Shown::Refused("unavailable"),
        ResponseRow::Error(RowError::InvalidKey { .. }) => Shown::Refused("no such pool"),
        ResponseRow::Error(_) => Shown::Refused("an error"),
    };
    RowAnswer { shown, given }
}
