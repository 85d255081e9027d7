//! The store of a shard whose groups are in a log shared by several machines. Files on this machine
//! mirror the log.
//!
//! Determines the order of storing and mirroring. A group counts as stored once the log has it, and
//! is mirrored before the next group is stored. The mirror serves look-ups and snapshots. At the
//! next startup, it shows which messages the log must contain. Invariant: every group in the mirror
//! was first stored in the log. Source: docs/spec/log.md.

mod appending;
mod end;
pub(super) mod error;
mod interface;
mod notes;
mod numbered;
mod places;
mod reached;
mod reader;
mod slowness;
mod snapshot_store;
mod standby;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_core::Millis;
use ringwell_journal::{Author, Clocks, Group, GroupHeader, Packer, encode_packed_message};

use super::files::FileError;
use super::interface::{Appended, Part, Store};
use super::stats::Stats;
use crate::platform::{Moment, Platform};

pub(crate) use appending::STALE_MAX;
pub use appending::{Appending, Ask, Before, Fate};
pub use end::{LogEnd, Peak, Reached};
pub use error::{NotAppended, Unreached};
pub use interface::{LastHeartbeat, LastOwner, Log, Logs, SharedLog, Sign, SnapshotStore, Waiting};
pub use notes::{FoundLog, KeptNotes, LogNotes, lost_logs};
pub use numbered::Numbered;
pub use places::Places;
pub use reached::reached_ends;
pub use reader::LogReader;
use slowness::Slowness;
use snapshot_store::LogSnapshots;
pub use snapshot_store::{Index as SnapshotIndex, LogDraft, Prefix, indexes};
pub use standby::{APART, BEAT_EVERY, Beat, Fenced, Silence};

/// A log that takes longer than this to store a group has lost its leader or has slow servers. Rows
/// do not wait for such a log.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// If no group has been stored for this long, the log may have lost its newest groups, and another
/// process may have appended other groups in their place.
const IDLE: Duration = Duration::from_secs(1);

/// The pause before the next attempt to store a group in the mirror, if the mirror was full.
const MIRROR_RETRY: Duration = Duration::from_millis(250);

/// The time for which snapshots count as readable after they were read back. Snapshots are large: a
/// shard with a million numbers has two of 54 MiB each.
const READ_BACK_FOR: Duration = Duration::from_mins(1);

/// The maximum number of groups that one trim drops from the part of the log before the mirror.
const PREFIX_GROUPS: u64 = 1_024;

/// Stores groups in a log first, and then in the mirror.
#[derive(Debug)]
pub struct LogStore<L, M, P> {
    log: L,
    mirror: M,
    platform: P,
    author: Author,
    packer: RefCell<Packer>,
    /// The snapshots beside the log; if `None`, the log is never trimmed.
    snapshots: Option<LogSnapshots>,
    prefix: Cell<Prefix>,
    limits: HistoryLimits,
    /// The time when a group was last stored; `None` if none was stored since the shard was opened.
    stored_at: Cell<Option<Moment>>,
    slowness: Cell<Slowness>,
    /// The places of the snapshots that were last read back, and the time when that happened.
    read_back: RefCell<Option<(Vec<u64>, Moment)>>,
}

/// Limits on the history that is kept.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// History beyond this size may be dropped.
    pub bytes: u64,
    /// History older than this may be dropped.
    pub age: Option<Millis>,
}

impl<L: Log, M: Store, P: Platform> LogStore<L, M, P> {
    /// Creates a store that continues at the end of `mirror`. `author` must have taken the shard
    /// over.
    pub fn new(log: L, mirror: M, platform: P, author: Author) -> Self {
        Self {
            log,
            mirror,
            platform,
            author,
            packer: RefCell::default(),
            snapshots: None,
            prefix: Cell::default(),
            limits: HistoryLimits { bytes: u64::MAX, age: None },
            stored_at: Cell::new(None),
            slowness: Cell::default(),
            read_back: RefCell::default(),
        }
    }

    /// Adds `snapshots`; `kept` contains its newest indexes, with their places. History
    /// beyond `limits` is then dropped from the log, too.
    #[must_use]
    pub fn with_snapshots(
        self,
        snapshots: Arc<dyn SnapshotStore>,
        kept: Vec<(u64, SnapshotIndex)>,
        prefix: Prefix,
        limits: HistoryLimits,
    ) -> Self {
        let Author { shard, journal, .. } = self.author;
        let places = self.log.places();
        let snapshots = Some(LogSnapshots::new(snapshots, shard, journal, kept, places));
        Self { snapshots, prefix: Cell::new(prefix), limits, ..self }
    }

    /// Returns the oldest groups that are in the log but not in the mirror, if they may be dropped.
    fn expired_prefix(&self, now: Millis) -> Option<Part> {
        let needed_from = self.snapshots.as_ref()?.needed_from();
        let Prefix { first_n, copied_n, bytes, last_at } = self.prefix.get();
        let groups = copied_n.saturating_sub(first_n);
        let next_n = copied_n.min(needed_from).min(first_n + PREFIX_GROUPS);
        let is_old = self.limits.age.is_some_and(|age| now.since(last_at) > age);
        if next_n <= first_n || !(is_old || self.is_too_large()) {
            return None;
        }
        let share = u128::from(bytes) * u128::from(next_n - first_n) / u128::from(groups.max(1));
        let bytes = u64::try_from(share).unwrap_or(bytes);
        Some(Part { first_n, next_n, bytes, last_at })
    }

    fn is_too_large(&self) -> bool {
        let copied_bytes = self.mirror.stats().segment_bytes;
        self.prefix.get().bytes.saturating_add(copied_bytes) > self.limits.bytes
    }

    /// Drops the groups before `before` from the log, except for those that a snapshot needs. These
    /// groups must already have been dropped from the mirror.
    async fn trim(&self, before: u64, bytes: u64) {
        let Some(snapshots) = &self.snapshots else { return };
        let mut prefix = self.prefix.get();
        if before.min(snapshots.needed_from()) > prefix.first_n {
            self.read_snapshots_back(snapshots).await;
        }
        let first_n = before.min(snapshots.needed_from());
        if first_n > prefix.first_n && self.are_snapshots_read(snapshots) {
            match self.log.trim(first_n).await {
                Ok(()) => {
                    prefix.first_n = first_n;
                    prefix.bytes = prefix.bytes.saturating_sub(bytes);
                }
                Err(error) => {
                    tracing::warn!(shard = self.author.shard, %error, "the journal's log cannot be \
                        trimmed yet");
                }
            }
        }
        if prefix.first_n >= prefix.copied_n {
            prefix.bytes = 0;
        }
        self.prefix.set(prefix);
    }

    /// Whether the kept snapshots were read back a short time ago.
    fn are_snapshots_read(&self, snapshots: &LogSnapshots) -> bool {
        let now = self.platform.moment();
        let is_new = |(places, at): &(Vec<u64>, Moment)| {
            *places == snapshots.places() && now.since(*at) < READ_BACK_FOR
        };
        self.read_back.borrow().as_ref().is_some_and(is_new)
    }

    /// Reads the kept snapshots back. If one of them is damaged, the log is not trimmed.
    async fn read_snapshots_back(&self, snapshots: &LogSnapshots) {
        if self.are_snapshots_read(snapshots) {
            return;
        }
        let reading = snapshots.clone();
        let read = self.platform.offload(move || reading.drop_damaged()).await;
        match read {
            Some(Ok(())) => {
                let now = self.platform.moment();
                *self.read_back.borrow_mut() = Some((snapshots.places(), now));
            }
            Some(Err(error)) => {
                let shard = self.author.shard;
                tracing::warn!(shard, %error, "the snapshots beside the journal's log cannot be \
                    read back yet");
            }
            // `None` means that the process is stopping.
            None => {}
        }
    }

    /// Records when a group was sent and when it was stored. If all groups have been slow for a
    /// while, asks another server to lead.
    fn replace_slow_leader(&self, sent: Moment, stored: Moment) {
        let mut slowness = self.slowness.get();
        let is_slow = slowness.stored(sent, stored);
        self.slowness.set(slowness);
        if is_slow {
            tracing::warn!(
                shard = self.author.shard,
                "the server that leads the journal's stream has been slow for several seconds: \
                asking another server to lead. Check the slow server's disk"
            );
            let asked = self.log.change_leader();
            // If no server answers or no other one can lead, the request is repeated later.
            self.platform.spawn(async move { drop(asked.await) });
        }
    }

    /// Stores a group in the mirror. Waits for free space if necessary.
    async fn mirrored(&self, group: Group) -> Appended {
        let mut group = group;
        loop {
            match self.mirror.append(group).await {
                Appended::Full { group: again, error } => {
                    tracing::error!(error, "no space for the copy of the journal on this machine");
                    group = again;
                    self.platform.sleep_until(self.platform.moment() + MIRROR_RETRY).await;
                }
                other => return other,
            }
        }
    }
}

impl<L: Log, M: Store, P: Platform> Store for LogStore<L, M, P> {
    type Reader = LogReader<M::Reader>;
    type Draft = LogDraft<M::Draft>;

    async fn append(&self, group: Group) -> Appended {
        let message =
            encode_packed_message(&mut self.packer.borrow_mut(), &self.author, &group).into();
        let stored_at = self.stored_at.get();
        let sent = self.platform.moment();
        let before = Before::Own { is_old: stored_at.is_none_or(|at| sent.since(at) > IDLE) };
        let fate =
            append(&self.platform, &self.log, &self.author, &group.header, message, before).await;
        match fate {
            Fate::Stored => {
                let now = self.platform.moment();
                self.stored_at.set(Some(now));
                self.replace_slow_leader(sent, now);
                self.mirrored(group).await
            }
            Fate::Full => Appended::Full { group, error: "the journal's log is full".to_owned() },
            Fate::Taken { epoch } => Appended::Taken { epoch },
            Fate::Failed(error) => Appended::Failed(error),
        }
    }

    fn wait_max(&self) -> Option<Duration> {
        Some(WAIT_MAX)
    }

    fn reader(&self) -> LogReader<M::Reader> {
        let log = self.snapshots.as_ref().map(|snapshots| Arc::clone(snapshots.store()));
        let places = self.log.places();
        LogReader { mirror: self.mirror.reader(), log, places, author: self.author }
    }

    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        self.expired_prefix(now).or_else(|| self.mirror.expired(now, clocks))
    }

    fn waits_for_snapshot(&self) -> bool {
        let Prefix { first_n, copied_n, .. } = self.prefix.get();
        let needed_from = self.snapshots.as_ref().map_or(u64::MAX, LogSnapshots::needed_from);
        let is_held_up = first_n < copied_n && needed_from <= first_n && self.is_too_large();
        is_held_up || self.mirror.waits_for_snapshot()
    }

    async fn drop_part(&self, part: Part) -> Result<(), FileError> {
        if part.first_n >= self.prefix.get().copied_n {
            self.mirror.drop_part(part).await?;
            let mut prefix = self.prefix.get();
            prefix.bytes = prefix.bytes.saturating_add(part.bytes);
            (prefix.copied_n, prefix.last_at) = (part.next_n, part.last_at);
            self.prefix.set(prefix);
            self.trim(part.next_n, part.bytes).await;
        } else {
            self.trim(part.next_n, part.bytes).await;
        }
        Ok(())
    }

    /// The snapshot that is taken at startup is not stored beside the log. Startup has just read
    /// the whole log, and an upload would only delay the first numbers.
    fn draft(&self, replay_from: u64) -> Result<LogDraft<M::Draft>, FileError> {
        let snapshots = self.snapshots.clone().filter(|_| self.stored_at.get().is_some());
        Ok(LogDraft::new(self.mirror.draft(replay_from)?, replay_from, snapshots))
    }

    fn identity(&self) -> [u8; 16] {
        self.mirror.identity()
    }

    fn stats(&self) -> Stats {
        self.mirror.stats()
    }

    fn close(self) -> Result<(), String> {
        self.mirror.close()
    }
}

/// Appends a group's message to a log and determines the result, however long this takes. If the
/// previous group is old, its message is read first.
pub(crate) async fn append<P: Platform>(
    platform: &P,
    log: &impl Log,
    author: &Author,
    header: &GroupHeader,
    message: Bytes,
    before: Before,
) -> Fate {
    let n = header.n;
    let (appending, _) = Appending::begin(*author, n, message.clone());
    let (mut appending, mut ask) = appending.after(header.prev_hash, before);
    loop {
        ask = match ask {
            Ask::ReadBefore => appending.before(log.read(n - 1).await),
            Ask::ReadEnds => appending.ends(log.ends().await),
            Ask::ChangeLeader => appending.changed_leader(log.change_leader().await),
            #[cfg(canary)]
            Ask::Append if crate::canary::planted(crate::Bug::MessageId) => {
                let id = message_id(author, &message);
                appending.appended(log.append_named(id, n, message.clone()).await)
            }
            Ask::Append => appending.appended(log.append(n, message.clone()).await),
            Ask::Read => appending.read(log.read(n).await),
            Ask::Pause(time) => {
                platform.sleep_until(platform.moment() + time).await;
                appending.paused()
            }
            Ask::Done(fate) => return fate,
        };
    }
}

/// Returns a message's shard, epoch and number. They are the same for two owners that take over at
/// the same place.
#[cfg(canary)]
fn message_id(author: &Author, message: &[u8]) -> String {
    let header = ringwell_journal::decode_message(message).map(|(_, group)| group.header);
    header.map_or_else(|_| String::new(), |it| format!("{}.{}.{}", author.shard, it.epoch, it.n))
}
