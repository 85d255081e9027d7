//! Finds the holder of a number at a given time by walking back along the number's records.
//!
//! Each step of the walk returns the position of the next record. The caller reads that record from
//! memory or a file, and passes it to the walk. Source: docs/spec/journal.md, "History".

use ringwell_core::{Millis, PoolId, Position, PromoNumber, Slot};
use ringwell_journal::{
    Clocks, Noted, Record, shifted, wall_before, wall_less_shard, wall_less_shard_at,
};

use crate::engine::Engine;

/// The last allocation of a number at or before the requested time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastAllocation {
    /// The pool from which the number was handed out. `None` if the record of the allocation was
    /// not read, for example because it is in another shard's journal.
    pub pool: Option<PoolId>,
    /// The time of the allocation, in its node's shard time. Together with the number, this time
    /// identifies the allocation.
    pub allocated_at: Millis,
    /// The time of the allocation by the wall clock.
    pub allocated_wall: Millis,
    /// The end of the allocation's lockout by the wall clock.
    pub locked_until: Millis,
    /// The marketing context, percent-encoded as it was received.
    pub params: Vec<u8>,
    /// The wall-clock time when the number was next handed out.
    pub next_allocated_at: Option<Millis>,
    /// The allocation's keep-alives, if the look-up collects them.
    pub keep_alives: Option<KeepAlives>,
}

/// The maximum number of keep-alives that a look-up collects. If there are more, it collects the
/// newest ones.
pub const KEEP_ALIVES_MAX: usize = 100;
/// The maximum number of keep-alives after the requested time that a look-up reads one by one.
const LATER_KEEP_ALIVES_MAX: u32 = 500;

/// One allocation's keep-alives up to the requested time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepAlives {
    /// The times of the keep-alives by the wall clock, newest first, at most [`KEEP_ALIVES_MAX`].
    pub at: Vec<Millis>,
    /// Whether there may be further keep-alives that were not read.
    pub is_part: bool,
}

/// The known history of a number around the requested time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The last allocation at or before the requested time, if it is known.
    pub held: Option<PastAllocation>,
    /// The reason why the result is incomplete. A result is incomplete if there may have been a
    /// holder but none was found, if the returned holder may be wrong, or if the holder's record is
    /// missing.
    pub missing: Option<Missing>,
    /// Whether another shard may have handed the number out after the newest allocation known here.
    /// This is possible if a hold of the pool ended after that allocation's lockout.
    pub is_doubted: bool,
    /// The end, by the wall clock, of a period whose records were lost. Allocations after this time
    /// are known. If the period is not the reason for `missing`, this shard has no state for the
    /// number, but may have handed the number out in that period.
    pub lost_until: Option<Millis>,
    /// Whether another shard may have handed the number out after `held` and before this shard
    /// handed it out next. This is possible if the number was in doubt at that time.
    pub was_doubted: bool,
    /// The time of the allocation after the one in `held`, or of the oldest known allocation if
    /// `held` is `None`. The clock is that of the shard that made the allocation. This time
    /// identifies the allocation. Present only if another shard made the allocation, if the
    /// allocation's wall-clock time is unknown, or if its record is not kept. If another shard made
    /// the allocation, this shard's records show only that it was made before the number arrived
    /// here. The `next_allocated_at` of `held` is then the time at which the number arrived, if
    /// that time is known.
    pub later: Option<Millis>,
    /// Whether a lost period is the reason for `missing`. It is then uncertain which allocations
    /// preceded `later`, but the allocation at `later` is known to have followed the lost period.
    pub is_later_sure: bool,
    /// An upper bound on the wall-clock time of the allocation in `later`, if that time is unknown.
    pub later_by: Option<Millis>,
    /// The time, by the wall clock, of the oldest allocation that this shard made after the
    /// requested time. Any earlier allocation that another shard made had ended by this time.
    pub next: Option<Millis>,
    /// The end, by the wall clock, of the number's last known period as an overflow number. A
    /// visitor who received the number before that period ended is not necessarily the caller at
    /// the requested time. Periods that began after the requested time do not count.
    pub overflow_until: Option<Millis>,
}

/// The reason why a look-up cannot name the holder of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The history no longer reaches back to the requested time.
    NotKept,
    /// The number has been handed out so often since the requested time that the look-up gave up
    /// before it reached that time.
    TooLong,
    /// The history is damaged at the requested time.
    Damaged,
}

/// The requested time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A time by the wall clock.
    Wall(Millis),
    /// A time in the shard time of the node that receives the request.
    Shard(Millis),
}

/// A look-up in progress.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub struct Walk<'a> {
    number: PromoNumber,
    at: Moment,
    /// The current clocks.
    clocks: Option<Clocks>,
    /// The clocks that are recorded in the node's journals.
    noted: &'a [Noted],
    /// The newest allocation in the shard's state, until the record of that allocation has been
    /// read. If the allocation was adopted from another shard, its record is in that shard's
    /// journal.
    newest: Option<Slot>,
    /// The time of the newest allocation, in this node's shard time.
    newest_at: Millis,
    /// The wall clock minus shard time at the newest allocation, or `None` if it is unknown.
    newest_shift: Option<i64>,
    /// See [`Past::later_by`].
    newest_by: Option<Millis>,
    /// Whether the walk has passed the number's last transfer from another shard to this one.
    is_foreign: bool,
    /// Whether the lockout end in the shard's state belongs to the newest allocation. If not, the
    /// end may belong to a later allocation that no visitor saw.
    is_settled: bool,
    /// The end of the lockout in shard time, if it was set by a record that is newer than the
    /// allocation's own record.
    locked_until: Option<Millis>,
    next_allocated_at: Option<Millis>,
    /// See [`Past::next`].
    next_own: Option<Millis>,
    /// See [`Past::later`].
    later: Option<Millis>,
    /// See [`Past::was_doubted`].
    was_doubted: bool,
    /// Whether the time of a later allocation is uncertain. Either the next allocation's time is
    /// unknown, or an allocation's recorded time is later than that of the allocation that followed
    /// it. The latter happens if the wall clock was wrong and was not corrected before the machine
    /// rebooted. In both cases, the look-up returns an older allocation only if its lockout was
    /// still running at the requested time.
    is_doubtful: bool,
    /// The keep-alives, if the walk collects them.
    collected: Option<Collected>,
}

/// The keep-alives that a walk has read.
#[derive(Clone, Debug, Default)]
struct Collected {
    found: KeepAlives,
    /// A walk skips keep-alives after the requested time. If it also skips keep-alives from before
    /// that time, it returns to this record and reads the keep-alives one by one.
    return_to: Option<Position>,
    /// The count of keep-alives after the requested time that were read one by one; `None` while
    /// the walk skips them.
    later: Option<u32>,
}

/// The record that a look-up needs, or its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the record at this position and pass it to [`Walk::feed`].
    Read(Position),
    /// The result.
    Done(Past),
}

/// The error for a record that cannot be at the position where it was found: the journal is
/// damaged, or was changed by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenChain {
    /// The requested number.
    pub number: PromoNumber,
}

impl Engine {
    /// Whether another owner may have allocated `number` after the newest allocation known here.
    /// This is possible if a hold of the pool ended after that allocation's lockout.
    #[must_use]
    pub fn is_doubted(&self, number: PromoNumber) -> bool {
        self.shard.find(number).is_some_and(|slot| self.shard.is_doubted(slot))
    }

    /// Begins a look-up of the holder of `number` at the time `at`. `noted` contains the clocks
    /// that the journals of all the node's shards have recorded.
    #[must_use]
    pub fn attribution<'a>(
        &self,
        number: PromoNumber,
        at: Moment,
        noted: &'a [Noted],
    ) -> (Walk<'a>, Step) {
        let newest_at = self.shard.newest_local_at(number).unwrap_or_default();
        let newest = self.shard.newest(number).filter(|slot| slot.allocated_at > Millis::ZERO);
        let clocks = self.clocks();
        let times = (newest_at, self.now);
        let mut walk = Walk {
            number,
            at,
            clocks,
            noted,
            newest,
            newest_at,
            newest_shift: wall_less_shard_at(times, clocks, clocks, noted.iter().copied()),
            newest_by: wall_before(times, clocks, clocks, noted.iter().copied()),
            is_foreign: false,
            is_settled: false,
            locked_until: None,
            next_allocated_at: None,
            next_own: None,
            later: None,
            was_doubted: false,
            is_doubtful: false,
            collected: None,
        };
        let step = newest.map_or(Step::Done(Past::default()), |slot| walk.back(slot.position));
        (walk, step)
    }

    /// Returns the record at `position`, if it is in the open group.
    #[must_use]
    pub fn pending_record(&self, position: Position) -> Option<Record<'_>> {
        self.writer.read_pending(position)
    }
}

impl Moment {
    /// Whether an event had happened by this moment. The event's shard time is `shard`, and its
    /// wall-clock time is `wall`.
    fn is_from(self, shard: Millis, wall: Millis) -> bool {
        match self {
            Self::Wall(at) => wall <= at,
            Self::Shard(at) => shard <= at,
        }
    }

    /// Whether a lockout is over by this moment. The lockout ends at the shard time `shard`, which
    /// is `wall` by the wall clock.
    fn is_after(self, shard: Millis, wall: Millis) -> bool {
        match self {
            Self::Wall(at) => at >= wall,
            Self::Shard(at) => at >= shard,
        }
    }
}

/// An allocation that a walk has read.
struct Met<'a> {
    pool: PoolId,
    allocated_at: Millis,
    locked_until: Millis,
    was_doubted: bool,
    /// The wall clock minus shard time at `allocated_at`.
    shift: i64,
    params: [&'a [u8]; 2],
}

impl Walk<'_> {
    /// Makes the look-up also collect the keep-alives of the allocation that it returns. Each
    /// keep-alive takes one read.
    #[must_use]
    pub fn with_keep_alives(mut self) -> Self {
        self.collected = Some(Collected::default());
        self
    }

    /// Processes the requested record. `group` contains the clocks that were recorded in the
    /// record's group.
    ///
    /// # Errors
    /// [`BrokenChain`] if the record does not belong to this number.
    pub fn feed(
        &mut self,
        record: &Record<'_>,
        group: Option<Clocks>,
    ) -> Result<Step, BrokenChain> {
        let (broken, dated) = (BrokenChain { number: self.number }, self.shift(record, group));
        let shift = dated.unwrap_or_else(|| self.shift_now());
        if let Some(skipped) = self.overshot(record.at(), shift) {
            return Ok(Step::Read(skipped));
        }
        match *record {
            Record::Release { number, previous, restored: Some(restored), .. }
                if number == self.number =>
            {
                // Following `previous` skips the record of the undone allocation, which no visitor
                // saw.
                let newest = self.newest.as_mut().filter(|_| !self.is_settled);
                if let Some(newest) = newest {
                    newest.locked_until = restored.locked_until;
                }
                Ok(self.back(previous))
            }
            Record::Extend { number, at, until, previous, allocation, .. }
                if number == self.number =>
            {
                self.relocked(at, until);
                let next = self.collect(at, shift, previous, allocation);
                Ok(self.back(next))
            }
            Record::Release { number, at, until, previous, .. } if number == self.number => {
                self.relocked(at, until);
                Ok(self.back(previous))
            }
            Record::Allocate {
                number, at, pool, lockout, previous, was_doubted, params, ..
            } if number == self.number => {
                let (allocated_at, locked_until) = (at, at + lockout);
                let met = Met { pool, allocated_at, locked_until, was_doubted, shift, params };
                Ok(self.allocation(&met).unwrap_or_else(|| self.back(previous)))
            }
            Record::Carry { number, allocated_at, locked_until, pool, params, .. }
                if number == self.number =>
            {
                // The doubt does not matter, because no earlier records are kept.
                let was_doubted = false;
                let met = Met { pool, allocated_at, locked_until, was_doubted, shift, params };
                if let Some(collected) = &mut self.collected {
                    // The keep-alive records that were written before this `Carry` record are no
                    // longer kept.
                    collected.found.is_part = true;
                }
                // The `Carry` record replaces the original record of the allocation. No earlier
                // records are kept.
                Ok(self.allocation(&met).unwrap_or_else(|| Step::Done(self.end(Missing::NotKept))))
            }
            Record::Adopt { number, allocated_at, locked_until, local_at, previous, .. }
                if number == self.number =>
            {
                self.adopted(allocated_at, locked_until, local_at, dated);
                Ok(self.back(previous))
            }
            _ => Err(broken),
        }
    }

    /// Returns the position of the record to which the walk must return. It must return if it has
    /// skipped keep-alives and has now reached a record from before the requested time. `at` is the
    /// time of the record that was reached.
    fn overshot(&mut self, at: Millis, shift: i64) -> Option<Position> {
        let is_from = self.at.is_from(at, shifted(at, shift));
        let collected = self.collected.as_mut()?;
        let return_to = collected.return_to.take().filter(|_| is_from)?;
        collected.later = Some(0);
        Some(return_to)
    }

    /// Collects the keep-alive at `at`, and returns the position of the record to read next.
    fn collect(
        &mut self,
        at: Millis,
        shift: i64,
        previous: Position,
        allocation: Position,
    ) -> Position {
        let wall = shifted(at, shift);
        let is_from = self.at.is_from(at, wall);
        let passed = if allocation == Position::NONE { previous } else { allocation };
        let Some(collected) = &mut self.collected else { return passed };
        if is_from && collected.found.at.len() < KEEP_ALIVES_MAX {
            collected.found.at.push(wall);
            assert!(collected.found.at.len() <= KEEP_ALIVES_MAX, "more keep-alives than the limit");
            return previous;
        }
        if !is_from && collected.later.is_none() {
            collected.return_to = (allocation != Position::NONE).then_some(previous);
            return passed;
        }
        if !is_from
            && let Some(later) = collected.later.as_mut()
            && *later < LATER_KEEP_ALIVES_MAX
        {
            *later += 1;
            return previous;
        }
        collected.found.is_part = true;
        passed
    }

    /// Returns the current wall clock minus the current shard time.
    fn shift_now(&self) -> i64 {
        self.clocks.map_or(0, |clocks| clocks.wall_less_shard())
    }

    /// Returns the wall clock minus shard time when the event in `record` happened, or `None` if
    /// the difference is unknown.
    fn shift(&self, record: &Record<'_>, group: Option<Clocks>) -> Option<i64> {
        let (then, noted) = (record.clocks(group), self.noted.iter().copied());
        match *record {
            Record::Adopt { at, local_at, .. } => {
                wall_less_shard_at((local_at, at), then, self.clocks, noted)
            }
            _ => Some(wall_less_shard(then, self.clocks, noted)),
        }
    }

    /// Ends the look-up without the record that it needs next, because the record is no longer kept
    /// or would be read too late.
    #[must_use]
    pub fn end(&self, missing: Missing) -> Past {
        let held = self.newest_held();
        // If the newest allocation in the shard's state is the requested one, only its record is
        // missing. A later look-up may still find the record, so nothing is reported.
        let is_reported = held.is_none() || missing == Missing::TooLong;
        let foreign = |newest: &Slot| newest.allocated_at != self.newest_at;
        let is_received = |newest: &Slot| self.is_undated() || foreign(newest);
        let newest = self.newest.filter(|_| held.is_none());
        // The allocation's wall-clock time may be wrong even if this shard made the allocation or
        // received it from a shard of the same node. The record that contains the clocks of that
        // time is no longer kept.
        let later = newest.map(|newest| newest.allocated_at);
        let later_by = self.newest_by.filter(|_| newest.as_ref().is_some_and(is_received));
        let missing = Some(missing).filter(|_| is_reported);
        let (next, was_doubted) = (self.next_own, self.was_doubted);
        Past { held, missing, was_doubted, later, later_by, next, ..Past::default() }
    }

    /// Returns the newest allocation, if it was made no later than the requested time and its
    /// record has not been read.
    fn newest_held(&self) -> Option<PastAllocation> {
        let newest = self.newest?;
        let shift = match self.at {
            Moment::Wall(_) => self.newest_shift?,
            Moment::Shard(_) => self.newest_shift.unwrap_or_else(|| self.shift_now()),
        };
        let wall = shifted(self.newest_at, shift);
        self.at.is_from(self.newest_at, wall).then(|| PastAllocation {
            pool: None,
            allocated_at: newest.allocated_at,
            allocated_wall: wall,
            locked_until: shifted(newest.locked_until, shift),
            params: Vec::new(),
            next_allocated_at: self.next_allocated_at,
            keep_alives: self.collected.as_ref().map(|it| it.found.clone()),
        })
    }

    /// Returns the result. The result is uncertain if the newest allocation's time is unknown,
    /// because that allocation may be the requested one.
    fn past(&self, held: Option<PastAllocation>) -> Past {
        let missing = Some(Missing::NotKept).filter(|_| held.is_none() && self.is_undated());
        let (later, next, was_doubted) = (self.later, self.next_own, self.was_doubted);
        Past { held, missing, was_doubted, later, next, ..Past::default() }
    }

    /// Whether the look-up needs the newest allocation's time but that time is unknown.
    fn is_undated(&self) -> bool {
        matches!(self.at, Moment::Wall(_)) && self.newest_shift.is_none()
    }

    /// Processes a record, written at `at`, that changed the end of the lockout. The shard's state
    /// already contains the current end of the newest allocation's lockout.
    fn relocked(&mut self, at: Millis, until: Millis) {
        if self.is_foreign || self.newest.is_none() || at < self.newest_at {
            self.locked_until.get_or_insert(until);
        } else {
            self.is_settled = true;
        }
    }

    /// Returns the result if `met` is the allocation that the look-up needs, or `None` if that
    /// allocation is further back.
    fn allocation(&mut self, met: &Met<'_>) -> Option<Step> {
        let mut locked_until = self.locked_until.take().unwrap_or(met.locked_until);
        if let Some(newest) = self.newest {
            if newest.allocated_at == met.allocated_at {
                locked_until = newest.locked_until;
                self.newest_shift = Some(met.shift);
            } else if let Some(held) = self.newest_held() {
                return Some(Step::Done(self.past(Some(held))));
            } else {
                self.next_allocated_at =
                    self.newest_shift.map(|shift| shifted(self.newest_at, shift));
                self.is_doubtful |= self.is_undated();
                self.later = Some(newest.allocated_at);
            }
            self.newest = None;
        }
        let wall = shifted(met.allocated_at, met.shift);
        // This allocation preceded the next one, even if the recorded times suggest otherwise.
        let known = self.next_allocated_at.map_or(wall, |next| wall.min(next));
        self.is_doubtful |= known < wall;
        if self.at.is_from(met.allocated_at, known) {
            let locked_wall = shifted(locked_until, met.shift);
            let is_late = self.at.is_after(locked_until, locked_wall);
            let held = PastAllocation {
                pool: Some(met.pool),
                allocated_at: met.allocated_at,
                allocated_wall: known,
                locked_until: locked_wall,
                params: met.params.concat(),
                next_allocated_at: self.next_allocated_at,
                keep_alives: self.collected.as_ref().map(|it| it.found.clone()),
            };
            let held = Some(held).filter(|_| !(is_late && self.is_doubtful));
            return Some(Step::Done(self.past(held)));
        }
        self.next_allocated_at = Some(known);
        self.next_own = Some(known);
        self.later = None;
        self.was_doubted = met.was_doubted;
        self.collected = self.collected.as_ref().map(|_| Collected::default());
        None
    }

    /// Processes an `Adopt` record. The original record of the allocation is in another shard's
    /// journal, unless the number was allocated here, moved away and came back.
    fn adopted(
        &mut self,
        allocated_at: Millis,
        locked_until: Millis,
        local_at: Millis,
        shift: Option<i64>,
    ) {
        self.is_foreign = true;
        let extended = self.locked_until.take();
        if self.newest.is_some_and(|newest| newest.allocated_at == allocated_at) {
            // Uses the clocks at the time when the allocation was adopted, not the current ones.
            self.newest_shift = shift;
        }
        // A time of zero stands for a lockout without an allocation.
        if self.newest.is_none() && allocated_at > Millis::ZERO {
            let locked_until = extended.unwrap_or(locked_until);
            let position = Position::NONE;
            self.newest = Some(Slot { number: self.number, allocated_at, locked_until, position });
            self.newest_at = local_at;
            self.newest_shift = shift;
        }
    }

    fn back(&mut self, previous: Position) -> Step {
        if previous == Position::NONE {
            let held = self.newest_held();
            let foreign = self.newest.filter(|_| held.is_none());
            self.later = foreign.map(|newest| newest.allocated_at).or(self.later);
            Step::Done(self.past(held))
        } else {
            Step::Read(previous)
        }
    }
}

#[cfg(test)]
mod tests;
