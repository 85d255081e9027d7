//! `ringwell plan cluster`: estimates the machines that the given traffic needs. Each figure is
//! shown with its basis.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use ringwell_config::parse_size;
use ringwell_plan::cluster::{Figure, MACHINE, MEASURED, Traffic, Unit, estimate};
use serde_json::json;

use super::values::{amount, parse_amount, parse_lifetime, parse_share, span};
use crate::print::print;

const KIB: f64 = 1_024.0;
/// The width of the notes below a figure, in characters.
const COLUMNS: usize = 84;

/// The journal's default settings.
pub(super) const HISTORY_AGE: &str = "30d";
pub(super) const HISTORY_BYTES: &str = "8GiB";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Numbers handed out per second, e.g. 127k
    #[arg(long, value_name = "X", value_parser = parse_amount)]
    numbers_per_second: f64,
    /// Keep-alives per second: about one per minute for each visitor, and one for each further page
    /// of a visit. Each is a separate request
    #[arg(long, value_name = "X", value_parser = parse_amount)]
    keep_alives_per_second: Option<f64>,
    /// Number of rows in each batch
    #[arg(long, value_name = "N", default_value = "40", value_parser = parse_amount)]
    rows_per_batch: f64,
    /// Length of a row's parameters, in bytes
    #[arg(long, value_name = "BYTES", default_value = "44", value_parser = parse_amount)]
    parameter_bytes: f64,
    /// Lockout of a number after its allocation; with keep-alives, the mean lockout
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_lifetime)]
    lifetime: Duration,
    /// Count of numbers in all pools; by default as many as the target requires
    #[arg(long, value_name = "N", value_parser = parse_amount)]
    numbers: Option<f64>,
    /// Count of numbers in one pool
    #[arg(long, value_name = "N", default_value_t = 500)]
    pool_numbers: u32,
    /// Accepted overflow
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_share)]
    target: f64,
    /// Number of keep-alive connections from clients
    #[arg(long, value_name = "N", default_value = "1k", value_parser = parse_amount)]
    connections: f64,
    /// Share of a core that may be used; the rest is for peaks
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = parse_share)]
    busy: f64,
    /// Cores for shards on a node
    #[arg(long, value_name = "N", default_value_t = 8)]
    node_cores: u32,
    /// Memory that Ringwell may use on a node, in GiB
    #[arg(long, value_name = "GIB", default_value = "32", value_parser = parse_amount)]
    node_memory: f64,
    /// The setting `journal.history_age`: how long history is kept
    #[arg(long, value_name = "DURATION", default_value = HISTORY_AGE, value_parser = parse_lifetime)]
    history_age: Duration,
    /// The setting `journal.history_bytes`: the disk space of each shard's history
    #[arg(long, value_name = "BYTES", default_value = HISTORY_BYTES, value_parser = parse_size)]
    history_bytes: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Prints the estimate.
///
/// # Errors
/// If no estimate is possible, or the output cannot be written.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
    let history_bytes = args.history_bytes as f64;
    let figures = estimate(&Traffic {
        numbers_per_second: args.numbers_per_second,
        keep_alives_per_second: args.keep_alives_per_second.unwrap_or(0.0),
        rows_per_batch: args.rows_per_batch,
        parameter_bytes: args.parameter_bytes,
        lifetime: args.lifetime,
        numbers: args.numbers,
        pool_numbers: args.pool_numbers,
        target: args.target,
        connections: args.connections,
        busy: args.busy,
        node_cores: args.node_cores,
        node_memory: args.node_memory * KIB * KIB * KIB,
        history_bytes,
        history_age: args.history_age,
    })?;
    let text = if args.json { in_json(&figures) } else { table(args, &figures) };
    print(text.as_bytes())
}

fn table(args: &Args, figures: &[Figure]) -> String {
    let mut text = format!(
        "{} numbers/s in batches of {}\n\nCalculated from the measurements below:\n",
        amount(args.numbers_per_second),
        amount(args.rows_per_batch)
    );
    for figure in figures {
        let _ = writeln!(text, "  {:<33} {:>16}", figure.what, valued(figure));
        text += &wrapped(&figure.how);
    }
    let _ = writeln!(text, "\nMeasured ({MACHINE}):");
    for measured in MEASURED {
        let value = format!("{} {}", measured.value, measured.unit);
        let _ = writeln!(text, "  {:<51} {value:>12}   {}", measured.what, measured.command);
        text += &wrapped(measured.conditions);
    }
    text += "\nRepeat the measurements on the kind of machine that you will buy. The measurements \
             above\nwere made on two cores, without a proxy, TLS or spikes in disk latency.\n";
    text
}

/// Wraps text into lines of at most [`COLUMNS`] characters.
fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    let mut column = COLUMNS;
    for word in text.split(' ') {
        let length = word.chars().count() + 1;
        if column + length > COLUMNS {
            let indent = if wrapped.is_empty() { "     " } else { "\n     " };
            wrapped += indent;
            column = 0;
        }
        let _ = write!(wrapped, " {word}");
        column += length;
    }
    wrapped + "\n"
}

fn valued(figure: &Figure) -> String {
    match figure.unit {
        Unit::Count => amount(figure.value),
        Unit::CountPerSecond => format!("{}/s", amount(figure.value)),
        Unit::Cores => format!("{:.2}", figure.value),
        Unit::Bytes => bytes(figure.value),
        Unit::BytesPerSecond => format!("{}/s", bytes(figure.value)),
        Unit::Seconds => span(figure.value),
    }
}

fn bytes(value: f64) -> String {
    let units = [(4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")];
    let fitting = units.into_iter().find(|(power, _)| value >= KIB.powi(*power));
    let (power, name) = fitting.unwrap_or((0, "B"));
    format!("{} {name}", amount(value / KIB.powi(power)))
}

fn in_json(figures: &[Figure]) -> String {
    let figures: Vec<_> = figures
        .iter()
        .map(|figure| {
            json!({
                "what": figure.what,
                "value": figure.value,
                "unit": unit(figure.unit),
                "basis": "arithmetic",
                "how": figure.how,
            })
        })
        .collect();
    let measured: Vec<_> = MEASURED
        .iter()
        .map(|measured| {
            json!({
                "what": measured.what,
                "value": measured.value,
                "unit": measured.unit,
                "basis": "measured",
                "command": measured.command,
                "conditions": measured.conditions,
            })
        })
        .collect();
    format!("{}\n", json!({ "figures": figures, "measured": measured, "measured_on": MACHINE }))
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "count",
        Unit::CountPerSecond => "1/s",
        Unit::Cores => "cores",
        Unit::Bytes => "bytes",
        Unit::BytesPerSecond => "bytes/s",
        Unit::Seconds => "seconds",
    }
}
