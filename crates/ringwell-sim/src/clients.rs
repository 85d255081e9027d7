//! Clients: what they ask, when they ask again, go away, or give numbers back.

use std::collections::{BTreeMap, BTreeSet};

use crate::bug::Bug;
use crate::cluster::Cluster;
use crate::event::{Event, Task};
use crate::fault::Kind;
use crate::model::Judged;
use crate::random::{Random, mix};
use crate::run::Options;
use crate::world::{MS, SECOND, World};

const ROWS_MAX: u64 = 8;
const ATTEMPTS_MAX: u8 = 4;
/// Probes are batches from this number on.
const PROBES: u32 = 1 << 20;
/// Keys that clients use for more than one batch.
const KEYS_SHARED: u64 = 3;
/// Visitors in batches that may be sent again are others: their numbers have two reasons.
const VISITORS_OF_RETRIES: u64 = 1 << 32;

/// A row of a batch.
#[derive(Clone, Debug)]
pub(crate) struct RowAsk {
    pub(crate) pool: u64,
    pub(crate) visitor: Option<u64>,
    pub(crate) params: String,
}

#[derive(Debug)]
struct Batch {
    rows: Vec<RowAsk>,
    /// The idempotency key, if it may be sent again. Other batches may have the same.
    key: Option<u64>,
    deadline_us: u64,
    /// The client goes away so long after it has asked.
    abort_after: Option<u64>,
    attempts: u8,
}

/// All clients of a run.
#[derive(Debug)]
pub(crate) struct Clients {
    seed: u64,
    random: Random,
    batches: BTreeMap<u32, Batch>,
    next: u32,
    gap_us: u64,
    pub(crate) length_us: u64,
    only: Option<BTreeSet<u32>>,
    /// Batches whose clients have no answer and ask again.
    again: Vec<u32>,
    probes: u32,
}

/// A batch as it was sent: which one, and for which time.
fn sent(index: u32, attempt: u8) -> u64 {
    u64::from(index) << 8 | u64::from(attempt)
}

fn index(id: u64) -> u32 {
    u32::try_from(id >> 8).unwrap_or(u32::MAX)
}

impl Clients {
    pub(crate) fn draw(options: &Options, cluster: &Cluster) -> Self {
        let mut random = Random::new(options.seed, 5);
        let length_us = random.between(20, 60) * SECOND;
        let batches = random.between(200, 900) * cluster.homes.len() as u64 / 3;
        Self {
            seed: options.seed,
            random,
            batches: BTreeMap::new(),
            next: 0,
            gap_us: length_us / batches.max(1),
            length_us,
            only: options.only_batches.clone(),
            again: Vec::new(),
            probes: PROBES,
        }
    }

    fn batch(&self, id: u64) -> Option<&Batch> {
        self.batches.get(&index(id))
    }

    pub(crate) fn rows(&self, id: u64) -> Vec<RowAsk> {
        self.batch(id).map_or_else(Vec::new, |batch| batch.rows.clone())
    }

    /// Which batch it is, for the model, if it may be sent again.
    pub(crate) fn retry(&self, id: u64) -> Option<u64> {
        self.batch(id)?.key.map(|_| u64::from(index(id)))
    }

    /// What owners know the batch by if it may be sent again: as in `ringwell-node/src/rows.rs`.
    pub(crate) fn digest(&self, id: u64, bug: Option<Bug>) -> Option<[u8; 16]> {
        let batch = self.batch(id)?;
        let key = mix(batch.key?);
        let rows = batch.rows.iter().flat_map(|row| row.params.bytes().chain([b'\n']));
        let body = rows.fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        Some(crate::thread::key(if bug == Some(Bug::KeyAlone) { key } else { mix(key ^ body) }))
    }

    pub(crate) fn deadline_us(&self, id: u64) -> u64 {
        self.batch(id).map_or(0, |batch| batch.deadline_us)
    }

    /// Whether its client goes away before it has read the answer.
    pub(crate) fn aborts(&self, id: u64) -> bool {
        self.batch(id).is_some_and(|batch| batch.abort_after.is_some())
    }

    /// No answer has come, and none will.
    pub(crate) fn unsent(&mut self, id: u64) {
        let Some(batch) = self.batches.get(&index(id)) else { return };
        if batch.key.is_some() && batch.attempts < ATTEMPTS_MAX {
            self.again.push(index(id));
        }
    }

    /// So many batches have been sent.
    pub(crate) fn count(&self) -> u32 {
        self.next
    }
}

impl World {
    /// The next client asks.
    pub(crate) fn next_batch(&mut self) {
        let gap = self.clients.random.between(1, 2 * self.clients.gap_us);
        if self.now + gap < self.clients.length_us {
            self.queue.add(self.now + gap, Event::Client);
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
            // Some pools are asked more than others.
            let pool = pools[random.index(pools.len()).min(random.index(pools.len()))];
            let visitor = random.between(1, 6);
            let is_visitor = self.faults.strikes(Kind::Visitor);
            let of = if is_repeatable { VISITORS_OF_RETRIES } else { 0 };
            let visitor = is_visitor.then_some(visitor + of + pool * 100);
            rows.push(RowAsk { pool, visitor, params: format!("b={index}&r={row}") });
        }
        // By GET.
        if self.faults.strikes(Kind::Single) {
            rows.truncate(1);
        }
        let is_hurried = self.faults.strikes(Kind::Hurry);
        let hurry = self.faults.stream(Kind::Hurry).between(MS / 2, 60 * MS);
        let deadline_us = if is_hurried { hurry } else { 100 * MS };
        let aborts = self.faults.strikes(Kind::Abort);
        let after = self.faults.stream(Kind::Abort).between(50, 60 * MS);
        let abort_after = aborts.then_some(after);
        let key = is_repeatable.then_some(key);
        Batch { rows, key, deadline_us, abort_after, attempts: 0 }
    }

    /// Sends a batch to some shard of some node, by now or once more.
    fn send_batch(&mut self, index: u32) {
        let Some(batch) = self.clients.batches.get_mut(&index) else { return };
        let id = sent(index, batch.attempts);
        batch.attempts += 1;
        let abort_after = batch.abort_after;
        let drawn = mix(self.clients.seed ^ mix(id));
        let shards = self.cluster.homes.len() as u64;
        let shard = u16::try_from(drawn % shards).unwrap_or(0);
        self.send_to(id, shard, abort_after);
    }

    fn send_to(&mut self, id: u64, shard: u16, abort_after: Option<u64>) {
        let node = self.cluster.home(shard);
        if self.nodes[node].running.is_none() {
            self.clients.unsent(id);
            return;
        }
        let way = self.chance.between(20, 150);
        self.later(node, shard, way, Task::Batch(id));
        if let Some(after) = abort_after {
            self.later(node, shard, way + after, Task::Abort(id));
        }
    }

    pub(crate) fn send_again(&mut self, index: u32) {
        self.send_batch(index);
    }

    /// Those who have no answer ask again after a while.
    pub(crate) fn clients_go_on(&mut self) {
        for index in std::mem::take(&mut self.clients.again) {
            let pause = self.clients.pause(index, 3 * SECOND);
            self.queue.add(self.now + pause, Event::Again(index));
        }
    }

    /// An answer has come: some ask again all the same, some give numbers back.
    pub(crate) fn answer_arrives(&mut self, id: u64, allocations: &[(u64, u64, u16)]) {
        if mix(id).is_multiple_of(2) {
            self.clients.unsent(id);
        }
        for &(number, at_ms, shard) in allocations {
            if self.faults.strikes(Kind::Release) {
                let after = self.faults.stream(Kind::Release).between(MS, 2 * SECOND);
                self.queue.add(self.now + after, Event::Release { number, at_ms, shard });
            }
        }
    }

    pub(crate) fn release_by_client(&mut self, number: u64, at_ms: u64, shard: u16) {
        self.model.release_asked(number, at_ms, self.now);
        let node = self.cluster.home(shard);
        let Some(number) = ringwell_core::PromoNumber::from_code(number) else { return };
        self.later(node, shard, 100, Task::Release(number, ringwell_core::Millis(at_ms)));
    }

    /// Every shard of every node is asked for a number of every pool.
    pub(crate) fn probe(&mut self) {
        let shards = u16::try_from(self.cluster.homes.len()).unwrap_or(0);
        for shard in 0..shards {
            let index = self.clients.probes;
            self.clients.probes += 1;
            let rows = self.cluster.pools.keys().map(|pool| RowAsk {
                pool: *pool,
                visitor: None,
                params: format!("probe={index}&p={pool}"),
            });
            let batch = Batch {
                rows: rows.collect(),
                key: None,
                deadline_us: 100 * MS,
                abort_after: None,
                attempts: 1,
            };
            self.clients.batches.insert(index, batch);
            self.send_to(sent(index, 0), shard, None);
        }
    }

    /// Whether all probes were answered.
    pub(crate) fn check_probes(&self) -> Judged {
        let probes = self.clients.probes - PROBES;
        let wanted = u64::from(probes) * self.cluster.pools.len() as u64;
        self.model.check_probes(wanted)
    }
}

impl Clients {
    /// How long somebody waits before asking again.
    fn pause(&self, index: u32, max_us: u64) -> u64 {
        let attempts = self.batches.get(&index).map_or(0, |batch| batch.attempts);
        MS + mix(self.seed ^ sent(index, attempts)) % max_us
    }
}
