//! The engine of one data directory, which can be opened, used and closed.
//!
//! The driver does the work on the calling thread. Invariant: nothing outside an engine refers to
//! its parts.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::Durability;
use ringwell_directory::Directory;
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::clock::{Clock, WALL_APART_WARNED};
use ringwell_driver::maintenance::task as maintenance;
use ringwell_driver::node::{Drills, Node};
use ringwell_driver::open::{self, Begun, Believed, Opened, Start, shards_on_disk};
use ringwell_driver::queue::Peers;
use ringwell_driver::stats::Kind;
use ringwell_driver::store::{Inline, KeptNotes, Settings, Store};
use ringwell_driver::{Moment, Platform, lifecycle, rows, writer};
use ringwell_engine::{Doubts, Reading, Refusal};
use ringwell_os::clock::reading;
use ringwell_os::{DataLock, OsFiles};
use ringwell_wire::{Batch, RequestError};
use serde::Serialize;

use crate::caller::Caller;
use crate::options::Options;

/// The environment variable for drills. A batch that contains the variable's value causes a panic,
/// as in the server.
const DRILL: &str = "RINGWELL_DRILL_PANIC_ON";

/// The minimum interval between two checks that an engine still owns its data directory.
const LOCK_LOOK: Duration = Duration::from_secs(1);

/// The id of the only shard.
const SHARD: u16 = 0;

type Shard = ringwell_driver::Shard<Caller>;

/// An engine with its files.
#[derive(Debug)]
pub(crate) struct Embedded {
    caller: Caller,
    shard: Rc<Shard>,
    store: Rc<Inline<OsFiles>>,
    /// Notes on corrections for a wrong clock or a damaged file, made when the engine was opened.
    notes: Vec<String>,
    /// The lock of the data directory, held until the engine is closed.
    lock: Option<DataLock>,
    /// The time at which the lock was last checked.
    lock_seen: Moment,
}

/// The description of the engine that callers can query.
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
    trouble: Option<String>,
    notes: &'a [String],
}

impl Embedded {
    /// Locks the data directory, reads its files, and continues from their state.
    ///
    /// # Errors
    /// Returns the reason for the failure as text. Nothing was changed, unless the reason is that a
    /// snapshot could not be written.
    pub(crate) fn open(options: &[u8]) -> Result<Self, String> {
        let panic_on = std::env::var_os(DRILL).map(std::ffi::OsString::into_encoded_bytes);
        Self::open_with(options, panic_on)
    }

    /// Like [`Self::open`], but a batch that contains `panic_on` causes a panic.
    pub(crate) fn open_with(options: &[u8], panic_on: Option<Vec<u8>>) -> Result<Self, String> {
        let Options { config, directory } = Options::read(options)?;
        let has_files = config.durability != Durability::Memory;
        // With durability `memory`, there may be no data directory, and none is created.
        let is_locked = has_files || config.data.is_dir();
        let lock = is_locked.then(|| DataLock::acquire(&config.data)).transpose();
        let lock = lock.map_err(|error| error.to_string())?;
        let settings = Settings::of(&config, &directory);
        let reading = reading();
        let believed = Believed::of(&config, reading.boot);
        let mut begun = begin(&settings, &directory, reading, believed)?;
        let clock = Clock::going_on(begun.clocks, reading.since_boot);
        let Opened { engine, store, doubts, .. } = begun.shards.pop().ok_or("there is no shard")?;
        let node = Node::new(config, directory, &[SHARD], None, (None, begun.facts));
        let (node, caller) = (
            Arc::new(node.with_drills(Drills { panic_on, ..Drills::default() })),
            Caller::default(),
        );
        let shard = Shard::new(SHARD, node, caller.clone(), engine, clock, Peers::default());
        let shard = Rc::new(shard);
        let is_lengthened = doubts.lengthened.is_some();
        let store = start(&shard, store, is_lengthened)?;
        lifecycle::unmark(&OsFiles, &shard.node);
        let notes = notes(&doubts).chain(shard.last_failure()).collect();
        let lock_seen = caller.moment();
        Ok(Self { caller, shard, store, notes, lock, lock_seen })
    }

    /// Returns the time by which a batch that arrived at `from` must be answered. This is the
    /// configured deadline, or the batch's own deadline if that is sooner.
    pub(crate) fn deadline(&self, from: Moment, own_ms: u64) -> Moment {
        let configured = self.shard.node.config.deadline;
        let own = Some(own_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
        from + own.map_or(configured, |own| own.min(configured))
    }

    /// Answers a batch. With a `key`, the batch can be repeated.
    ///
    /// # Errors
    /// [`RequestError`] if `body` is not a batch or the key is too long. In this case, nothing was
    /// changed.
    pub(crate) fn answer(
        &mut self,
        body: &[u8],
        key: Option<&[u8]>,
        deadline: Moment,
    ) -> Result<Vec<u8>, RequestError> {
        self.check_lock();
        let retry = key.map_or(Ok(None), |key| rows::batch_digest(key, body))?;
        let node = &self.shard.node;
        let limit = node.config.limits.body_bytes;
        if body.len() > limit {
            return Err(RequestError::TooLarge { limit });
        }
        let terms = Terms { retry, deadline, traced: None };
        let read = |batch: &mut Batch| batch.parse(Bytes::copy_from_slice(body), &node.wire_limits);
        let render = |answered: &Answered<'_>| answered.bulk();
        self.caller.run(batch::answer(&self.shard, Kind::Bulk, &terms, read, render))
    }

    /// Stops the journal if another process may now be using the data directory.
    fn check_lock(&mut self) {
        let now = self.caller.moment();
        let is_due = now.since(self.lock_seen) >= LOCK_LOOK;
        let Some(lock) = self.lock.as_ref().filter(|_| is_due) else { return };
        self.lock_seen = now;
        if !lock.is_held() {
            let path = lock.path().display();
            self.shard.journal_failed(&format!(
                "{path} was removed or replaced: another process may be using the data"
            ));
            self.caller.end();
        }
    }

    /// Stores the groups that are waiting for free space on the disk.
    ///
    /// # Errors
    /// Returns the reason for the failure as text.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        self.shard.retry.notify_waiters();
        if self.shard.node.answers_wait() {
            self.shard.commit_soon();
        }
        self.caller.settle();
        let refusal = self.shard.engine.borrow().refusal();
        if refusal.is_none() && (self.shard.is_stored() || !self.shard.node.answers_wait()) {
            return Ok(());
        }
        Err(self.trouble().unwrap_or_else(|| "the journal does not accept writes".to_owned()))
    }

    /// Takes a snapshot, so that less of the journal must be read when the engine is next opened.
    ///
    /// # Errors
    /// Returns a message with the name of the file that could not be written. In this case, the
    /// previous snapshot is kept.
    pub(crate) fn snapshot(&mut self) -> Result<(), String> {
        self.flush()?;
        if !self.is_in_files() {
            return Ok(());
        }
        self.caller.run(maintenance::snapshot(&self.shard, &*self.store))
    }

    /// Stores the open group, takes a snapshot and unlocks the data directory.
    ///
    /// # Errors
    /// Returns a message if some records could not be stored. No answer that depends on these
    /// records has been returned to the caller.
    pub(crate) fn close(mut self) -> Result<(), String> {
        self.flush()?;
        if self.is_in_files() && self.caller.run(lifecycle::save(&self.shard, &*self.store)) {
            lifecycle::end(&OsFiles, &self.shard.node);
        }
        Ok(())
    }

    fn is_in_files(&self) -> bool {
        matches!(*self.store, Inline::Left(_))
    }

    /// Abandons an engine in a forked child: releases the child's copy of the lock, and leaks
    /// everything else. If the tasks were dropped, they would remove their unfinished files, which
    /// belong to the parent.
    pub(crate) fn abandon(mut self) {
        drop(self.lock.take());
        std::mem::forget(self);
    }

    /// Returns the engine's description and counts, as JSON.
    pub(crate) fn status(&self) -> Vec<u8> {
        let Shard { node, stats, engine, .. } = &*self.shard;
        let (directory, counts) = (node.directory(), engine.borrow().counts());
        let journal = self.store.stats();
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            durability: node.config.durability.to_string(),
            deadline_ms: u64::try_from(node.config.deadline.as_millis()).unwrap_or(u64::MAX),
            ring_pools: directory.pool_count(),
            numbers: directory.number_count(),
            batches: stats.batches.get(),
            rows: stats.rows.get(),
            allocated: counts.allocated,
            exhausted: counts.exhausted,
            carried: counts.carried,
            journal: match engine.borrow().refusal() {
                None => "writing",
                Some(Refusal::JournalFull) => "full",
                Some(_) => "failed",
            },
            groups: journal.frames,
            segment_bytes: journal.segment_bytes,
            trouble: self.trouble(),
            notes: &self.notes,
        };
        // The status contains only text and numbers, so the conversion to JSON cannot fail.
        serde_json::to_vec(&status).unwrap_or_default()
    }

    /// Returns the reason why the journal currently stores nothing. If the journal is working,
    /// returns its last failure, if any.
    fn trouble(&self) -> Option<String> {
        let trouble = self.shard.node.troubles().next();
        trouble.map(|(.., trouble)| trouble.reason).or_else(|| self.shard.last_failure())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // Breaks a reference cycle between the shard and its tasks.
        self.caller.end();
    }
}

/// Opens the engine's only shard. If the data directory contains journals of other shards, merges
/// their lockouts into this shard and leaves their files unchanged.
fn begin(
    settings: &Settings,
    directory: &Directory,
    reading: Reading,
    believed: Believed,
) -> Result<Begun<OsFiles>, String> {
    let has_data = !settings.data.as_os_str().is_empty();
    let on_disk = has_data.then(|| shards_on_disk(&OsFiles, &settings.data)).transpose();
    let on_disk = on_disk.map_err(|error| error.to_string())?.unwrap_or_default();
    let read = |shard| {
        let specs = open::specs(directory.pools_of(shard));
        open::read(&OsFiles, settings, shard, &specs, believed)
    };
    let reads = (0..=on_disk.iter().copied().max().unwrap_or_default()).map(read);
    let reads = reads.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let start = Start {
        files: &OsFiles,
        settings,
        directory,
        reading,
        on_disk: &on_disk,
        has_log: false,
        noted: &KeptNotes::default(),
        last_owner: None,
        member: None,
        withholds: false,
        only: Some(SHARD),
    };
    let begun = open::begin(reads, &start).map_err(|error| error.to_string())?;
    open::report_copied(settings, begun.copied);
    Ok(begun)
}

/// Starts the shard's tasks. Takes a snapshot, as the server does at startup.
///
/// # Errors
/// Returns a message if lockouts were extended and the snapshot that must contain them could not be
/// written.
fn start(
    shard: &Rc<Shard>,
    store: Inline<OsFiles>,
    is_lengthened: bool,
) -> Result<Rc<Inline<OsFiles>>, String> {
    let (caller, store) = (&shard.platform, Rc::new(store));
    caller.spawn(writer::run(Rc::clone(shard), Rc::clone(&store)));
    let begun = caller.run(lifecycle::begin_shard(shard, &*store, is_lengthened));
    if let Err(error) = begun {
        caller.end();
        return Err(format!(
            "the snapshot with the extended lockouts could not be written: {error}"
        ));
    }
    caller.spawn(maintenance::run(Rc::clone(shard), Rc::clone(&store)));
    Ok(store)
}

/// Returns notes for the operator on the corrections that were made when the engine was opened.
fn notes(doubts: &Doubts) -> impl Iterator<Item = String> + use<> {
    let Doubts { lengthened, wall_less_shard, held_until } = *doubts;
    let ahead = lengthened.map(|by| {
        format!(
            "the machine was rebooted: earlier lockouts are extended by {} ms, because only \
                the wall clock shows how much time has passed",
            by.0
        )
    });
    let is_apart = wall_less_shard.unsigned_abs() > WALL_APART_WARNED.0;
    let behind = is_apart.then(|| {
        format!(
            "the wall clock was set, or is wrong: it is ahead of this engine's time by \
            {wall_less_shard} ms (behind if negative)"
        )
    });
    let held = held_until.map(|_| {
        "the last answered allocations may be lost: all pools answer with overflow numbers for one \
        lockout"
            .to_owned()
    });
    [ahead, behind, held].into_iter().flatten()
}
