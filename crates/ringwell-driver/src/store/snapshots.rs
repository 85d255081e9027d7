//! The snapshots of one shard, as files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwell_journal::{SnapshotError, SnapshotReader};

use super::files::{Access, FileError, Files, numbered, remove, rename};
use super::index::Shared;
use super::interface::Draft;

/// The number of snapshots that are kept. If the newest one cannot be read, the previous one is
/// used.
const KEPT: usize = 2;

/// A snapshot's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRef {
    /// The first frame to replay after the snapshot.
    pub replay_from: u64,
    /// The path of the snapshot's file.
    pub path: PathBuf,
}

/// Reads the bytes of a file for a [`SnapshotReader`].
pub type SnapshotSource = Box<dyn FnMut(&mut [u8]) -> Result<usize, FileError> + Send>;

/// A snapshot that is being written. If it is dropped without [`Self::publish`], it removes its
/// file. If the process is killed, the next startup removes the file.
#[derive(Debug)]
pub struct SnapshotFile<F: Files> {
    file: F::File,
    written: u64,
    is_published: bool,
    unfinished: PathBuf,
    replay_from: u64,
    shared: Arc<Shared<F>>,
}

/// Returns the snapshots in a shard's directory, newest first.
///
/// # Errors
/// [`FileError`]
pub fn list(files: &impl Files, directory: &Path) -> Result<Vec<SnapshotRef>, FileError> {
    let found = numbered(files, directory, "rps")?;
    let snapshot = |(replay_from, path)| SnapshotRef { replay_from, path };
    Ok(found.into_iter().rev().map(snapshot).collect())
}

/// Begins to read a snapshot.
///
/// # Errors
/// Returns [`SnapshotError`]; the caller then tries an older snapshot.
pub fn read<F: Files>(
    files: &F,
    snapshot: &SnapshotRef,
) -> Result<SnapshotReader<SnapshotSource>, SnapshotError<FileError>> {
    let opened = files.open(&snapshot.path, Access::Fresh);
    let file = opened.map_err(|source| SnapshotError::Read { offset: 0, source })?;
    let (files, mut offset) = (files.clone(), 0);
    let source: SnapshotSource = Box::new(move |out| {
        let got = files.read_at(&file, offset, out)?;
        offset += got as u64;
        Ok(got)
    });
    SnapshotReader::new(source)
}

impl<F: Files> SnapshotFile<F> {
    pub(super) fn create(shared: &Arc<Shared<F>>, replay_from: u64) -> Result<Self, FileError> {
        let unfinished = shared.directory.join(format!("{replay_from:020}.tmp"));
        if shared.files.exists(&unfinished) {
            shared.files.remove(&unfinished)?;
        }
        let file = shared.files.create(&unfinished)?;
        let (written, shared) = (0, Arc::clone(shared));
        Ok(Self { file, written, is_published: false, unfinished, replay_from, shared })
    }
}

impl<F: Files> Draft for SnapshotFile<F> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.shared.files.write_at(&mut self.file, self.written, bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn stored(&self) -> u64 {
        self.shared.index().next_n() - 1
    }

    /// Also removes all older snapshots except the previous one, and those that could not be read
    /// at startup.
    fn publish(mut self, through: u64) -> Result<(), FileError> {
        if self.shared.index().next_n() <= through {
            let refused = io::Error::other(format!("group {through} is not stored yet"));
            return Err(FileError::new("publish", &self.unfinished, refused));
        }
        let files = &self.shared.files;
        files.flush(&self.file)?;
        // After a power cut, the journal must still contain the last group that its newest snapshot
        // covers.
        self.shared.flush_cached(self.replay_from)?;
        let directory = &self.shared.directory;
        rename(files, &self.unfinished, &directory.join(format!("{:020}.rps", self.replay_from)))?;
        self.is_published = true;
        // A snapshot from the same position has replaced the unusable one.
        let mut unusable = self.shared.index().unusable.clone();
        unusable.retain(|from| *from != self.replay_from);
        let is_unusable = |old: &SnapshotRef| unusable.contains(&old.replay_from);
        let (unusable, mut snapshots): (Vec<_>, Vec<_>) =
            list(files, directory)?.into_iter().partition(is_unusable);
        for old in unusable.iter().chain(snapshots.iter().skip(KEPT)) {
            remove(files, &old.path)?;
        }
        snapshots.truncate(KEPT);
        let mut index = self.shared.index();
        index.snapshots = snapshots.iter().map(|snapshot| snapshot.replay_from).collect();
        index.unusable.clear();
        Ok(())
    }
}

impl<F: Files> Drop for SnapshotFile<F> {
    fn drop(&mut self) {
        if !self.is_published {
            // The unfinished file may have filled the disk. If the removal fails, the next startup
            // removes the file.
            let _ = self.shared.files.remove(&self.unfinished);
        }
    }
}
