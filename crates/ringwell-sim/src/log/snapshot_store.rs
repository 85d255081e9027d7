//! A process's access to the snapshots that are stored beside the simulated log, including the
//! faults of snapshots.

use std::fmt;

use bytes::Bytes;
use ringwell_driver::store::{SnapshotStore, Unreached};

use super::fault::LogFault;
use super::servers::{Shared, lock};
use super::snapshots::Snapshots;

/// The number of leaders that a look-up tries.
const LEADERS: usize = 2;

/// A process's access to the snapshots of one shard.
pub(super) struct SimSnapshots {
    pub(super) servers: Shared,
    pub(super) shard: usize,
}

impl fmt::Debug for SimSnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimSnapshots").field("shard", &self.shard).finish_non_exhaustive()
    }
}

impl SimSnapshots {
    fn change<T>(&self, change: impl FnOnce(&mut Snapshots) -> T) -> Result<T, Unreached> {
        let mut servers = lock(&self.servers);
        servers.streams[self.shard].check_exists()?;
        let fails = servers.strikes.strikes(LogFault::Snapshots);
        let is_done = !fails || servers.strikes.stream(LogFault::Snapshots).chance(500_000);
        let done = is_done.then(|| change(&mut servers.snapshots[self.shard]));
        done.filter(|_| !fails).ok_or_else(|| Unreached("no answer".to_owned()))
    }
}

impl SnapshotStore for SimSnapshots {
    fn add(&self, piece: Bytes) -> Result<u64, Unreached> {
        self.change(|snapshots| snapshots.add(piece, false))
    }

    fn add_index(&self, index: Bytes) -> Result<u64, Unreached> {
        self.change(|snapshots| snapshots.add(index, true))
    }

    fn newest_index(&self) -> Result<Option<(u64, Bytes)>, Unreached> {
        self.change(|snapshots| {
            let at = snapshots.newest_index?;
            Some((at, snapshots.parts.get(&at)?.clone()))
        })
    }

    fn get(&self, at: u64) -> Result<Option<Bytes>, Unreached> {
        self.change(|snapshots| snapshots.parts.get(&at).cloned())
    }

    fn trim(&self, before: u64) -> Result<(), Unreached> {
        self.change(|snapshots| snapshots.parts.retain(|at, _| *at >= before))
    }

    fn message(&self, n: u64) -> Result<Option<Bytes>, Unreached> {
        Ok(lock(&self.servers).streams[self.shard].leaders_message(n))
    }

    fn message_elsewhere(&self, n: u64) -> Result<Option<Bytes>, Unreached> {
        let mut servers = lock(&self.servers);
        for _ in 0..LEADERS {
            servers.change_leader(self.shard);
        }
        Ok(servers.streams[self.shard].leaders_message(n))
    }

    fn log_bytes(&self) -> Result<u64, Unreached> {
        Ok(lock(&self.servers).streams[self.shard].bytes())
    }
}
