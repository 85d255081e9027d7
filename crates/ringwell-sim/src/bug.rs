//! Bugs that are planted on purpose: the simulator must find each of them.
//!
//! Mistakes that production code could make are planted there, in ringwell-driver and ringwell-core,
//! which have them only if they are built with `--cfg canary`. The others are planted in what the
//! simulator still restates.

use ringwell_driver::Bug as InDriver;

macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $bug:ident $name:literal;)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[doc = $doc])* $bug,)* }

        impl Bug {
            /// All that can be planted.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// As written on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)* }
            }
        }
    };
}

bugs! {
    /// Answers leave before their group is on the disk.
    ReplyBeforeFlush "reply-before-flush";
    /// A flush that failed is tried again, and believed.
    FlushAgain "flush-again";
    /// A journal is cut at its first bad frame, whatever comes after it.
    CutAtBadFrame "cut-at-bad-frame";
    /// A rotten end is cut, and nothing is held.
    NoHoldAfterRot "no-hold-after-rot";
    /// A rename is not made durable.
    NoNameFlush "no-name-flush";
    /// Every use of a file has the same salt.
    OneSalt "one-salt";
    /// A snapshot says that it knows the group that gathers.
    SnapshotMissesGroup "snapshot-misses-group";
    /// A snapshot counts before the last group that it knows of is stored.
    SnapshotTooEarly "snapshot-too-early";
    /// A snapshot leaves out the numbers that changes of pools moved while it was taken. There is
    /// nearly always one then, and it waits after its first piece.
    SnapshotMissesMoved "snapshot-misses-moved";
    /// Old history is dropped without copying what is still the newest.
    NoCarry "no-carry";
    /// Shard time follows the wall clock while the process runs.
    WallClock "wall-clock";
    /// A start takes the wall clock's word for how long it was away, also within one boot.
    WallAtStart "wall-at-start";
    /// Look-ups compare what the wall clock shows with shard time.
    ShardTimeInLookups "shard-time-in-lookups";
    /// Lifetimes are taken as they are, although shard time is rounded down.
    NoRounding "no-rounding";
    /// An owner serves rows after their deadline.
    DeadlineIgnored "deadline-ignored";
    /// A client that goes away after its answer has left gets its numbers released.
    ReleaseAnswered "release-answered";
    /// Owners forget which row of which batch they serve.
    RetryForgotten "retry-forgotten";
    /// An allocation that nobody saw counts as its number's newest.
    UnseenCounts "unseen-counts";
    /// What is ready counts, however long after its deadline a thread looks at it.
    ReadyBeatsDeadline "ready-beats-deadline";
    /// A request that may be sent again is known by its key alone.
    KeyAlone "key-alone";
    /// The outcomes of another shard's rows are joined in the wrong order.
    RowsMixed "rows-mixed";
    /// The overflow number is in rotation.
    OverflowInRotation "overflow-in-rotation";
    /// A node that starts with a new map goes on serving what it has lost.
    StaleMap "stale-map";
    /// Pools that come with a new map are not held.
    NoHoldAfterMove "no-hold-after-move";
    /// … or only those that the start knows; not those that come later.
    LatePoolsNotHeld "late-pools-not-held";
    /// The next owner says that it has stored what it only has in memory.
    AdoptUnstored "adopt-unstored";
    /// Buckets are given up in memory only: after a restart they are served again.
    GivenNotKept "given-not-kept";
    /// Buckets are taken again although they have moved on.
    StaleTake "stale-take";
    /// What is told leaves out the numbers of the last group.
    FactsMissGroup "facts-miss-group";
    /// The next owner forgets visitors and what batches were answered.
    AdoptForgets "adopt-forgets";
    /// A node believes what others say of its own buckets.
    HearsayBelieved "hearsay-believed";
    /// A link is never told that its owner is slow.
    NeverShut "never-shut";
    /// A number is free while its lockout has a moment to go (in ringwell-core).
    LockCompare "lock-compare";
    /// The number that has been free for the shortest time goes out (in ringwell-core).
    NotFifo "not-fifo";
}

impl Bug {
    /// The bug that is called `name`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }

    /// The mistake in the driver that it is, if it is one.
    #[must_use]
    pub const fn in_driver(self) -> Option<InDriver> {
        match self {
            Self::FlushAgain => Some(InDriver::FlushAgain),
            Self::NoNameFlush => Some(InDriver::NoNameFlush),
            Self::OneSalt => Some(InDriver::OneSalt),
            Self::CutAtBadFrame => Some(InDriver::CutAtBadFrame),
            Self::NoHoldAfterRot => Some(InDriver::NoHoldAfterRot),
            Self::WallAtStart => Some(InDriver::WallAtStart),
            Self::NoRounding => Some(InDriver::NoRounding),
            Self::NoHoldAfterMove => Some(InDriver::NoHoldAfterMove),
            Self::SnapshotMissesGroup => Some(InDriver::SnapshotMissesGroup),
            Self::SnapshotTooEarly => Some(InDriver::SnapshotTooEarly),
            Self::SnapshotMissesMoved => Some(InDriver::SnapshotMissesMoved),
            Self::NoCarry => Some(InDriver::NoCarry),
            _ => None,
        }
    }

    /// Whether it is in production code, and there only if that was built with `--cfg canary`.
    #[must_use]
    pub const fn is_in_production(self) -> bool {
        matches!(self, Self::LockCompare | Self::NotFifo) || self.in_driver().is_some()
    }
}
