//! `ringwell calls export`: reads the call log page by page, and writes each page as it arrives.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ringwell_calls::number::asked;
use ringwell_config::parse_duration;
use serde_json::Value;

use super::layout::{self, Conversion, Upload};
use crate::api_client::{Access, ApiClient};
use crate::print::print_note;
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub(crate) const HELP: &str = "\
The newest calls come first. Formats: jsonl, one call per line in the format of GET /v1/calls; \
csv; parquet, the columns of csv with their types, if the program was built with that feature; and \
files for uploads to advertising systems: google-clicks, google-calls, microsoft, meta. Uploads \
contain the recorded results (`ringwell calls outcomes`); with --conversion NAME, each answered \
call is exported as a conversion with that name. Conversions that the advertising system could not \
match are left out: those without its click id, or for google-calls without the caller's number. \
Their count is printed at the end.

In csv, fields that a spreadsheet would read as formulas get a leading ', except for telephone \
numbers. Control characters, such as line breaks in a visitor's parameters, are replaced by \
spaces. With --raw, fields are not changed. If an export is interrupted, the command prints the \
last position: pass this position to --after to continue the export. With --output, the continued \
export appends to the file.

Examples:
  ringwell calls export --since 24h >calls.jsonl
  ringwell calls export --since 2026-11-01T00:00:00Z --pool 16 \\
    --format csv --output calls.csv
  ringwell calls export --since 24h --format google-clicks \\
    --conversion 'Phone call' >upload.csv";

/// The number of calls per request: the server's maximum.
const PAGE: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Jsonl,
    Csv,
    Parquet,
    GoogleClicks,
    GoogleCalls,
    Microsoft,
    Meta,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Format of the output
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: Format,
    /// Only calls that began (in upload formats: results dated) at this time or later:
    /// 2026-11-21T06:30:00Z, or an age such as 24h or 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only calls that began (in upload formats: results dated) before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    /// In upload formats: only results that were recorded at this time or later, even if they are
    /// dated earlier
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "conversion")]
    recorded_since: Option<Timestamp>,
    /// In upload formats: only results that were recorded before this time. Later exports of the
    /// same period contain the same results, if this time has passed
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "conversion")]
    recorded_until: Option<Timestamp>,
    /// Only calls to numbers in this ring pool; may be repeated
    #[arg(long, value_name = "ID")]
    pool: Vec<u64>,
    /// Only calls to this number: ten digits, or + with a country code
    #[arg(long, value_name = "NUMBER")]
    number: Option<String>,
    /// Only calls that ended this way: `answered`, `busy`, `no_answer`, `rejected`,
    /// `caller_gave_up`, `failed`
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only calls with this attribution result: allocated, overflow, none, unknown, pending
    #[arg(long, value_name = "HOW")]
    attributed: Option<String>,
    /// Only calls that were not blocked and have a robocall score below this value
    #[arg(long, value_name = "SCORE")]
    robocall_below: Option<u8>,
    /// Only calls that were answered and lasted at least this long: 60s or 2m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    talk_min: Option<Duration>,
    /// Continue after this position
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// For uploads: export each answered call as a conversion with this name
    #[arg(long, value_name = "NAME")]
    conversion: Option<String>,
    /// For csv: do not escape formulas or replace control characters
    #[arg(long)]
    raw: bool,
    /// The output file; the default is stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

impl Args {
    /// Whether the lines are recorded results, not calls.
    fn lists_results(&self) -> bool {
        self.format.upload().is_some() && self.conversion.is_none()
    }

    /// Whether the filter flags select `call`.
    fn fits(&self, call: &Value) -> bool {
        let Self { pool, number, outcome, attributed, robocall_below, talk_min, .. } = self;
        let is = |wanted: &Option<String>, found: &Value| {
            wanted.as_deref().is_none_or(|wanted| found.as_str() == Some(wanted))
        };
        let is_number = |wanted: &String| {
            let found = call["to"].as_str().unwrap_or_default();
            found == wanted || asked(wanted).is_some_and(|wanted| found == wanted)
        };
        let score = call["robocall"]["score"].as_u64().unwrap_or(0);
        let talk = call["talk_seconds"].as_u64().filter(|_| call["outcome"] == "answered");
        let talk = talk.map(Duration::from_secs);
        (pool.is_empty() || pool.iter().any(|id| call["pool"]["id"] == *id))
            && number.as_ref().is_none_or(is_number)
            && is(outcome, &call["outcome"])
            && is(attributed, &call["attribution"]["outcome"])
            && robocall_below.is_none_or(|max| score < max.into() && call["blocked"].is_null())
            && talk_min.is_none_or(|min| talk.is_some_and(|talk| talk >= min))
    }
}

/// Parses a time, or an age.
fn moment(text: &str) -> Result<Timestamp, &'static str> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let ago: Duration =
        parse_duration(text).map_err(|_| "write e.g. 24h, 7d or 2026-11-21T06:30:00Z")?;
    Timestamp::now().checked_sub(ago).map_err(|_| "is too long ago")
}

/// The output, its format, and the count of conversions that were left out.
struct Writer<'a> {
    args: &'a Args,
    out: Box<dyn Write>,
    skipped: u64,
}

/// Writes all calls or all conversions.
///
/// # Errors
/// If the server cannot be reached, or the file cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.lists_results() || (args.recorded_since.is_none() && args.recorded_until.is_none()),
        "--recorded-since and --recorded-until select results: use them with a format for uploads, \
         such as google-clicks"
    );
    if args.format == Format::Parquet {
        return parquet(args);
    }
    let client = ApiClient::new(&args.access)?;
    let file = args.output.as_ref().map(|path| {
        let (is_new, mut options) = (args.after.is_none(), OpenOptions::new());
        // A continued export appends to the interrupted export's file.
        let options = options.create(true).write(true).append(!is_new).truncate(is_new);
        options.open(path).with_context(|| format!("cannot write {}", path.display()))
    });
    let file = file.transpose()?;
    let out: Box<dyn Write> = match &file {
        Some(file) => Box::new(file.try_clone()?),
        None => Box::new(io::stdout().lock()),
    };
    let mut writer = Writer { args, out: Box::new(BufWriter::new(out)), skipped: 0 };
    let mut progress = Progress::counting("exported");
    let (list, base) = request(args);
    let mut after = args.after.clone();
    writer.header()?;
    let length = || file.as_ref().and_then(|file| Some(file.metadata().ok()?.len()));
    let mut written_bytes = length();
    let is_stopped = stop_on_signals()?;
    let written = pages(&client, args, list, &base, &mut after, |lines| {
        lines.iter().try_for_each(|line| writer.write(line))?;
        writer.out.flush()?;
        written_bytes = length();
        progress.add(lines.len() as u64);
        ensure!(!is_stopped.load(Ordering::Relaxed), "ended by a signal");
        Ok(())
    });
    drop(progress);
    let skipped = writer.skipped;
    drop(writer);
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    match written {
        // The program that reads the output has closed the pipe, which is not an error.
        Err(error) if error.downcast_ref().is_some_and(is_closed) => return Ok(ExitCode::SUCCESS),
        Err(error) => {
            // Cuts off an incomplete page, because the continued export writes this page again. If
            // this fails, the output is not a regular file.
            let _ = file.zip(written_bytes).map(|(file, bytes)| file.set_len(bytes));
            // A position from the command line may itself be wrong.
            let after = after.filter(|after| args.after.as_ref() != Some(after));
            let Some(after) = after else { return Err(error) };
            return Err(error.context(format!(
                "the export was interrupted: continue it with `--after {after}`"
            )));
        }
        Ok(()) => {}
    }
    if skipped > 0 {
        print_note(format_args!(
            "conversions left out, because they lack the data that the advertising system needs to \
             match them: {skipped}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes all calls as Parquet. An incomplete Parquet file cannot be read, so an interrupted export
/// cannot be continued.
#[cfg(feature = "parquet")]
fn parquet(args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.after.is_none(),
        "--after cannot be used with Parquet: a Parquet file is \
        always written as a whole"
    );
    let client = ApiClient::new(&args.access)?;
    let out: super::parquet::Out = match &args.output {
        Some(path) => {
            let file = std::fs::File::create(path);
            Box::new(file.with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => Box::new(io::stdout()),
    };
    let mut calls = super::parquet::Calls::new(out)?;
    let mut progress = Progress::counting("exported");
    let (list, base) = request(args);
    pages(&client, args, list, &base, &mut None, |lines| {
        progress.add(lines.len() as u64);
        calls.add(lines)
    })?;
    calls.end()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "this program was built without the feature `parquet`: build it with `cargo install \
        --features parquet`"
    )
}

/// Returns the name of the JSON member that contains an answer's entries, and the request path
/// without a cursor.
fn request(args: &Args) -> (&'static str, String) {
    let Args { since, until, pool, number, outcome, attributed, .. } = args;
    let is_outcomes = args.lists_results();
    let (list, path) =
        if is_outcomes { ("outcomes", "/v1/outcomes") } else { ("calls", "/v1/calls") };
    let mut fields = vec![("limit", Some(PAGE.to_string()))];
    fields.push(("since", since.as_ref().map(Timestamp::to_string)));
    fields.push(("until", until.as_ref().map(Timestamp::to_string)));
    if is_outcomes {
        fields.push(("recorded_since", args.recorded_since.as_ref().map(Timestamp::to_string)));
        fields.push(("recorded_until", args.recorded_until.as_ref().map(Timestamp::to_string)));
    } else {
        // The server can select only one pool.
        let pool = pool.first().filter(|_| pool.len() == 1);
        fields.push(("pool", pool.map(u64::to_string)));
        fields.push(("number", number.clone()));
        fields.push(("outcome", outcome.clone()));
        fields.push(("attributed", attributed.clone()));
    }
    let pairs = fields.into_iter().filter_map(|(name, value)| {
        Some(format!("{name}={}", utf8_percent_encode(&value?, NON_ALPHANUMERIC)))
    });
    (list, format!("{path}?{}", pairs.collect::<Vec<_>>().join("&")))
}

/// Passes the lines of each page to `write`. After each page, stores the cursor of the next page in
/// `after`.
fn pages(
    client: &ApiClient,
    args: &Args,
    list: &str,
    base: &str,
    after: &mut Option<String>,
    mut write: impl FnMut(&[Value]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        let place = after.as_ref().map_or_else(String::new, |cursor| {
            format!("&after={}", utf8_percent_encode(cursor, NON_ALPHANUMERIC))
        });
        let mut answer = client.get(&args.access.url, &format!("{base}{place}"))?;
        let lines = answer[list].as_array_mut();
        let lines =
            lines.ok_or_else(|| anyhow!("the server's answer does not contain `{list}`"))?;
        lines.retain(|line| args.fits(if list == "calls" { line } else { &line["call"] }));
        write(lines)?;
        if answer["complete"] == false && after.is_none() {
            print_note(format_args!(
                "warning: by the server's clock, --recorded-until has not passed yet: results may \
                 still be recorded before it. Export this period again later"
            ));
        }
        match answer["next"].as_str() {
            Some(next) => *after = Some(next.to_owned()),
            None => return Ok(()),
        }
    }
}

impl Format {
    const fn upload(self) -> Option<Upload> {
        match self {
            Self::Jsonl | Self::Csv | Self::Parquet => None,
            Self::GoogleClicks => Some(Upload::GoogleClicks),
            Self::GoogleCalls => Some(Upload::GoogleCalls),
            Self::Microsoft => Some(Upload::Microsoft),
            Self::Meta => Some(Upload::Meta),
        }
    }
}

impl Writer<'_> {
    fn header(&mut self) -> anyhow::Result<()> {
        // An export that continues after a cursor appends to a file that already has a header.
        if self.args.after.is_some() {
            return Ok(());
        }
        match self.args.format.upload() {
            Some(upload) => upload.header().iter().try_for_each(|line| self.csv(line)),
            None if self.args.format == Format::Csv => self.csv(&layout::call_header()),
            None => Ok(()),
        }
    }

    /// Writes a call, or a call's result together with the call.
    fn write(&mut self, value: &Value) -> anyhow::Result<()> {
        let Some(upload) = self.args.format.upload() else {
            if self.args.format == Format::Csv {
                return self.csv(&layout::call_line(value, self.args.raw));
            }
            return Ok(self.out.write_all(layout::json_line(value).as_bytes())?);
        };
        let conversion = match &self.args.conversion {
            Some(name) => Conversion::of_call(value, name),
            None => Conversion::of_outcome(value),
        };
        // An unanswered call is not a conversion.
        let Some(conversion) = conversion else { return Ok(()) };
        if let Some(line) = upload.line(&conversion) {
            return self.csv(&line);
        }
        self.skipped += 1;
        Ok(())
    }

    fn csv<T: AsRef<[u8]>>(&mut self, fields: &[T]) -> anyhow::Result<()> {
        Ok(csv::Writer::from_writer(&mut self.out).write_record(fields)?)
    }
}
