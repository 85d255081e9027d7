//! `ringwell ui`: prints a link that opens a running server's dashboard, so that the user does not
//! have to enter the token.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::api_client::{Access, ApiClient, ApiError, Url};
use crate::print::print;

pub(crate) const HELP: &str = "\
The link works once, within five minutes; the session lasts twelve hours, or until the token \
becomes invalid. A server has a dashboard if `directory.database` or `management.dashboard` is \
set. The management token is read from --token-file or RINGWELL_TOKEN.

Examples:
  ringwell ui --token-file secret
  ringwell ui --token-file secret --url http://127.0.0.1:9081";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The management address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    url: Url,
    /// The file with the management token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Prints the link.
///
/// # Errors
/// If the server cannot be reached, or refuses the request.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { url, token_file } = args;
    let client = ApiClient::new(&Access { url: url.clone(), token_file: token_file.clone() })?;
    let nothing = ("application/json", Bytes::new());
    let sent = client.send(url, Method::POST, "/v1/ui/links", nothing);
    let (status, body) = sent.map_err(|error| match error {
        ApiError::NotThere { .. } => {
            anyhow!(
                "{error}. If the ring pools are in a file, the dashboard needs \
                 management.dashboard = true"
            )
        }
        other => other.into(),
    })?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = answer["path"].as_str().filter(|_| status == StatusCode::CREATED);
    let Some(path) = path else {
        if status == StatusCode::NOT_FOUND {
            bail!(
                "{url} has no dashboard: set management.dashboard = true in the configuration, and \
                 set --url to the server's management.address"
            );
        }
        if status == StatusCode::UNAUTHORIZED {
            let (url, has_token) = (url.clone(), client.has_token());
            return Err(ApiError::Refused { url, status, detail: String::new(), has_token }.into());
        }
        let reason = answer["detail"].as_str().unwrap_or("no reason given");
        return Err(anyhow!("{url} refuses: {reason}"));
    };
    print(format!("{url}{path}\n").as_bytes())
}
