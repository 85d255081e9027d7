//! One shard's snapshots, in a stream separate from the stream of its groups. The pieces of the
//! snapshots are published on one subject, and their indexes on another.

use std::future::Future;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringwell_driver::store::{SnapshotStore, Unreached};

use crate::stream::{Kind, Stream, WAIT_MAX};

/// The shortest interval between two attempts to find a lost message by changing the stream's
/// leader.
const OTHERS_EVERY: Duration = Duration::from_mins(1);

/// The streams of one shard.
#[derive(Debug)]
pub(crate) struct SnapshotStream {
    pub(crate) snapshots: Stream,
    pub(crate) groups: Stream,
    /// The last time when other servers were asked for a message that the leader lacks.
    asked_others_at: Mutex<Option<Instant>>,
}

impl SnapshotStream {
    pub(crate) fn new(snapshots: Stream, groups: Stream) -> Self {
        Self { snapshots, groups, asked_others_at: Mutex::default() }
    }

    /// Runs `work` on the thread that talks to the servers, and waits for it.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Unreached>> + Send + 'static,
    ) -> Result<T, Unreached> {
        let (done, output) = channel();
        self.snapshots.runtime().spawn(async move { drop(done.send(work.await)) });
        let waited = output.recv_timeout(WAIT_MAX);
        waited.unwrap_or_else(|_| Err(Unreached("no answer".to_owned())))
    }
}

impl SnapshotStore for SnapshotStream {
    fn add(&self, piece: Bytes) -> Result<u64, Unreached> {
        self.wait(self.snapshots.clone().add(Kind::Piece, piece))
    }

    fn add_index(&self, index: Bytes) -> Result<u64, Unreached> {
        self.wait(self.snapshots.clone().add(Kind::Index, index))
    }

    fn newest_index(&self) -> Result<Option<(u64, Bytes)>, Unreached> {
        self.wait(self.snapshots.clone().newest_index())
    }

    fn get(&self, at: u64) -> Result<Option<Bytes>, Unreached> {
        self.wait(self.snapshots.clone().read_now(at))
    }

    fn trim(&self, before: u64) -> Result<(), Unreached> {
        self.wait(self.snapshots.clone().trim_now(before))
    }

    fn message(&self, n: u64) -> Result<Option<Bytes>, Unreached> {
        self.wait(self.groups.clone().read_now(n))
    }

    fn message_elsewhere(&self, n: u64) -> Result<Option<Bytes>, Unreached> {
        let now = Instant::now();
        {
            let mut asked = self.asked_others_at.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.is_some_and(|at| now.duration_since(at) < OTHERS_EVERY) {
                return Ok(None);
            }
            *asked = Some(now);
        }
        self.wait(self.groups.clone().read_from_others(n))
    }

    fn log_bytes(&self) -> Result<u64, Unreached> {
        self.wait(self.groups.clone().bytes())
    }
}
