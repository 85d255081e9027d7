//! One shard's snapshots, in a stream beside its groups: pieces on one subject, indexes on another.

use std::future::Future;
use std::sync::mpsc::channel;

use bytes::Bytes;
use ringwell_driver::store::{Shelf, Unreached};

use crate::stream::{Kind, Stream, WAIT_MAX};

/// The streams of one shard.
#[derive(Debug)]
pub(crate) struct SnapshotStream {
    pub(crate) snapshots: Stream,
    pub(crate) groups: Stream,
}

impl SnapshotStream {
    /// Runs on the thread that talks to the servers, and waits for it.
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

impl Shelf for SnapshotStream {
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

    fn log_bytes(&self) -> Result<u64, Unreached> {
        self.wait(self.groups.clone().bytes())
    }
}
