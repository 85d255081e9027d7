//! Files that are ready to become segments. They were prepared by a thread or left over from
//! dropped segments.
//!
//! Overwriting existing blocks is 1.5 times as fast as extending a file. Preparing files in advance
//! also reveals a full disk before a group needs the space.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::aligned::AlignedBuffer;
use super::files::{Access, FileError, Files, numbered, remove, rename};
use crate::locks::lock;

/// The number of zero bytes that are written before each flush. It is small, so that a frame never
/// waits for a whole segment of zeros.
const FILL_BYTES: usize = 1 << 20;
/// The maximum number of spares in excess of the target (`wanted`). The extra spares are the files
/// of dropped segments. Once history has reached its limit, an old segment is dropped for each new
/// one, so no more files need to be filled.
const DROPPED_MAX: usize = 4;
/// The pause before the thread tries again to prepare a file, for example if the disk is full.
const RETRY: Duration = Duration::from_millis(250);

/// The spare files of one shard.
#[derive(Debug)]
pub struct Spares<F> {
    files: F,
    directory: PathBuf,
    segment_bytes: u64,
    wanted: usize,
    /// Whether new files stay sparse instead of being filled with zeros, as in the local copy of a
    /// log. Such a copy need not survive a power cut, and a machine that takes a shard over must
    /// not wait until zeros are written. A full disk is then detected only when a frame does not
    /// fit.
    is_sparse: bool,
    state: Mutex<SpareFiles>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SpareFiles {
    ready: Vec<PathBuf>,
    next_name: u64,
    closing: bool,
}

impl<F: Files> Spares<F> {
    /// Lists the existing spare files, and removes those that cannot be used.
    pub(super) fn open(
        files: F,
        directory: &Path,
        segment_bytes: u64,
        wanted: usize,
        is_sparse: bool,
    ) -> Result<Arc<Self>, FileError> {
        for (_, unfinished) in numbered(&files, directory, "tmp")? {
            remove(&files, &unfinished)?;
        }
        let mut state = SpareFiles { next_name: 1, ..SpareFiles::default() };
        for (name, path) in numbered(&files, directory, "spare")? {
            let bytes = len(&files, &path)?;
            state.next_name = name + 1;
            if bytes == segment_bytes && state.ready.len() < wanted + DROPPED_MAX {
                state.ready.push(path);
            } else {
                remove(&files, &path)?;
            }
        }
        Ok(Arc::new(Self {
            files,
            directory: directory.to_owned(),
            segment_bytes,
            wanted,
            is_sparse,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Returns a file for a new segment: a spare, or a newly prepared file if there is none.
    pub(super) fn take(&self) -> Result<PathBuf, FileError> {
        let ready = self.lock().ready.pop();
        self.changed.notify_all();
        match ready {
            Some(path) => Ok(path),
            None => self.make(),
        }
    }

    /// Puts an unused file back.
    pub(super) fn put_back(&self, path: PathBuf) {
        self.lock().ready.push(path);
    }

    /// Keeps the file of a dropped segment as a spare, or removes it if there are enough spares.
    pub(super) fn give(&self, dropped: &Path) -> Result<(), FileError> {
        let bytes = len(&self.files, dropped)?;
        let name = {
            let mut state = self.lock();
            let ready_max = self.wanted + DROPPED_MAX;
            let fits = bytes == self.segment_bytes && state.ready.len() < ready_max;
            fits.then(|| state.name(&self.directory))
        };
        let Some(name) = name else { return remove(&self.files, dropped) };
        rename(&self.files, dropped, &name)?;
        self.put_back(name);
        Ok(())
    }

    /// Ends [`Self::keep`].
    pub fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    /// Prepares one file if the number of spares is below the target.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn keep_one(&self) -> Result<(), FileError> {
        if self.lock().ready.len() < self.wanted {
            let made = self.make()?;
            self.put_back(made);
        }
        Ok(())
    }

    /// Prepares a file whenever the number of spares is below the target, until [`Self::close`] is
    /// called. Runs on a separate thread.
    pub fn keep(&self) {
        let mut state = self.lock();
        while !state.closing {
            if state.ready.len() >= self.wanted {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(state);
            let made = self.make();
            state = self.lock();
            match made {
                Ok(path) => state.ready.push(path),
                Err(error) => {
                    // A shutdown interrupts this.
                    if !error.is_full() && !state.closing {
                        tracing::error!(%error, "cannot prepare a segment; trying again");
                    }
                    let waited = self.changed.wait_timeout(state, RETRY);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Creates a file that contains only zeros. The file is durable unless `is_sparse` is set.
    fn make(&self) -> Result<PathBuf, FileError> {
        let path = self.lock().name(&self.directory);
        let unfinished = path.with_extension("tmp");
        let filled = self.fill(&unfinished);
        if filled.is_err() {
            // If the disk is full, the blocks of this file are needed for other files. If the
            // removal fails, the next startup repeats it.
            let _ = self.files.remove(&unfinished);
        }
        filled?;
        rename(&self.files, &unfinished, &path)?;
        Ok(path)
    }

    fn fill(&self, path: &Path) -> Result<(), FileError> {
        let files = &self.files;
        let made = files.create(path)?;
        if self.is_sparse {
            return files.set_len(&made, self.segment_bytes);
        }
        // Bypasses the page cache if possible, because the zeros are never read.
        let direct = files.open(path, Access::Direct);
        let mut file = direct.or_else(|_| files.open(path, Access::Write))?;
        let mut buffer = AlignedBuffer::default();
        let most = usize::try_from(self.segment_bytes).unwrap_or(FILL_BYTES).min(FILL_BYTES);
        let zeros = buffer.slice(most);
        let mut offset = 0;
        while offset < self.segment_bytes {
            if self.lock().closing {
                let interrupted = io::Error::from(io::ErrorKind::Interrupted);
                return Err(FileError::new("fill", path, interrupted));
            }
            let left = usize::try_from(self.segment_bytes - offset).unwrap_or(usize::MAX);
            let len = left.min(most);
            files.write_at(&mut file, offset, &zeros[..len])?;
            files.flush_data(&file)?;
            offset += len as u64;
        }
        files.flush(&made)?;
        // Drops the cached pages now. Otherwise, each later direct write would first have to drop
        // the pages that it overwrites.
        drop(files.open(path, Access::Fresh));
        files.flush_names(&self.directory)
    }

    fn lock(&self) -> MutexGuard<'_, SpareFiles> {
        lock(&self.state)
    }
}

fn len(files: &impl Files, path: &Path) -> Result<u64, FileError> {
    files.len(&files.open(path, Access::Read)?)
}

impl SpareFiles {
    fn name(&mut self, directory: &Path) -> PathBuf {
        let name = directory.join(format!("{:016}.spare", self.next_name));
        self.next_name += 1;
        name
    }
}
