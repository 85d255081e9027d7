//! The worker that leases due deliveries, sends them, and records the results.
//!
//! Because of the leases, several servers on one database do not send the same delivery at the same
//! time. The deliveries in progress are limited separately for each endpoint, so that a slow
//! endpoint does not delay others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ringwell_store::Repeated;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::outbox::{Due, Ended, Result};
use super::send::Sender;
use crate::clock::now;
use crate::log::{Log, LogError};

/// The maximum number of deliveries in progress to one endpoint.
const PER_ENDPOINT_MAX: usize = 10;
/// The maximum number of deliveries in progress to all endpoints together.
const ALL_MAX: usize = 1_000;
/// One endpoint may take at most 1 / `SHARE` of the free places. Even `SHARE` hanging endpoints
/// therefore leave room for the others.
const SHARE: usize = 100;
/// The maximum number of results that are recorded in one transaction.
const RESULTS_MAX: usize = 256;
/// The shortest time between two reads of the log that are caused by notifications.
const INTERVAL: Duration = Duration::from_millis(20);
/// The longest time between two reads of the log, even without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The interval between two searches for deliveries that were planned before the clock was set back.
const PLAN_AGAIN_EVERY: Duration = Duration::from_secs(10);
/// The pause after a database failure.
const PAUSE: Duration = Duration::from_secs(1);

static WAITS: Repeated = Repeated::new();
static NOT_NOTED: Repeated = Repeated::new();

/// Sends deliveries.
pub trait Transport: Clone + Send + Sync + 'static {
    /// Sends one delivery.
    fn deliver(&self, due: Due) -> impl Future<Output = Ended> + Send;
}

impl Transport for Sender {
    async fn deliver(&self, due: Due) -> Ended {
        Self::deliver(self, &due, now()).await
    }
}

/// Delivers the log's events to endpoints.
pub struct Worker<T> {
    log: Log,
    transport: T,
    /// Notified when a delivery may have become due.
    stored: Arc<Notify>,
    in_flight: HashMap<String, HashSet<i64>>,
    count: usize,
    /// The time of the next search for deliveries that were planned before the clock was set back.
    plan_again: Instant,
}

impl<T: Transport> Worker<T> {
    /// Creates a worker that reads the log when it is notified, and otherwise every second.
    pub fn new(log: Log, transport: T, stored: Arc<Notify>) -> Self {
        let plan_again = Instant::now();
        Self { log, transport, stored, in_flight: HashMap::new(), count: 0, plan_again }
    }

    /// Runs until the process ends.
    pub async fn run(mut self) {
        let (sender, mut results) = mpsc::channel(ALL_MAX);
        let stored = Arc::clone(&self.stored);
        let mut ended = Vec::new();
        loop {
            let next = Instant::now() + INTERVAL;
            let waits = async {
                stored.notified().await;
                tokio::time::sleep_until(next).await;
            };
            if let Err(error) = self.send_due(&sender).await {
                if !self.log.reports(&error)
                    && let Some(left_out) = WAITS.pass()
                {
                    tracing::error!(%error, left_out, "webhooks are not sent until the call log \
                        is available again");
                }
                tokio::time::sleep(PAUSE).await;
            }
            tokio::select! {
                _ = results.recv_many(&mut ended, RESULTS_MAX) => self.note(&mut ended).await,
                () = waits => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn send_due(
        &mut self,
        results: &mpsc::Sender<Result>,
    ) -> std::result::Result<(), LogError> {
        let moment = now();
        if self.plan_again <= Instant::now() {
            self.log.plan_again(moment).await?;
            self.plan_again = Instant::now() + PLAN_AGAIN_EVERY;
        }
        for endpoint in self.log.due_endpoints(moment).await? {
            let in_flight = self.in_flight.entry(endpoint.clone()).or_default();
            let left = ALL_MAX - self.count;
            let share = (left / SHARE).clamp(1, PER_ENDPOINT_MAX);
            let room = share.saturating_sub(in_flight.len()).min(left);
            if room == 0 {
                continue;
            }
            let most = u32::try_from(room).unwrap_or(u32::MAX);
            for due in self.log.claim(&endpoint, moment, most).await? {
                // A delivery that is still in progress is claimed again if its lease expires before
                // its result is recorded.
                if !in_flight.insert(due.place) {
                    continue;
                }
                self.count += 1;
                let (transport, results) = (self.transport.clone(), results.clone());
                tokio::spawn(async move {
                    let (endpoint, place) = (due.endpoint.clone(), due.place);
                    let attempts = due.attempts + 1;
                    let ended = transport.deliver(due).await;
                    let random = random();
                    // The send fails only at shutdown. The error is ignored.
                    let _ = results.send(Result { endpoint, place, attempts, ended, random }).await;
                });
            }
        }
        Ok(())
    }

    async fn record(&self, ended: &[Result]) -> std::result::Result<(), LogError> {
        let now = now();
        self.log.record(ended, now, self.log.age_time(now)).await
    }

    /// Records the results of deliveries, and retries until that succeeds. Until then, the
    /// deliveries still count as in progress and are not sent again.
    async fn note(&mut self, ended: &mut Vec<Result>) {
        while let Err(error) = self.record(ended).await {
            if !self.log.reports(&error)
                && let Some(left_out) = NOT_NOTED.pass()
            {
                tracing::error!(%error, left_out, "cannot record the results of webhook \
                    deliveries: retrying");
            }
            tokio::time::sleep(PAUSE).await;
        }
        for result in ended.drain(..) {
            if let Some(in_flight) = self.in_flight.get_mut(&result.endpoint) {
                in_flight.remove(&result.place);
                if in_flight.is_empty() {
                    self.in_flight.remove(&result.endpoint);
                }
            }
            self.count -= 1;
        }
    }
}

/// A random number that varies the time of the next attempt. Constant if no random bytes are
/// available.
fn random() -> u32 {
    getrandom::u32().unwrap_or(100)
}

#[cfg(test)]
mod tests;
