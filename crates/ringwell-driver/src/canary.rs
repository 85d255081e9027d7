//! Bugs that are planted on purpose, to prove that the simulator finds them.
//!
//! They are in the production code, guarded by [`planted`], which is `false` at compile time unless
//! the build has `--cfg canary`. In a canary build, each thread has its own planted bug.

#[cfg(canary)]
use ringwell_core::canary as core;

// `core` marks the bugs in ringwell-core and ringwell-engine.
macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $bug:ident $name:literal $($core:ident)?;)*) => {
        /// A mistake that a developer could make.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[doc = $doc])* $bug,)* }

        impl Bug {
            /// All bugs that can be planted.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// The bug's name on the simulator's command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)* }
            }

            /// The bug in the crates without I/O, if that is where it is.
            #[cfg(canary)]
            #[must_use]
            pub const fn in_core(self) -> Option<ringwell_core::canary::Bug> {
                match self {
                    $($(Self::$bug => Some($core::Bug::$bug),)?)*
                    _ => None,
                }
            }
        }
    };
}

bugs! {
    /// Answers are sent before the group with their records is on the disk.
    ReplyBeforeFlush "reply-before-flush";
    /// A failed flush is retried, and the retry's success is trusted.
    FlushAgain "flush-again";
    /// A journal is cut at its first bad frame, even if good frames follow.
    CutAtBadFrame "cut-at-bad-frame";
    /// A journal's damaged end is cut off, and no pool is held.
    NoHoldAfterRot "no-hold-after-rot";
    /// A node that starts with the list that it served last does not ask whether its numbers were
    /// on other nodes in the meantime.
    ReturnedUnseen "returned-unseen";
    /// While a node does not answer, a pool is held for the lifetimes that this node knows, and not
    /// for a longer one that another node knows.
    OtherLifetimesIgnored "other-lifetimes-ignored";
    /// A node starts without asking the other nodes whether they now own its buckets.
    OwnersNotAsked "owners-not-asked";
    /// A hold for lost allocations lasts only as long as the current lifetimes, even if earlier
    /// lifetimes were longer.
    LifetimesNotKept "lifetimes-not-kept";
    /// With durability `os`, no pool is held after a power cut.
    PowerCutIgnored "power-cut-ignored";
    /// A node that no longer keeps its journals in a shared log trusts its copies of them.
    LogCopyBelieved "log-copy-believed";
    /// With durability `os`, a node refuses to start if a power cut lost some groups but left later
    /// ones.
    PowerCutRefused "power-cut-refused";
    /// With durability `os`, no pool is held after the file system was remounted.
    RemountIgnored "remount-ignored";
    /// With durability `os`, a journal continues after a failed flush, and the next startup holds
    /// no pool.
    FailedFlushIgnored "failed-flush-ignored";
    /// No pool is held at startup if only one shard's journal is missing.
    LostShardIgnored "lost-shard-ignored";
    /// Startup does not detect that a shard's journal is an older copy, or that another copy of the
    /// journal was served more recently.
    OlderJournalIgnored "older-journal-ignored";
    /// A rename is not made durable.
    NoNameFlush "no-name-flush";
    /// All segments have the same salt, even those that reuse the same file.
    OneSalt "one-salt";
    /// A snapshot claims to cover the group that is still open.
    SnapshotMissesGroup "snapshot-misses-group";
    /// A snapshot becomes valid before the last group that it covers is stored.
    SnapshotTooEarly "snapshot-too-early";
    /// A snapshot omits the numbers that a pool change moved while the snapshot was taken.
    SnapshotMissesMoved "snapshot-misses-moved";
    /// Old history is dropped without first copying the records that are still the newest for their
    /// numbers.
    NoCarry "no-carry";
    /// With durability `os`, old history is dropped while the copies of its records are only in the
    /// operating system's cache.
    CopiesUnflushed "copies-unflushed";
    /// A killed process may leave file names that are only in the operating system's cache. Startup
    /// relies on these files without flushing their names.
    FoundNamesUnflushed "found-names-unflushed";
    /// Shard time follows the wall clock while the process runs.
    WallClock "wall-clock";
    /// At startup, the process's downtime is computed from the wall clock, even if the machine was
    /// not rebooted.
    WallAtStart "wall-at-start";
    /// Look-ups compare wall-clock times with shard times.
    ShardTimeInLookups "shard-time-in-lookups";
    /// Look-ups order all shards' answers by the shards' clocks, and ignore which allocation the
    /// owner recorded as the newest.
    OwnerNotBelieved "owner-not-believed";
    /// A look-up ignores that a number was in doubt once the number has been handed out again.
    DoubtForgotten "doubt-forgotten";
    /// A look-up assumes that a number had no visitor, although a shard did not answer.
    AbsenceBelieved "absence-believed";
    /// A shard that has lost its state of a number does not report that it may have handed the
    /// number out.
    LostUnknown "lost-unknown";
    /// Look-ups ignore that an allocation from before a gap may have been undone in the gap.
    UndoneInGap "undone-in-gap";
    /// If a number's owner answers, look-ups ignore that other shards do not.
    UnreachableIgnored "unreachable-ignored";
    /// Look-ups do not ask the previous owner for the record of an allocation whose pool has moved.
    RecordsStayBehind "records-stay-behind";
    /// An allocation is attributed although its record, and thus its visitor, is lost.
    LostRecordsNamed "lost-records-named";
    /// Look-ups ignore a period of lost history if the number came to the shard during that period.
    OwnGapsForgotten "own-gaps-forgotten";
    /// A shard does not report that it lacks the record of a number's newest allocation and that
    /// later allocations may exist elsewhere.
    UnreadUnreported "unread-unreported";
    /// Look-ups ignore that another shard has handed the number out to a later visitor.
    EndsStayBehind "ends-stay-behind";
    /// Lifetimes are not lengthened to compensate for the rounding down of shard times.
    NoRounding "no-rounding";
    /// An owner serves rows after their deadline.
    DeadlineIgnored "deadline-ignored";
    /// If a client disconnects after its answer was sent, the numbers in that answer are released.
    ReleaseAnswered "release-answered";
    /// Owners ignore that a batch is repeatable, so they serve a repeated row like a new one.
    RetryForgotten "retry-forgotten";
    /// An allocation that no visitor saw counts as its number's newest.
    UnseenCounts "unseen-counts";
    /// Another node's report about its journals is not stored if that node stops waiting.
    ReportGivenUp "report-given-up";
    /// Answers that were ready count as in time, even if a thread polls them long after their
    /// deadline.
    ReadyBeatsDeadline "ready-beats-deadline";
    /// A repeatable request is identified by its idempotency key alone.
    KeyAlone "key-alone";
    /// The outcomes from another shard are assigned to the wrong rows.
    RowsMixed "rows-mixed";
    /// A node that starts with a new map continues to serve buckets that the map assigns to other
    /// nodes.
    StaleMap "stale-map";
    /// Pools that arrive because of a new map are not held.
    NoHoldAfterMove "no-hold-after-move";
    /// Of the pools that arrive because of a new map, only those known at startup are held, not
    /// those added later.
    LatePoolsNotHeld "late-pools-not-held";
    /// The next owner confirms data that it has only in memory.
    AdoptUnstored "adopt-unstored";
    /// Buckets are released only in memory, so they are served again after a restart.
    GivenNotKept "given-not-kept";
    /// A node takes buckets over again although they have already moved on to another node.
    StaleTake "stale-take";
    /// The state that is sent to another shard omits the numbers whose records are in the newest
    /// group.
    FactsMissGroup "facts-miss-group";
    /// A pool's next owner discards the answers to repeatable batches, and the records that show
    /// which visitors got the pool's numbers.
    AdoptForgets "adopt-forgets";
    /// A node accepts what other nodes report about its own buckets.
    HearsayBelieved "hearsay-believed";
    /// A link is never shut, however slow the shard at its other end is.
    NeverShut "never-shut";
    /// A number becomes free shortly before its lockout ends (in ringwell-core).
    LockCompare "lock-compare" core;
    /// The number that has been free for the shortest time is handed out (in ringwell-core).
    NotFifo "not-fifo" core;
    /// The numbers of a batch whose client disconnected stay locked.
    HoldUnanswered "hold-unanswered";
    /// The last group that a snapshot claims to cover is the one that is newest when the snapshot
    /// begins.
    ThroughTooEarly "through-too-early";
    /// Once a segment has been dropped, the look-up of a group finds the group before it.
    GroupOffByOne "group-off-by-one";
    /// A batch's remaining time is written in one unit and read in another.
    DeadlineUnit "deadline-unit";
    /// The numbers in an answer from a link are used, but are also returned to their owner as if
    /// the answer had arrived too late.
    LinkAnswerTwice "link-answer-twice";
    /// After a pool change, only one of the shards uses the new directory.
    ChangeOneShard "change-one-shard";
    /// When a group is stored, the group after it counts as stored too.
    CommitTooFar "commit-too-far";
    /// Answers to other shards wait for the group before the one that contains their records.
    PeerGroupOff "peer-group-off";
    /// If a visitor or a repeated row keeps its number, the answer is sent before its records are
    /// durable.
    KeptNotPromised "kept-not-promised";
    /// Once a shard's disk has been full, the shard refuses rows forever.
    FullForEver "full-for-ever";
    /// A link that was shut is never reopened.
    NeverReopened "never-reopened";
    /// The next owner does not receive the list of held buckets.
    TakenNotHeld "taken-not-held";
    /// A move also sends outdated states of numbers that have left the moving pools.
    OldGoesAlong "old-goes-along";
    /// Another shard's report of an undone allocation replaces this shard's own allocation (in
    /// ringwell-core).
    UndoneReplaces "undone-replaces" core;
    /// Another shard's answer to a row is accepted although the answer's number is in rotation on
    /// this shard (in ringwell-engine).
    RotationIgnored "rotation-ignored" core;
    /// A repeated row gets its earlier number again although its visitor has another number now (in
    /// ringwell-engine).
    TwoOfAPool "two-of-a-pool" core;
    /// A number's state counts as the newest although a hold ended after the number's lockout (in
    /// ringwell-core).
    DoubtsIgnored "doubts-ignored" core;
    /// When an allocation is undone, the one before it counts as the newest although a hold has
    /// made that doubtful (in ringwell-core).
    UndoneEndsDoubt "undone-ends-doubt" core;
    /// An allocation is undone although another shard still has it, because its number has left the
    /// shard and come back since (in ringwell-core).
    LeftUndone "left-undone" core;
    /// Look-ups accept the owner's newest allocation although the owner has received a report of a
    /// later one.
    LaterIgnored "later-ignored";
    /// The state of a number that is locked here does not count as doubtful, even if another
    /// visitor has the number on another node.
    OtherVisitorIgnored "other-visitor-ignored";
    /// A node reports numbers as free although their pools are in transit to another node.
    TransitUnreported "transit-unreported";
    /// A shard that has lost part of its history does not forward another shard's report of a later
    /// allocation.
    LostWithGaps "lost-with-gaps";
    /// Gaps and the periods of overflow numbers keep their times when the wall clock is corrected.
    GapsNotDated "gaps-not-dated";
    /// After a bucket has come back, a number's state does not count as doubtful if its lockout
    /// here ends after the hold.
    LockoutOutlastsDoubt "lockout-outlasts-doubt";
    /// If the answer to a request to take buckets back is lost, the buckets stay in transit
    /// although they were taken back.
    AbortNotCompleted "abort-not-completed";
    /// Changed lists of pools are recorded before the changed pools' holds are durable.
    ListsBeforeHolds "lists-before-holds";
    /// A look-up asks a shard again for a record that the shard has already returned.
    RecordAskedAgain "record-asked-again";
    /// Buckets move although the list of their pools has changed since their next owner agreed.
    ListChangedUnseen "list-changed-unseen";
    /// A node answers look-ups before it has asked the other nodes whether its journals lack
    /// allocations.
    StartingAnswers "starting-answers";
    /// Buckets return to the owner that gave them away, although their next owner has served them.
    BackWithoutState "back-without-state";
    /// If buckets return to a node whose data is from before they left, the node does not adopt
    /// their state.
    ReturnLate "return-late";
    /// While a node accepts buckets, a shard that already serves them still adopts their state when
    /// the giver sends it again.
    ServedAdopts "served-adopts";
    /// With durability `os`, an orderly shutdown does not flush the records that arrive after its
    /// snapshot.
    StopUnflushed "stop-unflushed";
    /// The next owner does not receive the list of allocations that a move left out.
    DoubtsStayBehind "doubts-stay-behind";
    /// Recording a hold while buckets are being taken over restores their previous owners.
    TakenOverwritten "taken-overwritten";
    /// A data directory that is recognized as a copy keeps the name of the original.
    CopyKeepsName "copy-keeps-name";
    /// A node that starts for the first time does not ask the other nodes about its numbers.
    FirstStartSilent "first-start-silent";
    /// A node that continues from its logs on another machine treats its start as the first one.
    LogPastIgnored "log-past-ignored";
    /// Buckets are handed over before the state of their numbers has been sent to the next owner.
    TakeBeforeTold "take-before-told";
    /// Buckets in transit are taken back without asking whether the next owner has them.
    AbortUnasked "abort-unasked";
    /// An interrupted move does not continue.
    MoveNotResumed "move-not-resumed";
    /// If numbers move from a held pool to another pool, that pool is not held.
    HoldsStayBehind "holds-stay-behind";
    /// Pools that receive numbers from other nodes' pools are not held.
    ArrivalsNotHeld "arrivals-not-held";
    /// Startup does not detect that the list of pools changed while the node was down.
    ListsForgotten "lists-forgotten";
    /// A shard that was suspended continues with its old list of pools.
    SuspensionIgnored "suspension-ignored";
    /// Numbers enter a pool before they have left their previous one.
    EnterBeforeLeave "enter-before-leave";
    /// At startup, the cluster file is used even if buckets have moved since it was written.
    OwnersForgotten "owners-forgotten";
    /// If several of a starting node's shards have states of the same number, they do not exchange
    /// these states.
    NoAgreement "no-agreement";
    /// The end of a lockout that another node sends is not converted to this node's shard time.
    ForeignClock "foreign-clock";
    /// Old history is dropped before the copies of its records are stored.
    DropBeforeStored "drop-before-stored";
    /// Lockouts that were lengthened at startup are used before a snapshot records them.
    LengthenedUnsaved "lengthened-unsaved";
    /// If a shard's log does not end where it is expected to, another owner is assumed to have
    /// written to the log.
    TakenIsTheirs "taken-is-theirs";
    /// If a shard's log does not end where it is expected to, the log is assumed to contain the new
    /// message already.
    TakenIsMine "taken-is-mine";
    /// A new owner takes a shard over without raising the shard's epoch.
    EpochNotRaised "epoch-not-raised";
    /// A message is sent again without first reading the one before it.
    PlaceAlone "place-alone";
    /// Messages have ids, so a log may mistake a new message for one that it already has.
    MessageId "message-id";
    /// The time since another machine served the shard is computed from the wall clock.
    WallAtTakeOver "wall-at-take-over";
    /// A group is sent to the log before the previous one is stored.
    Pipelined "pipelined";
    /// A snapshot is stored beside the log before the log has the groups that it covers.
    SnapshotAhead "snapshot-ahead";
    /// If a group is found at a later place in the log than expected, the foreign messages that
    /// precede the group are counted twice.
    ForeignCountedTwice "foreign-counted-twice";
    /// If one server's copy of a message is damaged, only one other server is asked for the
    /// message.
    FewLeaders "few-leaders";
    /// Startup does not notice that one shard's log is gone while the logs of other shards exist.
    LostLogIgnored "lost-log-ignored";
    /// Heartbeats do not reveal that a log was replaced.
    ReachedIgnored "reached-ignored";
    /// Standbys do not wait for a process that is already taking the shards over.
    StartIgnored "start-ignored";
    /// Look-ups give up if the server that leads a log lacks a message, and do not ask the other
    /// servers.
    OneServerAsked "one-server-asked";
    /// Rows that are sent again, to another owner, lose their batch's idempotency key.
    RedirectForgetsRetry "redirect-forgets-retry";
    /// A shard that was suspended hands out numbers again although they are now in pools in another
    /// node's list.
    ConflictIgnored "conflict-ignored";
    /// A node that does not answer is assumed to have corrected its list of pools.
    ConflictForgotten "conflict-forgotten";
    /// If a shard's journal is in doubt, buckets that a new map gives to another of the node's
    /// shards are not held.
    FormerShardBelieved "former-shard-believed";
    /// The other nodes are not asked about the numbers of a shard that starts.
    StartUnconfirmed "start-unconfirmed";
    /// If a log's leader refuses a message because its place is taken, but has no message for that
    /// place, the other servers are never asked for that message.
    HiddenIgnored "hidden-ignored";
    /// Look-ups assume that all nodes' clocks agree.
    ClocksTrusted "clocks-trusted";
    /// A running node continues to serve buckets that belong to other nodes according to a newer
    /// version of the map.
    NewerMapIgnored "newer-map-ignored";
    /// A running node does not ask the other nodes which version of the map they use.
    VersionUnasked "version-unasked";
    /// A starting node does not announce a newer cluster file to the nodes of the previous one.
    FormerUninformed "former-uninformed";
    /// A node assumes that its shards belong to it in every version of the map.
    OwnShardsBelieved "own-shards-believed";
    /// A node does not record that a new version of the map drops shards with their history.
    DroppedForgotten "dropped-forgotten";
    /// A node still names visitors after another node has reported a newer version of the cluster
    /// file.
    OlderFileNames "older-file-names";
    /// After newly arrived numbers have been held, a node does not ask whether other nodes still
    /// list them.
    ArrivalsUnconfirmed "arrivals-unconfirmed";
    /// Numbers that leave a bucket whose lockouts are unknown are not held in their next pools
    /// after a restart.
    HeldBucketsForgotten "held-buckets-forgotten";
    /// The extension of a lockout is forgotten if the shard's journal has no record of the
    /// allocation and the number has gone to another shard.
    ExtensionDropped "extension-dropped";
    /// A node that lost allocations ignores the lifetimes of a list that only other nodes serve.
    OtherListIgnored "other-list-ignored";
    /// A running node does not ask the other nodes about new overflow numbers.
    NewOverflowUnasked "new-overflow-unasked";
    /// A starting node assumes that no visitor holds an overflow number of its list of pools.
    OverflowBelieved "overflow-believed";
}

impl Bug {
    /// Returns the bug whose command-line name is `name`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// Returns whether `bug` is planted on this thread.
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

    /// Plants `bug` on this thread; it replaces the previous one.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Returns whether `bug` is planted on this thread.
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
