//! The segments of one shard as files: their names, and reading them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ringwell_journal::{SegmentFile, Segments};
use rustix::fs::{Advice, fadvise};

use super::file::{Context, FileError, read_at};

/// The segments in a directory, read only.
#[derive(Debug)]
pub struct SegmentFiles {
    directory: PathBuf,
    /// What the page cache holds of a file is forgotten before it is read: after a failed flush
    /// it may hold what the disk does not.
    from_disk: bool,
}

impl SegmentFiles {
    /// Reads what the operating system has, for looking at a journal.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, from_disk: false }
    }

    /// Reads what the disk has, for recovery.
    #[must_use]
    pub(super) fn from_disk(directory: PathBuf) -> Self {
        Self { directory, from_disk: true }
    }
}

impl Segments for SegmentFiles {
    type Error = FileError;

    fn list(&self) -> Result<Vec<SegmentFile>, FileError> {
        let numbered = numbered(&self.directory, "rpj")?;
        let file = |(segno, path): &(u64, PathBuf)| {
            let file = File::open(path).context("open", path)?;
            if self.from_disk {
                // Advice: where the file system ignores it, recovery reads from the cache.
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
            let bytes = file.metadata().context("look at", path)?.len();
            Ok(SegmentFile { segno: *segno, bytes })
        };
        numbered.iter().map(file).collect()
    }

    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, FileError> {
        let path = segment_path(&self.directory, segno);
        let file = File::open(&path).context("open", &path)?;
        read_at(&file, offset, out).context("read", &path)
    }
}

/// The file of a segment.
pub(super) fn segment_path(directory: &Path, segno: u64) -> PathBuf {
    directory.join(format!("{segno:016}.rpj"))
}

/// The files in `directory` whose names are a number and `extension`, lowest number first.
/// None if there is no such directory.
pub(super) fn numbered(
    directory: &Path,
    extension: &str,
) -> Result<Vec<(u64, PathBuf)>, FileError> {
    let mut found = Vec::new();
    if !directory.exists() {
        return Ok(found);
    }
    for entry in fs::read_dir(directory).context("list", directory)? {
        let path = entry.context("list", directory)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let number = stem.and_then(|stem| stem.parse().ok());
        if let Some(number) = number.filter(|_| path.extension().is_some_and(|e| e == extension)) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}
