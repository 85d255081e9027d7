//! Nodes, shards and the links between them. Shows a plain description first. The detailed figures
//! below it are collapsed.

use maud::{Markup, html};
use ringwell_node::{JournalState, LinkStats, ShardStats};
use serde_json::json;

use super::asked::{Asked, View};
use super::layout::Tiles;
use super::sample::{OtherNode, Sample};
use super::table::{Cell, Table};
use super::words::{bytes, count};

pub(super) fn view(asked: &Asked<'_>) -> View {
    let sample = asked.sampler.newest();
    let node = asked.node;
    let membership = node.membership();
    let shards = shards(asked, &sample);
    let nodes = nodes(asked, &sample);
    let mut tiles = Tiles::default();
    let name = membership.map_or("this server alone", |member| member.own().name.as_str());
    tiles.add("Node", name);
    tiles.add("Version", env!("CARGO_PKG_VERSION"));
    tiles.add("Answers wait for", node.durability());
    if let Some(member) = membership {
        tiles.add("Cluster file", format!("version {}", member.cluster().version()));
        tiles.live("moves", "Moves since then", count(node.moves().unwrap_or(0)));
    }
    let ahead = node.wall_ahead_ms();
    tiles.live("clock", "Wall clock ahead by", format!("{ahead} ms"));
    let body = html! {
        h1 { @if membership.is_some() { "Cluster" } @else { "One server" } }
        (tiles.html())
        @if membership.is_some() { (nodes.html()) }
        (shards.html())
        (details(&sample))
    };
    let deadline_ms = node.config().deadline.as_secs_f64() * 1e3;
    let data = json!({
        "node": membership.map(|member| member.own().name.clone()),
        "shards": sample.shards.iter().map(|shard| json!({
            "shard": shard.shard,
            "journal": journal_name(asked, shard.shard),
            "numbers": shard.numbers,
            "connections": shard.connections,
            "history_bytes": shard.journal.kept,
            "allocated": shard.engine.allocated,
        })).collect::<Vec<_>>(),
        "other_nodes": sample.others.iter().map(|node| json!({
            "node": node.node, "answers": node.answers, "state": state(node, deadline_ms).0,
            "p99_ms": node.p99_ms, "requests": node.requests, "slow": node.slow,
            "waiting": node.waiting,
        })).collect::<Vec<_>>(),
    });
    let mut live: Vec<_> = tiles.changing().collect();
    live.extend(shards.live());
    live.extend(nodes.live());
    View { title: "Cluster".to_owned(), body, data, table: shards, live }
}

fn journal_name(asked: &Asked<'_>, shard: u16) -> &'static str {
    let state = asked.node.journals().find(|(id, _)| *id == shard).map(|(_, state)| state);
    match state {
        Some(JournalState::Writing) => "writes",
        Some(JournalState::Waiting) => "slow to write",
        Some(JournalState::Taken) => "served by another process",
        Some(JournalState::Full) => "disk full: free up space",
        Some(JournalState::Failed) | None => "disk failed: restart with a working disk",
    }
}

fn shards(asked: &Asked<'_>, sample: &Sample) -> Table {
    let columns = [
        ("shard", "Shard"),
        ("journal", "Journal"),
        ("pools", "Ring pools"),
        ("numbers", "Numbers"),
        ("allocated", "Handed out since startup"),
        ("connections", "Connections"),
        ("history_bytes", "History on the disk"),
    ];
    let mut table = Table::new("Shards of this server", &columns);
    let directory = asked.node.directory();
    for ShardStats { shard, numbers, engine, connections, journal, .. } in &sample.shards {
        let live = |key: &str| format!("{key}-{shard}");
        let pools = directory.pools_of(*shard).count();
        table.rows.push(vec![
            Cell::of(html! { (shard) }, shard.to_string()),
            Cell::text(journal_name(asked, *shard)),
            Cell::figure(count(pools as u64), pools),
            Cell::figure(count(*numbers as u64), numbers),
            Cell::live_figure(live("allocated"), count(engine.allocated), engine.allocated),
            Cell::live_figure(live("connections"), count(*connections as u64), connections),
            Cell::live_figure(live("kept"), bytes(journal.kept), journal.kept),
        ]);
    }
    table
}

/// A node counts as slow if more than this percentage of the requests sent to it were slow or lost.
const SLOW_PERCENT: u64 = 1;

/// A description of a node's state, with advice for the operator.
fn state(node: &OtherNode, deadline_ms: f64) -> (&'static str, &'static str) {
    let is_late = node.p99_ms.is_some_and(|p99| p99 > deadline_ms / 4.0);
    if !node.answers {
        ("✖ not answering", "Check that the node is running and reachable over the network.")
    } else if is_late || node.slow * 100 > node.requests * SLOW_PERCENT {
        ("▲ slow", "Check the node's processor and disk, and the network to it.")
    } else {
        ("✔ answers", "")
    }
}

fn nodes(asked: &Asked<'_>, sample: &Sample) -> Table {
    let columns = [
        ("node", "Node"),
        ("state", "State"),
        ("p99_ms", "99 of 100 answers within"),
        ("slow", "Slow or lost"),
        ("requests", "Of requests"),
        ("waiting", "Waiting now"),
        ("advice", "What to do"),
    ];
    let mut table = Table::new("Other nodes, in the last minute", &columns);
    let deadline = asked.node.config().deadline.as_secs_f64() * 1e3;
    for node in &sample.others {
        let (state, advice) = state(node, deadline);
        let key = |of: &str| format!("node-{}-{of}", node.node);
        let p99 = node.p99_ms.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"));
        let p99_ms = node.p99_ms.map(|ms| ms.to_string()).unwrap_or_default();
        table.rows.push(vec![
            Cell::text(node.node.as_str()),
            Cell::text(state),
            Cell::live_figure(key("p99"), p99, p99_ms),
            Cell::live_figure(key("slow"), count(node.slow), node.slow),
            Cell::live_figure(key("requests"), count(node.requests), node.requests),
            Cell::live_figure(key("waiting"), count(node.waiting.into()), node.waiting),
            Cell::text(advice),
        ]);
    }
    table
}

fn ms(link: &LinkStats, quantile: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a minute has fewer than 2^52 microseconds")]
    let ms = link.latency.value_at_quantile(quantile) as f64 / 1e3;
    ms
}

/// Detailed figures for shards and links.
fn details(sample: &Sample) -> Markup {
    let links: Vec<_> = sample
        .shards
        .iter()
        .flat_map(|shard| shard.links.iter().map(move |link| (shard, link)))
        .collect();
    html! { @if !links.is_empty() { details {
        summary { "Connections between shards" }
        div.wide tabindex="0" role="region" aria-label="Connections between shards" { table {
            caption { "From each shard of this server to each shard of the other nodes" }
            thead { tr {
                th scope="col" { "From shard" } th scope="col" { "To shard" } th scope="col" { "Node" }
                th scope="col" { "Requests" } th scope="col" { "Slow" } th scope="col" { "Lost" }
                th scope="col" { "Median" } th scope="col" { "99 %" }
            } }
            tbody { @for (shard, link) in links { tr {
                th scope="row" { (shard.shard) } td.n { (link.shard) } td { bdi { (link.node) } }
                td.n { (count(link.requests)) } td.n { (count(link.slow)) } td.n { (count(link.lost)) }
                td.n { (format!("{:.1} ms", ms(link, 0.5))) } td.n { (format!("{:.1} ms", ms(link, 0.99))) }
            } } }
        } }
    } } }
}
