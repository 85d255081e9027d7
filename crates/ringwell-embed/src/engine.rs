//! The engine of one data directory: opening, answering, closing.
//!
//! The calling thread waits for the disk. Invariant: the answer of a batch is made after its
//! records are as durable as configured; rows whose records were not taken are overflow, and their
//! numbers are free again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use bytes::Bytes;
use ringwell_core::Millis;
use ringwell_directory::{Config, Directory};
use ringwell_driver::rows::{self, Planned, RowPlan};
use ringwell_driver::store::{end_unflushed, settle_unflushed, unmark_restored};
use ringwell_engine::{Doubts, Outcome, Refusal};
use ringwell_journal::Durability;
use ringwell_os::{DataLock, OsFiles};
use ringwell_wire::{Batch, BulkResponse, Limits, RequestError, ResponseRow, RowError};
use serde::Serialize;

use crate::open::open_alone;
use crate::options::Options;
use crate::shard::{NO_WRITES, Shard};
use crate::upkeep::Upkeep;

/// The approximate bytes of a row's answer, for which memory is reserved at once.
const ROW_ANSWER_BYTES: usize = 160;

/// As in the server: a batch that contains this text fails by a panic.
const DRILL: &str = "RINGWELL_DRILL_PANIC_ON";

/// An engine with its files.
#[derive(Debug)]
pub(crate) struct Embedded {
    config: Config,
    limits: Limits,
    directory: Directory,
    durability: Durability,
    shard: Shard,
    upkeep: Upkeep,
    /// Memory for one batch, reused for the next.
    batch: Batch,
    plans: Vec<RowPlan>,
    outcomes: Vec<Outcome>,
    /// The digest of the current batch, if it is repeatable.
    retry: Option<[u8; 16]>,
    /// The corrections of time or damage at startup.
    notes: Vec<String>,
    batches: u64,
    rows: u64,
    faults: u64,
    pub(crate) drill: Option<Vec<u8>>,
    /// Locked until the engine is closed.
    lock: Option<DataLock>,
    /// The time of the last check.
    lock_seen: Millis,
}

/// The interval at which a serving engine checks whether the data directory is still its own.
const LOCK_LOOK: Millis = Millis(1_000);

/// The engine's description of itself.
#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    durability: String,
    deadline_ms: u64,
    ring_pools: usize,
    numbers: u64,
    batches: u64,
    rows: u64,
    allocated: u64,
    exhausted: u64,
    carried: u64,
    journal: &'static str,
    groups: u64,
    segment_bytes: u64,
    trouble: Option<&'a str>,
    notes: &'a [String],
}

impl Embedded {
    /// Locks the data directory, reads its files, and continues from them.
    ///
    /// # Errors
    /// The error, as text. Nothing has been changed then.
    pub(crate) fn open(options: &[u8]) -> Result<Self, String> {
        let Options { config, directory, durability } = Options::read(options)?;
        let has_files = durability != Durability::Memory;
        let lock = has_files.then(|| DataLock::acquire(&config.data)).transpose();
        let lock = lock.map_err(|error| error.to_string())?;
        let alone = open_alone(&config, &directory, durability).map_err(|e| e.to_string())?;
        let (doubts, boot) = (alone.doubts, alone.boot);
        let shard = Shard::new(alone, durability);
        let mut engine = Self {
            limits: rows::limits(&config),
            upkeep: Upkeep::new(config.journal.snapshot_every_bytes, &shard),
            shard,
            config,
            directory,
            durability,
            batch: Batch::default(),
            plans: Vec::new(),
            outcomes: Vec::new(),
            retry: None,
            notes: notes(&doubts),
            batches: 0,
            rows: 0,
            faults: 0,
            drill: std::env::var_os(DRILL).map(std::ffi::OsString::into_encoded_bytes),
            lock,
            lock_seen: Millis::ZERO,
        };
        // Holds because of doubts are in the open group.
        let _ = engine.shard.commit();
        match engine.upkeep.snapshot(&mut engine.shard) {
            // No record shows that lockouts were lengthened, so the snapshot must.
            Err(error) if doubts.lengthened.is_some() => {
                return Err(format!("the snapshot with the extended lockouts: {error}"));
            }
            Err(error) => engine.notes.push(format!("no snapshot: {error}")),
            // The hold is stored by now.
            Ok(()) if durability != Durability::Memory => {
                let data = &engine.config.data;
                unmark_restored(&OsFiles, data)
                    .and_then(|()| settle_unflushed(&OsFiles, data, durability, boot))
                    .map_err(|error| error.to_string())?;
            }
            Ok(()) => {}
        }
        Ok(engine)
    }

    /// The deadline of a batch without its own, in milliseconds.
    pub(crate) fn deadline_ms(&self) -> u64 {
        u64::try_from(self.config.deadline.as_millis()).unwrap_or(u64::MAX)
    }

    /// Reads a batch without changing anything. With `key` the batch is repeatable.
    ///
    /// # Errors
    /// [`RequestError`] if it is not a batch, or the key is too long.
    pub(crate) fn read(&mut self, body: &[u8], key: Option<&[u8]>) -> Result<(), RequestError> {
        self.retry = key.map_or(Ok(None), |key| rows::batch_digest(key, body))?;
        let limit = self.config.limits.body_bytes;
        if body.len() > limit {
            return Err(RequestError::TooLarge { limit });
        }
        self.batch.parse(Bytes::copy_from_slice(body), &self.limits)?;
        self.plans.clear();
        let (text, rows) = (self.batch.text(), self.batch.rows());
        self.plans.extend(rows::plans(&self.directory, &self.shard.engine, 0, text, rows));
        Ok(())
    }

    /// Answers the current batch, of `body_bytes` bytes. A batch that waits past its deadline gets
    /// overflow numbers.
    pub(crate) fn answer(&mut self, body_bytes: usize, deadline: Instant) -> Vec<u8> {
        let is_late = Instant::now() > deadline;
        let now = self.shard.now();
        self.check_lock(now);
        self.shard.retry();
        self.shard.make_room(body_bytes);
        self.outcomes.clear();
        self.outcomes.resize(self.plans.len(), Outcome::Refused(Refusal::Late));
        let served = catch_unwind(AssertUnwindSafe(|| is_late || self.serve(now)));
        let fault = served.err().map(|panic| self.report(panic.as_ref()));
        if fault.is_some() {
            // As in the server: the batch may be half applied.
            self.shard.give_up(now, Refusal::Late, &mut self.outcomes);
        }
        let stored = self.shard.commit();
        let is_too_late = Instant::now() > deadline + rows::LATE_MAX;
        let stored = if is_too_late { stored.and(Err(Refusal::Late)) } else { stored };
        if let Err(refusal) = stored {
            self.shard.give_up(now, refusal, &mut self.outcomes);
        }
        let out = self.render(fault);
        self.batches += 1;
        self.rows += self.plans.len() as u64;
        self.batch.clear();
        if let Err(trouble) = self.upkeep.step(&mut self.shard) {
            self.shard.trouble = Some(trouble);
        }
        out
    }

    /// Ends the journal if another process may be using the data directory by now.
    fn check_lock(&mut self, now: Millis) {
        let Some(lock) = self.lock.as_ref().filter(|_| now.since(self.lock_seen) >= LOCK_LOOK)
        else {
            return;
        };
        self.lock_seen = now;
        if !lock.is_held() {
            let path = lock.path().display();
            self.shard.fail(format!("{path} was removed or replaced: another process may serve"));
        }
    }

    /// Serves the rows; always returns `true`.
    fn serve(&mut self, now: Millis) -> bool {
        let retry = self.retry;
        let text = self.batch.text();
        if let Some(drill) = self.drill.as_deref().filter(|drill| !drill.is_empty()) {
            let is_chosen = text.windows(drill.len()).any(|part| part == drill);
            assert!(!is_chosen, "a drill: {DRILL} is in this batch");
        }
        let planned = Planned { text, rows: self.batch.rows(), plans: &self.plans, retry };
        rows::serve(&mut self.shard.engine, 0, now, &planned, &mut self.outcomes);
        true
    }

    /// Records an internal panic; the handle is in the answer and in [`Self::status`].
    fn report(&mut self, panic: &(dyn Any + Send)) -> u64 {
        self.faults += 1;
        // Unique enough to be found, and an integer as the API requires.
        let handle = self.shard.now().0 * 1000 + self.faults % 1000;
        self.shard.trouble = Some(format!("error handle {handle}: {}", text_of(panic)));
        handle
    }

    /// After an internal fault, every row names it.
    fn render(&mut self, fault: Option<u64>) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + ROW_ANSWER_BYTES * self.plans.len());
        let mut writer = BulkResponse::new(&mut out, self.batch.text());
        let rows = self.batch.rows().iter().zip(&self.plans).zip(&self.outcomes);
        for ((row, plan), outcome) in rows {
            let now = || self.shard.now();
            let (answer, _) = rows::answer(&self.directory, row, plan, *outcome, now);
            let of_fault =
                fault.map(|handle| ResponseRow::Error(RowError::InternalServiceError { handle }));
            writer.row(row.request_id, &of_fault.unwrap_or(answer));
        }
        writer.finish();
        out
    }

    /// Stores the groups that wait for room on the disk.
    ///
    /// # Errors
    /// The error.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if !self.shard.has_files() {
            return Ok(());
        }
        self.shard.store_pending().map_err(|_| self.trouble())
    }

    /// Takes a snapshot, so that the next start reads little.
    ///
    /// # Errors
    /// The file that could not be written. Then the previous one stays.
    pub(crate) fn snapshot(&mut self) -> Result<(), String> {
        self.upkeep.snapshot(&mut self.shard)
    }

    /// Stores the open group, takes a snapshot and unlocks the data directory.
    ///
    /// # Errors
    /// Some records are not stored. No answer depended on them.
    pub(crate) fn close(mut self) -> Result<(), String> {
        self.flush()?;
        // Without it the next start only reads more of the journal, unless that was not flushed.
        let is_flushed = self.snapshot().is_ok() || self.durability == Durability::Disk;
        if is_flushed && self.durability != Durability::Memory {
            end_unflushed(&OsFiles, &self.config.data).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// In a forked child: releases memory and files, and changes nothing, because everything
    /// belongs to the parent.
    pub(crate) fn abandon(self) {
        self.upkeep.abandon();
    }

    /// Its description and counts, as JSON.
    pub(crate) fn status(&self) -> Vec<u8> {
        let (counts, journal) = (self.shard.engine.counts(), self.shard.store.stats());
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            durability: self.durability.to_string(),
            deadline_ms: self.deadline_ms(),
            ring_pools: self.directory.pool_count(),
            numbers: self.directory.number_count(),
            batches: self.batches,
            rows: self.rows,
            allocated: counts.allocated,
            exhausted: counts.exhausted,
            carried: counts.carried,
            journal: match self.shard.engine.refusal() {
                None => "writing",
                Some(Refusal::JournalFull) => "full",
                Some(_) => "failed",
            },
            groups: journal.frames,
            segment_bytes: journal.segment_bytes,
            trouble: self.shard.trouble.as_deref(),
            notes: &self.notes,
        };
        // It contains only text and numbers, so it is always valid JSON.
        serde_json::to_vec(&status).unwrap_or_default()
    }

    fn trouble(&self) -> String {
        self.shard.trouble.clone().unwrap_or_else(|| NO_WRITES.to_owned())
    }
}

/// The text of a panic.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The operator's notes on the start.
fn notes(doubts: &Doubts) -> Vec<String> {
    let Doubts { lengthened, wall_less_shard, held_until } = doubts;
    let ahead = lengthened.map(|by| {
        format!(
            "the machine was booted since: lockouts from before last {} ms longer, because only \
                the wall clock shows how much time has passed",
            by.0
        )
    });
    let is_apart = wall_less_shard.unsigned_abs() > 1_000;
    let behind = is_apart.then(|| {
        format!("the wall clock is {wall_less_shard} ms ahead of this engine's time: it was set")
    });
    let held = held_until.map(|_| {
        "the last answered allocations may be lost: all pools give overflow numbers for one \
            lockout"
            .to_owned()
    });
    [ahead, behind, held].into_iter().flatten().collect()
}
