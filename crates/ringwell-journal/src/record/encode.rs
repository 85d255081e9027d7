//! Writing records: a header on the stack, then the parameters behind it.

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use super::{PARAMS_BYTES_MAX, Record, RowKey, flag, kind, params_len};
use crate::bytes::Scratch;
use crate::place::{position, position_parts};

/// Where the flags stand: each optional field adds its own as it is written.
const FLAGS: usize = 1;

impl Record<'_> {
    /// Appends the record to the body of group `n`, whose first record happened at `base`.
    /// Returns its position.
    ///
    /// # Panics
    /// If the record breaks a rule of the format (happened before `base`, `previous` not before
    /// it, parameters too long): asserted before anything is written, as it could not be read.
    #[inline]
    pub(crate) fn encode(&self, n: u64, base: Millis, body: &mut Vec<u8>) -> Position {
        let place = position(n, body.len());
        let mut head = Head { scratch: Scratch::new(), place };
        let params = self.encode_head(base, &mut head);
        body.extend_from_slice(head.scratch.as_slice());
        if let Some([first, second]) = params {
            body.extend_from_slice(first);
            if !first.is_empty() && !second.is_empty() {
                body.push(b'&');
            }
            body.extend_from_slice(second);
        }
        place
    }

    /// Everything but the parameters, which are returned if there are any.
    #[inline]
    fn encode_head(&self, base: Millis, head: &mut Head) -> Option<[&[u8]; 2]> {
        match *self {
            Self::Allocate {
                at,
                pool,
                slot,
                number,
                lockout,
                previous,
                visitor,
                idempotency,
                params,
            } => {
                head.begin(kind::ALLOCATE, at, base).number(number).pool(pool).slot(slot);
                head.millis(lockout).previous(previous).visitor(visitor);
                if let Some(row) = idempotency {
                    head.flag(flag::IDEMPOTENCY).row(row);
                }
                head.params(params)
            }
            Self::Extend { at, number, slot, until, previous } => {
                head.begin(kind::EXTEND, at, base).number(number).slot(slot);
                head.millis(until).previous(previous);
                None
            }
            Self::Release { at, number, slot, until, previous } => {
                head.begin(kind::RELEASE, at, base).number(number).slot(slot);
                head.millis(until).previous(previous);
                None
            }
            Self::Answer { at, pool, row, number } => {
                head.begin(kind::ANSWER, at, base).pool(pool).row(row);
                if let Some(number) = number {
                    head.flag(flag::NUMBER).number(number);
                }
                None
            }
            Self::Carry { at, number, slot, pool, allocated_at, locked_until, visitor, params } => {
                head.begin(kind::CARRY, at, base).number(number).pool(pool).slot(slot);
                head.millis(allocated_at).millis(locked_until).visitor(visitor);
                head.params(params)
            }
            Self::Hold { at, pool, until } => {
                head.begin(kind::HOLD, at, base);
                if let Some(pool) = pool {
                    head.flag(flag::POOL).pool(pool);
                }
                head.millis(until);
                None
            }
            Self::Tick { at } => {
                head.begin(kind::TICK, at, base);
                None
            }
        }
    }
}

struct Head {
    scratch: Scratch,
    place: Position,
}

impl Head {
    #[inline]
    fn begin(&mut self, kind: u8, at: Millis, base: Millis) -> &mut Self {
        assert!(at >= base, "a record happened before its group");
        self.scratch.byte(kind);
        self.scratch.byte(0);
        self.varint(at.0 - base.0)
    }

    #[inline]
    fn flag(&mut self, flag: u8) -> &mut Self {
        self.scratch.set_bits(FLAGS, flag);
        self
    }

    #[inline]
    fn varint(&mut self, value: u64) -> &mut Self {
        self.scratch.varint(value);
        self
    }

    #[inline]
    fn pool(&mut self, PoolId(pool): PoolId) -> &mut Self {
        self.varint(pool)
    }

    #[inline]
    fn slot(&mut self, slot: u32) -> &mut Self {
        self.varint(u64::from(slot))
    }

    #[inline]
    fn millis(&mut self, Millis(millis): Millis) -> &mut Self {
        self.varint(millis)
    }

    /// Five bytes hold ten digits with room to spare: 2^40 is more than 10^12.
    #[inline]
    fn number(&mut self, number: PromoNumber) -> &mut Self {
        self.scratch.slice(&number.to_u64().to_le_bytes()[..5]);
        self
    }

    #[inline]
    fn previous(&mut self, previous: Position) -> &mut Self {
        if previous == Position::NONE {
            return self;
        }
        assert!(previous < self.place, "the record before it is not before it");
        let (n, _) = position_parts(self.place);
        let (previous_n, offset) = position_parts(previous);
        assert!(previous_n > 0, "groups are counted from one");
        self.flag(flag::PREVIOUS).varint(n - previous_n).varint(offset as u64)
    }

    #[inline]
    fn visitor(&mut self, visitor: Option<VisitorId>) -> &mut Self {
        if let Some(VisitorId(id)) = visitor {
            self.flag(flag::VISITOR).scratch.slice(&id);
        }
        self
    }

    #[inline]
    fn row(&mut self, RowKey { batch, row }: RowKey) -> &mut Self {
        self.scratch.slice(&batch);
        self.scratch.slice(&row.to_le_bytes());
        self
    }

    #[inline]
    fn params<'a>(&mut self, params: [&'a [u8]; 2]) -> Option<[&'a [u8]; 2]> {
        let len = params_len(params);
        assert!(len <= PARAMS_BYTES_MAX, "parameters are too long for a record");
        if len == 0 {
            return None;
        }
        self.flag(flag::PARAMS).varint(len as u64);
        Some(params)
    }
}
