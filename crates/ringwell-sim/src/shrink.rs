//! Reduces a failed run to a smaller run that fails in the same way.
//!
//! Omits kinds of faults, then single faults and batches, as long as the same promise is still
//! broken. If a fault or a batch is omitted, the other faults and batches are drawn as before.

use std::collections::BTreeSet;

use crate::options::Options;
use crate::run::{Report, run};

/// The maximum number of trial runs for reducing one failed run.
const RUNS_MAX: u32 = 600;

struct Shrinker {
    best: Options,
    report: Report,
    runs: u32,
}

/// Returns the smallest options found that break the same promise as `options`, or `None` if no
/// promise is broken.
#[must_use]
pub fn shrink(options: &Options) -> Option<(Options, Report)> {
    let report = run(options);
    report.violation.as_ref()?;
    let mut shrinker = Shrinker { best: options.clone(), report, runs: 0 };
    shrinker.leave_out_kinds();
    for _ in 0..2 {
        shrinker.leave_out_batches();
        shrinker.leave_out_faults();
    }
    let options = Options { keeps_tale: true, ..shrinker.best };
    let report = run(&options);
    Some((options, report))
}

impl Shrinker {
    /// Runs with `options`, and keeps them if the run fails in the same way as the original run.
    fn try_out(&mut self, options: Options) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        let report = run(&options);
        let rule = |report: &Report| report.violation.as_ref().map(|violation| violation.rule);
        let is_same = rule(&report) == rule(&self.report);
        if is_same {
            (self.best, self.report) = (options, report);
        }
        is_same
    }

    fn leave_out_kinds(&mut self) {
        for (kind, _) in self.report.faults.clone() {
            let mut options = self.best.clone();
            options.off.push(kind);
            self.try_out(options);
        }
    }

    fn leave_out_faults(&mut self) {
        let known = self.best.only_faults.clone();
        let all = known.unwrap_or_else(|| self.report.history.iter().copied().collect());
        self.thin(all, |options, kept| options.only_faults = Some(kept));
    }

    fn leave_out_batches(&mut self) {
        let known = self.best.only_batches.clone();
        let all = known.unwrap_or_else(|| (0..self.report.batches).collect());
        self.thin(all, |options, kept| options.only_batches = Some(kept));
    }

    /// Tries to leave out each half of the entries, then each quarter, and so on, down to single
    /// entries.
    fn thin<T: Copy + Ord>(
        &mut self,
        mut all: BTreeSet<T>,
        set: impl Fn(&mut Options, BTreeSet<T>),
    ) {
        let mut size = all.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < all.len() {
                let left_out: BTreeSet<T> = all.iter().skip(from).take(size).copied().collect();
                let kept: BTreeSet<T> = all.difference(&left_out).copied().collect();
                let mut options = self.best.clone();
                set(&mut options, kept.clone());
                if self.try_out(options) {
                    all = kept;
                } else {
                    from += size;
                }
            }
            if size == 1 {
                return;
            }
            size = size.div_ceil(2);
        }
    }
}
