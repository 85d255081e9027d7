//! Creates a pool either from given numbers (by importing a list under `/v1/`) or from numbers in
//! the inventory (through the published API). Either way, the pool is created in one transaction.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use hyper::Method;
use ringwell_config::parse_lifetime;
use ringwell_core::{Millis, NumberRange, PromoNumber};
use serde_json::{Value, json};

use super::server::{Server, collection};
use super::values::text;
use super::{numbers, show};
use crate::print::say;
use crate::usage::WrongUsage;

const HEADING: [&str; 10] = [
    "id",
    "ring_pool_key",
    "overflow_number",
    "lifetime_seconds",
    "first_number",
    "numbers",
    "name",
    "network",
    "advertiser",
    "campaign",
];

#[derive(Debug, clap::Args)]
pub(super) struct Create {
    /// Display name
    #[arg(long)]
    name: String,
    /// Guaranteed lifetime of an allocation
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_lifetime)]
    lifetime: Millis,
    /// The pool's numbers, as in 8885550100-8885550149; needs --id
    #[arg(
        long,
        value_name = "RANGE",
        num_args = 1..,
        value_parser = numbers::parse_range,
        required_unless_present = "size",
        conflicts_with = "size",
        requires = "id"
    )]
    numbers: Vec<NumberRange>,
    /// Unused id for the pool; with --size, the server chooses it
    #[arg(long)]
    id: Option<u64>,
    /// Overflow number, handed out when no other number is free; if omitted, rows then get errors
    #[arg(long, value_name = "NUMBER", conflicts_with = "size", value_parser = PromoNumber::parse)]
    overflow: Option<PromoNumber>,
    /// The pool's key [default: a random one]
    #[arg(long, conflicts_with = "size")]
    key: Option<String>,
    /// Draw this many numbers from the inventory, one of them for overflow
    #[arg(long, value_name = "N")]
    size: Option<u32>,
    /// No overflow number: when no number is free, rows get errors
    #[arg(long, requires = "size")]
    no_overflow: bool,
    /// Network of the pool
    #[arg(long, value_name = "NAME", default_value = "local")]
    network: String,
    /// The advertiser within the network
    #[arg(long, value_name = "NAME", default_value = "local")]
    advertiser: String,
    /// The advertiser's campaign
    #[arg(long, value_name = "NAME", default_value = "local")]
    campaign: String,
}

/// Creates the pool and prints it with its key.
pub(super) fn run(server: &Server, create: &Create, json: bool) -> anyhow::Result<ExitCode> {
    if create.size.is_some() && create.id.is_some() {
        return Err(WrongUsage(
            "--id cannot be used with --size: the server chooses the id of a pool whose numbers \
             come from the inventory. Omit --id, or list the numbers with --numbers",
        )
        .into());
    }
    let (id, key) = match (create.size, create.id) {
        (Some(size), _) => from_inventory(server, create, size)?,
        (None, id) => {
            let id = id.context("--numbers needs --id")?;
            (id, of_numbers(server, create, id)?)
        }
    };
    let mut pool = show::pool(server, id)?;
    pool["ring_pool_key"] = key.into();
    let _ = say(json, &pool, || show::lines(&pool))?;
    Ok(if create.size.is_some() { show::filled(&pool) } else { ExitCode::SUCCESS })
}

fn from_inventory(server: &Server, create: &Create, size: u32) -> anyhow::Result<(u64, String)> {
    let whole = create.lifetime.0.is_multiple_of(1000);
    ensure!(whole, "with --size, the lifetime must be in whole seconds");
    let path = collection(&create.network, &create.advertiser, &create.campaign);
    let made = server.change(
        &Method::POST,
        &format!("{path}.json"),
        &json!({
            "name": create.name,
            "lifetime_seconds": create.lifetime.0 / 1000,
            "max_pool_size": size,
            "fill_immediately": true,
            "allow_overflow": !create.no_overflow,
        }),
    )?;
    let id = made["id"].as_u64().context("the server's answer does not contain the pool's id")?;
    Ok((id, text(&made, "api_key")))
}

/// Creates the pool from the given numbers and returns its key.
fn of_numbers(server: &Server, create: &Create, id: u64) -> anyhow::Result<String> {
    let there = server.find(&format!("/v1/pools/{id}"))?;
    ensure!(there.is_none(), "ring pool {id} already exists");
    let key = match &create.key {
        Some(key) => key.clone(),
        None => random_key()?,
    };
    let mut list = csv::Writer::from_writer(Vec::new());
    list.write_record(HEADING)?;
    for range in &create.numbers {
        let Millis(lifetime) = create.lifetime;
        list.write_record([
            &id.to_string(),
            &key,
            &create.overflow.map_or_else(String::new, |number| number.to_string()),
            &format!("{}.{:03}", lifetime / 1000, lifetime % 1000),
            &range.first().to_string(),
            &range.count().to_string(),
            &create.name,
            &create.network,
            &create.advertiser,
            &create.campaign,
        ])?;
    }
    let report = server.import("apply=none", list.into_inner()?)?;
    let details = report["lines"].as_array().into_iter().flatten();
    let mut wrong: Vec<_> =
        details.map(|line: &Value| text(line, "detail")).filter(|it| !it.is_empty()).collect();
    wrong.dedup();
    ensure!(report["applied"] == true, "{}", wrong.join("; "));
    Ok(key)
}

/// Generates a key of 128 random bits.
fn random_key() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the operating system provides no random bytes")?;
    Ok(format!("{:032X}", u128::from_ne_bytes(bytes)))
}
