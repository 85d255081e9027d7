//! The only writer of calls, which stores waiting changes in groups.
//!
//! While the database is unavailable, changes wait in memory and in the backlog file ([`Backlog`]).
//! No change is lost unless too many are waiting.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_store::Repeated;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::Log;
use super::apply::apply;
use super::backlog::Backlog;
use super::change::{Applied, CallChange};
use super::error::LogError;
use super::group::Group;
use crate::attribution::Attributed;

/// The maximum number of changes that may wait.
const QUEUE_MAX: usize = 10_000;
/// The maximum number of changes in one transaction.
const GROUP_MAX: usize = 256;
/// The shortest and the longest interval between the starts of consecutive transactions. The
/// interval is twice the duration of the last transaction. All changes that arrive during the
/// interval share the next transaction. Each transaction flushes the disk, which delays the flushes
/// of allocations. It also writes the pages that all calls change: the ends of tables and of
/// indexes by time. In a measurement at 500 calls a second, an interval of 10 ms instead of 3 ms
/// reduced the pages written per call from 12.1 to 6.0, and the flushes per second from 253 to 96.
/// The difference matters on disks with slow flushes.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(10));
/// The first and the longest pause before a failed transaction is retried.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The time after which an unstored change is also written to the backlog file. Half of the time
/// until the submitter's deadline is used instead if that is shorter. A caller waits only a quarter
/// of a second for an answer, but a transaction may take ten seconds to fail if the database is
/// unavailable.
const KEEP_AFTER: Duration = Duration::from_millis(100);
/// The time that a submitter waits for a slow database even though its change is already in the
/// backlog file. It applies to submitters that only need to know that the change is not lost. If
/// the database stores the change within this time, the submitter can read it from the log.
const ANSWER_AFTER: Duration = Duration::from_secs(2);
/// The shortest time between two writes to the backlog file.
const KEEP_EVERY: Duration = Duration::from_millis(20);

static NOT_STORED: Repeated = Repeated::new();
static NOT_KEPT: Repeated = Repeated::new();

/// A handle for submitting changes to the writer.
#[derive(Clone, Debug)]
pub struct Writer {
    jobs: mpsc::Sender<Job>,
    waiting: watch::Sender<Waiting>,
    /// The backlog file, once its path is known.
    backlog: SharedBacklog,
    attributed: Arc<AttributedCounts>,
}

/// The counts of calls to pools' numbers whose attribution this process has completed, in the order
/// of [`Attributed::RESULTS`].
pub(crate) type AttributedCounts = [AtomicU64; Attributed::RESULTS.len()];

/// The counts of changes that were submitted but are not stored in the database yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The count of all waiting changes.
    pub all: usize,
    /// The count of waiting changes that are also in the backlog file. If this process ends, the
    /// next process can store them.
    pub kept: usize,
}

/// The error if no more changes are accepted because too many are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many changes to calls are waiting for the database")]
pub struct WriterFull;

#[derive(Debug)]
struct Job {
    change: CallChange,
    reply: oneshot::Sender<Applied>,
    /// Whether the change is in the backlog file.
    is_kept: bool,
    /// The time at which the change is written to the backlog file, unless it is stored by then.
    keep_at: Instant,
    /// Answers the submitter when the change is in the backlog file, so that the submitter need not
    /// wait any longer.
    kept: Option<oneshot::Sender<()>>,
}

/// The progress of a submitted change.
#[derive(Debug)]
pub(crate) struct Submitted {
    /// Completes when the change is stored.
    pub(crate) applied: oneshot::Receiver<Applied>,
    /// Completes when the change is in the backlog file. This happens if the database is slow or
    /// unavailable.
    pub(crate) kept: oneshot::Receiver<()>,
}

/// The backlog file. Unset until its path is known.
type SharedBacklog = Arc<OnceLock<Mutex<Backlog>>>;

impl Writer {
    /// Starts a writer for `log` on the current runtime. Calls `stored` after each transaction.
    /// `now` supplies the time of events.
    pub fn start(
        log: Log,
        now: impl Fn() -> Millis + Send + Sync + 'static,
        stored: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (sender, jobs) = mpsc::channel(QUEUE_MAX);
        let (waiting, backlog) = (watch::Sender::default(), Arc::default());
        let writer = Self { jobs: sender, waiting, backlog, attributed: Arc::default() };
        let (held, of) = (VecDeque::new(), writer.clone());
        let Self { waiting, backlog, attributed, .. } = of;
        let run = Run { log, held, alone: 0, waiting, backlog, attributed };
        tokio::spawn(run.run(jobs, now, stored));
        writer
    }

    /// From now on, keeps changes in the file at `path` while the database cannot store them.
    /// Submits the changes that an earlier process left in the file, and returns them.
    ///
    /// # Errors
    /// If the file cannot be read. Changes then wait only in memory.
    pub fn keep_in(
        &self,
        path: &Path,
    ) -> io::Result<Vec<(CallChange, oneshot::Receiver<Applied>)>> {
        let (backlog, changes) = Backlog::open(path)?;
        if self.backlog.set(Mutex::new(backlog)).is_err() {
            return Ok(Vec::new());
        }
        let mut submitted = Vec::new();
        for change in changes {
            // Changes that do not fit into the queue remain in the file for the next process.
            let Ok(applied) = self.enqueue(change.clone(), None, KEEP_AFTER) else { break };
            submitted.push((change, applied));
        }
        Ok(submitted)
    }

    /// Waits until each submitted change is either stored in the database or kept in the backlog
    /// file.
    pub async fn finish(&self) {
        // This cannot fail, because `self` keeps the channel open.
        let _ = self.waiting.subscribe().wait_for(|waiting| waiting.all == waiting.kept).await;
    }

    /// The counts of completed attributions.
    pub(crate) fn attributed(&self) -> &AttributedCounts {
        &self.attributed
    }

    /// The counts of changes that are not stored yet.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        *self.waiting.borrow()
    }

    /// Submits `change`. The returned future completes when the change is stored. Dropping the
    /// future does not cancel the change.
    ///
    /// # Errors
    /// [`WriterFull`].
    pub fn submit(&self, change: CallChange) -> Result<oneshot::Receiver<Applied>, WriterFull> {
        Ok(self.submit_report(change, Instant::now() + ANSWER_AFTER)?.applied)
    }

    /// Like [`Self::submit`], but for a submitter that only needs to know that the change is not
    /// lost. The submitter stops waiting at `until`.
    pub(crate) fn submit_report(
        &self,
        change: CallChange,
        until: Instant,
    ) -> Result<Submitted, WriterFull> {
        let (keep, kept) = oneshot::channel();
        let left = until.saturating_duration_since(Instant::now());
        let applied = self.enqueue(change, Some(keep), KEEP_AFTER.min(left / 2))?;
        Ok(Submitted { applied, kept })
    }

    fn enqueue(
        &self,
        change: CallChange,
        kept: Option<oneshot::Sender<()>>,
        keep_after: Duration,
    ) -> Result<oneshot::Receiver<Applied>, WriterFull> {
        let (reply, answer) = oneshot::channel();
        let slot = self.jobs.try_reserve().map_err(|_| WriterFull)?;
        let is_accepted = self.waiting.send_if_modified(|waiting| {
            let has_room = waiting.all < QUEUE_MAX;
            waiting.all += usize::from(has_room);
            waiting.kept += usize::from(has_room && kept.is_none());
            has_room
        });
        if !is_accepted {
            return Err(WriterFull);
        }
        let keep_at = Instant::now() + keep_after;
        slot.send(Job { change, reply, is_kept: kept.is_none(), keep_at, kept });
        Ok(answer)
    }
}

/// The writer's task.
struct Run {
    log: Log,
    /// The changes that were received but not stored yet, oldest first.
    held: VecDeque<Job>,
    /// The count of changes to store one by one, because one of them was refused.
    alone: usize,
    waiting: watch::Sender<Waiting>,
    backlog: SharedBacklog,
    attributed: Arc<AttributedCounts>,
}

impl Run {
    async fn run(
        mut self,
        mut jobs: mpsc::Receiver<Job>,
        now: impl Fn() -> Millis,
        stored: impl Fn(),
    ) {
        let mut next = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            if self.held.is_empty() {
                let Some(job) = jobs.recv().await else { return };
                self.held.push_back(job);
            }
            // If the database has just failed, it is likely to fail again. Therefore, changes are
            // written to the backlog file sooner than usual.
            let is_away = pause > PAUSE.0;
            let patience = if is_away { [KEEP_EVERY; 2] } else { [KEEP_AFTER, ANSWER_AFTER] };
            self.keep_during(&mut jobs, patience, tokio::time::sleep_until(next)).await;
            let began = Instant::now();
            if self.store(&mut jobs, patience, now()).await {
                next = began + (began.elapsed() * 2).clamp(INTERVAL.0, INTERVAL.1);
                pause = PAUSE.0;
                stored();
            } else {
                next = Instant::now() + pause;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }

    /// Runs `work` until it completes. If `work` is still running after the first duration of
    /// `patience`, or at a change's [`Job::keep_at`], calls [`Self::keep`]. After the second
    /// duration, [`Self::keep`] also answers the submitters.
    async fn keep_during<T>(
        &mut self,
        jobs: &mut mpsc::Receiver<Job>,
        patience: [Duration; 2],
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        let mut not_before = Instant::now();
        let [mut at, answers_at] = patience.map(|patience| not_before + patience);
        loop {
            let new = self.held.iter().rev().take_while(|job| !job.is_kept);
            let due = new.map(|job| job.keep_at).min().map_or(at, |due| due.min(at));
            tokio::select! {
                biased;
                result = &mut work => {
                    while let Ok(job) = jobs.try_recv() {
                        self.held.push_back(job);
                    }
                    return result;
                }
                Some(job) = jobs.recv() => {
                    self.held.push_back(job);
                    continue;
                }
                () = tokio::time::sleep_until(due.max(not_before)) => {}
            }
            self.keep(Instant::now() >= answers_at).await;
            (at, not_before) = (Instant::now() + KEEP_EVERY, Instant::now() + KEEP_EVERY);
        }
    }

    /// Stores the oldest changes. Returns whether the database answered.
    async fn store(
        &mut self,
        jobs: &mut mpsc::Receiver<Job>,
        patience: [Duration; 2],
        now: Millis,
    ) -> bool {
        let most = if self.alone > 0 { 1 } else { GROUP_MAX };
        let count = self.held.len().min(most);
        let changes: Vec<CallChange> =
            self.held.iter().take(count).map(|job| job.change.clone()).collect();
        let log = self.log.clone();
        // Changes that arrive during the transaction are added to `held`.
        let stored = together(&log, now, changes.iter());
        match self.keep_during(jobs, patience, stored).await {
            Ok(applied) => {
                let done: Vec<Job> = self.held.drain(..count).collect();
                self.done(&done).await;
                for (job, applied) in done.into_iter().zip(applied) {
                    let result = |it: &Attributed| applied.attributed == Some(*it);
                    if let Some(place) = Attributed::RESULTS.iter().position(result) {
                        self.attributed[place].fetch_add(1, Ordering::Relaxed);
                    }
                    // The submitter may have stopped waiting.
                    let _ = job.reply.send(applied);
                }
            }
            Err(error) if !error.is_transient() && count > 1 => {
                tracing::warn!(%error, "the database refused changes to calls: storing them one by \
                    one");
                self.alone = count;
            }
            Err(error) if !error.is_transient() => {
                let done: Vec<Job> = self.held.drain(..count).collect();
                let calls: Vec<String> = done.iter().map(|job| job.change.id()).collect();
                tracing::error!(%error, ?calls, "the database refuses a change to a call: \
                    the change is lost");
                self.done(&done).await;
            }
            Err(error) => {
                if let Some(left_out) = NOT_STORED.pass() {
                    let waiting = self.waiting.borrow().all;
                    not_stored(&self.log, &error, waiting, left_out);
                }
                self.keep(true).await;
                return false;
            }
        }
        true
    }

    /// Removes the changes `done` from the counts and from the backlog file.
    async fn done(&mut self, done: &[Job]) {
        self.alone = self.alone.saturating_sub(done.len());
        let kept = done.iter().filter(|job| job.is_kept).count();
        if kept > 0
            && let Some(Err(error)) = self.with_backlog(move |file| file.stored(kept)).await
        {
            tracing::warn!(
                %error,
                "calls-waiting.jsonl could not be removed after its reports were stored"
            );
        }
        self.waiting.send_modify(|waiting| {
            waiting.all -= done.len();
            waiting.kept -= kept;
        });
    }

    /// Writes to the backlog file all changes that are only in memory. If `answers` is true, also
    /// answers the submitters of all changes in the file.
    async fn keep(&mut self, answers: bool) {
        self.keep_lost_again().await;
        let new: Vec<&Job> = self.held.iter().filter(|job| !job.is_kept).collect();
        let (lines, count) = (Backlog::lines(new.iter().map(|job| &job.change)), new.len());
        if count > 0 && self.keep_lines(lines, count).await {
            for job in &mut self.held {
                job.is_kept = true;
            }
            self.waiting.send_modify(|waiting| waiting.kept += count);
        }
        for job in self.held.iter_mut().filter(|job| job.is_kept && answers) {
            // The submitter may have stopped waiting.
            let _ = job.kept.take().map(|kept| kept.send(()));
        }
    }

    /// If the backlog file was removed, marks its changes as being only in memory, so that they are
    /// written again.
    async fn keep_lost_again(&mut self) {
        if self.with_backlog(Backlog::is_lost).await != Some(true) {
            return;
        }
        let mut count = 0;
        for job in self.held.iter_mut().filter(|job| job.is_kept) {
            job.is_kept = false;
            count += 1;
        }
        self.waiting.send_modify(|waiting| waiting.kept -= count);
        tracing::error!(
            reports = count,
            "calls-waiting.jsonl was removed while it contained waiting call reports: the \
             reports are written again. Leave this file in the data directory"
        );
    }

    /// Writes `lines`, which contain `count` changes, to the backlog file. Returns whether that
    /// succeeded.
    async fn keep_lines(&self, lines: Vec<u8>, count: usize) -> bool {
        match self.with_backlog(move |file| file.keep(&lines, count)).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                if let Some(left_out) = NOT_KEPT.pass() {
                    tracing::error!(%error, left_out, "call reports are kept only in memory, \
                        and are lost when the server stops");
                }
                false
            }
            None => false,
        }
    }

    /// Runs `work` on the backlog file and returns its result. Returns `None` if there is no file.
    /// Uses another thread, so that a slow disk does not delay answers to callers.
    async fn with_backlog<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Backlog) -> T + Send + 'static,
    ) -> Option<T> {
        let backlog = Arc::clone(&self.backlog);
        let work = move || {
            let mut backlog = backlog.get()?.lock().unwrap_or_else(PoisonError::into_inner);
            Some(work(&mut backlog))
        };
        tokio::task::spawn_blocking(work).await.ok()?
    }
}

fn not_stored(log: &Log, error: &LogError, waiting: usize, left_out: u64) {
    match log.database().file() {
        Some(file) if error.is_full() => tracing::error!(
            %error,
            file = %file.display(),
            waiting,
            left_out,
            "calls are not stored yet: free some space on the disk of the call log"
        ),
        _ => tracing::error!(%error, waiting, left_out, "calls are not stored yet"),
    }
}

pub(super) async fn together(
    log: &Log,
    now: Millis,
    changes: impl Iterator<Item = &CallChange>,
) -> Result<Vec<Applied>, LogError> {
    let changes: Vec<&CallChange> = changes.collect();
    let mut tx = log.database().write().await?;
    let mut group = Group::read(&mut tx, &changes).await?;
    let mut all = Vec::with_capacity(changes.len());
    for change in changes {
        all.push(apply(&mut group, &mut tx, now, change).await?);
    }
    group.write(&mut tx).await?;
    tx.commit().await?;
    Ok(all)
}
