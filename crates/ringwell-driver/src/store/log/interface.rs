//! The interfaces to logs that several machines share, and to the snapshots beside them.

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
use ringwell_journal::Clocks;
use tokio::sync::mpsc;

use super::end::Reached;
use super::error::{NotAppended, Unreached};
use super::notes::{FoundLog, KeptNotes, LogNotes};
use super::places::Places;

/// An ordered store that several machines share. Does not depend on the contents of a message.
pub trait Log: 'static {
    /// Adds message `n` if the log ends with message `n - 1`. Only one append is in progress at a
    /// time.
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static;

    /// Like [`Self::append`], with an id that lets the log recognize a message that it already has.
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

    /// Asks another of the log's servers to lead, because the current leader is slow or may have
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
    /// The epochs of the process's shards, in shard order.
    pub epochs: Vec<u64>,
    /// For each shard, in the same order: the newest group that its log has stored since the
    /// process began to serve; 0 if there is none. Empty if the heartbeat is from an earlier build.
    pub stored: Vec<u64>,
}

/// The last heartbeat of another process that served this process's shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHeartbeat {
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
    /// The epochs of the last owner's shards, in shard order.
    pub epochs: Vec<u64>,
    /// For each shard, in order: the end that its log must have reached according to heartbeats.
    pub reached: Vec<Reached>,
}

impl LastHeartbeat {
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

    /// Returns the snapshots beside the log of `shard`. Waits for the log's servers.
    ///
    /// # Errors
    /// The reason why the snapshots cannot be used, as human-readable text.
    fn snapshots(&self, shard: u16) -> Result<Arc<dyn SnapshotStore>, String>;

    /// Waits until this process may take its shards over; the first one is `first`. Returns when
    /// other processes have sent no reports for a while, or when one reports that it no longer
    /// serves. The reports are only hints; the log decides which process owns a shard. Returns the
    /// last heartbeat of a serving process, if there was one.
    fn stand_by(&self, first: u16) -> Option<LastHeartbeat>;

    /// Until [`Self::serving`] is called, keeps reporting that this process is taking its shards
    /// over.
    fn starting(&self, first: u16);

    /// From now on, sends heartbeats as long as `sign` returns one.
    fn serving(&self, first: u16, sign: Box<dyn Fn() -> Option<Sign> + Send>);

    /// Reports that this process has stored all groups and no longer serves. Waits until the report
    /// has been sent.
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

/// The snapshots of one shard, and access to the shard's log for look-ups. All calls block until
/// they are done, so they must be made from threads that serve no batches.
pub trait SnapshotStore: fmt::Debug + Send + Sync {
    /// Adds a piece of a snapshot, and returns the piece's place.
    ///
    /// # Errors
    /// Returns [`Unreached`]; the piece may or may not have been stored.
    fn add(&self, piece: Bytes) -> Result<u64, Unreached>;

    /// Adds an index, which is the newest one from now on.
    ///
    /// # Errors
    /// Returns [`Unreached`]; the index may or may not have been stored.
    fn add_index(&self, index: Bytes) -> Result<u64, Unreached>;

    /// Returns the newest index and its place.
    ///
    /// # Errors
    /// [`Unreached`]
    fn newest_index(&self) -> Result<Option<(u64, Bytes)>, Unreached>;

    /// Returns a piece or an index; `None` if it is no longer stored.
    ///
    /// # Errors
    /// [`Unreached`]
    fn get(&self, at: u64) -> Result<Option<Bytes>, Unreached>;

    /// Drops all pieces and indexes that were added before `before`.
    ///
    /// # Errors
    /// [`Unreached`]
    fn trim(&self, before: u64) -> Result<(), Unreached>;

    /// Returns the message at `place` in the log.
    ///
    /// # Errors
    /// [`Unreached`]
    fn message(&self, place: u64) -> Result<Option<Bytes>, Unreached>;

    /// Like [`Self::message`], but asks servers other than the one that lacks the message or has a
    /// damaged copy. Returns `None` if the log no longer has the message, or if other servers were
    /// asked a short time ago.
    ///
    /// # Errors
    /// [`Unreached`]
    fn message_elsewhere(&self, _place: u64) -> Result<Option<Bytes>, Unreached> {
        Ok(None)
    }

    /// Returns the number of bytes that the log takes up.
    ///
    /// # Errors
    /// [`Unreached`]
    fn log_bytes(&self) -> Result<u64, Unreached>;
}
