//! Numbers: ranges as people write them, the inventory, and what pools are given.

use std::process::ExitCode;

use hyper::Method;
use ringwell_core::{NumberRange, PromoNumber};
use serde_json::{Value, json};

use super::server::Server;
use super::show::text;
use super::{say, table};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Numbers {
    /// Print all numbers, those of pools too
    List,
    /// Add numbers, from which pools may draw
    Add {
        /// Which numbers, as in 8885550100-8885550149
        #[arg(required = true, value_name = "RANGE", value_parser = parse_range)]
        ranges: Vec<NumberRange>,
        /// The only network that may have them
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
    /// Take numbers out of their pools or out of use, or end their quarantine
    Move {
        /// Which numbers, as in 8885550100-8885550149
        #[arg(required = true, value_name = "RANGE", value_parser = parse_range)]
        ranges: Vec<NumberRange>,
        /// Where to: any pool may draw them, none may, never again, or back to the pool they had
        #[arg(long, value_name = "WHERE", value_parser = ["inventory", "quarantine", "retired", "pool"])]
        to: String,
    },
}

/// `8885550100` or `8885550100-8885550149`.
pub(super) fn parse_range(text: &str) -> Result<NumberRange, &'static str> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| PromoNumber::parse(text.trim()).ok();
    let range = number(first).zip(number(last)).and_then(|(first, last)| {
        let count = last.to_u64().checked_sub(first.to_u64())? + 1;
        NumberRange::new(first, u32::try_from(count).ok()?)
    });
    range.ok_or("numbers have ten digits, the first from 2 to 9; write e.g. 8885550100-8885550149")
}

/// Does what was asked of the inventory.
pub(super) fn run(server: &Server, command: &Numbers, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        Numbers::List => {
            let numbers = Value::Array(server.pages("/v1/numbers", "last")?);
            say(json, &numbers, || table_of(numbers.as_array().map_or(&[], Vec::as_slice)))
        }
        Numbers::Add { ranges, network } => {
            let body = json!({ "ranges": texts(ranges), "network": network });
            let answer = server.change(&Method::POST, "/v1/numbers", &body)?;
            say(json, &answer, || {
                format!("{} numbers are new in the inventory\n", text(&answer, "numbers"))
            })
        }
        Numbers::Move { ranges, to } => {
            let body = json!({ "ranges": texts(ranges), "to": to });
            let answer = server.change(&Method::POST, "/v1/numbers/moves", &body)?;
            say(json, &answer, || format!("{} numbers go to: {to}\n", text(&answer, "numbers")))
        }
    }
}

/// Gives numbers to a pool.
pub(super) fn add_to_pool(
    server: &Server,
    id: u64,
    ranges: &[NumberRange],
    json: bool,
) -> anyhow::Result<ExitCode> {
    let body = json!({ "ranges": texts(ranges) });
    let answer = server.change(&Method::POST, &format!("/v1/pools/{id}/numbers"), &body)?;
    say(json, &answer, || {
        let entered = text(&answer, "entered");
        let waiting = match text(&answer, "waiting").as_str() {
            "0" => String::new(),
            count => format!("; {count} come when nobody can hold them any more"),
        };
        format!("{entered} numbers are in the rotation of ring pool {id}{waiting}\n")
    })
}

/// Runs of numbers as a table.
pub(super) fn table_of(runs: &[Value]) -> String {
    let heading = ["first", "last", "count", "state", "pool", "network"];
    let row = |run: &Value| heading.map(|name| text(run, name)).to_vec();
    table::table(&heading, &runs.iter().map(row).collect::<Vec<_>>())
}

fn texts(ranges: &[NumberRange]) -> Vec<String> {
    ranges.iter().map(|range| format!("{}-{}", range.first(), range.last())).collect()
}
