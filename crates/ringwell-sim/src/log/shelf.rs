//! The snapshots that the simulated servers keep beside the log.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use ringwell_driver::store::{Shelf, Unreached};

use super::fault::LogFault;
use super::servers::{Shared, lock};
use crate::random::Random;

/// One shard's snapshots as they are on the servers.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    parts: BTreeMap<u64, Bytes>,
    newest_index: Option<u64>,
    added: u64,
    /// Whether a part has ever been damaged.
    pub(super) has_rotted: bool,
}

impl Snapshots {
    fn add(&mut self, part: Bytes, is_index: bool) -> u64 {
        self.added += 1;
        self.parts.insert(self.added, part);
        if is_index {
            self.newest_index = Some(self.added);
        }
        self.added
    }

    /// Flips one bit of a part.
    pub(super) fn rot(&mut self, random: &mut Random) {
        let at = random.index(self.parts.len().max(1));
        let part = self.parts.iter_mut().nth(at).filter(|(_, part)| !part.is_empty());
        let Some((_, part)) = part else { return };
        self.has_rotted = true;
        let mut bytes = part.to_vec();
        let place = random.index(bytes.len());
        bytes[place] ^= 1 << random.below(8);
        *part = bytes.into();
    }
}

/// The number of leaders that a look-up tries.
const LEADERS: usize = 2;

/// A process's access to the snapshots of one shard.
pub(super) struct SimShelf {
    pub(super) servers: Shared,
    pub(super) shard: usize,
}

impl fmt::Debug for SimShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimShelf").field("shard", &self.shard).finish_non_exhaustive()
    }
}

impl SimShelf {
    fn change<T>(&self, change: impl FnOnce(&mut Snapshots) -> T) -> Result<T, Unreached> {
        let mut servers = lock(&self.servers);
        servers.streams[self.shard].check_exists()?;
        let fails = servers.strikes.strikes(LogFault::Shelf);
        let is_done = !fails || servers.strikes.stream(LogFault::Shelf).chance(500_000);
        let done = is_done.then(|| change(&mut servers.snapshots[self.shard]));
        done.filter(|_| !fails).ok_or_else(|| Unreached("no answer".to_owned()))
    }
}

impl Shelf for SimShelf {
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
