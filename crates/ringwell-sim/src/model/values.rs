//! The values of the model: allocations, shards, and what was lost.

use std::collections::{BTreeMap, BTreeSet};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The kind of the broken promise.
    pub rule: &'static str,
    /// A description for human readers.
    pub text: String,
    /// The affected number; zero if there is none.
    pub number: u64,
    /// The affected shard.
    pub shard: u16,
}

pub(crate) type Judged = Result<(), Violation>;

/// The state of a pool in the model.
#[derive(Clone, Debug)]
pub(crate) struct PoolRule {
    pub(crate) lifetime_ms: u64,
    /// The numbers in rotation, in ascending order.
    pub(crate) numbers: Vec<u64>,
}

/// A number that an owner has given to a row, whether or not the answer is ever sent.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The number of the batch, and the index of the row in it.
    pub(crate) batch: u64,
    pub(crate) row: u16,
    /// The identity that all attempts of a repeated batch share: the batch's number, and the row's
    /// index.
    pub(crate) retry: Option<(u64, u16)>,
    pub(crate) visitor: Option<u64>,
    pub(crate) shard: u16,
    pub(crate) pool: u64,
    pub(crate) number: u64,
    pub(crate) true_us: u64,
    pub(crate) at_ms: u64,
    pub(crate) until_ms: u64,
    /// The group that contains the grant's record.
    pub(crate) group: u64,
    /// Whether the number was newly handed out. Otherwise, a visitor or a repeated row kept its
    /// number.
    pub(crate) is_fresh: bool,
    pub(crate) params: String,
    /// The time after which no caller waits for the number.
    pub(crate) deadline_us: u64,
    /// The total time that the shard's clock gained on true time, undetected, at restarts before
    /// the grant.
    pub(super) believed_ms: i64,
    /// The lifetime of the pool at the time of the grant.
    pub(super) lifetime_ms: u64,
    pub(super) is_lost: bool,
}

/// A number that a visitor has seen.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the facts are independent")]
pub(crate) struct Holding {
    pub(crate) grant: Grant,
    /// The time before which no other visitor may get the number.
    pub(super) until_us: u64,
    /// The shard that now has the number's pool. The next two fields describe this shard's clock
    /// since the grant: the total time that it gained on true time, undetected, at restarts, and
    /// the total of its leaps.
    pub(super) keeper: u16,
    pub(super) believed_us: u64,
    pub(super) leapt_ms: i64,
    /// Whether the current owner of the pool lacks the answer to the batch.
    pub(super) is_unreported: bool,
    /// Whether that owner has given a new answer to the row.
    pub(super) is_answered_anew: bool,
    /// Whether the number has been in another pool since the grant. The visitor is not recorded in
    /// that other pool.
    pub(super) was_lent: bool,
    /// Whether the number has been out of its pool since the grant. If so, the visitor may have got
    /// another number.
    pub(super) was_away: bool,
    /// Whether the disk has lost the grant's record. If so, nothing is promised from then on.
    pub(super) is_lost: bool,
    /// Whether no node can detect that loss. In this case, a look-up may return another visitor.
    pub(super) is_unknown: bool,
    /// Whether the record was lost and recovery has reported the loss. No other visitor may get the
    /// number, but nothing else is promised.
    pub(super) is_forgotten: bool,
    /// The time at which recovery reported the loss.
    pub(super) forgotten_us: u64,
    /// Whether the grant is newer than the owner's data. Perhaps only other nodes can detect this.
    pub(super) is_newer: bool,
}

/// The result for a row, as its answer shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Number(u64),
    Exhausted,
    Refused(&'static str),
}

/// A row whose answer is sent.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "its place among the rows is called that everywhere")]
pub(crate) struct Row {
    /// The id of this attempt to send the batch.
    pub(crate) sent: u64,
    /// The number of the batch, which all its attempts share.
    pub(crate) batch: u64,
    pub(crate) row: u16,
    pub(crate) retry: Option<(u64, u16)>,
    pub(crate) pool: u64,
    pub(crate) shown: Shown,
    /// Whether the row is a probe. A probe is sent long after the last fault and has enough time
    /// until its deadline, so it must be served.
    pub(crate) is_probe: bool,
    /// The time when the batch was sent. A grant from before this time belongs to an earlier
    /// attempt.
    pub(crate) since_us: u64,
    /// The time after which no number may be sent.
    pub(crate) deadline_us: u64,
    pub(crate) now_us: u64,
}

/// The state of one shard after a restart.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    pub(crate) shard: u16,
    /// One more than the number of the last group that was read.
    pub(crate) next_n: u64,
    /// The reason why groups may be missing.
    pub(crate) loss: Loss,
    /// The time since which all groups are missing, regardless of their numbers.
    pub(crate) lost_since_us: u64,
    pub(crate) now_us: u64,
    pub(crate) now_ms: u64,
    /// The number of times that the machine was booted.
    pub(crate) boots: usize,
    /// Each number, the time of its allocation, and the end of its lockout.
    pub(crate) numbers: Vec<(u64, u64, u64)>,
    /// The pools that are held, with the end of each hold.
    pub(crate) holds: Vec<(u64, u64)>,
    pub(crate) pools: BTreeMap<u64, PoolRule>,
}

/// The state of a running shard after a change of its pools or a move.
#[derive(Clone, Debug)]
pub(crate) struct TakenUp {
    pub(crate) shard: u16,
    /// Whether the shard has the answers to batches that were served before the pool moved to it.
    pub(crate) are_answers_received: bool,
    /// Whether the shard was suspended, and serves nothing until it has asked the other nodes.
    pub(crate) is_still: bool,
    /// The pool that was added or changed.
    pub(crate) pool: Option<(u64, PoolRule)>,
    /// Each number, the time of its allocation, and the end of its lockout.
    pub(crate) numbers: Vec<(u64, u64, u64)>,
    pub(crate) holds: Vec<(u64, u64)>,
    pub(crate) now_us: u64,
    pub(crate) now_ms: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) allocated_at: u64,
    pub(super) until: u64,
}

/// The state that a shard should have. Its times are in shard time.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) numbers: BTreeMap<u64, Known>,
    pub(super) holds: BTreeMap<u64, u64>,
    /// The pools that the shard serves.
    pub(super) pools: BTreeMap<u64, PoolRule>,
    /// The difference between shard time and true time.
    pub(super) offset_ms: Option<i64>,
    pub(super) believed_ms: i64,
    pub(super) boots: usize,
}

/// The reference model.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(super) shards: BTreeMap<u16, Shard>,
    /// The grants by batch and row. If a frame was duplicated, a row has more than one.
    pub(super) granted: BTreeMap<(u64, u16), Vec<Grant>>,
    /// For each number, the allocations that visitors have seen, in the order of the answers.
    pub(crate) held: BTreeMap<u64, Vec<Holding>>,
    pub(super) answered: BTreeSet<(u64, u16)>,
    /// The holders of each number, in the order of their grants.
    pub(super) holders: BTreeMap<u64, Vec<Holder>>,
    /// The undetected leaps of shard clocks: time, shard and length.
    pub(super) leaps: Vec<(u64, u16, i64)>,
    pub(super) by_retry: BTreeMap<(u64, u16), (u64, usize)>,
    /// The rows that an owner has already decided. It may remember their answers.
    pub(super) decided: BTreeSet<(u64, u16)>,
    /// The rows that got no number because the pool was held when they were last decided.
    pub(super) held_back: BTreeSet<(u64, u16)>,
    pub(super) by_visitor: BTreeMap<(u64, u64), (u64, usize)>,
    pub(crate) rows: u64,
    pub(crate) numbers_out: u64,
    /// The number of answers that the disk has lost without leaving evidence.
    pub(crate) excused: u64,
    pub(super) probed: u64,
}

impl Grant {
    /// Builds a grant from an owner's decision. The model adds the data that only the model has.
    #[expect(clippy::too_many_arguments, reason = "the facts are independent")]
    pub(crate) fn new(
        (batch, row): (u64, u16),
        retry: Option<(u64, u16)>,
        visitor: Option<u64>,
        (shard, pool, number): (u16, u64, u64),
        (true_us, at_ms, until_ms): (u64, u64, u64),
        group: u64,
        is_fresh: bool,
        params: String,
        deadline_us: u64,
    ) -> Self {
        Self {
            batch,
            row,
            retry,
            visitor,
            shard,
            pool,
            number,
            true_us,
            at_ms,
            until_ms,
            group,
            is_fresh,
            params,
            deadline_us,
            believed_ms: 0,
            lifetime_ms: 0,
            is_lost: false,
        }
    }

    /// Returns the identity of the holder. The same visitor, or the same row of a repeated batch,
    /// may get a number again.
    pub(super) fn holder(&self) -> (u8, u64, u16) {
        match (self.visitor, self.retry) {
            (Some(visitor), _) => (0, visitor, 0),
            (None, Some((batch, row))) => (1, batch, row),
            (None, None) => (2, self.batch, self.row),
        }
    }
}

pub(super) fn broken(rule: &'static str, shard: u16, number: u64, text: String) -> Violation {
    Violation { rule, text, number, shard }
}

/// A grant that may be the newest of its number, identified by its shard and the owner's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) shard: u16,
    pub(super) at_ms: u64,
    /// The group that contains the record that undoes the grant.
    pub(super) withdrawn: Option<u64>,
}

/// A look-up to perform, and the result that it must return.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) shard: u16,
    pub(crate) number: u64,
    /// The time of the allocation.
    pub(crate) at_ms: u64,
    pub(crate) true_us: u64,
    /// The last time at which this was still the newest allocation; `None` if it still is.
    pub(crate) late_ms: Option<u64>,
    pub(crate) params: String,
    /// Whether the allocation must be found, no matter how old it is.
    pub(crate) is_newest: bool,
    /// The earliest true time at which the number may have been handed out again; `None` if it
    /// cannot have been.
    pub(crate) next_us: Option<u64>,
    /// The true time at which the number went to another visitor, if it did. Look-ups must report
    /// this.
    pub(crate) end_us: Option<u64>,
    /// Whether the owner has lost the allocation. In this case, the look-up must not return another
    /// visitor.
    pub(crate) is_lost: bool,
}

/// The reason why groups that contain answered rows may be missing after a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Loss {
    /// There is no such reason: all groups must be present.
    #[default]
    Nothing,
    /// Damage was found at startup, or an operator has marked the data as a copy. All pools are
    /// held.
    Doubted,
    /// The data is older than the answers that were sent. Perhaps only other nodes can detect this.
    /// If a node that can detect this answers the shard's queries, the pools are held.
    Older,
    /// The disk has lost data that it had reported as stored, and nothing shows the loss.
    Lied,
    /// The durability is `memory`, so all state is lost when the process ends.
    All,
}
