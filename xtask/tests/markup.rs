//! Tests the markup of pages. Wrapping must not join table rows, list items, or a heading and its
//! text, because a browser would then show one long line. A line of prose must not occur twice in a
//! page, because a repeated line is a sign that a merge replaced a paragraph with a copy of
//! another.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The maximum length of a heading, in characters. A heading that was joined with the paragraph
/// below it is longer.
const HEADING_MAX: usize = 80;

/// The minimum length, in characters, of a line of prose that must not occur twice in a page.
const REPEATED_MIN: usize = 60;

/// Counts the cell separators in a table row. A `|` after a backslash is text.
fn cells(row: &str) -> usize {
    row.replace("\\|", "").matches('|').count()
}

/// The faults of a page, each with its line number.
fn faults(page: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut is_code = false;
    let mut columns = None;
    let mut prose_lines = BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        let mut fault = |what: &str| faults.push(format!("{page}:{}: {what}", at + 1));
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
            if is_code && line.trim_start_matches('`').contains('`') {
                fault("a code block that begins and ends in one line");
            }
        }
        if is_code {
            continue;
        }
        let is_row = line.starts_with('|');
        if is_row && *columns.get_or_insert(cells(line)) != cells(line) {
            fault("a table row with another number of cells than the row above");
        }
        if !is_row {
            columns = None;
            if line.chars().count() >= REPEATED_MIN && !prose_lines.insert(line) {
                fault("a line that occurs twice: has it replaced another paragraph?");
            }
            let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
            if [". - ", "; - ", ": - ", " ## "].iter().any(|joined| prose.contains(joined)) {
                fault("a list item or a heading in the middle of a line");
            }
        }
        if line.starts_with('#') && line.chars().count() > HEADING_MAX {
            fault("a long heading: it has swallowed the text below it");
        }
    }
    if is_code {
        faults.push(format!("{page}: a code block without an end"));
    }
    faults
}

#[test]
fn rows_items_and_headings_have_lines_of_their_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(root).output().unwrap();
    let pages = String::from_utf8(listed.stdout).unwrap();
    assert!(pages.lines().count() > 50, "{pages}");
    let wrong: Vec<String> = pages
        .lines()
        .filter_map(|page| Some((page, fs::read_to_string(root.join(page)).ok()?)))
        .flat_map(|(page, text)| faults(page, &text))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn joined_lines_are_found() {
    let found = |text: &str| faults("page.md", text).len();
    assert_eq!(found("| a | b |\n|---|---|\n| `x \\| y` | 2 |\n\n- one\n- two\n"), 0);
    assert_eq!(found("| a | b |\n|---|---|\n| 1 | 2 | | 3 | 4 |\n"), 1);
    assert_eq!(found("- one. - Two\n"), 1);
    assert_eq!(found(&format!("## The request {}\n", "and more ".repeat(10))), 1);
    assert_eq!(found("```ruby require \"x\" ```\n"), 2);
    assert_eq!(found("```sh\n# - x. - y\n```\n"), 0);
    let line = "a line of a paragraph that a merge has put in the place of another one\n";
    assert_eq!(found(&format!("{line}\n{line}")), 1);
}
