//! A table, for pages and for programs.
//!
//! Both forms are created from the same cells, so a page and its `.csv` cannot differ.

use maud::{Markup, html};
use ringwell_core::Millis;
use serde_json::json;

use super::words::{moment, stamp};

/// One field.
pub(super) struct Cell {
    /// The markup in the page.
    shown: Markup,
    /// The text in the page's CSV version.
    value: String,
    is_number: bool,
    /// The contents without markup. The page's script receives them if whole rows change.
    plain: Plain,
    /// The name and the current value of a figure that changes while the page is open.
    live: Option<(String, String)>,
}

/// A cell without markup.
#[derive(Clone, Default)]
struct Plain {
    text: String,
    /// The target of the link, if the text is a link.
    href: Option<String>,
    /// The time, if the cell shows one.
    at: Option<String>,
}

/// A table with a caption.
#[derive(Default)]
pub(super) struct Table {
    pub(super) caption: String,
    /// For each column, the name in CSV and JSON and the heading on the page.
    pub(super) columns: Vec<(&'static str, &'static str)>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// The text that replaces an empty table, usually advice on the next step.
    empty: Option<Markup>,
    /// Whether rows are added and removed while the page is open.
    pub(super) rows_change: bool,
}

impl Cell {
    /// Text from any source, escaped.
    pub(super) fn text(text: impl Into<String>) -> Self {
        let value = text.into();
        let plain = Plain { text: value.clone(), ..Plain::default() };
        Self { shown: html! { bdi { (value) } }, value, is_number: false, plain, live: None }
    }

    #[expect(clippy::needless_pass_by_value, reason = "figures are small")]
    /// A figure, for people and for programs.
    pub(super) fn figure(shown: impl Into<String>, value: impl ToString) -> Self {
        let shown = shown.into();
        let plain = Plain { text: shown.clone(), ..Plain::default() };
        let value = value.to_string();
        Self { shown: html! { (shown) }, value, is_number: true, plain, live: None }
    }

    /// A value that is not a figure, for people and for programs.
    pub(super) fn of(shown: Markup, value: impl Into<String>) -> Self {
        let plain = Plain::default();
        Self { shown, value: value.into(), is_number: false, plain, live: None }
    }

    /// Text that links to another page.
    pub(super) fn link(href: String, text: impl Into<String>) -> Self {
        let text = text.into();
        let shown = html! { a href=(href) { (text) } };
        let plain = Plain { text: text.clone(), href: Some(href), at: None };
        Self { plain, ..Self::of(shown, text) }
    }

    /// A time.
    pub(super) fn time(at: Millis) -> Self {
        let plain = Plain { text: stamp(at), href: None, at: Some(stamp(at)) };
        Self { plain, ..Self::of(moment(at), stamp(at)) }
    }

    /// A figure that changes while the page is open.
    pub(super) fn live_figure(
        name: impl Into<String>,
        shown: impl Into<String>,
        value: impl ToString,
    ) -> Self {
        let shown = shown.into();
        let live = Some((name.into(), shown.clone()));
        Self { live, ..Self::figure(shown, value) }
    }
}

impl Table {
    pub(super) fn new(caption: &str, columns: &[(&'static str, &'static str)]) -> Self {
        Self { caption: caption.to_owned(), columns: columns.to_vec(), ..Self::default() }
    }

    /// Sets the text that replaces an empty table.
    pub(super) fn or(mut self, empty: Markup) -> Self {
        self.empty = Some(empty);
        self
    }

    pub(super) fn html(&self) -> Markup {
        if self.rows.is_empty() {
            let nothing = self.empty.clone();
            return html! {
                h2 { (self.caption) }
                p.empty { (nothing.unwrap_or_else(|| html! { "Nothing yet." })) }
            };
        }
        html! {
            div.wide tabindex="0" role="region" aria-label=(self.caption) {
                table data-rows[self.rows_change] {
                    caption { (self.caption) }
                    thead { tr { @for (_, heading) in &self.columns { th scope="col" { (heading) } } } }
                    tbody {
                        @for row in &self.rows { tr {
                            @for (place, cell) in row.iter().enumerate() {
                                @if place == 0 { th scope="row" { (cell.shown) } }
                                @else { td.n[cell.is_number] data-live=[cell.live.as_ref().map(|(name, _)| name)] { (cell.shown) } }
                            }
                        } }
                    }
                }
            }
        }
    }

    /// The cells that change, by name. If whole rows change, also all rows, under the name `rows`.
    pub(super) fn live(&self) -> impl Iterator<Item = (String, String)> {
        let cells = self.rows.iter().flatten();
        let cells = cells.filter_map(|cell| cell.live.clone());
        let rows = self.rows_change.then(|| {
            let cell = |cell: &Cell| {
                let Plain { text, href, at } = &cell.plain;
                json!({ "text": text, "href": href, "at": at, "figure": cell.is_number })
            };
            let row = |row: &Vec<Cell>| row.iter().map(cell).collect::<Vec<_>>();
            let rows: Vec<_> = self.rows.iter().map(row).collect();
            ("rows".to_owned(), json!(rows).to_string())
        });
        cells.chain(rows)
    }

    /// The table as CSV (RFC 4180), with a header. An apostrophe precedes any text that a
    /// spreadsheet would interpret as a formula.
    pub(super) fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        // Writing to memory cannot fail.
        let _ = writer.write_record(self.columns.iter().map(|(name, _)| name));
        for row in &self.rows {
            let _ = writer.write_record(row.iter().map(|cell| harmless(&cell.value)));
        }
        String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}

fn harmless(text: &str) -> String {
    let is_figure = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_figure = is_figure.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let begins = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if begins && !is_figure { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
#[test]
fn a_field_that_a_spreadsheet_would_run_becomes_text() {
    let mut table = Table::new("names", &[("name", "Name"), ("count", "Count")]);
    for name in ["=1+1", "@SUM(A1)", "+12125550100", "-1", "<script>", "a,\"b\""] {
        table.rows.push(vec![Cell::text(name), Cell::figure("1", 1)]);
    }
    let expected =
        "name,count\n'=1+1,1\n'@SUM(A1),1\n+12125550100,1\n-1,1\n<script>,1\n\"a,\"\"b\"\"\",1\n";
    assert_eq!(table.csv(), expected);
    let html = table.html().into_string();
    assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"), "{html}");
}
