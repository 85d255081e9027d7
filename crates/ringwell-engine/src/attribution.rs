//! Who held a number at a given moment: a walk back along the number's records.
//!
//! The walk names the record that it wants to see next; whoever drives it reads that record, from
//! memory or from a file, and feeds it in. Source: docs/spec/journal.md, "History".

use ringwell_core::{Millis, PoolId, Position, PromoNumber, Slot};
use ringwell_journal::Record;

use crate::engine::Engine;

/// An allocation that held a number at the moment asked for, or was the last one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The pool that the number was handed out from; `None` if this shard only took over the
    /// lockout and another one has the record.
    pub pool: Option<PoolId>,
    /// When it was handed out.
    pub allocated_at: Millis,
    /// When its lockout ended or ends.
    pub locked_until: Millis,
    /// The marketing context as it came, percent-encoded.
    pub params: Vec<u8>,
    /// When the number was handed out again.
    pub next_allocated_at: Option<Millis>,
}

/// A look-up on its way.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    number: PromoNumber,
    at: Millis,
    /// The end of the lockout, if a newer record than the allocation's own has set it.
    locked_until: Option<Millis>,
    next_allocated_at: Option<Millis>,
}

/// What a look-up needs, or has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the record at this position and feed it.
    Read(Position),
    /// The end. `None`: not handed out by then, as far as the journal goes back.
    Done(Option<Held>),
}

/// A look-up met something that cannot be: the journal is damaged, or was changed by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenChain {
    /// The number looked for.
    pub number: PromoNumber,
}

impl Engine {
    /// Begins to look for the holder of `number` at `at`.
    #[must_use]
    pub fn attribution(&self, number: PromoNumber, at: Millis) -> (Walk, Step) {
        let walk = Walk { number, at, locked_until: None, next_allocated_at: None };
        let newest = self.shard.newest(number).filter(|slot| slot.allocated_at > Millis::ZERO);
        (walk, newest.map_or(Step::Done(None), |slot| walk.first(&slot)))
    }

    /// The record at `position`, if it is in the group that still gathers.
    #[must_use]
    pub fn pending_record(&self, position: Position) -> Option<Record<'_>> {
        self.writer.read_pending(position)
    }
}

impl Walk {
    fn first(&self, slot: &Slot) -> Step {
        if slot.position != Position::NONE {
            return Step::Read(slot.position);
        }
        // Taken over from another shard, which has the record.
        Step::Done((slot.allocated_at <= self.at).then(|| Held {
            pool: None,
            allocated_at: slot.allocated_at,
            locked_until: slot.locked_until,
            params: Vec::new(),
            next_allocated_at: None,
        }))
    }

    /// Takes the record that was asked for.
    ///
    /// # Errors
    /// [`BrokenChain`] if it is none of this number's.
    pub fn feed(&mut self, record: &Record<'_>) -> Result<Step, BrokenChain> {
        let broken = BrokenChain { number: self.number };
        match *record {
            Record::Extend { number, until, previous, .. }
            | Record::Release { number, until, previous, .. }
                if number == self.number =>
            {
                self.locked_until.get_or_insert(until);
                Ok(Self::back(previous))
            }
            Record::Allocate { number, at, pool, lockout, previous, params, .. }
                if number == self.number =>
            {
                Ok(self.allocation(at, at + lockout, pool, params, previous))
            }
            Record::Carry { number, allocated_at, locked_until, pool, params, .. }
                if number == self.number =>
            {
                Ok(self.allocation(allocated_at, locked_until, pool, params, Position::NONE))
            }
            _ => Err(broken),
        }
    }

    fn allocation(
        &mut self,
        allocated_at: Millis,
        locked_until: Millis,
        pool: PoolId,
        params: [&[u8]; 2],
        previous: Position,
    ) -> Step {
        let locked_until = self.locked_until.take().unwrap_or(locked_until);
        if allocated_at <= self.at {
            return Step::Done(Some(Held {
                pool: Some(pool),
                allocated_at,
                locked_until,
                params: params.concat(),
                next_allocated_at: self.next_allocated_at,
            }));
        }
        self.next_allocated_at = Some(allocated_at);
        Self::back(previous)
    }

    fn back(previous: Position) -> Step {
        if previous == Position::NONE { Step::Done(None) } else { Step::Read(previous) }
    }
}
