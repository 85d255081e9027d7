//! The batches of clients.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ringwell_driver::rows;

use crate::cluster::{Cluster, KEY};
use crate::message::Mark;
use crate::options::Options;
use crate::pace::{MS, Pace, SECOND};
use crate::random::{Random, mix};

/// The maximum number of attempts to send a batch.
pub(crate) const ATTEMPTS_MAX: u8 = 4;
/// Batches with this number or a higher one are probes.
pub(crate) const PROBES: u32 = 1 << 20;

/// A row of a batch.
#[derive(Clone, Debug)]
pub(crate) struct RowAsk {
    pub(crate) pool: u64,
    pub(crate) visitor: Option<u64>,
    pub(crate) mark: Mark,
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<RowAsk>,
    /// The idempotency key, if the batch is repeatable. Other batches may use the same key.
    pub(crate) key: Option<u64>,
    /// Whether the batch is sent as a GET request.
    pub(crate) is_single: bool,
    pub(crate) deadline_us: u64,
    /// The time after which the client disconnects, if it does.
    pub(crate) abort_after: Option<u64>,
    pub(crate) attempts: u8,
}

/// All clients of a run.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) seed: u64,
    pub(crate) random: Random,
    pub(crate) batches: BTreeMap<u32, Batch>,
    pub(crate) next: u32,
    pub(crate) gap_us: u64,
    pub(crate) length_us: u64,
    pub(crate) only: Option<BTreeSet<u32>>,
    /// Batches that their clients will send again.
    pub(crate) again: Vec<u32>,
    pub(crate) probes: u32,
}

/// The id of one attempt to send a batch: the batch's index and the attempt's number.
pub(crate) fn sent(index: u32, attempt: u8) -> u64 {
    u64::from(index) << 8 | u64::from(attempt)
}

pub(crate) fn index(id: u64) -> u32 {
    u32::try_from(id >> 8).unwrap_or(u32::MAX)
}

impl Clients {
    pub(crate) fn draw(options: &Options, cluster: &Cluster, pace: &Pace) -> Self {
        let mut random = Random::new(options.seed, 5);
        let length_us = random.between(20, 60) * SECOND;
        let batches = random.between(200, 900) * cluster.homes.len() as u64 / 3;
        Self {
            seed: options.seed,
            random,
            batches: BTreeMap::new(),
            next: 0,
            gap_us: length_us / batches.max(1),
            length_us: pace.length_us(length_us),
            only: options.only_batches.clone(),
            again: Vec::new(),
            probes: PROBES,
        }
    }

    pub(crate) fn batch(&self, id: u64) -> Option<&Batch> {
        self.batches.get(&index(id))
    }

    pub(crate) fn rows(&self, id: u64) -> Vec<RowAsk> {
        self.batch(id).map_or_else(Vec::new, |batch| batch.rows.clone())
    }

    /// Returns the id of the batch in the model, if the batch is repeatable.
    pub(crate) fn retry(&self, id: u64) -> Option<u64> {
        self.batch(id)?.key.map(|_| u64::from(index(id)))
    }

    /// Marks a batch for sending again, if it is repeatable and has attempts left.
    pub(crate) fn unsent(&mut self, id: u64) {
        let Some(batch) = self.batches.get(&index(id)) else { return };
        if batch.key.is_some() && batch.attempts < ATTEMPTS_MAX {
            self.again.push(index(id));
        }
    }

    /// Returns the number of batches that were sent.
    pub(crate) fn count(&self) -> u32 {
        self.next
    }
}

impl Clients {
    /// Returns the time after which a client repeats a batch.
    pub(crate) fn pause(&self, index: u32, max_us: u64) -> u64 {
        let attempts = self.batches.get(&index).map_or(0, |batch| batch.attempts);
        MS + mix(self.seed ^ sent(index, attempts)) % max_us
    }
}

impl Batch {
    /// Returns the query of a row's request.
    pub(crate) fn query(row: &RowAsk) -> String {
        let visitor = row.visitor.map_or_else(String::new, |v| format!("&ringwell_visitor=v{v}"));
        format!("ring_pool_key={KEY}&{}{visitor}", row.mark.text())
    }

    pub(crate) fn body(&self) -> Bytes {
        let row = |(at, row): (usize, &RowAsk)| {
            let suffix = format!("{}/allocate_number.json?{}", row.pool, Self::query(row));
            format!(r#"{{"api_suffix":"{suffix}","request_id":"{at}"}}"#)
        };
        let rows: Vec<String> = self.rows.iter().enumerate().map(row).collect();
        format!(r#"{{"requests":[{}]}}"#, rows.join(",")).into()
    }

    /// Returns the digest that identifies the batch to owners, if the batch is repeatable.
    pub(crate) fn digest(&self, body: &[u8]) -> Option<[u8; 16]> {
        let key = format!("key-{}", self.key?);
        let digest = match self.rows.first().filter(|_| self.is_single) {
            Some(row) => {
                rows::single_digest(key.as_bytes(), &row.pool.to_string(), &Self::query(row))
            }
            None => rows::batch_digest(key.as_bytes(), body),
        };
        digest.unwrap_or_else(|error| unreachable!("a short key: {error:?}"))
    }
}
