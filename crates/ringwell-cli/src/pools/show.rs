//! Prints pools and their state as tables.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::numbers;
use super::server::Server;
use super::values::text;
use crate::print::{print_note, say};
use crate::table::{plain, table};

/// The maximum number of lines of the audit log in one answer.
const AUDIT_PAGE_MAX: usize = 1_000;

/// Prints all pools.
pub(super) fn list(server: &Server, json: bool) -> anyhow::Result<ExitCode> {
    let pools = server.pages("/v1/pools", "id")?;
    let heading = ["id", "name", "network", "campaign", "lifetime", "size", "overflow", "keys"];
    let row = |pool: &Value| {
        let keys = if pool["key_is_rotating"] == true { "2" } else { "1" };
        vec![
            text(pool, "id"),
            text(pool, "name"),
            text(pool, "network"),
            text(pool, "campaign"),
            lifetime(pool),
            text(pool, "max_pool_size"),
            text(pool, "overflow_number"),
            keys.to_owned(),
        ]
    };
    let pools = Value::Array(pools);
    let rows = || pools.as_array().into_iter().flatten().map(row).collect::<Vec<_>>();
    say(json, &pools, || table(&heading, &rows()))
}

/// Prints a pool and its numbers.
pub(super) fn show(server: &Server, id: u64, json: bool) -> anyhow::Result<ExitCode> {
    let pool = pool(server, id)?;
    say(json, &pool, || lines(&pool))
}

/// Fetches a pool, including its numbers.
pub(super) fn pool(server: &Server, id: u64) -> anyhow::Result<Value> {
    let mut pool = server.get(&format!("/v1/pools/{id}"))?;
    pool["numbers"] = server.get(&format!("/v1/pools/{id}/numbers"))?;
    Ok(pool)
}

/// Formats a pool's properties, one per line, followed by its numbers.
pub(super) fn lines(pool: &Value) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, value: &str| {
        let value = if value.is_empty() { "none" } else { value };
        let _ = writeln!(lines, "{name:20}{}", plain(value));
    };
    line("ring pool", &text(pool, "id"));
    line("name", &text(pool, "name"));
    for name in ["network", "advertiser", "campaign", "id_from_network"] {
        line(&name.replace('_', " "), &text(pool, name));
    }
    line("lifetime", &lifetime(pool));
    line("size at most", &text(pool, "max_pool_size"));
    line("overflow number", &text(pool, "overflow_number"));
    if pool["ring_pool_key"].is_string() {
        line("key", &text(pool, "ring_pool_key"));
    }
    line("valid keys", if pool["key_is_rotating"] == true { "2" } else { "1" });
    let runs = pool["numbers"].as_array().map_or(&[][..], Vec::as_slice);
    lines + "\n" + &numbers::table_of(runs)
}

/// Prints the current state of a pool.
pub(super) fn state(server: &Server, id: u64, json: bool) -> anyhow::Result<ExitCode> {
    let state = server.get(&format!("/v1/pools/{id}/state"))?;
    say(json, &state, || {
        let mut lines = String::new();
        for name in ["numbers", "free", "locked", "allocated"] {
            let _ = writeln!(lines, "{name:20}{}", text(&state, name));
        }
        if let Some(at) = time(&state["next_free_ms"]) {
            let _ = writeln!(lines, "{:20}{at}", "next comes free");
        }
        for (reason, rows) in state["overflow"].as_object().into_iter().flatten() {
            let _ = writeln!(lines, "{:20}{rows} since the start", plain(reason));
        }
        let load = &state["load"];
        if let Some(rows) = load["rows_per_second"].as_f64() {
            let _ = writeln!(lines, "{:20}{rows:.3} rows a second", "load");
        }
        lines
    })
}

/// Prints how many numbers a pool needs for its measured load.
pub(super) fn sizing(
    server: &Server,
    id: u64,
    target: f64,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let sizing = server.get(&format!("/v1/pools/{id}/sizing?target={target}"))?;
    say(json, &sizing, || of_sizing(&sizing))
}

fn of_sizing(sizing: &Value) -> String {
    let [load, now] =
        ["busiest_hour", "load"].map(|name| sizing["load"][name].as_f64().unwrap_or_default());
    let load = load.max(now);
    let has = &sizing["numbers"];
    let share = |value: &Value| format!("{:.2} %", value.as_f64().unwrap_or_default() * 100.0);
    let needed = match sizing["numbers_needed"].as_u64() {
        Some(1) => "1 number is needed".to_owned(),
        Some(needed) => format!("{needed} numbers are needed"),
        None => "no pool is large enough".to_owned(),
    };
    let target = share(&sizing["target"]);
    if load == 0.0 {
        return format!(
            "No requests for the pool's numbers were counted in the last day, or since the \
             server started, so nothing can be said about its size: repeat the command after \
             the busiest hour. The pool contains {has}\n"
        );
    }
    let early = early(sizing);
    let title = format!(
        "load {load:.1}: {needed} for an overflow of {target}; the pool contains {has}\n\n"
    );
    let row = |forecast: &Value| {
        let mark = if forecast["numbers"] == *has { "<- now" } else { "" };
        vec![
            text(forecast, "numbers"),
            share(&forecast["overflow"]),
            share(&forecast["misattributed"]),
            share(&forecast["not_attributed"]),
            mark.to_owned(),
        ]
    };
    let rows: Vec<_> = sizing["forecasts"].as_array().into_iter().flatten().map(row).collect();
    let heading = ["numbers", "overflow", "wrong caller", "not attributed", ""];
    title + &early + &table(&heading, &rows)
}

/// Returns a warning if the load was measured for too short a time.
fn early(sizing: &Value) -> String {
    let over = sizing["load"]["over_seconds"].as_f64().unwrap_or_default();
    let lifetime = sizing["lifetime_seconds"].as_f64().unwrap_or_default();
    // The server measures the load over at most about one lifetime. Half a lifetime is long enough.
    if over >= lifetime / 2.0 {
        return String::new();
    }
    format!(
        "Estimated from {over:.0} s of data, but the lifetime is {lifetime:.0} s: repeat the \
         command after a full lifetime\n\n"
    )
}

/// Prints the newest entries of the audit log.
pub(super) fn audit(server: &Server, last: usize, json: bool) -> anyhow::Result<ExitCode> {
    let mut log = Vec::new();
    let mut after = String::new();
    while log.len() < last {
        let limit = (last - log.len()).min(AUDIT_PAGE_MAX);
        let page = server.get(&format!("/v1/audit?limit={limit}{after}"))?;
        let Value::Array(page) = page else { break };
        let Some(oldest) = page.last() else { break };
        after = format!("&after={}&line={}", oldest["version"], oldest["line"]);
        let is_last = page.len() < limit;
        log.extend(page);
        if is_last {
            break;
        }
    }
    let log = Value::Array(log);
    let row = |line: &Value| {
        vec![
            text(line, "version"),
            time(&line["at_ms"]).unwrap_or_default(),
            text(line, "who"),
            text(line, "action"),
            text(line, "object"),
        ]
    };
    let heading = ["version", "at", "who", "action", "object"];
    let rows = || log.as_array().into_iter().flatten().map(row).collect::<Vec<_>>();
    say(json, &log, || table(&heading, &rows()))
}

/// Returns the count of a pool's numbers, including its overflow number.
pub(super) fn count(pool: &Value) -> u64 {
    counts(pool).values().sum()
}

/// Counts a pool's numbers by state.
fn counts(pool: &Value) -> BTreeMap<&str, u64> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for run in pool["numbers"].as_array().into_iter().flatten() {
        let state = run["state"].as_str().unwrap_or_default();
        *counts.entry(state).or_default() += run["count"].as_u64().unwrap_or_default();
    }
    // The list of numbers does not include the overflow number.
    if pool["overflow_number"].is_string() {
        counts.insert("overflow", 1);
    }
    counts
}

/// Formats the counts of a pool's numbers by state.
pub(super) fn counted(pool: &Value) -> String {
    let counts = counts(pool);
    let all: u64 = counts.values().sum();
    let by_state: Vec<_> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    match by_state.as_slice() {
        [] => "no numbers".to_owned(),
        _ => format!("{all} numbers ({})", by_state.join(", ")),
    }
}

/// Returns a failure and prints advice if the inventory could not fill the pool to its maximum
/// size.
pub(super) fn filled(pool: &Value) -> ExitCode {
    let size = pool["max_pool_size"].as_u64().unwrap_or_default();
    let missing = size.saturating_sub(count(pool));
    // A pool without `fill_immediately` draws its numbers later, when it needs them.
    if missing == 0 || pool["fill_immediately"] != true {
        return ExitCode::SUCCESS;
    }
    let id = text(pool, "id");
    let numbers = numbers::counted(&missing.into());
    print_note(format_args!(
        "The inventory has no more numbers for ring pool {id}, which lacks {numbers}: add numbers \
            with `ringwell pools add-numbers {id} RANGE`"
    ));
    ExitCode::FAILURE
}

/// Formats milliseconds since 1970 as a readable timestamp.
fn time(millis: &Value) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(millis.as_i64()?).ok()?;
    Some(format!("{at:.3}"))
}

fn lifetime(pool: &Value) -> String {
    let seconds = pool["lifetime_seconds"].as_f64().unwrap_or_default();
    let lifetime = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    humantime::format_duration(lifetime).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sized(needed: u64, load: f64, over_seconds: f64) -> String {
        let load = json!({ "load": load, "busiest_hour": load, "over_seconds": over_seconds });
        of_sizing(&json!({
            "numbers": 20, "numbers_needed": needed, "target": 0.01, "lifetime_seconds": 1800.0,
            "load": load, "forecasts": [],
        }))
    }

    #[test]
    fn a_size_is_named_only_if_requests_were_counted() {
        let none = sized(1, 0.0, 1800.0);
        assert!(none.contains("nothing can be said") && !none.contains("needed"), "{none}");
        let few = sized(1, 0.01, 1800.0);
        assert!(few.starts_with("load 0.0: 1 number is needed for"), "{few}");
        let early = sized(30, 20.0, 60.0);
        assert!(early.contains("30 numbers are needed"), "{early}");
        assert!(early.contains("Estimated from 60 s of data"), "{early}");
        assert!(!sized(30, 20.0, 1800.0).contains("Estimated"));
    }
}
