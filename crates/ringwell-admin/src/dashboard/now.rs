//! The dashboard's start page: shows whether all is well and, if not, the problems and the actions
//! to take.

use maud::{Markup, html};
use ringwell_core::Millis;
use ringwell_node::{Handle, HistoryState, JournalState, Phase};
use serde::Serialize;
use serde_json::json;

use super::asked::{Asked, View};
use super::layout::{Tiles, chart};
use super::pools::{columns, row};
use super::sample::{Point, Sample};
use super::table::{Cell, Table};
use super::words::{Cause, bytes, count, duration, rate, several, share};
use crate::loads::Loads;

/// The minimum overflow rate at which a finding is shown, in rows per second.
const RATE_MIN: f64 = 0.01;

/// A condition that needs attention.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// `red` or `amber`.
    level: &'static str,
    what: String,
    /// The advice to the operator.
    advice: String,
    /// The page that shows details.
    page: &'static str,
}

pub(super) fn view(asked: &Asked<'_>) -> View {
    let sample = asked.sampler.newest();
    let findings = findings(asked.node, &sample);
    let sentence = sentence(&findings);
    let tiles = tiles(&sample);
    let causes = causes(&sample);
    let mut pools = Table::new("Ring pools to look at first", &columns());
    pools.rows = sample.top.worst.iter().map(|line| row(asked, line)).collect();
    let pools = pools.or(html! { "No pool has received a request for a number yet." });
    let tonight = tonight(asked, &sample);
    let curve = asked.sampler.curve();
    let body = html! {
        h1 data-live="sentence" { (sentence) }
        p.unseen role="status" data-live="spoken" { (sentence) }
        (list(&findings))
        (tiles.html())
        (chart("now.json", "curve", "Numbers a second", &summary(&curve)))
        (causes.html())
        (pools.html())
        (tonight.html())
        p { (night_words(&sample)) }
    };
    let mut live: Vec<_> = tiles.changing().collect();
    live.extend(causes.live());
    live.extend(pools.live());
    live.push(("sentence".to_owned(), sentence.clone()));
    live.push(("spoken".to_owned(), sentence.clone()));
    let by_cause = |of: &dyn Fn(usize) -> serde_json::Value| -> serde_json::Value {
        let each =
            Cause::ALL.iter().map(|cause| (cause.name().replace(' ', "_"), of(*cause as usize)));
        each.collect::<serde_json::Map<_, _>>().into()
    };
    let data = json!({
        "sentence": sentence,
        "findings": findings,
        "at_ms": sample.at.0,
        "numbers_per_second": sample.point.allocated,
        "overflow_per_second": by_cause(&|cause| sample.point.overflow[cause].into()),
        "overflow": by_cause(&|cause| sample.overflow[cause].into()),
        "allocated": sample.allocated,
        "p99_ms": sample.p99_ms,
        "pools_too_small": sample.too_small,
        "pools_exhausting": sample.exhausting,
        "tonight": sample.top.tonight.iter().map(|(line, tonight)| json!({
            "ring_pool": line.id.0, "from_ms": tonight.at.0, "load": tonight.load,
            "numbers": line.numbers })).collect::<Vec<_>>(),
        "hours_watched": sample.watched,
        "curve": of_curve(&curve),
    });
    View { title: sentence, body, data, table: pools, live }
}

fn sentence(findings: &[Finding]) -> String {
    let red = findings.iter().filter(|finding| finding.level == "red").count();
    match (findings.first(), red) {
        (None, _) => "All is well".to_owned(),
        (Some(first), 0 | 1) => first.what.clone(),
        (Some(first), more) => format!("{} (and {} more)", first.what, more - 1),
    }
}

fn list(findings: &[Finding]) -> Markup {
    html! { ul.findings {
        @for finding in findings {
            li class=(finding.level) {
                b { @if finding.level == "red" { "✖ " } @else { "▲ " } (finding.what) } " "
                (finding.advice) " "
                @if !finding.page.is_empty() { a href=(finding.page) { "See " (page_name(finding.page)) } }
            }
        }
        @if findings.is_empty() {
            li.green { b { "✔ Every visitor gets their own number." } }
        }
    } }
}

fn page_name(page: &str) -> &str {
    page.split('?').next().unwrap_or(page)
}

/// Describes the fault of a shard's journal, and gives advice. `None` if the journal has no fault.
fn journal_finding(shard: u16, state: JournalState) -> Option<(String, &'static str)> {
    match state {
        JournalState::Writing => None,
        JournalState::Full => Some((
            format!("The disk of shard {shard} is full"),
            "Free up space on the disk that contains the data directory; the shard then resumes by \
            itself.",
        )),
        JournalState::Failed => Some((
            format!("Shard {shard} cannot write to its disk"),
            "Move the data to a working disk and restart this server.",
        )),
        JournalState::Waiting => Some((
            format!("The journal of shard {shard} is slow"),
            "Check the servers that store the journal. The shard hands out numbers again when \
            these servers are fast enough.",
        )),
        JournalState::Taken => Some((
            format!("Another process serves shard {shard}"),
            "This process answers requests for the shard's pools with overflow numbers. To serve \
            the shard here, restart this process.",
        )),
    }
}

fn findings(node: &Handle, sample: &Sample) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |level, what: String, advice: &str, page| {
        found.push(Finding { level, what, advice: advice.to_owned(), page });
    };
    of_the_server(node, &mut add);
    if sample.too_small > 0 {
        let verb = if sample.too_small == 1 { "is" } else { "are" };
        let what = format!("{} {verb} too small", several(sample.too_small as u64, "ring pool"));
        add(
            "red",
            what,
            "Add numbers: each pool's page shows how many are needed.",
            "pools?state=too_small",
        );
    }
    for link in sample.shards.iter().flat_map(|shard| &shard.links).filter(|link| link.is_shut) {
        let what = format!("Node {} does not answer", link.node);
        add(
            "red",
            what,
            "Check that the node is running and reachable over the network.",
            "cluster",
        );
    }
    if sample.exhausting > 0 {
        let pools = several(sample.exhausting as u64, "ring pool");
        let what = format!("{pools} will be exhausted within an hour");
        add("amber", what, "Add numbers before then.", "pools?state=exhausting");
    }
    let others = [Cause::ServerTooSlow, Cause::Disk, Cause::OtherNode];
    for cause in others.into_iter().filter(|it| sample.point.overflow[*it as usize] > RATE_MIN) {
        let a_second = rate(sample.point.overflow[cause as usize]);
        let cause_name = cause.name();
        let what = format!(
            "{a_second} visitors a second get no number of their own (cause: {cause_name})"
        );
        add("amber", what, cause.advice(), "cluster");
    }
    if node.histories().any(|history| history == HistoryState::Damaged) {
        let advice = "Look-ups that need this part may fail. Run `ringwell journal verify` on a \
            copy of the data.";
        add("amber", "Part of the history cannot be read".to_owned(), advice, "cluster");
    }
    found.sort_by_key(|finding| finding.level != "red");
    found.dedup_by(|one, other| one.what == other.what);
    found
}

/// Adds findings about the server and its disk.
fn of_the_server(node: &Handle, add: &mut impl FnMut(&'static str, String, &str, &'static str)) {
    match node.phase() {
        Phase::Serving => {}
        Phase::Starting => {
            add(
                "amber",
                "The server is starting".into(),
                "The server is reading its journals.",
                "",
            );
        }
        Phase::Draining => {
            add(
                "amber",
                "The server is stopping".into(),
                "The server is completing the answers in progress.",
                "",
            );
        }
    }
    for (shard, state) in node.journals() {
        if let Some((what, advice)) = journal_finding(shard, state) {
            add("red", what, advice, "cluster");
        }
    }
    if let Some(left) = node.held().into_iter().map(|(_, left)| left).max() {
        let left = duration(Millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
        add(
            "red",
            format!("Some ring pools are held for another {left}"),
            "Lockouts may have been lost, for example by a restore, so these pools hand out only \
             overflow numbers. Wait, and add no numbers: until then, these pools also count as \
             too small.",
            "",
        );
    }
}

fn tiles(sample: &Sample) -> Tiles {
    let mut tiles = Tiles::default();
    let sum = |of: &dyn Fn(&ringwell_node::ShardStats) -> u64| sample.shards.iter().map(of).sum();
    let point = &sample.point;
    let overflow: f64 = point.overflow.iter().sum();
    let all = point.allocated + overflow;
    tiles.live("rate", "Numbers a second", rate(point.allocated));
    let of_all = if all > 0.0 { overflow / all } else { 0.0 };
    tiles.live("overflow", "Visitors without their own number", share(of_all));
    let p99 = sample.p99_ms.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"));
    tiles.live("p99", "99 of 100 answers within", p99);
    tiles.live("connections", "Connections", count(sum(&|shard| shard.connections as u64)));
    tiles.live("allocated", "Numbers handed out since startup", count(sample.allocated));
    tiles.live("journal", "History on the disk", bytes(sum(&|shard| shard.journal.kept)));
    tiles.live("pools", "Ring pools here", count(sample.pools.len() as u64));
    tiles.live("numbers", "Promo numbers here", count(sum(&|shard| shard.numbers as u64)));
    tiles
}

fn causes(sample: &Sample) -> Table {
    let columns = [
        ("cause", "Visitors without a number of their own"),
        ("a_second", "A second"),
        ("since_start", "Since the start"),
        ("advice", "What to do"),
    ];
    let mut table = Table::new("Overflow", &columns);
    for cause in Cause::ALL {
        let now = sample.point.overflow[cause as usize];
        let all = sample.overflow[cause as usize];
        table.rows.push(vec![
            Cell::text(cause.name()),
            Cell::live_figure(format!("now-{}", cause as usize), rate(now), now),
            Cell::live_figure(format!("all-{}", cause as usize), count(all), all),
            Cell::text(cause.advice()),
        ]);
    }
    table
}

fn tonight(asked: &Asked<'_>, sample: &Sample) -> Table {
    let columns = [
        ("pool", "Ring pool"),
        ("from", "Too small from"),
        ("numbers", "Numbers"),
        ("load", "Highest count of numbers needed at once"),
    ];
    let mut table =
        Table::new("Ring pools that will run out of numbers in the next twelve hours", &columns);
    for (line, tonight) in &sample.top.tonight {
        table.rows.push(vec![
            Cell::link(format!("{}pools/{}", asked.up, line.id), line.id.to_string()),
            Cell::time(tonight.at),
            Cell::figure(count(line.numbers.into()), line.numbers),
            Cell::figure(rate(tonight.load), tonight.load),
        ]);
    }
    table.or(html! {
        @if sample.watched < Loads::WATCHED_MIN { "Not known yet." } @else { "No ring pool." }
    })
}

/// Describes the data behind the forecast for the next twelve hours.
fn night_words(sample: &Sample) -> String {
    if sample.watched < Loads::WATCHED_MIN {
        return format!(
            "The forecast for the next twelve hours requires 25 hours of load data; this server \
            has collected {} so far. The Pools page shows the forecast for one hour from now.",
            several(sample.watched as u64, "hour")
        );
    }
    "The forecast load of an hour is the load 24 hours earlier, multiplied by a trend: the load in \
    the last whole hour, divided by the load 24 hours before that (at least 0.5, at most 2)."
        .to_owned()
}

fn summary(curve: &[Point]) -> String {
    let last = curve.last().map_or(0.0, |point| point.allocated);
    let most = curve.iter().map(|point| point.allocated).fold(0.0, f64::max);
    format!("Now {}, at most {} in the last 15 minutes.", rate(last), rate(most))
}

fn of_curve(curve: &[Point]) -> serde_json::Value {
    let x: Vec<u64> = curve.iter().map(|point| point.at_ms / 1000).collect();
    let own: Vec<f64> = curve.iter().map(|point| point.allocated).collect();
    let mut y = vec![json!({ "label": "visitors with their own number", "values": own })];
    for cause in Cause::ALL {
        let values: Vec<f64> = curve.iter().map(|point| point.overflow[cause as usize]).collect();
        y.push(json!({ "label": cause.name(), "values": values }));
    }
    json!({ "label": "Time", "time": true, "x": x, "y": y })
}
