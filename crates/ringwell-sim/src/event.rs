//! What happens when, and in which order.

use std::collections::BTreeMap;

use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::Owners;
use ringwell_journal::Group;

use crate::change::{Done, Step, Stepper};
use crate::post::{Adopted, Caller, Post};
use crate::thread::{PeerRows, Reply};

/// Something that is going to happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// The next client sends its batch.
    Client,
    /// A batch is sent again.
    Again(u32),
    /// Every second: what may befall machines.
    Second,
    /// A node that is down starts; in this life only.
    Start(usize, u32),
    /// An operator ends a node, so that it starts again.
    Restart(usize, u32),
    /// An operator sees to a node that does not start.
    Repair(usize, u32),
    /// The second half of a change of the map: the node that gets a pool starts again.
    MapArrives(usize),
    /// Every node gets the newest map.
    RollOut,
    /// The whole list of pools comes to a node that began without some of them, in this life.
    ListArrives(usize, u32),
    /// A number is given back by its client.
    Release { number: u64, at_ms: u64, shard: u16 },
    /// A shard has taken a step of a change or a move.
    Stepped(usize, u32, Stepper, Done),
    /// Something for another node has arrived there.
    Post { node: usize, life: u32, from: Caller, post: Post },
    /// The answer to it, or none.
    Posted(usize, u32, u64, Result<Option<Box<Owners>>, &'static str>),
    /// A move that was cut off goes on.
    GiveOn(usize, u32),
    /// The newest list of pools comes to every node.
    Manage,
    /// Something on a shard's thread, at this life of its node.
    Thread { node: usize, life: u32, shard: u16, due: u64, task: Task },
    /// The last fault has been.
    Calm,
    /// Every pool is asked everywhere.
    Probe,
}

/// What a shard's thread does.
#[derive(Debug)]
pub(crate) enum Task {
    /// Takes in a batch as it was sent.
    Batch(u64),
    Deadline(u64),
    Wake(u64),
    Abort(u64),
    Rows(PeerRows),
    Release(PromoNumber, Millis),
    Unanswered(Vec<(PromoNumber, Millis)>),
    Commit,
    Flushed,
    WriteAgain(Group),
    Round,
    SnapshotPiece,
    CarryStep,
    /// Something from another node's link.
    Wire(Wire),
    HandlerDeadline(u64),
    PingServed(Reply),
    Link(u16, LinkTask),
    /// A step of a change or a move.
    Step(Stepper, Step),
    /// What another owner knew, and whom to tell when it is durable.
    Adopt(Adopted, Caller),
    /// The owners have been learnt that a batch waits for, or cannot be.
    Learnt(u64),
}

/// A request that has come over a link.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    Ask { from: Reply, batch: u64, bytes: Vec<u8> },
    Unanswered(Vec<u8>),
    Ping { from: Reply, bytes: Vec<u8> },
}

/// What a link does on its own thread.
#[derive(Clone, Debug)]
pub(crate) enum LinkTask {
    GiveUp(u64),
    Slow(u64),
    Limit(u64),
    LateMax(u64),
    Answer(u64, Answered),
    PingDue,
    PingLimit(u64),
}

/// The end of a call: the bytes of the answer, a refusal, or nothing.
pub(crate) type Answered = Result<Vec<u8>, CallTrouble>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallTrouble {
    Refused,
    Lost,
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

    pub(crate) fn next(&mut self) -> Option<(u64, u64, Event)> {
        let ((at, number), event) = self.events.pop_first()?;
        Some((at, number, event))
    }
}
