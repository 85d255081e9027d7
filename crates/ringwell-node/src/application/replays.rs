//! The accepted pushes. A push that is older than the newest accepted push for the same pool is
//! refused, because it may be a copy of an earlier push.
//!
//! When the process ends, it loses the times of all accepted pushes except the newest time, which
//! is stored in a file. After a restart, a push must be newer than the time in the file. Invariant:
//! a push is accepted only after its time was recorded in the file.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringwell_core::PoolId;

use crate::disk::{FileError, OsFiles, write_whole};

/// The largest allowed difference between a request's timestamp and this machine's clock. Copies of
/// older requests are refused even if no later push for the pool is known.
pub(super) const SECONDS_MAX: u64 = 300;

/// The maximum number of pools whose newest push is remembered. Beyond this number, old entries are
/// dropped. If there are no old entries, all entries are dropped. A push must then be newer than
/// the newest push accepted for any pool.
const POOLS_MAX: usize = 100_000;

/// The times of accepted pushes for each pool.
#[derive(Debug)]
pub(super) struct Replays {
    /// `None` if the newest time is not stored in a file.
    file: Option<PathBuf>,
    /// A push for a pool that is not remembered must be newer than this time.
    floor: u64,
    /// The time of the newest accepted push.
    newest: u64,
    pools: HashMap<PoolId, Newest>,
    /// The number of pushes that this process has accepted.
    count: u64,
    /// The value of `count` when entries for pools were last dropped.
    forgotten_at: u64,
}

/// The newest push for a pool.
#[derive(Debug)]
struct Newest {
    seconds: u64,
    /// The value of `Replays::count` when the push was last accepted.
    count: u64,
    /// The signatures of the accepted pushes with the time `seconds`, in order of arrival.
    signatures: Vec<Vec<u8>>,
}

impl Replays {
    /// Reads the newest time from the file in the data directory, if the file exists.
    ///
    /// A file that cannot be read is treated as if it contained `now`.
    pub(super) fn open(data: Option<&Path>, now: u64) -> Self {
        let file = data.map(|data| data.join("webhook-time"));
        let floor = match file.as_ref().map(fs::read_to_string) {
            None => 0,
            Some(Ok(text)) => text.trim().parse().unwrap_or(now),
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Some(Err(_)) => now,
        };
        Self { file, floor, newest: floor, pools: HashMap::new(), count: 0, forgotten_at: 0 }
    }

    /// Returns whether a push with the time `seconds` is accepted, and records each accepted push.
    /// The newest push for a pool is accepted again, because its sender may not have received the
    /// answer.
    ///
    /// # Errors
    /// Returns a [`FileError`] if the push cannot be recorded.
    pub(super) fn take(
        &mut self,
        pool: PoolId,
        seconds: u64,
        signature: &[u8],
        now: u64,
    ) -> Result<bool, FileError> {
        match self.pools.get_mut(&pool) {
            None if seconds <= self.floor => return Ok(false),
            Some(known) if seconds < known.seconds => return Ok(false),
            Some(known) if seconds == known.seconds => {
                let place = known.signatures.iter().position(|other| other == signature);
                let is_last = place.is_none_or(|place| place + 1 == known.signatures.len());
                if place.is_none() {
                    known.signatures.push(signature.to_owned());
                }
                if is_last {
                    self.count += 1;
                    known.count = self.count;
                }
                return Ok(is_last);
            }
            None | Some(_) => {}
        }
        if seconds > self.newest {
            if let Some(file) = &self.file {
                write_whole(&OsFiles, file, format!("{seconds}\n").as_bytes())?;
            }
            self.newest = seconds;
        }
        if self.pools.len() >= POOLS_MAX {
            // Pushes that are older than `SECONDS_MAX` are refused because of their timestamps
            // anyway.
            self.pools.retain(|_, known| known.seconds + SECONDS_MAX >= now);
        }
        if self.pools.len() >= POOLS_MAX {
            self.floor = self.newest;
            self.pools.clear();
            self.forgotten_at = self.count;
        }
        self.count += 1;
        let signatures = vec![signature.to_owned()];
        self.pools.insert(pool, Newest { seconds, count: self.count, signatures });
        Ok(true)
    }

    /// The number of accepted pushes, to be passed to [`Self::has_newer`] later.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Whether a push for `pool` may have been accepted since [`Self::count`] returned `count`. If
    /// so, the answer to a request for `pool` that was sent after that call may be outdated.
    pub(super) fn has_newer(&self, pool: PoolId, count: u64) -> bool {
        self.pools.get(&pool).map_or(self.forgotten_at, |newest| newest.count) > count
    }
}

pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn took(replays: &mut Replays, pool: u64, seconds: u64, signature: &[u8]) -> bool {
        replays.take(PoolId(pool), seconds, signature, NOW).unwrap()
    }

    #[test]
    fn an_answer_is_outdated_by_a_later_push_for_its_pool_alone() {
        let mut replays = Replays::open(None, NOW);
        assert!(took(&mut replays, 1, NOW, b"a"));
        let then = replays.count();
        assert!(!replays.has_newer(PoolId(1), then) && !replays.has_newer(PoolId(2), then));
        assert!(took(&mut replays, 1, NOW, b"a"), "the same one again");
        assert!(replays.has_newer(PoolId(1), then) && !replays.has_newer(PoolId(2), then));
        assert!(!took(&mut replays, 2, 0, b"old"));
        assert!(!replays.has_newer(PoolId(2), then), "it was refused");
    }

    #[test]
    fn an_older_push_for_a_pool_is_refused_and_the_last_one_may_be_repeated() {
        let mut replays = Replays::open(None, NOW);
        assert!(took(&mut replays, 1, NOW, b"a") && took(&mut replays, 1, NOW, b"a"));
        assert!(took(&mut replays, 1, NOW, b"b"));
        assert!(!took(&mut replays, 1, NOW, b"a"), "an older one of the same second");
        assert!(took(&mut replays, 1, NOW, b"b"));
        assert!(!took(&mut replays, 1, NOW - 1, b"c"));
        assert!(took(&mut replays, 2, NOW - 1, b"c"), "another pool");
        assert!(took(&mut replays, 1, NOW + 1, b"d") && !took(&mut replays, 1, NOW, b"b"));
    }

    #[test]
    fn after_a_start_only_pushes_newer_than_all_before_are_accepted() {
        let data = tempfile::TempDir::new().unwrap();
        let mut replays = Replays::open(Some(data.path()), NOW);
        assert!(took(&mut replays, 1, NOW, b"a") && took(&mut replays, 2, NOW - 5, b"b"));
        let mut replays = Replays::open(Some(data.path()), NOW);
        for (pool, seconds) in [(1, NOW), (2, NOW - 5), (3, NOW)] {
            assert!(!took(&mut replays, pool, seconds, b"a"));
        }
        assert!(took(&mut replays, 3, NOW + 1, b"c"));
        fs::write(data.path().join("webhook-time"), "no number").unwrap();
        let mut replays = Replays::open(Some(data.path()), NOW + 9);
        assert!(!took(&mut replays, 1, NOW + 9, b"d") && took(&mut replays, 1, NOW + 10, b"d"));
    }

    #[test]
    fn more_pools_than_are_remembered_must_be_newer_than_all() {
        let mut replays = Replays::open(None, NOW);
        for pool in 0..=POOLS_MAX as u64 {
            assert!(took(&mut replays, pool, NOW, b"a"));
        }
        assert!(!took(&mut replays, 1, NOW, b"a") && took(&mut replays, 1, NOW + 1, b"a"));
    }
}
