//! Watches certificate files: a thread checks them regularly, so that they are reread after a
//! change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

/// The interval between two checks of the files.
const LOOK: Duration = Duration::from_secs(2);

/// Watches files until this value is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The thread ends when this sender is dropped.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A file's modification time and length.
type Stamp = Option<(SystemTime, u64)>;

/// The modification times and lengths of some files. Must be recorded before the files are read.
#[derive(Debug)]
pub(crate) struct Stamps(Vec<(PathBuf, Stamp)>);

impl Stamps {
    pub(crate) fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(paths.into_iter().map(|path| (path.clone(), stamp(&path))).collect())
    }

    /// Whether a file has changed since the last call.
    fn have_changed(&mut self) -> bool {
        let mut have_changed = false;
        for (path, seen) in &mut self.0 {
            let now = stamp(path);
            have_changed |= now != *seen;
            *seen = now;
        }
        have_changed
    }
}

impl Watched {
    /// Calls `changed` whenever one of the files has changed.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn begin(
        mut files: Stamps,
        mut changed: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (ends, ended) = channel();
        let watch = move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if files.have_changed() {
                    changed();
                }
            }
        };
        let thread = thread::Builder::new().name("certificate".to_owned()).spawn(watch)?;
        Ok(Self { ends: Some(ends), thread: Some(thread) })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // The thread is ending, so a panic in it has no consequences.
            let _ = thread.join();
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}
