//! The segments of one shard as files: how they are named and read.

use std::path::{Path, PathBuf};

use ringwell_journal::{SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, Segments};

use super::files::{Access, FileError, Files, numbered};
use super::identity::FoundJournal;

/// The segments in a directory, for reading only.
#[derive(Debug)]
pub struct SegmentFiles<F> {
    files: F,
    directory: PathBuf,
    /// The way in which the files are opened.
    access: Access,
}

impl<F: Files> SegmentFiles<F> {
    /// Creates a reader of the data that the operating system has cached, for inspecting a journal.
    #[must_use]
    pub fn new(files: F, directory: PathBuf) -> Self {
        Self { files, directory, access: Access::Read }
    }

    /// Creates a reader of the data that is on the disk, for recovery.
    #[must_use]
    pub(super) fn from_disk(files: F, directory: PathBuf) -> Self {
        Self { files, directory, access: Access::Fresh }
    }
}

impl<F: Files> Segments for SegmentFiles<F> {
    type Error = FileError;

    fn list(&self) -> Result<Vec<SegmentFile>, FileError> {
        let numbered = numbered(&self.files, &self.directory, "rpj")?;
        let file = |(segno, path): &(u64, PathBuf)| {
            let file = self.files.open(path, self.access)?;
            Ok(SegmentFile { segno: *segno, bytes: self.files.len(&file)? })
        };
        numbered.iter().map(file).collect()
    }

    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, FileError> {
        let path = segment_path(&self.directory, segno);
        let file = self.files.open(&path, Access::Read)?;
        self.files.read_at(&file, offset, out)
    }
}

/// Returns the path of a segment's file.
#[must_use]
pub fn segment_path(directory: &Path, segno: u64) -> PathBuf {
    directory.join(format!("{segno:016}.rpj"))
}

/// Identifies the journal in a shard's directory from the headers of its segments. Returns `None`
/// if no header can be read.
///
/// # Errors
/// [`FileError`]
pub fn journal_found(
    files: &impl Files,
    directory: &Path,
) -> Result<Option<FoundJournal>, FileError> {
    let mut heads = Vec::new();
    for (_, path) in numbered(files, directory, "rpj")? {
        let mut block = [0; SEGMENT_HEADER_BYTES];
        let file = files.open(&path, Access::Read)?;
        let got = files.read_at(&file, 0, &mut block)?;
        heads.extend(SegmentHeader::decode(&block[..got]));
    }
    Ok(FoundJournal::of(heads.iter()))
}
