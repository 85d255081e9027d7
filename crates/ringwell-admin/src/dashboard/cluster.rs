//! Nodes, shards and the links between them: plain words first, figures folded below.

use maud::{Markup, html};
use ringwell_node::{JournalState, LinkStats, ShardStats};
use serde_json::json;

use super::layout::Tiles;
use super::sample::Sample;
use super::table::{Cell, Table};
use super::words::{bytes, count};
use super::{Asked, View};

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
        "other_nodes": others(&sample).iter().map(|link| json!({
            "node": link.node, "answers": !link.is_shut,
            "p99_ms": ms(link, 0.99),
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
        Some(JournalState::Waiting) => "takes long to write",
        Some(JournalState::Taken) => "served by another process",
        Some(JournalState::Full) => "disk full: free space",
        Some(JournalState::Failed) | None => "disk failed: restart on a good disk",
    }
}

fn shards(asked: &Asked<'_>, sample: &Sample) -> Table {
    let columns = [
        ("shard", "Shard"),
        ("journal", "Journal"),
        ("pools", "Ring pools"),
        ("numbers", "Numbers"),
        ("allocated", "Handed out since the start"),
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

/// The links, the slowest of each node.
fn others(sample: &Sample) -> Vec<&LinkStats> {
    let mut links: Vec<&LinkStats> = sample.shards.iter().flat_map(|shard| &shard.links).collect();
    let key = |link: &LinkStats| (!link.is_shut, u64::MAX - link.latency.value_at_quantile(0.99));
    links.sort_by(|one, other| one.node.cmp(&other.node).then(key(one).cmp(&key(other))));
    links.dedup_by(|one, other| one.node == other.node);
    links
}

fn nodes(asked: &Asked<'_>, sample: &Sample) -> Table {
    let columns = [("node", "Node"), ("state", "State"), ("p99_ms", "99 of 100 answers within")];
    let mut table = Table::new("Other nodes", &columns);
    let slowest = others(sample).into_iter().map(|link| ms(link, 0.99)).fold(0.0, f64::max);
    let deadline = asked.node.config().deadline.as_secs_f64() * 1e3;
    for link in others(sample) {
        let p99 = ms(link, 0.99);
        let state = if link.is_shut {
            "✖ does not answer: look whether it runs"
        } else if p99 >= slowest && p99 > deadline / 4.0 {
            "▲ slow: look at its processor and disk"
        } else {
            "✔ answers"
        };
        let name = format!("node-{}", link.node);
        table.rows.push(vec![
            Cell::text(link.node.as_str()),
            Cell::text(state),
            Cell::live_figure(name, format!("{p99:.1} ms"), p99),
        ]);
    }
    table
}

fn ms(link: &LinkStats, quantile: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a minute are below 2^52")]
    let ms = link.latency.value_at_quantile(quantile) as f64 / 1e3;
    ms
}

/// Figures for a closer look.
fn details(sample: &Sample) -> Markup {
    let links: Vec<_> = sample
        .shards
        .iter()
        .flat_map(|shard| shard.links.iter().map(move |link| (shard, link)))
        .collect();
    html! { @if !links.is_empty() { details {
        summary { "Connections between shards" }
        div.wide tabindex="0" role="region" aria-label="Connections between shards" { table {
            caption { "From each shard of this server to each shard of the others" }
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
