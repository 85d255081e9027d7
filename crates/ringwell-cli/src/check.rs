//! `ringwell check`: prints the verdict of `ringwell-check` as text or as JSON.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use ringwell_check::{Line, Rule, Summary, Verdict, Violation, check};
use serde_json::{Value, json};

use crate::print::{print, print_error};

pub(crate) const HELP: &str = "\
Reads the output of `ringwell load --history` and `ringwell load finish`; several files are read \
as one history. docs/spec/checker.md describes the rules C1 to C11.

Exit codes: 0: clean according to all rules that could be judged; 1: a guarantee was broken; 2: a \
file cannot be read, or there is nothing to judge. Rules that need more data than the files \
contain are listed as not judged.

Examples:
  ringwell check run.jsonl
  ringwell check client-1.jsonl client-2.jsonl node-a.jsonl --json";

/// Advice for missing lines: the kinds of lines, and the command that adds them.
const ADD_MORE: [(&[&str], &str); 2] = [
    (
        &["`jrn`", "`fin`"],
        "`ringwell load finish HISTORY --journal DATA` adds a server's journal and final state\n",
    ),
    (&["`att`"], "`ringwell load finish HISTORY --look-up URL --token-file FILE` adds look-ups\n"),
];

/// The maximum length of a printed line.
const SHOWN: usize = 600;
const UNREADABLE: u8 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The files of one history
    #[arg(required = true, value_name = "HISTORY")]
    files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the verdict.
///
/// # Errors
/// If the verdict cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(directory) = args.files.iter().find(|file| file.is_dir()) {
        let shown = directory.display();
        print_error(format!(
            "{shown} is a directory: specify the files that `ringwell load --history` wrote"
        ));
        return Ok(ExitCode::from(UNREADABLE));
    }
    if let Some(file) = repeated(&args.files) {
        print_error(format!("{} is given twice: give each file once", file.display()));
        return Ok(ExitCode::from(UNREADABLE));
    }
    let verdict = match check(&args.files) {
        Ok(verdict) => verdict,
        Err(error) => {
            print_error(error);
            return Ok(ExitCode::from(UNREADABLE));
        }
    };
    if verdict.summary.lines == 0 {
        print_error("these files have no complete lines, so nothing can be judged");
        return Ok(ExitCode::from(UNREADABLE));
    }
    let Summary { batches, records, lookups, .. } = &verdict.summary;
    if *batches == 0 && *records == 0 && *lookups == 0 && verdict.first.is_none() {
        print_error(
            "these files have no batches, records or look-ups, so nothing was judged: run \
             `ringwell load --history FILE` again, for longer",
        );
        return Ok(ExitCode::from(UNREADABLE));
    }
    let text = if args.json { format!("{}\n", in_json(&verdict)) } else { in_text(&verdict) };
    print(text.as_bytes())?;
    Ok(if verdict.first.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the first file that is given twice, even under different paths.
fn repeated(files: &[PathBuf]) -> Option<&PathBuf> {
    let mut seen = HashSet::new();
    files.iter().find(|file| file.canonicalize().is_ok_and(|path| !seen.insert(path)))
}

fn in_text(verdict: &Verdict) -> String {
    let mut text = String::new();
    match &verdict.first {
        Some(first) => text += &violated(first),
        None if verdict.not_judged.is_empty() => text += "clean\n",
        None => {
            let (judged, all) = (verdict.judged.len(), Rule::ALL.len());
            let _ = writeln!(
                text,
                "clean according to {judged} of {all} rules; see \"not judged\" \
                                    below"
            );
        }
    }
    if verdict.violations.values().sum::<usize>() > 1 {
        let counts = verdict.violations.iter();
        let counts = counts.map(|(rule, count)| format!("{} {count}", rule.code()));
        let _ = writeln!(text, "violations in all: {}", counts.collect::<Vec<_>>().join(", "));
    }
    text += &looked_at(&verdict.summary);
    let judged: Vec<_> = verdict.judged.iter().map(|rule| rule.code()).collect();
    let _ = writeln!(text, "judged: {}", judged.join(" "));
    for (rule, why) in &verdict.not_judged {
        let _ = writeln!(text, "not judged: {}: {why}", rule.code());
    }
    for (kinds, advice) in ADD_MORE {
        let lacks = |(_, why): &(Rule, String)| kinds.iter().any(|kind| why.contains(kind));
        if verdict.not_judged.iter().any(lacks) {
            text += advice;
        }
    }
    text
}

fn violated(violation: &Violation) -> String {
    let mut text = format!("violated: {}: {}\n", violation.rule.code(), violation.words);
    for line in &violation.proof {
        let _ = writeln!(text, "  {}: {}", line.place, shown(line));
    }
    if let Some(fault) = &violation.nearest_fault {
        let _ = writeln!(text, "nearest fault:\n  {}: {}", fault.place, shown(fault));
    }
    text
}

fn shown(line: &Line) -> String {
    let mut text: String = line.text.chars().take(SHOWN).collect();
    if text.len() < line.text.len() {
        text.push('…');
    }
    text
}

fn looked_at(summary: &Summary) -> String {
    let Summary { lines, batches, unanswered, rows, overflow_rows, numbers, records, .. } = summary;
    let mut text = format!(
        "{lines} lines: {batches} batches ({unanswered} without an answer), {rows} rows \
         ({overflow_rows} overflow), {numbers} numbers, {records} records, {} look-ups\n",
        summary.lookups
    );
    if summary.unknown_lines > 0 {
        let _ = writeln!(text, "ignored: {} lines of unknown kinds", summary.unknown_lines);
    }
    for journal in &summary.damaged {
        let _ =
            writeln!(text, "damaged journal: {journal}; records after the damage were not judged");
    }
    text
}

fn in_json(verdict: &Verdict) -> Value {
    let line = |line: &Line| json!({ "place": line.place, "text": line.text });
    let first = verdict.first.as_ref().map(|first| {
        json!({
            "rule": first.rule.code(),
            "words": first.words,
            "proof": first.proof.iter().map(line).collect::<Vec<_>>(),
            "nearest_fault": first.nearest_fault.as_ref().map(line),
        })
    });
    let violations = verdict.violations.iter();
    let violations = violations.map(|(rule, count)| (rule.code().to_owned(), json!(count)));
    let not_judged = verdict.not_judged.iter();
    let not_judged = not_judged.map(|(rule, why)| json!({ "rule": rule.code(), "why": why }));
    let summary = &verdict.summary;
    json!({
        "clean": verdict.first.is_none(),
        "complete": verdict.not_judged.is_empty(),
        "first": first,
        "violations": violations.collect::<serde_json::Map<_, _>>(),
        "judged": verdict.judged.iter().map(|rule| rule.code()).collect::<Vec<_>>(),
        "not_judged": not_judged.collect::<Vec<_>>(),
        "lines": summary.lines,
        "unknown_lines": summary.unknown_lines,
        "batches": summary.batches,
        "unanswered": summary.unanswered,
        "rows": summary.rows,
        "overflow_rows": summary.overflow_rows,
        "numbers": summary.numbers,
        "records": summary.records,
        "lookups": summary.lookups,
        "damaged": summary.damaged,
    })
}
