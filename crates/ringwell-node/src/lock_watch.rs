//! Ends this process as soon as another process may be using the same data directory.
//!
//! While the node runs, owns the lock on the data directory and the thread that checks this lock.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::ServeError;
use crate::disk::DataLock;

/// The interval between two checks of the lock file.
const LOOK: Duration = Duration::from_secs(1);
/// The exit status of a process that has lost its lock.
const LOST: i32 = 1;

/// The lock on a data directory, and the thread that checks it. Released when dropped.
#[derive(Debug)]
pub(crate) struct LockWatch {
    /// The thread ends when this sender is dropped.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LockWatch {
    /// Takes the lock.
    ///
    /// # Errors
    /// Returns a [`ServeError`] if another process has the lock.
    pub(crate) fn begin(data: &Path) -> Result<Self, ServeError> {
        let lock = DataLock::acquire(data)?;
        let (ends, ended) = channel();
        let thread = thread::Builder::new()
            .name("lock".to_owned())
            .spawn(move || {
                while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    if !lock.is_held() {
                        tracing::error!(
                            "{} was removed or replaced, so another process may be using this \
                             data directory: exiting immediately",
                            lock.path().display()
                        );
                        // Exits without draining, because another process may already have answered
                        // the rows in progress.
                        std::process::exit(LOST);
                    }
                }
            })
            .map_err(ServeError::Thread)?;
        Ok(Self { ends: Some(ends), thread: Some(thread) })
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // The lock is released no matter how the thread ended.
            let _ = thread.join();
        }
    }
}
