//! `ringwell calls outcomes`: reads call results from a CSV file, and reports them to a server.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::api_client::{Access, ApiClient};
use crate::print::{print_line, print_note};
use crate::progress::Progress;

pub(crate) const HELP: &str = "\
The file's first line names the columns. `type` and `external_id` are required, as is either \
`call` (c_…, as in the export) or both `account` and `provider_call_id`. `value`, `currency` and \
`at` (by default, now) are optional. If the call already has the same result, the line is ignored, \
so the file can be sent again. The same external_id with another type, value or currency is refused: \
to correct a result, remove it first, with `ringwell calls remove ID --result EXTERNAL_ID`.

Exit codes: 0: all results are stored; 1: lines were refused, or the server could not be reached.

Examples:
  ringwell calls outcomes sales.csv --token-file secret
  printf 'call,external_id,type,value\\nc_1,order-7,sale,129.50\\n' |
    ringwell calls outcomes -";

/// The number of lines per request. The server accepts at most 2,000.
const LINES: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The CSV file; - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    access: Access,
}

#[derive(Default)]
struct Sum {
    recorded: u64,
    known: u64,
    refused: u64,
}

/// Sends all lines.
///
/// # Errors
/// If the file cannot be read, or the server refuses it as a whole.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = ApiClient::new(&args.access)?;
    let input: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        let path = args.file.display();
        ensure!(
            !args.file.is_dir(),
            "{path} is a directory: give the CSV file with the results, or - for stdin"
        );
        Box::new(File::open(&args.file).with_context(|| format!("cannot read {path}"))?)
    };
    let mut csv = csv::ReaderBuilder::new().flexible(true).from_reader(input);
    let header = csv.byte_headers()?.clone();
    ensure!(!header.is_empty(), "the file is empty: its first line must name the columns");
    let mut progress = Progress::counting("reported");
    let (mut sum, mut lines) = (Sum::default(), Vec::new());
    for line in csv.byte_records() {
        lines.push(line.context("cannot read the file")?);
        if lines.len() == LINES {
            send(args, &client, &header, &lines, &mut sum)?;
            progress.add(lines.len() as u64);
            lines.clear();
        }
    }
    if !lines.is_empty() {
        send(args, &client, &header, &lines, &mut sum)?;
    }
    drop(progress);
    let Sum { recorded, known, refused } = sum;
    ensure!(
        recorded + known + refused > 0,
        "the file has only one line: the first line names the columns, and each further line is a \
         result"
    );
    print_line(format_args!("recorded: {recorded}, already known: {known}, refused: {refused}"));
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends records from the file. Prints the problems that the server reports, each with its line
/// number in the file.
fn send(
    args: &Args,
    client: &ApiClient,
    header: &csv::ByteRecord,
    lines: &[csv::ByteRecord],
    sum: &mut Sum,
) -> anyhow::Result<()> {
    let mut csv = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    csv.write_byte_record(header)?;
    for line in lines {
        csv.write_byte_record(line)?;
    }
    let body = ("text/csv", Bytes::from(csv.into_inner()?));
    let url = &args.access.url;
    let (status, answer) = client.send(url, Method::POST, "/v1/outcomes", body)?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    if status != StatusCode::OK {
        bail!(
            "{url} answered {status}: {}",
            answer["detail"].as_str().unwrap_or("no reason given")
        );
    }
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    sum.recorded += count("recorded");
    sum.known += count("known");
    for problem in answer["problems"].as_array().into_iter().flatten() {
        sum.refused += 1;
        let record = problem["record"].as_u64().and_then(|at| usize::try_from(at).ok());
        let record = record.and_then(|at| lines.get(at.checked_sub(1)?));
        let line = record.and_then(csv::ByteRecord::position).map_or(0, csv::Position::line);
        print_note(format_args!("line {line}: {}", problem["detail"].as_str().unwrap_or_default()));
    }
    Ok(())
}
