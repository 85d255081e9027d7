//! `ringwell top`: shows which ring pools have the most overflow rows, and why.
//!
//! Queries one node. On a terminal, repeats the query and shows the change since the last answer.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::api_client::{Access, ApiClient};
use crate::print::print;
use crate::table::table;

pub(crate) const HELP: &str = "\
Counts are for one node since it started: in a cluster, query each node. If rows are \
`exhausted`, all numbers of the pool were locked out: give the pool more numbers (`ringwell plan` \
shows how many), or a shorter lifetime. If rows are `not served`, the pool's shard was slow, busy \
or down: `ringwell shards list` shows the state of each shard's node, and \
ringwell_overflow_rows_total in /metrics counts these rows by reason.

Examples:
  ringwell top --token-file demo-data/demo-token
  ringwell top --once --json --url http://10.0.0.7:8080";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Maximum number of pools to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pools: u16,
    /// Print one table and exit; the default if stdout is not a terminal
    #[arg(long)]
    once: bool,
    /// Print JSON, once: the answer of `GET /v1/overflow`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

/// The interval between updates on a terminal.
const EVERY: Duration = Duration::from_secs(2);

/// Moves the cursor to the first line, and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Deserialize)]
struct Pool {
    ring_pool_id: u64,
    name: Option<String>,
    numbers: Option<u32>,
    allocated: Option<u32>,
    exhausted: u64,
    not_served: u64,
}

/// Prints the pools with the most overflow rows.
///
/// # Errors
/// If the server cannot be reached, or refuses the request.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = ApiClient::new(&args.access)?;
    let ask = || client.get(&args.access.url, &format!("/v1/overflow?top={}", args.pools));
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&ask()?)?).as_bytes());
    }
    if args.once || !io::stdout().is_terminal() {
        return print(drawn(&pools(ask()?)?, None).as_bytes());
    }
    let mut before = BTreeMap::new();
    loop {
        let now = pools(ask()?)?;
        let url = &args.access.url;
        let text = drawn(&now, Some(&before));
        print(
            format!("{CLEAR}{url}, every {} s; Ctrl-C to stop\n\n{text}", EVERY.as_secs())
                .as_bytes(),
        )?;
        before = now.iter().map(|pool| (pool.ring_pool_id, rows(pool))).collect();
        thread::sleep(EVERY);
    }
}

fn pools(mut answer: Value) -> anyhow::Result<Vec<Pool>> {
    Ok(serde_json::from_value(answer["ring_pools"].take())?)
}

const fn rows(pool: &Pool) -> u64 {
    pool.exhausted + pool.not_served
}

/// Formats the table. If the previous counts are given, the table also shows the change since then.
fn drawn(pools: &[Pool], before: Option<&BTreeMap<u64, u64>>) -> String {
    if pools.is_empty() {
        return "no overflow rows since the start\n".to_owned();
    }
    let mut heading = vec!["pool", "name", "numbers", "handed out", "exhausted", "not served"];
    heading.extend(before.map(|_| "new"));
    let count = |count: Option<u32>| count.map_or("-".to_owned(), |count| count.to_string());
    let line = |pool: &Pool| {
        let mut cells = vec![
            pool.ring_pool_id.to_string(),
            pool.name.clone().unwrap_or_default(),
            count(pool.numbers),
            count(pool.allocated),
            pool.exhausted.to_string(),
            pool.not_served.to_string(),
        ];
        cells.extend(before.map(|before| {
            let last = before.get(&pool.ring_pool_id).copied();
            last.map_or(String::new(), |last| rows(pool).saturating_sub(last).to_string())
        }));
        cells
    };
    table(&heading, &pools.iter().map(line).collect::<Vec<_>>())
}
