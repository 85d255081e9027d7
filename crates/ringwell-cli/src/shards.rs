//! `ringwell shards`: shows the owners of buckets, and moves buckets between running nodes.
//!
//! Reads the owners from one node, and requests each move from the bucket's owner. Stores no state:
//! the nodes' answers show the remaining work, so each command can be run again. Source:
//! docs/spec/cluster.md, "Moving buckets".

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::{self, IsTerminal, Write as _};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail, ensure};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use ringwell_directory::BUCKETS;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_client::{Access, ApiClient, ApiError, HEALTH_MAX, Url};
use crate::print::{counted, print, print_note};
use crate::table::WIDTH_MAX;

pub(crate) const HELP: &str = "\
Pools are divided by id into 1,024 buckets; each bucket belongs to one shard. Moving a bucket with \
its lockouts takes a few milliseconds; during the move, requests for its pools get overflow \
numbers. All commands can be run again after an interruption. The management token is read from \
--token-file or RINGWELL_TOKEN; all nodes must accept it.

Examples:
  ringwell shards list --token-file secret
  ringwell shards list --url unix:/run/ringwell/ringwell.sock --json
  ringwell shards list --toml >owners.toml      # replaces [[buckets]] in cluster.toml
  ringwell shards move 0-15,20 --to 3 --url http://10.0.0.1:8080
  ringwell shards abort b --url http://10.0.0.1:8080
  ringwell shards drain b --url http://10.0.0.1:8080";

/// The number of buckets that move at once when a node is drained. Rows of their pools get overflow
/// numbers during the move.
const PIECE: usize = 32;

/// The length of the longest node state name.
const STATE_WIDTH: usize = 9;

const MOVES: &str = "/v1/shards/moves";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the shards with their nodes, health, addresses and buckets
    List {
        /// Print JSON: the owners from `GET /v1/shards`, and each node's health
        #[arg(long)]
        json: bool,
        /// Print the owners as [[buckets]] entries for a cluster file
        #[arg(long, conflicts_with = "json")]
        toml: bool,
        #[command(flatten)]
        access: Access,
    },
    /// Move buckets to a shard, with their lockouts
    Move {
        /// Buckets, as in 0-15,20
        #[arg(value_parser = parse_buckets)]
        buckets: Buckets,
        /// The shard that receives the buckets
        #[arg(long, value_name = "SHARD")]
        to: u16,
        #[command(flatten)]
        access: Access,
    },
    /// Return buckets to the node that gave them up, if their move does not finish
    Abort {
        /// Name of the node that gave up the buckets, as in the cluster file
        node: String,
        #[command(flatten)]
        access: Access,
    },
    /// Move all of a node's buckets to the other nodes' shards, and distribute them evenly
    Drain {
        /// The node's name in the cluster file
        node: String,
        #[command(flatten)]
        access: Access,
    },
}

/// A set of bucket numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Buckets(BTreeSet<u16>);

fn parse_buckets(text: &str) -> Result<Buckets, String> {
    let wrong =
        || format!("must be bucket numbers and ranges from 0 to {}, as in 0-15,20", BUCKETS - 1);
    let mut buckets = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let read = |text: &str| text.trim().parse::<u16>().ok().filter(|number| *number < BUCKETS);
        let (first, last) = read(first).zip(read(last)).ok_or_else(wrong)?;
        if first > last {
            return Err(wrong());
        }
        buckets.extend(first..=last);
    }
    Ok(Buckets(buckets))
}

/// Formats buckets. Consecutive buckets become a range.
fn ranges(buckets: &BTreeSet<u16>) -> String {
    let text = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs(buckets).iter().map(text).collect::<Vec<_>>().join(",")
}

/// Returns the first and last bucket of each run of consecutive buckets.
fn runs(buckets: &BTreeSet<u16>) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for bucket in buckets {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *bucket => *last = *bucket,
            _ => runs.push((*bucket, *bucket)),
        }
    }
    runs
}

/// A node's report on the shards of its cluster.
struct Overview {
    owners: Vec<Owner>,
    json: Value,
}

#[derive(Deserialize)]
struct ListedOwner {
    shard: u16,
    node: String,
    listen: Vec<String>,
    buckets: String,
}

/// A shard, with its node and the buckets that it owns.
struct Owner {
    shard: u16,
    node: String,
    listen: Vec<String>,
    buckets: BTreeSet<u16>,
}

impl Overview {
    fn ask(client: &ApiClient, url: &Url) -> anyhow::Result<Self> {
        let mut listed = client.get(url, "/v1/shards")?;
        let json = json!({
            "node": listed["node"], "map_version": listed["map_version"], "moves": listed["moves"],
            "owners": listed["owners"].take(),
        });
        let owners: Vec<ListedOwner> = serde_json::from_value(json["owners"].clone())
            .with_context(|| {
                format!(
                    "{url} does not list the owners of the buckets: the server \
                may run an older release"
                )
            })?;
        ensure!(
            !owners.is_empty(),
            "{url} is not a node of a cluster: it owns all shards. `ringwell top --url {url}` \
             shows which ring pools overflow, and `ringwell pools state ID` shows one ring pool"
        );
        let owner = |listed: ListedOwner| {
            let buckets = match listed.buckets.as_str() {
                "" => BTreeSet::new(),
                text => parse_buckets(text).map_err(anyhow::Error::msg)?.0,
            };
            let ListedOwner { shard, node, listen, .. } = listed;
            Ok(Owner { shard, node, listen, buckets })
        };
        let mut owners: Vec<_> = owners.into_iter().map(owner).collect::<anyhow::Result<_>>()?;
        owners.sort_by_key(|owner| owner.shard);
        Ok(Self { owners, json })
    }

    /// Returns each node's health, by the node's name. The list of owners does not show which nodes
    /// are healthy: it comes from the map, which still contains dead nodes.
    fn states(&self, client: &ApiClient) -> BTreeMap<&str, &'static str> {
        let mut states = BTreeMap::new();
        for owner in &self.owners {
            states.entry(owner.node.as_str()).or_insert_with(|| state(client, &owner.listen));
        }
        states
    }

    fn table(&self, states: &BTreeMap<&str, &'static str>) -> String {
        let mut text = String::new();
        let places = |owner: &Owner| owner.listen.join(" ");
        let wide = |width: fn(&Owner) -> usize| self.owners.iter().map(width).max();
        let [node, place] = [
            (wide(|owner| owner.node.len()), "node"),
            (wide(|owner| owner.listen.join(" ").len()), "listen"),
        ]
        .map(|(widest, title)| widest.unwrap_or_default().max(title.len()).min(WIDTH_MAX));
        let _ = writeln!(
            text,
            "shard  {:node$}  {:STATE_WIDTH$}  {:place$}  count  buckets",
            "node", "state", "listen"
        );
        for owner in &self.owners {
            let (count, buckets) = (owner.buckets.len(), ranges(&owner.buckets));
            let line = format!(
                "{:5}  {:node$}  {:STATE_WIDTH$}  {:place$}  {count:5}  {buckets}",
                owner.shard,
                owner.node,
                states.get(owner.node.as_str()).unwrap_or(&"unknown"),
                places(owner)
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    fn toml(&self) -> String {
        let mut text = String::new();
        for owner in &self.owners {
            for (first, last) in runs(&owner.buckets) {
                let shard = owner.shard;
                let _ = writeln!(
                    text,
                    "[[buckets]]\nfirst = {first}\nlast = {last}\nshard = {shard}\n"
                );
            }
        }
        text
    }

    fn of_node(&self, node: &str) -> BTreeSet<u16> {
        let own = self.owners.iter().filter(|owner| owner.node == node);
        own.flat_map(|owner| owner.buckets.iter().copied()).collect()
    }
}

/// Runs the command.
///
/// # Errors
/// If a server cannot be reached, or refuses the request. If the command moves buckets, the error
/// lists the ones that the server has not released.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List { json, toml, access } => {
            let client = ApiClient::new(access)?;
            let overview = Overview::ask(&client, &access.url)?;
            let text = match (json, toml) {
                (true, _) => {
                    let mut json = overview.json.clone();
                    json["states"] = json!(overview.states(&ApiClient::without_token(HEALTH_MAX)?));
                    serde_json::to_string_pretty(&json)? + "\n"
                }
                (false, true) => overview.toml(),
                (false, false) => {
                    overview.table(&overview.states(&ApiClient::without_token(HEALTH_MAX)?))
                }
            };
            print(text.as_bytes())
        }
        Command::Move { buckets, to, access } => {
            let client = ApiClient::new(access)?;
            let overview = Overview::ask(&client, &access.url)?;
            move_to(&client, &overview, &buckets.0, *to)
        }
        Command::Abort { node, access } => abort(&ApiClient::new(access)?, &access.url, node),
        Command::Drain { node, access } => drain(&ApiClient::new(access)?, &access.url, node),
    }
}

fn move_to(
    client: &ApiClient,
    overview: &Overview,
    buckets: &BTreeSet<u16>,
    to: u16,
) -> anyhow::Result<ExitCode> {
    let shards = overview.owners.iter().map(|owner| owner.shard);
    ensure!(shards.clone().any(|shard| shard == to), "the cluster has no shard {to}");
    let mut by_node: BTreeMap<&str, (&Owner, BTreeSet<u16>)> = BTreeMap::new();
    for owner in overview.owners.iter().filter(|owner| owner.shard != to) {
        let leaving = owner.buckets.intersection(buckets).copied();
        let (_, all) = by_node.entry(&owner.node).or_insert_with(|| (owner, BTreeSet::new()));
        all.extend(leaving);
    }
    by_node.retain(|_, (_, leaving)| !leaving.is_empty());
    let mut moved = 0;
    for (node, (owner, leaving)) in &by_node {
        let moving = give(client, &owner.listen, leaving, to);
        moving.with_context(|| match moved {
            0 => format!("node {node} did not give up its buckets {}", ranges(leaving)),
            _ => format!(
                "{}, but buckets {} of node {node} have not",
                have_moved(moved),
                ranges(leaving)
            ),
        })?;
        moved += leaving.len();
    }
    let text = match moved {
        0 => format!("shard {to} owns these buckets already\n"),
        _ => format!("{} to shard {to}\n", have_moved(moved)),
    };
    print(text.as_bytes())
}

/// Formats a count of moved buckets, such as `1 bucket has moved`.
fn have_moved(buckets: usize) -> String {
    let verb = if buckets == 1 { "has" } else { "have" };
    format!("{} {verb} moved", counted(buckets as u64, "bucket"))
}

/// Makes the node at the addresses `listen` give buckets to the shard `to`.
fn give(
    client: &ApiClient,
    listen: &[String],
    buckets: &BTreeSet<u16>,
    to: u16,
) -> anyhow::Result<Value> {
    let body = json!({ "buckets": ranges(buckets), "to": to });
    at_one_of(listen, |url| client.post(url, MOVES, &body))
}

/// Sends a request to a node. Uses its first address that accepts connections.
fn at_one_of(
    listen: &[String],
    ask: impl Fn(&Url) -> Result<Value, ApiError>,
) -> anyhow::Result<Value> {
    let mut trouble =
        anyhow!("the cluster file contains no client address (`listen`) for the node");
    for place in listen {
        let url: Url = place.parse().map_err(anyhow::Error::msg)?;
        match ask(&url) {
            Ok(done) => return Ok(done),
            Err(ApiError::NotThere { url, reason }) => {
                trouble = ApiError::NotThere { url, reason }.into();
            }
            Err(other) => return Err(other.into()),
        }
    }
    Err(trouble)
}

fn abort(client: &ApiClient, url: &Url, node: &str) -> anyhow::Result<ExitCode> {
    let overview = Overview::ask(client, url)?;
    let owner = overview.owners.iter().find(|owner| owner.node == node);
    let owner = owner.with_context(|| format!("the cluster has no node {node}"))?;
    let back = at_one_of(&owner.listen, |url| client.delete(url, MOVES))?;
    let buckets = counted(back["buckets"].as_u64().unwrap_or_default(), "bucket");
    print(format!("node {node} owns {buckets} again\n").as_bytes())
}

/// Returns a node's state according to its answer to the health check for load balancers.
fn state(client: &ApiClient, listen: &[String]) -> &'static str {
    for place in listen {
        let Ok(url) = place.parse::<Url>() else { continue };
        match client.send(&url, Method::GET, "/readyz", ("application/json", Bytes::new())) {
            Ok((StatusCode::OK, _)) => return "ready",
            Ok(_) => return "not ready",
            Err(ApiError::Lost { .. }) => return "hangs",
            Err(_) => {}
        }
    }
    "no answer"
}

fn drain(client: &ApiClient, url: &Url, node: &str) -> anyhow::Result<ExitCode> {
    let overview = Overview::ask(client, url)?;
    let names: BTreeSet<&str> = overview.owners.iter().map(|owner| owner.node.as_str()).collect();
    let known = || names.iter().copied().collect::<Vec<_>>().join(", ");
    ensure!(names.contains(node), "the cluster has no node {node}; its nodes are {}", known());
    ensure!(
        names.len() > 1,
        "node {node} is the cluster's only node: no other node can take its buckets"
    );
    let listen = overview.owners.iter().find(|owner| owner.node == node);
    let listen = listen.map(|owner| owner.listen.clone()).unwrap_or_default();
    let mut left = overview.of_node(node);
    let all = left.len();
    let shows = io::stderr().is_terminal();
    for (to, piece) in shares(&overview, node) {
        if let Err(error) = give(client, &listen, &piece, to) {
            if shows {
                print_note("");
            }
            // Only the node can report whether it has given up these buckets.
            if let Ok(now) = Overview::ask(client, url) {
                left = now.of_node(node);
            }
            let left = if left.is_empty() {
                "it has given up all its buckets, but some are still moving".to_owned()
            } else {
                format!("it still owns {}: {}", counted(left.len() as u64, "bucket"), ranges(&left))
            };
            if matches!(error.downcast_ref(), Some(ApiError::NotThere { .. })) {
                bail!(
                    "node {node} does not answer, and no other node has the lockouts of its \
                        buckets ({left}). Start the node, then drain it. If its machine is lost, \
                        assign its buckets to other nodes in a new cluster file: see \"Changing \
                        the owners by the cluster file\" in docs/operations.md. {error:#}"
                );
            }
            bail!("node {node} is not drained ({left}); run the command again. {error:#}");
        }
        left.retain(|bucket| !piece.contains(bucket));
        if shows {
            let _ = write!(io::stderr(), "\r{} of {all} buckets have moved ", all - left.len());
        }
    }
    if shows && all > 0 {
        print_note("");
    }
    let text = format!(
        "{}; node {node} owns no buckets now. The node is still needed for look-ups of numbers \
         that it allocated\n",
        have_moved(all)
    );
    print(text.as_bytes())
}

/// Plans how to distribute the buckets of `node` over the other nodes' shards. Each of these shards
/// then owns about the same number of buckets.
fn shares(overview: &Overview, node: &str) -> Vec<(u16, BTreeSet<u16>)> {
    let others = overview.owners.iter().filter(|owner| owner.node != node);
    let mut owned: Vec<(usize, u16)> =
        others.map(|owner| (owner.buckets.len(), owner.shard)).collect();
    let mut shares: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
    for bucket in overview.of_node(node) {
        let Some((count, shard)) = owned.iter_mut().min() else { break };
        *count += 1;
        shares.entry(*shard).or_default().push(bucket);
    }
    let pieces = |(shard, buckets): (u16, Vec<u16>)| {
        let sets = buckets.chunks(PIECE).map(|piece| piece.iter().copied().collect());
        sets.map(|set| (shard, set)).collect::<Vec<_>>()
    };
    shares.into_iter().flat_map(pieces).collect()
}

#[cfg(test)]
mod tests;
