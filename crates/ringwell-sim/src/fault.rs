//! The kinds of faults: how often each kind happens in a run, and which faults have happened.
//!
//! This is swarm testing: each run draws which kinds of faults are enabled, and how often they
//! happen. A kind that was always enabled could hide the effects of other kinds.

use std::collections::BTreeSet;

use crate::random::Random;

/// Defines names for an enum's variants, for a run's output and the command line.
macro_rules! named {
    ($Named:ident $($variant:ident $name:literal)*) => {
        impl $Named {
            /// All variants, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in a run's output and on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the variant with the name `name`.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.name() == name)
            }
        }

        impl std::fmt::Display for $Named {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use named;

#[derive(PartialEq)]
enum Class {
    /// Does not happen in calm runs.
    Fault,
    /// A habit of clients or operators, or a property of the run. Calm runs have them too.
    Habit,
}

macro_rules! kinds {
    ($($kind:ident $name:literal $class:ident $odds:literal $low:literal $high:literal;)*) => {
        /// The kinds of faults, and the habits of clients.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "docs/spec/simulation.md explains each")]
        pub enum Kind { $($kind,)* }

        named! { Kind $($kind $name)* }

        impl Kind {
            const fn class(self) -> Class {
                match self { $(Self::$kind => Class::$class,)* }
            }

            /// The percentage of runs in which the kind is enabled, and the range of its rate per
            /// million opportunities.
            const fn odds(self) -> (u64, u64, u64) {
                match self { $(Self::$kind => ($odds, $low, $high),)* }
            }
        }
    };
}

// Each line contains the class, the percentage of runs in which the kind is enabled, and the range
// of its rate per million opportunities. For machine faults, an opportunity is a second of the run.
// For other kinds, it is a start, a call to the disk, a frame of a link, or a client's batch, row
// or answer. Torn and dropped blocks are only counted, because they result from power cuts.
kinds! {
    Kill "kill" Fault 60 5_000 100_000;
    Power "power" Fault 50 5_000 100_000;
    CrashAtCall "crash-at-call" Fault 40 100 4_000;
    Torn "torn" Fault 100 0 0;
    Dropped "dropped" Fault 100 0 0;
    WriteError "write-error" Fault 15 50 500;
    FlushError "flush-error" Fault 20 50 1_000;
    Full "full" Fault 20 5_000 30_000;
    SlowDisk "slow-disk" Fault 30 1_000 20_000;
    LostWrite "lost-write" Fault 8 50 1_000;
    Misdirected "misdirected" Fault 8 50 1_000;
    LyingFlush "lying-flush" Fault 10 5_000 200_000;
    Rot "rot" Fault 15 2_000 20_000;
    RotAtEnd "rot-at-end" Fault 10 20_000 400_000;
    FrameLost "frame-lost" Fault 40 1_000 50_000;
    FrameDoubled "frame-doubled" Fault 30 1_000 50_000;
    FrameDelayed "frame-delayed" Fault 40 1_000 50_000;
    FrameReordered "frame-reordered" Fault 40 5_000 300_000;
    Partition "partition" Fault 30 5_000 50_000;
    SlowShard "slow-shard" Fault 30 5_000 50_000;
    Pause "pause" Fault 30 5_000 50_000;
    ClockForward "clock-forward" Fault 30 2_000 30_000;
    ClockBack "clock-back" Fault 30 2_000 30_000;
    MapChange "map-change" Habit 30 5_000 30_000;
    Retry "retry" Habit 50 10_000 400_000;
    Visitor "visitor" Habit 50 10_000 400_000;
    Release "release" Habit 40 10_000 200_000;
    Abort "abort" Habit 40 5_000 100_000;
    Hurry "hurry" Habit 30 10_000 200_000;
    Move "move" Habit 50 20_000 400_000;
    Manage "manage" Habit 40 20_000 200_000;
    LateList "late-list" Habit 30 100_000 700_000;
    Shorten "shorten" Fault 8 20_000 200_000;
    SameKey "same-key" Habit 50 100_000 500_000;
    Single "single" Habit 50 10_000 400_000;
    ClockRight "clock-right" Habit 40 20_000 200_000;
    Stop "stop" Habit 30 2_000 30_000;
    Abandon "abandon" Habit 30 5_000 100_000;
    CrashAfter "crash-after" Fault 30 20_000 300_000;
    Hasty "hasty" Habit 30 100_000 700_000;
    LostDisk "lost-disk" Fault 20 5_000 60_000;
    LargePools "large-pools" Habit 10 1 1;
    SlowSpell "slow-spell" Fault 20 5_000 100_000;
    BootClock "boot-clock" Fault 30 50_000 500_000;
    Call "call" Habit 0 300_000 900_000;
    Os "os" Habit 12 1 1;
    Memory "memory" Habit 8 1 1;
    Restored "restored" Fault 20 5_000 60_000;
    CopyBack "copy-back" Fault 20 5_000 60_000;
    ListSpread "list-spread" Habit 40 300_000 900_000;
    StandsStill "stands-still" Fault 25 5_000 60_000;
    LostJournal "lost-journal" Fault 10 5_000 60_000;
    Remount "remount" Fault 12 5_000 60_000;
    CopiedJournal "copied-journal" Fault 8 5_000 60_000;
    GainsFirst "gains-first" Habit 0 500_000 1_000_000;
    CallElsewhere "call-elsewhere" Habit 0 500_000 1_000_000;
    CallLate "call-late" Habit 0 300_000 500_000;
}

/// The faults of one run.
#[derive(Debug)]
pub(crate) struct Faults {
    streams: Vec<Random>,
    rates: Vec<u64>,
    struck: Vec<u64>,
    /// If set, only these faults happen, each given as its kind and its index within the kind.
    only: Option<BTreeSet<(Kind, u64)>>,
    /// For each kind, the number of faults that were drawn, including those that did not happen
    /// because of `only`.
    drawn: Vec<u64>,
    /// All faults that have happened, for the shrinker.
    pub(crate) history: Vec<(Kind, u64)>,
    pub(crate) are_over: bool,
}

impl Faults {
    /// Draws which kinds are enabled. Kinds in `on` are always enabled, at their highest rate.
    /// Kinds in `off` are never enabled.
    pub(crate) fn draw(
        seed: u64,
        on: &[Kind],
        off: &[Kind],
        only: Option<BTreeSet<(Kind, u64)>>,
    ) -> Self {
        let mut random = Random::new(seed, 1);
        let is_calm = random.below(16) == 0;
        let rate = |kind: &Kind| {
            let (odds, low, high) = kind.odds();
            let (is_on, rate) = (random.below(100) < odds, random.between(low, high));
            let is_calmed = is_calm && kind.class() == Class::Fault;
            let rate = if on.contains(kind) { high } else { rate };
            let strikes = (is_on && !is_calmed) || on.contains(kind);
            if strikes && !off.contains(kind) { rate } else { 0 }
        };
        let rates = Kind::ALL.iter().map(rate).collect();
        let streams = (0..Kind::ALL.len() as u64).map(|i| Random::new(seed, 100 + i)).collect();
        let zeros = vec![0; Kind::ALL.len()];
        let history = Vec::new();
        Self { streams, rates, struck: zeros.clone(), only, drawn: zeros, history, are_over: false }
    }

    /// Whether this kind is enabled in this run.
    pub(crate) fn is_on(&self, kind: Kind) -> bool {
        self.rates[kind as usize] > 0
    }

    /// Draws whether a fault of this kind happens at this opportunity.
    pub(crate) fn strikes(&mut self, kind: Kind) -> bool {
        let rate = self.rates[kind as usize];
        !self.are_over && self.streams[kind as usize].chance(rate) && self.note(kind)
    }

    /// Records that a fault happens. Returns `false` if this fault is disabled.
    pub(crate) fn note(&mut self, kind: Kind) -> bool {
        let which = self.drawn[kind as usize];
        self.drawn[kind as usize] += 1;
        if self.only.as_ref().is_some_and(|only| !only.contains(&(kind, which))) {
            return false;
        }
        self.struck[kind as usize] += 1;
        self.history.push((kind, which));
        true
    }

    /// Records a kind that affects the whole run, if it is enabled.
    pub(crate) fn note_if_on(&mut self, kind: Kind) -> bool {
        self.is_on(kind) && self.note(kind)
    }

    /// Counts an effect of a crash on blocks. Such an effect is a consequence rather than a fault
    /// of its own, so it cannot be disabled.
    pub(crate) fn count(&mut self, kind: Kind) {
        self.struck[kind as usize] += 1;
    }

    /// Returns the random stream for the details of this kind.
    pub(crate) fn stream(&mut self, kind: Kind) -> &mut Random {
        &mut self.streams[kind as usize]
    }

    /// Returns, for each kind that has happened, the number of faults in `self` and `others`
    /// together.
    pub(crate) fn counts(&self, others: &Self) -> Vec<(Kind, u64)> {
        let count = |kind: Kind| self.struck[kind as usize] + others.struck[kind as usize];
        let counts = Kind::ALL.iter().map(|kind| (*kind, count(*kind)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}
