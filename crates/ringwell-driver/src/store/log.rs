//! The store of a shard whose groups are in a log shared by several machines. Files on this machine
//! mirror the log.
//!
//! Determines the order of storing and mirroring: a group counts as stored once the log has it, and
//! it is mirrored before the next group is stored. The mirror serves look-ups and snapshots. At the
//! next startup, it shows which messages the log must contain. Invariant: every group in the mirror
//! was first stored in the log. Source: docs/spec/log.md.

mod appending;
mod notes;
mod places;
mod reached;
mod reader;
mod shelf;
mod slowness;
mod standby;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_core::Millis;
use ringwell_engine::{Reading, Recorded};
use ringwell_journal::{Author, Clocks, Group, GroupHeader, Packer, encode_packed_message};
use tokio::sync::mpsc;

use super::files::FileError;
use super::interface::{Appended, Part, Store};
use super::stats::Stats;
use crate::platform::{Moment, Platform};

pub(crate) use appending::STALE_MAX;
pub use appending::{Appending, Ask, Before, Fate};
pub use notes::{FoundLog, KeptNotes, LogNotes, lost_logs};
pub use places::{Numbered, Places};
pub use reached::{LogEnd, Peak, Reached, reached_ends};
pub use reader::LogReader;
use shelf::Shelved;
pub use shelf::{Index as SnapshotIndex, LogDraft, Prefix, Shelf, indexes};
use slowness::Slowness;
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

/// An ordered store that several machines share. Does not depend on the contents of a message.
pub trait Log: 'static {
    /// Adds message `n` if the log ends with message `n - 1`. Only one append is in progress at a
    /// time.
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static;

    /// Like [`Self::append`], with an id by which the log recognizes a message that it already has.
    #[cfg(canary)]
    fn append_named(
        &self,
        _id: String,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        self.append(n, message)
    }

    /// Reads message `n`; returns `None` if the log does not have it yet or no longer has it.
    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static;

    /// Returns many messages in order. This is faster than reading them one by one. The sequence is
    /// only a hint: it may end early, have gaps, and include damaged messages.
    fn read_ahead(&self, _messages: Range<u64>) -> mpsc::Receiver<Bytes> {
        mpsc::channel(1).1
    }

    /// Returns the range from the first message to the one after the last.
    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static;

    /// Drops the messages before `before`.
    fn trim(&self, before: u64) -> impl Future<Output = Result<(), Unreached>> + 'static;

    /// Asks another of the log's servers to lead, because the present leader is slow or may have
    /// lost a message that others have.
    fn change_leader(&self) -> impl Future<Output = Result<(), Unreached>> + 'static {
        std::future::ready(Ok(()))
    }

    /// Returns the recorded origin of the message at a place, as human-readable text.
    fn origin(&self, _place: u64) -> impl Future<Output = String> + 'static {
        std::future::ready(String::new())
    }

    /// Returns the places of groups, if these differ from the groups' numbers.
    fn places(&self) -> Places {
        Places::default()
    }
}

/// The reason why an append was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAppended {
    /// The log reports an end other than the expected one. This message itself may be the reason,
    /// because a leader may count messages that it has proposed but not stored.
    Taken,
    /// There was no answer, or the answer was unclear.
    Unknown,
    /// The log has no space left.
    Full,
    /// The log will never accept this message, for this reason.
    Refused(String),
}

/// The log did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request to the journal's servers failed: {0}")]
pub struct Unreached(pub String);

/// The future that a method of [`SharedLog`] returns.
pub type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A [`Log`] whose type is known only at run time.
pub trait SharedLog: fmt::Debug + Send + Sync {
    /// Like [`Log::append`].
    fn append(&self, n: u64, message: Bytes) -> Waiting<Result<(), NotAppended>>;

    /// Like [`Log::read`].
    fn read(&self, n: u64) -> Waiting<Result<Option<Bytes>, Unreached>>;

    /// Like [`Log::read_ahead`].
    fn read_ahead(&self, messages: Range<u64>) -> mpsc::Receiver<Bytes>;

    /// Like [`Log::ends`].
    fn ends(&self) -> Waiting<Result<Range<u64>, Unreached>>;

    /// Like [`Log::trim`].
    fn trim(&self, before: u64) -> Waiting<Result<(), Unreached>>;

    /// Like [`Log::change_leader`].
    fn change_leader(&self) -> Waiting<Result<(), Unreached>>;

    /// Like [`Log::origin`].
    fn origin(&self, place: u64) -> Waiting<String>;
}

/// A heartbeat, which contains the shard time of the serving process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// The process's shard time.
    pub at: Millis,
    /// The epochs of the process's shards, in the order of the shards.
    pub epochs: Vec<u64>,
    /// For each shard, in the same order: the newest group that its log has stored since the
    /// process began to serve; 0 if there is none. Empty if the heartbeat is from an earlier build.
    pub stored: Vec<u64>,
}

/// The last heartbeat of another process that served this process's shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The sign.
    pub sign: Sign,
    /// The time since the heartbeat arrived, according to this machine's monotonic clock.
    pub ago: Duration,
    /// For each shard, in order: the end that its log must have reached according to heartbeats.
    pub reached: Vec<Reached>,
}

/// The last known state of the process that may have served this process's shards before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastOwner {
    /// The last owner's shard time, as if it had been read from the end of a local journal.
    pub recorded: Recorded,
    /// The epochs of the last owner's shards, in the order of the shards.
    pub epochs: Vec<u64>,
    /// For each shard, in order: the end that its log must have reached according to heartbeats.
    pub reached: Vec<Reached>,
}

impl Heard {
    /// Returns the sender's estimated time: its shard time at the heartbeat, plus the time since
    /// the heartbeat arrived. The estimate is never ahead of the sender's clock, because the
    /// heartbeat was in transit for a while.
    #[must_use]
    pub fn owner(self, reading: &Reading) -> LastOwner {
        let Sign { at, epochs, .. } = self.sign;
        let (ago, reached) = (self.ago, self.reached);
        let ago = Millis(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
        let less_boot = |at: Millis| at.0.cast_signed() - reading.since_boot.0.cast_signed();
        let shard_offset = less_boot(Millis(at.0.saturating_add(ago.0)));
        let wall_offset = less_boot(reading.wall);
        let clocks = Some(Clocks { boot: reading.boot, shard_offset, wall_offset });
        LastOwner { recorded: Recorded { last_at: at, clocks }, epochs, reached }
    }
}

/// Provides the logs of all shards.
pub trait Logs: fmt::Debug + Send + Sync {
    /// Looks for the log of `shard`. Waits for the log's servers.
    ///
    /// # Errors
    /// The reason why it is unknown whether the log exists, as human-readable text.
    fn find(&self, shard: u16) -> Result<FoundLog, String>;

    /// Returns the log of `shard`, which is created with `notes` if it does not exist. `placement`
    /// names the assignment of pools to shards. A log that was created for another placement is
    /// refused: other logs may contain lockouts of this shard's pools. Waits for the log's servers.
    ///
    /// # Errors
    /// The reason why the log cannot be used, as human-readable text.
    fn log(
        &self,
        shard: u16,
        placement: &str,
        notes: &LogNotes,
    ) -> Result<Arc<dyn SharedLog>, String>;

    /// Adds `shards` to the notes of these shards' logs, and from now on keeps the notes up to date
    /// with `kept`. Does not wait, so the notes may be out of date if the process exits.
    fn keep_notes(&self, shards: BTreeSet<u16>, kept: Box<dyn Fn() -> KeptNotes + Send>);

    /// Whether the log of `shard` exists. Waits for the log's servers.
    ///
    /// # Errors
    /// The reason why this could not be determined, as human-readable text.
    fn has_log(&self, shard: u16) -> Result<bool, String>;

    /// Returns the shelf with the snapshots beside the log of `shard`. Waits for the log's servers.
    ///
    /// # Errors
    /// The reason why the snapshots cannot be used, as human-readable text.
    fn shelf(&self, shard: u16) -> Result<Arc<dyn Shelf>, String>;

    /// Waits until this process may take its shards over; the first one is `first`. Returns when
    /// other processes have sent no reports for a while, or when one reports that it no longer
    /// serves. The reports are only hints; the log decides which process owns a shard. Returns the
    /// last heartbeat of a serving process, if there was one.
    fn stand_by(&self, first: u16) -> Option<Heard>;

    /// Until [`Self::serving`] is called, keeps reporting that this process is taking its shards
    /// over.
    fn starting(&self, first: u16);

    /// From now on, sends heartbeats as long as `sign` returns one.
    fn serving(&self, first: u16, sign: Box<dyn Fn() -> Option<Sign> + Send>);

    /// Reports that this process has stored all groups and no longer serves. Waits until the report
    /// is sent.
    fn ended(&self, first: u16);
}

impl Log for Arc<dyn SharedLog> {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        SharedLog::append(&**self, n, message)
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        SharedLog::read(&**self, n)
    }

    fn read_ahead(&self, messages: Range<u64>) -> mpsc::Receiver<Bytes> {
        SharedLog::read_ahead(&**self, messages)
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        SharedLog::ends(&**self)
    }

    fn trim(&self, before: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        SharedLog::trim(&**self, before)
    }

    fn change_leader(&self) -> impl Future<Output = Result<(), Unreached>> + 'static {
        SharedLog::change_leader(&**self)
    }

    fn origin(&self, place: u64) -> impl Future<Output = String> + 'static {
        SharedLog::origin(&**self, place)
    }
}

/// Stores groups in a log first, and then in the mirror.
#[derive(Debug)]
pub struct LogStore<L, M, P> {
    log: L,
    mirror: M,
    platform: P,
    author: Author,
    packer: RefCell<Packer>,
    /// The snapshots beside the log; if `None`, the log is never trimmed.
    shelved: Option<Shelved>,
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
            shelved: None,
            prefix: Cell::default(),
            limits: HistoryLimits { bytes: u64::MAX, age: None },
            stored_at: Cell::new(None),
            slowness: Cell::default(),
            read_back: RefCell::default(),
        }
    }

    /// Adds the shelf `snapshots`; `kept` contains its newest indexes, with their places. History
    /// beyond `limits` is then dropped from the log, too.
    #[must_use]
    pub fn with_shelf(
        self,
        snapshots: Arc<dyn Shelf>,
        kept: Vec<(u64, SnapshotIndex)>,
        prefix: Prefix,
        limits: HistoryLimits,
    ) -> Self {
        let Author { shard, journal, .. } = self.author;
        let places = self.log.places();
        let shelved = Some(Shelved::new(snapshots, shard, journal, kept, places));
        Self { shelved, prefix: Cell::new(prefix), limits, ..self }
    }

    /// Returns the oldest groups that are in the log but not in the mirror, if they may be dropped.
    fn expired_prefix(&self, now: Millis) -> Option<Part> {
        let needed_from = self.shelved.as_ref()?.needed_from();
        let Prefix { first_n, copied_n, bytes, last_at } = self.prefix.get();
        let groups = copied_n.saturating_sub(first_n);
        let next_n = copied_n.min(needed_from).min(first_n + PREFIX_GROUPS);
        let is_old = self.limits.age.is_some_and(|age| now.since(last_at) > age);
        let copied_bytes = self.mirror.stats().segment_bytes;
        let too_much = bytes.saturating_add(copied_bytes) > self.limits.bytes;
        if next_n <= first_n || !(is_old || too_much) {
            return None;
        }
        let share = u128::from(bytes) * u128::from(next_n - first_n) / u128::from(groups.max(1));
        let bytes = u64::try_from(share).unwrap_or(bytes);
        Some(Part { first_n, next_n, bytes, last_at })
    }

    /// Drops the groups before `before` from the log, except for those that a snapshot needs. These
    /// groups must already have been dropped from the mirror.
    async fn trim(&self, before: u64, bytes: u64) {
        let Some(shelved) = &self.shelved else { return };
        let mut prefix = self.prefix.get();
        if before.min(shelved.needed_from()) > prefix.first_n {
            self.read_snapshots_back(shelved).await;
        }
        let first_n = before.min(shelved.needed_from());
        if first_n > prefix.first_n && self.are_snapshots_read(shelved) {
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
    fn are_snapshots_read(&self, shelved: &Shelved) -> bool {
        let now = self.platform.moment();
        let is_new = |(places, at): &(Vec<u64>, Moment)| {
            *places == shelved.places() && now.since(*at) < READ_BACK_FOR
        };
        self.read_back.borrow().as_ref().is_some_and(is_new)
    }

    /// Reads the kept snapshots back. If one of them is damaged, the log is not trimmed.
    async fn read_snapshots_back(&self, shelved: &Shelved) {
        if self.are_snapshots_read(shelved) {
            return;
        }
        let reading = shelved.clone();
        let read = self.platform.offload(move || reading.drop_damaged()).await;
        match read {
            Some(Ok(())) => {
                let now = self.platform.moment();
                *self.read_back.borrow_mut() = Some((shelved.places(), now));
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
        let log = self.shelved.as_ref().map(|shelved| Arc::clone(shelved.shelf()));
        let places = self.log.places();
        LogReader { mirror: self.mirror.reader(), log, places, author: self.author }
    }

    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        self.expired_prefix(now).or_else(|| self.mirror.expired(now, clocks))
    }

    fn waits_for_snapshot(&self) -> bool {
        let Prefix { first_n, copied_n, bytes, .. } = self.prefix.get();
        let needed_from = self.shelved.as_ref().map_or(u64::MAX, Shelved::needed_from);
        let too_much = bytes.saturating_add(self.stats().segment_bytes) > self.limits.bytes;
        let is_held_up = first_n < copied_n && needed_from <= first_n && too_much;
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

    /// The snapshot that is taken at startup is not stored beside the log: startup has just read
    /// the whole log, and an upload would only delay the first numbers.
    fn draft(&self, replay_from: u64) -> Result<LogDraft<M::Draft>, FileError> {
        let shelved = self.shelved.clone().filter(|_| self.stored_at.get().is_some());
        Ok(LogDraft::new(self.mirror.draft(replay_from)?, replay_from, shelved))
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

/// Appends the message of a group to a log and determines the result, however long this takes. If
/// the previous group is old, its message is read first.
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
