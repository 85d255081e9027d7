//! Samples of the node's state. All open pages share the same samples.
//!
//! Owns the newest sample and the curve of the last 15 minutes. Samples the shards once a second
//! while a page is open, otherwise every five seconds. Samples all pools every five seconds, or
//! less often if sampling would take more than 1 % of the time. Invariant: memory use does not grow
//! with time or with the number of open pages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use ringwell_calls::{Exhausting, Service};
use ringwell_core::{Millis, PoolId};
use ringwell_node::{Handle, LinkStats, PoolAsked, Reason, ShardStats};
use ringwell_plan::blocking;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::line::{Health, PoolLine, Tonight, by_trouble};
use super::words::Cause;
use crate::loads::{Outlook, SharedLoads};
use ringwell_calls::clock::now;

/// The interval between samples while a page is open.
const OFTEN: Duration = Duration::from_secs(1);
/// The interval between samples while no page is open. Also the shortest interval between two
/// samples of all pools.
const SELDOM: Duration = Duration::from_secs(5);
/// Sampling all pools may take at most 1 / `LOOK_PART` of the time.
const LOOK_PART: u32 = 100;
/// The longest interval between two samples of all pools.
const LOOK_MAX: Duration = Duration::from_mins(1);
/// The maximum number of points on the curve.
const POINTS_MAX: usize = 900;
/// The period for which latency is shown.
const LATENCY_TIME: Duration = Duration::from_mins(1);
/// A pool is too small if more than this share of its visitors get no number.
pub(super) const OVERFLOW_MAX: f64 = 0.01;
/// The minimum time over which a load must be measured to be considered representative of an hour.
const MEASURED_MIN: Millis = Millis(60_000);
/// The shortest interval between two reports that the same pool is running out of numbers.
const EVENT_EVERY: Millis = Millis(3_600_000);
/// The maximum number of pools that are reported at once.
const EVENTS_MAX: usize = 20;

/// One point of the curve. Rates are in rows per second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Point {
    /// Milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) allocated: f64,
    /// Overflow rows by cause, in the order of [`Cause::ALL`].
    pub(super) overflow: [f64; 4],
}

/// The pools that most need attention, chosen once per sample rather than once per page.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// The pools with the most overflow.
    pub(super) worst: Vec<PoolLine>,
    /// The pools that will be too small within the next twelve hours, earliest first.
    pub(super) tonight: Vec<(PoolLine, Tonight)>,
}

impl Top {
    /// The maximum number of pools in each list.
    const LENGTH: usize = 10;

    fn of(pools: &[PoolLine]) -> Self {
        let tonight = pools.iter().filter_map(|line| Some((*line, line.tonight?)));
        let mut tonight: Vec<_> = tonight.collect();
        tonight.sort_by_key(|(line, tonight)| (tonight.at, line.id));
        tonight.truncate(Self::LENGTH);
        Self { worst: by_trouble(pools, Self::LENGTH), tonight }
    }
}

/// One sample of the whole node.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) at: Millis,
    pub(super) shards: Vec<ShardStats>,
    pub(super) point: Point,
    /// Overflow rows since startup, in the order of [`Cause::ALL`].
    pub(super) overflow: [u64; 4],
    pub(super) allocated: u64,
    /// The 99th percentile of latency in the last minute, in milliseconds. `None` if there were no
    /// requests.
    pub(super) p99_ms: Option<f64>,
    /// The other nodes of the cluster, by name.
    pub(super) others: Vec<OtherNode>,
    /// The pools that this node serves, sorted by id.
    pub(super) pools: Arc<Vec<PoolLine>>,
    /// The pools that the dashboard's start page lists.
    pub(super) top: Arc<Top>,
    pub(super) too_small: usize,
    pub(super) exhausting: usize,
    /// The number of whole hours for which pools have been watched.
    pub(super) watched: usize,
}

/// Figures for another node, measured over the last minute on all links to its shards.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OtherNode {
    pub(super) node: String,
    /// Whether requests can be sent over all links to the node, that is, none of the links is shut.
    pub(super) answers: bool,
    /// The 99th percentile of latency, in milliseconds. `None` if there was no answer.
    pub(super) p99_ms: Option<f64>,
    /// The number of requests that are waiting for a place in a link's window.
    pub(super) waiting: u32,
    pub(super) requests: u64,
    /// The number of requests whose answer was slow or did not arrive in time.
    pub(super) slow: u64,
}

/// Earlier figures for a node, used to compute those for the last minute.
#[derive(Debug, Default)]
struct NodeBefore {
    latency: VecDeque<(Instant, Histogram<u64>)>,
    /// The count of all requests, and the count of requests that were slow or lost.
    counts: VecDeque<(Instant, [u64; 2])>,
}

fn others(
    before: &mut BTreeMap<String, NodeBefore>,
    now: Instant,
    shards: &[ShardStats],
) -> Vec<OtherNode> {
    let links = || shards.iter().flat_map(|shard| &shard.links);
    let names: BTreeSet<&str> = links().map(|link| &*link.node).collect();
    before.retain(|node, _| names.contains(&**node));
    let mut nodes = Vec::with_capacity(names.len());
    for name in names {
        let NodeBefore { latency, counts } = before.entry(name.to_owned()).or_default();
        let of_node = || links().filter(|link| link.node == name);
        let sum = |of: fn(&LinkStats) -> u64| of_node().map(of).sum::<u64>();
        let all = [sum(|link| link.requests), sum(|link| link.slow + link.lost)];
        while counts.len() > 1 && now.duration_since(counts[1].0) >= LATENCY_TIME {
            counts.pop_front();
        }
        let then = counts.front().map_or([0; 2], |(_, then)| *then);
        if counts.back().is_none_or(|(at, _)| now.duration_since(*at) >= LATENCY_TIME / 6) {
            counts.push_back((now, all));
        }
        nodes.push(OtherNode {
            node: name.to_owned(),
            answers: !of_node().any(|link| link.is_shut),
            p99_ms: recent_p99(latency, now, of_node().map(|link| &link.latency)),
            waiting: of_node().map(|link| link.waiting).sum(),
            requests: all[0].saturating_sub(then[0]),
            slow: all[1].saturating_sub(then[1]),
        });
    }
    nodes
}

/// Takes the samples and publishes the newest.
#[derive(Debug)]
pub(super) struct Sampler {
    newest: watch::Sender<Arc<Sample>>,
    curve: Mutex<VecDeque<Point>>,
    watchers: AtomicUsize,
    loads: SharedLoads,
}

/// A subscription to the samples.
#[derive(Debug)]
pub(super) struct Watcher(Arc<Sampler>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sampler {
    pub(super) fn new(loads: SharedLoads) -> Self {
        let (newest, _) = watch::channel(Arc::default());
        Self { newest, curve: Mutex::default(), watchers: AtomicUsize::new(0), loads }
    }

    pub(super) fn newest(&self) -> Arc<Sample> {
        Arc::clone(&self.newest.borrow())
    }

    pub(super) fn loads(&self) -> &SharedLoads {
        &self.loads
    }

    pub(super) fn curve(&self) -> Vec<Point> {
        self.lock_curve().iter().copied().collect()
    }

    fn lock_curve(&self) -> MutexGuard<'_, VecDeque<Point>> {
        self.curve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to future samples. Returns `None` if there are already `most` subscribers.
    pub(super) fn watch(
        self: &Arc<Self>,
        most: usize,
    ) -> Option<(Watcher, watch::Receiver<Arc<Sample>>)> {
        let before = self.watchers.fetch_add(1, Ordering::Relaxed);
        let watcher = Watcher(Arc::clone(self));
        (before < most).then(|| (watcher, self.newest.subscribe()))
    }

    /// Samples the node repeatedly. Never returns.
    pub(super) async fn run(&self, node: &Handle, calls: &OnceLock<Service>) {
        let mut before: Option<(Instant, Counts)> = None;
        let mut latency: VecDeque<(Instant, Histogram<u64>)> = VecDeque::new();
        let mut of_nodes: BTreeMap<String, NodeBefore> = BTreeMap::new();
        let mut pools_at = Instant::now();
        let mut known = Pools::default();
        loop {
            let began = Instant::now();
            if pools_at <= began {
                known.take(node, &self.loads, calls.get()).await;
                pools_at = began + (began.elapsed() * LOOK_PART).clamp(SELDOM, LOOK_MAX);
            }
            if let Ok(shards) = node.stats().await {
                let counts = Counts::of(&shards);
                let at = now();
                let point = before.map_or_else(Point::default, |(then, before)| {
                    counts.since(&before, began.duration_since(then), at)
                });
                if before.is_some() {
                    self.add(point);
                }
                before = Some((began, counts));
                let latencies = shards.iter().map(|shard| &shard.latency);
                let p99_ms = recent_p99(&mut latency, began, latencies);
                let others = others(&mut of_nodes, began, &shards);
                let Counts { allocated, overflow } = counts;
                let Pools { lines, top, too_small, exhausting, watched, .. } = &known;
                self.newest.send_replace(Arc::new(Sample {
                    at,
                    shards,
                    point,
                    overflow,
                    allocated,
                    p99_ms,
                    others,
                    pools: Arc::clone(lines),
                    top: Arc::clone(top),
                    too_small: *too_small,
                    exhausting: *exhausting,
                    watched: *watched,
                }));
            }
            self.rest(began).await;
        }
    }

    fn add(&self, point: Point) {
        let mut curve = self.lock_curve();
        if curve.len() >= POINTS_MAX {
            curve.pop_front();
        }
        curve.push_back(point);
    }

    /// Waits until the next sample is due.
    async fn rest(&self, began: Instant) {
        loop {
            tokio::time::sleep_until(Instant::now() + OFTEN).await;
            let is_watched = self.watchers.load(Ordering::Relaxed) > 0;
            if is_watched || began.elapsed() >= SELDOM {
                return;
            }
        }
    }
}

/// Counts of the whole node since it started.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    allocated: u64,
    overflow: [u64; 4],
}

impl Counts {
    fn of(shards: &[ShardStats]) -> Self {
        let mut counts = Self::default();
        for shard in shards {
            counts.allocated += shard.engine.allocated;
            for (reason, rows) in Reason::ALL.iter().zip(shard.overflow) {
                counts.overflow[Cause::of(*reason) as usize] += rows;
            }
        }
        counts
    }

    fn since(&self, before: &Self, time: Duration, at: Millis) -> Point {
        #[expect(clippy::cast_precision_loss, reason = "rows per sample stay far below 2^52")]
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / time.as_secs_f64();
        let overflow =
            std::array::from_fn(|cause| rate(self.overflow[cause], before.overflow[cause]));
        Point { at_ms: at.0, allocated: rate(self.allocated, before.allocated), overflow }
    }
}

fn recent_p99<'a>(
    before: &mut VecDeque<(Instant, Histogram<u64>)>,
    now: Instant,
    mut latencies: impl Iterator<Item = &'a Histogram<u64>>,
) -> Option<f64> {
    let mut all = latencies.next()?.clone();
    // All histograms have the same bounds.
    latencies.for_each(|latency| all.add(latency).unwrap_or_default());
    let is_old = |(at, _): &(Instant, _)| now.duration_since(*at) >= LATENCY_TIME;
    while before.len() > 1 && is_old(&before[1]) {
        before.pop_front();
    }
    let mut recent = all.clone();
    if let Some((_, then)) = before.front() {
        recent.subtract(then).unwrap_or_default();
    }
    let step = LATENCY_TIME / 6;
    if before.back().is_none_or(|(at, _)| now.duration_since(*at) >= step) {
        before.push_back((now, all));
    }
    #[expect(clippy::cast_precision_loss, reason = "a minute has fewer than 2^52 microseconds")]
    let ms = recent.value_at_quantile(0.99) as f64 / 1e3;
    (!recent.is_empty()).then_some(ms)
}

/// All of the node's pools, as of the last sample.
#[derive(Debug, Default)]
struct Pools {
    lines: Arc<Vec<PoolLine>>,
    top: Arc<Top>,
    too_small: usize,
    exhausting: usize,
    watched: usize,
    /// The pools whose exhaustion was reported recently, and the time of each report.
    reported: Vec<(PoolId, Millis)>,
}

impl Pools {
    async fn take(&mut self, node: &Handle, loads: &SharedLoads, calls: Option<&Service>) {
        let asked = node.asked().await;
        let mut lines = Vec::with_capacity(asked.len());
        {
            let mut loads = loads.lock();
            loads.take(now(), &asked);
            self.watched = loads.watched();
            lines.extend(asked.iter().map(|pool| line(pool, loads.outlook(pool.pool).as_ref())));
        }
        lines.sort_unstable_by_key(|line| line.id);
        let count = |health| lines.iter().filter(|line| line.health == health).count();
        (self.too_small, self.exhausting) = (count(Health::TooSmall), count(Health::Exhausting));
        self.report(&lines, calls);
        self.top = Arc::new(Top::of(&lines));
        self.lines = Arc::new(lines);
    }

    /// Reports each pool that is running out of numbers, at most once an hour. Writes a log line
    /// and, if calls are accepted, an event that is sent to webhooks.
    fn report(&mut self, lines: &[PoolLine], calls: Option<&Service>) {
        let at = now();
        self.reported.retain(|(_, then)| at.since(*then) < EVENT_EVERY);
        let in_trouble = lines.iter().filter(|line| line.health <= Health::Exhausting);
        let is_new = |line: &&PoolLine| !self.reported.iter().any(|(pool, _)| *pool == line.id);
        let new: Vec<&PoolLine> = in_trouble.filter(is_new).take(EVENTS_MAX).collect();
        for line in new {
            self.reported.push((line.id, at));
            tracing::warn!(
                event = "pool.exhausting",
                ring_pool = line.id.0,
                numbers = line.numbers,
                load = line.load,
                load_in_an_hour = line.load_in_an_hour,
                overflow_in_an_hour = line.overflow_in_an_hour,
                "a ring pool is running out of numbers"
            );
            if let Some(calls) = calls {
                calls.exhausting(&Exhausting {
                    pool: line.id.0,
                    numbers: line.numbers,
                    load: line.load,
                    load_in_an_hour: line.load_in_an_hour,
                    overflow: line.overflow,
                    overflow_in_an_hour: line.overflow_in_an_hour,
                });
            }
        }
    }
}

fn line(pool: &PoolAsked, outlook: Option<&Outlook<'_>>) -> PoolLine {
    let &PoolAsked { pool: id, numbers, lifetime, .. } = pool;
    let load = outlook.map(|outlook| &outlook.load);
    let over = load.map_or(Millis::ZERO, |load| load.over);
    let (now, overflow) = load.map_or((0.0, 0.0), |load| (load.load, load.overflow));
    let ahead = outlook.map_or(now, Outlook::in_an_hour).max(0.0);
    let overflow_in_an_hour = predicted(numbers, ahead);
    // Otherwise, a single visitor soon after startup would look like the beginning of a flood.
    let is_exhausting = || {
        let at_least = outlook.map_or(0.0, Outlook::at_least_in_an_hour).max(0.0);
        predicted(numbers, at_least) > OVERFLOW_MAX && over >= MEASURED_MIN.min(lifetime)
    };
    let health = if now == 0.0 {
        Health::Idle
    } else if overflow > OVERFLOW_MAX {
        Health::TooSmall
    } else if is_exhausting() {
        Health::Exhausting
    } else {
        Health::Fine
    };
    PoolLine {
        id,
        numbers,
        lifetime,
        lockout: load.map_or(Duration::from_millis(lifetime.0), |load| load.lockout),
        load: now,
        load_in_an_hour: ahead,
        over,
        overflow,
        overflow_in_an_hour,
        health,
        tonight: outlook.and_then(|outlook| runs_out(numbers, outlook)),
    }
}

/// The first of the next twelve hours in which the pool will be too small, based on the previous
/// day.
fn runs_out(numbers: u32, outlook: &Outlook<'_>) -> Option<Tonight> {
    // Overflow grows with the load. If the highest load causes no shortage, one evaluation of the
    // formula suffices.
    let most = outlook.night().map(|(_, load)| load).fold(0.0, f64::max);
    if predicted(numbers, most) <= OVERFLOW_MAX {
        return None;
    }
    let mut hours = outlook.night();
    let first = hours.find(|(_, load)| predicted(numbers, *load) > OVERFLOW_MAX);
    first.map(|(at, _)| Tonight { at, load: most })
}

/// The expected share of visitors who get no number. Skips the formula if the pool has more than 50
/// numbers and the load is less than a third of the pool's numbers, because the result is then
/// almost 0.
pub(super) fn predicted(numbers: u32, load: f64) -> f64 {
    if load <= 0.0 || (numbers > 50 && load < f64::from(numbers) / 3.0) {
        return 0.0;
    }
    blocking(f64::from(numbers), load)
}
