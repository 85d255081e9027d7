//! The next batch to send, and the time at which it is due.
//!
//! Uses no sockets. In an open loop, the workers share one schedule: each of `threads` workers gets
//! every `threads`-th batch. In a closed loop, a batch is due whenever a connection is free.

use std::collections::VecDeque;

use crate::clock::as_ns;
use crate::history::Attempt;
use crate::pace::{Pace, Schedule};
use crate::plan::LoadPlan;

/// A batch to be sent again because its answer was lost.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) attempt: Attempt,
    pub(crate) bytes: Vec<u8>,
    pub(crate) due_ns: u64,
}

/// The batches of one thread. All times are from the machine's monotonic clock.
#[derive(Debug)]
pub(crate) struct Feed {
    start_ns: u64,
    end_ns: u64,
    pace: Turn,
    retries: VecDeque<Retry>,
}

#[derive(Debug)]
enum Turn {
    Closed,
    Open { schedule: Schedule, index: u64, step: u64, next_ns: Option<u64> },
}

impl Feed {
    pub(crate) fn new(plan: &LoadPlan, thread: usize, start_ns: u64) -> Self {
        let end_ns = start_ns.saturating_add(as_ns(plan.duration));
        let pace = match &plan.pace {
            Pace::Closed => Turn::Closed,
            Pace::Open { rate, spikes } => {
                let mut schedule = Schedule::new(*rate, plan.ramp, spikes, plan.duration);
                let index = u64::try_from(thread).unwrap_or(u64::MAX);
                let step = u64::try_from(plan.threads).unwrap_or(u64::MAX);
                let next_ns = schedule.due_ns(index).map(|due| start_ns + due);
                Turn::Open { schedule, index, step, next_ns }
            }
        };
        Self { start_ns, end_ns, pace, retries: VecDeque::new() }
    }

    /// The due time of the next new batch, if that time has come.
    pub(crate) fn due(&self, now_ns: u64) -> Option<u64> {
        match &self.pace {
            Turn::Closed => (now_ns < self.end_ns).then_some(now_ns),
            Turn::Open { next_ns, .. } => {
                next_ns.filter(|due| *due <= now_ns && *due < self.end_ns)
            }
        }
    }

    /// The due time of the next batch in an open loop.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        match &self.pace {
            Turn::Closed => None,
            Turn::Open { next_ns, .. } => next_ns.filter(|due| *due < self.end_ns),
        }
    }

    /// Removes the batch that was due, and schedules the next one.
    pub(crate) fn take(&mut self) {
        if let Turn::Open { schedule, index, step, next_ns } = &mut self.pace {
            *index += *step;
            *next_ns = schedule.due_ns(*index).map(|due| self.start_ns + due);
        }
    }

    pub(crate) fn retry(&mut self, retry: Retry) {
        self.retries.push_back(retry);
    }

    pub(crate) fn take_retry(&mut self) -> Option<Retry> {
        self.retries.pop_front()
    }

    /// Ends the feed: from now on, no batch is due.
    pub(crate) fn stop(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns);
        self.retries.clear();
    }

    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Whether all batches have been sent.
    pub(crate) fn is_done(&self, now_ns: u64) -> bool {
        let is_dry = match &self.pace {
            Turn::Closed => now_ns >= self.end_ns,
            Turn::Open { .. } => self.next_ns().is_none(),
        };
        is_dry && self.retries.is_empty()
    }

    /// Removes all batches that are due but were not sent, and returns their count.
    pub(crate) fn left(&mut self) -> u64 {
        let mut left = 0;
        while self.next_ns().is_some() {
            left += 1;
            self.take();
        }
        left
    }
}
