//! Files that wait to become segments: made ahead by a thread, or left over from dropped ones.
//!
//! Writing over blocks that exist is half again as fast as making a file grow, and a disk that
//! fills up is met here, before a group needs the room.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use super::buffer::AlignedBuffer;
use super::file::{
    Context, FileError, create, open_direct, refuses_direct, remove, rename, sync_directory,
};
use super::segments::numbered;

/// Written and flushed at once, so that a frame never waits behind a whole segment of zeros.
const FILL_BYTES: usize = 1 << 20;
/// Files of dropped segments that are kept beyond those that are wanted. Once history is as long
/// as it may be, each new segment drops an old one, and nothing needs to be filled any more.
const DROPPED_MAX: usize = 4;
/// How long the thread waits before it tries again on a full disk.
const RETRY: Duration = Duration::from_millis(250);

/// The spares of one shard.
#[derive(Debug)]
pub(super) struct Spares {
    directory: PathBuf,
    segment_bytes: u64,
    wanted: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: Vec<PathBuf>,
    next_name: u64,
    closing: bool,
}

impl Spares {
    /// Takes stock of the files that are there; removes those that cannot be used.
    pub(super) fn open(
        directory: &Path,
        segment_bytes: u64,
        wanted: usize,
    ) -> Result<Arc<Self>, FileError> {
        for (_, unfinished) in numbered(directory, "tmp")? {
            remove(&unfinished)?;
        }
        let mut state = State { next_name: 1, ..State::default() };
        for (name, path) in numbered(directory, "spare")? {
            let bytes = fs::metadata(&path).context("look at", &path)?.len();
            state.next_name = name + 1;
            if bytes == segment_bytes && state.ready.len() < wanted + DROPPED_MAX {
                state.ready.push(path);
            } else {
                remove(&path)?;
            }
        }
        Ok(Arc::new(Self {
            directory: directory.to_owned(),
            segment_bytes,
            wanted,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Starts the thread that keeps as many spares as are wanted.
    pub(super) fn start(self: &Arc<Self>) -> Result<JoinHandle<()>, FileError> {
        let spares = Arc::clone(self);
        std::thread::Builder::new()
            .name("journal-spares".to_owned())
            .spawn(move || spares.keep())
            .context("start the thread that fills", &self.directory)
    }

    /// A file to be used as a segment: a spare, or one made now.
    pub(super) fn take(&self) -> Result<PathBuf, FileError> {
        let ready = self.lock().ready.pop();
        self.changed.notify_all();
        match ready {
            Some(path) => Ok(path),
            None => self.make(),
        }
    }

    /// Puts back a file that was taken and not used.
    pub(super) fn put_back(&self, path: PathBuf) {
        self.lock().ready.push(path);
    }

    /// Keeps the file of a dropped segment as a spare, or removes it if there are enough.
    pub(super) fn give(&self, dropped: &Path) -> Result<(), FileError> {
        let bytes = fs::metadata(dropped).context("look at", dropped)?.len();
        let name = {
            let mut state = self.lock();
            let ready_max = self.wanted + DROPPED_MAX;
            let fits = bytes == self.segment_bytes && state.ready.len() < ready_max;
            fits.then(|| state.name(&self.directory))
        };
        let Some(name) = name else { return remove(dropped) };
        rename(dropped, &name)?;
        self.put_back(name);
        Ok(())
    }

    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    fn keep(&self) {
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
                    // A stop ends it in the middle.
                    if !error.is_full() && !state.closing {
                        tracing::error!(%error, "cannot make a segment ahead; trying again");
                    }
                    let waited = self.changed.wait_timeout(state, RETRY);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Makes a file full of zeros, durably.
    fn make(&self) -> Result<PathBuf, FileError> {
        let path = self.lock().name(&self.directory);
        let unfinished = path.with_extension("tmp");
        let filled = self.fill(&unfinished);
        if filled.is_err() {
            // On a full disk its blocks are needed elsewhere; if this fails, the next start does.
            let _ = fs::remove_file(&unfinished);
        }
        filled?;
        rename(&unfinished, &path)?;
        Ok(path)
    }

    fn fill(&self, path: &Path) -> Result<(), FileError> {
        let file: File = create(path)?;
        // Past the page cache, where that can be done: nobody reads what is written here.
        let mut direct = open_direct(path).ok();
        let mut buffer = AlignedBuffer::default();
        let zeros = buffer.slice(FILL_BYTES);
        let mut offset = 0;
        while offset < self.segment_bytes {
            if self.lock().closing {
                return Err(io::Error::from(io::ErrorKind::Interrupted)).context("fill", path);
            }
            let left = usize::try_from(self.segment_bytes - offset).unwrap_or(usize::MAX);
            let len = left.min(FILL_BYTES);
            if let Some(past_cache) = &direct {
                match past_cache.write_all_at(&zeros[..len], offset) {
                    Err(error) if refuses_direct(&error) => {
                        direct = None;
                        continue;
                    }
                    written => written.context("fill", path)?,
                }
            } else {
                file.write_all_at(&zeros[..len], offset).context("fill", path)?;
                file.sync_data().context("flush", path)?;
            }
            offset += len as u64;
        }
        file.sync_all().context("flush", path)?;
        // Advice only. A direct write over cached pages has to drop them first.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        sync_directory(&self.directory)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each step leaves the list whole, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn name(&mut self, directory: &Path) -> PathBuf {
        let name = directory.join(format!("{:016}.spare", self.next_name));
        self.next_name += 1;
        name
    }
}
