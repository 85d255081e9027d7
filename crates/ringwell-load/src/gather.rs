//! Merges the threads' reports, interval by interval, into one outcome.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::clock::{as_ns, as_seconds, cpu_ns, now_ns};
use crate::outcome::{FORMAT, Latency, Outcome, Sample, Setting, curve};
use crate::pace::Pace;
use crate::plan::{LoadPlan, Progress, mode};
use crate::request::Spread;
use crate::tally::{Counts, Latencies, latencies};
use crate::worker::{Seen, Shared};

/// The interval between two updates of a live view.
const LIVE_EVERY: Duration = Duration::from_millis(250);
/// The interval between two history lines that record the monotonic clock and the wall clock.
const CLOCKS_EVERY_NS: u64 = 1_000_000_000;

/// The data collected so far.
#[derive(Debug)]
pub(crate) struct Gather<'a> {
    shared: &'a Shared<'a>,
    /// Intervals that at least one thread has not reported yet.
    open: BTreeMap<u64, Joined>,
    counts: Counts,
    latencies: Latencies,
    samples: Vec<Sample>,
    last: (u64, Latency),
    /// The time from the start of the run to its end, if the run was ended early.
    stopped_ns: Option<u64>,
    wall_ns: u64,
    cpu_ns: u64,
}

#[derive(Debug)]
struct Joined {
    counts: Counts,
    latencies: Latencies,
    threads: usize,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>) -> Self {
        Self {
            shared,
            open: BTreeMap::new(),
            counts: Counts::default(),
            latencies: latencies(),
            samples: Vec::new(),
            last: (0, Latency::default()),
            stopped_ns: None,
            wall_ns: 0,
            cpu_ns: 0,
        }
    }

    /// Collects reports until the last thread ends.
    ///
    /// # Errors
    /// If the history cannot be written.
    pub(crate) fn follow(
        &mut self,
        start_ns: u64,
        seen: &Receiver<Seen>,
        live: &mut dyn FnMut(&Progress),
    ) -> io::Result<()> {
        let cpu_before = cpu_ns();
        let (mut reported_ns, mut clocks_ns) = (start_ns, start_ns);
        loop {
            let got = seen.recv_timeout(LIVE_EVERY);
            let now = now_ns();
            let elapsed = now.saturating_sub(start_ns);
            if self.stopped_ns.is_none() && self.shared.stop.load(Ordering::Relaxed) {
                self.stopped_ns = Some(elapsed);
            }
            match got {
                Ok(seen) => self.add(&seen),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if now.saturating_sub(reported_ns) >= as_ns(LIVE_EVERY) {
                reported_ns = now;
                live(&self.progress(elapsed));
            }
            if let Some(history) = self.shared.history
                && now.saturating_sub(clocks_ns) >= CLOCKS_EVERY_NS
            {
                clocks_ns = now;
                history.clocks()?;
            }
        }
        // The last intervals may still be open, because threads that ended early did not report
        // them.
        while let Some((_, joined)) = self.open.pop_first() {
            self.close(&joined);
        }
        self.wall_ns = now_ns().saturating_sub(start_ns).max(1);
        self.cpu_ns = cpu_ns().saturating_sub(cpu_before);
        Ok(())
    }

    fn add(&mut self, seen: &Seen) {
        let joined = self.open.entry(seen.interval).or_insert_with(|| Joined {
            counts: Counts::default(),
            latencies: latencies(),
            threads: 0,
        });
        joined.counts.add(&seen.counts);
        merge(&mut joined.latencies, &seen.latencies);
        joined.threads += 1;
        if joined.threads == self.shared.plan.threads
            && let Some(joined) = self.open.remove(&seen.interval)
        {
            self.close(&joined);
        }
    }

    /// Completes an interval. Threads report intervals in order, so intervals are also completed in
    /// order.
    fn close(&mut self, joined: &Joined) {
        self.counts.add(&joined.counts);
        merge(&mut self.latencies, &joined.latencies);
        self.samples.push(Sample::new(&joined.counts, &joined.latencies));
        self.last = (joined.counts.ok(), Latency::of(&joined.latencies));
    }

    fn progress(&self, elapsed_ns: u64) -> Progress {
        let (ok, latency) = self.last;
        Progress {
            elapsed: as_seconds(elapsed_ns),
            duration: self.shared.plan.duration.as_secs_f64(),
            batches_per_second: count(ok) / as_seconds(self.shared.interval_ns),
            latency,
            counts: self.counts.clone(),
        }
    }

    /// Computes the outcome at the end of the run.
    pub(crate) fn outcome(mut self, started_at: String) -> Outcome {
        let plan = self.shared.plan;
        let interval_seconds = as_seconds(self.shared.interval_ns);
        let sending_ns = as_ns(plan.duration).min(self.stopped_ns.unwrap_or(u64::MAX));
        // Answers that arrive after sending has ended do not count towards the rate. The count of
        // intervals is rounded down, because sending may end in the middle of an interval.
        let whole = (sending_ns + self.shared.interval_ns / 1000) / self.shared.interval_ns;
        self.samples.truncate(usize::try_from(whole).unwrap_or(usize::MAX));
        let sum = |pick: fn(&Sample) -> u64| self.samples.iter().map(pick).sum::<u64>();
        let seconds = count(whole) * interval_seconds;
        let (ok, rows, seconds) = if whole == 0 {
            (self.counts.ok(), self.counts.rows, as_seconds(self.wall_ns))
        } else {
            (sum(|sample| sample.ok), sum(|sample| sample.rows), seconds)
        };
        let cpu = as_seconds(self.cpu_ns);
        Outcome {
            format: FORMAT,
            by: concat!("ringwell load ", env!("CARGO_PKG_VERSION")).to_owned(),
            started_at,
            setting: Setting::of(plan),
            interrupted: self.stopped_ns.is_some(),
            seconds,
            batches_per_second: count(ok) / seconds,
            rows_per_second: count(rows) / seconds,
            latency: Latency::of(&self.latencies),
            percentiles: curve(&self.latencies),
            generator_cores: cpu / as_seconds(self.wall_ns),
            generator_cpu_us_per_answer: cpu * 1e6 / count(self.counts.ok().max(1)),
            counts: self.counts,
            interval_seconds,
            samples: self.samples,
        }
    }
}

impl Setting {
    fn of(plan: &LoadPlan) -> Self {
        let (rate, spikes) = match &plan.pace {
            Pace::Closed => (None, 0),
            Pace::Open { rate, spikes } => (Some(*rate), spikes.len()),
        };
        Self {
            targets: plan.targets.iter().map(ToString::to_string).collect(),
            mode: mode(plan).to_owned(),
            rate,
            ramp_seconds: plan.ramp.as_secs_f64(),
            spikes,
            spread: plan.spread,
            pools: if plan.spread == Spread::One { 1 } else { plan.pools.len() },
            rows: plan.rows,
            connections: plan.connections,
            threads: plan.threads,
            duration_seconds: plan.duration.as_secs_f64(),
            timeout_seconds: plan.timeout.as_secs_f64(),
            history: plan.history.is_some(),
        }
    }
}

fn merge(into: &mut Latencies, more: &Latencies) {
    #[expect(clippy::expect_used, reason = "these histograms have the same bounds")]
    into.add(more).expect("same bounds");
}

#[expect(clippy::cast_precision_loss, reason = "no count of a run reaches 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}
