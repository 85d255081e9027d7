//! The nodes that serve the directory.

use std::process::ExitCode;

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::server::Server;
use super::show::text;
use super::{say, table};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Nodes {
    /// Print the nodes that serve the directory, and the newest version that each one serves
    List,
    /// Forget a node that is gone for good: numbers that leave a pool no longer wait for it
    Forget {
        /// Name of the node, as in the list
        name: String,
    },
}

/// Runs the command.
pub(super) fn run(server: &Server, command: &Nodes, json: bool) -> anyhow::Result<ExitCode> {
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
                format!("numbers no longer wait for node {name}\n")
            })
        }
    }
}
