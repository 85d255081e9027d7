//! Writes records: a head, followed by the parameters.
//!
//! Inlining is forced, because most of this code can be evaluated at compile time where the kind of
//! record is known. This saves 12 of 134 ns per row, measured over all the work on a batch.

#![expect(clippy::inline_always, reason = "measured: see above")]

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use super::{
    PARAMS_BYTES_MAX, RECORD_OVERHEAD_MAX, Record, Restored, RowKey, flag, kind, params_len,
};
use crate::bytes::{Body, ROOM, Scratch};
use crate::place::{behind, position_parts};

/// The index of the flags byte. Writing an optional field sets the field's flag.
const FLAGS: usize = 1;

impl Record<'_> {
    /// Appends the record to the body of a group. The group's first record has the position `start`
    /// and the time `base`. Returns the position of the record.
    ///
    /// # Panics
    /// Panics if the record breaks a rule of the format: its time is before `base`, its `previous`
    /// does not precede it, or its parameters are too long. This is checked before anything is
    /// written, because such a record could not be read back.
    #[inline(always)]
    pub(crate) fn encode(&self, start: Position, base: Millis, body: &mut Body) -> Position {
        let place = behind(start, body.len());
        self.check(base, place);
        let params = self.params();
        let params_len = params_len(params);
        assert!(params_len <= PARAMS_BYTES_MAX, "parameters are too long for a record");
        let room = body.room(ROOM + params_len);
        let Some(head) = room.first_chunk_mut() else {
            unreachable!("the buffer has the requested length")
        };
        let mut head = Head { scratch: Scratch::new(head), flags: 0, place };
        self.encode_head(base, params_len, &mut head);
        let start = head.end();
        // Checked only in debug builds: the check takes two instructions per row, and
        // `Writer::append` checks the total length.
        debug_assert!(start <= RECORD_OVERHEAD_MAX, "the head exceeds its maximum length");
        let end = start + params_len;
        write_params(params, &mut room[start..end]);
        body.advance(end);
        place
    }

    #[inline(always)]
    fn check(&self, base: Millis, place: Position) {
        assert!(self.at() >= base, "a record's time is before its group's");
        if let Self::Allocate { previous, .. }
        | Self::Extend { previous, .. }
        | Self::Release { previous, .. }
        | Self::Adopt { previous, .. } = *self
        {
            assert!(previous < place, "the previous record's position is not before this one");
            let is_none = previous == Position::NONE;
            assert!(is_none || position_parts(previous).0 > 0, "group numbers start at one");
        }
        if let Self::Extend { previous, allocation, .. } = *self {
            assert!(allocation <= previous, "the allocation is after the previous record");
        }
    }

    /// Writes the whole record except its parameters, which are `params_len` bytes long.
    #[inline(always)]
    fn encode_head(&self, base: Millis, params_len: usize, head: &mut Head<'_>) {
        match *self {
            Self::Allocate {
                at,
                pool,
                slot,
                number,
                lockout,
                previous,
                was_doubted,
                visitor,
                idempotency,
                params: _,
            } => {
                head.begin(kind::ALLOCATE, at, base).number(number).pool_and_slot(pool, slot);
                head.millis(lockout).previous(previous).visitor(visitor);
                if let Some(row) = idempotency {
                    head.flag(flag::IDEMPOTENCY).row(row);
                }
                if was_doubted {
                    head.flag(flag::DOUBTED);
                }
                head.params(params_len);
            }
            Self::Extend { at, number, slot, until, previous, allocation } => {
                head.begin(kind::EXTEND, at, base).number(number).slot(slot);
                head.millis(until).previous(previous).earlier(flag::ALLOCATION, allocation);
            }
            Self::Release { at, number, slot, until, previous, restored, forgotten } => {
                head.begin(kind::RELEASE, at, base).number(number).slot(slot);
                head.millis(until).previous(previous).restored(restored);
                if let Some(row) = forgotten {
                    head.flag(flag::IDEMPOTENCY).row(row);
                }
            }
            Self::Answer { at, pool, row, number } => {
                head.begin(kind::ANSWER, at, base).pool(pool).row(row);
                if let Some(number) = number {
                    head.flag(flag::NUMBER).number(number);
                }
            }
            Self::Carry { .. } | Self::Adopt { .. } => self.encode_copy(base, params_len, head),
            Self::Hold { at, pool, until } => {
                head.begin(kind::HOLD, at, base);
                if let Some(pool) = pool {
                    head.flag(flag::POOL).pool(pool);
                }
                head.millis(until);
            }
            Self::Tick { at } => {
                head.begin(kind::TICK, at, base);
            }
        }
    }

    /// Like [`Self::encode_head`], but for records of allocations that were first recorded
    /// elsewhere.
    fn encode_copy(&self, base: Millis, params_len: usize, head: &mut Head<'_>) {
        match *self {
            Self::Carry {
                at,
                number,
                slot,
                pool,
                allocated_at,
                locked_until,
                clocks,
                visitor,
                params: _,
            } => {
                head.begin(kind::CARRY, at, base).number(number).pool_and_slot(pool, slot);
                head.millis(allocated_at).millis(locked_until);
                if let Some(clocks) = clocks {
                    head.flag(flag::CLOCKS).scratch.array(&clocks.encode());
                }
                head.visitor(visitor);
                head.params(params_len);
            }
            Self::Adopt {
                at,
                number,
                pool,
                allocated_at,
                locked_until,
                local_at,
                visitor,
                previous,
            } => {
                head.begin(kind::ADOPT, at, base).number(number).pool(pool);
                head.millis(allocated_at).millis(locked_until).millis(local_at);
                head.previous(previous).visitor(visitor);
            }
            _ => unreachable!("only copied records reach this branch"),
        }
    }
}

struct Head<'a> {
    scratch: Scratch<'a>,
    flags: u8,
    place: Position,
}

impl Head<'_> {
    #[inline(always)]
    fn begin(&mut self, kind: u8, at: Millis, base: Millis) -> &mut Self {
        self.scratch.byte(kind);
        self.scratch.byte(0);
        self.scratch.small_varint(at.0 - base.0);
        self
    }

    /// Writes the flags, and returns the length of the head.
    #[inline(always)]
    fn end(mut self) -> usize {
        self.scratch.set(FLAGS, self.flags);
        self.scratch.len()
    }

    #[inline(always)]
    fn flag(&mut self, flag: u8) -> &mut Self {
        self.flags |= flag;
        self
    }

    #[inline(always)]
    fn varint(&mut self, value: u64) -> &mut Self {
        self.scratch.varint(value);
        self
    }

    #[inline(always)]
    fn pool(&mut self, PoolId(pool): PoolId) -> &mut Self {
        self.varint(pool)
    }

    #[inline(always)]
    fn slot(&mut self, slot: u32) -> &mut Self {
        self.varint(u64::from(slot))
    }

    #[inline(always)]
    fn pool_and_slot(&mut self, PoolId(pool): PoolId, slot: u32) -> &mut Self {
        self.scratch.varints(pool, u64::from(slot));
        self
    }

    #[inline(always)]
    fn millis(&mut self, Millis(millis): Millis) -> &mut Self {
        self.varint(millis)
    }

    /// Writes a number of ten digits as five bytes. Five bytes have room even for twelve digits,
    /// because 2^40 is more than 10^12.
    #[inline(always)]
    fn number(&mut self, number: PromoNumber) -> &mut Self {
        if let Some(digits) = number.to_nanp() {
            self.scratch.five_bytes(digits);
        } else {
            // This branch is inlined, because a separate function would keep the flags in memory
            // for every record.
            self.flags |= flag::LONG_NUMBER;
            self.scratch.seven_bytes(number.to_code());
        }
        self
    }

    #[inline(always)]
    fn previous(&mut self, previous: Position) -> &mut Self {
        self.earlier(flag::PREVIOUS, previous)
    }

    #[inline(always)]
    fn earlier(&mut self, flag: u8, earlier: Position) -> &mut Self {
        if earlier == Position::NONE {
            return self;
        }
        let (n, _) = position_parts(self.place);
        let (previous_n, offset) = position_parts(earlier);
        self.flag(flag).scratch.varints(n - previous_n, offset as u64);
        self
    }

    #[inline(always)]
    fn visitor(&mut self, visitor: Option<VisitorId>) -> &mut Self {
        if let Some(VisitorId(id)) = visitor {
            self.flag(flag::VISITOR).scratch.array(&id);
        }
        self
    }

    fn restored(&mut self, restored: Option<Restored>) {
        if let Some(Restored { allocated_at, local_at, locked_until }) = restored {
            self.flag(flag::RESTORED).millis(allocated_at).millis(local_at).millis(locked_until);
        }
    }

    #[inline(always)]
    fn row(&mut self, RowKey { batch, row }: RowKey) -> &mut Self {
        self.scratch.array(&batch);
        self.scratch.array(&row.to_le_bytes());
        self
    }

    #[inline(always)]
    fn params(&mut self, len: usize) {
        if len > 0 {
            self.flag(flag::PARAMS).scratch.small_varint(len as u64);
        }
    }
}

/// Fills `place` with both slices, and an `&` between them if neither is empty.
#[inline(always)]
fn write_params([first, second]: [&[u8]; 2], place: &mut [u8]) {
    if first.is_empty() {
        place.copy_from_slice(second);
        return;
    }
    let (start, rest) = place.split_at_mut(first.len());
    start.copy_from_slice(first);
    if let Some((between, rest)) = rest.split_first_mut() {
        *between = b'&';
        rest.copy_from_slice(second);
    }
}
