//! Calls as Parquet: the columns of the CSV export, each with a type.
//!
//! Needs memory for only one row group, however many calls are exported.

use std::io::Write;

use anyhow::Context;
use jiff::Timestamp;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use std::sync::Arc;

use super::layout::{self, Kind};

/// The number of calls per row group.
const GROUP: usize = 10_000;

/// The output file.
pub(super) type Out = Box<dyn Write + Send>;

/// A Parquet file that is being written.
pub(super) struct Calls {
    writer: SerializedFileWriter<Out>,
    waiting: Vec<Value>,
}

impl Kind {
    /// Returns the column's physical type in Parquet, and its logical type.
    const fn schema(self) -> (&'static str, &'static str) {
        match self {
            Self::Text => ("binary", " (UTF8)"),
            Self::Moment => ("int64", " (TIMESTAMP(MILLIS,true))"),
            Self::Whole => ("int64", ""),
            Self::Truth => ("boolean", ""),
            Self::Fraction => ("double", ""),
        }
    }
}

impl Calls {
    /// Begins a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn new(out: Out) -> anyhow::Result<Self> {
        let columns = layout::call_columns().map(|(name, kind)| {
            let (kind, meaning) = kind.schema();
            format!("optional {kind} {name}{meaning};")
        });
        let schema = format!("message calls {{ {} }}", columns.collect::<String>());
        let schema = Arc::new(parse_message_type(&schema).context("the schema")?);
        let writer = SerializedFileWriter::new(out, schema, Arc::default()).context("Parquet")?;
        Ok(Self { writer, waiting: Vec::new() })
    }

    /// Adds calls as the API returns them.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn add(&mut self, calls: &[Value]) -> anyhow::Result<()> {
        self.waiting.extend_from_slice(calls);
        if self.waiting.len() >= GROUP { self.group() } else { Ok(()) }
    }

    /// Writes the footer, without which the file cannot be read.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.group()?;
        self.writer.close().context("Parquet")?;
        Ok(())
    }

    fn group(&mut self) -> anyhow::Result<()> {
        let calls = std::mem::take(&mut self.waiting);
        if calls.is_empty() {
            return Ok(());
        }
        let lines: Vec<Vec<String>> =
            calls.iter().map(|call| layout::call_line(call, true)).collect();
        let mut group = self.writer.next_row_group()?;
        for place in 0..layout::call_columns().count() {
            let mut column = group.next_column()?.context("the Parquet schema lacks a column")?;
            let cells = || lines.iter().map(|line| line[place].as_str());
            let (levels, present) = present(cells());
            write(column.untyped(), &present, &levels)?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

/// Returns a definition level for each cell (1 if it has a value, 0 if it is null) and the values.
/// An empty cell is null.
fn present<'a>(cells: impl Iterator<Item = &'a str>) -> (Vec<i16>, Vec<&'a str>) {
    let cells: Vec<&str> = cells.collect();
    let levels = cells.iter().map(|cell| i16::from(!cell.is_empty())).collect();
    (levels, cells.into_iter().filter(|cell| !cell.is_empty()).collect())
}

fn write(column: &mut ColumnWriter<'_>, cells: &[&str], levels: &[i16]) -> anyhow::Result<()> {
    let levels = Some(levels);
    let whole = |cell: &&str| match cell.parse::<i64>() {
        Ok(number) => Ok(number),
        // For an integer column, the API returns an integer or a time.
        Err(_) => Ok(cell.parse::<Timestamp>().context("the server's answer")?.as_millisecond()),
    };
    match column {
        ColumnWriter::BoolColumnWriter(writer) => {
            let values: Vec<bool> = cells.iter().map(|cell| *cell == "true").collect();
            writer.write_batch(&values, levels, None)?;
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let values = cells.iter().map(whole).collect::<anyhow::Result<Vec<i64>>>()?;
            writer.write_batch(&values, levels, None)?;
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let read = |cell: &&str| cell.parse::<f64>().context("the server's answer");
            let values = cells.iter().map(read).collect::<anyhow::Result<Vec<f64>>>()?;
            writer.write_batch(&values, levels, None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let values: Vec<ByteArray> = cells.iter().map(|cell| ByteArray::from(*cell)).collect();
            writer.write_batch(&values, levels, None)?;
        }
        _ => anyhow::bail!("a column in the Parquet schema has an unexpected type"),
    }
    Ok(())
}
