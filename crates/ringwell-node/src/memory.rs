//! The limit on the process's memory, and the share of it that request bodies may use.
//!
//! Bodies are read before it is known who sent them. Without a limit on all bodies together, a few
//! thousand stalled uploads would use up the memory.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The bodies may use this fraction of the memory: one tenth.
const PART: u64 = 10;
/// The memory size to assume for a machine that does not report one.
const MEMORY_MIN: u64 = 1 << 30;

/// The limit on the memory that all bodies in progress use together.
#[derive(Debug)]
pub(crate) struct Bodies {
    free: Semaphore,
}

/// The memory reserved for one body. The reservation ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    bodies: Option<&'a Bodies>,
    taken: Option<SemaphorePermit<'a>>,
}

impl Bodies {
    /// Creates a limit of `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { free: Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)) }
    }

    /// Begins a reservation with 0 bytes.
    pub(crate) fn room(&self) -> Room<'_> {
        Room { bodies: Some(self), taken: None }
    }
}

impl Room<'_> {
    /// Begins a reservation without a limit, for authenticated senders.
    pub(crate) fn unbounded() -> Self {
        Self { bodies: None, taken: None }
    }

    /// Reserves `bytes` more bytes. Returns `false` if not enough bytes are left.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let Some(bodies) = self.bodies else { return true };
        let more = u32::try_from(bytes).ok().and_then(|n| bodies.free.try_acquire_many(n).ok());
        let Some(more) = more else { return false };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            taken @ None => *taken = Some(more),
        }
        true
    }
}

/// Returns the number of bytes of memory that all bodies in progress may use together. The result
/// is always large enough for one body of `body_bytes`.
#[must_use]
pub fn bodies_bytes(body_bytes: usize) -> usize {
    let part = usize::try_from(process_bytes() / PART).unwrap_or(usize::MAX);
    part.max(body_bytes)
}

/// Returns the machine's memory in bytes, or the limit of the process's control group or address
/// space if that is lower.
fn process_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let limits = [machine, group_bytes(), getrlimit(Resource::As).current];
    limits.into_iter().flatten().min().unwrap_or(MEMORY_MIN)
}

/// Returns `MemTotal` in bytes, see proc(5).
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the lowest `memory.max` among the process's control group and its ancestors. See
/// cgroups(7), version 2.
fn group_bytes() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let read =
        |group: &Path| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok();
    let own = root.join(own);
    own.ancestors().take_while(|group| group.starts_with(root)).filter_map(read).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_when_a_body_is_dropped() {
        let bodies = Bodies::new(100);
        let (mut first, mut second) = (bodies.room(), bodies.room());
        assert!(first.take(60) && !second.take(50) && second.take(30) && first.take(10));
        assert!(!second.take(1));
        drop(first);
        assert!(second.take(70) && !second.take(1));
        drop(second);
        assert!(bodies.room().take(100));
        assert!(Room::unbounded().take(usize::MAX));
    }

    #[test]
    fn the_memory_of_a_machine_is_read() {
        assert_eq!(total("MemTotal:       16302048 kB\nMemFree: 1 kB\n"), Some(16_693_297_152));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(process_bytes() > 1 << 20);
        assert_eq!(bodies_bytes(usize::MAX), usize::MAX, "one body fits");
    }
}
