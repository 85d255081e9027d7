//! `ringwell calls block`, `unblock` and `blocks`: manage the callers whose calls are refused.

use std::process::ExitCode;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::api_client::{Access, ApiClient};
use crate::print::print;
use crate::table::table;

pub(crate) const HELP: &str = "\
A blocked caller is refused at once, and the call is logged as rejected or busy. If several \
entries match, the most specific entry applies. WHOM is a number, +1415* for all numbers with that \
prefix, a SIP address, or `withheld`.

Examples:
  ringwell calls block +14155551234
  ringwell calls block '+1900*' --answer busy --note 'premium rate'
  ringwell calls block withheld --pool 16
  ringwell calls blocks";

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// The caller to block
    #[arg(value_name = "WHOM")]
    caller: String,
    /// Block only calls to numbers in this ring pool
    #[arg(long, value_name = "ID")]
    pool: Option<u64>,
    /// Reason given to the caller: `reject` (the number is not in service) or `busy`
    #[arg(long, default_value = "reject", value_parser = ["reject", "busy"])]
    answer: String,
    /// A note, e.g. why the caller is blocked
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Accept a one- or two-digit prefix, which blocks all callers in a large country
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// The entry's id, as listed by `ringwell calls blocks`: b_…
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

/// Adds an entry.
///
/// # Errors
/// If the server cannot be reached, or refuses the request.
pub(crate) fn add(args: &Add) -> anyhow::Result<ExitCode> {
    let Add { caller, pool, answer, note, wide, access } = args;
    let mut body = json!({ "caller": caller, "pool": pool, "answer": answer, "note": note });
    if *wide {
        // Servers from earlier releases do not support this member.
        body["wide"] = json!(true);
    }
    let made = ApiClient::new(access)?.post(&access.url, "/v1/blocks", &body)?;
    print(format!("{}\n", text(&made["id"])).as_bytes())
}

/// Removes an entry.
///
/// # Errors
/// If the server cannot be reached, or the entry does not exist.
pub(crate) fn remove(args: &Remove) -> anyhow::Result<ExitCode> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    ensure!(
        !args.id.is_empty() && args.id.bytes().all(is_name),
        "{:?} is not the id of a blocked caller's entry: `ringwell calls blocks` lists the ids",
        args.id
    );
    ApiClient::new(&args.access)?.delete(&args.access.url, &format!("/v1/blocks/{}", args.id))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints all entries.
///
/// # Errors
/// If the server cannot be reached.
pub(crate) fn list(args: &List) -> anyhow::Result<ExitCode> {
    let answer = ApiClient::new(&args.access)?.get(&args.access.url, "/v1/blocks")?;
    if args.json {
        return print(format!("{answer}\n").as_bytes());
    }
    let columns = ["id", "caller", "pool", "answer", "created_at", "note"];
    let row = |block: &Value| columns.iter().map(|name| text(&block[*name])).collect();
    let rows: Vec<Vec<String>> =
        answer["blocks"].as_array().into_iter().flatten().map(row).collect();
    print(table(&columns, &rows).as_bytes())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
