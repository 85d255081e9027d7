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
    /// The pool that the number was handed out from; `None` if another shard has the record, and
    /// this one took over the lockout.
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
    /// The newest allocation, as the shard's state has it, until its record is met. The record of
    /// one that was taken over from another shard is in that shard's journal.
    newest: Option<Slot>,
    /// When that was, by this node's clock.
    newest_at: Millis,
    /// What was met so far came after the number's last way from another shard to this one.
    is_told: bool,
    /// The end of the lockout in the shard's state is that of the newest allocation, and not of one
    /// after it that nobody saw.
    is_settled: bool,
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
        let newest = self.shard.newest(number).filter(|slot| slot.allocated_at > Millis::ZERO);
        let walk = Walk {
            number,
            at,
            newest,
            newest_at: self.shard.newest_local_at(number).unwrap_or_default(),
            is_told: false,
            is_settled: false,
            locked_until: None,
            next_allocated_at: None,
        };
        (walk, newest.map_or(Step::Done(None), |slot| walk.back(slot.position)))
    }

    /// The record at `position`, if it is in the group that still gathers.
    #[must_use]
    pub fn pending_record(&self, position: Position) -> Option<Record<'_>> {
        self.writer.read_pending(position)
    }
}

impl Walk {
    /// Takes the record that was asked for.
    ///
    /// # Errors
    /// [`BrokenChain`] if it is none of this number's.
    pub fn feed(&mut self, record: &Record<'_>) -> Result<Step, BrokenChain> {
        let broken = BrokenChain { number: self.number };
        match *record {
            Record::Release { number, previous, restored: Some(restored), .. }
                if number == self.number =>
            {
                // `previous` leads past the allocation that nobody saw.
                let newest = self.newest.as_mut().filter(|_| !self.is_settled);
                if let Some(newest) = newest {
                    newest.locked_until = restored.locked_until;
                }
                Ok(self.back(previous))
            }
            Record::Extend { number, at, until, previous, .. }
            | Record::Release { number, at, until, previous, .. }
                if number == self.number =>
            {
                // The shard's state knows what the newest allocation's lockout has become.
                if self.is_told || self.newest.is_none() || at < self.newest_at {
                    self.locked_until.get_or_insert(until);
                } else {
                    self.is_settled = true;
                }
                Ok(self.back(previous))
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
            Record::Adopt { number, allocated_at, locked_until, local_at, previous, .. }
                if number == self.number =>
            {
                self.adopted(allocated_at, locked_until, local_at);
                Ok(self.back(previous))
            }
            _ => Err(broken),
        }
    }

    /// The record that was asked for is not kept any more: what is known without it.
    #[must_use]
    pub fn end(&self) -> Option<Held> {
        self.newest.filter(|_| self.newest_at <= self.at).map(|newest| Held {
            pool: None,
            allocated_at: newest.allocated_at,
            locked_until: newest.locked_until,
            params: Vec::new(),
            next_allocated_at: None,
        })
    }

    fn allocation(
        &mut self,
        allocated_at: Millis,
        locked_until: Millis,
        pool: PoolId,
        params: [&[u8]; 2],
        previous: Position,
    ) -> Step {
        let mut locked_until = self.locked_until.take().unwrap_or(locked_until);
        if let Some(newest) = self.newest {
            if newest.allocated_at == allocated_at {
                locked_until = newest.locked_until;
            } else if self.newest_at <= self.at {
                return Step::Done(self.end());
            } else {
                self.next_allocated_at = Some(self.newest_at);
            }
            self.newest = None;
        }
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
        self.back(previous)
    }

    /// The allocation's own record is in another shard's journal, unless the number has come back
    /// to this one.
    fn adopted(&mut self, allocated_at: Millis, locked_until: Millis, local_at: Millis) {
        self.is_told = true;
        let extended = self.locked_until.take();
        if self.newest.is_none() {
            let locked_until = extended.unwrap_or(locked_until);
            let position = Position::NONE;
            self.newest = Some(Slot { number: self.number, allocated_at, locked_until, position });
            self.newest_at = local_at;
        }
    }

    fn back(&self, previous: Position) -> Step {
        if previous == Position::NONE { Step::Done(self.end()) } else { Step::Read(previous) }
    }
}
