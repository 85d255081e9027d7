//! `ringwell sites`: manages the web sites of a server that keeps its directory in a database.
//! Their pages show each visitor a number.
//!
//! Defines the commands and formats their output. Source: docs/spec/site.md.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use hyper::Method;
use ringwell_config::shown_file;
use serde_json::{Value, json};

use crate::pools::server::{Management, Server};
use crate::pools::values::text;
use crate::print::say;
use crate::table;

pub(crate) const HELP: &str = "\
Manages the sites of a server whose configuration sets `database` under [directory]. Set --url to \
the server's management.address. The management token is read from --token-file or RINGWELL_TOKEN. \
Sites in the configuration file are not listed.

Examples:
  ringwell sites create pk_shop --origin https://shop.example \\
    --swap +18005550100=16
  ringwell sites change pk_shop --origin https://shop.example \\
    --origin 'https://*.shop.example'
  ringwell sites change pk_shop --consent required --leases-per-minute 120
  ringwell sites list
  ringwell sites remove pk_shop
  ringwell snippet --site pk_shop --server https://calls.example";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    management: Management,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print all sites
    List,
    /// Print a site
    Show {
        /// The site's key, such as `pk_shop`
        key: String,
    },
    /// Create a site
    Create {
        /// The site's key: `pk_`, then 4 to 60 letters, digits, _ and -. The site's pages contain
        /// the key
        key: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Change the given settings of a site; the others stay as they are
    Change {
        /// The site's key, such as `pk_shop`
        key: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Remove a site: its pages keep their own numbers
    Remove {
        /// The site's key, such as `pk_shop`
        key: String,
    },
}

#[derive(Debug, clap::Args)]
struct Settings {
    /// An origin whose pages may use the site, such as `https://shop.example`; may be repeated
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// A number on the pages and the ring pool that replaces it, as in +18005550100=16; may be
    /// repeated
    #[arg(long = "swap", value_name = "NUMBER=POOL", value_parser = parse_swap)]
    swaps: Vec<Value>,
    /// A parameter in the page's URL that is stored with the allocation; may be repeated
    #[arg(long = "param", value_name = "NAME")]
    params: Vec<String>,
    /// The consent needed to remember a visitor
    #[arg(long, value_parser = ["off", "required", "cookieless"])]
    consent: Option<String>,
    /// Maximum new numbers per minute for each client network (IPv4 /24, IPv6 /56)
    #[arg(long, value_name = "N")]
    leases_per_minute: Option<u32>,
    /// File with the secret for servers that swap numbers themselves
    #[arg(long, value_name = "FILE", conflicts_with = "no_edge_key")]
    edge_key_file: Option<PathBuf>,
    /// Do not allow servers to swap numbers themselves
    #[arg(long)]
    no_edge_key: bool,
}

fn parse_swap(text: &str) -> Result<Value, String> {
    let parts = text.split_once('=').and_then(|(number, pool)| Some((number, pool.parse().ok()?)));
    let (number, pool): (&str, u64) =
        parts.ok_or("must be a number and a ring pool's id, as in +18005550100=16")?;
    Ok(json!({ "number": number, "ring_pool": pool }))
}

/// Runs the command.
///
/// # Errors
/// If the server cannot be reached, or refuses the request.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { management, command } = args;
    let (server, json) = (Server::new(management)?, management.json);
    match command {
        Command::List => {
            let sites = Value::Array(server.pages("/v1/sites", "key")?);
            say(json, &sites, || table_of(sites.as_array().map_or(&[][..], Vec::as_slice)))
        }
        Command::Show { key } => {
            let site = server.get(&path(key)?)?;
            say(json, &site, || table_of(std::slice::from_ref(&site)))
        }
        Command::Create { key, settings } => {
            ensure!(
                server.find(&path(key)?)?.is_none(),
                "site {key} already exists: change it with `ringwell sites change {key}`"
            );
            let site = settings.over(json!({ "origins": [], "swaps": [] }))?;
            put(&server, key, &site, json)
        }
        Command::Change { key, settings } => {
            let mut site = server.get(&path(key)?)?;
            if let Some(site) = site.as_object_mut() {
                site.retain(|name, _| name != "key" && name != "has_edge_key");
            }
            put(&server, key, &settings.over(site)?, json)
        }
        Command::Remove { key } => {
            server.change(&Method::DELETE, &path(key)?, &Value::Null)?;
            say(json, &json!({ "removed": key }), || format!("site {key} is removed\n"))
        }
    }
}

/// Returns the API path of a site. Refuses keys that would need escapes in the path.
fn path(key: &str) -> anyhow::Result<String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    ensure!(
        !key.is_empty() && key.bytes().all(is_plain),
        "{key:?} is not a site key: site keys contain only letters, digits, _ and -, and begin \
         with pk_"
    );
    Ok(format!("/v1/sites/{key}"))
}

fn put(server: &Server, key: &str, site: &Value, json: bool) -> anyhow::Result<ExitCode> {
    server.change(&Method::PUT, &path(key)?, site)?;
    let site = server.get(&path(key)?)?;
    say(json, &site, || {
        let table = table_of(std::slice::from_ref(&site));
        format!(
            "{table}\n`ringwell snippet --site {key} --server URL` prints the script tag for the \
             site's pages\n"
        )
    })
}

impl Settings {
    /// Returns `site` with the given settings applied.
    fn over(&self, mut site: Value) -> anyhow::Result<Value> {
        let lists = [("origins", json!(self.origins)), ("swaps", json!(self.swaps))];
        let lists = lists.into_iter().chain([("params", json!(self.params))]);
        for (name, list) in
            lists.filter(|(_, list)| list.as_array().is_some_and(|it| !it.is_empty()))
        {
            site[name] = list;
        }
        if let Some(consent) = &self.consent {
            site["consent"] = json!(consent);
        }
        if let Some(leases) = self.leases_per_minute {
            site["leases_per_minute"] = json!(leases);
        }
        if let Some(file) = &self.edge_key_file {
            let key = fs::read_to_string(file).with_context(|| shown_file(file))?;
            anyhow::ensure!(!key.trim().is_empty(), "{} is empty", shown_file(file));
            site["edge_key"] = json!(key.trim());
        }
        if self.no_edge_key {
            site["edge_key"] = json!("");
        }
        Ok(site)
    }
}

fn table_of(sites: &[Value]) -> String {
    let list = |value: &Value| {
        let all = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        all.collect::<Vec<_>>().join(" ")
    };
    let swaps = |site: &Value| {
        let all = site["swaps"].as_array().into_iter().flatten();
        let all = all.map(|swap| format!("{}={}", text(swap, "number"), swap["ring_pool"]));
        all.collect::<Vec<_>>().join(" ")
    };
    let row = |site: &Value| {
        let (origins, params) = (list(&site["origins"]), list(&site["params"]));
        let leases = text(site, "leases_per_minute");
        vec![text(site, "key"), origins, swaps(site), params, text(site, "consent"), leases]
    };
    let heading = ["key", "origins", "swaps", "params", "consent", "a minute"];
    table::table(&heading, &sites.iter().map(row).collect::<Vec<_>>())
}
