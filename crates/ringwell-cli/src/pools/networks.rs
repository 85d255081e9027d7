//! Networks and their limits on numbers, and the nodes that serve the directory.

use std::process::ExitCode;

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::server::Server;
use super::values::text;
use crate::print::say;
use crate::table;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Networks {
    /// Print all networks, each with the count of numbers in its pools and the limit on this count
    List,
    /// Limit how many numbers a network's pools may have in total
    Limit {
        /// Name of the network
        network: String,
        /// Limit for the network; without it, the configuration's limit applies
        #[arg(long, value_name = "N")]
        numbers: Option<u64>,
    },
}

/// Runs the commands for networks.
pub(super) fn run(server: &Server, command: &Networks, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        Networks::List => {
            let networks = Value::Array(server.pages("/v1/networks", "id")?);
            say(json, &networks, || {
                let rows = networks.as_array().map_or(&[][..], Vec::as_slice);
                table_of(rows)
            })
        }
        Networks::Limit { network, numbers } => {
            let id = utf8_percent_encode(network, NON_ALPHANUMERIC);
            let body = json!({ "numbers_max": numbers });
            let answer = server.change(&Method::PUT, &format!("/v1/networks/{id}"), &body)?;
            say(json, &answer, || match numbers {
                Some(numbers) => format!(
                    "the pools of network {network} may now contain at most {numbers} numbers\n"
                ),
                None => format!("the configuration's limit now applies to network {network}\n"),
            })
        }
    }
}

fn table_of(networks: &[Value]) -> String {
    let row = |network: &Value| {
        let most = match network["numbers_max"].as_u64() {
            None => "any".to_owned(),
            Some(most) if network["is_own"] == true => format!("{most}, its own"),
            Some(most) => most.to_string(),
        };
        vec![text(network, "id"), text(network, "numbers"), most]
    };
    table::table(&["network", "numbers", "at most"], &networks.iter().map(row).collect::<Vec<_>>())
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Nodes {
    /// Print the nodes that serve the directory, and the newest version that each one serves
    List,
    /// Forget a node that is gone for good, so that numbers removed from a pool no longer wait for
    /// this node
    Forget {
        /// Name of the node, as listed
        name: String,
    },
}

/// Runs the commands for nodes.
pub(super) fn run_for_nodes(
    server: &Server,
    command: &Nodes,
    json: bool,
) -> anyhow::Result<ExitCode> {
    match command {
        Nodes::List => {
            let nodes = server.get("/v1/nodes")?;
            let row = |node: &Value| vec![text(node, "name"), text(node, "version")];
            let rows = || nodes.as_array().into_iter().flatten().map(row).collect::<Vec<_>>();
            say(json, &nodes, || table::table(&["node", "version"], &rows()))
        }
        Nodes::Forget { name } => {
            let id = utf8_percent_encode(name, NON_ALPHANUMERIC);
            server.change(&Method::DELETE, &format!("/v1/nodes/{id}"), &Value::Null)?;
            say(json, &json!({ "forgotten": name }), || {
                format!(
                    "node {name} is forgotten: numbers removed from a pool no longer wait for this \
                     node\n"
                )
            })
        }
    }
}
