//! `ringwell pools`: manages ring pools, numbers and tokens on a server that keeps them in a
//! database.
//!
//! Defines the commands and formats their output. The server makes every change, in one transaction
//! per command unless the help text says otherwise. This program stores nothing. Source:
//! docs/spec/management.md.

mod create;
mod lists;
mod networks;
mod numbers;
mod purchases;
pub(crate) mod server;
mod show;
mod tokens;
pub(crate) mod values;

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use hyper::Method;
use ringwell_core::{NumberRange, PromoNumber};
use serde_json::{Value, json};

use self::server::{Management, Server};
use self::values::text;
use crate::plan::parse_share;
use crate::print::{print_note, say};

pub(crate) const HELP: &str = "\
Manages the pools of a server whose configuration sets `database` under [directory]. Set --url to \
the server's management.address. The management token is read from --token-file or RINGWELL_TOKEN. \
The server accepts tokens whose SHA-256 is in its configuration (management.token_sha256), and \
tokens created with `ringwell pools tokens create`. The output is a table; --json prints JSON for \
scripts.

Examples:
  ringwell pools list
  ringwell pools create --id 7 --name Spring --numbers 8885550100-8885550149 \\
    --overflow 8885550199
  ringwell pools numbers add 8885550200-8885550999
  ringwell pools create --name Summer --lifetime 10m --size 50
  ringwell pools networks limit north --numbers 500
  ringwell pools numbers buy --network north --count 20 --area-code 212 \\
    --dry-run
  ringwell pools state 7 --json
  ringwell pools sizing 7 --target 0.1%
  ringwell pools resize 7 --size 80
  ringwell pools rotate-key 7
  ringwell pools rotate-key 7 --end    # when all clients have the new key
  ringwell pools export pools.csv && ringwell pools import pools.csv --dry-run
  ringwell pools remove 7 --yes --url unix:/run/ringwell/manage.sock";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    management: Management,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print all ring pools
    List,
    /// Print a ring pool and its numbers
    Show {
        /// Id of the ring pool
        id: u64,
    },
    /// Print the current state of a ring pool: free and locked numbers, and when the next number
    /// becomes free
    State {
        /// Id of the ring pool
        id: u64,
    },
    /// Print how many numbers a ring pool needs for its measured load
    Sizing {
        /// Id of the ring pool
        id: u64,
        /// The share of rows that may overflow
        #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_share)]
        target: f64,
    },
    /// Create a ring pool from given numbers or from the inventory
    Create(create::Create),
    /// Change the size of a ring pool; the pool draws numbers from the inventory or returns numbers
    /// to it
    Resize {
        /// Id of the ring pool
        id: u64,
        /// Count of numbers, including the overflow number
        #[arg(long, value_name = "N")]
        size: u32,
    },
    /// Add numbers to a ring pool
    AddNumbers {
        /// Id of the ring pool
        id: u64,
        /// Numbers or ranges, as in 8885550100-8885550149
        #[arg(required = true, value_name = "RANGE", value_parser = numbers::parse_range)]
        ranges: Vec<NumberRange>,
    },
    /// Replace the overflow number of a ring pool
    Overflow {
        /// Id of the ring pool
        id: u64,
        /// The new overflow number: ten digits without punctuation, or + with a country code
        #[arg(value_parser = PromoNumber::parse)]
        number: PromoNumber,
    },
    /// Add a second key to a ring pool, or remove its previous key
    RotateKey {
        /// Id of the ring pool
        id: u64,
        /// Make the newer key the only valid one
        #[arg(long)]
        end: bool,
        /// If the pool has two keys, replace the newer one, which becomes invalid at once
        #[arg(long, conflicts_with = "end")]
        replace: bool,
    },
    /// Remove a ring pool; its numbers return to the inventory when their lockouts end
    Remove {
        /// Id of the ring pool
        id: u64,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Import ring pools from a CSV file; exit code 1 if a line is bad
    Import(lists::Import),
    /// Write all ring pools as CSV, with their keys
    Export {
        /// The file to write, readable only by its owner [default: stdout]
        file: Option<PathBuf>,
        /// Replace the file if it exists
        #[arg(long, requires = "file")]
        overwrite: bool,
    },
    /// Manage all numbers: those in the inventory and those in pools
    #[command(subcommand)]
    Numbers(numbers::Numbers),
    /// Manage networks, and how many numbers each may use
    #[command(subcommand)]
    Networks(networks::Networks),
    /// Manage the nodes that serve the directory
    #[command(subcommand)]
    Nodes(networks::Nodes),
    /// Print the audit log, the newest change first
    Audit {
        /// Maximum number of changes
        #[arg(long, value_name = "N", default_value_t = 50)]
        last: usize,
    },
    /// Manage API tokens
    #[command(subcommand)]
    Tokens(tokens::Tokens),
}

/// Runs the command.
///
/// # Errors
/// If the server cannot be reached, or refuses the request.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { management, command } = args;
    let (server, json) = (Server::new(management)?, management.json);
    match command {
        Command::List => show::list(&server, json),
        Command::Show { id } => show::show(&server, *id, json),
        Command::State { id } => show::state(&server, *id, json),
        Command::Sizing { id, target } => show::sizing(&server, *id, *target, json),
        Command::Create(create) => create::run(&server, create, json),
        Command::Resize { id, size } => resize(&server, *id, *size, json),
        Command::AddNumbers { id, ranges } => numbers::add_to_pool(&server, *id, ranges, json),
        Command::Overflow { id, number } => numbers::overflow(&server, *id, *number, json),
        Command::Audit { last } => show::audit(&server, *last, json),
        Command::RotateKey { id, end: false, replace } => rotate_key(&server, *id, *replace, json),
        Command::RotateKey { id, end: true, .. } => end_key(&server, *id, json),
        Command::Remove { id, yes } => remove(&server, *id, *yes, json),
        Command::Import(import) => lists::import(&server, import, json),
        Command::Export { file, overwrite } => lists::export(&server, file.as_deref(), *overwrite),
        Command::Numbers(numbers) => numbers::run(&server, numbers, json),
        Command::Networks(networks) => networks::run(&server, networks, json),
        Command::Nodes(nodes) => networks::run_for_nodes(&server, nodes, json),
        Command::Tokens(tokens) => tokens::run(&server, tokens, json),
    }
}

fn resize(server: &Server, id: u64, size: u32, json: bool) -> anyhow::Result<ExitCode> {
    let pool = server.get(&format!("/v1/pools/{id}"))?;
    server.change(&Method::PUT, &server::published(&pool), &json!({ "max_pool_size": size }))?;
    let pool = show::pool(server, id)?;
    let _ = say(json, &pool, || {
        let numbers = show::counted(&pool);
        format!(
            "the maximum size of ring pool {id} is now {}; the pool contains {numbers}\n",
            text(&pool, "max_pool_size")
        )
    })?;
    Ok(show::filled(&pool))
}

fn rotate_key(server: &Server, id: u64, replace: bool, json: bool) -> anyhow::Result<ExitCode> {
    let query = if replace { "?replace=true" } else { "" };
    let rotated = server.change(&Method::POST, &format!("/v1/pools/{id}/key{query}"), &Value::Null);
    let answer = rotated.or_else(|error| {
        let pool = show::pool(server, id).ok();
        if replace || pool.is_none_or(|pool| pool["key_is_rotating"] != true) {
            return Err(error);
        }
        bail!(
            "ring pool {id} already has two keys: if all clients have the newer key, remove the \
             previous key with `ringwell pools rotate-key {id} --end`; to replace the newer one, \
             add --replace"
        )
    })?;
    print_note(format_args!(
        "New key of ring pool {id}; the previous key stays valid until you run `ringwell pools \
            rotate-key {id} --end`:"
    ));
    say(json, &answer, || format!("{}\n", text(&answer, "ring_pool_key")))
}

fn end_key(server: &Server, id: u64, json: bool) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/pools/{id}/key/previous");
    let answer = server.change(&Method::DELETE, &path, &Value::Null)?;
    say(json, &answer, || format!("only the newest key of ring pool {id} is valid now\n"))
}

fn remove(server: &Server, id: u64, yes: bool, json: bool) -> anyhow::Result<ExitCode> {
    let pool = show::pool(server, id)?;
    if !yes {
        let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
        ensure!(
            can_ask,
            "cannot ask for confirmation without a terminal: pass --yes to remove ring pool {id}"
        );
        let (name, numbers) = (text(&pool, "name"), show::counted(&pool));
        write!(io::stderr(), "Remove ring pool {id}, {name}, with {numbers}? [y/N] ")?;
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        let is_yes = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
        ensure!(is_yes, "ring pool {id} was not removed");
    }
    server.change(&Method::DELETE, &server::published(&pool), &Value::Null)?;
    say(json, &json!({ "removed": id }), || format!("ring pool {id} is removed\n"))
}
