//! The effects of processes, which the world handles, and the answers to clients and processes.

use bytes::Bytes;
use ringwell_driver::{Path, Trouble};
use ringwell_engine::Past;
use tokio::sync::oneshot;

use crate::model::Shown;

/// A process that waits for an answer.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) node: usize,
    pub(crate) life: u32,
    /// The node whose answer the process waits for.
    pub(crate) to: usize,
    pub(crate) reply: oneshot::Sender<Replied>,
}

impl Caller {
    pub(crate) fn answer(self, replied: Replied) {
        // The caller may no longer be waiting.
        let _ = self.reply.send(replied);
    }
}

pub(crate) type Replied = Result<Bytes, Trouble>;

/// A process's effect that the world has to handle.
#[derive(Debug)]
pub(crate) enum Sent {
    /// A request to a shard's node.
    Call { call: u64, from: usize, thread: u16, shard: u16, path: Path, body: Bytes },
    /// The answer to a request.
    Reply { call: u64, from: usize, replied: Replied },
    /// The answer to a batch is sent.
    Answered(Answered),
    /// A client disconnected before its batch was answered.
    Aborted { node: usize, batch: u64 },
    /// A shard can serve.
    Ready { node: usize, life: u32 },
    /// A process cannot continue.
    GivesUp { node: usize, life: u32 },
    /// A shard of a node that is shutting down has saved its state, or could not save it.
    Saved { node: usize, life: u32, is_saved: bool },
    /// A node asks for the newest list of pools.
    WantsList { node: usize, life: u32, request: u64 },
    /// A look-up has ended.
    Looked { which: usize, found: Result<Past, String> },
}

/// A batch's answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) node: usize,
    pub(crate) batch: u64,
    pub(crate) shard: u16,
    /// The time when the shard received the batch.
    pub(crate) since_us: u64,
    pub(crate) deadline_us: u64,
    pub(crate) rows: Vec<RowAnswer>,
    /// Whether the batch failed because of an internal fault.
    pub(crate) is_failed: bool,
}

/// A row of an answer, as the client sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowAnswer {
    pub(crate) shown: Shown,
    /// The number, and the time of its allocation according to its owner's clock.
    pub(crate) given: Option<(u64, u64)>,
}

/// The contents of a row's parameters, which identify the row throughout the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) batch: u64,
    pub(crate) row: u16,
    pub(crate) is_repeatable: bool,
    pub(crate) visitor: Option<u64>,
}

impl Mark {
    pub(crate) fn text(self) -> String {
        let Self { batch, row, is_repeatable, visitor } = self;
        let visitor = visitor.map_or_else(String::new, |visitor| visitor.to_string());
        format!("b={batch}&r={row}&k={}&u={visitor}", u8::from(is_repeatable))
    }

    /// Reads the mark from a row's parameters.
    pub(crate) fn read(params: &str) -> Option<Self> {
        let value = |name: char| {
            let mut pairs = params.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(known, _)| known.chars().eq([name])).map(|(_, value)| value)
        };
        Some(Self {
            batch: value('b')?.parse().ok()?,
            row: value('r')?.parse().ok()?,
            is_repeatable: value('k')? == "1",
            visitor: value('u').and_then(|visitor| visitor.parse().ok()),
        })
    }
}
