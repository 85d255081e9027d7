//! One promo number: its holder, now or at a given time. This page is for the support desk.

use maud::{Markup, html};
use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::{Missing, PastAllocation};
use serde_json::json;

use super::asked::{Asked, NoPage, View};
use super::forms;
use super::table::{Cell, Table};
use super::words::{count, moment, stamp};
use crate::v1::attribution::{parse_moment, parse_number};
use ringwell_calls::clock::now;

/// The maximum number of allocations to list. Each one requires a look-up.
const HOLDERS_MAX: usize = 20;

pub(super) async fn view(asked: &Asked<'_>) -> Result<View, NoPage> {
    let (text, at_text) = (asked.text("number"), asked.text("at"));
    let form = form(text, at_text);
    if text.is_empty() {
        let title = "Who had this number?".to_owned();
        let body = html! {
            h1 { (title) } (form)
            p.lead { "Enter a promo number as it was dialed, and the time of the call." }
        };
        let (data, table) = (json!({ "holders": [] }), table());
        return Ok(View { title, body, data, table, live: Vec::new() });
    }
    let number = parse_number(text).map_err(|problem| NoPage::Wrong(problem.to_string()))?;
    let at = match at_text {
        "" => now(),
        // The form's time field sends a time without seconds or time zone. The time is interpreted
        // as UTC.
        text => parse_moment(text).or_else(|| parse_moment(&format!("{text}:00Z"))).ok_or_else(
            || {
                let text = "Enter the time in the form 2026-11-21T06:30:00Z, or in seconds since \
                    1970.";
                NoPage::Wrong(text.to_owned())
            },
        )?,
    };
    let directory = asked.node.directory();
    let owner = directory.pool_by_number(number);
    let shared = directory.overflow_pools(number);
    let (holders, missing) = holders(asked, number, at).await?;
    let mut table = table();
    table.rows = holders.iter().map(|held| row(asked, held)).collect();
    let table = table.or(html! { "No known allocation of this number up to that time." });
    let calls = match asked.calls {
        Some(service) => Some(super::calls::of_number(asked, service, number).await?),
        None => None,
    };
    let title = format!("Number {number}");
    let verdict = verdict(holders.first(), at, missing, !shared.is_empty());
    let body = html! {
        h1 { (title) } (form)
        p.banner.green { (verdict) }
        @if let Some(pool) = owner {
            p { "This number is in the rotation of " a href={ "pools/" (pool.0) } { "ring pool " (pool.0) } "." }
        } @else if shared.is_empty() { p { "This number is in no ring pool now." } }
        @if !shared.is_empty() {
            p { "This number is the overflow number of "
                @if shared.len() == 1 { "one ring pool." }
                @else { (count(shared.len() as u64)) " ring pools." }
            }
        }
        (forms::of_number(asked, number).await)
        (table.html())
        @if let Some(calls) = &calls { (calls.html()) }
    };
    let data = json!({
        "number": number.to_string(),
        "at_ms": at.0,
        "ring_pool": owner.map(|pool| pool.0),
        "overflow_number_of": shared.iter().map(|pool| pool.0).collect::<Vec<_>>(),
        "holders": holders.iter().map(of_held).collect::<Vec<_>>(),
    });
    Ok(View { title, body, data, table, live: Vec::new() })
}

fn form(number: &str, at: &str) -> Markup {
    html! { form.find role="search" method="get" action="number" {
        label { "Promo number" input name="number" value=(number) inputmode="tel" maxlength="40" required; }
        label { "Time of the call (UTC; empty means now)"
            input name="at" value=(at) maxlength="40" placeholder="2026-11-21T06:30:00Z";
        }
        button { "Look it up" }
    } }
}

/// The holder at `at` and the earlier holders, newest first.
async fn holders(
    asked: &Asked<'_>,
    number: PromoNumber,
    at: Millis,
) -> Result<(Vec<PastAllocation>, Option<Missing>), NoPage> {
    let (mut found, mut then): (Vec<PastAllocation>, _) = (Vec::new(), at);
    loop {
        let joined = asked.node.holder(number, then).await;
        let past = joined.map_err(|error| NoPage::Unavailable(error.to_string()))?.past;
        let Some(held) = past.held else { return Ok((found, past.missing)) };
        let before = Millis(held.allocated_wall.0.saturating_sub(1));
        let is_new = found.last().is_none_or(|newer| newer.allocated_at != held.allocated_at);
        let goes_back = is_new && before < then;
        then = before;
        found.extend(Some(held).filter(|_| is_new));
        if found.len() >= HOLDERS_MAX || !goes_back {
            return Ok((found, None));
        }
    }
}

fn verdict(
    newest: Option<&PastAllocation>,
    at: Millis,
    missing: Option<Missing>,
    is_shared: bool,
) -> Markup {
    match newest {
        Some(held) if at < held.locked_until => html! {
            b { "Held by one visitor" } " since " (moment(held.allocated_wall)) ", until "
            (moment(held.locked_until)) "."
        },
        Some(held) => html! {
            b { "Free" } " since " (moment(held.locked_until)) ", when the lockout for the \
                previous visitor ended. No other visitor received the number from then until the \
                time of the call."
        },
        None => html! {
            b { @match missing {
                Some(Missing::NotKept) => "The history from that time is no longer kept.",
                Some(Missing::TooLong) => "The look-up took too long.",
                Some(Missing::Damaged) => "The history from that time cannot be read.",
                None if is_shared => "This is an overflow number: many visitors see it at once.",
                None => "No visitor had this number up to that time.",
            } }
        },
    }
}

fn table() -> Table {
    let columns = [
        ("allocated_at", "From"),
        ("locked_until", "Until"),
        ("next_allocated_at", "Next visitor from"),
        ("ring_pool", "Ring pool"),
        ("parameters", "Known facts about the visitor"),
    ];
    Table::new("Visitors who held this number, newest first", &columns)
}

fn row(asked: &Asked<'_>, held: &PastAllocation) -> Vec<Cell> {
    let time = |at: Millis| Cell::of(moment(at), stamp(at));
    let pool = held.pool.map(|pool| pool.0);
    let link =
        html! { @if let Some(pool) = pool { a href={ (asked.up) "pools/" (pool) } { (pool) } } };
    let known = ringwell_wire::params::decode(&held.params);
    let value = known.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    let shown = html! { ul { @for (name, value) in &known { li { bdi { (name) } ": " bdi { (value) } } } } };
    vec![
        time(held.allocated_wall),
        time(held.locked_until),
        held.next_allocated_at.map_or_else(|| Cell::text("no one yet"), time),
        Cell::of(link, pool.map_or(String::new(), |pool| pool.to_string())),
        if known.is_empty() { Cell::text("nothing") } else { Cell::of(shown, value.join("&")) },
    ]
}

fn of_held(held: &PastAllocation) -> serde_json::Value {
    let known = ringwell_wire::params::decode(&held.params);
    json!({
        "allocated_at_ms": held.allocated_wall.0,
        "locked_until_ms": held.locked_until.0,
        "next_allocated_at_ms": held.next_allocated_at.map(|at| at.0),
        "ring_pool": held.pool.map(|pool| pool.0),
        "parameters": known.into_iter().collect::<Vec<(String, String)>>(),
    })
}
