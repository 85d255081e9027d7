//! Lists of pools as CSV: import, with the result of each line, and export.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::server::Server;
use super::values::text;
use crate::print::print;
use crate::print::say;
use crate::table;

#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The CSV file, with the header row that `export` writes; - for stdin
    file: PathBuf,
    /// Print the changes without applying them
    #[arg(long)]
    dry_run: bool,
    /// Lines to apply: `good` skips bad lines, `all` applies nothing if a line is bad
    #[arg(long, value_name = "WHICH", value_parser = ["good", "all"], default_value = "all")]
    apply: String,
    /// Treat a line for an existing pool as bad, instead of changing the pool
    #[arg(long)]
    create_only: bool,
    /// Print only bad lines
    #[arg(long)]
    only_bad: bool,
}

/// Sends a list. Returns exit code 1 if any line is bad. Good lines may have been applied
/// nevertheless.
pub(super) fn import(server: &Server, import: &Import, json: bool) -> anyhow::Result<ExitCode> {
    let Import { file, dry_run, apply, create_only, only_bad } = import;
    let list = if file.as_os_str() == "-" {
        read_stdin().context("cannot read stdin")?
    } else {
        fs::read(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let apply = if apply == "good" { "good" } else { "none" };
    let options = format!("dry_run={dry_run}&apply={apply}&create_only={create_only}");
    let report = server.import(&options, list)?;
    say(json, &report, || in_text(&report, *only_bad))?;
    let is_good = report["bad"] == 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_stdin() -> io::Result<Vec<u8>> {
    let mut list = Vec::new();
    io::stdin().lock().read_to_end(&mut list)?;
    Ok(list)
}

fn in_text(report: &Value, only_bad: bool) -> String {
    let lines = report["lines"].as_array().map_or(&[][..], Vec::as_slice);
    let shown = lines.iter().filter(|line| !only_bad || line["result"] == "bad");
    let heading = ["line", "result", "detail"];
    let rows: Vec<_> = shown.map(|line| heading.map(|name| text(line, name)).to_vec()).collect();
    let listed = if rows.is_empty() { String::new() } else { table::table(&heading, &rows) + "\n" };
    let done = match (report["dry_run"] == true, report["applied"] == true, report["bad"] == 0) {
        (true, ..) => "dry run, nothing was changed",
        (_, true, true) => "all lines were applied",
        (_, true, false) => "only the good lines were applied",
        (_, false, _) => "nothing was applied",
    };
    let (good, bad) = (text(report, "good"), text(report, "bad"));
    format!("{listed}good: {good}, bad: {bad}; {done}\n")
}

/// Writes all pools to a file. Only the file's owner can read it, because it contains keys.
pub(super) fn export(
    server: &Server,
    file: Option<&Path>,
    overwrite: bool,
) -> anyhow::Result<ExitCode> {
    let Some(file) = file.filter(|file| file.as_os_str() != "-") else {
        return print(&server.export()?);
    };
    let shown = file.display();
    // Only an existing regular file needs protection: a device or a pipe has no contents to lose.
    ensure!(
        overwrite || !file.is_file(),
        "{shown} already exists: choose another file, or add --overwrite"
    );
    let list = server.export()?;
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    let written = opened.and_then(|mut out| out.write_all(&list));
    written.with_context(|| format!("cannot write {shown}"))?;
    Ok(ExitCode::SUCCESS)
}
