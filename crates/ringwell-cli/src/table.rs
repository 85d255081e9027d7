//! Tables and other text for a terminal.

use std::fmt::Write;

/// The maximum width of a column. Longer cells are printed whole, but the next cells are then not
/// aligned. Rust's formatter refuses widths above 65,535, and a server may return longer names.
pub(crate) const WIDTH_MAX: usize = 500;

/// Formats columns as narrow as possible and two spaces apart. Numbers are right-aligned. Control
/// characters are shown as `?`.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let columns: Vec<(usize, bool)> = heading
        .iter()
        .enumerate()
        .map(|(at, title)| {
            let cells = || rows.iter().filter_map(|row| row.get(at));
            let widest = cells().map(|cell| cell.chars().count()).max().unwrap_or_default();
            let is_number = |cell: &String| cell.bytes().all(|byte| byte.is_ascii_digit());
            (widest.max(title.len()).min(WIDTH_MAX), !rows.is_empty() && cells().all(is_number))
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, (width, is_number)) in cells.zip(&columns) {
            let _ = match is_number {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    };
    line(&mut heading.iter().copied());
    for row in &rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

/// Replaces control characters, which would affect a terminal, with `?`. They include those that
/// change the direction of the text.
pub(crate) fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { '?' } else { c }).collect()
}

#[cfg(test)]
#[test]
fn columns_are_as_wide_as_their_cells_and_numbers_are_right_aligned() {
    let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
    let rows = [row(["7", "Frühling", ""]), row(["12", "a\x1b[2J\u{202e}b", "x"])];
    let text = "id  name      more\n 7  Frühling\n12  a?[2J?b   x\n";
    assert_eq!(table(&["id", "name", "more"], &rows), text);
    assert_eq!(table(&["id"], &[]), "id\n");
    let long = "x".repeat(70_000);
    let text = table(&["id", "name"], &[vec![long.clone(), "a".to_owned()]]);
    assert!(text.ends_with(&format!("{long}  a\n")));
}
