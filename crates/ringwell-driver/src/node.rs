//! The state that all shards of a process share: the configuration, the directory, and the node's
//! state.

mod moved;
mod shard_state;
mod shards;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use ringwell_config::{Config, Durability};
use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::{BucketHolds, Directory, Owner, Owners};
use ringwell_journal::{Clocks, Noted};
use ringwell_wire::Limits;
use tokio::sync::Notify;

use crate::clock::{Clock, reading};
use crate::lifetimes::Lifetimes;
use crate::lists::Lists;
use crate::locks::{read, write};
use crate::membership::Membership;
use crate::platform::{Moment, Platform};
use crate::reload_requests::ReloadRequests;
use crate::rows;
use crate::store::{Dated, Dating, Gaps, OverflowPeriods, SeenJournals};
use crate::withheld::{self, Withheld};

use self::shard_state::ShardState;
pub use self::shard_state::{HistoryState, JournalState, Trouble};

/// The node's current phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not ready for requests yet.
    Starting,
    /// Ready for requests.
    Serving,
    /// No longer ready for new requests; the node completes the requests in progress.
    Draining,
}

/// The facts found in the data directory at startup.
#[derive(Debug, Default)]
pub struct Begun {
    /// The holds of buckets that arrived without their previous owner's lockouts.
    pub holds: BucketHolds,
    /// The name of the data directory at startup; empty if no data is stored.
    pub identity: String,
    /// Whether the data directory was new at startup, and the shards' logs, if any, were empty.
    pub is_first: bool,
    /// Whether an earlier process has written to the shards' logs. Its list of pools may be unknown
    /// here, because the data directory may be on another machine.
    pub has_past_in_log: bool,
    /// The number of the next group of each shard's journal.
    pub journals: Vec<(u16, u64)>,
    /// A wall-clock time up to which all shards' journals are complete; 0 if no journal contains a
    /// record.
    pub recorded_until: Dated,
    /// The periods for which answered allocations may be missing from the journals.
    pub gaps: Gaps,
    /// The periods in which numbers were overflow numbers.
    pub overflow_periods: OverflowPeriods,
    /// The overflow numbers that visitors may hold until the given times.
    pub withheld: Vec<(PromoNumber, Millis)>,
    /// Whether this node withholds overflow numbers that other nodes' visitors may hold.
    pub withholds_others: bool,
    /// The overflow numbers that were not overflow numbers in the list served last. Other nodes'
    /// visitors may hold them until the given times.
    pub doubted_overflow: Vec<(PromoNumber, Millis)>,
    /// The clock readings that are recorded in all shards' journals.
    pub noted: Vec<Noted>,
    /// The digests of the lists of pools that are now served.
    pub lists: Lists,
    /// The digests of the lists of pools that were served from this data directory before; `None`
    /// if none were.
    pub served_lists: Option<Lists>,
    /// The wall-clock time, in milliseconds, at which these lists were still served; `None` if it
    /// is unknown.
    pub served_at: Option<u64>,
    /// The owners of buckets when this data directory was last served; `None` if they are unknown.
    pub served_owners: Option<Owners>,
    /// The longest lifetimes of the pools that are served now, and of those that were served
    /// before.
    pub lifetimes: Lifetimes,
    /// Buckets that were served from this data directory although they already belonged to another
    /// node.
    pub stale: BTreeSet<u16>,
    /// Owners that took a bucket back, because this node had not accepted it.
    pub abandoned: BTreeMap<u16, Owner>,
    /// Identifies the machine's boot.
    pub boot: u64,
    /// Until this time, a number that enters a pool may be locked by an allocation that is missing
    /// from this data directory.
    pub unknown_until: Millis,
    /// This process has no records of allocations before this time, because nothing is stored. Zero
    /// if allocations are stored.
    pub forgotten_until: Millis,
}

/// Faults that tests inject.
#[derive(Clone, Debug, Default)]
pub struct Drills {
    /// A request that contains this text causes a panic.
    pub panic_on: Option<Vec<u8>>,
    /// A row that contains this text and belongs to another shard causes a panic on that shard.
    pub panic_at_owner_on: Option<Vec<u8>>,
}

/// The state that all shards of the process share.
#[derive(Debug)]
pub struct Node {
    /// The configuration.
    pub config: Config,
    directory: RwLock<Arc<Directory>>,
    /// The time when the directory was last confirmed to be current, in milliseconds; 0 if it never
    /// was.
    directory_seen_ms: AtomicU64,
    /// The owner of each bucket; `None` without a cluster.
    owners: RwLock<Option<Owners>>,
    /// The holds of buckets that arrived without their previous owner's lockouts. Holds are added
    /// only while `changes` is locked.
    bucket_holds: RwLock<BucketHolds>,
    /// The periods for which answered allocations may be missing from the journals.
    gaps: RwLock<Gaps>,
    overflow_periods: RwLock<OverflowPeriods>,
    /// The overflow numbers that visitors may still hold. Changes only while `changes` is locked.
    withheld: RwLock<Vec<Withheld>>,
    /// The name of the data directory. The name changes if the data directory turns out to be a
    /// copy.
    identity: RwLock<String>,
    /// Digests of the lists of pools that are now served.
    lists: RwLock<Lists>,
    /// Whether the startup has held the pools whose lists have changed.
    are_lists_checked: AtomicBool,
    /// The longest lifetimes in the current lists of pools and in earlier lists.
    lifetimes: RwLock<Lifetimes>,
    /// Buckets that this node may have served although they already belonged to another node. Each
    /// bucket stays in this set until its owner holds the bucket's pools.
    stale: RwLock<BTreeSet<u16>>,
    abandoned: RwLock<BTreeMap<u16, Owner>>,
    returned: RwLock<BTreeSet<u16>>,
    /// Buckets that belong to this node according to other nodes, but not according to this node's
    /// data.
    claimed: RwLock<BTreeSet<u16>>,
    /// The newest version of the map that another node has reported.
    newest_version: AtomicU64,
    /// For each bucket that this node has agreed to take, the digest of the bucket's list of pools.
    prepared: RwLock<BTreeMap<u16, Option<u64>>>,
    /// The facts found in the data directory at startup.
    pub begun: Begun,
    /// The records about other nodes' journals; `None` until the records have been read.
    pub(crate) seen: tokio::sync::Mutex<Option<SeenJournals>>,
    /// Locked while the directory or the owners change, so that there is one change at a time.
    pub changes: tokio::sync::Mutex<()>,
    /// Locked while buckets are handed over, so that there is one move at a time. Taken before
    /// `changes`.
    pub moves: tokio::sync::Mutex<()>,
    /// Requests to read the list of pools again from its source.
    pub reload_requests: ReloadRequests,
    /// Counts the list changes after which pools were held because another node may have handed out
    /// numbers that the pools received.
    pub(crate) held_changes: AtomicU64,
    /// Notified when there are released buckets that no node has accepted yet.
    pub is_leaving: Notify,
    /// This node's membership in a cluster, if there is one.
    pub membership: Option<Membership>,
    /// Limits of a batch.
    pub wire_limits: Limits,
    drills: Drills,
    /// The clock that all shards share, once there is a shard.
    clock: OnceLock<Clock>,
    phase: AtomicU8,
    /// This process's shards, in ascending order.
    shards: Vec<ShardState>,
}

impl Node {
    /// Creates a starting node. `opened` contains the facts that were read from the data directory
    /// and, in a cluster, the owners of the buckets.
    #[must_use]
    pub fn new(
        config: Config,
        directory: Directory,
        shards: &[u16],
        membership: Option<Membership>,
        opened: (Option<Owners>, Begun),
    ) -> Self {
        let (owners, begun) = opened;
        let wire_limits = rows::limits(&config);
        let (directory, withheld) =
            withheld::begin(directory, &begun.withheld, &begun.doubted_overflow);
        Self {
            config,
            directory: RwLock::new(Arc::new(directory)),
            directory_seen_ms: AtomicU64::new(0),
            owners: RwLock::new(owners),
            bucket_holds: RwLock::new(begun.holds.clone()),
            gaps: RwLock::new(begun.gaps.clone()),
            overflow_periods: RwLock::new(begun.overflow_periods.clone()),
            withheld: RwLock::new(withheld),
            identity: RwLock::new(begun.identity.clone()),
            lists: RwLock::new(begun.lists.clone()),
            are_lists_checked: AtomicBool::new(false),
            lifetimes: RwLock::new(begun.lifetimes),
            stale: RwLock::new(begun.stale.clone()),
            abandoned: RwLock::new(begun.abandoned.clone()),
            returned: RwLock::default(),
            claimed: RwLock::default(),
            newest_version: AtomicU64::default(),
            prepared: RwLock::default(),
            begun,
            seen: tokio::sync::Mutex::default(),
            changes: tokio::sync::Mutex::default(),
            moves: tokio::sync::Mutex::default(),
            reload_requests: ReloadRequests::default(),
            held_changes: AtomicU64::default(),
            is_leaving: Notify::new(),
            membership,
            wire_limits,
            drills: Drills::default(),
            clock: OnceLock::new(),
            phase: AtomicU8::new(0),
            shards: shards.iter().copied().map(ShardState::new).collect(),
        }
    }

    /// Returns the newest directory state. Threads that answer rows have their own references to
    /// the directory.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        Arc::clone(&read(&self.directory))
    }

    /// Returns the time since the directory was last confirmed to be current; `None` if it was
    /// never confirmed.
    #[must_use]
    pub fn directory_age(&self, now: Moment) -> Option<Duration> {
        let at = self.directory_seen_ms.load(Ordering::Relaxed);
        (at > 0).then(|| now.since(Moment(Duration::from_millis(at))))
    }

    /// Records that the directory was confirmed to be current at `now`.
    pub fn directory_is_current(&self, now: Moment) {
        let ms = u64::try_from(now.0.as_millis()).unwrap_or(u64::MAX).max(1);
        self.directory_seen_ms.store(ms, Ordering::Relaxed);
    }

    /// Replaces the directory state.
    pub fn use_directory(&self, next: Arc<Directory>) {
        *write(&self.directory) = next;
    }

    /// Returns the holds of buckets that arrived without their previous owner's lockouts.
    #[must_use]
    pub fn bucket_holds(&self) -> BucketHolds {
        read(&self.bucket_holds).clone()
    }

    /// Replaces the value that [`Self::bucket_holds`] returns.
    pub fn set_bucket_holds(&self, holds: BucketHolds) {
        *write(&self.bucket_holds) = holds;
    }

    /// Until this time, a number that enters a pool may be locked by an allocation that is missing
    /// from this node's journals. A number may have come from any bucket that is held because its
    /// lockouts are unknown.
    #[must_use]
    pub(crate) fn unknown_until(&self, now: Millis) -> Millis {
        let of_buckets = self.lifetimes().held_until(&read(&self.bucket_holds), now);
        self.begun.unknown_until.max(of_buckets)
    }

    /// Returns the periods for which answered allocations may be missing from this node's journals.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        read(&self.gaps).clone()
    }

    /// Replaces the value that [`Self::gaps`] returns.
    pub fn set_gaps(&self, gaps: Gaps) {
        *write(&self.gaps) = gaps;
    }

    /// Sets the clock that all shards share, unless it is already set.
    pub(crate) fn use_clock(&self, clock: &Clock) {
        self.clock.get_or_init(|| clock.clone());
    }

    /// Returns the current readings of all clocks, including the wall clock.
    pub fn clocks<P: Platform>(&self, platform: &P) -> Clocks {
        let (since_boot, wall) = (platform.boot_time(), platform.wall());
        match self.clock.get() {
            Some(clock) => clock.clocks(since_boot, wall),
            None => reading(self.begun.boot, since_boot, wall).resume(&[]),
        }
    }

    /// Returns the current time as a wall-clock time to be recorded.
    pub fn dated<P: Platform>(&self, platform: &P) -> Dated {
        let clocks = self.clocks(platform);
        let since_boot = reading(clocks.boot, platform.boot_time(), platform.wall()).since_boot;
        Dated::new(clocks.shard(since_boot), Some(clocks))
    }

    /// Returns the clocks used to date gaps and periods; `now` contains the current clocks.
    #[must_use]
    pub fn dating(&self, now: Clocks) -> Dating<'_> {
        Dating { now, noted: &self.begun.noted }
    }

    /// Calls `f` with the periods in which numbers were overflow numbers, as far as this node
    /// has recorded them. The periods are not copied, because there may be many.
    pub fn overflow_periods<T>(&self, f: impl FnOnce(&OverflowPeriods) -> T) -> T {
        f(&read(&self.overflow_periods))
    }

    /// Replaces the periods that [`Self::overflow_periods`] reads.
    pub fn set_overflow_periods(&self, periods: OverflowPeriods) {
        *write(&self.overflow_periods) = periods;
    }

    /// Returns the overflow numbers that their pools do not have yet.
    #[must_use]
    pub(crate) fn withheld(&self) -> Vec<Withheld> {
        read(&self.withheld).clone()
    }

    /// Whether there are such overflow numbers.
    #[must_use]
    pub fn withholds(&self) -> bool {
        !read(&self.withheld).is_empty()
    }

    /// Replaces the value that [`Self::withheld`] returns.
    pub(crate) fn set_withheld(&self, withheld: Vec<Withheld>) {
        *write(&self.withheld) = withheld;
    }

    /// Returns the current name of the data directory; empty if no data is stored.
    #[must_use]
    pub fn identity(&self) -> String {
        read(&self.identity).clone()
    }

    /// Replaces the value that [`Self::identity`] returns.
    pub fn set_identity(&self, identity: String) {
        *write(&self.identity) = identity;
    }

    /// Returns digests of the lists of pools that this node serves.
    #[must_use]
    pub fn lists(&self) -> Lists {
        read(&self.lists).clone()
    }

    /// Records that the startup has held the pools whose lists have changed.
    pub(crate) fn lists_are_checked(&self) {
        self.are_lists_checked.store(true, Ordering::Release);
    }

    /// Returns the lists to record in the data directory, and the time, in milliseconds of the wall
    /// clock, at which they were still served. Until the startup has held the pools whose lists
    /// have changed, these are the lists that were served before.
    pub(crate) fn recorded_lists(&self, wall: Duration) -> (Option<Lists>, Option<u64>) {
        let is_checked = self.are_lists_checked.load(Ordering::Acquire);
        if self.phase() == Phase::Starting && !is_checked {
            return (self.begun.served_lists.clone(), self.begun.served_at);
        }
        (Some(self.lists()), u64::try_from(wall.as_millis()).ok())
    }

    /// Returns the longest lifetimes in the current list of pools and in earlier lists.
    #[must_use]
    pub fn lifetimes(&self) -> Lifetimes {
        *read(&self.lifetimes)
    }

    /// Replaces the value that [`Self::lifetimes`] returns.
    pub fn set_lifetimes(&self, lifetimes: Lifetimes) {
        *write(&self.lifetimes) = lifetimes;
    }

    /// Sets the digests in `changed`, and returns whether any digest differs from its previous
    /// value.
    pub fn set_lists(&self, changed: &BTreeMap<u16, Option<u64>>) -> bool {
        let mut lists = write(&self.lists);
        let before = lists.clone();
        for (bucket, list) in changed {
            match list {
                Some(list) => lists.insert(*bucket, *list),
                None => lists.remove(bucket),
            };
        }
        *lists != before
    }

    /// Returns a digest for each bucket that this node has agreed to take. It is the digest of the
    /// bucket's list of pools at the time of the agreement.
    #[must_use]
    pub fn prepared(&self) -> BTreeMap<u16, Option<u64>> {
        read(&self.prepared).clone()
    }

    /// Adds digests to [`Self::prepared`].
    pub fn prepare(&self, lists: impl Iterator<Item = (u16, Option<u64>)>) {
        write(&self.prepared).extend(lists);
    }

    /// Removes from [`Self::prepared`] the buckets whose move has ended.
    pub fn unprepare(&self, buckets: impl Iterator<Item = u16>) {
        let mut prepared = write(&self.prepared);
        for bucket in buckets {
            prepared.remove(&bucket);
        }
    }

    /// Makes the requests that `drills` selects fail on purpose.
    #[must_use]
    pub fn with_drills(self, drills: Drills) -> Self {
        Self { drills, ..self }
    }

    /// Panics if a test has selected this request.
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
        self.config.durability != Durability::Memory
    }

    /// Returns the node's current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }

    /// Sets the node's phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Returns the owner of each bucket, or `None` without a cluster.
    #[must_use]
    pub fn owners(&self) -> Option<Owners> {
        read(&self.owners).clone()
    }

    /// Replaces the value that [`Self::owners`] returns.
    pub fn set_owners(&self, owners: Owners) {
        *write(&self.owners) = Some(owners);
    }

    /// Returns one shard of each other node of the cluster.
    pub(crate) fn others(&self) -> Vec<u16> {
        self.membership.iter().flat_map(Membership::first_shards_of_others).collect()
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
        assert!(!is_here, "drill: a test selected this request for a panic");
    }
}
