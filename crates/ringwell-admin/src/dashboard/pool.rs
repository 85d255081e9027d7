//! One ring pool: shows whether it is large enough, and the effects of other sizes.

use maud::{Markup, html};
use ringwell_core::{Millis, PoolId};
use ringwell_node::{PoolState, REST_BOUNDS, Rested};
use ringwell_plan::{Callers, Demand, Forecast};
use serde_json::json;

use super::asked::{Asked, Live, NoPage, View};
use super::forms;
use super::layout::{Tiles, chart};
use super::line::{Health, PoolLine};
use super::sample::OVERFLOW_MAX;
use super::table::{Cell, Table};
use super::words::{Cause, count, duration, moment, rate, several, share, stamp};

/// The number of points on the curve of overflow by pool size.
const SIZES: u32 = 40;
/// The required pool size is computed only for loads below this limit. The largest allowed pool is
/// too small for a higher load, and the formula would take a long time.
const LOAD_MAX: f64 = 200_000.0;
/// The maximum count of number ranges to list.
const RANGES_MAX: usize = 200;

/// The results of the sizing formulas.
struct Sizing {
    /// The smallest count of numbers that keeps overflow at or below [`OVERFLOW_MAX`].
    needed: Option<u32>,
    here: Forecast,
    forecasts: Vec<Forecast>,
}

pub(super) async fn view(asked: &Asked<'_>, id: PoolId) -> Result<View, NoPage> {
    let directory = asked.node.directory();
    let pool = directory.pool(id).ok_or(NoPage::Missing("There is no such ring pool."))?;
    let state = asked.node.state(id).await;
    let refused = asked.node.refused(id).await;
    let rested = asked.node.rested(id).await;
    let line = line(asked, id);
    let hours = asked.sampler.loads().lock().hours(id);
    let busiest = hours.iter().map(|(_, load)| *load).fold(0.0, f64::max);
    let sizing = match line {
        Some(line) if line.load > 0.0 => {
            let load = busiest.max(line.load);
            // The formulas take a long time, so they run on another thread and do not delay other
            // requests.
            tokio::task::spawn_blocking(move || size(&line, load)).await.ok().flatten()
        }
        _ => None,
    };
    let name = pool.name().map(str::to_owned);
    let title = name.as_ref().map_or(format!("Ring pool {id}"), |name| format!("{name} ({id})"));
    let tiles = tiles(asked, id, state.as_ref());
    let table = sizes(sizing.as_ref());
    let overflow = overflow(state.as_ref(), &refused);
    let rests = rests(rested.as_ref());
    let load_summary = summary(&hours, line.as_ref());
    let body = html! {
        h1 { bdi { (title) } }
        (verdict(line.as_ref(), sizing.as_ref()))
        (state.as_ref().map_or_else(|| html! {}, bar))
        (tiles.html())
        (chart(&format!("{id}.json"), "sizes", "Overflow by size", "The share of visitors without a \
            number of their own in the busiest hour, for other pool sizes (Erlang B)."))
        (table.html())
        (chart(&format!("{id}.json"), "hours", "Load over the last day", &load_summary))
        (rests.html())
        (overflow.html())
        (facts(pool))
        (forms::of_pool(asked, id, state.as_ref().map(|state| state.numbers.into())).await)
    };
    let data = json!({
        "id": id.0,
        "name": name,
        "state": line.map(|line| line.health),
        "numbers": state.map(|state| state.numbers),
        "locked": state.map(|state| state.locked),
        "next_free_ms": state.and_then(|state| state.next_free).map(|at| at.0),
        "allocated": state.map(|state| state.allocated),
        "load": line.map(|line| line.load),
        "load_in_an_hour": line.map(|line| line.load_in_an_hour),
        "numbers_needed": sizing.as_ref().and_then(|sizing| sizing.needed),
        "misattributed": sizing.as_ref().map(|sizing| sizing.here.misattributed),
        "lifetime_ms": pool.lifetime().0,
        "key_is_rotating": pool.next_key().is_some(),
        "rested": rested.as_ref().map(of_rested),
        "sizes": of_sizes(sizing.as_ref()),
        "hours": of_hours(&hours),
    });
    Ok(View { title, body, data, table, live: tiles.changing().collect() })
}

/// The figures that change while the page is open.
pub(super) async fn live(asked: &Asked<'_>, id: PoolId) -> Live {
    let state = asked.node.state(id).await;
    tiles(asked, id, state.as_ref()).changing().collect()
}

fn line(asked: &Asked<'_>, id: PoolId) -> Option<PoolLine> {
    let sample = asked.sampler.newest();
    let line = sample.pools.binary_search_by_key(&id, |line| line.id).ok()?;
    Some(sample.pools[line])
}

fn size(line: &PoolLine, load: f64) -> Option<Sizing> {
    let demand = Demand::of_load(load.min(1e7), line.lockout).ok()?;
    let callers = Callers::assumed();
    let needed = (load < LOAD_MAX).then(|| demand.numbers_for(OVERFLOW_MAX)).flatten();
    let here = demand.forecast(line.numbers, &callers);
    let last = needed.unwrap_or(line.numbers).max(line.numbers).saturating_mul(3) / 2;
    let step = (last / SIZES).max(1);
    let mut sizes: Vec<u32> = (1..=last.div_ceil(step)).map(|n| n * step).collect();
    sizes.extend(needed);
    sizes.push(line.numbers);
    sizes.sort_unstable();
    sizes.dedup();
    let forecasts = sizes.into_iter().map(|size| demand.forecast(size, &callers)).collect();
    Some(Sizing { needed, here, forecasts })
}

/// A banner that says whether the pool is large enough.
fn verdict(line: Option<&PoolLine>, sizing: Option<&Sizing>) -> Markup {
    let Some((line, sizing)) = line.zip(sizing) else {
        return html! { p.lead { "This pool has had no recent requests, so its size cannot be \
        judged." } };
    };
    let more = sizing.needed.map(|needed| needed.saturating_sub(line.numbers));
    let target = share(OVERFLOW_MAX);
    let (level, sign) = match line.health {
        Health::TooSmall => ("red", "✖ Too small."),
        Health::Exhausting => ("amber", "▲ Will be exhausted within an hour."),
        Health::Fine | Health::Idle => ("green", "✔ Large enough."),
    };
    html! { p class={ "banner " (level) } {
        b { (sign) } " "
        @match more {
            Some(0) => { "In the busiest hour, " (share(sizing.here.overflow))
                " of the visitors get no number of their own." },
            Some(more) => { b { (several(more.into(), "more number")) }
                " would keep overflow below " (target) " in the busiest hour (now "
                (share(sizing.here.overflow)) ")." },
            None => { "Even the largest allowed pool does not keep overflow below " (target) "." },
        }
        @if line.over < line.lifetime {
            " Based on only " (duration(line.over)) " of data: check again after "
            (duration(line.lifetime)) "."
        }
    } }
}

/// One bar that shows the shares of locked-out and free numbers.
fn bar(state: &PoolState) -> Markup {
    let numbers = f64::from(state.numbers.max(1));
    let locked = f64::from(state.locked) / numbers * 100.0;
    let text = format!(
        "{} of {} numbers are held by visitors",
        count(state.locked.into()),
        count(state.numbers.into())
    );
    html! {
        svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=(text) {
            rect.free x="0" y="0" width="100" height="6" {}
            rect.locked x="0" y="0" width=(format!("{locked:.2}")) height="6" {}
        }
        p.lead { (text) "." }
    }
}

fn tiles(asked: &Asked<'_>, id: PoolId, state: Option<&PoolState>) -> Tiles {
    let mut tiles = Tiles::default();
    let Some(state) = state else {
        let owner = asked.node.other_owner(id);
        let place = owner.map_or("on no node yet".to_owned(), |node| format!("on node {node}"));
        tiles.add("Where", place);
        return tiles;
    };
    tiles.live("numbers", "Numbers", count(state.numbers.into()));
    tiles.live("locked", "Held by visitors", count(state.locked.into()));
    tiles.live("free", "Free", count((state.numbers - state.locked.min(state.numbers)).into()));
    if let Some(next) = state.next_free {
        tiles.live("next", "Next number free at", stamp(next));
    }
    tiles.live("allocated", "Handed out since startup", count(state.allocated.into()));
    if let Some(line) = line(asked, id) {
        tiles.live("load", "Needed at once", rate(line.load));
        tiles.live("ahead", "Needed at once (one hour from now)", rate(line.load_in_an_hour));
        tiles.live("overflow", "Overflow lately", share(line.overflow));
    }
    tiles.add("Shard", state.shard.to_string());
    tiles
}

fn sizes(sizing: Option<&Sizing>) -> Table {
    let columns = [
        ("numbers", "Numbers"),
        ("overflow", "Overflow"),
        ("locked", "Held on average"),
        ("reuse_seconds", "Used again after"),
        ("misattributed", "Calls attributed to the next visitor"),
    ];
    let mut table = Table::new("Other pool sizes in the busiest hour", &columns);
    let Some(Sizing { forecasts, needed, here }) = sizing else {
        return table.or(html! { "The pool has had no recent requests for a number." });
    };
    let is_shown = |(place, forecast): &(usize, &Forecast)| {
        place % 4 == 0 || Some(forecast.numbers) == *needed || forecast.numbers == here.numbers
    };
    for (_, forecast) in forecasts.iter().enumerate().filter(is_shown) {
        let note = if forecast.numbers == here.numbers {
            " (now)"
        } else if Some(forecast.numbers) == *needed {
            " (enough)"
        } else {
            ""
        };
        let reuse = forecast.reuse.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let shown = reuse.map_or("never".to_owned(), |ms| duration(Millis(ms)));
        table.rows.push(vec![
            Cell::figure(count(forecast.numbers.into()) + note, forecast.numbers),
            Cell::figure(share(forecast.overflow), forecast.overflow),
            Cell::figure(rate(forecast.locked), forecast.locked),
            Cell::figure(shown, reuse.map_or(String::new(), |ms| (ms / 1000).to_string())),
            Cell::figure(share(forecast.misattributed), forecast.misattributed),
        ]);
    }
    table
}

fn of_sizes(sizing: Option<&Sizing>) -> serde_json::Value {
    let forecasts = sizing.map_or(&[][..], |sizing| &sizing.forecasts);
    let of =
        |value: &dyn Fn(&Forecast) -> f64| -> Vec<f64> { forecasts.iter().map(value).collect() };
    let x: Vec<u32> = forecasts.iter().map(|forecast| forecast.numbers).collect();
    json!({ "label": "Numbers", "time": false, "x": x, "y": [
        { "label": "% overflow", "values": of(&|forecast| forecast.overflow * 100.0) },
        { "label": "% of calls attributed to the next visitor",
          "values": of(&|forecast| forecast.misattributed * 100.0) },
    ] })
}

fn of_hours(hours: &[(Millis, f64)]) -> serde_json::Value {
    let x: Vec<u64> = hours.iter().map(|(at, _)| at.0 / 1000).collect();
    let values: Vec<f64> = hours.iter().map(|(_, load)| *load).collect();
    json!({ "label": "Hour", "time": true, "x": x,
        "y": [{ "label": "numbers needed at once", "values": values }] })
}

fn summary(hours: &[(Millis, f64)], line: Option<&PoolLine>) -> String {
    let most = hours.iter().map(|(_, load)| *load).fold(0.0, f64::max);
    let numbers = line.map_or(0, |line| line.numbers);
    format!(
        "Numbers needed at once, hour by hour: at most {}; the pool has {}. Based on {} hour{} of \
        data.",
        rate(most),
        count(numbers.into()),
        hours.len(),
        if hours.len() == 1 { "" } else { "s" }
    )
}

fn overflow(state: Option<&PoolState>, refused: &[(&'static str, u64)]) -> Table {
    let columns =
        [("cause", "Cause"), ("rows", "Visitors since the start"), ("advice", "What to do")];
    let mut table = Table::new("Visitors without a number of their own", &columns);
    let mut counts = [0; 4];
    counts[Cause::PoolTooSmall as usize] = state.map_or(0, |state| u64::from(state.exhausted));
    for (reason, rows) in refused {
        if let Some(cause) = Cause::of_name(reason) {
            counts[cause as usize] += rows;
        }
    }
    for cause in Cause::ALL.into_iter().filter(|cause| counts[*cause as usize] > 0) {
        let rows = counts[cause as usize];
        table.rows.push(vec![
            Cell::text(cause.name()),
            Cell::figure(count(rows), rows),
            Cell::text(cause.advice()),
        ]);
    }
    table.or(html! { "None since startup." })
}

/// A histogram of how long each number has been free. The sooner numbers are reused, the more late
/// calls are wrongly attributed to the next visitor.
fn rests(rested: Option<&Rested>) -> Table {
    let columns = [
        ("since", "Time since last held by a visitor"),
        ("numbers", "Numbers"),
        ("share", "Share"),
    ];
    let mut table = Table::new("Time for which the pool's numbers have been free", &columns);
    let Some(rested) = rested else { return table.or(html! { "Another node serves the pool." }) };
    let of = |bound: u64| {
        if bound == 1 { "1 lifetime".to_owned() } else { format!("{bound} lifetimes") }
    };
    let mut lines = vec![("held now".to_owned(), rested.held)];
    let bounds = REST_BOUNDS.iter().map(|bound| format!("less than {}", of(*bound)));
    let last = REST_BOUNDS.last().map(|bound| format!("{} or more", of(*bound)));
    lines.extend(bounds.chain(last).zip(rested.rested));
    lines.push(("never held".to_owned(), rested.never));
    let all = f64::from(lines.iter().map(|(_, count)| count).sum::<u32>().max(1));
    for (since, numbers) in lines {
        let part = f64::from(numbers) / all;
        let width = format!("{:.2}", part * 100.0);
        table.rows.push(vec![
            Cell::text(since),
            Cell::figure(count(numbers.into()), numbers),
            Cell::of(
                html! {
                    svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" {
                        rect.locked x="0" y="0" width=(width) height="6" {}
                    }
                    (share(part))
                },
                part.to_string(),
            ),
        ]);
    }
    table
}

fn of_rested(rested: &Rested) -> serde_json::Value {
    json!({ "held": rested.held, "never": rested.never,
        "bounds_in_lifetimes": REST_BOUNDS, "numbers": rested.rested })
}

/// The pool's settings in the directory.
fn facts(pool: &ringwell_directory::RingPool) -> Markup {
    let ranges = pool.numbers();
    let overflow = pool.overflow().map(|number| number.to_string());
    html! {
        h2 { "Settings" }
        dl.tiles {
            div { dt { "Lifetime of an allocation" } dd { (duration(pool.lifetime())) } }
            div { dt { "Overflow number" } dd { (overflow.as_deref().unwrap_or("none")) } }
            div { dt { "Keys" } dd {
                @if pool.next_key().is_some() { "two keys are valid: a key change is in progress" } @else { "one" }
            } }
        }
        h2 { "Numbers" }
        ul { @for range in ranges.iter().take(RANGES_MAX) {
            li {
                a href={ "../number?number=" (range.first()) } { (range.first()) }
                @if range.count() > 1 { " and the " (count(u64::from(range.count()) - 1)) " after it" }
            }
        } }
        @if ranges.len() > RANGES_MAX { p { "And " (count((ranges.len() - RANGES_MAX) as u64)) " more ranges." } }
        p { "Now: " (moment(ringwell_calls::clock::now())) }
    }
}
