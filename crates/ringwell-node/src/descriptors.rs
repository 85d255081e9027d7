//! The process's limit on open files and sockets, and the share that clients may use.
//!
//! A journal stops if its next segment cannot be opened. Client connections are therefore refused
//! before they use up the descriptors that the shards need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The descriptors that the process needs as a whole: for the database, links and webhooks, with a
/// reserve.
const PROCESS: u64 = 48;
/// The descriptors that each shard needs: for its runtime and listeners, its journal, a snapshot,
/// and look-ups.
const SHARD: u64 = 16;

/// Raises the process's limit on descriptors as far as possible. Returns the number of connections
/// that are possible within the limit: `wanted`, or a smaller number, which is then logged.
pub(crate) fn room_for(wanted: usize, shards: u16) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Every process is allowed to raise its soft limit. If the call fails anyway, the limit stays
    // unchanged.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let Some(descriptors) = getrlimit(Resource::Nofile).current else { return wanted };
    let room = fitting(descriptors, shards);
    if room < wanted {
        tracing::warn!(
            descriptors,
            connections = room,
            wanted,
            "the limit on open files is too low for limits.connections, so fewer clients are \
             served at once: raise the limit (LimitNOFILE, ulimit -n)"
        );
    }
    wanted.min(room)
}

/// Returns the number of descriptors that are left for connections, which is at least one.
fn fitting(descriptors: u64, shards: u16) -> usize {
    let own = PROCESS + SHARD * u64::from(shards);
    usize::try_from(descriptors.saturating_sub(own)).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn clients_get_the_descriptors_that_the_process_and_its_shards_do_not_need() {
        assert_eq!(fitting(1_024, 2), 944);
        assert_eq!(fitting(1_024, 60), 16);
        assert_eq!(fitting(1_024, 61), 1, "at least one, so that an operator can connect");
        assert_eq!(fitting(16, 256), 1);
    }
}
