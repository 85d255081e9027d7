//! Reads records back, and checks every byte because a disk may return anything.

use std::fmt;

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use super::{PARAMS_BYTES_MAX, Record, Restored, RowKey, flag, kind};
use crate::bytes::Cursor;
use crate::clocks::Clocks;
use crate::place::{BODY_BYTES_MAX, N_END, position, position_parts};

/// The error for an unreadable record in a group's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The group.
    pub n: u64,
    /// The offset in the body at which that record begins.
    pub offset: usize,
    /// The rule that the record breaks.
    pub fault: DecodeFault,
}

/// The first rule that a record breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeFault {
    /// The kind byte is unknown to this version.
    Kind(u8),
    /// A flag is set that records of this kind do not have.
    Flags(u8),
    /// The body ends inside the record, or a varint is too long.
    Short,
    /// The time is earlier than the previous record's, or is out of range.
    Time,
    /// The number is not a promo number.
    Number,
    /// `previous` does not precede the record.
    Previous,
    /// The parameters are present but empty, or longer than [`PARAMS_BYTES_MAX`].
    Params,
    /// The position is not in the body, so no record begins there.
    Position,
}

/// The records of one body, in order. The iteration ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    n: u64,
    base: Millis,
    body: &'a [u8],
    offset: usize,
    last_at: Millis,
}

impl<'a> Records<'a> {
    /// Reads the body of group `n`, whose first record has the time `base`.
    #[must_use]
    pub fn new(n: u64, base: Millis, body: &'a [u8]) -> Self {
        Self { n, base, body, offset: 0, last_at: base }
    }

    /// Reads the one record at the position `place`, which must be in this group.
    ///
    /// # Errors
    /// [`DecodeError`] if no record begins at that position. If the position is in the middle of a
    /// record, the bytes from there on are decoded as if a record began there. This does not always
    /// return an error.
    pub fn at(&self, place: Position) -> Result<Record<'a>, DecodeError> {
        let (n, offset) = position_parts(place);
        let error = |fault| DecodeError { n, offset, fault };
        if n != self.n || offset >= self.body.len() {
            return Err(error(DecodeFault::Position));
        }
        let cursor = &mut Cursor::new(&self.body[offset..]);
        decode(cursor, place, self.base).map_err(error)
    }

    fn next_record(&mut self) -> Result<(Position, Record<'a>), DecodeFault> {
        if self.n == 0 || self.n >= N_END || self.offset >= BODY_BYTES_MAX {
            return Err(DecodeFault::Position);
        }
        let place = position(self.n, self.offset);
        let mut cursor = Cursor::new(&self.body[self.offset..]);
        let record = decode(&mut cursor, place, self.base)?;
        if record.at() < self.last_at {
            return Err(DecodeFault::Time);
        }
        self.last_at = record.at();
        let end = self.body.len() - cursor.remaining();
        assert!(end > self.offset, "an empty record would be read forever");
        self.offset = end;
        Ok((place, record))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(Position, Record<'a>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.body.len() {
            return None;
        }
        let offset = self.offset;
        let result = self.next_record();
        Some(result.map_err(|fault| {
            self.offset = self.body.len();
            DecodeError { n: self.n, offset, fault }
        }))
    }
}

fn decode<'a>(
    bytes: &mut Cursor<'a>,
    place: Position,
    base: Millis,
) -> Result<Record<'a>, DecodeFault> {
    let kind = bytes.byte().ok_or(DecodeFault::Short)?;
    let flags = bytes.byte().ok_or(DecodeFault::Short)?;
    let known = match kind {
        kind::ALLOCATE => {
            flag::LONG_NUMBER
                | flag::PREVIOUS
                | flag::VISITOR
                | flag::IDEMPOTENCY
                | flag::PARAMS
                | flag::DOUBTED
        }
        kind::EXTEND => flag::LONG_NUMBER | flag::PREVIOUS | flag::ALLOCATION,
        kind::RELEASE => flag::LONG_NUMBER | flag::PREVIOUS | flag::RESTORED | flag::IDEMPOTENCY,
        kind::CARRY => flag::LONG_NUMBER | flag::VISITOR | flag::PARAMS | flag::CLOCKS,
        kind::ANSWER if flags & flag::NUMBER == 0 => 0,
        kind::ANSWER => flag::LONG_NUMBER | flag::NUMBER,
        kind::ADOPT => flag::LONG_NUMBER | flag::PREVIOUS | flag::VISITOR,
        kind::HOLD => flag::POOL,
        kind::TICK => 0,
        unknown => return Err(DecodeFault::Kind(unknown)),
    };
    if flags & !known != 0 {
        return Err(DecodeFault::Flags(flags));
    }
    let delta = bytes.varint().ok_or(DecodeFault::Short)?;
    let at = Millis(base.0.checked_add(delta).ok_or(DecodeFault::Time)?);
    let mut fields = Fields { bytes, place, flags };
    match kind {
        kind::ALLOCATE => fields.allocate(at),
        kind::EXTEND | kind::RELEASE => fields.relock(at, kind),
        kind::ANSWER => {
            let (pool, row) = (PoolId(fields.varint()?), fields.row()?);
            let number = fields.optional(flag::NUMBER, Fields::number)?;
            Ok(Record::Answer { at, pool, row, number })
        }
        kind::CARRY => fields.carry(at),
        kind::ADOPT => fields.adopt(at),
        kind::HOLD => {
            let pool = fields.optional(flag::POOL, |fields| fields.varint().map(PoolId))?;
            Ok(Record::Hold { at, pool, until: Millis(fields.varint()?) })
        }
        _ => Ok(Record::Tick { at }),
    }
}

/// The fields of a record after its time.
struct Fields<'c, 'a> {
    bytes: &'c mut Cursor<'a>,
    place: Position,
    flags: u8,
}

impl<'a> Fields<'_, 'a> {
    fn allocate(&mut self, at: Millis) -> Result<Record<'a>, DecodeFault> {
        Ok(Record::Allocate {
            at,
            number: self.number()?,
            pool: PoolId(self.varint()?),
            slot: self.slot()?,
            lockout: Millis(self.varint()?),
            previous: self.previous()?,
            was_doubted: self.flags & flag::DOUBTED != 0,
            visitor: self.visitor()?,
            idempotency: self.optional(flag::IDEMPOTENCY, Self::row)?,
            params: self.params()?,
        })
    }

    fn relock(&mut self, at: Millis, kind: u8) -> Result<Record<'a>, DecodeFault> {
        let number = self.number()?;
        let slot = self.slot()?;
        let until = Millis(self.varint()?);
        let previous = self.previous()?;
        if kind == kind::EXTEND {
            let allocation = self.earlier(flag::ALLOCATION)?;
            if allocation > previous {
                return Err(DecodeFault::Previous);
            }
            return Ok(Record::Extend { at, number, slot, until, previous, allocation });
        }
        let restored = self.optional(flag::RESTORED, Self::restored)?;
        let forgotten = self.optional(flag::IDEMPOTENCY, Self::row)?;
        Ok(Record::Release { at, number, slot, until, previous, restored, forgotten })
    }

    fn restored(&mut self) -> Result<Restored, DecodeFault> {
        let (allocated_at, local_at) = (Millis(self.varint()?), Millis(self.varint()?));
        Ok(Restored { allocated_at, local_at, locked_until: Millis(self.varint()?) })
    }

    fn carry(&mut self, at: Millis) -> Result<Record<'a>, DecodeFault> {
        Ok(Record::Carry {
            at,
            number: self.number()?,
            pool: PoolId(self.varint()?),
            slot: self.slot()?,
            allocated_at: Millis(self.varint()?),
            locked_until: Millis(self.varint()?),
            clocks: self.optional(flag::CLOCKS, Self::clocks)?,
            visitor: self.visitor()?,
            params: self.params()?,
        })
    }

    fn adopt(&mut self, at: Millis) -> Result<Record<'a>, DecodeFault> {
        Ok(Record::Adopt {
            at,
            number: self.number()?,
            pool: PoolId(self.varint()?),
            allocated_at: Millis(self.varint()?),
            locked_until: Millis(self.varint()?),
            local_at: Millis(self.varint()?),
            previous: self.previous()?,
            visitor: self.visitor()?,
        })
    }

    fn optional<T>(
        &mut self,
        flag: u8,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeFault>,
    ) -> Result<Option<T>, DecodeFault> {
        if self.flags & flag == 0 { Ok(None) } else { read(self).map(Some) }
    }

    fn varint(&mut self) -> Result<u64, DecodeFault> {
        self.bytes.varint().ok_or(DecodeFault::Short)
    }

    fn slot(&mut self) -> Result<u32, DecodeFault> {
        self.bytes.varint_u32().ok_or(DecodeFault::Short)
    }

    fn number(&mut self) -> Result<PromoNumber, DecodeFault> {
        let is_long = self.flags & flag::LONG_NUMBER != 0;
        let code = if is_long { self.bytes.uint::<7>() } else { self.bytes.uint::<5>() };
        let number = PromoNumber::from_code(code.ok_or(DecodeFault::Short)?);
        // Numbers with country code 1 fit in five bytes, and every number has only one encoding.
        number.filter(|it| it.to_nanp().is_none() == is_long).ok_or(DecodeFault::Number)
    }

    fn previous(&mut self) -> Result<Position, DecodeFault> {
        self.earlier(flag::PREVIOUS)
    }

    fn earlier(&mut self, flag: u8) -> Result<Position, DecodeFault> {
        if self.flags & flag == 0 {
            return Ok(Position::NONE);
        }
        let distance = self.varint()?;
        let offset = usize::try_from(self.varint()?).map_err(|_| DecodeFault::Previous)?;
        let n = position_parts(self.place).0.checked_sub(distance);
        match n {
            Some(n) if n > 0 && offset < BODY_BYTES_MAX => {
                let previous = position(n, offset);
                if previous < self.place { Ok(previous) } else { Err(DecodeFault::Previous) }
            }
            _ => Err(DecodeFault::Previous),
        }
    }

    fn visitor(&mut self) -> Result<Option<VisitorId>, DecodeFault> {
        self.optional(flag::VISITOR, |fields| {
            fields.bytes.array().map(VisitorId).ok_or(DecodeFault::Short)
        })
    }

    fn row(&mut self) -> Result<RowKey, DecodeFault> {
        let batch = self.bytes.array().ok_or(DecodeFault::Short)?;
        let row = self.bytes.u16().ok_or(DecodeFault::Short)?;
        Ok(RowKey { batch, row })
    }

    fn clocks(&mut self) -> Result<Clocks, DecodeFault> {
        // Clocks without a boot are never written.
        self.bytes.array().and_then(Clocks::decode).ok_or(DecodeFault::Short)
    }

    fn params(&mut self) -> Result<[&'a [u8]; 2], DecodeFault> {
        let params = self.optional(flag::PARAMS, |fields| {
            let len = usize::try_from(fields.varint()?).map_err(|_| DecodeFault::Params)?;
            if len == 0 || len > PARAMS_BYTES_MAX {
                return Err(DecodeFault::Params);
            }
            fields.bytes.slice(len).ok_or(DecodeFault::Short)
        })?;
        Ok([params.unwrap_or_default(), &[]])
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the record at offset {} in the body of frame {} {}",
            self.offset, self.n, self.fault
        )
    }
}

impl std::error::Error for DecodeError {}

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "has the unknown kind {kind}"),
            Self::Flags(flags) => write!(f, "has unknown flags ({flags:#04x})"),
            Self::Short => f.write_str("is cut short"),
            Self::Time => f.write_str("is earlier than the record before it"),
            Self::Number => f.write_str("contains an invalid promo number"),
            Self::Previous => {
                f.write_str("refers to a previous record that does not come before it")
            }
            Self::Params => f.write_str("has parameters of an impossible length"),
            Self::Position => f.write_str("does not exist"),
        }
    }
}
