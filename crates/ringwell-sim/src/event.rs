//! Events, their times and their order. Task polls are not events.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringwell_driver::Path;
use ringwell_engine::Moment;

use crate::message::Replied;
use crate::model::Wanted;
use crate::random::Random;

/// A future event.
#[derive(Debug)]
pub(crate) enum Event {
    /// The next client sends its batch.
    Client,
    /// A client sends its batch again.
    Again(u32),
    /// A batch arrives at a shard, unless the shard's node has stopped in the meantime.
    Batch { node: usize, life: u32, shard: u16, batch: u64 },
    /// A second has passed, so faults may happen to machines.
    Second,
    /// A stopped node starts again, unless it was stopped again in the meantime.
    Start(usize, u32),
    /// An operator restarts a node.
    Restart(usize, u32),
    /// An operator repairs a node that does not start.
    Repair(usize, u32),
    /// The second half of a map change: the node that gets a pool restarts.
    MapArrives(usize),
    /// Every node gets the newest map.
    RollOut,
    /// The complete list of pools arrives at a node that started without some of the pools, unless
    /// the node has stopped in the meantime.
    ListArrives(usize, u32),
    /// A client returns a number.
    Release { number: u64, at_ms: u64 },
    /// A request from another node arrives.
    Request { call: u64, node: usize, life: u32, shard: u16, path: Path, body: Bytes },
    /// The answer to a request arrives at the node that sent the request.
    Replied { call: u64, replied: Replied },
    /// A client disconnected some time ago, so none of its numbers may still be locked out.
    Unseen { node: usize, life: u32, batch: u64 },
    /// The newest list of pools arrives at every node.
    Manage,
    /// Numbers that were just added to a pool move on to another pool.
    LendOn(u64, Vec<u64>, Random),
    /// A node is killed, or its machine loses power, shortly after the node began to serve or
    /// published a snapshot or a map. Ignored if the node has stopped in the meantime.
    CrashAfter(usize, u32),
    /// An operator moves buckets, lends numbers or changes the list of pools shortly after a node
    /// began to serve.
    Hasty(usize, u32),
    /// The disk of a node is mounted again, although the machine was not rebooted.
    Remount(usize),
    /// A node loses its disk.
    LostDisk(usize),
    /// A copy of a node's data is restored.
    CopyBack(crate::older::Copied),
    /// A copy of one shard's journal is restored.
    JournalCopyBack(crate::older::CopiedJournal),
    /// A journal that a node has lost is brought back.
    BroughtBack(crate::older::Lost),
    /// A changed list of pools arrives at a node, unless the node has stopped in the meantime.
    ListReaches(usize, u32),
    /// A changed list of pools has arrived at the last node.
    ListSpread,
    /// The period with faults is over.
    Calm,
    /// A number from every pool is requested through every shard.
    Probe,
}

/// Events in the order of their times. Events with the same time are in the order in which they
/// were added.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: BTreeMap<(u64, u64), Event>,
    added: u64,
}

impl Queue {
    pub(crate) fn add(&mut self, at: u64, event: Event) {
        self.added += 1;
        self.events.insert((at, self.added), event);
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        let ((_, number), event) = self.events.pop_first()?;
        Some((number, event))
    }
}

/// A call, and the visitor to whom it must be attributed.
#[derive(Debug)]
pub(crate) struct Rung {
    pub(crate) which: usize,
    pub(crate) wanted: Wanted,
    pub(crate) at: Moment,
    /// Whether, at the time of the call, any node had a record of missing history. This is stored
    /// with the call, because a node that later loses its disk also loses its record.
    pub(crate) has_gaps: bool,
}
