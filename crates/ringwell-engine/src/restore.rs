//! Restores a shard at startup: reads its snapshot and journal, and returns an engine that is ready
//! to serve.
//!
//! The driver reads the files in order: first the pieces of the newest complete snapshot, then
//! every group after the snapshot. Source: docs/spec/allocation.md, "Recovery".

use ringwell_core::{Fact, Millis, PoolId, PoolSpec, Position, Rebuild, Retired, Slot};
use ringwell_journal::{
    AnswerEntry, Clocks, DecodeError, ForeignTimeEntry, GroupHeader, HoldEntry, NumberEntry,
    Record, RecordedAnswer, Records, SnapshotHeader, Tip, Writer, position_parts,
};

use crate::answers::Answers;
use crate::changes::{TOLD, received_at};
use crate::clock::{Recorded, doubtful};
use crate::engine::Engine;

/// Collects the facts from the snapshot and the journal. [`Restore::finish`] creates the engine.
#[derive(Debug)]
pub struct Restore {
    rebuild: Rebuild,
    answers: Answers,
    /// The time of this shard's last known event.
    known: Recorded,
    /// The process's clocks at this startup. If `None`, the process records no clocks.
    resumed: Option<Clocks>,
    /// The maximum wall-clock error after a reboot. Errors up to this maximum never end a lockout
    /// early.
    skew_max: Millis,
    /// The newest time recorded by the node's other shards.
    elsewhere: Millis,
    /// The time added to lockouts that were still running at the last recorded time.
    lengthened: Option<Millis>,
    /// The longest lockout of a pool, or the longest that was found, whichever is longer.
    lockout_max: Millis,
    /// The number of the first group to replay. The snapshot may already contain the effects of the
    /// replayed groups.
    replay_from: u64,
    /// The slot that probably contains the next number in the snapshot. A snapshot lists numbers in
    /// the order of their slots.
    next_slot: u32,
}

/// The corrections that were made at startup because of uncertain time or damage, for the
/// operator's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// The time added to running lockouts, because shard time may have gained this much on true
    /// time since the newest record.
    pub lengthened: Option<Millis>,
    /// The wall clock minus shard time, in milliseconds.
    pub wall_less_shard: i64,
    /// The time before which nothing is handed out, because the records of some answered
    /// allocations may be missing.
    pub held_until: Option<Millis>,
}

impl Restore {
    /// Starts from the directory's pools, in the order of their indices. `answer_rows_max` is the
    /// maximum count of remembered answers to rows of repeatable batches.
    #[must_use]
    pub fn new(specs: Vec<PoolSpec>, answer_rows_max: usize) -> Self {
        let lockout_max = specs.iter().map(|spec| spec.lockout).max().unwrap_or_default();
        Self {
            rebuild: Rebuild::new(specs),
            answers: Answers::new(answer_rows_max),
            known: Recorded { last_at: Millis::ZERO, clocks: None },
            resumed: None,
            skew_max: Millis::ZERO,
            elsewhere: Millis::ZERO,
            lengthened: None,
            lockout_max,
            replay_from: u64::MAX,
            next_slot: 0,
        }
    }

    /// Begins reading a snapshot. The time in its header is trusted, because it had certainly
    /// passed when the snapshot began.
    pub fn begin_snapshot(&mut self, header: &SnapshotHeader) {
        let SnapshotHeader { created_at, clocks, replay_from, .. } = *header;
        self.known = self.known.or_newer(Recorded { last_at: created_at, clocks });
        self.replay_from = replay_from;
    }

    /// Returns the times that this shard has recorded. Its journal ends at `tip`.
    #[must_use]
    pub fn recorded(&self, tip: &Tip) -> Recorded {
        self.known.or_newer(Recorded::at_end(tip))
    }

    /// Sets the maximum wall-clock error after a reboot. Errors up to this maximum never end a
    /// lockout early. Must be called before any record is replayed.
    pub fn believe(&mut self, skew_max: Millis) {
        self.skew_max = skew_max;
    }

    /// Sets the process's clocks at this startup, at the shard time `now`. See
    /// [`crate::Reading::resume`]. The journal ends at `tip`. Must be called before other shards
    /// adopt anything from this shard, because the lockouts that they adopt must already be
    /// lengthened.
    pub fn resume(&mut self, clocks: Clocks, now: Millis, tip: &Tip) {
        self.resumed = Some(clocks);
        self.elsewhere = self.elsewhere.max(now);
        self.known = self.recorded(tip);
        self.lengthened = self.pass(now, self.resumed);
        self.known = Recorded { last_at: self.known.last_at.max(now), clocks: self.resumed };
    }

    /// Continues shard time at `at`. If the time since the last record is uncertain, lengthens
    /// running lockouts by the uncertain part, and returns that part.
    fn pass(&mut self, at: Millis, clocks: Option<Clocks>) -> Option<Millis> {
        let by = doubtful(self.known, at, clocks, self.skew_max);
        if by == Millis::ZERO {
            return None;
        }
        self.rebuild.lengthen(self.known.last_at, by);
        Some(by)
    }

    /// Adds a number from the snapshot.
    pub fn number(&mut self, entry: &NumberEntry) {
        let NumberEntry { number, pool, allocated_at, locked_until, position, visitor } = *entry;
        if position_parts(position).0 < self.replay_from {
            self.note_lockout_length(allocated_at, locked_until, visitor.is_some());
        }
        let slot = Slot { number, allocated_at, locked_until, position };
        let found = self.rebuild.restore(self.next_slot, Fact { slot, pool, visitor });
        self.next_slot = found.map_or(self.next_slot, |slot| slot + 1);
    }

    /// Determines the longest lockout from lockouts that have not ended yet, because a lockout that
    /// is over may have been ended early by a release. If a visitor may have extended a lockout,
    /// the time from the allocation to the end may exceed one lockout. The time from the newest
    /// record to the end is then used instead. A released number stays locked for one more
    /// millisecond, so such lockouts do not count as running. If no visitor saw a released number,
    /// the entry contains an earlier allocation of the number, or zero as the allocation time.
    fn note_lockout_length(
        &mut self,
        allocated_at: Millis,
        locked_until: Millis,
        is_lengthened: bool,
    ) {
        let begun = if is_lengthened { self.known.last_at.max(allocated_at) } else { allocated_at };
        if locked_until > self.known.last_at + Millis(1) && begun > Millis::ZERO {
            self.lockout_max = self.lockout_max.max(locked_until.since(begun));
        }
    }

    /// Adds a remembered answer from the snapshot.
    pub fn answer(&mut self, entry: &AnswerEntry) {
        self.answers.remember(entry.at, entry.pool, entry.row, entry.answer);
    }

    /// Adds an allocation's time by another node's clock. In a snapshot, these times follow the
    /// numbers.
    pub fn foreign_time(&mut self, entry: &ForeignTimeEntry) {
        let ForeignTimeEntry { number, allocated_at, local_at } = *entry;
        self.rebuild.restore_foreign(number, allocated_at, local_at);
    }

    /// Adds a hold from the snapshot.
    pub fn hold(&mut self, entry: &HoldEntry) {
        self.rebuild.hold(entry.pool, entry.until);
    }

    /// Replays a group of the journal.
    ///
    /// # Errors
    /// [`DecodeError`] if the body cannot be read although its checksum is right. In this case, the
    /// body was written by a newer version or by another program.
    pub fn group(&mut self, header: &GroupHeader, body: &[u8]) -> Result<(), DecodeError> {
        // If there is a gap in time between the previous group and this one, an earlier startup
        // also found it. That startup wrote a snapshot before serving, but the snapshot has been
        // lost.
        self.pass(header.at, header.clocks);
        for record in Records::new(header.n, header.at, body) {
            let (position, record) = record?;
            self.record(position, &record);
        }
        let end = Recorded { last_at: header.last_at, clocks: header.clocks };
        // In a shared log, another process may have taken the shard over between two groups,
        // written a snapshot with a different time, and then been fenced off. In this case, the
        // time of the newest owner counts.
        let is_of_other_boot = match (self.known.clocks, header.clocks) {
            (Some(known), Some(clocks)) => known.boot != clocks.boot,
            _ => false,
        };
        self.known = if is_of_other_boot { end } else { self.known.or_newer(end) };
        Ok(())
    }

    fn record(&mut self, position: Position, record: &Record<'_>) {
        match *record {
            Record::Allocate { at, pool, slot, number, lockout, visitor, idempotency, .. } => {
                if let Some(row) = idempotency {
                    self.answers.remember(at, pool, row, RecordedAnswer::Number(number));
                    self.answers.allocated(position, row);
                }
                self.lockout_max = self.lockout_max.max(lockout);
                let locked_until = at + lockout;
                let state = Slot { number, allocated_at: at, locked_until, position };
                self.rebuild.allocated(slot, Fact { slot: state, pool, visitor });
            }
            Record::Carry { slot, number, pool, allocated_at, locked_until, visitor, .. } => {
                let state = Slot { number, allocated_at, locked_until, position };
                self.rebuild.learn(slot, Fact { slot: state, pool, visitor });
            }
            Record::Adopt {
                number, pool, allocated_at, locked_until, local_at, visitor, ..
            } => {
                self.note_lockout_length(local_at, locked_until, visitor.is_some());
                let state = Slot { number, allocated_at, locked_until, position };
                self.rebuild.learn_foreign(Fact { slot: state, pool, visitor }, local_at);
            }
            Record::Release {
                slot, number, until, restored: Some(restored), forgotten, ..
            } => {
                if let Some(row) = forgotten {
                    self.answers.forget(row);
                }
                let newest = (restored.allocated_at, restored.local_at);
                self.rebuild.withdraw(slot, number, newest, until, position);
            }
            Record::Extend { slot, number, until, .. } => {
                self.rebuild.relock(slot, number, until, false, position);
            }
            Record::Release { slot, number, until, restored: None, .. } => {
                self.rebuild.relock(slot, number, until, true, position);
            }
            Record::Answer { at, pool, row, number } => {
                let at = if pool == TOLD { received_at(at) } else { at };
                let answer = number.map_or(RecordedAnswer::Overflow, RecordedAnswer::Number);
                self.answers.remember(at, pool, row, answer);
            }
            Record::Hold { pool, until, .. } => self.rebuild.hold(pool, until),
            Record::Tick { .. } => {}
        }
    }

    /// The numbers that have a history here but are no longer in any of the pools.
    pub fn retired(&self) -> impl Iterator<Item = &Retired> {
        self.rebuild.retired()
    }

    /// The remembered answers to rows of repeatable batches, pool by pool.
    pub fn answers(&self) -> impl Iterator<Item = AnswerEntry> {
        self.answers.iter()
    }

    /// Replaces the shard's remembered answers with `all`, which is sorted oldest first and should
    /// include the replaced answers.
    ///
    /// # Panics
    /// Panics only if an invariant of the engine is broken.
    pub fn know_answers(&mut self, all: &[AnswerEntry]) {
        self.answers.clear();
        for answer in all {
            self.answer(answer);
        }
        assert!(self.answers.len() <= all.len(), "more answers are kept than the list has");
    }

    /// The held pools, each with the end of its hold. `None` stands for all pools.
    pub fn holds(&self) -> impl Iterator<Item = (Option<PoolId>, Millis)> {
        self.rebuild.holds()
    }

    /// Adds a hold that another shard has recorded, because its pool may be in this shard now.
    pub fn adopt_hold(&mut self, pool: Option<PoolId>, until: Millis) {
        self.rebuild.hold(pool, until);
    }

    /// The longest lockout that may still run.
    #[must_use]
    pub fn lockout_max(&self) -> Millis {
        self.lockout_max
    }

    /// Records that another shard may have a lockout as long as `longest`.
    pub fn know_lockout(&mut self, longest: Millis) {
        self.lockout_max = self.lockout_max.max(longest);
    }

    /// See [`Rebuild::adopt`].
    pub fn adopt(&mut self, from: &Retired) {
        self.rebuild.adopt(from);
    }

    /// Returns the engine, which serves from the time `clock` on. `tip` is the end of the journal.
    /// `is_in_doubt` means that the journal's last group was once intact and has been damaged
    /// since.
    ///
    /// # Panics
    /// Never panics if `tip` belongs to the journal that was read.
    #[must_use]
    pub fn finish(mut self, tip: Tip, clock: Millis, is_in_doubt: bool) -> (Engine, Doubts) {
        self.known = self.recorded(&tip);
        let known = self.known.last_at.max(self.elsewhere);
        // If this shard's recorded time is far behind the other shards' times, its lockouts do not
        // yet account for the difference.
        let lengthened = self.pass(clock.max(known), self.resumed).or(self.lengthened);
        let wall_less_shard = self.resumed.map_or(0, |clocks| clocks.wall_less_shard());
        let mut doubts = Doubts { lengthened, wall_less_shard, ..Doubts::default() };
        let now = clock.max(known);
        assert!(now >= tip.last_at, "shard time went backwards");
        let mut engine = Engine::new(self.rebuild.finish(), Writer::new(tip), self.answers, now);
        if let Some(clocks) = self.resumed {
            engine.set_clocks(clocks);
        }
        if is_in_doubt {
            let until = now + self.lockout_max;
            engine.hold(now, until);
            doubts.held_until = Some(until);
        }
        (engine, doubts)
    }
}

impl Engine {
    /// Ensures that no number of any pool is handed out before `until`, and records this.
    fn hold(&mut self, now: Millis, until: Millis) {
        self.shard.hold(None, until);
        self.writer.append(&Record::Hold { at: now, pool: None, until });
    }
}

#[cfg(test)]
mod tests;
