//! Reads the tables of a TOML file field by field, so that every fault is found with its position.
//!
//! Owns the positions in the file, and the set of fields that were read. Fields that were never
//! read are reported as unknown. Independent of the fields' meaning. Invariant: no fault contains a
//! value, because the value could be a key.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ringwell_directory::Fault;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::values::ValueError;

/// One file: its name, its lines, and its faults.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    /// The offset at which each line starts.
    lines: Vec<usize>,
    faults: RefCell<Vec<Fault>>,
    /// The lines of the fields that were read.
    fields: RefCell<BTreeMap<String, u32>>,
}

impl Source {
    pub(super) fn new(name: String, text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        let lines = [0].into_iter().chain(ends).collect();
        Self { name, lines, faults: RefCell::default(), fields: RefCell::default() }
    }

    /// The number of the line that contains the byte at `offset`; the first line is 1.
    pub(super) fn line(&self, offset: usize) -> u32 {
        let line = self.lines.partition_point(|start| *start <= offset);
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    pub(super) fn column(&self, offset: usize) -> u32 {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
        u32::try_from(offset - start + 1).unwrap_or(u32::MAX)
    }

    pub(super) fn fault(&self, line: Option<u32>, field: String, error: ValueError) {
        let ValueError { message, hint } = error;
        let file = Some(self.name.clone());
        self.faults.borrow_mut().push(Fault { file, line, column: None, field, message, hint });
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.into_parts().0
    }

    /// The faults, and the lines of the fields that were read.
    pub(super) fn into_parts(self) -> (Vec<Fault>, BTreeMap<String, u32>) {
        (self.faults.into_inner(), self.fields.into_inner())
    }
}

/// One table of a file. [`Section::finish`] must be called after all fields have been read.
#[derive(Debug)]
pub(super) struct Section<'s, 'i> {
    source: &'s Source,
    /// The name of the table; empty for the file itself.
    path: String,
    offset: usize,
    table: DeTable<'i>,
    /// The fields that were requested, each with its position if the file contains the field.
    asked: Vec<(&'static str, Option<usize>)>,
}

impl<'s, 'i> Section<'s, 'i> {
    pub(super) fn new(source: &'s Source, path: String, offset: usize, table: DeTable<'i>) -> Self {
        Self { source, path, offset, table, asked: Vec::new() }
    }

    /// The line of `field`, or of the table if the field is missing.
    pub(super) fn line_of(&self, field: &str) -> u32 {
        let asked = self.asked.iter().find(|(name, _)| *name == field);
        let offset = asked.and_then(|(_, offset)| *offset).unwrap_or(self.offset);
        self.source.line(offset)
    }

    /// Whether `field` was requested and is present.
    pub(super) fn has(&self, field: &str) -> bool {
        self.asked.iter().any(|(name, offset)| *name == field && offset.is_some())
    }

    pub(super) fn fault(&self, field: &str, error: ValueError) {
        self.source.fault(Some(self.line_of(field)), self.full_name(field), error);
    }

    /// Whether a fault was found in `field` or in one of its values.
    pub(super) fn is_faulty(&self, field: &str) -> bool {
        let (name, item) = (self.full_name(field), format!("{}[", self.full_name(field)));
        let faults = self.source.faults.borrow();
        faults.iter().any(|fault| fault.field == name || fault.field.starts_with(&item))
    }

    /// Reports a fault, with the reason `why`, for each of `fields` that is present.
    pub(super) fn refuse(&mut self, fields: &[&'static str], why: &'static str) {
        for field in fields {
            if self.take_value(field).is_some() {
                self.fault(field, ValueError::new(why));
            }
        }
    }

    /// Adds the faults found in a file that a field names.
    pub(super) fn add(&self, faults: Vec<Fault>) {
        self.source.faults.borrow_mut().extend(faults);
    }

    /// The field's value; `None` if it is missing or invalid.
    pub(super) fn take<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, ValueError>,
    ) -> Option<T> {
        let value = self.take_value(field)?;
        read(value.get_ref()).map_err(|error| self.fault(field, error)).ok()
    }

    /// Like [`Section::take`], but reports a fault if the field is missing. `hint` suggests a
    /// correction.
    pub(super) fn require<T>(
        &mut self,
        field: &'static str,
        hint: &str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, ValueError>,
    ) -> Option<T> {
        let value = self.take(field, read);
        self.miss(field, hint);
        value
    }

    /// Reports that `field` is missing, unless it was requested and found.
    pub(super) fn miss(&self, field: &str, hint: &str) {
        if !self.has(field) {
            self.fault(field, ValueError::new("is missing").hint(hint));
        }
    }

    /// Stores the field's value in `place`; keeps the old value if the field is missing or invalid.
    pub(super) fn set<T>(
        &mut self,
        place: &mut T,
        field: &'static str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, ValueError>,
    ) {
        if let Some(value) = self.take(field, read) {
            *place = value;
        }
    }

    /// The values of a list; `None` if the list is missing or one of its values is invalid.
    pub(super) fn take_list<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&DeValue<'i>) -> Result<T, ValueError>,
    ) -> Option<Vec<T>> {
        let values = match self.take_value(field)?.into_inner() {
            DeValue::Array(values) => values,
            other => {
                let hint = "write it in brackets: [\"…\", \"…\"]";
                self.fault(field, wrong_type("a list", &other).hint(hint));
                return None;
            }
        };
        let count = values.len();
        let mut list = Vec::with_capacity(count);
        for (place, value) in values.into_iter().enumerate() {
            match read(value.get_ref()) {
                Ok(value) => list.push(value),
                Err(error) => {
                    let name = format!("{}[{place}]", self.full_name(field));
                    self.source.fault(Some(self.source.line(value.span().start)), name, error);
                }
            }
        }
        (list.len() == count).then_some(list)
    }

    /// The table `field`; an empty table if the file has none.
    pub(super) fn section(&mut self, field: &'static str) -> Section<'s, 'i> {
        let (offset, table) = match self.take_value(field).map(|v| (v.span(), v.into_inner())) {
            None => (self.offset, DeTable::new()),
            Some((span, DeValue::Table(table))) => (span.start, table),
            Some((span, other)) => {
                let hint = format!("write [{}] on a separate line", self.header(field));
                self.fault(field, wrong_type("a table", &other).hint(hint));
                (span.start, DeTable::new())
            }
        };
        Section::new(self.source, self.full_name(field), offset, table)
    }

    /// The tables in the list `field`.
    pub(super) fn sections(&mut self, field: &'static str) -> Vec<Section<'s, 'i>> {
        let header = self.header(field);
        let hint = || format!("write [[{header}]] on a separate line");
        let values = match self.take_value(field).map(Spanned::into_inner) {
            None => return Vec::new(),
            Some(DeValue::Array(values)) => values,
            Some(other) => {
                self.fault(field, wrong_type("a list of tables", &other).hint(hint()));
                return Vec::new();
            }
        };
        let mut sections = Vec::new();
        for (place, value) in values.into_iter().enumerate() {
            let (path, offset) =
                (format!("{}[{place}]", self.full_name(field)), value.span().start);
            match value.into_inner() {
                DeValue::Table(table) => {
                    sections.push(Section::new(self.source, path, offset, table));
                }
                other => {
                    let error = wrong_type("a table", &other).hint(hint());
                    self.source.fault(Some(self.source.line(offset)), path, error);
                }
            }
        }
        sections
    }

    /// Reports all unknown fields, which are those that were never read.
    pub(super) fn finish(self) {
        for (key, _) in &self.table {
            let name = key.get_ref();
            let near = self
                .asked
                .iter()
                .map(|(known, _)| (strsim::osa_distance(known, name), *known))
                .filter(|(distance, known)| distance * 3 <= known.len())
                .min();
            let is_plain = |b: u8| b.is_ascii_lowercase() || b == b'_' || b == b'-';
            let is_name = near.is_some() || name.len() <= 24 && name.bytes().all(is_plain);
            let hint = near.map(|(_, known)| format!("did you mean {known}?"));
            let line = Some(self.source.line(key.span().start));
            let (field, message) = if is_name {
                (self.full_name(name), "there is no such field")
            } else {
                // An unknown field may be a key or password that was written in the wrong place.
                (self.path.clone(), "contains an unknown field (not shown: it may be a secret)")
            };
            self.source.fault(line, field, ValueError { message: message.to_owned(), hint });
        }
    }

    /// The field with its enclosing tables, as in `ring_pool[2].lifetime`.
    pub(super) fn full_name(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// The name in the header of the table `field`, without indices, as in `[[site.swap]]`.
    fn header(&self, field: &str) -> String {
        let name = self.full_name(field);
        let parts = name.split('.').map(|part| part.split('[').next().unwrap_or_default());
        parts.collect::<Vec<_>>().join(".")
    }

    fn take_value(&mut self, field: &'static str) -> Option<Spanned<DeValue<'i>>> {
        let entry = self.table.remove_entry(field);
        if let Some((key, _)) = &entry {
            let line = self.source.line(key.span().start);
            self.source.fields.borrow_mut().insert(self.full_name(field), line);
        }
        self.asked.push((field, entry.as_ref().map(|(key, _)| key.span().start)));
        entry.map(|(_, value)| value)
    }
}

/// An error that names the expected kind of value and the kind that was found.
pub(super) fn wrong_type(wanted: &str, found: &DeValue<'_>) -> ValueError {
    let found = match found {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    ValueError::new(format!("must be {wanted}, is {found}"))
}
