//! The journal of a shard whose groups are stored by a thread of their own.
//!
//! Invariant: groups are stored in order without gaps. On a full disk, or without a file
//! descriptor, the group waits and is tried again; after any other failure nothing is stored any
//! more.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use ringwell_driver::store::{self, FileError, Frames, Spares};
use ringwell_journal::Group;

use crate::OsFiles;

/// How long a group waits on a full disk before it is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// What became of a group.
#[derive(Debug)]
pub enum Flushed {
    /// It and all before it are as durable as configured: answers may leave.
    Stored {
        /// The group.
        n: u64,
        /// Its body, to gather another group in.
        spare: Vec<u8>,
    },
    /// The disk is full, or no more files can be opened. The group waits and is tried again; said
    /// once until it is stored.
    Full {
        /// The group.
        n: u64,
    },
    /// Nothing is stored any more until the process starts again; said once.
    Failed {
        /// The group.
        n: u64,
        /// What went wrong with which file.
        error: String,
    },
}

/// Called by the journal's thread with each result, in order.
pub type OnFlushed = Box<dyn FnMut(Flushed) + Send>;

/// One shard's journal, open for storing groups.
#[derive(Debug)]
pub struct Journal {
    journal: Arc<store::Journal<OsFiles>>,
    /// `None` if groups are kept in memory.
    threads: Option<Threads>,
}

/// What stores groups in files.
#[derive(Debug)]
struct Threads {
    groups: Sender<Group>,
    flusher: JoinHandle<Option<u64>>,
    spares: Arc<Spares<OsFiles>>,
    filler: JoinHandle<()>,
    closing: Arc<AtomicBool>,
}

/// The thread that stores groups: one frame is written and flushed at a time.
struct Flusher {
    journal: Arc<store::Journal<OsFiles>>,
    frames: Frames<OsFiles>,
    on_flushed: OnFlushed,
    /// No more waiting on a full disk.
    closing: Arc<AtomicBool>,
}

/// Groups that were submitted and are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// The disk was full, or had failed before.
    #[error("group {0} and those after it are not stored")]
    Lost(u64),
    /// A thread of the journal has panicked: see the log.
    #[error("a thread of the journal has panicked")]
    Panicked,
}

impl Journal {
    /// Starts the threads that store the groups of `shard`.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn start(
        journal: store::InlineJournal<OsFiles>,
        shard: u16,
        on_flushed: OnFlushed,
    ) -> Result<Self, FileError> {
        let (journal, frames) = journal.into_parts();
        let journal = Arc::new(journal);
        let Some((frames, spares)) = frames.zip(journal.spares().cloned()) else {
            return Ok(Self { journal, threads: None });
        };
        let directory = journal.directory().to_owned();
        let failed = |action| {
            let directory = &directory;
            move |error| FileError::new(action, directory, error)
        };
        let filling = Arc::clone(&spares);
        let filler = Builder::new()
            .name("journal-spares".to_owned())
            .spawn(move || filling.keep())
            .map_err(failed("start the thread that fills"))?;
        let (groups, receiver) = channel();
        let closing = Arc::new(AtomicBool::new(false));
        let flusher = Flusher {
            journal: Arc::clone(&journal),
            frames,
            on_flushed,
            closing: Arc::clone(&closing),
        };
        let flusher = Builder::new()
            .name(format!("journal-{shard}"))
            .spawn(move || flusher.run(&receiver))
            .map_err(failed("start the thread that stores in"))?;
        let threads = Some(Threads { groups, flusher, spares, filler, closing });
        Ok(Self { journal, threads })
    }

    /// Hands over a group to be stored; never blocks. At most one should be on its way: the next
    /// one gathers meanwhile.
    ///
    /// Returns what became of it if that is known at once: in memory, or if the journal's thread
    /// is gone. Otherwise the function given at the start is called.
    #[must_use]
    pub fn submit(&self, group: Group) -> Option<Flushed> {
        let n = group.header.n;
        let Some(threads) = &self.threads else {
            self.journal.keep(group);
            return Some(Flushed::Stored { n, spare: Vec::new() });
        };
        threads
            .groups
            .send(group)
            .err()
            .map(|_| Flushed::Failed { n, error: "the journal's thread has panicked".to_owned() })
    }

    /// Stores what was submitted and ends the threads.
    ///
    /// # Errors
    /// [`CloseError`]: some groups are not stored, and their answers must not leave.
    pub fn close(mut self) -> Result<(), CloseError> {
        self.threads.take().map_or(Ok(()), Threads::end)
    }
}

impl Deref for Journal {
    type Target = store::Journal<OsFiles>;

    fn deref(&self) -> &Self::Target {
        &self.journal
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // Whoever wants to know what was stored calls `close`, or hears it from the callback.
            let _ = threads.end();
        }
    }
}

impl Threads {
    fn end(self) -> Result<(), CloseError> {
        drop(self.groups);
        self.closing.store(true, Ordering::Release);
        self.flusher.thread().unpark();
        let lost = self.flusher.join().map_err(|_| CloseError::Panicked);
        self.spares.close();
        self.filler.join().map_err(|_| CloseError::Panicked)?;
        lost?.map_or(Ok(()), |n| Err(CloseError::Lost(n)))
    }
}

impl Flusher {
    /// Stores groups until there are no more; returns the first that could not be stored.
    fn run(mut self, groups: &Receiver<Group>) -> Option<u64> {
        let mut lost = None;
        for group in groups {
            let n = group.header.n;
            if lost.is_none() && !self.store(group) {
                lost = Some(n);
            }
        }
        lost
    }

    /// Returns whether the group is stored.
    fn store(&mut self, group: Group) -> bool {
        let n = group.header.n;
        let mut waiting = false;
        loop {
            match self.frames.store(&group) {
                Ok(()) => {
                    (self.on_flushed)(Flushed::Stored { n, spare: group.body });
                    return true;
                }
                Err(error) if error.is_full() && !self.closing.load(Ordering::Acquire) => {
                    if !waiting {
                        tracing::error!(
                            %error,
                            "the disk is full, or no more files can be opened: the journal waits"
                        );
                        self.journal.note_full();
                        (self.on_flushed)(Flushed::Full { n });
                        waiting = true;
                    }
                    std::thread::park_timeout(RETRY);
                }
                Err(error) => {
                    tracing::error!(%error, "the journal failed: nothing more is stored");
                    self.journal.note_failed();
                    (self.on_flushed)(Flushed::Failed { n, error: error.to_string() });
                    return false;
                }
            }
        }
    }
}
