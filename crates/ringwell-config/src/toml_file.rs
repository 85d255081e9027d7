//! Opens and reads configuration files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ringwell_directory::Fault;
use toml::de::DeTable;

use super::secret_files::shown_file;
use super::section::Source;
use super::values::ValueError;

/// Parses `bytes`, the contents of the file at `path`, as TOML.
pub(super) fn parse<'i>(path: &Path, bytes: &'i [u8]) -> Result<(Source, DeTable<'i>), Vec<Fault>> {
    let name = path.display().to_string();
    let Ok(text) = str::from_utf8(bytes) else {
        let message = "is not UTF-8".to_owned();
        return Err(vec![Fault { file: Some(name), message, ..Fault::default() }]);
    };
    let source = Source::new(name, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        Ok((source, table.into_inner()))
    } else {
        // After a syntax error, further checks would only report faults that do not exist.
        Err(errors.iter().map(|error| syntax_fault(&source, error)).collect())
    }
}

/// Reads a file that a configuration names. A device, which may have no end, is refused.
pub(super) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(io::Error::other("it is a device, not a file"));
    }
    std::fs::read(path)
}

/// Returns the path of a file that a configuration names, after a check that the file can be read.
pub(super) fn readable(path: PathBuf) -> Result<PathBuf, ValueError> {
    let examine = |found: Metadata| {
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // A pipe is not opened, because opening it would wait for a writer.
        if found.is_file() { File::open(&path).map(drop) } else { Ok(()) }
    };
    let cannot = |error| ValueError::new(format!("{}: cannot be read: {error}", shown_file(&path)));
    std::fs::metadata(&path).and_then(examine).map_err(cannot)?;
    Ok(path)
}

/// The fault to report for a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault { file: Some(path.display().to_string()), message: reason(error), ..Fault::default() }
}

/// Describes why a file cannot be read.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::IsADirectory => "is a directory, not a file".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

fn syntax_fault(source: &Source, error: &toml::de::Error) -> Fault {
    let start = error.span().map(|span| span.start);
    Fault {
        file: Some(source.name.clone()),
        line: start.map(|start| source.line(start)),
        column: start.map(|start| source.column(start)),
        message: format!("is not TOML: {}", error.message()),
        ..Fault::default()
    }
}
