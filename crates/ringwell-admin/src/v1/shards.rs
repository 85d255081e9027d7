//! `GET /v1/shards`: shows this node's shards, and the state of their links to other nodes' shards.

use axum::Json;
use axum::extract::State;
use ringwell_config::ClusterNode;
use ringwell_node::{Handle, JournalState, LinkStats, Member, Reason, ShardStats};
use serde::Serialize;

use crate::problem::Problem;

#[derive(Serialize)]
pub(crate) struct Overview {
    /// The node's name. Null if the node is not in a cluster.
    node: Option<String>,
    map_version: Option<u64>,
    /// The count of bucket moves that this node has learned of since `map_version` took effect.
    moves: Option<u64>,
    shards: Vec<OfShard>,
    /// The owners of all buckets. Moves that have not been reported to this node are not included.
    owners: Vec<OfOwner>,
}

#[derive(Serialize)]
struct OfOwner {
    shard: u16,
    node: String,
    /// The node's address for clients.
    listen: Vec<String>,
    /// The buckets that the shard owns, such as `0-15,20`.
    buckets: String,
}

#[derive(Serialize)]
struct OfShard {
    shard: u16,
    journal: &'static str,
    ring_pools: usize,
    numbers: usize,
    allocations: u64,
    /// The count of overflow rows in the batches that this shard's thread received, by reason.
    overflow: serde_json::Map<String, serde_json::Value>,
    links: Vec<OfLink>,
}

#[derive(Serialize)]
struct OfLink {
    shard: u16,
    node: String,
    /// `open` or `shut`.
    state: &'static str,
    window: f64,
    in_flight: u32,
    waiting: u32,
    connections: u32,
    connects: u64,
    requests: u64,
    slow: u64,
    lost: u64,
    overflow_rows: u64,
    released_late: u64,
    last_ping_ms: Option<f64>,
    p50_ms: f64,
    p99_ms: f64,
}

pub(crate) async fn get(State(node): State<Handle>) -> Result<Json<Overview>, Problem> {
    let shards = node.stats().await?;
    let membership = node.membership();
    Ok(Json(Overview {
        node: membership.map(|membership| membership.own().name.clone()),
        map_version: membership.map(|membership| membership.cluster().version()),
        moves: node.moves(),
        shards: shards.iter().map(|shard| OfShard::new(&node, shard)).collect(),
        owners: membership.map_or_else(Vec::new, |membership| owners(&node, membership)),
    }))
}

fn owners(node: &Handle, membership: &Member) -> Vec<OfOwner> {
    let placement = node.directory().placement().clone();
    let of = |owner: &ClusterNode, shard: u16| OfOwner {
        shard,
        node: owner.name.clone(),
        listen: owner.listen.iter().map(ToString::to_string).collect(),
        buckets: ranges(placement.buckets_of(shard)),
    };
    let nodes = membership.cluster().nodes().iter();
    nodes.flat_map(|node| node.shards.iter().map(move |shard| of(node, *shard))).collect()
}

/// Formats ascending numbers, combining consecutive numbers into ranges.
fn ranges(numbers: impl Iterator<Item = u16>) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |(first, last): (u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.into_iter().map(text).collect::<Vec<_>>().join(",")
}

impl OfShard {
    fn new(node: &Handle, stats: &ShardStats) -> Self {
        let journal = node.journals().find(|(shard, _)| *shard == stats.shard);
        let overflow = Reason::ALL.iter().zip(stats.overflow);
        Self {
            shard: stats.shard,
            journal: journal.map_or("failed", |(_, state)| JournalState::name(state)),
            ring_pools: node.directory().pools_of(stats.shard).count(),
            numbers: stats.numbers,
            allocations: stats.engine.allocated,
            overflow: overflow.map(|(reason, rows)| (reason.name().into(), rows.into())).collect(),
            links: stats.links.iter().map(OfLink::new).collect(),
        }
    }
}

impl OfLink {
    fn new(stats: &LinkStats) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a minute has fewer than 2^52 microseconds")]
        let ms = |quantile| stats.latency.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            shard: stats.shard,
            node: stats.node.clone(),
            state: if stats.is_shut { "shut" } else { "open" },
            window: stats.window,
            in_flight: stats.in_flight,
            waiting: stats.waiting,
            connections: stats.connections,
            connects: stats.connects,
            requests: stats.requests,
            slow: stats.slow,
            lost: stats.lost,
            overflow_rows: stats.paced_rows,
            released_late: stats.late_released,
            last_ping_ms: stats.last_ping.map(|took| took.as_secs_f64() * 1e3),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
        }
    }
}
