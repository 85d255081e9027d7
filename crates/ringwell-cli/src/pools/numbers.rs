//! Numbers: the commands for the inventory and for the numbers in pools.

use std::process::ExitCode;

use hyper::Method;
use ringwell_core::{NumberRange, PromoNumber};
use serde_json::{Value, json};

use super::purchases;
use super::server::Server;
use super::values::text;
use crate::print::say;
use crate::table;

const TARGETS: [&str; 4] = ["inventory", "quarantine", "retired", "pool"];

#[derive(Debug, clap::Subcommand)]
pub(super) enum Numbers {
    /// Print all numbers, including those in pools
    List,
    /// Add numbers to the inventory
    Add {
        /// Numbers or ranges, as in 8885550100-8885550149
        #[arg(required = true, value_name = "RANGE", value_parser = parse_range)]
        ranges: Vec<NumberRange>,
        /// The only network that may use the numbers
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
    /// Remove numbers from their pools or from use, or end their quarantine
    Move {
        /// Numbers or ranges, as in 8885550100-8885550149
        #[arg(required = true, value_name = "RANGE", value_parser = parse_range)]
        ranges: Vec<NumberRange>,
        /// New state: available to any pool, in quarantine, never used again, or back in the former
        /// pool
        #[arg(long, value_name = "WHERE", value_parser = TARGETS)]
        to: String,
        /// With --to inventory: the only network that may use the numbers from now on
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
        /// With --to inventory: let all networks use the numbers
        #[arg(long, conflicts_with = "network")]
        all_networks: bool,
    },
    /// Print numbers that can be bought, the cheapest first
    Offers {
        /// Only numbers with this area code
        #[arg(long, value_name = "CODE")]
        area_code: Option<u16>,
    },
    /// Buy numbers for a network's inventory
    Buy(purchases::Buy),
    /// Print purchased numbers
    Bought,
}

/// Parses `8885550100` or `8885550100-8885550149`.
pub(super) fn parse_range(text: &str) -> Result<NumberRange, &'static str> {
    NumberRange::parse(text).ok().flatten().ok_or(
        "must be a number or a range, as in 8885550100-8885550149. A number has ten digits (the \
            first from 2 to 9), or begins with a + and a country code",
    )
}

/// Runs the commands for the inventory.
pub(super) fn run(server: &Server, command: &Numbers, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        Numbers::List => {
            let numbers = Value::Array(server.pages("/v1/numbers", "last")?);
            say(json, &numbers, || table_of(numbers.as_array().map_or(&[], Vec::as_slice)))
        }
        Numbers::Add { ranges, network } => {
            let body = json!({ "ranges": texts(ranges), "network": network });
            let answer = server.change(&Method::POST, "/v1/numbers", &body)?;
            let count = counted(&answer["numbers"]);
            say(json, &answer, || format!("{count} added to the inventory\n"))
        }
        Numbers::Move { ranges, to, network, all_networks } => {
            let mut body = json!({ "ranges": texts(ranges), "to": to });
            if *all_networks || network.is_some() {
                body["network"] = json!(network);
            }
            let answer = server.change(&Method::POST, "/v1/numbers/moves", &body)?;
            let count = counted(&answer["numbers"]);
            let whose = match network {
                Some(network) => format!(", for network {network} only"),
                None if *all_networks => ", for all networks".to_owned(),
                None => String::new(),
            };
            say(json, &answer, || format!("{count} moved to: {to}{whose}\n"))
        }
        Numbers::Offers { area_code } => purchases::offers(server, *area_code, json),
        Numbers::Buy(buy) => purchases::buy(server, buy, json),
        Numbers::Bought => purchases::bought(server, json),
    }
}

/// Adds numbers to a pool.
pub(super) fn add_to_pool(
    server: &Server,
    id: u64,
    ranges: &[NumberRange],
    json: bool,
) -> anyhow::Result<ExitCode> {
    let body = json!({ "ranges": texts(ranges) });
    let answer = server.change(&Method::POST, &format!("/v1/pools/{id}/numbers"), &body)?;
    say(json, &answer, || {
        let [entered, waiting] =
            ["entered", "waiting"].map(|name| answer[name].as_u64().unwrap_or_default());
        let count = counted(&(entered + waiting).into());
        match waiting {
            0 => format!("{count} added to ring pool {id}\n"),
            _ => format!(
                "{entered} of {count} added to ring pool {id}; the rest ({waiting}) will be added \
                 as their lockouts end\n"
            ),
        }
    })
}

/// Replaces the overflow number of a pool.
pub(super) fn overflow(
    server: &Server,
    id: u64,
    number: PromoNumber,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let body = json!({ "number": number.to_string() });
    let answer = server.change(&Method::PUT, &format!("/v1/pools/{id}/overflow"), &body)?;
    say(json, &answer, || {
        if answer["now"] == true {
            format!("{number} is now the overflow number of ring pool {id}\n")
        } else {
            format!(
                "{number} will become the overflow number of ring pool {id} when the number's \
                 lockout ends\n"
            )
        }
    })
}

/// Formats ranges of numbers as a table.
pub(super) fn table_of(runs: &[Value]) -> String {
    let heading = ["first", "last", "count", "state", "pool", "network"];
    let row = |run: &Value| heading.map(|name| text(run, name)).to_vec();
    table::table(&heading, &runs.iter().map(row).collect::<Vec<_>>())
}

/// Formats a count, such as `1 number` or `2 numbers`.
pub(super) fn counted(count: &Value) -> String {
    if *count == 1 { "1 number".to_owned() } else { format!("{count} numbers") }
}

fn texts(ranges: &[NumberRange]) -> Vec<String> {
    ranges.iter().map(|range| format!("{}-{}", range.first(), range.last())).collect()
}
