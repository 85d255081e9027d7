//! `ringwell pools tokens`: manages the tokens in the server's database. The tokens in its
//! configuration are not affected.

use std::process::ExitCode;

use hyper::Method;
use serde_json::{Value, json};

use super::server::Server;
use super::values::text;
use crate::print::{print_note, say};
use crate::table;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Tokens {
    /// Print tokens, without their secrets
    List,
    /// Create a token: the secret is printed on stdout and not shown again
    Create {
        /// Owner of the token, for the audit log
        #[arg(long)]
        name: String,
        /// Permissions of the token. `lookup`: read attributions, and calls with masked callers.
        /// `read`: also read pools. `write`: also change pools. `admin`: also manage tokens and run
        /// `ringwell top`
        #[arg(long, value_parser = ["lookup", "read", "write", "admin"], default_value = "read")]
        role: String,
        /// The only network in which the token is valid; not allowed with the role `lookup`
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
    /// Revoke a token
    Revoke {
        /// Id of the token, as printed by `ringwell pools tokens list`
        id: String,
    },
}

/// Runs the command.
pub(super) fn run(server: &Server, command: &Tokens, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        Tokens::List => {
            let tokens = server.get("/v1/tokens")?;
            let heading = ["id", "name", "role", "network"];
            let row = |token: &Value| heading.map(|name| text(token, name)).to_vec();
            let rows = || tokens.as_array().into_iter().flatten().map(row).collect::<Vec<_>>();
            say(json, &tokens, || table::table(&heading, &rows()))
        }
        Tokens::Create { name, role, network } => {
            let body = json!({ "name": name, "role": role, "network": network });
            let made = server.change(&Method::POST, "/v1/tokens", &body)?;
            if let Some(warning) = made["warning"].as_str() {
                print_note(format_args!("Warning: {warning}"));
            }
            print_note(format_args!(
                "The secret of token {}. It is not shown again:",
                text(&made, "id")
            ));
            say(json, &made, || text(&made, "token") + "\n")
        }
        Tokens::Revoke { id } => {
            let known = server.get("/v1/tokens")?;
            let is_there =
                known.as_array().is_some_and(|all| all.iter().any(|it| it["id"] == **id));
            anyhow::ensure!(is_there, "there is no token {id}");
            server.change(&Method::DELETE, &format!("/v1/tokens/{id}"), &Value::Null)?;
            say(json, &json!({ "revoked": id }), || format!("token {id} is no longer valid\n"))
        }
    }
}
