//! The placeholders for the values of a statement with many rows.

use std::fmt::Write as _;

use sqlx::AnyConnection;

/// The maximum number of rows in one statement. SQLite accepts at most 32,766 values per statement.
pub(super) const ROWS_MAX: usize = 1_000;

/// The placeholders for a statement's values, in order.
pub(super) struct Places {
    /// False for SQLite. SQLite treats numbered placeholders as names, so the driver would search
    /// all of them for each value.
    are_numbered: bool,
    last: usize,
}

impl Places {
    pub(super) fn of(db: &AnyConnection) -> Self {
        Self { are_numbered: db.backend_name() != "SQLite", last: 0 }
    }

    /// The next `count` placeholders, such as `$1, $2`.
    pub(super) fn list(&mut self, count: usize) -> String {
        let mut text = String::new();
        for place in 0..count {
            text.push_str(if place == 0 { "" } else { ", " });
            self.last += 1;
            let _ =
                if self.are_numbered { write!(text, "${}", self.last) } else { write!(text, "?") };
        }
        text
    }

    /// The placeholders for the next `count` rows, such as `($1, $2), ($3, $4)`.
    pub(super) fn rows(&mut self, count: usize, columns: usize) -> String {
        let rows: Vec<_> = (0..count).map(|_| format!("({})", self.list(columns))).collect();
        rows.join(", ")
    }
}

/// Repeats the last element of `texts` until the list's length is a power of two. This limits the
/// number of prepared statements, because each connection keeps one for each length of the list.
pub(super) fn padded(texts: &[String]) -> Vec<String> {
    let mut padded = texts.to_vec();
    if let Some(last) = texts.last() {
        padded.resize(texts.len().next_power_of_two(), last.clone());
    }
    padded
}

#[cfg(test)]
#[test]
fn statements_have_a_place_for_each_value() {
    let mut places = Places { are_numbered: true, last: 0 };
    assert_eq!(places.rows(2, 3), "($1, $2, $3), ($4, $5, $6)");
    assert_eq!(places.list(2), "$7, $8");
    assert_eq!(Places { are_numbered: false, last: 0 }.rows(2, 2), "(?, ?), (?, ?)");
    let texts = ["a", "b", "c"].map(str::to_owned);
    assert_eq!(padded(&texts).concat(), "abcc");
    assert!(padded(&[]).is_empty());
}
