//! Reads ring pools from a CSV file with one pool per line, for installations with many pools.
//!
//! Owns the columns of that file. Also reads the files of `ringwell demo` and
//! `ringwell pools export`; an exported file has one line for each range of a pool's numbers.
//! Columns may be in any order. The part that reads lines is also used for other CSV files.

use std::path::Path;
use std::sync::Arc;

use csv::{Reader, StringRecord};
use ringwell_core::{NumberRange, PoolId};
use ringwell_directory::{Fault, RingPool, Tracking};

use super::pools::{Found, GivenFields, PoolLines, alone, describe, parse_key};
use super::section::Source;
use super::toml_file::{read_bytes, reason};
use super::values::{ValueError, parse_number, parse_range, parse_seconds};

const REQUIRED: [&str; 4] = ["id", "ring_pool_key", "lifetime_seconds", "numbers"];
const OPTIONAL: [&str; 9] = [
    "next_ring_pool_key",
    "overflow_number",
    "first_number",
    "name",
    "tracking_url",
    "destination_url",
    // Columns in the output of `ringwell pools export`. They are ignored when pools are read.
    "network",
    "advertiser",
    "campaign",
];

/// Reads the pools in the file at `path` into `found`, and adds the file's faults to `faults`.
pub(super) fn read(path: &Path, found: &mut Found, faults: &mut Vec<Fault>) {
    let file = Arc::from(path.display().to_string());
    faults.extend(read_lines(path, &REQUIRED, &OPTIONAL, |line| read_line(line, &file, found)));
}

/// Passes each line of the CSV file at `path` to `read`; returns the faults.
pub(super) fn read_lines(
    path: &Path,
    required: &[&str],
    optional: &[&str],
    mut read: impl FnMut(&Line<'_>),
) -> Vec<Fault> {
    let source = Source::new(path.display().to_string(), "");
    match read_bytes(path) {
        Ok(text) => read_records(&text, &source, (required, optional), &mut read),
        Err(error) => source.fault(None, String::new(), cannot_read(&error.into())),
    }
    source.into_faults()
}

type Columns<'a> = (&'a [&'a str], &'a [&'a str]);

fn read_records(
    text: &[u8],
    source: &Source,
    columns: Columns<'_>,
    read: &mut impl FnMut(&Line<'_>),
) {
    let (mut reader, mut lines) = (Reader::from_reader(text), Lines::of(text));
    let mut line =
        |position: Option<&csv::Position>| u32::try_from(lines.at(position)).unwrap_or(u32::MAX);
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => return source.fault(Some(1), String::new(), cannot_read(&error)),
    };
    if !check_header(&header, columns, source) {
        return;
    }
    for record in reader.records() {
        match record {
            Ok(record) => {
                let number = line(record.position());
                read(&Line { header: &header, record: &record, source, number });
            }
            Err(error) => {
                let line = error.position().map(|position| line(Some(position)));
                source.fault(line, String::new(), cannot_read(&error));
            }
        }
    }
}

fn check_header(header: &StringRecord, (required, optional): Columns<'_>, source: &Source) -> bool {
    let mut fits = true;
    let mut fault = |field: &str, message: &str, hint| {
        fits = false;
        source.fault(Some(1), field.to_owned(), ValueError { message: message.to_owned(), hint });
    };
    for name in required {
        if !header.iter().any(|column| column == *name) {
            fault(name, "the column is missing", None);
        }
    }
    let columns = [required, optional].concat();
    for (place, column) in header.iter().enumerate() {
        if !columns.contains(&column) {
            // If the file has no header, its first line contains a key, which must not be shown.
            let is_like = |known: &&str| {
                (column.len() > 3 && strsim::osa_distance(known, column) <= 2)
                    || known.split('_').any(|it| it == column)
            };
            let is_misspelt = columns.iter().any(is_like);
            let nth = format!("column {}", place + 1);
            let name = if is_misspelt { column.to_owned() } else { nth };
            let hint = Some(format!("the columns are {}", columns.join(", ")));
            fault(&name, "the column is unknown", hint);
        } else if header.iter().take(place).any(|earlier| earlier == column) {
            fault(column, "the column occurs twice", None);
        }
    }
    fits
}

fn read_line(line: &Line<'_>, file: &Arc<str>, found: &mut Found) {
    let id = line.read("id", |text| {
        let fault = |_| ValueError::new("must be a whole number").hint("write e.g. 16");
        text.parse().map(PoolId).map_err(fault)
    });
    let key = line.read("ring_pool_key", parse_key);
    let lifetime = line.read("lifetime_seconds", parse_seconds);
    let numbers = numbers(line);
    let next_key = line.read_if_any("next_ring_pool_key", parse_key);
    let overflow = line.read_if_any("overflow_number", parse_number);
    let name = line.get("name").filter(|name| !name.is_empty()).map(str::to_owned);
    let tracking = tracking(line);
    let mut given = GivenFields { id, name, key, next_key, lifetime, numbers, overflow, tracking };
    let is_of_file = found.places.last().is_some_and(|place| place.file == *file);
    if is_of_file && let Some(before) = line_before(&given, found) {
        join(&mut given, &before, line);
    }
    match given.pool() {
        Ok(Some(pool)) => {
            found.pools.push(pool);
            let (id_line, file) = (line.number, Arc::clone(file));
            let (numbers_line, overflow_line) = (id_line, id_line);
            let path = String::new();
            found.places.push(PoolLines { file, path, id_line, numbers_line, overflow_line });
        }
        Ok(None) => {}
        Err(pool_faults) => {
            for fault in pool_faults {
                let (field, error) = describe(fault, true);
                line.fault(field, error);
            }
        }
    }
}

/// If this line describes the same pool as the previous line, removes that pool from `found` and
/// returns it.
fn line_before(given: &GivenFields, found: &mut Found) -> Option<RingPool> {
    let GivenFields { id: Some(id), key: Some(key), lifetime: Some(_), numbers: Some(_), .. } =
        given
    else {
        return None;
    };
    let is_same = |pool: &mut RingPool| pool.id() == *id && *pool.key() == *key;
    let before = found.pools.pop_if(is_same)?;
    found.places.pop();
    Some(before)
}

/// Merges the pool's previous line into this one. A cell that is empty in one line takes the other
/// line's value; two different values are a fault.
fn join(given: &mut GivenFields, before: &RingPool, line: &Line<'_>) {
    if let Some(numbers) = &mut given.numbers {
        *numbers = [before.numbers(), numbers].concat();
    }
    let same = |is_same: bool, column: &str| {
        if !is_same {
            line.fault(column, ValueError::new("differs from an earlier line of this pool"));
        }
    };
    let fields = before.fields();
    same(given.lifetime == Some(fields.lifetime), "lifetime_seconds");
    given.overflow = given.overflow.or(fields.overflow);
    same(fields.overflow.is_none() || given.overflow == fields.overflow, "overflow_number");
    given.next_key = given.next_key.or(fields.next_key);
    same(fields.next_key.is_none() || given.next_key == fields.next_key, "next_ring_pool_key");
    given.name = given.name.take().or_else(|| fields.name.clone());
    same(fields.name.is_none() || given.name == fields.name, "name");
    given.tracking = given.tracking.take().or_else(|| fields.tracking.clone());
    same(fields.tracking.is_none() || given.tracking == fields.tracking, "tracking_url");
}

fn tracking(line: &Line<'_>) -> Option<Arc<Tracking>> {
    let url = |column| line.get(column).filter(|url| !url.is_empty()).map(str::to_owned);
    let fault = |column, other| {
        line.fault(column, alone(other));
        None
    };
    match (url("tracking_url"), url("destination_url")) {
        (Some(base_url), Some(destination_url)) => {
            Some(Arc::new(Tracking { base_url, destination_url }))
        }
        (Some(_), None) => fault("tracking_url", "destination_url"),
        (None, Some(_)) => fault("destination_url", "tracking_url"),
        (None, None) => None,
    }
}

/// Reads the numbers: ranges separated by semicolons or, if there is a column for the first number,
/// a count.
fn numbers(line: &Line<'_>) -> Option<Vec<NumberRange>> {
    if line.get("first_number").is_none() {
        let hint = "write e.g. 8885550100-8885550149;8885550200";
        return line.read("numbers", |text| {
            let ranges = text.split(';').map(|range| parse_range(range.trim()));
            ranges.collect::<Result<_, _>>().map_err(|error| error.hint(hint))
        });
    }
    let first = line.read("first_number", parse_number);
    let fault =
        || ValueError::new("must be the count of consecutive numbers, starting with first_number");
    let count = line.read("numbers", |text| text.parse::<u32>().map_err(|_| fault()));
    let (first, count) = (first?, count?);
    let range = NumberRange::new(first, count);
    if range.is_none() {
        line.fault("numbers", fault());
    }
    Some(vec![range?])
}

/// One line with its columns.
pub(super) struct Line<'a> {
    header: &'a StringRecord,
    record: &'a StringRecord,
    source: &'a Source,
    number: u32,
}

impl<'a> Line<'a> {
    fn get(&self, column: &str) -> Option<&'a str> {
        let place = self.header.iter().position(|name| name == column)?;
        self.record.get(place).map(|cell| unguarded(cell.trim()))
    }

    pub(super) fn read<T>(
        &self,
        column: &str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        let value = match self.get(column).unwrap_or_default() {
            "" => Err(ValueError::new("is missing")),
            text => read(text),
        };
        value.map_err(|error| self.fault(column, error)).ok()
    }

    fn read_if_any<T>(
        &self,
        column: &str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<T> {
        self.get(column).filter(|text| !text.is_empty())?;
        self.read(column, read)
    }

    pub(super) fn fault(&self, column: &str, error: ValueError) {
        self.source.fault(Some(self.number), column.to_owned(), error);
    }
}

/// Whether a spreadsheet would read a cell as a formula once its leading apostrophes are removed.
fn is_formula(cell: &str) -> bool {
    cell.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r'])
}

/// Makes a cell safe for a CSV file that may be opened in a spreadsheet. A cell that would be a
/// formula is prefixed with an apostrophe, which [`unguarded`] removes.
#[must_use]
pub fn guarded(cell: String) -> String {
    if is_formula(&cell) { format!("'{cell}") } else { cell }
}

/// Returns the text that was passed to [`guarded`].
#[must_use]
pub fn unguarded(cell: &str) -> &str {
    cell.strip_prefix('\'').filter(|_| is_formula(cell)).unwrap_or(cell)
}

/// Finds the line number of each record in a CSV file, for the positions of faults. After a line
/// that ends in `\r\n`, the CSV reader's own count is one too low, because the reader counts the
/// `\n` as part of the next record.
#[derive(Debug)]
pub struct Lines<'a> {
    text: &'a [u8],
    counted: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    /// Starts counting at the beginning of `text`, which is the whole file.
    #[must_use]
    pub fn of(text: &'a [u8]) -> Self {
        Self { text, counted: 0, line: 1 }
    }

    /// The line of the record that begins at `position`, or after the line break at `position`. The
    /// positions must not decrease from one call to the next.
    pub fn at(&mut self, position: Option<&csv::Position>) -> u64 {
        let from = position.map_or(0, |position| usize::try_from(position.byte()).unwrap_or(0));
        let rest = self.text.get(from..).unwrap_or_default();
        let ends = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let to = (from + ends).min(self.text.len());
        let passed = self.text.get(self.counted..to).unwrap_or_default();
        self.line += passed.split(|byte| *byte == b'\n').count() as u64 - 1;
        self.counted = self.counted.max(to);
        self.line
    }
}

/// Describes the fault without the file's contents.
fn cannot_read(error: &csv::Error) -> ValueError {
    match error.kind() {
        csv::ErrorKind::Io(error) => ValueError::new(reason(error)),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            ValueError::new(format!("has {len} columns, but the header has {expected_len}"))
        }
        csv::ErrorKind::Utf8 { .. } => ValueError::new("is not UTF-8"),
        _ => ValueError::new("is not CSV"),
    }
}

#[cfg(test)]
mod tests;
