//! The kinds of faults: how often each kind happens in a run, and which faults have happened.
//!
//! This is swarm testing: each run draws which kinds of faults are enabled, and how often they
//! happen. A kind that was always enabled could hide the effects of other kinds.

use std::collections::BTreeSet;
use std::fmt;

use crate::random::Random;

macro_rules! kinds {
    ($($kind:ident $name:literal $odds:literal $low:literal $high:literal;)*) => {
        /// The kinds of faults, and the habits of clients.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "docs/spec/simulation.md explains each")]
        pub enum Kind { $($kind,)* }

        impl Kind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The name of the kind in the output of a run and on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The percentage of runs in which the kind is enabled, and the range of its rate per
            /// million opportunities.
            const fn odds(self) -> (u64, u64, u64) {
                match self { $(Self::$kind => ($odds, $low, $high),)* }
            }
        }
    };
}

// Each line contains the percentage of runs in which the kind is enabled, and the range of its rate
// per million opportunities. For faults of machines, an opportunity is a second of the run. For
// other kinds, it is a start, a call to the disk, a frame of a link, or a client's batch, row or
// answer. Torn and dropped blocks are only counted, because they result from power cuts.
kinds! {
    Kill "kill" 60 5_000 100_000;
    Power "power" 50 5_000 100_000;
    CrashAtCall "crash-at-call" 40 100 4_000;
    Torn "torn" 100 0 0;
    Dropped "dropped" 100 0 0;
    WriteError "write-error" 15 50 500;
    FlushError "flush-error" 20 50 1_000;
    Full "full" 20 5_000 30_000;
    SlowDisk "slow-disk" 30 1_000 20_000;
    LostWrite "lost-write" 8 50 1_000;
    Misdirected "misdirected" 8 50 1_000;
    LyingFlush "lying-flush" 10 5_000 200_000;
    Rot "rot" 15 2_000 20_000;
    RotAtEnd "rot-at-end" 10 20_000 400_000;
    FrameLost "frame-lost" 40 1_000 50_000;
    FrameDoubled "frame-doubled" 30 1_000 50_000;
    FrameDelayed "frame-delayed" 40 1_000 50_000;
    FrameReordered "frame-reordered" 40 5_000 300_000;
    Partition "partition" 30 5_000 50_000;
    SlowShard "slow-shard" 30 5_000 50_000;
    Pause "pause" 30 5_000 50_000;
    ClockForward "clock-forward" 30 2_000 30_000;
    ClockBack "clock-back" 30 2_000 30_000;
    MapChange "map-change" 30 5_000 30_000;
    Retry "retry" 50 10_000 400_000;
    Visitor "visitor" 50 10_000 400_000;
    Release "release" 40 10_000 200_000;
    Abort "abort" 40 5_000 100_000;
    Hurry "hurry" 30 10_000 200_000;
    Move "move" 50 20_000 400_000;
    Manage "manage" 40 20_000 200_000;
    LateList "late-list" 30 100_000 700_000;
    Shorten "shorten" 8 20_000 200_000;
    SameKey "same-key" 50 100_000 500_000;
    Single "single" 50 10_000 400_000;
    ClockRight "clock-right" 40 20_000 200_000;
    Stop "stop" 30 2_000 30_000;
    Abandon "abandon" 30 5_000 100_000;
    CrashAfter "crash-after" 30 20_000 300_000;
    Hasty "hasty" 30 100_000 700_000;
    LostDisk "lost-disk" 20 5_000 60_000;
    LargePools "large-pools" 10 1 1;
    SlowSpell "slow-spell" 20 5_000 100_000;
    BootClock "boot-clock" 30 50_000 500_000;
    Call "call" 0 300_000 900_000;
    Os "os" 12 1 1;
    Memory "memory" 8 1 1;
    Restored "restored" 20 5_000 60_000;
    CopyBack "copy-back" 20 5_000 60_000;
    ListSpread "list-spread" 40 300_000 900_000;
    StandsStill "stands-still" 25 5_000 60_000;
    LostJournal "lost-journal" 10 5_000 60_000;
    Remount "remount" 12 5_000 60_000;
    CopiedJournal "copied-journal" 8 5_000 60_000;
    GainsFirst "gains-first" 0 500_000 1_000_000;
    CallElsewhere "call-elsewhere" 0 500_000 1_000_000;
    CallLate "call-late" 0 300_000 500_000;
}

impl Kind {
    /// Returns the kind with the name `name`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
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
            // The habits of clients are not faults, so a run without faults has them too.
            let is_fault = *kind < Kind::MapChange
                || matches!(
                    kind,
                    Kind::Shorten
                        | Kind::CrashAfter
                        | Kind::LostDisk
                        | Kind::SlowSpell
                        | Kind::BootClock
                        | Kind::Restored
                        | Kind::CopyBack
                        | Kind::StandsStill
                        | Kind::LostJournal
                        | Kind::Remount
                        | Kind::CopiedJournal
                );
            let is_calmed = is_calm && is_fault;
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

    /// Returns the random stream from which the details of this kind are drawn.
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
