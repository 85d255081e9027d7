//! `ringwell calls remove`: removes calls, such as test calls, or a result of a call.

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use hyper::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api_client::{Access, ApiClient, ApiError};
use crate::print::{counted, print_line, print_note};

pub(crate) const HELP: &str = "\
Removes calls that have ended, such as test calls before a site goes live, with their timelines, \
results, events and webhooks. To remove only a person's data, use `ringwell calls erase`. With \
--result, removes only that result of the call, for example a sale that was refunded.

Example: remove a result, to record it again with another value or not at all
  ringwell calls remove c_1 --result order-7

Example: remove all calls to a number
  ringwell calls export --number 8885550100 | jq -r .id | xargs -r ringwell calls remove --";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The calls, as listed by `ringwell calls export`: c_…
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Removes only the result with this `external_id` from each call
    #[arg(long, value_name = "EXTERNAL_ID", value_parser = NonEmptyStringValueParser::new())]
    result: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// Whether `id` can be a call's id: `c_` and hexadecimal digits. The list of ids may come from a
/// program that mistook a visitor's text for an id.
fn is_call(id: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    id.strip_prefix("c_").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_digit))
}

/// Removes the calls one after the other. Prints why a call was not removed, and goes on.
///
/// # Errors
/// If the server cannot be reached.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = ApiClient::new(&args.access)?;
    let escaped = |text: &String| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let result = args.result.as_ref().map(|id| format!("/outcomes/{}", escaped(id)));
    let mut left = 0_u64;
    for id in &args.ids {
        let reason = if is_call(id) {
            match client.delete(
                &args.access.url,
                &format!("/v1/calls/{id}{}", result.as_deref().unwrap_or_default()),
            ) {
                Ok(_) => continue,
                Err(ApiError::Refused { status: StatusCode::NOT_FOUND, detail, .. })
                    if !detail.is_empty() =>
                {
                    detail
                }
                Err(ApiError::Refused { status: StatusCode::CONFLICT, detail, .. }) => detail,
                Err(error) => return Err(error.into()),
            }
        } else {
            "this is not the id of a call: `ringwell calls export` lists the ids".to_owned()
        };
        print_note(format_args!("{id:?}: {reason}"));
        left += 1;
    }
    let kind = if result.is_some() { "result" } else { "call" };
    let removed = counted(args.ids.len() as u64 - left, kind);
    print_line(format_args!("removed {removed}"));
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
#[test]
fn only_an_id_of_a_call_is_sent_to_the_server() {
    assert!(is_call("c_1") && is_call("c_2fc70123456789abcdef012345"));
    for text in
        ["", "c_", "1", "summer", "--url=http://evil", "c_1/outcomes", "c_1\n", "c_G", "C_1"]
    {
        assert!(!is_call(text), "{text:?}");
    }
}
