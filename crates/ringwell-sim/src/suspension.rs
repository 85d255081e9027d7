//! Suspends machines for longer than a list of pools may take to reach all nodes.
//!
//! While a machine is suspended, numbers move from its pools to pools of other nodes. When it
//! resumes, it already has the list with these changes, or receives it within the time that
//! operators are allowed for distributing a list.

use crate::fault::Kind;
use crate::pace::{MS, SECOND};
use crate::random::Random;
use crate::world::World;

/// The minimum and maximum duration of a suspension. Even the shortest suspension is longer than
/// other nodes wait for the machine.
const LENGTH_US: (u64, u64) = (11 * SECOND, 28 * SECOND);

/// The time within which the newest list reaches a machine that has resumed.
const LIST_WITHIN_US: u64 = 6 * SECOND;

/// The kinds of faults that may keep a node from getting another node's answer in time. A node that
/// continues with its old list of pools needs such an answer.
const OUT_OF_REACH: [Kind; 18] = [
    Kind::Kill,
    Kind::Power,
    Kind::CrashAtCall,
    Kind::CrashAfter,
    Kind::Stop,
    Kind::WriteError,
    Kind::FlushError,
    Kind::Shorten,
    Kind::RotAtEnd,
    Kind::FrameLost,
    Kind::FrameDelayed,
    Kind::Partition,
    Kind::SlowShard,
    Kind::Pause,
    Kind::MapChange,
    Kind::LostDisk,
    Kind::CopyBack,
    Kind::CopiedJournal,
];

impl World {
    /// Suspends a machine. During the suspension, moves numbers from one of the machine's pools to
    /// a pool of another node.
    pub(crate) fn stand_still(&mut self, node: usize) {
        let random = self.faults.stream(Kind::StandsStill);
        let (length, drawn) =
            (random.between(LENGTH_US.0, LENGTH_US.1), Random::new(random.next(), 7));
        let (late, is_late) = (random.between(MS, LIST_WITHIN_US), random.chance(500_000));
        let until = self.now() + length;
        if self.nodes.len() < 2 || until > self.clients.length_us {
            return;
        }
        // If two nodes are suspended at once, neither can query the other about numbers that have
        // left and come back in the meantime.
        if self.nodes.iter().any(|other| other.paused_until > self.now()) {
            return;
        }
        self.pause_until(node, until);
        self.tell(node, &[], || format!("pauses for {} ms", length / MS));
        let can_ask = !OUT_OF_REACH.iter().any(|kind| self.faults.is_on(*kind));
        self.nodes[node].list_from = if is_late && can_ask { until + late } else { 0 };
        self.lend_away(node, drawn);
    }

    /// Stops all tasks of a node until the given time.
    pub(crate) fn pause_until(&mut self, node: usize, until: u64) {
        let until = self.nodes[node].paused_until.max(until);
        self.nodes[node].paused_until = until;
        let running = self.nodes[node].running.as_mut();
        for thread in running.into_iter().flat_map(|running| running.threads.values_mut()) {
            thread.stalled_until = thread.stalled_until.max(until);
        }
    }

    /// Moves numbers from a pool of this node to a pool of another node.
    fn lend_away(&mut self, node: usize, mut drawn: Random) {
        if self.is_listing {
            return;
        }
        let owners = self.owners_now();
        let is_here = |pool: &u64| owners.get(pool).map(|it| self.cluster.home(*it) == node);
        let all: Vec<u64> = self.cluster.pools.keys().copied().collect();
        let own: Vec<u64> =
            { all.iter() }.filter(|it| is_here(it) == Some(true)).copied().collect();
        let others: Vec<u64> =
            all.into_iter().filter(|pool| is_here(pool) == Some(false)).collect();
        let (from, to) = (drawn.index(own.len()), drawn.index(others.len()));
        if let (Some(&from), Some(&to)) = (own.get(from), others.get(to)) {
            self.lend_numbers(from, to, drawn);
            self.list_changes();
        }
    }
}
