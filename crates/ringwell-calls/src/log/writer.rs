//! The one writer of calls: changes that wait together are stored together.
//!
//! A database that is away delays changes and loses none while there is room for them; each waits
//! until it is stored or the process ends.

use std::time::Duration;

use ringwell_core::Millis;
use tokio::sync::{mpsc, oneshot};

use super::change::{Applied, CallChange, apply};
use super::{Log, LogError};

/// Changes that may wait.
const QUEUE_MAX: usize = 10_000;
/// Changes of one transaction.
const GROUP_MAX: usize = 256;
/// The first and the longest pause before a failed database is asked again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A way to the writer.
#[derive(Clone, Debug)]
pub struct Writer(mpsc::Sender<Job>);

/// Too many changes wait already, so no more are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many changes of calls wait for the database")]
pub struct WriterFull;

#[derive(Debug)]
struct Job {
    change: CallChange,
    reply: oneshot::Sender<Applied>,
}

impl Writer {
    /// A writer of `log` on the present runtime, and its counter, which changes after each
    /// transaction. `now` is asked for the moment of events.
    pub fn start(
        log: Log,
        now: impl Fn() -> Millis + Send + Sync + 'static,
        stored: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (sender, jobs) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(log, jobs, now, stored));
        Self(sender)
    }

    /// Waits until everything that was submitted before is stored.
    pub async fn finish(&self) {
        // All slots are free when nothing waits; the last group may still be in progress then,
        // which the database waits for when it is closed.
        let _ = self.0.reserve_many(QUEUE_MAX).await;
    }

    /// Hands `change` over. The returned future ends when the change is stored; dropping it does
    /// not undo the change.
    ///
    /// # Errors
    /// [`WriterFull`].
    pub fn submit(&self, change: CallChange) -> Result<oneshot::Receiver<Applied>, WriterFull> {
        let (reply, answer) = oneshot::channel();
        self.0.try_send(Job { change, reply }).map_err(|_| WriterFull)?;
        Ok(answer)
    }
}

async fn run(log: Log, mut jobs: mpsc::Receiver<Job>, now: impl Fn() -> Millis, stored: impl Fn()) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while jobs.recv_many(&mut group, GROUP_MAX).await > 0 {
        store(&log, &now, &mut group).await;
        stored();
    }
}

/// Stores all of `group`; returns when it is empty.
async fn store(log: &Log, now: &impl Fn() -> Millis, group: &mut Vec<Job>) {
    let mut pause = PAUSE.0;
    loop {
        let changes = group.iter().map(|job| &job.change);
        match together(log, now(), changes).await {
            Ok(applied) => {
                for (job, applied) in group.drain(..).zip(applied) {
                    // A caller that has gone needs no answer.
                    let _ = job.reply.send(applied);
                }
                return;
            }
            Err(error) if !error.is_transient() && group.len() > 1 => {
                tracing::warn!(%error, "a change of a call is refused; storing one by one");
                for job in std::mem::take(group) {
                    Box::pin(store(log, now, &mut vec![job])).await;
                }
                return;
            }
            Err(error) if !error.is_transient() => {
                let calls: Vec<String> = group.drain(..).map(|job| job.change.id()).collect();
                tracing::error!(%error, ?calls, "a change of a call cannot be stored");
                return;
            }
            Err(error) => {
                tracing::error!(%error, waiting = group.len(), "calls are not stored yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

async fn together(
    log: &Log,
    now: Millis,
    changes: impl Iterator<Item = &CallChange>,
) -> Result<Vec<Applied>, LogError> {
    let mut tx = log.database().write().await?;
    let mut all = Vec::new();
    for change in changes {
        all.push(apply(&mut tx, now, change).await?);
    }
    tx.commit().await?;
    Ok(all)
}
