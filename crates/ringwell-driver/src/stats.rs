//! A shard's counts. They are plain cells, because only the shard's thread writes them. A scrape
//! asks the thread for a copy.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use ringwell_core::{PoolId, Throttle};
use ringwell_engine::{Counts, Refusal};

/// The longest time that a latency histogram can record, in microseconds.
const LATENCY_MAX_US: u64 = 60_000_000;

/// A count that only increases.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }

    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// The reason why a row got an overflow number or no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// All numbers of the pool are locked out, or the pool is held.
    Exhausted,
    /// There was no answer by the deadline.
    Late,
    /// A queue or the open group is full.
    Busy,
    /// The disk is full.
    JournalFull,
    /// The journal accepts no records until a restart.
    JournalFailed,
    /// The journal is slow to store a group.
    JournalWaits,
    /// Because of pacing, the row was not sent.
    Paced,
    /// There was no connection, or no readable answer.
    Unreachable,
    /// The shard that was asked does not own the pool.
    Moved,
}

impl Reason {
    /// All reasons, in the order in which their counts are listed.
    pub const ALL: [Self; 9] = [
        Self::Exhausted,
        Self::Late,
        Self::Busy,
        Self::JournalFull,
        Self::JournalFailed,
        Self::JournalWaits,
        Self::Paced,
        Self::Unreachable,
        Self::Moved,
    ];

    /// Returns the reason's name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Late => "late",
            Self::Busy => "busy",
            Self::JournalFull => "journal_full",
            Self::JournalFailed => "journal_failed",
            Self::JournalWaits => "journal_waits",
            Self::Paced => "paced",
            Self::Unreachable => "unreachable",
            Self::Moved => "moved",
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::JournalFull => Self::JournalFull,
            Refusal::JournalFailed => Self::JournalFailed,
            Refusal::JournalWaits => Self::JournalWaits,
            Refusal::Late => Self::Late,
            Refusal::Busy => Self::Busy,
            Refusal::Paced => Self::Paced,
            Refusal::Unreachable => Self::Unreachable,
            Refusal::Moved => Self::Moved,
        }
    }
}

/// The kind under which a batch is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bulk request.
    Bulk,
    /// A single allocation.
    Single,
    /// The numbers for a page. They are not counted as a batch, because the page itself is counted.
    Page,
}

/// The counts of one shard's thread.
#[derive(Debug)]
#[allow(missing_docs, reason = "`counters` has a help text for each field")]
pub struct Stats {
    pub batches: Counter,
    pub rows: Counter,
    pub row_errors: Counter,
    pub legacy: Counter,
    pub rejected: Counter,
    pub panics: Counter,
    pub deadlines_missed: Counter,
    pub peer_rows_late: Counter,
    pub unanswered: Counter,
    pub connections_opened: Counter,
    pub connections_refused: Counter,
    pub connections_cut: Counter,
    pub bodies_refused: Counter,
    pub links_refused: Counter,
    /// Limits how often refused connections and requests are logged.
    pub strangers: Throttle,
    overflow: [Counter; Reason::ALL.len()],
    /// The counts in `overflow`, by pool. Rows that overflowed because the pool was exhausted are
    /// not included; the pool's shard counts those.
    refused: RefCell<BTreeMap<PoolId, [u64; Reason::ALL.len()]>>,
    latency: RefCell<Histogram<u64>>,
}

/// Creates a histogram of times up to one minute, in microseconds.
///
/// # Panics
/// Never: the bounds are constants.
#[expect(clippy::expect_used, reason = "the bounds are constants; a test creates this histogram")]
#[must_use]
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 2).expect("constant bounds")
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            batches: Counter::default(),
            rows: Counter::default(),
            row_errors: Counter::default(),
            legacy: Counter::default(),
            rejected: Counter::default(),
            panics: Counter::default(),
            deadlines_missed: Counter::default(),
            peer_rows_late: Counter::default(),
            unanswered: Counter::default(),
            connections_opened: Counter::default(),
            connections_refused: Counter::default(),
            connections_cut: Counter::default(),
            bodies_refused: Counter::default(),
            links_refused: Counter::default(),
            strangers: Throttle::default(),
            overflow: Default::default(),
            refused: RefCell::default(),
            latency: RefCell::new(latency_histogram()),
        }
    }
}

impl Stats {
    /// Counts a row that got an overflow number or no number for this reason.
    pub fn overflow(&self, reason: Reason) {
        self.overflow[reason as usize].add(1);
    }

    /// Counts a row for `pool` that got an overflow number or no number although the pool was not
    /// exhausted.
    pub fn refused(&self, pool: Option<PoolId>, reason: Reason) {
        self.overflow(reason);
        // Unknown pools are never counted, so the map contains no more pools than the directory.
        if let Some(pool) = pool {
            self.refused.borrow_mut().entry(pool).or_default()[reason as usize] += 1;
        }
    }

    /// Returns the counts that [`Self::refused()`] has kept for `pool`, in the order of
    /// [`Reason::ALL`].
    #[must_use]
    pub fn refused_of(&self, pool: PoolId) -> [u64; Reason::ALL.len()] {
        self.refused.borrow().get(&pool).copied().unwrap_or_default()
    }

    /// Returns at most `pools` pools: those with the most rows that [`Self::refused()`] has
    /// counted, each with its count.
    #[must_use]
    pub fn most_refused(&self, pools: usize) -> Vec<(PoolId, u64)> {
        let refused = self.refused.borrow();
        let counts = refused.iter().map(|(pool, by_reason)| (*pool, by_reason.iter().sum()));
        let mut counts: Vec<(PoolId, u64)> = counts.collect();
        counts.sort_unstable_by_key(|(pool, count)| (Reverse(*count), *pool));
        counts.truncate(pools);
        counts
    }

    /// Counts an answered batch with `rows` rows.
    pub(crate) fn answered(&self, kind: Kind, rows: usize) {
        match kind {
            Kind::Bulk => {
                self.batches.add(1);
                self.rows.add(rows as u64);
            }
            Kind::Single => self.legacy.add(1),
            Kind::Page => {}
        }
    }

    /// Records `time` as the latency of a batch.
    pub fn answered_after(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.latency.borrow_mut().saturating_record(us.max(1));
    }
}

/// A copy of a shard's counts, for `/metrics`.
#[derive(Clone, Debug)]
pub struct ShardStats {
    /// The shard.
    pub shard: u16,
    /// Name, help, value.
    pub counters: Vec<(&'static str, &'static str, u64)>,
    /// The counts of rows that got an overflow number or no number, in the order of
    /// [`Reason::ALL`]. Only rows that this thread received are counted.
    pub overflow: [u64; Reason::ALL.len()],
    /// The time from a request's last byte to its answer, in microseconds.
    pub latency: Histogram<u64>,
    /// This thread's links to other nodes' shards.
    pub links: Vec<LinkStats>,
    /// Open connections.
    pub connections: usize,
    /// The engine's counts.
    pub engine: Counts,
    /// The count of remembered answers to rows of repeatable batches.
    pub answers: usize,
    /// Numbers in rotation.
    pub numbers: usize,
    /// The state of the shard's journal.
    pub journal: JournalStats,
}

/// The counts of a thread's link to another node's shard.
#[derive(Clone, Debug)]
pub struct LinkStats {
    /// The shard that the link leads to.
    pub shard: u16,
    /// That shard's node.
    pub node: String,
    /// The maximum number of sub-requests in progress.
    pub window: f64,
    /// The number of sub-requests in progress.
    pub in_flight: u32,
    /// The number of sub-requests that wait because the window is full.
    pub waiting: u32,
    /// Whether only pings are sent now.
    pub is_shut: bool,
    /// The duration of the last ping.
    pub last_ping: Option<Duration>,
    /// Open connections.
    pub connections: u32,
    /// Connections made.
    pub connects: u64,
    /// Sub-requests sent.
    pub requests: u64,
    /// The count of sub-requests that were not answered within the limit for slow answers.
    pub slow: u64,
    /// The count of sub-requests that were refused or got no answer in time.
    pub lost: u64,
    /// The count of rows that were answered with overflow because of pacing.
    pub paced_rows: u64,
    /// The count of numbers that were released because the answers that contained them arrived too
    /// late.
    pub late_released: u64,
    /// The time from a sub-request to its answer, in microseconds.
    pub latency: Histogram<u64>,
    /// The milliseconds by which the other machine's clock is ahead of this machine's; negative if
    /// it is behind.
    pub clock_ahead_ms: i64,
}

/// The counts of a shard's journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalStats {
    /// The total size of the segments that are kept, in bytes.
    pub kept: u64,
    /// The state of the history that was not read at startup: 0 not read yet, 1 whole, 2 damaged.
    pub history: u64,
    /// The count of groups of records that were stored.
    pub groups: u64,
    /// The count of bytes that were stored.
    pub bytes: u64,
    /// The `JournalState` as a number.
    pub state: u64,
    /// The number of seconds that the journal has stored nothing; 0 if it stores groups.
    pub trouble_seconds: u64,
    /// The number of seconds for which the shard's pools will still be held; 0 if none is held.
    pub held_seconds: u64,
}

impl Stats {
    /// Returns the counters: name, help text, and value.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        vec![
            ("batches", "Bulk requests answered", self.batches.get()),
            ("rows", "Rows answered, with any result", self.rows.get()),
            ("row_errors", "Rows answered with an error", self.row_errors.get()),
            ("legacy_requests", "Single allocations answered", self.legacy.get()),
            ("rejected_requests", "Requests under /api/ refused as a whole", self.rejected.get()),
            ("panics", "Requests that failed because of an internal error", self.panics.get()),
            (
                "deadlines_missed",
                "Batches that were incomplete at their deadline",
                self.deadlines_missed.get(),
            ),
            (
                "peer_rows_late",
                "Rows from other shards that could not be served by their deadline",
                self.peer_rows_late.get(),
            ),
            (
                "unanswered_released",
                "Numbers released because no client received them",
                self.unanswered.get(),
            ),
            ("connections_opened", "Connections accepted", self.connections_opened.get()),
            (
                "connections_refused",
                "Connections refused because the limit was reached",
                self.connections_refused.get(),
            ),
            (
                "connections_cut",
                "Connections closed because the client was too slow",
                self.connections_cut.get(),
            ),
            (
                "bodies_refused",
                "Requests refused because request bodies had reached the memory limit",
                self.bodies_refused.get(),
            ),
            (
                "links_refused",
                "Connections and requests refused on links between nodes",
                self.links_refused.get(),
            ),
        ]
    }

    /// Returns the counts of rows that got an overflow number or no number, in the order of
    /// [`Reason::ALL`].
    #[must_use]
    pub fn overflow_counts(&self) -> [u64; Reason::ALL.len()] {
        self.overflow.each_ref().map(Counter::get)
    }

    /// Returns the distribution of batch durations, in microseconds.
    #[must_use]
    pub fn latency(&self) -> Histogram<u64> {
        self.latency.borrow().clone()
    }
}
