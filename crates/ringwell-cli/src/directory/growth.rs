//! Schedules the growth and shrinking of pools.
//!
//! Watches the demand for each pool. Lets busy pools grow every few minutes, and returns unused
//! numbers when a month ends. The store decides how many numbers move, and writes the audit log.
//! Source: docs/spec/directory.md, "Growth".

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ringwell_admin::SharedLoads;
use ringwell_config::{Growth, GrowthMode};
use ringwell_core::Millis;
use ringwell_node::{OrderError, RunningNode};
use ringwell_store::{Resized, Store, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

use ringwell_calls::clock::now;

/// The maximum interval between reads of each pool's demand. The interval is shorter if needed, so
/// that the demand is read at least ten times between growth decisions.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The interval between reads of each pool's demand if growth is off. It can be long because the
/// dashboard takes its own samples.
const LOOK_EVERY_OFF: Duration = Duration::from_mins(1);

/// The maximum number of pools that grow in one change. Other changes to the database wait until
/// that change is complete.
const POOLS_AT_ONCE: usize = 100;

/// The author that the audit log shows for numbers returned at the end of a month.
const MONTH_END: &str = "ringwell: month end";

/// The scheduler.
pub(super) struct Grower {
    store: Store,
    live: RunningNode,
    loads: SharedLoads,
    /// Notified of changes.
    changed: Arc<Notify>,
    growth: Growth,
}

impl Grower {
    pub(super) fn new(
        store: Store,
        live: RunningNode,
        loads: SharedLoads,
        changed: Arc<Notify>,
        growth: Growth,
    ) -> Self {
        Self { store, live, loads, changed, growth }
    }

    /// Runs until the node stops.
    pub(super) async fn run(&mut self) {
        let Growth { mode, every, .. } = self.growth;
        let (mut decided, mut month) = (Instant::now(), None);
        let look =
            if mode == GrowthMode::Off { LOOK_EVERY_OFF } else { LOOK_EVERY.min(every / 10) };
        loop {
            tokio::time::sleep(look).await;
            let Ok(asked) = self.live.asked().await else { return };
            self.loads.lock().take(now(), &asked);
            let today = self.live.believed_wall();
            month = month.or_else(|| first_of_month(today));
            if mode == GrowthMode::Off || decided.elapsed() < every {
                continue;
            }
            decided = Instant::now();
            log_failure(self.grow(self.live.now()).await);
            log_failure(self.fill_short(self.live.now()).await);
            let before = month;
            if let Some(since) = ended(&mut month, today) {
                let done = self.give_back(self.live.now(), since).await;
                month = if done.is_err() { before } else { month };
                log_failure(done);
            }
        }
    }

    /// Lets the pools that are currently busy grow.
    async fn grow(&self, now: Millis) -> Result<(), StoreError> {
        let busy = self.loads.lock().busy(f64::from(self.growth.overflow_percent) / 100.0);
        let Growth { percent, step_max, .. } = self.growth;
        let growth = ringwell_store::Growth { percent, step_max, dry_run: self.is_trial() };
        for pools in busy.chunks(POOLS_AT_ONCE) {
            let (_, resized) = self.store.grow(now, growth, pools).await?;
            self.log("grows", &resized);
        }
        Ok(())
    }

    /// Gives pools the initial numbers that the inventory could not supply when the pools were
    /// created.
    async fn fill_short(&self, now: Millis) -> Result<(), StoreError> {
        let (_, resized) = self.store.fill_short(now, self.is_trial()).await?;
        self.log("gets numbers that the inventory lacked when the pool was created", &resized);
        Ok(())
    }

    /// Takes numbers back from pools that have grown, if no visitor has held the numbers since
    /// `since`. No pool shrinks below its initial size.
    async fn give_back(&self, now: Millis, since: Millis) -> Result<(), StoreError> {
        let pools = self.loads.lock().pools();
        let mut unknown = 0_u64;
        for pool in pools {
            let unused = match self.live.unused(pool, since).await {
                Ok(Some(unused)) if !unused.is_empty() => unused,
                Ok(Some(_)) | Err(OrderError::Refused(_) | OrderError::Stopping) => continue,
                Ok(None) => {
                    unknown += 1;
                    continue;
                }
            };
            let given = self.store.give_back_unused(MONTH_END, now, pool, &unused, self.is_trial());
            match given.await {
                Ok((_, resized)) => self.log("returns unused numbers", &[resized]),
                // The pool was removed in the meantime.
                Err(StoreError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if unknown > 0 {
            tracing::info!(
                ring_pools = unknown,
                "some ring pools return no unused numbers this month, because some of this month's \
                 allocations may be lost"
            );
        }
        Ok(())
    }

    fn is_trial(&self) -> bool {
        self.growth.mode == GrowthMode::DryRun
    }

    fn log(&self, what: &str, resized: &[Resized]) {
        for Resized { pool, before, after } in resized.iter().filter(|it| it.before != it.after) {
            let dry_run = self.is_trial();
            tracing::info!(ring_pool = pool.0, before, after, dry_run, "a ring pool {what}");
            self.changed.notify_one();
        }
    }
}

/// Logs a failure. Growth and the return of unused numbers are tried again at the next decision.
fn log_failure(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "ring pools cannot grow or shrink now; trying again later");
    }
}

/// Returns the first day of the month that contains `now`, in UTC.
fn first_of_month(now: Millis) -> Option<Date> {
    let at = Timestamp::from_millisecond(i64::try_from(now.0).ok()?).ok()?;
    Some(at.to_zoned(TimeZone::UTC).date().first_of_month())
}

/// If `month` has ended, returns the time when it began, and sets `month` to the month that
/// contains `now`.
fn ended(month: &mut Option<Date>, now: Millis) -> Option<Millis> {
    let current = first_of_month(now)?;
    // If the clock steps back, no month ends. A month never ends twice.
    let before = month.filter(|before| *before < current)?;
    *month = Some(current);
    let began = before.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond();
    u64::try_from(began).ok().map(Millis)
}

#[cfg(test)]
#[test]
fn a_month_ends_once_and_names_its_beginning() {
    let at = |text: &str| {
        let at: Timestamp = text.parse().unwrap();
        Millis(u64::try_from(at.as_millisecond()).unwrap())
    };
    let mut month = first_of_month(at("2026-01-31T23:59:59Z"));
    assert_eq!(ended(&mut month, at("2026-01-31T23:59:59.999Z")), None);
    assert_eq!(ended(&mut month, at("2026-02-01T00:00:00Z")), Some(at("2026-01-01T00:00:00Z")));
    assert_eq!(ended(&mut month, at("2026-02-01T00:05:00Z")), None);
    assert_eq!(ended(&mut month, at("2026-01-31T23:59:00Z")), None, "the clock stepped back");
    assert_eq!(ended(&mut month, at("2026-02-01T00:05:00Z")), None);
    // Several months may end between two checks. A number then counts as unused if it has not been
    // used since the beginning of the first of these months.
    assert_eq!(ended(&mut month, at("2026-05-03T00:00:00Z")), Some(at("2026-02-01T00:00:00Z")));
}
