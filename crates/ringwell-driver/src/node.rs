//! The state that all shards of a process share: configuration, directory, and the state of the
//! node.

mod moved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ringwell_config::Config;
use ringwell_core::Millis;
use ringwell_directory::{BucketHolds, Directory, Owner, Owners};
use ringwell_journal::{Durability, Noted};
use ringwell_wire::Limits;
use tokio::sync::Notify;

use crate::lifetimes::Lifetimes;
use crate::lists::Lists;
use crate::membership::Membership;
use crate::platform::Moment;
use crate::rereads::Rereads;
use crate::rows;
use crate::store::SeenJournals;
use crate::store::{Gaps, OverflowPeriods};

/// The phase of the node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not ready for requests yet.
    Starting,
    /// Ready for requests.
    Serving,
    /// No longer ready: completes the requests that have begun.
    Draining,
}

/// The health of a shard's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// It stores groups.
    Writing,
    /// Its disk is full.
    Full,
    /// It has failed, and stores nothing until a restart.
    Failed,
    /// A group takes long to be stored.
    Waiting,
    /// Another process serves the shard.
    Taken,
}

/// The reason why a shard's rows get overflow numbers, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The time when it began.
    pub since: Moment,
    /// The store's error, or the reason for its wait.
    pub reason: String,
}

/// The known state of the part of a shard's history that was not read at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryState {
    /// It has not been read yet.
    Unread,
    /// All of it can be read.
    Whole,
    /// Some of it cannot.
    Damaged,
}

impl HistoryState {
    /// The displayed text.
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
    /// The displayed text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Full => "full",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
            Self::Taken => "taken",
        }
    }
}

/// The facts found in the data directory at startup.
#[derive(Debug, Default)]
pub struct Begun {
    /// Buckets that arrived without the lockouts of the previous owner.
    pub holds: BucketHolds,
    /// The name of the data directory at startup; empty if nothing is stored.
    pub identity: String,
    /// Whether nothing had been served from the data directory before.
    pub is_first: bool,
    /// The number of the next group of each shard's journal.
    pub journals: Vec<(u16, u64)>,
    /// The newest time that the journals record, by the wall clock; zero if they record none.
    pub recorded_until: Millis,
    /// The times in which answered allocations may be missing.
    pub gaps: Gaps,
    /// The periods in which numbers were overflow numbers.
    pub overflow_periods: OverflowPeriods,
    /// The clock readings that the journals of all shards have recorded.
    pub noted: Vec<Noted>,
    /// The lists of pools that are served.
    pub lists: Lists,
    /// The lists that this data has served before; `None` if it has served none.
    pub served_lists: Option<Lists>,
    /// The longest lifetimes of the pools that are served, and of those served before.
    pub lifetimes: Lifetimes,
    /// Buckets that this data has served after they had become another node's.
    pub stale: BTreeSet<u16>,
    /// Owners that took buckets back, because this node had not accepted them.
    pub abandoned: BTreeMap<u16, Owner>,
    /// Identifies the machine's boot.
    pub boot: u64,
    /// The time until which numbers that enter a pool may be locked by allocations that this data
    /// has lost.
    pub unknown_until: Millis,
}

/// Faults that tests inject.
#[derive(Clone, Debug, Default)]
pub struct Drills {
    /// A request that contains this text panics.
    pub panic_on: Option<Vec<u8>>,
    /// Rows that contain this text and that another shard owns panic on that shard.
    pub panic_at_owner_on: Option<Vec<u8>>,
}

/// Shared by all shards of the process.
#[derive(Debug)]
pub struct Node {
    /// The configuration.
    pub config: Config,
    directory: RwLock<Arc<Directory>>,
    /// The time when the directory was last confirmed to be current, in milliseconds; 0 if never.
    directory_seen_ms: AtomicU64,
    /// The owner of each bucket, in a cluster.
    owners: RwLock<Option<Owners>>,
    /// Buckets that arrived without the lockouts of the previous owner. Grows only while `changes`
    /// is held.
    bucket_holds: RwLock<BucketHolds>,
    /// The times in which answered allocations may be missing.
    gaps: RwLock<Gaps>,
    overflow_periods: RwLock<OverflowPeriods>,
    /// The name of the data directory, which changes if it turns out to be a copy.
    identity: RwLock<String>,
    /// Digests of the lists of pools that are served.
    lists: RwLock<Lists>,
    /// The longest lifetimes of these lists and of earlier ones.
    lifetimes: RwLock<Lifetimes>,
    /// Buckets that this node may have served after they had become another node's, until that node
    /// holds them.
    stale: RwLock<BTreeSet<u16>>,
    abandoned: RwLock<BTreeMap<u16, Owner>>,
    returned: RwLock<BTreeSet<u16>>,
    /// Buckets that this node owns according to others, but not according to its data.
    claimed: RwLock<BTreeSet<u16>>,
    /// Buckets whose pools have lost numbers since the start.
    shrunk: RwLock<BTreeSet<u16>>,
    /// Digests of the lists of buckets that this node can take.
    prepared: RwLock<BTreeMap<u16, Option<u64>>>,
    /// The facts found at startup.
    pub begun: Begun,
    /// The records about other nodes' journals, once they have been read.
    pub(crate) seen: tokio::sync::Mutex<Option<SeenJournals>>,
    /// Held while the directory or the owners change: one change at a time.
    pub changes: tokio::sync::Mutex<()>,
    /// Locked while buckets are handed over: one move at a time. Taken before `changes`.
    pub moves: tokio::sync::Mutex<()>,
    /// Requests to read the list of pools again.
    pub rereads: Rereads,
    /// Notified when released buckets have not been accepted by any node yet.
    pub is_leaving: Notify,
    /// The node's part in a cluster.
    pub membership: Option<Membership>,
    /// The durability that is required before an answer is sent.
    pub durability: Durability,
    /// Limits of a batch.
    pub wire_limits: Limits,
    drills: Drills,
    phase: AtomicU8,
    /// The shards of this process, in rising order, and the state of their journals.
    journals: Vec<(u16, AtomicU8)>,
    /// For each shard in the same order, the newest group that its log has stored since the start;
    /// zero if there is none, or no log.
    stored: Vec<AtomicU64>,
    /// The state of their histories, in the same order.
    histories: Vec<AtomicU8>,
    /// The reasons for states of journals other than [`JournalState::Writing`], in the same order.
    troubles: Vec<Mutex<Trouble>>,
    /// The moment until which pools of a shard are held, in milliseconds, in the same order.
    held_until_ms: Vec<AtomicU64>,
}

impl Node {
    /// A starting node. `opened` comes from its data directory: the owners of buckets in a cluster,
    /// and the findings of the opening.
    #[must_use]
    pub fn new(
        config: Config,
        directory: Directory,
        durability: Durability,
        shards: &[u16],
        membership: Option<Membership>,
        opened: (Option<Owners>, Begun),
    ) -> Self {
        let (owners, begun) = opened;
        let journals = shards.iter().map(|shard| (*shard, AtomicU8::new(0))).collect();
        let stored = shards.iter().map(|_| AtomicU64::new(0)).collect();
        let histories = shards.iter().map(|_| AtomicU8::new(0)).collect();
        let troubles = shards.iter().map(|_| Mutex::default()).collect();
        let held_until_ms = shards.iter().map(|_| AtomicU64::new(0)).collect();
        let wire_limits = rows::limits(&config);
        Self {
            config,
            directory: RwLock::new(Arc::new(directory)),
            directory_seen_ms: AtomicU64::new(0),
            owners: RwLock::new(owners),
            bucket_holds: RwLock::new(begun.holds.clone()),
            gaps: RwLock::new(begun.gaps.clone()),
            overflow_periods: RwLock::new(begun.overflow_periods.clone()),
            identity: RwLock::new(begun.identity.clone()),
            lists: RwLock::new(begun.lists.clone()),
            lifetimes: RwLock::new(begun.lifetimes),
            stale: RwLock::new(begun.stale.clone()),
            abandoned: RwLock::new(begun.abandoned.clone()),
            returned: RwLock::default(),
            claimed: RwLock::default(),
            shrunk: RwLock::default(),
            prepared: RwLock::default(),
            begun,
            seen: tokio::sync::Mutex::default(),
            changes: tokio::sync::Mutex::default(),
            moves: tokio::sync::Mutex::default(),
            rereads: Rereads::default(),
            is_leaving: Notify::new(),
            membership,
            durability,
            wire_limits,
            drills: Drills::default(),
            phase: AtomicU8::new(0),
            journals,
            stored,
            histories,
            troubles,
            held_until_ms,
        }
    }

    /// The newest state of the directory. Threads that answer rows have their own reference to it.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        // A panic while the lock is held leaves the data consistent.
        Arc::clone(&self.directory.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time since the directory was last confirmed to be current; `None` if it has no keeper.
    #[must_use]
    pub fn directory_age(&self, now: Moment) -> Option<Duration> {
        let at = self.directory_seen_ms.load(Ordering::Relaxed);
        (at > 0).then(|| now.since(Moment(Duration::from_millis(at))))
    }

    /// Records that the directory is confirmed to be current at `now`.
    pub fn directory_is_current(&self, now: Moment) {
        let ms = u64::try_from(now.0.as_millis()).unwrap_or(u64::MAX).max(1);
        self.directory_seen_ms.store(ms, Ordering::Relaxed);
    }

    /// Replaces the state of the directory.
    pub fn use_directory(&self, next: Arc<Directory>) {
        *self.directory.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// The buckets that arrived without the lockouts of their previous owner.
    #[must_use]
    pub fn bucket_holds(&self) -> BucketHolds {
        self.bucket_holds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value of [`Self::bucket_holds`].
    pub fn set_bucket_holds(&self, holds: BucketHolds) {
        *self.bucket_holds.write().unwrap_or_else(PoisonError::into_inner) = holds;
    }

    /// The times in which answered allocations may be missing from this node's journals.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        self.gaps.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value of [`Self::gaps`].
    pub fn set_gaps(&self, gaps: Gaps) {
        *self.gaps.write().unwrap_or_else(PoisonError::into_inner) = gaps;
    }

    /// Reads the periods in which numbers were overflow numbers, as this node has seen them. There
    /// may be many, so they are not copied.
    pub fn overflow_periods<T>(&self, read: impl FnOnce(&OverflowPeriods) -> T) -> T {
        read(&self.overflow_periods.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value of [`Self::overflow_periods`].
    pub fn set_overflow_periods(&self, periods: OverflowPeriods) {
        *self.overflow_periods.write().unwrap_or_else(PoisonError::into_inner) = periods;
    }

    /// The present name of the data directory; empty if nothing is stored.
    #[must_use]
    pub fn identity(&self) -> String {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value of [`Self::identity`].
    pub fn set_identity(&self, identity: String) {
        *self.identity.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    /// Digests of the lists of pools that this node serves.
    #[must_use]
    pub fn lists(&self) -> Lists {
        self.lists.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The longest lifetimes of the current list of pools and of earlier ones.
    #[must_use]
    pub fn lifetimes(&self) -> Lifetimes {
        *self.lifetimes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the value of [`Self::lifetimes`].
    pub fn set_lifetimes(&self, lifetimes: Lifetimes) {
        *self.lifetimes.write().unwrap_or_else(PoisonError::into_inner) = lifetimes;
    }

    /// Sets the lists of these buckets; returns whether that is a change.
    pub fn set_lists(&self, changed: &BTreeMap<u16, Option<u64>>) -> bool {
        let mut lists = self.lists.write().unwrap_or_else(PoisonError::into_inner);
        let before = lists.clone();
        for (bucket, list) in changed {
            match list {
                Some(list) => lists.insert(*bucket, *list),
                None => lists.remove(bucket),
            };
        }
        *lists != before
    }

    /// Whether pools of this bucket have lost numbers since the start.
    #[must_use]
    pub fn has_shrunk(&self, bucket: u16) -> bool {
        self.shrunk.read().unwrap_or_else(PoisonError::into_inner).contains(&bucket)
    }

    /// Records that pools of these buckets lose numbers.
    pub fn shrink(&self, buckets: &[u16]) {
        self.shrunk.write().unwrap_or_else(PoisonError::into_inner).extend(buckets);
    }

    /// Digests of the lists of buckets at the time when this node was asked whether it can take
    /// them.
    #[must_use]
    pub fn prepared(&self) -> BTreeMap<u16, Option<u64>> {
        self.prepared.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds to [`Self::prepared`].
    pub fn prepare(&self, lists: impl Iterator<Item = (u16, Option<u64>)>) {
        self.prepared.write().unwrap_or_else(PoisonError::into_inner).extend(lists);
    }

    /// Removes from [`Self::prepared`] buckets whose move has ended.
    pub fn unprepare(&self, buckets: impl Iterator<Item = u16>) {
        let mut prepared = self.prepared.write().unwrap_or_else(PoisonError::into_inner);
        for bucket in buckets {
            prepared.remove(&bucket);
        }
    }

    /// Makes requests fail on purpose.
    #[must_use]
    pub fn with_drills(self, drills: Drills) -> Self {
        Self { drills, ..self }
    }

    /// Panics if a test has chosen this request.
    pub fn fault_drill(&self, text: &[u8]) {
        panic_if(self.drills.panic_on.as_deref(), text);
    }

    /// Like [`Self::fault_drill`], for rows from another shard.
    pub fn owner_fault_drill(&self, text: &[u8]) {
        panic_if(self.drills.panic_at_owner_on.as_deref(), text);
    }

    /// Whether answers wait for the journal.
    #[must_use]
    pub fn answers_wait(&self) -> bool {
        self.durability != Durability::Memory
    }

    /// The phase of the node's life.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }

    /// Sets the phase of the node's life.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Sets the state of the journal of `shard`.
    pub fn set_journal(&self, shard: u16, state: JournalState) {
        if let Some((_, known)) = self.journals.iter().find(|(id, _)| *id == shard) {
            known.store(state as u8, Ordering::Relaxed);
        }
    }

    /// Records that the log of `shard` has stored everything up to `group`.
    pub fn set_stored(&self, shard: u16, group: u64) {
        if let Some(at) = self.shards().position(|id| id == shard) {
            self.stored[at].store(group, Ordering::Relaxed);
        }
    }

    /// The newest group that each shard's log has stored since the start; zero if there is none.
    pub fn stored(&self) -> impl Iterator<Item = u64> {
        self.stored.iter().map(|group| group.load(Ordering::Relaxed))
    }

    /// Records that the journal of `shard` has not stored since `now`, and the reason.
    pub fn set_trouble(&self, shard: u16, state: JournalState, reason: &str, now: Moment) {
        if let Some(at) = self.shards().position(|id| id == shard) {
            let trouble = Trouble { since: now, reason: reason.to_owned() };
            *self.troubles[at].lock().unwrap_or_else(PoisonError::into_inner) = trouble;
            self.set_journal(shard, state);
        }
    }

    /// The journals that do not store, by shard, and why.
    pub fn troubles(&self) -> impl Iterator<Item = (u16, JournalState, Trouble)> {
        let journals = self.journals().zip(&self.troubles);
        let journals = journals.filter(|((_, state), _)| *state != JournalState::Writing);
        journals.map(|((shard, state), trouble)| {
            let trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner);
            (shard, state, trouble.clone())
        })
    }

    /// Records that pools of `shard` are held, the longest of them for `left` from `now` on.
    pub fn set_held(&self, shard: u16, left: Millis, now: Moment) {
        if let Some(at) = self.shards().position(|id| id == shard) {
            let now_ms = u64::try_from(now.0.as_millis()).unwrap_or(u64::MAX);
            let until_ms = if left.0 == 0 { 0 } else { now_ms.saturating_add(left.0) };
            self.held_until_ms[at].store(until_ms, Ordering::Relaxed);
        }
    }

    /// The shards with held pools, and the time left at `now`.
    pub fn held(&self, now: Moment) -> impl Iterator<Item = (u16, Duration)> {
        self.shards().zip(&self.held_until_ms).filter_map(move |(shard, until_ms)| {
            let until = Moment(Duration::from_millis(until_ms.load(Ordering::Relaxed)));
            (until > now).then(|| (shard, until.since(now)))
        })
    }

    /// Sets the state of the history of `shard`.
    pub fn set_history(&self, shard: u16, state: HistoryState) {
        if let Some(at) = self.shards().position(|id| id == shard) {
            self.histories[at].store(state as u8, Ordering::Relaxed);
        }
    }

    /// The state of the histories, by shard.
    pub fn histories(&self) -> impl Iterator<Item = HistoryState> {
        self.histories.iter().map(|state| match state.load(Ordering::Relaxed) {
            0 => HistoryState::Unread,
            1 => HistoryState::Whole,
            _ => HistoryState::Damaged,
        })
    }

    /// The shards of this process, in rising order.
    pub fn shards(&self) -> impl Iterator<Item = u16> {
        self.journals.iter().map(|(shard, _)| *shard)
    }

    /// The states of the journals, by shard.
    pub fn journals(&self) -> impl Iterator<Item = (u16, JournalState)> {
        self.journals.iter().map(|(shard, state)| {
            let state = match state.load(Ordering::Relaxed) {
                0 => JournalState::Writing,
                1 => JournalState::Full,
                2 => JournalState::Failed,
                3 => JournalState::Waiting,
                _ => JournalState::Taken,
            };
            (*shard, state)
        })
    }
}

impl Node {
    /// The owner of each bucket; `None` without a cluster.
    #[must_use]
    pub fn owners(&self) -> Option<Owners> {
        self.owners.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value of [`Self::owners`].
    pub fn set_owners(&self, owners: Owners) {
        *self.owners.write().unwrap_or_else(PoisonError::into_inner) = Some(owners);
    }

    /// Whether `shard` belongs to this node.
    #[must_use]
    pub fn is_own(&self, shard: u16) -> bool {
        self.shards().any(|own| own == shard)
    }
}

fn panic_if(wanted: Option<&[u8]>, text: &[u8]) {
    if let Some(wanted) = wanted {
        let is_here = text.windows(wanted.len().max(1)).any(|window| window == wanted);
        assert!(!is_here, "a drill: this request was to fail");
    }
}
