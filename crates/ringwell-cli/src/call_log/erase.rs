//! `ringwell calls erase`: erases a person's data on a server.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use hyper::StatusCode;
use ringwell_calls::log::ErasedAllocation;
use serde_json::{Value, json};

use crate::api_client::{Access, ApiClient, ApiError};
use crate::print::{counted, print_line, print_note};

pub(crate) const HELP: &str = "\
Removes callers, their STIR verdicts and the visitors' parameters from the call log, its events \
and pending webhooks. Webhooks that were already sent are not affected. Callers that are stored as \
hashes are found too. If other callers may have seen the same visitor's number, their calls lose \
the visitor's parameters, too. --call erases the caller only from this call: to erase all of the \
caller's calls, use --caller.

The journal keeps the parameters of allocations for the time set in journal.history_age, and those \
of each number's newest allocation for longer. --journal-list appends the calls' allocations, \
without the parameters, to a file before anything is erased. If the command is interrupted, or if \
the server's answer is lost, run it again with the same file. Then stop the server, and \
erase these allocations' parameters in the journal:
  ringwell calls erase --caller +14155551234 --journal-list erase.list
  systemctl stop ringwell
  ringwell journal erase /var/lib/ringwell/data --list erase.list
  systemctl start ringwell
  ringwell calls erase --list erase.list

The last command also erases these parameters in calls that other callers made in the meantime.

The parameters of a visitor who never called are only in the journal:
  ringwell journal erase /var/lib/ringwell/data --parameter gclid=Cj0KCQ

Examples:
  ringwell calls erase --call c_0123
  ringwell calls erase --parameter gclid=Cj0KCQ --journal-list erase.list";

/// Erasing many thousands of calls takes minutes.
const ANSWER_MAX: Duration = Duration::from_hours(1);
/// The maximum count of allocations in a request. A request is limited to 1 MiB.
const PART_MAX: usize = 4_000;
/// The maximum number of attempts if the person keeps calling while the allocations are listed.
const LISTINGS_MAX: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Append the calls' allocations to this file before the calls are erased; their parameters may
    /// still be in the journal
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
    /// This call's caller and visitor
    #[arg(long, value_name = "ID")]
    call: Option<String>,
    /// A visitor, identified by one of the visitor's parameters
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    parameter: Option<(String, String)>,
    /// The visitors whose allocations --journal-list has written to this file
    #[arg(long, value_name = "FILE", conflicts_with = "journal_list")]
    list: Option<PathBuf>,
}

/// Reads `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or("write NAME=VALUE")
}

/// The counts that an erasure prints.
#[derive(Default)]
struct Counts {
    calls: u64,
    others: u64,
    allocations: u64,
}

impl Counts {
    fn add(&mut self, answer: &Value) {
        let count = |name: &str| answer[name].as_u64().unwrap_or_default();
        self.calls += count("calls");
        self.others += count("others");
        self.allocations += answer["allocations"].as_array().map_or(0, Vec::len) as u64;
    }
}

/// Erases the data and prints how much was erased.
///
/// # Errors
/// If the server cannot be reached, the call does not exist, or the journal list cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = ApiClient::new(&args.access)?.waiting(ANSWER_MAX);
    let mut counts = Counts::default();
    match &args.whom {
        Whom { caller: Some(caller), .. } => {
            erase(&client, args, &json!({ "caller": caller }), &mut counts)?;
        }
        Whom { call: Some(call), .. } => {
            erase(&client, args, &json!({ "call": call }), &mut counts)?;
            ensure!(counts.calls > 0, "there is no call {call}: nothing was erased");
        }
        Whom { list: Some(path), .. } => {
            for part in parts(read_list(path)?) {
                erase(&client, args, &json!({ "allocations": part }), &mut counts)?;
            }
        }
        Whom { parameter, .. } => {
            let (name, value) = parameter.clone().unwrap_or_default();
            let whom = json!({ "parameter": { "name": name, "value": value } });
            erase(&client, args, &whom, &mut counts)?;
        }
    }
    let Counts { calls, others, allocations } = counts;
    print_line(format_args!("{}, {}", counted(calls, "call"), counted(allocations, "allocation")));
    if others > 0 {
        print_line(format_args!(
            "{} of other callers lost the same visitor's parameters",
            counted(others, "call")
        ));
    }
    if let (Some((name, value)), 0) = (&args.whom.parameter, allocations) {
        print_note(format_args!(
            "No call has this parameter. To erase it in the journal, stop the server and run: \
                ringwell journal erase DATA --parameter {name}={value}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Erases the data of `whom`. The server cannot list the calls' allocations once the calls are
/// erased, so the journal list is written first.
///
/// # Errors
/// If the server cannot be reached, or the journal list cannot be written.
fn erase(client: &ApiClient, args: &Args, whom: &Value, counts: &mut Counts) -> anyhow::Result<()> {
    let url = &args.access.url;
    let post = |more: Option<(&str, &Value)>| {
        let mut body = whom.clone();
        if let Some((name, value)) = more {
            body[name] = value.clone();
        }
        client.post(url, "/v1/erasures", &body)
    };
    let Some(path) = &args.journal_list else {
        counts.add(&post(None).map_err(repeatable)?);
        return Ok(());
    };
    let mut list = JournalList::open(path)?;
    for _ in 0..LISTINGS_MAX {
        let found = post(Some(("dry_run", &true.into()))).map_err(|error| match error {
            // This request erases nothing.
            ApiError::Lost { url, reason, .. } => ApiError::Lost { url, reason, is_read: true },
            error => error,
        })?;
        list.add(found["allocations"].as_array().map(Vec::as_slice).unwrap_or_default())?;
        match post(Some(("list", &found["list"]))) {
            // The person has called in the meantime.
            Err(ApiError::Refused { status: StatusCode::CONFLICT, .. }) => {}
            answer => {
                counts.add(&answer.map_err(repeatable)?);
                return Ok(());
            }
        }
    }
    bail!(
        "nothing was erased, because calls that belong to this person keep arriving: run this \
         command again"
    )
}

/// Says what to do if the answer to an erasure is lost.
fn repeatable(error: ApiError) -> anyhow::Error {
    match error {
        ApiError::Lost { url, reason, .. } => anyhow!(
            "no usable answer from {url}: {reason}. The data may be erased, or may still be erased. \
             Run this command again: it erases what is left, and the list given by --journal-list \
             stays complete"
        ),
        error => error.into(),
    }
}

/// Divides a list into parts that each fit into one request. Allocations of the same number stay
/// together, so that each call is counted once.
fn parts(mut listed: Vec<ErasedAllocation>) -> Vec<Vec<ErasedAllocation>> {
    listed.sort_unstable();
    listed.dedup();
    let mut parts: Vec<Vec<ErasedAllocation>> = vec![Vec::new()];
    for of_number in listed.chunk_by(|one, other| one.number == other.number) {
        for some in of_number.chunks(PART_MAX) {
            match parts.last_mut() {
                Some(last) if last.len() + some.len() <= PART_MAX => last.extend_from_slice(some),
                _ => parts.push(some.to_vec()),
            }
        }
    }
    parts
}

/// Reads a list that `--journal-list` has written. Ignores blank lines.
///
/// # Errors
/// If the file cannot be read or contains other lines.
pub(crate) fn read_list(path: &Path) -> anyhow::Result<Vec<ErasedAllocation>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let text = text?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(place, line)| {
        allocation(line).ok_or_else(|| {
            anyhow!(
                "line {} of {} is not an allocation as --journal-list writes it: correct this \
                 line, or remove it",
                place + 1,
                path.display()
            )
        })
    };
    lines.map(read).collect()
}

/// Parses a line of a list.
fn allocation(line: &str) -> Option<ErasedAllocation> {
    serde_json::from_str(line).ok().filter(ErasedAllocation::is_valid)
}

/// The file for `--journal-list`.
struct JournalList {
    path: PathBuf,
    file: File,
    /// The lines in the file.
    lines: BTreeSet<String>,
    /// Whether the file ends in the middle of a line.
    is_open: bool,
}

impl JournalList {
    /// Opens the list at `path` for appending.
    ///
    /// # Errors
    /// If the file cannot be read and written, or a crash has left an incomplete line.
    fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot_write = || format!("cannot write {}; nothing was erased", path.display());
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.with_context(cannot_write)?;
        let is_file = file.metadata().with_context(cannot_write)?.is_file();
        let text = if is_file { fs::read(path).with_context(cannot_write)? } else { Vec::new() };
        let is_open = text.last().is_some_and(|byte| *byte != b'\n');
        let text = String::from_utf8_lossy(&text);
        ensure!(
            !is_open || text.lines().last().is_some_and(|line| allocation(line).is_some()),
            "nothing was erased: the last line of {} is incomplete, as after a crash: remove this \
             line, and run the command again",
            path.display()
        );
        let lines = text.lines().map(str::to_owned).collect();
        Ok(Self { path: path.to_owned(), file, lines, is_open })
    }

    /// Adds the allocations that are not in the list yet. They are on the disk when this returns.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn add(&mut self, allocations: &[Value]) -> anyhow::Result<()> {
        // An editor may have removed the last line break.
        let mut text = if self.is_open { "\n".to_owned() } else { String::new() };
        for line in allocations.iter().map(Value::to_string) {
            if self.lines.insert(line.clone()) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        let length = self.file.metadata().map(|file| file.len());
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        if written.is_err()
            && let Ok(length) = length
        {
            let _ = self.file.set_len(length);
        }
        written
            .with_context(|| format!("cannot write {}; nothing was erased", self.path.display()))?;
        self.is_open = false;
        Ok(())
    }
}
