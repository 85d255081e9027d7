//! One run from its seed: its options, and its report.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use ringwell_driver::Bug;
use ringwell_driver::shard::panic_text;

use crate::fault::Kind;
use crate::files::lock;
use crate::model::Violation;
use crate::world::World;

/// The options of a run. The same options give exactly the same run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed of all draws.
    pub seed: u64,
    /// Kinds of faults that happen, as often as possible.
    pub on: Vec<Kind>,
    /// Kinds of faults that do not happen.
    pub off: Vec<Kind>,
    /// Only these faults happen: the kind, and the index in the kind.
    pub only_faults: Option<BTreeSet<(Kind, u64)>>,
    /// Only these batches are sent.
    pub only_batches: Option<BTreeSet<u32>>,
    /// Whether the run takes hours, with quiet time between bursts of requests.
    pub has_hours: bool,
    /// A bug to plant.
    pub bug: Option<Bug>,
    /// Whether the story for a person is kept.
    pub keeps_tale: bool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The broken promise, if there was one.
    pub violation: Option<Violation>,
    /// Simulated time in microseconds.
    pub length_us: u64,
    /// The count of answered rows.
    pub rows: u64,
    /// The count of answered numbers.
    pub numbers: u64,
    /// Answers that the disk has lost without any evidence.
    pub excused: u64,
    /// Calls that were made and attributed at once, each to the right visitor.
    pub attributed_calls: u64,
    /// The count of polls of tasks.
    pub polls: u64,
    /// The count of each kind of fault.
    pub faults: Vec<(Kind, u64)>,
    /// The faults that happened.
    pub history: Vec<(Kind, u64)>,
    /// The count of batches.
    pub batches: u32,
    /// A digest of all events: equal for equal runs.
    pub hash: u64,
    /// The story, if it was requested.
    pub tale: Vec<String>,
}

/// Runs a seed.
///
/// # Panics
/// Panics if a process still exists after a run without a violation.
#[must_use]
pub fn run(options: &Options) -> Report {
    #[cfg(canary)]
    ringwell_driver::canary::plant(options.bug);
    let mut world = World::new(options);
    // Production code asserts its assumptions: a failed assertion is a finding like any other.
    let judged = catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_owned();
        Err(Violation { rule: "panic", text, number: 0, shard: 0 })
    });
    let report = report(options, &world, judged);
    let shared = Rc::downgrade(&world.shared);
    drop(world);
    let is_freed = report.violation.is_some() || shared.strong_count() == 0;
    assert!(is_freed, "processes of a finished run still exist");
    report
}

fn report(options: &Options, world: &World, judged: Result<(), Violation>) -> Report {
    let call_faults = lock(&world.shared.call_faults);
    let numbers = judged.as_ref().err().map(numbers_of).unwrap_or_default();
    let model = world.shared.model.borrow();
    Report {
        seed: options.seed,
        violation: judged.err(),
        length_us: world.now(),
        rows: model.rows,
        numbers: model.numbers_out,
        excused: model.excused,
        attributed_calls: world.attributed_calls,
        polls: world.polls,
        faults: world.faults.counts(&call_faults),
        history: call_faults.history.iter().chain(&world.faults.history).copied().collect(),
        batches: world.clients.count(),
        hash: world.shared.hash.get(),
        tale: world.shared.tale.borrow().lines(&numbers),
    }
}

/// The numbers that a violation concerns: its own, and those in its text.
fn numbers_of(violation: &Violation) -> Vec<u64> {
    let words = violation.text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).chain([violation.number]).collect()
}

impl Report {
    /// The run in one line.
    #[must_use]
    pub fn line(&self, commit: &str) -> String {
        let Self { seed, length_us, rows, numbers, excused, hash, .. } = self;
        let verdict = self.violation.as_ref().map_or("ok", |violation| violation.rule);
        let ms = length_us / 1000;
        let (hours, rest) = (ms / 3_600_000, ms % 3_600_000 / 36);
        let mut line = format!(
            "seed={seed} commit={commit} hours={hours}.{rest:05} rows={rows} numbers={numbers} \
             excused={excused} hash={hash:016x} verdict={verdict:?} faults:"
        );
        for (kind, count) in &self.faults {
            // Writing to a string does not fail.
            let _ = write!(line, " {kind}={count}");
        }
        line
    }
}

/// The events, line by line, for a person.
#[derive(Debug)]
pub(crate) struct Tale {
    keeps_tale: bool,
    lines: Vec<(u64, usize, Vec<u64>, String)>,
}

impl Tale {
    pub(crate) fn new(keeps_tale: bool) -> Self {
        Self { keeps_tale, lines: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        now: u64,
        node: usize,
        about: &[u64],
        text: impl FnOnce() -> String,
    ) {
        if self.keeps_tale {
            self.lines.push((now, node, about.to_vec(), text()));
        }
    }

    /// Lines without a number, and lines about any of `numbers`.
    pub(crate) fn lines(&self, numbers: &[u64]) -> Vec<String> {
        let concerns =
            |about: &[u64]| about.is_empty() || about.iter().any(|number| numbers.contains(number));
        let lines = self.lines.iter().filter(|(_, _, about, _)| concerns(about));
        lines
            .map(|(now, node, _, text)| {
                format!("{:>4}.{:06} node {node}: {text}", now / 1_000_000, now % 1_000_000)
            })
            .collect()
    }
}
