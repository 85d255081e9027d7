//! Bugs that are planted on purpose, to show that the simulator finds them.
//!
//! They are in production code, guarded by [`planted`], which is `false` at compile time unless the
//! build has `--cfg canary`. Each thread then has its own bug.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $bug:ident $name:literal;)*) => {
        /// A mistake that a developer could make.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[doc = $doc])* $bug,)* }

        impl Bug {
            /// All bugs that can be planted.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// The names on the simulator's command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)* }
            }
        }
    };
}

bugs! {
    /// Answers are sent before their group is on the disk.
    ReplyBeforeFlush "reply-before-flush";
    /// A failed flush is retried, and its success is trusted.
    FlushAgain "flush-again";
    /// A journal is cut at its first bad frame, even if good frames follow.
    CutAtBadFrame "cut-at-bad-frame";
    /// A damaged end is cut off, and nothing is held.
    NoHoldAfterRot "no-hold-after-rot";
    /// A node starts without asking others whether its buckets have become theirs.
    OwnersNotAsked "owners-not-asked";
    /// A hold for lost allocations lasts for the present lifetimes, even if they were longer before.
    LifetimesNotKept "lifetimes-not-kept";
    /// With durability `os`, nothing is held after a power cut.
    PowerCutIgnored "power-cut-ignored";
    /// With durability `os`, a node does not start if a power cut has left later groups than it lost.
    PowerCutRefused "power-cut-refused";
    /// With durability `os`, nothing is held after the file system was mounted again.
    RemountIgnored "remount-ignored";
    /// With durability `os`, a journal continues after a failed flush, and the next start holds
    /// nothing.
    FailedFlushIgnored "failed-flush-ignored";
    /// Nothing is held at startup if only one shard's journal is missing.
    LostShardIgnored "lost-shard-ignored";
    /// An older journal of a shard, or the original after a copy of it was served, is not noticed.
    OlderJournalIgnored "older-journal-ignored";
    /// A rename is not made durable.
    NoNameFlush "no-name-flush";
    /// Every use of a file has the same salt.
    OneSalt "one-salt";
    /// A snapshot claims to cover the open group.
    SnapshotMissesGroup "snapshot-misses-group";
    /// A snapshot counts before the last group that it covers is stored.
    SnapshotTooEarly "snapshot-too-early";
    /// A snapshot leaves out the numbers that changes of pools moved while it was taken.
    SnapshotMissesMoved "snapshot-misses-moved";
    /// Old history is dropped without copying the records that are still the newest.
    NoCarry "no-carry";
    /// With durability `os`, old history is dropped while the copies of its records are only in the
    /// operating system's cache.
    CopiesUnflushed "copies-unflushed";
    /// Shard time follows the wall clock while the process runs.
    WallClock "wall-clock";
    /// At startup the wall clock determines how long the process was away, even within one boot.
    WallAtStart "wall-at-start";
    /// Look-ups compare the wall clock with shard time.
    ShardTimeInLookups "shard-time-in-lookups";
    /// Look-ups join the answers of all shards by their clocks, whatever the number's owner knows.
    OwnerNotBelieved "owner-not-believed";
    /// Look-ups do not ask the previous owner for the record of an allocation that moved.
    RecordsStayBehind "records-stay-behind";
    /// An allocation is named although its record, and so its visitor, is lost.
    LostRecordsNamed "lost-records-named";
    /// Lost periods do not concern numbers that came to the shard within them.
    OwnGapsForgotten "own-gaps-forgotten";
    /// A shard that lacks the record of its newest allocation, and may have missed later ones, does
    /// not report that.
    UnreadUnreported "unread-unreported";
    /// Look-ups do not learn from other shards when a visitor's number went out again.
    EndsStayBehind "ends-stay-behind";
    /// Lifetimes are not lengthened, although shard time is rounded down.
    NoRounding "no-rounding";
    /// An owner serves rows after their deadline.
    DeadlineIgnored "deadline-ignored";
    /// If a client disconnects after its answer was sent, its numbers are released.
    ReleaseAnswered "release-answered";
    /// Owners forget the row and batch that they serve.
    RetryForgotten "retry-forgotten";
    /// An allocation that no visitor saw counts as its number's newest.
    UnseenCounts "unseen-counts";
    /// A report of another node's journals is given up if that node stops waiting.
    ReportGivenUp "report-given-up";
    /// Ready answers count, even if a thread polls them long after their deadline.
    ReadyBeatsDeadline "ready-beats-deadline";
    /// A repeatable request is identified by its key alone.
    KeyAlone "key-alone";
    /// The outcomes of another shard's rows are joined in the wrong order.
    RowsMixed "rows-mixed";
    /// A node that starts with a new map continues to serve the buckets that it has lost.
    StaleMap "stale-map";
    /// Pools that arrive by a new map are not held.
    NoHoldAfterMove "no-hold-after-move";
    /// … or only the pools known at startup, not later ones.
    LatePoolsNotHeld "late-pools-not-held";
    /// The next owner confirms data that it has only in memory.
    AdoptUnstored "adopt-unstored";
    /// Buckets are released only in memory: after a restart they are served again.
    GivenNotKept "given-not-kept";
    /// Buckets are taken again although they have moved on.
    StaleTake "stale-take";
    /// A report to another shard omits the numbers of the last group.
    FactsMissGroup "facts-miss-group";
    /// The next owner forgets visitors and the answers to batches.
    AdoptForgets "adopt-forgets";
    /// A node accepts other nodes' reports on its own buckets.
    HearsayBelieved "hearsay-believed";
    /// A link is never shut, however slow its owner is.
    NeverShut "never-shut";
    /// A number is free shortly before its lockout ends (in ringwell-core).
    LockCompare "lock-compare";
    /// The number that has been free for the shortest time is handed out (in ringwell-core).
    NotFifo "not-fifo";
    /// The numbers of a batch whose client disconnected stay locked.
    HoldUnanswered "hold-unanswered";
    /// A snapshot records the newest group at its beginning as the last that it covers.
    ThroughTooEarly "through-too-early";
    /// Groups are searched one place too early once a segment was dropped.
    GroupOffByOne "group-off-by-one";
    /// The remaining time of a batch is read in a different unit than it was written in.
    DeadlineUnit "deadline-unit";
    /// The numbers of a link's answer are used, and also returned as too late.
    LinkAnswerTwice "link-answer-twice";
    /// Only one shard looks rows up in the next state of the directory.
    ChangeOneShard "change-one-shard";
    /// When a group is stored, the next one counts as stored too.
    CommitTooFar "commit-too-far";
    /// Answers to other shards wait for the group before theirs.
    PeerGroupOff "peer-group-off";
    /// Numbers that a visitor or a repeated row keeps are sent before that is durable.
    KeptNotPromised "kept-not-promised";
    /// A shard whose disk was full refuses rows forever.
    FullForEver "full-for-ever";
    /// A link that was shut is never opened again.
    NeverReopened "never-reopened";
    /// The next owner does not get the list of buckets that are held.
    TakenNotHeld "taken-not-held";
    /// Moved buckets carry an old state of numbers that have left their pools.
    OldGoesAlong "old-goes-along";
    /// A report that an allocation was undone replaces the one before it (in ringwell-core).
    UndoneReplaces "undone-replaces";
    /// A reported answer gives a row a number that is in rotation here (in ringwell-engine).
    RotationIgnored "rotation-ignored";
    /// A row that is sent again revives its number, although its visitor has another one (in
    /// ringwell-engine).
    TwoOfAPool "two-of-a-pool";
    /// State that a hold has outlasted counts as the newest (in ringwell-core).
    DoubtsIgnored "doubts-ignored";
    /// The hold that puts a number in doubt ends with an allocation that was undone (in
    /// ringwell-core).
    UndoneEndsDoubt "undone-ends-doubt";
    /// An owner that has received a later allocation is believed to know the newest.
    LaterIgnored "later-ignored";
    /// A number that is locked here is not in doubt, even if another visitor has it elsewhere.
    OtherVisitorIgnored "other-visitor-ignored";
    /// A node reports numbers as free whose pools are in transit to another node.
    TransitUnreported "transit-unreported";
    /// A shard with a lost period in its history does not report an allocation that it received
    /// later.
    LostWithGaps "lost-with-gaps";
    /// A number of a bucket that comes back is not in doubt if its lockout here outlasts the hold.
    LockoutOutlastsDoubt "lockout-outlasts-doubt";
    /// Buckets that were taken back stay in transit if the answer was lost.
    AbortNotCompleted "abort-not-completed";
    /// Buckets return to the owner that gave them, although their next owner has served them.
    BackWithoutState "back-without-state";
    /// Buckets that come back to data from before they left do not bring their state.
    ReturnLate "return-late";
    /// With durability `os`, an orderly stop does not flush what arrives after its snapshot.
    StopUnflushed "stop-unflushed";
    /// The next owner does not get the list of allocations that a move left out.
    DoubtsStayBehind "doubts-stay-behind";
    /// A hold that is recorded while buckets are taken restores their previous owners.
    TakenOverwritten "taken-overwritten";
    /// Data that were found to be a copy keep their name.
    CopyKeepsName "copy-keeps-name";
    /// A first start does not ask other nodes about its numbers.
    FirstStartSilent "first-start-silent";
    /// Buckets are handed over before the state of their numbers was sent to the next owner.
    TakeBeforeTold "take-before-told";
    /// Buckets in transit are taken back without asking whether they have arrived.
    AbortUnasked "abort-unasked";
    /// An interrupted move does not continue.
    MoveNotResumed "move-not-resumed";
    /// Numbers that move from a held pool to another are not held there.
    HoldsStayBehind "holds-stay-behind";
    /// Pools that get numbers from pools of other nodes are not held.
    ArrivalsNotHeld "arrivals-not-held";
    /// It is not detected at startup that the list of pools has changed in the meantime.
    ListsForgotten "lists-forgotten";
    /// A shard that was suspended continues with its former list of pools.
    StandstillIgnored "standstill-ignored";
    /// Numbers enter a pool before they have left another.
    EnterBeforeLeave "enter-before-leave";
    /// At startup the cluster file is used even if buckets have moved since.
    OwnersForgotten "owners-forgotten";
    /// The shards of a starting node do not share their state of numbers.
    NoAgreement "no-agreement";
    /// The end of a lockout is taken over in another node's time without conversion.
    ForeignClock "foreign-clock";
    /// Old history is dropped before the copied records are stored.
    DropBeforeStored "drop-before-stored";
    /// Lockouts that were lengthened at startup are used before a snapshot records it.
    LengthenedUnsaved "lengthened-unsaved";
    /// A log's report that it ends elsewhere is trusted: another owner must have written.
    TakenIsTheirs "taken-is-theirs";
    /// A log that reports another end is assumed to have stored the previous message.
    TakenIsMine "taken-is-mine";
    /// A shard is taken over in the epoch of the previous owner.
    EpochNotRaised "epoch-not-raised";
    /// A message is sent again without reading the one before it.
    PlaceAlone "place-alone";
    /// Messages have ids, because of which a log mistakes one message for another that it has.
    MessageId "message-id";
    /// The wall clock determines how much time has passed since another machine served the shard.
    WallAtTakeOver "wall-at-take-over";
    /// A group is sent to the log before the previous one is stored.
    Pipelined "pipelined";
    /// A snapshot is put beside the log before the log has its groups.
    SnapshotAhead "snapshot-ahead";
    /// A foreign message before a group that was found late is counted again.
    ForeignCountedTwice "foreign-counted-twice";
    /// If a server has damaged a message, only one other server is asked for it.
    FewLeaders "few-leaders";
    /// A start does not notice that the log of one shard is gone while those of others exist.
    LostLogIgnored "lost-log-ignored";
    /// Heartbeats do not show that a log was replaced.
    ReachedIgnored "reached-ignored";
    /// Standbys do not wait for a process that is taking the shards over.
    StartIgnored "start-ignored";
    /// Look-ups give up if the server that leads a log lacks a message.
    OneServerAsked "one-server-asked";
    /// Rows that are requested again, from another owner, lose their batch's idempotency key.
    RedirectForgetsRetry "redirect-forgets-retry";
}

impl Bug {
    /// The bug with the name `name`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// Whether `bug` is planted on this thread.
#[cfg(not(canary))]
#[must_use]
#[inline]
pub const fn planted(_bug: Bug) -> bool {
    false
}

#[cfg(canary)]
pub use self::plants::{plant, planted};

#[cfg(canary)]
mod plants {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants `bug` on this thread in place of the previous one.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether `bug` is planted on this thread.
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
