//! `ringwell calls remove`: removes calls, such as test calls.

use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::api_client::{Access, ApiClient};

pub(crate) const HELP: &str = "\
Removes calls that have ended, with their timelines, results, events and webhooks, for example \
test calls before a site goes live. To remove only a person's data, use `ringwell calls erase`.

Example: remove all calls to a number
  ringwell calls export --number 8885550100 --format csv | tail -n +2 | cut -d, -f1 \\
    | xargs ringwell calls remove";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The calls, as listed by `ringwell calls export`: c_…
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    access: Access,
}

/// Removes the calls one after the other.
///
/// # Errors
/// If the server cannot be reached, or a call does not exist or has not ended. The calls before it
/// have been removed.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = ApiClient::new(&args.access)?;
    for id in &args.ids {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        ensure!(
            id.bytes().all(is_name),
            "{id:?} is not the id of a call: `ringwell calls export` lists the ids"
        );
        let removed = client.delete(&args.access.url, &format!("/v1/calls/{id}"));
        removed.with_context(|| format!("call {id} was not removed"))?;
    }
    Ok(ExitCode::SUCCESS)
}
