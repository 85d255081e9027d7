//! `ringwell calls erase`: erases a person's data on a server.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use ringwell_calls::log::ErasedAllocation;
use serde_json::json;

use crate::api_client::{Access, ApiClient};
use crate::print::{counted, print_line, print_note};

pub(crate) const HELP: &str = "\
Removes callers, their STIR verdicts and the visitors' parameters from the call log, its events \
and pending webhooks. Webhooks that were already sent are not affected. Callers that are stored as \
hashes are found too. If other callers may have seen the same visitor's number, their calls lose \
the visitor's parameters, too.

The journal keeps the parameters of allocations for the time set in journal.history_age, and those \
of each number's newest allocation for longer. --journal-list appends the allocations of the \
erased calls to a file, without the parameters. Then stop the server, and erase these allocations' \
parameters in the journal:
  ringwell calls erase --caller +14155551234 --journal-list erase.list
  systemctl stop ringwell
  ringwell journal erase /var/lib/ringwell/data --list erase.list
  systemctl start ringwell
  ringwell calls erase --list erase.list

The last command also erases them in calls that other callers made in the meantime.

The parameters of a visitor who never called are only in the journal:
  ringwell journal erase /var/lib/ringwell/data --parameter gclid=Cj0KCQ

Examples:
  ringwell calls erase --call c_0123
  ringwell calls erase --parameter gclid=Cj0KCQ --journal-list erase.list";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Append the erased calls' allocations to this file; their parameters may still be in the
    /// journal
    #[arg(long, value_name = "FILE")]
    journal_list: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Whom {
    /// A caller: +14155551234, or a SIP address
    #[arg(long, value_name = "NUMBER")]
    caller: Option<String>,
    /// The caller and the visitor of this call
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// A visitor, identified by one of the visitor's parameters
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    parameter: Option<(String, String)>,
    /// The visitors of the allocations in this file, written by --journal-list
    #[arg(long, value_name = "FILE", conflicts_with = "journal_list")]
    list: Option<PathBuf>,
}

/// Reads `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or("write NAME=VALUE")
}

/// Erases the data and prints how much was erased.
///
/// # Errors
/// If the server cannot be reached, the call does not exist, or the journal list cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = ApiClient::new(&args.access)?;
    let body = match &args.whom {
        Whom { caller: Some(caller), .. } => json!({ "caller": caller }),
        Whom { call: Some(call), .. } => json!({ "call": call }),
        Whom { list: Some(path), .. } => json!({ "allocations": read_list(path)? }),
        Whom { parameter, .. } => {
            let (name, value) = parameter.clone().unwrap_or_default();
            json!({ "parameter": { "name": name, "value": value } })
        }
    };
    // The journal list is opened first, because the server cannot list the calls' allocations once
    // the calls are erased.
    let list = args.journal_list.as_deref().map(open).transpose()?;
    let answer = client.post(&args.access.url, "/v1/erasures", &body)?;
    let allocations = answer["allocations"].as_array().cloned().unwrap_or_default();
    let calls = answer["calls"].as_u64().unwrap_or_default();
    if let Some(call) = &args.whom.call {
        ensure!(calls > 0, "there is no call {call}: nothing was erased");
    }
    let calls = counted(calls, "call");
    print_line(format_args!("{calls}, {}", counted(allocations.len() as u64, "allocation")));
    let others = answer["others"].as_u64().unwrap_or_default();
    if others > 0 {
        print_line(format_args!(
            "{} of other callers lost the same visitor's parameters",
            counted(others, "call")
        ));
    }
    if let Some((path, mut file)) = args.journal_list.as_ref().zip(list) {
        let lines = allocations.iter().fold(String::new(), |text, it| format!("{text}{it}\n"));
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_all());
        written.with_context(|| {
            let path = path.display();
            format!(
                "the data was erased, but {path} cannot be written: append these lines to the \
                 list:\n{lines}"
            )
        })?;
    }
    if let (Some((name, value)), true) = (&args.whom.parameter, allocations.is_empty()) {
        print_note(format_args!(
            "No call has this parameter. To erase it in the journal, stop the server and run: \
                ringwell journal erase DATA --parameter {name}={value}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a list that `--journal-list` has written.
///
/// # Errors
/// If the file cannot be read or contains other lines.
pub(crate) fn read_list(path: &Path) -> anyhow::Result<Vec<ErasedAllocation>> {
    let cannot_read = || format!("cannot read {}", path.display());
    let mut listed = Vec::new();
    for line in BufReader::new(File::open(path).with_context(cannot_read)?).lines() {
        let line = line.with_context(cannot_read)?;
        listed.push(serde_json::from_str(&line).with_context(cannot_read)?);
    }
    Ok(listed)
}

/// Opens the list at `path` for appending.
fn open(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot write {}; nothing was erased", path.display()))
}
