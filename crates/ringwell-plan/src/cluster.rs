//! The size of a cluster for a given amount of traffic, calculated from measurements.
//!
//! Owns the formulas. Independent of any running server: the costs are in [`MEASURED`] and were
//! measured on one machine. Invariant: each figure names the inputs of its calculation.

mod measured;

use std::time::Duration;

use crate::erlang::load_for;
use measured::{ANSWER, BATCH, CONNECTION, HOP, HTTP, MANY_NUMBERS, NUMBER, RECORD, SHARD};
pub use measured::{MACHINE, MEASURED, Measured};

/// The maximum count of shards in a cluster.
pub const SHARDS_MAX: u32 = 256;

/// Rows per batch in the measurements.
const ROWS_MEASURED: f64 = 40.0;
/// Above this count of numbers, the caches of a core are too small, and [`MANY_NUMBERS`] applies.
const NUMBERS_CACHED: f64 = 100_000.0;
/// The size of a row in a request, in bytes, without its parameters:
/// `{"api_suffix":"…","request_id":"…"},` with a 32-character key, a three-digit pool id and a
/// four-digit request id.
const REQUEST_ROW: f64 = 112.0;
/// The size of a request's head, in bytes, with host, content type, length and user agent.
const REQUEST_HEAD: f64 = 150.0;
/// The size of a row in a request between nodes, without its parameters, plus the size of its
/// answer, in bytes. Includes the row's share of the request head and of the answer head.
const LINK_ROW: f64 = 20.0;
/// The size of a journal's block, in bytes; a frame fills whole blocks. In each block,
/// [`FRAME_ROOM`] bytes are for the group.
const BLOCK: f64 = 4_096.0;
const FRAME_ROOM: f64 = 4_088.0;
const FRAME_HEADER: f64 = 64.0;

/// A cluster's traffic, and its nodes' machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Numbers handed out per second; above 0.
    pub numbers_per_second: f64,
    /// Keep-alives per second, each in a separate request.
    pub keep_alives_per_second: f64,
    /// Rows per batch; at least 1.
    pub rows_per_batch: f64,
    /// The length of a row's parameters, in bytes.
    pub parameter_bytes: f64,
    /// The lockout after an allocation.
    pub lifetime: Duration,
    /// The count of numbers in all pools; `None` for as many as `target` requires.
    pub numbers: Option<f64>,
    /// Numbers in each pool.
    pub pool_numbers: u32,
    /// The share of rows that may overflow.
    pub target: f64,
    /// Open keep-alive connections from clients.
    pub connections: f64,
    /// The share of each core that may be busy on average; the rest is for peaks.
    pub busy: f64,
    /// Cores per node that shards may use.
    pub node_cores: u32,
    /// Memory per node that Ringwell may use, in bytes.
    pub node_memory: f64,
    /// The disk space that each shard may use for its history, in bytes.
    pub history_bytes: f64,
    /// The time for which history is kept.
    pub history_age: Duration,
}

/// One figure of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name of the figure.
    pub what: &'static str,
    /// The value.
    pub value: f64,
    /// The unit.
    pub unit: Unit,
    /// The inputs of its calculation.
    pub how: String,
}

/// The unit of a [`Figure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count.
    Count,
    /// A rate per second.
    CountPerSecond,
    /// CPU seconds per second, which is the count of cores that are always busy.
    Cores,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Seconds.
    Seconds,
}

/// The reason why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EstimateError {
    /// Invalid traffic.
    #[error("{0} must be above 0")]
    NotAbove0(&'static str),
    /// The traffic exceeds the capacity of one cluster.
    #[error("this load needs more than {SHARDS_MAX} shards, the maximum for a cluster")]
    TooMuch,
}

/// The requirements that follow from traffic and pools alone, before machines are considered.
struct Needs {
    batches: f64,
    locked: f64,
    numbers: f64,
    memory: f64,
    record: f64,
}

/// The counts of nodes and shards that can carry the traffic.
#[derive(Clone, Copy)]
struct Layout {
    nodes: u32,
    shards: u32,
    cores: f64,
}

/// Estimates what the traffic requires; the most important figures are first.
///
/// # Errors
/// [`EstimateError`] if an argument is invalid, or one cluster is too small.
pub fn estimate(traffic: &Traffic) -> Result<Vec<Figure>, EstimateError> {
    let above_0 = [
        ("the count of numbers per second", traffic.numbers_per_second),
        ("the count of rows per batch", traffic.rows_per_batch),
        ("the lifetime", traffic.lifetime.as_secs_f64()),
        ("the count of numbers per pool", f64::from(traffic.pool_numbers)),
        ("the target", traffic.target),
        ("the busy share of each core", traffic.busy),
        ("the count of cores per node", f64::from(traffic.node_cores)),
        ("the memory per node", traffic.node_memory),
        ("the count of numbers", traffic.numbers.unwrap_or(1.0)),
    ];
    if let Some((name, _)) = above_0.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0))
    {
        return Err(EstimateError::NotAbove0(name));
    }
    let needs = Needs::of(traffic);
    let layout = Layout::smallest(traffic, &needs).ok_or(EstimateError::TooMuch)?;
    let mut figures = of_numbers(traffic, &needs);
    figures.extend(of_machines(traffic, &needs, layout));
    figures.extend(of_disk(traffic, &needs, layout));
    figures.extend(of_network(traffic, layout));
    Ok(figures)
}

impl Needs {
    fn of(traffic: &Traffic) -> Self {
        let locked = traffic.numbers_per_second * traffic.lifetime.as_secs_f64();
        let pool = f64::from(traffic.pool_numbers);
        let pools = (locked / load_for(traffic.pool_numbers, traffic.target)).ceil();
        let numbers = traffic.numbers.unwrap_or(pools * pool);
        Self {
            batches: traffic.numbers_per_second / traffic.rows_per_batch,
            locked,
            numbers,
            memory: numbers * NUMBER.value + traffic.connections * CONNECTION.value * 1_024.0,
            record: RECORD.value + traffic.parameter_bytes,
        }
    }
}

impl Layout {
    /// The smallest count of nodes, and of shards on them, with enough memory and cores.
    fn smallest(traffic: &Traffic, needs: &Needs) -> Option<Self> {
        let fitting = (1..=SHARDS_MAX)
            .filter(|nodes| needs.memory <= f64::from(*nodes) * traffic.node_memory);
        fitting
            .flat_map(|nodes| {
                let most = nodes.saturating_mul(traffic.node_cores).min(SHARDS_MAX);
                (nodes..=most).map(move |shards| (nodes, shards))
            })
            .map(|(nodes, shards)| Self {
                nodes,
                shards,
                cores: cpu(traffic, needs, nodes, shards),
            })
            .find(|layout| layout.cores <= f64::from(layout.shards) * traffic.busy)
    }

    /// The average count of shards that own a batch's pools, if pools are chosen at random.
    fn asked(self, rows: f64) -> f64 {
        asked(rows, self.shards)
    }
}

fn asked(rows: f64, shards: u32) -> f64 {
    let shards = f64::from(shards);
    shards * (1.0 - (1.0 - 1.0 / shards).powf(rows))
}

/// The count of busy cores. The cost of a batch is the cost of its own processing, plus a cost for
/// each other shard that receives some of its rows.
fn cpu(traffic: &Traffic, needs: &Needs, nodes: u32, shards: u32) -> f64 {
    let dearer = if needs.numbers > NUMBERS_CACHED { MANY_NUMBERS.value } else { 1.0 };
    let row = (BATCH.value - HTTP.value) / ROWS_MEASURED;
    let batch = (HTTP.value + row * traffic.rows_per_batch) * dearer;
    // One shard has the client's connection. The shards are spread evenly over the nodes.
    let other_shards = f64::from(shards) - 1.0;
    let asked = asked(traffic.rows_per_batch, shards);
    let others = if shards > 1 { asked * other_shards / f64::from(shards) } else { 0.0 };
    let beside = f64::from(shards) / f64::from(nodes) - 1.0;
    let here = if shards > 1 { beside / other_shards } else { 0.0 };
    let asks = others * (here * SHARD.value + (1.0 - here) * HOP.value);
    let keep_alive = (HTTP.value + row) * dearer;
    (needs.batches * (batch + asks) + traffic.keep_alives_per_second * keep_alive) * 1e-6
}

fn of_numbers(traffic: &Traffic, needs: &Needs) -> Vec<Figure> {
    let numbers_how = match traffic.numbers {
        Some(_) => "as given".to_owned(),
        None => format!(
            "pools of {} numbers, each with the load at which {} % of its rows overflow (Erlang B)",
            traffic.pool_numbers,
            traffic.target * 100.0
        ),
    };
    vec![
        figure(
            "batches",
            needs.batches,
            Unit::CountPerSecond,
            format!("numbers per second, divided by {} rows per batch", traffic.rows_per_batch),
        ),
        figure(
            "numbers locked out at once",
            needs.locked,
            Unit::Count,
            "numbers per second, multiplied by the lifetime (Little's law)".to_owned(),
        ),
        figure("numbers in all pools", needs.numbers, Unit::Count, numbers_how),
        figure(
            "time to hand out every number once",
            needs.numbers / traffic.numbers_per_second,
            Unit::Seconds,
            "numbers in all pools, divided by numbers per second".to_owned(),
        ),
    ]
}

fn of_machines(traffic: &Traffic, needs: &Needs, layout: Layout) -> Vec<Figure> {
    let Layout { nodes, shards, cores } = layout;
    let shape = format!("{} cores and {} each", traffic.node_cores, gib(traffic.node_memory));
    vec![
        figure(
            "cores that are busy",
            cores,
            Unit::Cores,
            format!(
                "CPU time for batches (HTTP, plus a share for each row), their requests to {:.1} \
                 shards, and keep-alives (like batches of one row); without proxy and TLS",
                layout.asked(traffic.rows_per_batch)
            ),
        ),
        figure(
            "shards, one per core",
            f64::from(shards),
            Unit::Count,
            format!(
                "each core at most {} % busy; at least one shard per node",
                traffic.busy * 100.0
            ),
        ),
        figure(
            "memory of all nodes",
            needs.memory,
            Unit::Bytes,
            format!("numbers, and {} idle connections", traffic.connections),
        ),
        figure(
            "nodes",
            f64::from(nodes),
            Unit::Count,
            format!("machines with {shape}; no spare machine"),
        ),
    ]
}

fn of_disk(traffic: &Traffic, needs: &Needs, layout: Layout) -> Vec<Figure> {
    let asked = layout.asked(traffic.rows_per_batch);
    let kept_alive = traffic.keep_alives_per_second;
    let records = traffic.numbers_per_second * needs.record + kept_alive * RECORD.value;
    let least = records * BLOCK / FRAME_ROOM;
    let group = FRAME_HEADER + traffic.rows_per_batch / asked * needs.record;
    let blocks = needs.batches * asked * (group / FRAME_ROOM).ceil() + kept_alive;
    let most = (blocks * BLOCK).max(least);
    let kept = traffic.history_bytes * f64::from(layout.shards);
    let age = traffic.history_age.as_secs_f64();
    vec![
        figure(
            "journal, busy",
            least,
            Unit::BytesPerSecond,
            format!(
                "records of {:.0} bytes ({:.0} for a keep-alive) in full blocks of 4 KiB",
                needs.record, RECORD.value
            ),
        ),
        figure(
            "journal, each batch flushed alone",
            most,
            Unit::BytesPerSecond,
            format!(
                "each batch writes whole blocks of 4 KiB on {asked:.1} shards, and each keep-alive \
                 writes one block"
            ),
        ),
        figure(
            "history, each batch flushed alone",
            age.min(kept / most),
            Unit::Seconds,
            format!(
                "time until the journal has written {} per shard (journal.history_bytes), but at \
                 most {:.0} days (journal.history_age)",
                gib(traffic.history_bytes),
                age / 86_400.0
            ),
        ),
        figure(
            "history, busy",
            age.min(kept / least),
            Unit::Seconds,
            "the same time for full blocks; the actual history is between the two".to_owned(),
        ),
        figure("disk for journals", kept.min(most * age), Unit::Bytes, {
            "the maximum for the history, without prepared segments and snapshots".to_owned()
        }),
    ]
}

fn of_network(traffic: &Traffic, layout: Layout) -> Vec<Figure> {
    let rows = traffic.numbers_per_second;
    let request = REQUEST_ROW + traffic.parameter_bytes + REQUEST_HEAD / traffic.rows_per_batch;
    let away = 1.0 - 1.0 / f64::from(layout.nodes);
    vec![
        figure(
            "network, requests",
            rows * request,
            Unit::BytesPerSecond,
            format!("{request:.0} bytes per row as in the API's examples, without TCP and TLS"),
        ),
        figure(
            "network, answers",
            rows * ANSWER.value,
            Unit::BytesPerSecond,
            format!("{:.0} bytes per row, without TCP and TLS", ANSWER.value),
        ),
        figure(
            "network, between nodes",
            rows * away * (LINK_ROW + traffic.parameter_bytes),
            Unit::BytesPerSecond,
            format!("{:.0} % of the rows belong to another node", away * 100.0),
        ),
    ]
}

fn figure(what: &'static str, value: f64, unit: Unit, how: String) -> Figure {
    Figure { what, value, unit, how }
}

fn gib(bytes: f64) -> String {
    format!("{:.0} GiB", bytes / 1_073_741_824.0)
}

#[cfg(test)]
mod tests;
