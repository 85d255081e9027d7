//! Numbers that can be bought for a network's inventory.

use std::process::ExitCode;

use hyper::Method;
use serde_json::{Value, json};

use super::server::Server;
use super::values::text;
use crate::print::say;
use crate::table;

/// The numbers to buy.
#[derive(Debug, clap::Args)]
pub(super) struct Buy {
    /// The network; only its pools may draw the numbers
    #[arg(long, value_name = "NAME")]
    network: String,
    /// Count of numbers to buy, the cheapest first
    #[arg(long, value_name = "N")]
    count: u32,
    /// Only numbers with this area code
    #[arg(long, value_name = "CODE")]
    area_code: Option<u16>,
    /// Print the numbers that would be bought, without buying them
    #[arg(long)]
    dry_run: bool,
}

/// Prints the numbers for sale, either with one area code or with any.
pub(super) fn offers(
    server: &Server,
    area_code: Option<u16>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let area = area_code.map_or_else(String::new, |code| format!("?area_code={code}"));
    let offers = server.get(&format!("/v1/offers{area}"))?;
    say(json, &offers, || table_of(&["number", "price_cents"], &offers))
}

/// Prints the purchased numbers.
pub(super) fn bought(server: &Server, json: bool) -> anyhow::Result<ExitCode> {
    let purchases = server.get("/v1/purchases")?;
    say(json, &purchases, || table_of(&["number", "price_cents", "network"], &purchases))
}

/// Buys numbers, or only prints the numbers that would be bought.
pub(super) fn buy(server: &Server, buy: &Buy, json: bool) -> anyhow::Result<ExitCode> {
    let Buy { network, count, area_code, dry_run } = buy;
    let body = json!({ "network": network, "numbers": count, "area_code": area_code });
    let path = format!("/v1/purchases?dry_run={dry_run}");
    let answer = server.change(&Method::POST, &path, &body)?;
    say(json, &answer, || {
        let numbers = answer["numbers"].as_array().map_or(0, Vec::len);
        let price = text(&answer, "price_cents");
        let what = if *dry_run { "would be bought" } else { "bought" };
        let list = table_of(&["number", "price_cents"], &answer["numbers"]);
        format!(
            "{list}\n{numbers} of {count} {what} for network {network}: {price} cents a month\n"
        )
    })
}

fn table_of(heading: &[&str], rows: &Value) -> String {
    let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
    let row = |it: &Value| heading.iter().map(|name| text(it, name)).collect();
    table::table(heading, &rows.iter().map(row).collect::<Vec<_>>())
}
