//! All of the node's ring pools, fifty per page, those with the most overflow first.

use maud::{Markup, html};
use ringwell_core::PoolId;
use serde_json::json;

use super::asked::{Asked, View};
use super::line::{PoolLine, compare};
use super::table::{Cell, Table};
use super::words::{count, duration, rate, several, share};

const PAGE: usize = 50;

/// The sort orders of a list, each with its name in the page's address and its label.
const ORDERS: [(&str, &str); 4] = [
    ("trouble", "most overflow expected"),
    ("used", "most used"),
    ("size", "most numbers"),
    ("id", "id"),
];

const STATES: [(&str, &str); 5] = [
    ("", "any"),
    ("too_small", "too small"),
    ("exhausting", "will be exhausted within an hour"),
    ("fine", "fine"),
    ("idle", "idle"),
];

pub(super) fn view(asked: &Asked<'_>) -> View {
    let sample = asked.sampler.newest();
    let (wanted, state) = (asked.text("q").to_lowercase(), asked.text("state"));
    let order = ORDERS.iter().find(|(name, _)| *name == asked.text("sort")).unwrap_or(&ORDERS[0]).0;
    let directory = asked.node.directory();
    let wanted_id = wanted.parse().ok().map(PoolId);
    let fits = |line: &&PoolLine| {
        (state.is_empty() || line.health.name() == state)
            && (wanted.is_empty()
                || Some(line.id) == wanted_id
                || directory
                    .pool(line.id)
                    .and_then(|pool| pool.name())
                    .is_some_and(|name| holds(name, &wanted)))
    };
    let mut found: Vec<&PoolLine> = sample.pools.iter().filter(fits).collect();
    let all = found.len();
    found.sort_by(|one, other| compare(order, one, other));
    // Continues after the last entry of the previous page. An offset would be wrong if pools were
    // added or removed in between.
    let after = asked.text("after").parse().ok().map(PoolId);
    let begin = after.and_then(|after| found.iter().position(|line| line.id == after));
    let shown = &found[begin.map_or(0, |place| place + 1)..];
    let shown = &shown[..shown.len().min(PAGE)];
    let next = shown.last().filter(|last| found.last().is_some_and(|end| end.id != last.id));
    let mut table = Table::new("Ring pools", &columns());
    table.rows = shown.iter().map(|line| row(asked, line)).collect();
    let table = table.or(nothing(sample.pools.is_empty()));
    let title = several(all as u64, "ring pool");
    let body = html! {
        h1 { (title) }
        (form(asked, order))
        (table.html())
        @if let Some(last) = next {
            p { a href=(address(asked, order, last.id)) { "The next " (PAGE) } }
        }
    };
    let data = json!({
        "pools": shown.iter().map(|line| of_line(asked, line)).collect::<Vec<_>>(),
        "count": all,
        "next_after": next.map(|last| last.id.0),
    });
    let live = table.live().collect();
    View { title, body, data, table, live }
}

/// Whether `name` contains `wanted`, ignoring case. `wanted` must be in lower case. Does not copy
/// ASCII names, because there may be many.
fn holds(name: &str, wanted: &str) -> bool {
    if !name.is_ascii() {
        return name.to_lowercase().contains(wanted);
    }
    let mut parts = name.as_bytes().windows(wanted.len().max(1));
    parts.any(|part| part.eq_ignore_ascii_case(wanted.as_bytes()))
}

fn nothing(are_none: bool) -> Markup {
    html! {
        @if are_none {
            "This server has no ring pools yet. To create one, see "
            code { "ringwell pools create --help" }
            ". You can also define ring pools in the configuration."
        } @else { "No ring pool matches." }
    }
}

fn form(asked: &Asked<'_>, order: &str) -> Markup {
    html! { form.find role="search" method="get" action="pools" {
        label { "Id or part of the name"
            input type="search" name="q" value=(asked.text("q")) maxlength="100";
        }
        label { "State" select name="state" {
            @for (name, text) in STATES {
                option value=(name) selected[name == asked.text("state")] { (text) }
            }
        } }
        label { "First" select name="sort" {
            @for (name, text) in ORDERS { option value=(name) selected[name == order] { (text) } }
        } }
        button { "Show" }
    } }
}

fn address(asked: &Asked<'_>, order: &str, last: PoolId) -> String {
    let encode =
        |text| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
    let (q, state) = (encode(asked.text("q")), encode(asked.text("state")));
    format!("pools?q={q}&state={state}&sort={order}&after={}", last.0)
}

/// The columns of a list of pools.
pub(super) fn columns() -> Vec<(&'static str, &'static str)> {
    vec![
        ("id", "Ring pool"),
        ("name", "Name"),
        ("state", "State"),
        ("numbers", "Numbers"),
        ("load", "Needed at once"),
        ("used", "Used"),
        ("overflow", "Overflow lately"),
        ("overflow_in_an_hour", "Overflow in an hour"),
        ("reuse_seconds", "Numbers are used again after"),
    ]
}

/// The row of one pool in a list of pools.
pub(super) fn row(asked: &Asked<'_>, line: &PoolLine) -> Vec<Cell> {
    let id = line.id.0;
    let directory = asked.node.directory();
    let name = directory.pool(line.id).and_then(|pool| pool.name()).unwrap_or_default();
    let used = line.load / f64::from(line.numbers.max(1));
    let reuse = reuse_seconds(line);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, bounded"
    )]
    let shown = reuse.map_or("–".to_owned(), |s| {
        duration(ringwell_core::Millis((s * 1000.0).min(1e15) as u64))
    });
    let key = |name: &str| format!("{name}-{id}");
    vec![
        Cell::of(html! { a href={ (asked.up) "pools/" (id) } { (id) } }, id.to_string()),
        Cell::text(name),
        Cell::of(line.health.html(), line.health.name()),
        Cell::figure(count(line.numbers.into()), line.numbers),
        Cell::live_figure(key("load"), rate(line.load), line.load),
        Cell::live_figure(key("used"), share(used), used),
        Cell::live_figure(key("over"), share(line.overflow), line.overflow),
        Cell::live_figure(key("soon"), share(line.overflow_in_an_hour), line.overflow_in_an_hour),
        Cell::live_figure(key("reuse"), shown, reuse.map_or(String::new(), |s| format!("{s:.0}"))),
    ]
}

/// The mean time between two consecutive allocations of a number.
pub(super) fn reuse_seconds(line: &PoolLine) -> Option<f64> {
    let served = line.load * (1.0 - line.overflow);
    (served > 0.0).then(|| f64::from(line.numbers) * line.lockout.as_secs_f64() / served)
}

fn of_line(asked: &Asked<'_>, line: &PoolLine) -> serde_json::Value {
    let directory = asked.node.directory();
    json!({
        "id": line.id.0,
        "name": directory.pool(line.id).and_then(|pool| pool.name()),
        "state": line.health,
        "numbers": line.numbers,
        "lifetime_ms": line.lifetime.0,
        "load": line.load,
        "load_in_an_hour": line.load_in_an_hour,
        "overflow": line.overflow,
        "overflow_in_an_hour": line.overflow_in_an_hour,
        "reuse_seconds": reuse_seconds(line),
    })
}

#[cfg(test)]
#[test]
fn a_part_of_a_name_is_found_in_any_case() {
    assert!(holds("Spring Sale", "sale") && holds("Äpfel", "äpf") && holds("a", "a"));
    assert!(!holds("Spring", "springs") && !holds("", "a"));
}
