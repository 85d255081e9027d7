//! One shard as a state machine: requests go in, answers and journal groups come out.
//!
//! Combines the allocation rules (`ringwell-core`) with the journal's records. Does no I/O: the
//! caller writes the sealed groups, reports when they are durable, and only then sends the answers.
//! Invariant: when an outcome is returned, the record of its number is in [`Engine::newest_group`]
//! or in an earlier group.

use std::collections::{HashMap, VecDeque};

#[cfg(canary)]
use ringwell_core::canary::Bug;
use ringwell_core::{
    Before, Exhausted, Grant, Millis, PoolId, Position, PromoNumber, Shard, VisitorId, Withdrawn,
};
use ringwell_journal::{
    BODY_BYTES_MAX, Clocks, Group, PARAMS_BYTES_MAX, RECORD_OVERHEAD_MAX, Record, RecordedAnswer,
    Restored, RowKey, Tip, Writer,
};

use crate::answers::{Answers, answer_of};
use crate::counts::Counts;
use crate::live_records::LiveRecords;
use crate::outcome::{Outcome, Refusal};

/// The maximum size in bytes of the records that are written for one row: an allocation, or a
/// keep-alive together with the answer to the row.
const ROW_BYTES_MAX: usize = PARAMS_BYTES_MAX + 2 * RECORD_OVERHEAD_MAX;

/// The maximum number of groups that one batch may fill before the first of them is stored.
const SEALED_MAX: usize = 80;

/// The records of one batch always fit if they take at most this many bytes. A driver test checks
/// that the longest configurable body needs less.
pub const BATCH_BYTES_MAX: usize = SEALED_MAX * (BODY_BYTES_MAX - ROW_BYTES_MAX);

/// The longest time until an answer is sent: the longest configurable deadline, plus one second. A
/// driver test checks this.
pub const ANSWER_DELAY_MAX: Millis = Millis(61_000);

/// One row that requests a number.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The pool's index within the shard.
    pub pool: u32,
    /// The pool's id, checked because another pool may have the index by now.
    pub id: PoolId,
    /// The marketing context as received: the query without its key, in two parts.
    pub params: [&'a [u8]; 2],
    /// The visitor who wants to keep the number.
    pub visitor: Option<VisitorId>,
    /// The batch's key and this row's index, if the batch is repeatable.
    pub retry: Option<RowKey>,
}

/// The state machine of one shard.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shard: Shard,
    pub(crate) writer: Writer,
    /// Groups that a long batch has filled, oldest first.
    sealed: VecDeque<Group>,
    pub(crate) answers: Answers,
    pub(crate) now: Millis,
    pub(crate) counts: Counts,
    pub(crate) live: LiveRecords,
    /// The numbers that were moved to other slots by pool changes while a snapshot was being taken.
    /// The new slots may have been written to the snapshot before the numbers were moved there.
    /// `None` if no snapshot is being taken.
    pub(crate) moved: Option<Vec<PromoNumber>>,
    refusal: Option<Refusal>,
    /// The time until which the shard may serve rows: see [`Engine::serve_until`].
    serves_until: Millis,
    /// For each number whose newest record is a keep-alive, the positions that its next keep-alive
    /// record must contain.
    origins: HashMap<PromoNumber, Origin>,
}

/// The position of the allocation to which a keep-alive belongs.
#[derive(Clone, Copy, Debug)]
struct Origin {
    /// The position of the keep-alive. The entry is obsolete if the number has a newer record.
    newest: Position,
    allocation: Position,
}

/// The maximum count of numbers whose origins are kept, at about 48 bytes each. If there are more
/// numbers, all origins are forgotten, and the next keep-alive of each number points to the
/// keep-alive before it.
const ORIGINS_MAX: usize = 1 << 20;

impl Engine {
    pub(crate) fn new(shard: Shard, writer: Writer, answers: Answers, now: Millis) -> Self {
        let live = LiveRecords::new(writer.pending_n());
        Self {
            shard,
            writer,
            sealed: VecDeque::new(),
            answers,
            now,
            counts: Counts::default(),
            live,
            moved: None,
            refusal: None,
            serves_until: Millis(u64::MAX),
            origins: HashMap::new(),
        }
    }

    /// Returns the next event's shard time: `clock`, or the last event's time if that is later.
    pub fn at(&mut self, clock: Millis) -> Millis {
        self.now = self.now.max(clock);
        self.now
    }

    /// Sets the current clocks, which are recorded in the groups that are sealed next.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.writer.set_clocks(clocks);
    }

    /// The latest clocks, or `None` if none have been set.
    #[must_use]
    pub fn clocks(&self) -> Option<Clocks> {
        self.writer.clocks()
    }

    /// The shard time of the last event.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Refuses rows for the given reason from now on, or serves rows again if the reason is `None`.
    pub fn refuse(&mut self, refusal: Option<Refusal>) {
        self.refusal = refusal;
    }

    /// The current reason for refusing rows.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Refuses rows with [`Refusal::Late`] after the time `last`.
    pub fn serve_until(&mut self, last: Millis) {
        self.serves_until = last;
    }

    /// Whether rows may be served at `now`: see [`Self::serve_until`].
    #[must_use]
    pub fn may_serve(&self, now: Millis) -> bool {
        now <= self.serves_until
    }

    /// Answers one row at `now`, a time that [`Engine::at`] returned. The outcome is written
    /// directly to its final place, because a returned value would be copied twice.
    #[inline]
    pub fn allocate(&mut self, now: Millis, ask: &Ask<'_>, outcome: &mut Outcome) {
        if now > self.serves_until {
            *outcome = Outcome::Refused(Refusal::Late);
        } else if let Some(refusal) = self.refusal {
            *outcome = Outcome::Refused(refusal);
        } else if !self.writer.has_room(ROW_BYTES_MAX) && !self.begin_group() {
            *outcome = Outcome::Refused(Refusal::Busy);
        } else if !self.shard.is_pool(ask.pool, ask.id) {
            self.counts.moved += 1;
            *outcome = Outcome::Refused(Refusal::Moved);
        } else if ask.retry.is_some() || ask.visitor.is_some() {
            *outcome = self.allocate_with_memory(now, ask);
        } else {
            self.allocate_next(now, ask, None, outcome);
        }
    }

    /// Seals the open group in the middle of a batch, and begins the next group. Returns `false` if
    /// too many groups are already waiting to be stored.
    #[cold]
    fn begin_group(&mut self) -> bool {
        if self.sealed.len() == SEALED_MAX {
            return false;
        }
        self.sealed.extend(self.writer.seal(Vec::new()));
        let last = self.sealed.back().map(|group| group.header.n + 1);
        assert!(last == Some(self.group()), "the numbers of sealed groups have a gap");
        assert!(self.writer.has_room(ROW_BYTES_MAX), "an empty group has no room for a row");
        true
    }

    /// Serves a row that belongs to a repeatable batch or names a visitor who may return.
    #[cold]
    fn allocate_with_memory(&mut self, now: Millis, ask: &Ask<'_>) -> Outcome {
        if let Some(row) = ask.retry
            && let Some((at, answer)) = self.answers.repeat(now, row)
            && !self.has_left(now, ask, at, answer)
        {
            self.counts.repeated += 1;
            return match answer {
                RecordedAnswer::Number(number) => self.repeat(now, ask.pool, number, at),
                RecordedAnswer::Overflow => Outcome::Exhausted { until: Millis::ZERO },
            };
        }
        let held = ask.visitor.and_then(|visitor| self.keep(now, ask.pool, visitor));
        let place = self.next_position();
        let outcome = held.map_or_else(|| self.allocate_kept(now, ask), kept);
        let Some(row) = ask.retry else { return outcome };
        if let Some(answer) = answer_of(outcome) {
            // An allocation's record already contains the row's key, so the answer needs no record
            // of its own.
            if held.is_none() && answer != RecordedAnswer::Overflow {
                self.answers.remember_new(now, ask.id, row, answer);
                self.answers.allocated(place, row);
            } else {
                self.answers.remember(now, ask.id, row, answer);
                let pool = self.shard.pool_id(ask.pool);
                let number = match answer {
                    RecordedAnswer::Number(number) => Some(number),
                    RecordedAnswer::Overflow => None,
                };
                self.writer.append(&Record::Answer { at: now, pool, row, number });
            }
        }
        outcome
    }

    /// Whether the visitor of `ask` no longer has the number in `answer`, and has another number or
    /// can receive one. The row is then served like a new one, because a visitor has at most one
    /// number in a pool.
    fn has_left(&self, now: Millis, ask: &Ask<'_>, at: Millis, answer: RecordedAnswer) -> bool {
        #[cfg(canary)]
        if Bug::TwoOfAPool.is_planted() {
            return false;
        }
        let (Some(visitor), RecordedAnswer::Number(number)) = (ask.visitor, answer) else {
            return false;
        };
        self.shard.find(number).is_some_and(|slot| {
            let is_here = self.shard.pool_of(slot) == Some(ask.pool);
            // If the number was allocated after `at`, another visitor has had it since.
            let is_the_rows = self.shard.local_at(slot) <= at;
            let is_kept = self.shard.visitor(slot) == Some(visitor);
            // An allocation that followed the row's own may just have been undone. The number may
            // then still be locked for a moment, but this lockout protects no visitor.
            let is_over = self.shard.slots()[slot as usize].is_free(now + ANSWER_DELAY_MAX);
            let has_other = || {
                let other = self.shard.slot_of(ask.pool, visitor);
                other.is_some_and(|other| !self.shard.slots()[other as usize].is_free(now))
            };
            is_here && is_the_rows && !is_kept && (is_over || has_other())
        })
    }

    fn allocate_kept(&mut self, now: Millis, ask: &Ask<'_>) -> Outcome {
        let mut outcome = Outcome::Refused(Refusal::Late);
        self.allocate_next(now, ask, ask.visitor, &mut outcome);
        match outcome {
            Outcome::Allocated { number } => kept(number),
            other => other,
        }
    }

    #[inline]
    fn allocate_next(
        &mut self,
        now: Millis,
        ask: &Ask<'_>,
        visitor: Option<VisitorId>,
        outcome: &mut Outcome,
    ) {
        let position = self.next_position();
        match self.shard.allocate(now, ask.pool, visitor, position) {
            Err(Exhausted { until }) => {
                self.counts.exhausted += 1;
                *outcome = Outcome::Exhausted { until };
            }
            Ok(grant) => {
                let written = self.writer.append(&Record::Allocate {
                    at: now,
                    pool: self.shard.pool_id(ask.pool),
                    slot: grant.slot,
                    number: grant.number,
                    lockout: grant.locked_until - now,
                    previous: grant.previous,
                    was_doubted: grant.was_doubted,
                    visitor,
                    idempotency: ask.retry,
                    params: ask.params,
                });
                assert!(written == position, "a record is not at its announced position");
                self.live.moved(grant.previous, position, true);
                self.counts.allocated += 1;
                *outcome = Outcome::Allocated { number: grant.number };
            }
        }
    }

    /// Answers a repeated row of `pool` with the number that it received at `at`. The row gets no
    /// number if its number has since gone to another visitor or entered another pool. It also gets
    /// none if the pool is held now, or was still held when the lockout ended. If the lockout is
    /// over, or may end before the answer is sent, a new one begins, because the visitor may see
    /// the number for the first time.
    fn repeat(&mut self, now: Millis, pool: u32, number: PromoNumber, at: Millis) -> Outcome {
        let slot = self.shard.find(number).filter(|slot| self.shard.pool_of(*slot) == Some(pool));
        let Some(slot) = slot.filter(|slot| self.shard.local_at(*slot) <= at) else {
            return Outcome::Exhausted { until: Millis::ZERO };
        };
        // If it is uncertain who had the number last, a running lockout may belong to another
        // visitor.
        if self.shard.is_held(slot, now) || self.shard.is_doubted(slot) {
            return Outcome::Exhausted { until: Millis::ZERO };
        }
        if self.shard.slots()[slot as usize].is_free(now + ANSWER_DELAY_MAX) {
            let position = self.next_position();
            let grant = self.shard.extend(now, slot, position);
            assert!(grant.is_some(), "no slot contains the number");
            grant.inspect(|grant| self.extended(now, grant));
        }
        Outcome::Kept { number }
    }

    fn keep(&mut self, now: Millis, pool: u32, visitor: VisitorId) -> Option<PromoNumber> {
        let position = self.next_position();
        let grant = self.shard.keep(now, pool, visitor, position)?;
        self.extended(now, &grant);
        self.counts.kept += 1;
        Some(grant.number)
    }

    /// Records that a number's lockout was extended.
    fn extended(&mut self, now: Millis, grant: &Grant) {
        let known = self.origins.get(&grant.number).filter(|it| it.newest == grant.previous);
        let allocation = known.map_or(Position::NONE, |it| it.allocation);
        let position = self.writer.append(&Record::Extend {
            at: now,
            slot: grant.slot,
            number: grant.number,
            until: grant.locked_until,
            previous: grant.previous,
            allocation,
        });
        self.check_position(grant, position);
        self.live.moved(grant.previous, position, false);
        if self.origins.len() >= ORIGINS_MAX {
            self.origins.clear();
        }
        let allocation = if allocation == Position::NONE { grant.previous } else { allocation };
        self.origins.insert(grant.number, Origin { newest: position, allocation });
    }

    /// Ends the lockout of a number's newest allocation early. If `allocated_at` is given, does so
    /// only if the allocation was made at that time. Returns whether a lockout was ended.
    pub fn release(
        &mut self,
        now: Millis,
        number: PromoNumber,
        allocated_at: Option<Millis>,
    ) -> bool {
        let Some(slot) = self.shard.find(number) else { return false };
        let since = allocated_at.unwrap_or(self.shard.slots()[slot as usize].allocated_at);
        self.release_slot(now, slot, since)
    }

    /// Like [`Self::release`], but does nothing if the lockout was extended after `seen_at`.
    pub fn release_unseen(
        &mut self,
        now: Millis,
        number: PromoNumber,
        allocated_at: Option<Millis>,
        seen_at: Millis,
    ) -> bool {
        let slot = self.shard.find(number);
        slot.is_some_and(|slot| self.shard.is_unseen_since(slot, seen_at))
            && self.release(now, number, allocated_at)
    }

    /// Undoes the allocation of `number` that was made at `allocated_at` and whose answer was never
    /// sent. The lockout ends, and the previous allocation becomes the number's newest one again.
    /// The row that got the number receives a new answer if it is repeated. Returns `false` and
    /// undoes nothing if the same visitor or row has got the number again, because the number may
    /// then have been seen.
    ///
    /// If the open group has no room for the records, the lockout runs to its end, as in
    /// [`Self::release_slot`].
    pub fn withdraw(&mut self, now: Millis, number: PromoNumber, allocated_at: Millis) -> bool {
        let Some(slot) = self.shard.find(number) else { return false };
        let row = self.answers.row_at(self.shard.slots()[slot as usize].position);
        let is_shared = row.is_some_and(|row| !self.answers.is_new(row));
        if is_shared || !self.writer.has_room(2 * RECORD_OVERHEAD_MAX) {
            return false;
        }
        let position = self.next_position();
        let Some(withdrawn) = self.shard.withdraw(now, slot, allocated_at, position) else {
            // If the number has left its pool since, only its lockout can be ended.
            let _ = self.shard.has_left(slot) && self.release_slot(now, slot, allocated_at);
            return false;
        };
        let Withdrawn { grant, before, doubted } = withdrawn;
        if let Some(row) = row {
            self.answers.forget(row);
        }
        self.released(now, &grant, Some(before), row);
        if doubted.is_some() {
            self.writer.append(&Record::Hold { at: now, pool: doubted, until: now });
        }
        true
    }

    /// Ends the lockout of the number in `slot` because its visitor has left. Does nothing if the
    /// newest allocation was not made at `allocated_at`.
    ///
    /// If the open group has no room for the record, the lockout runs to its end.
    pub fn release_slot(&mut self, now: Millis, slot: u32, allocated_at: Millis) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        let position = self.next_position();
        let Some(grant) = self.shard.release(now, slot, allocated_at, position) else {
            return false;
        };
        self.released(now, &grant, None, None);
        true
    }

    /// Records that a lockout was ended early. If `before` is given, also records that it is the
    /// number's newest allocation again. If `forgotten` is given, also records that the answer to
    /// that row is no longer remembered.
    fn released(
        &mut self,
        now: Millis,
        grant: &Grant,
        before: Option<Before>,
        forgotten: Option<RowKey>,
    ) {
        let restored = before.map(|before| Restored {
            allocated_at: before.allocated_at,
            local_at: before.local_at,
            locked_until: before.locked_until,
        });
        let position = self.writer.append(&Record::Release {
            at: now,
            slot: grant.slot,
            number: grant.number,
            until: grant.locked_until,
            previous: before.map_or(grant.previous, |before| before.position),
            restored,
            forgotten,
        });
        self.check_position(grant, position);
        self.live.moved(grant.previous, position, before.is_some());
        if let Some(before) = before {
            self.live.again(before.position);
        }
        self.counts.released += 1;
    }

    /// Checks the record's position, because the shard used it before the record was written.
    fn check_position(&self, grant: &Grant, written: Position) {
        let known = &self.shard.slots()[grant.slot as usize];
        assert!(known.number == grant.number, "the record belongs to another number");
        assert!(known.position == written, "a record is not at its announced position");
    }

    /// Records the current time, so that it is known after a restart that follows a quiet period.
    pub fn tick(&mut self, now: Millis) {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return;
        }
        self.writer.append(&Record::Tick { at: now });
    }

    /// The number of the open group.
    #[must_use]
    pub fn group(&self) -> u64 {
        self.writer.pending_n()
    }

    /// Returns the last group that contains records. When this group is durable, all records so far
    /// are durable. An empty group may stay open for seconds, so requests must never wait for it.
    #[must_use]
    pub fn newest_group(&self) -> u64 {
        let is_begun = self.writer.pending_bytes() > 0;
        if is_begun { self.group() } else { self.group() - 1 }
    }

    /// The end of the journal before the open group.
    #[must_use]
    pub fn tip(&self) -> Tip {
        self.writer.tip()
    }

    /// Whether a group must be sealed before the next batch is accepted. The rows of a batch in
    /// progress are still accepted, and continue in as many further groups as they need.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.writer.is_full() || !self.sealed.is_empty()
    }

    /// Marks the end of a batch's rows. Their records do not change after this.
    #[inline]
    pub fn end_batch(&mut self) {
        self.writer.sum();
    }

    /// Whether records are waiting to be written.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending_bytes() > 0
    }

    /// The count of bytes that are waiting to be written.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(|group| group.body.len()).sum();
        self.writer.pending_bytes() + sealed
    }

    /// Returns the oldest group to store: a group that a long batch has filled, or otherwise the
    /// open group, after sealing it. `spare` becomes the buffer of the next group. Returns `None`
    /// if there are no records.
    ///
    /// # Panics
    /// Never panics, because a sealed group is no longer open.
    pub fn seal(&mut self, spare: Vec<u8>) -> Option<Group> {
        let group = self.sealed.pop_front().or_else(|| self.writer.seal(spare));
        let is_older = |group: &Group| group.header.n < self.group();
        assert!(group.as_ref().is_none_or(is_older), "a group was sealed but is still open");
        let is_past = |group: &Group| group.header.last_at <= self.now;
        assert!(group.as_ref().is_none_or(is_past), "a record's time is in the future");
        group
    }

    /// This engine's event counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The state of the allocation rules, for inspection.
    #[must_use]
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The count of remembered answers to rows of repeatable batches.
    #[must_use]
    pub fn answers_remembered(&self) -> usize {
        self.answers.len()
    }

    /// The position of the next record.
    #[inline]
    pub(crate) fn next_position(&self) -> Position {
        self.writer.next_position()
    }
}

fn kept(number: PromoNumber) -> Outcome {
    Outcome::Kept { number }
}
