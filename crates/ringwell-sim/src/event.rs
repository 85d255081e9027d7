//! Events, their times and their order, in addition to the polls of tasks.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringwell_driver::Path;
use ringwell_engine::Moment;

use crate::machine::Replied;
use crate::model::Wanted;
use crate::random::Random;

/// A future event.
#[derive(Debug)]
pub(crate) enum Event {
    /// The next client sends its batch.
    Client,
    /// A batch is sent again.
    Again(u32),
    /// A batch arrives at a shard, in this life of its node.
    Batch { node: usize, life: u32, shard: u16, batch: u64 },
    /// Every second: faults may affect machines.
    Second,
    /// A stopped node starts; in this life only.
    Start(usize, u32),
    /// An operator stops a node, so that it starts again.
    Restart(usize, u32),
    /// An operator attends to a node that does not start.
    Repair(usize, u32),
    /// The second half of a change of the map: the node that gets a pool starts again.
    MapArrives(usize),
    /// Every node gets the newest map.
    RollOut,
    /// The complete list of pools arrives at a node that started without some of them, in this
    /// life.
    ListArrives(usize, u32),
    /// A client returns a number.
    Release { number: u64, at_ms: u64 },
    /// A request of another node arrives.
    Request { call: u64, node: usize, life: u32, shard: u16, path: Path, body: Bytes },
    /// The answer to a request arrives where the request began.
    Replied { call: u64, replied: Replied },
    /// A client disconnected some time ago: no number may be locked for it any more.
    Unseen { node: usize, life: u32, batch: u64 },
    /// The newest list of pools arrives at every node.
    Manage,
    /// Numbers that have just come to a pool move to another one.
    LendOn(u64, Vec<u64>, Random),
    /// Right after a step in this life, the process or its machine ends.
    CrashAfter(usize, u32),
    /// A node serves, and an operator acts at once.
    Hasty(usize, u32),
    /// The disk of a node is mounted again, without a boot.
    Remount(usize),
    /// A node loses its disk.
    LostDisk(usize),
    /// A copy of a node's data is put back.
    CopyBack(crate::older::Copied),
    /// A copy of the journal of one shard is put back.
    JournalCopyBack(crate::older::CopiedJournal),
    /// A journal that a node has lost is brought back.
    BroughtBack(crate::older::Lost),
    /// A changed list of pools reaches a node, in this life.
    ListReaches(usize, u32),
    /// A changed list of pools has reached the last node.
    ListSpread,
    /// The last fault has happened.
    Calm,
    /// Every pool is requested everywhere.
    Probe,
}

/// Events in the order of their times; among equals in the order in which they were added.
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

    /// The time of the next event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        let ((_, number), event) = self.events.pop_first()?;
        Some((number, event))
    }
}

/// A call, and the visitor that it must be attributed to.
#[derive(Debug)]
pub(crate) struct Rung {
    pub(crate) which: usize,
    pub(crate) wanted: Wanted,
    pub(crate) at: Moment,
    /// Whether history was known to be missing then: it is no longer known if a disk is lost later.
    pub(crate) has_gaps: bool,
}
