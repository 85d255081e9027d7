//! `journal-erase.todo`: everything that one `ringwell journal erase` writes and removes.
//!
//! Invariant: the file is complete on disk, with its SHA-256 at the end, before a journal is
//! changed. It is removed only after all of its work is done and flushed. It contains no visitor
//! parameters.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ringwell_calls::digest::Sha256;
use ringwell_store::file_exists;
use serde::{Deserialize, Serialize};

/// The name of the file in the data directory.
pub(super) const TODO: &str = "journal-erase.todo";

/// The length of the SHA-256 at the end of the file.
const SUM_BYTES: u64 = 64;

/// One line of the file. Paths are relative to the data directory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Work {
    /// The first line: identifies the request.
    Request { request: String },
    /// Bytes to write.
    Bytes { file: PathBuf, offset: u64, hex: String },
    /// Zeros to write.
    Zeros { file: PathBuf, offset: u64, zeros: u64 },
    /// A spare file to remove.
    Spare { spare: PathBuf },
    /// The last line: the count of allocations whose parameters are overwritten.
    Count { erased: u64 },
}

/// The progress of an interrupted erasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No erasure was interrupted.
    None,
    /// It was interrupted before the file was complete. No journal has been changed.
    Planning,
    /// The file is complete.
    Planned,
}

/// The file while it is being written.
pub(super) struct Todo {
    file: BufWriter<File>,
    path: PathBuf,
    sum: Sha256,
}

impl Todo {
    /// Creates the file for `request`, and replaces an incomplete one.
    pub(super) fn create(data: &Path, request: &str) -> anyhow::Result<Self> {
        let path = data.join(TODO);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let mut todo = Self { file: BufWriter::new(file), path, sum: Sha256::new() };
        todo.add(&Work::Request { request: request.to_owned() })?;
        todo.flush()?;
        Ok(todo)
    }

    pub(super) fn add(&mut self, work: &Work) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(work)?;
        line.push('\n');
        self.sum.update(line.as_bytes());
        self.file.write_all(line.as_bytes()).with_context(|| self.cannot_write())
    }

    /// Completes the file, and flushes it to disk.
    pub(super) fn finish(mut self, erased: u64) -> anyhow::Result<()> {
        self.add(&Work::Count { erased })?;
        let sum = self.sum.clone().hex();
        self.file.write_all(sum.as_bytes()).with_context(|| self.cannot_write())?;
        self.flush()
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let mut flush = || {
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            sync_directory(&self.path)
        };
        flush().with_context(|| self.cannot_write())
    }

    fn cannot_write(&self) -> String {
        let path = self.path.display();
        format!(
            "cannot write {path}: if its disk is full, free disk space; then run the command again"
        )
    }
}

/// Returns the progress of an interrupted erasure.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn state(data: &Path) -> anyhow::Result<State> {
    let path = data.join(TODO);
    if !file_exists(&path)? {
        return Ok(State::None);
    }
    let is_complete = is_complete(&path);
    let is_complete = is_complete.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(if is_complete { State::Planned } else { State::Planning })
}

/// Returns the interrupted erasure's request, or `None` if its file does not contain it.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn request(data: &Path) -> anyhow::Result<Option<String>> {
    let path = data.join(TODO);
    let read = || {
        let mut line = Vec::new();
        BufReader::new(File::open(&path)?).read_until(b'\n', &mut line)?;
        Ok::<_, std::io::Error>(line)
    };
    let line = read().with_context(|| format!("cannot read {}", path.display()))?;
    Ok(match serde_json::from_slice(&line) {
        Ok(Work::Request { request }) => Some(request),
        _ => None,
    })
}

fn is_complete(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    let Some(length) = file.metadata()?.len().checked_sub(SUM_BYTES) else { return Ok(false) };
    let mut sum = Sha256::new();
    let mut lines = BufReader::new((&mut file).take(length));
    loop {
        let bytes = lines.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        sum.update(bytes);
        let count = bytes.len();
        lines.consume(count);
    }
    let mut stored = Vec::new();
    file.seek(SeekFrom::Start(length))?;
    file.read_to_end(&mut stored)?;
    Ok(stored == sum.hex().as_bytes())
}

/// Does the work listed in a complete file, and removes the file. Returns the count of allocations
/// whose parameters were overwritten.
///
/// # Errors
/// If files cannot be read or written. The file then stays.
pub(super) fn apply(data: &Path) -> anyhow::Result<u64> {
    work(data).context(
        "the erasure is incomplete: run `ringwell journal erase` again, or start the server",
    )
}

fn work(data: &Path) -> anyhow::Result<u64> {
    let path = data.join(TODO);
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let length = file.metadata()?.len().saturating_sub(SUM_BYTES);
    let mut open: Option<(PathBuf, File)> = None;
    let mut count = 0;
    for line in BufReader::new(file.take(length)).lines() {
        match serde_json::from_str(&line?)? {
            Work::Bytes { file, offset, hex } => {
                opened(data, file, &mut open)?.write_all_at(&from_hex(&hex)?, offset)?;
            }
            Work::Zeros { file, offset, zeros } => {
                let zeros = vec![0; usize::try_from(zeros)?];
                opened(data, file, &mut open)?.write_all_at(&zeros, offset)?;
            }
            Work::Spare { spare } => remove(&data.join(spare))?,
            Work::Count { erased } => count = erased,
            Work::Request { .. } => {}
        }
    }
    if let Some((_, file)) = open {
        file.sync_all()?;
    }
    remove(&path)?;
    Ok(count)
}

/// Returns the open file at `path`. If another file is open, it is flushed and closed.
fn opened<'a>(
    data: &Path,
    path: PathBuf,
    open: &'a mut Option<(PathBuf, File)>,
) -> anyhow::Result<&'a File> {
    let last = open.take_if(|(last, _)| *last != path);
    if let Some((_, last)) = last {
        last.sync_all()?;
    }
    if open.is_none() {
        let file = OpenOptions::new().write(true).open(data.join(&path));
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        *open = Some((path, file));
    }
    open.as_ref().map(|(_, file)| file).context("no file is open")
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => sync_directory(path),
    }
}

/// Flushes the directory that contains `path`.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

fn from_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    let byte = |pair: &[u8]| {
        let text = str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    text.as_bytes().chunks(2).map(byte).collect::<Option<_>>().context("no hexadecimal digits")
}
