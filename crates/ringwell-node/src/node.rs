//! What all threads of the process share: configuration, directory, and how the node is.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ringwell_directory::{BucketHolds, Config, Directory, Owners};
use ringwell_journal::Durability;
use ringwell_wire::Limits;
use tokio::sync::Notify;

use crate::Membership;
use crate::application::Application;
use crate::clock::coarse_time;
use crate::disk::SeenJournals;
use crate::memory::{Bodies, bodies_bytes};
use crate::rows;
use crate::secure::Secure;
use crate::site::Sites;

/// Where the node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not in rotation yet.
    Starting,
    /// In rotation.
    Serving,
    /// Out of rotation: answers what has begun.
    Draining,
}

/// How a shard's journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// It takes what it is given.
    Writing,
    /// The disk is full.
    Full,
    /// It takes nothing until a restart.
    Failed,
}

/// What is known of the part of a shard's history that the start did not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryState {
    /// Nothing yet.
    Unread,
    /// All of it can be read.
    Whole,
    /// Some of it cannot be read.
    Damaged,
}

impl HistoryState {
    /// As answers call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Whole => "whole",
            Self::Damaged => "damaged",
        }
    }
}

impl JournalState {
    /// As answers call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Full => "full",
            Self::Failed => "failed",
        }
    }
}

/// What a start found in the data directory.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// Buckets that came without the lockouts of the owner before.
    pub(crate) holds: BucketHolds,
    /// The name of the data directory; empty if nothing is stored.
    pub(crate) identity: String,
    /// Nothing had been served from it before.
    pub(crate) is_first: bool,
    /// The number of the next group of each shard's journal.
    pub(crate) journals: Vec<(u16, u64)>,
}

/// Shared by all threads.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: Config,
    directory: RwLock<Arc<Directory>>,
    /// When the directory was last seen to be current, by the monotonic clock; 0: never.
    directory_seen_ms: AtomicU64,
    pub(crate) application: Option<Arc<Application>>,
    pub(crate) sites: Sites,
    /// For clients that come over TLS.
    pub(crate) secure: Option<Secure>,
    /// Which shard owns which bucket, in a cluster.
    pub(crate) owners: RwLock<Option<Owners>>,
    /// Buckets that came without the lockouts of the owner before. Grows only while `changes` is held.
    bucket_holds: RwLock<BucketHolds>,
    /// What the start found.
    pub(crate) begun: Begun,
    /// What is known of other nodes' journals, once it has been read.
    pub(crate) seen: tokio::sync::Mutex<Option<SeenJournals>>,
    /// Held while the directory or the owners change: one change at a time.
    pub(crate) changes: tokio::sync::Mutex<()>,
    /// Held while buckets are given away: one move at a time. Taken before `changes`.
    pub(crate) moves: tokio::sync::Mutex<()>,
    /// Told when buckets are given up that nobody has taken yet.
    pub(crate) is_leaving: Notify,
    pub(crate) membership: Option<Membership>,
    pub(crate) durability: Durability,
    pub(crate) wire_limits: Limits,
    /// What bodies of clients may take.
    pub(crate) bodies: Bodies,
    /// A drill for tests: a request that contains this text fails by a panic.
    panic_on: Option<Vec<u8>>,
    /// The same for rows that another shard owns, on that shard.
    panic_at_owner_on: Option<Vec<u8>>,
    phase: AtomicU8,
    /// The shards of this process, in rising order, and how their journals are.
    journals: Vec<(u16, AtomicU8)>,
    /// What is known of their histories, in the same order.
    histories: Vec<AtomicU8>,
}

impl Node {
    pub(crate) fn new(
        config: Config,
        directory: Directory,
        durability: Durability,
        shards: &[u16],
        membership: Option<Membership>,
        (owners, begun): (Option<Owners>, Begun),
    ) -> Self {
        let journals = shards.iter().map(|shard| (*shard, AtomicU8::new(0))).collect();
        let histories = shards.iter().map(|_| AtomicU8::new(0)).collect();
        let data = (durability != Durability::Memory).then_some(config.data.as_path());
        let application = config.application.clone();
        let application = application.map(|it| Arc::new(Application::new(it, data)));
        let wire_limits = rows::limits(&config);
        let limits = &config.limits;
        let bodies = limits.bodies_bytes.unwrap_or_else(|| bodies_bytes(limits.body_bytes));
        let bodies = Bodies::new(bodies);
        Self {
            config,
            directory: RwLock::new(Arc::new(directory)),
            application,
            sites: Sites::default(),
            secure: None,
            directory_seen_ms: AtomicU64::new(0),
            owners: RwLock::new(owners),
            bucket_holds: RwLock::new(begun.holds.clone()),
            begun,
            seen: tokio::sync::Mutex::default(),
            changes: tokio::sync::Mutex::default(),
            moves: tokio::sync::Mutex::default(),
            is_leaving: Notify::new(),
            membership,
            durability,
            wire_limits,
            bodies,
            panic_on: drill("RINGWELL_DRILL_PANIC_ON"),
            panic_at_owner_on: drill("RINGWELL_DRILL_PANIC_AT_OWNER_ON"),
            phase: AtomicU8::new(0),
            journals,
            histories,
        }
    }

    /// The newest state of the directory. A thread that answers rows has its own way to it.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        // Nobody panics while holding it: what is in it is whole.
        Arc::clone(&self.directory.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long ago the directory was seen to be as whoever keeps it has it; `None` if nobody does.
    pub(crate) fn directory_age(&self) -> Option<Duration> {
        let at = self.directory_seen_ms.load(Ordering::Relaxed);
        (at > 0).then(|| coarse_time().saturating_sub(Duration::from_millis(at)))
    }

    pub(crate) fn directory_is_current(&self) {
        let ms = u64::try_from(coarse_time().as_millis()).unwrap_or(u64::MAX).max(1);
        self.directory_seen_ms.store(ms, Ordering::Relaxed);
    }

    pub(crate) fn use_directory(&self, next: Arc<Directory>) {
        *self.directory.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Which buckets came without the lockouts of the owner before.
    pub(crate) fn bucket_holds(&self) -> BucketHolds {
        self.bucket_holds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_bucket_holds(&self, holds: BucketHolds) {
        *self.bucket_holds.write().unwrap_or_else(PoisonError::into_inner) = holds;
    }

    /// Panics if this request is the one that a test has chosen (`RINGWELL_DRILL_PANIC_ON`).
    pub(crate) fn fault_drill(&self, text: &[u8]) {
        panic_if(self.panic_on.as_deref(), text);
    }

    /// As [`Self::fault_drill`], for rows that came from another shard
    /// (`RINGWELL_DRILL_PANIC_AT_OWNER_ON`).
    pub(crate) fn owner_fault_drill(&self, text: &[u8]) {
        panic_if(self.panic_at_owner_on.as_deref(), text);
    }

    /// Whether answers wait for the journal.
    pub(crate) fn answers_wait(&self) -> bool {
        self.durability != Durability::Memory
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_journal(&self, shard: u16, state: JournalState) {
        if let Some((_, known)) = self.journals.iter().find(|(id, _)| *id == shard) {
            known.store(state as u8, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_history(&self, shard: u16, state: HistoryState) {
        if let Some(at) = self.shards().position(|id| id == shard) {
            self.histories[at].store(state as u8, Ordering::Relaxed);
        }
    }

    /// What is known of the histories, by shard.
    pub(crate) fn histories(&self) -> impl Iterator<Item = HistoryState> {
        self.histories.iter().map(|state| match state.load(Ordering::Relaxed) {
            0 => HistoryState::Unread,
            1 => HistoryState::Whole,
            _ => HistoryState::Damaged,
        })
    }

    /// The shards of this process, in rising order.
    pub(crate) fn shards(&self) -> impl Iterator<Item = u16> {
        self.journals.iter().map(|(shard, _)| *shard)
    }

    /// The states of the journals, by shard.
    pub(crate) fn journals(&self) -> impl Iterator<Item = (u16, JournalState)> {
        self.journals.iter().map(|(shard, state)| {
            let state = match state.load(Ordering::Relaxed) {
                0 => JournalState::Writing,
                1 => JournalState::Full,
                _ => JournalState::Failed,
            };
            (*shard, state)
        })
    }
}

fn drill(variable: &str) -> Option<Vec<u8>> {
    std::env::var(variable).ok().map(String::into_bytes)
}

fn panic_if(wanted: Option<&[u8]>, text: &[u8]) {
    if let Some(wanted) = wanted {
        let is_here = text.windows(wanted.len().max(1)).any(|window| window == wanted);
        assert!(!is_here, "a drill: this request was to fail");
    }
}
