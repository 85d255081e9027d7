//! `ringwell calls erase`: has a server forget a person.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use crate::call::{Access, Caller};

pub(crate) const HELP: &str = "\
Removes callers, parameters and verdicts from the call log, its events and what waits for endpoints. What
endpoints have been sent is theirs. Callers are found where they are hashed, too.

The journal has the parameters of allocations until journal.history_age, and those of each number's
newest allocation longer. --journal-list writes which allocations those are, without saying whose; stop
the server and erase them there:
  ringwell calls erase --caller +14155551234 --journal-list erase.list
  systemctl stop ringwell
  ringwell journal erase /var/lib/ringwell --list erase.list
  systemctl start ringwell

Examples:
  ringwell calls erase --call c_0123
  ringwell calls erase --parameter gclid=Cj0KCQ --journal-list erase.list";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Write here which allocations have their parameters in the journal
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
    /// Caller and visitor of one call
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// A visitor, by a parameter of the page
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    parameter: Option<(String, String)>,
}

/// Reads `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or("write NAME=VALUE")
}

/// Erases, and says how much.
///
/// # Errors
/// If the server cannot be asked, or the list not be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let caller = Caller::new(&args.access)?;
    let body = match &args.whom {
        Whom { caller: Some(caller), .. } => json!({ "caller": caller }),
        Whom { call: Some(call), .. } => json!({ "call": call }),
        Whom { parameter, .. } => {
            let (name, value) = parameter.clone().unwrap_or_default();
            json!({ "parameter": { "name": name, "value": value } })
        }
    };
    let answer = caller.post(&args.access.url, "/v1/erasures", &body)?;
    let allocations = answer["allocations"].as_array().cloned().unwrap_or_default();
    println!("{} calls, {} allocations", answer["calls"], allocations.len());
    if let Some(path) = &args.journal_list {
        let lines = allocations.iter().fold(String::new(), |text, it| format!("{text}{it}\n"));
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(lines.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
