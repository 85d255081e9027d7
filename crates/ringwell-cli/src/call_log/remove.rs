//! `ringwell calls remove`: removes calls, such as test calls.

use std::process::ExitCode;

use hyper::StatusCode;

use crate::api_client::{Access, ApiClient, ApiError};
use crate::print::{counted, print_line, print_note};

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

/// Removes the calls one after the other. Prints why a call was not removed, and goes on.
///
/// # Errors
/// If the server cannot be reached.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = ApiClient::new(&args.access)?;
    let mut left = 0_u64;
    for id in &args.ids {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let reason = if id.is_empty() || !id.bytes().all(is_name) {
            "this is not the id of a call: `ringwell calls export` lists the ids".to_owned()
        } else {
            match client.delete(&args.access.url, &format!("/v1/calls/{id}")) {
                Ok(_) => continue,
                Err(ApiError::Refused { status: StatusCode::NOT_FOUND, detail, .. })
                    if !detail.is_empty() =>
                {
                    detail
                }
                Err(ApiError::Refused { status: StatusCode::CONFLICT, detail, .. }) => detail,
                Err(error) => return Err(error.into()),
            }
        };
        print_note(format_args!("{id:?}: {reason}"));
        left += 1;
    }
    let removed = counted(args.ids.len() as u64 - left, "call");
    print_line(format_args!("removed {removed}"));
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
