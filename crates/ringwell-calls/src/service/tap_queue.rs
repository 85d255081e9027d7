//! Queues visitors' taps on promo numbers and stores them in the call log.
//!
//! Recording a tap never blocks. If the log is unavailable for long, taps are dropped, and later
//! calls are attributed by time alone.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::log::{Log, Tap};

/// The maximum number of taps that may wait for the log.
const WAITING_MAX: usize = 10_000;
/// The maximum number of taps in one transaction.
const GROUP_MAX: usize = 256;
/// The pause before a failed transaction is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts, on the current runtime, the task that stores taps.
pub(super) fn start(log: Log) -> mpsc::Sender<Tap> {
    let (sender, taps) = mpsc::channel(WAITING_MAX);
    tokio::spawn(run(log, taps));
    sender
}

async fn run(log: Log, mut taps: mpsc::Receiver<Tap>) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while taps.recv_many(&mut group, GROUP_MAX).await > 0 {
        while let Err(error) = log.store_taps(&group).await {
            if !error.is_transient() {
                tracing::error!(%error, taps = group.len(), "taps are dropped");
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        group.clear();
    }
}
