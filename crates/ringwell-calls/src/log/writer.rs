//! The only writer of calls: stores waiting changes together.
//!
//! While the database is unavailable, changes wait and none is lost as long as there is room; each
//! waits until it is stored or the process ends.

use std::time::Duration;

use ringwell_core::Millis;
use ringwell_store::Repeated;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::change::{Applied, CallChange, apply};
use super::group::Group;
use super::{Log, LogError};

/// The maximum number of changes that may wait.
const QUEUE_MAX: usize = 10_000;
/// The maximum number of changes of one transaction.
const GROUP_MAX: usize = 256;
/// The shortest time between the beginnings of two transactions; the changes of that time share the
/// next one. Each flushes the disk, which delays the flushes of allocations, and writes the pages
/// that all calls change: the ends of tables and of indexes by time. At 500 calls a second, 10 ms
/// instead of 3 halve what is written (12.1 pages a call, then 6.0) and the flushes (253, then 96).
const INTERVAL: Duration = Duration::from_millis(10);
/// The first and the longest pause before a failed database is tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

static NOT_STORED: Repeated = Repeated::new();

/// A handle for submitting changes to the writer.
#[derive(Clone, Debug)]
pub struct Writer {
    jobs: mpsc::Sender<Job>,
    /// Changes that are submitted and not yet stored.
    waiting: watch::Sender<usize>,
}

/// Too many changes are waiting, so no more are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many changes of calls are waiting for the database")]
pub struct WriterFull;

#[derive(Debug)]
struct Job {
    change: CallChange,
    reply: oneshot::Sender<Applied>,
}

impl Writer {
    /// A writer of `log` on the present runtime, and its counter, which changes after each
    /// transaction. `now` supplies the time of events.
    pub fn start(
        log: Log,
        now: impl Fn() -> Millis + Send + Sync + 'static,
        stored: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (sender, jobs) = mpsc::channel(QUEUE_MAX);
        let writer = Self { jobs: sender, waiting: watch::Sender::new(0) };
        tokio::spawn(run(log, jobs, writer.waiting.clone(), now, stored));
        writer
    }

    /// Waits until everything that was submitted before is stored.
    pub async fn finish(&self) {
        // This end of the channel stays open as long as `self` exists.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
    }

    /// The count of changes that are not yet stored.
    #[must_use]
    pub fn waiting(&self) -> usize {
        *self.waiting.borrow()
    }

    /// Submits `change`. The returned future completes when the change is stored; dropping it does
    /// not undo the change.
    ///
    /// # Errors
    /// [`WriterFull`].
    pub fn submit(&self, change: CallChange) -> Result<oneshot::Receiver<Applied>, WriterFull> {
        let (reply, answer) = oneshot::channel();
        let slot = self.jobs.try_reserve().map_err(|_| WriterFull)?;
        self.waiting.send_modify(|waiting| *waiting += 1);
        slot.send(Job { change, reply });
        Ok(answer)
    }
}

async fn run(
    log: Log,
    mut jobs: mpsc::Receiver<Job>,
    waiting: watch::Sender<usize>,
    now: impl Fn() -> Millis,
    stored: impl Fn(),
) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    let mut next = Instant::now();
    while jobs.recv_many(&mut group, GROUP_MAX).await > 0 {
        tokio::time::sleep_until(next).await;
        while group.len() < GROUP_MAX
            && let Ok(job) = jobs.try_recv()
        {
            group.push(job);
        }
        next = Instant::now() + INTERVAL;
        let count = group.len();
        store(&log, &now, &mut group, &waiting).await;
        waiting.send_modify(|waiting| *waiting -= count);
        stored();
    }
}

/// Stores all of `group`; returns when it is empty. `all` counts the changes that wait, of this group
/// and after it.
async fn store(
    log: &Log,
    now: &impl Fn() -> Millis,
    group: &mut Vec<Job>,
    all: &watch::Sender<usize>,
) {
    let mut pause = PAUSE.0;
    loop {
        let changes = group.iter().map(|job| &job.change);
        match together(log, now(), changes).await {
            Ok(applied) => {
                for (job, applied) in group.drain(..).zip(applied) {
                    // A submitter that has gone needs no answer.
                    let _ = job.reply.send(applied);
                }
                return;
            }
            Err(error) if !error.is_transient() && group.len() > 1 => {
                tracing::warn!(%error, "a change of a call was refused; storing one by one");
                for job in std::mem::take(group) {
                    Box::pin(store(log, now, &mut vec![job], all)).await;
                }
                return;
            }
            Err(error) if !error.is_transient() => {
                let calls: Vec<String> = group.drain(..).map(|job| job.change.id()).collect();
                tracing::error!(%error, ?calls, "a change of a call cannot be stored");
                return;
            }
            Err(error) => {
                if let Some(left_out) = NOT_STORED.pass() {
                    let waiting = *all.borrow();
                    not_stored(log, &error, waiting, left_out);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

fn not_stored(log: &Log, error: &LogError, waiting: usize, left_out: u64) {
    match log.database().file() {
        Some(file) if error.is_full() => tracing::error!(
            %error,
            file = %file.display(),
            waiting,
            left_out,
            "calls are not stored yet: make room on the disk of the call log"
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
