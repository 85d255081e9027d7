//! The journal store of a server's shard. A separate thread writes the groups to files.
//!
//! Invariant: groups are stored in order and without gaps. After a failure, nothing more is stored,
//! unless the disk was full or no file descriptor was free.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::thread::{Builder, JoinHandle};

use ringwell_core::Millis;
use ringwell_driver::store::{
    self, Appended, FileError, Frames, JournalReader, Part, SnapshotFile, Spares, Stats, Store,
};
use ringwell_journal::{Clocks, Group};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::OsFiles;

/// One shard's journal, open for new groups.
#[derive(Debug)]
pub struct Journal {
    handle: Arc<store::Journal<OsFiles>>,
    groups: Sender<Group>,
    /// The results of storing the groups, in group order.
    appended: RefCell<UnboundedReceiver<Appended>>,
    spares: Arc<Spares<OsFiles>>,
    flusher: Vec<JoinHandle<()>>,
    filler: Vec<JoinHandle<()>>,
}

/// The thread that stores groups. It writes and flushes one frame at a time.
struct Flusher {
    journal: Arc<store::Journal<OsFiles>>,
    frames: Frames<OsFiles>,
    appended: UnboundedSender<Appended>,
}

impl Journal {
    /// Starts the threads that store the groups of `shard`.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn start(journal: store::InlineJournal<OsFiles>, shard: u16) -> Result<Self, FileError> {
        let (journal, frames) = journal.into_parts();
        let journal = Arc::new(journal);
        let spares = Arc::clone(journal.spares());
        let directory = journal.directory().to_owned();
        let failed = |action| {
            let directory = &directory;
            move |error| FileError::new(action, directory, error)
        };
        let filling = Arc::clone(&spares);
        let filler = Builder::new()
            .name("journal-spares".to_owned())
            .spawn(move || filling.keep())
            .map_err(failed("start the thread that prepares segments in"))?;
        let (groups, receiver) = channel();
        let (sender, appended) = unbounded_channel();
        let flusher = Flusher { journal: Arc::clone(&journal), frames, appended: sender };
        let flusher = Builder::new()
            .name(format!("journal-{shard}"))
            .spawn(move || flusher.run(&receiver))
            .map_err(failed("start the thread that writes the journal in"))?;
        let (flusher, filler) = (vec![flusher], vec![filler]);
        Ok(Self {
            handle: journal,
            groups,
            appended: RefCell::new(appended),
            spares,
            flusher,
            filler,
        })
    }

    /// Stores the groups in progress and ends the threads, unless this was done before.
    fn end(&mut self) -> Result<(), String> {
        // The thread stores groups until the sender is dropped.
        self.groups = channel().0;
        let flusher = join(&mut self.flusher);
        self.spares.close();
        let filler = join(&mut self.filler);
        flusher.and(filler)
    }

    fn poll_appended(&self, cx: &mut Context<'_>) -> Poll<Appended> {
        let ended = || Appended::Failed("the journal's thread has ended".to_owned());
        self.appended.borrow_mut().poll_recv(cx).map(|appended| appended.unwrap_or_else(ended))
    }
}

impl Store for Journal {
    type Reader = JournalReader<OsFiles>;
    type Draft = SnapshotFile<OsFiles>;

    fn append(&self, group: Group) -> impl Future<Output = Appended> {
        // If the thread has ended, the channel of results is closed too. The next poll of that
        // channel reports this.
        drop(self.groups.send(group));
        poll_fn(|cx| self.poll_appended(cx))
    }

    fn reader(&self) -> JournalReader<OsFiles> {
        self.handle.reader()
    }

    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        self.handle.expired(now, clocks)
    }

    fn waits_for_snapshot(&self) -> bool {
        self.handle.waits_for_snapshot()
    }

    async fn drop_part(&self, part: Part) -> Result<(), FileError> {
        let Some(dropped) = self.handle.drop_segment(part) else { return Ok(()) };
        let (done, put_away) = oneshot::channel();
        // Flushing the directory is slow, so a separate thread does it. This blocks neither the
        // current thread nor the thread that stores groups.
        let thread = Builder::new().name("journal-drop".to_owned());
        let spawned = thread.spawn(move || drop(done.send(dropped.put_away())));
        if let Err(error) = spawned {
            return Err(FileError::new("start a thread for", self.handle.directory(), error));
        }
        // If there is no answer, the thread has panicked. The next startup reuses or removes the
        // segment's file.
        put_away.await.unwrap_or(Ok(()))
    }

    fn draft(&self, replay_from: u64) -> Result<SnapshotFile<OsFiles>, FileError> {
        self.handle.create_snapshot(replay_from)
    }

    fn identity(&self) -> [u8; 16] {
        self.handle.id()
    }

    fn stats(&self) -> Stats {
        self.handle.stats()
    }

    fn close(mut self) -> Result<(), String> {
        self.end()?;
        self.handle.flush().map_err(|error| error.to_string())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // `close` reports a panic.
        let _ = self.end();
    }
}

fn join(threads: &mut Vec<JoinHandle<()>>) -> Result<(), String> {
    let panicked = |_| "a thread of the journal has panicked".to_owned();
    threads.drain(..).try_for_each(|thread| thread.join().map_err(panicked))
}

impl Deref for Journal {
    type Target = store::Journal<OsFiles>;

    fn deref(&self) -> &Self::Target {
        &self.handle
    }
}

impl Flusher {
    /// Stores groups until the sender is dropped.
    fn run(mut self, groups: &Receiver<Group>) {
        for group in groups {
            let appended = self.store(group);
            // If there is no receiver, the shard's thread has ended.
            let _ = self.appended.send(appended);
        }
    }

    fn store(&mut self, group: Group) -> Appended {
        match self.frames.store(&group) {
            Ok(()) => Appended::Stored { spare: group.body },
            Err(error) if error.is_full() => {
                self.journal.note_full();
                Appended::Full { group, error: error.to_string() }
            }
            Err(error) => Appended::Failed(error.to_string()),
        }
    }
}
