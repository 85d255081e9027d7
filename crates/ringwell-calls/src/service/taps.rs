//! Queues visitors' taps on promo numbers and stores them in the call log.
//!
//! Recording a tap never blocks. If the log is unavailable for long, taps are dropped, and later
//! calls are attributed by time alone.

use std::time::Duration;

use ringwell_core::{Millis, PromoNumber};
use ringwell_store::Repeated;
use tokio::sync::mpsc;

use super::{Service, now};
use crate::attribution::ReportedAllocation;
use crate::log::{Log, Tap};

/// The maximum number of taps that may wait for the log.
const WAITING_MAX: usize = 10_000;
/// The maximum number of taps in one transaction.
const GROUP_MAX: usize = 256;
/// The pause before a failed transaction is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// The most by which a provider's clock may lag behind this server's clock.
const CLOCKS_DIFFER: Millis = Millis(5_000);

static UNREAD: Repeated = Repeated::new();
static DROPPED: Repeated = Repeated::new();

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

impl Service {
    /// Records that a visitor tapped `number` now. Never blocks.
    pub fn tapped(&self, number: PromoNumber) {
        let tap = Tap { number: format!("+{}", number.to_e164()), at: now() };
        if self.inner.taps.try_send(tap).is_err()
            && let Some(left_out) = DROPPED.pass()
        {
            tracing::warn!(
                left_out,
                "a tap on a number was dropped: too many taps are waiting for the call log"
            );
        }
    }

    /// For each allocation in `held`, adds the visitor's last tap on `number` before a call at
    /// `at`. Adds no taps if the log does not answer.
    pub(super) async fn add_taps(&self, number: &str, at: Millis, held: &mut [ReportedAllocation]) {
        let Some(oldest) = held.last().map(|it| it.allocated_at) else { return };
        let until = Millis(at.0.saturating_add(CLOCKS_DIFFER.0));
        let taps = match self.inner.log.taps(number, oldest, until).await {
            Ok(taps) => taps,
            Err(error) => {
                if !self.inner.log.reports(&error)
                    && let Some(left_out) = UNREAD.pass()
                {
                    let what = "a call is attributed without regard to visitors' taps";
                    tracing::warn!(%error, left_out, "{what}");
                }
                return;
            }
        };
        // `taps` and `held` are sorted newest first. A tap belongs to the newest allocation before
        // it.
        for tap in taps {
            let of = held.iter_mut().find(|it| it.allocated_at <= tap);
            if let Some(held) = of {
                held.tapped_at = held.tapped_at.max(Some(tap));
            }
        }
    }
}
