//! One run of a seed, and its report.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use ringwell_driver::shard::panic_text;

use crate::fault::Kind;
use crate::files::lock;
use crate::model::Violation;
use crate::options::Options;
use crate::world::World;

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The promise that was broken, if any.
    pub violation: Option<Violation>,
    /// The length of the run in simulated microseconds.
    pub length_us: u64,
    /// The number of rows that were answered.
    pub rows: u64,
    /// The number of rows that were answered with a number.
    pub numbers: u64,
    /// The number of answers that a disk lost without leaving evidence of the loss.
    pub excused: u64,
    /// The number of calls that were made during the run and attributed immediately, each to the
    /// right visitor.
    pub attributed_calls: u64,
    /// The number of times that a task was polled.
    pub polls: u64,
    /// The number of faults of each kind.
    pub faults: Vec<(Kind, u64)>,
    /// The faults that happened, in order.
    pub history: Vec<(Kind, u64)>,
    /// The number of batches that were sent.
    pub batches: u32,
    /// A digest of all events. Equal runs have equal digests.
    pub hash: u64,
    /// The events as lines of text, if they were requested.
    pub story: Vec<String>,
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
    let judged = judged(|| world.run());
    let report = report(options, &world, judged);
    let shared = Rc::downgrade(&world.shared);
    drop(world);
    let is_freed = report.violation.is_some() || shared.strong_count() == 0;
    assert!(is_freed, "processes of a finished run still exist");
    report
}

/// Calls `run`. Production code asserts its assumptions, and a failed assertion counts as a
/// violation like any other.
pub(crate) fn judged(run: impl FnOnce() -> Result<(), Violation>) -> Result<(), Violation> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_owned();
        Err(Violation { rule: "panic", text, number: 0, shard: 0 })
    })
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
        story: world.shared.story.borrow().lines(&numbers),
    }
}

/// Returns the numbers in the fields `number` and `text` of a violation.
fn numbers_of(violation: &Violation) -> Vec<u64> {
    let words = violation.text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).chain([violation.number]).collect()
}

impl Report {
    /// Returns the run's report in one line.
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
            // Writing to a string cannot fail.
            let _ = write!(line, " {kind}={count}");
        }
        line
    }
}
