//! Snapshots of one shard as files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwell_journal::{Durability, SnapshotError, SnapshotReader};
use rustix::fs::{Advice, fadvise};

use super::file::{Context, FileError, create, open_write, remove, rename};
use super::index::{Kept, Shared};
use super::segments::{numbered, segment_path};

/// How many are kept: if the newest cannot be read, the one before it is used.
const KEPT: usize = 2;

/// A snapshot's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRef {
    /// The first frame to replay on it.
    pub replay_from: u64,
    /// Where it lies.
    pub path: PathBuf,
}

/// Feeds a [`SnapshotReader`] from a file.
pub type SnapshotSource = Box<dyn FnMut(&mut [u8]) -> Result<usize, FileError> + Send>;

/// A snapshot that is being written. Dropped without [`Self::publish`] its file is removed; after
/// a kill the next start does that.
#[derive(Debug)]
pub struct SnapshotFile {
    file: File,
    is_published: bool,
    unfinished: PathBuf,
    replay_from: u64,
    shared: Arc<Shared>,
}

/// The snapshots in a shard's directory, newest first.
///
/// # Errors
/// [`FileError`]
pub fn list(directory: &Path) -> Result<Vec<SnapshotRef>, FileError> {
    let found = numbered(directory, "rps")?;
    let snapshot = |(replay_from, path)| SnapshotRef { replay_from, path };
    Ok(found.into_iter().rev().map(snapshot).collect())
}

/// Begins to read a snapshot.
///
/// # Errors
/// [`SnapshotError`]: take an older one.
pub fn read(
    snapshot: &SnapshotRef,
) -> Result<SnapshotReader<SnapshotSource>, SnapshotError<FileError>> {
    let path = snapshot.path.clone();
    let opened = File::open(&path).context("open", &path);
    let mut file = opened.map_err(|source| SnapshotError::Read { offset: 0, source })?;
    // Advice only: forget what the page cache holds, and read ahead.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let _ = fadvise(&file, 0, None, Advice::Sequential);
    let source: SnapshotSource = Box::new(move |out| {
        loop {
            match file.read(out) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.context("read", &path),
            }
        }
    });
    SnapshotReader::new(source)
}

impl SnapshotFile {
    pub(super) fn create(shared: &Arc<Shared>, replay_from: u64) -> Result<Self, FileError> {
        let unfinished = shared.directory.join(format!("{replay_from:020}.tmp"));
        if matches!(*shared.kept(), Kept::Memory(_)) {
            let refused = Err(io::Error::from(io::ErrorKind::Unsupported));
            return refused.context("keep a snapshot of a journal in memory as", &unfinished);
        }
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("remove", &unfinished)?;
            }
            _ => {}
        }
        let file = create(&unfinished)?;
        Ok(Self { file, is_published: false, unfinished, replay_from, shared: Arc::clone(shared) })
    }

    /// Appends bytes that the snapshot writer has made.
    ///
    /// # Errors
    /// [`FileError`]; the snapshot cannot be published then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).context("write", &self.unfinished)
    }

    /// Makes the snapshot the newest one, durably, and removes all but one older.
    ///
    /// `through` is the last group of which it may know something; that must be stored.
    ///
    /// # Errors
    /// [`FileError`]; the older snapshots are still there then.
    pub fn publish(mut self, through: u64) -> Result<(), FileError> {
        if self.shared.kept().next_n() <= through {
            let refused = Err(io::Error::other(format!("group {through} is not stored yet")));
            return refused.context("publish", &self.unfinished);
        }
        self.file.sync_all().context("flush", &self.unfinished)?;
        self.sync_journal()?;
        let directory = &self.shared.directory;
        rename(&self.unfinished, &directory.join(format!("{:020}.rps", self.replay_from)))?;
        self.is_published = true;
        let mut snapshots = list(directory)?;
        for old in snapshots.iter().skip(KEPT) {
            remove(&old.path)?;
        }
        snapshots.truncate(KEPT);
        if let Kept::Files(index) = &mut *self.shared.kept() {
            index.snapshots = snapshots.iter().map(|snapshot| snapshot.replay_from).collect();
        }
        Ok(())
    }

    /// The journal must never end before its newest snapshot: where groups are only with the
    /// operating system, those that the snapshot builds on are flushed now.
    fn sync_journal(&self) -> Result<(), FileError> {
        if self.shared.settings.durability != Durability::Os {
            return Ok(());
        }
        let newer: Vec<u64> = match &*self.shared.kept() {
            Kept::Files(index) => {
                let newer = index.segments.iter().filter(|info| info.next_n >= self.replay_from);
                newer.map(|info| info.header.segno).collect()
            }
            Kept::Memory(_) => Vec::new(),
        };
        for segno in newer {
            let path = segment_path(&self.shared.directory, segno);
            open_write(&path)?.sync_data().context("flush", &path)?;
        }
        Ok(())
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if !self.is_published {
            // Its room may be what is missing. If this fails, the next start removes it.
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}
