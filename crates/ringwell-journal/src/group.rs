//! The open group, and the sealed groups that wait to be stored.
//!
//! This module does not depend on how groups are stored. Sealed groups are numbered without gaps,
//! and each contains its epoch and the hash of the previous group. Any ordered store can therefore
//! be checked for gaps, duplicates and forks. The store may consist of segment files, or be a
//! replicated log with one message per group. Invariant: group numbers are consecutive, and times
//! and epochs never decrease. Source: docs/spec/journal.md, "Groups".

use ringwell_core::{Millis, Position};

use crate::bytes::Body;
use crate::clocks::{Clocks, Noted};
use crate::place::{BODY_BYTES_MAX, N_END, behind, position, position_parts, start_of};
use crate::record::{DecodeError, Record, Records};

/// A group whose body has reached this length accepts no further batch. The remaining 384 KiB up to
/// [`BODY_BYTES_MAX`] are enough to finish nearly every batch that has already begun. If a batch
/// needs more, it continues in the next group.
pub const GROUP_FULL_BYTES: usize = 640 * 1024;

/// The end of a journal: the data from earlier groups that the next group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The number of the next group.
    pub next_n: u64,
    /// The hash of the last group, or zero before the first group.
    pub prev_hash: u64,
    /// The epoch of the last group. After [`Self::raise_epoch`], the epoch of the groups that
    /// follow.
    pub epoch: u64,
    /// The time of the last record.
    pub last_at: Millis,
    /// The clocks of the last group. `None` before the first group, and after a group of format 1.
    pub clocks: Option<Clocks>,
}

/// The header of a group, which identifies the group and contains the checksum of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The group's number. Numbers are consecutive and start at one.
    pub n: u64,
    /// Rises with each startup and with each take-over by another process, and never decreases.
    pub epoch: u64,
    /// The time of the first record. The other records' times are relative to it.
    pub at: Millis,
    /// The time of the last record.
    pub last_at: Millis,
    /// The length of the body in bytes, which is at least one and at most [`BODY_BYTES_MAX`].
    pub body_len: u32,
    /// The CRC32C of the body.
    pub body_crc: u32,
    /// The hash of the previous group, or zero for the first group.
    pub prev_hash: u64,
    /// The clocks when the group was sealed. `None` for a group of format 1, which did not record
    /// them.
    pub clocks: Option<Clocks>,
}

impl GroupHeader {
    /// Whether the header is valid on its own, regardless of the groups before and after it.
    pub(crate) fn is_sane(&self) -> bool {
        let len = usize::try_from(self.body_len);
        // The number and the epoch must be below their maximum, so that later groups can have
        // larger ones.
        (1..N_END - 1).contains(&self.n)
            && self.epoch < u64::MAX
            && len.is_ok_and(|len| (1..=BODY_BYTES_MAX).contains(&len))
            && self.at <= self.last_at
    }
}

/// A sealed group, which is the unit of storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its header.
    pub header: GroupHeader,
    /// Its records.
    pub body: Vec<u8>,
}

/// Appends records to the open group, and seals it.
#[derive(Debug)]
pub struct Writer {
    tip: Tip,
    /// The clocks to record in the next group that is sealed.
    clocks: Option<Clocks>,
    base: Millis,
    body: Body,
    summed: Summed,
    /// The position of the first record of the open group.
    start: Position,
}

/// The checksum of the open group's bytes so far.
#[derive(Clone, Copy, Debug, Default)]
struct Summed {
    crc: u32,
    len: usize,
}

impl Summed {
    /// The minimum number of bytes that are added to the checksum at once while the group is open.
    /// Shorter pieces would take more instructions per byte.
    const PIECE: usize = 1_024;

    /// Returns the checksum extended to all bytes of `body`.
    fn up_to(self, body: &[u8]) -> Self {
        Self { crc: crc32c::crc32c_append(self.crc, &body[self.len..]), len: body.len() }
    }
}

impl Tip {
    /// Whether another group may follow, in a later epoch.
    pub(crate) fn is_sane(&self) -> bool {
        (1..N_END).contains(&self.next_n) && self.epoch < u64::MAX
    }

    /// A journal without groups.
    pub const FIRST: Self =
        Self { next_n: 1, prev_hash: 0, epoch: 0, last_at: Millis::ZERO, clocks: None };

    /// Returns the tip after the group with the header `header`.
    #[must_use]
    pub fn after(header: &GroupHeader) -> Self {
        Self {
            next_n: header.n + 1,
            prev_hash: header.hash(),
            epoch: header.epoch,
            last_at: header.last_at,
            clocks: header.clocks,
        }
    }

    /// The last group's clocks, with the time of its last record.
    #[must_use]
    pub fn noted(&self) -> Option<Noted> {
        self.clocks.map(|clocks| Noted { at: self.last_at, clocks })
    }

    /// Returns this tip with its epoch increased by one, for later groups.
    #[must_use]
    pub fn raise_epoch(self) -> Self {
        Self { epoch: self.epoch + 1, ..self }
    }
}

impl GroupHeader {
    /// Returns the hash that identifies this group in the next one: the first eight bytes of BLAKE3
    /// over all fields. The body and the clocks are each represented by a CRC32C. The hash
    /// therefore covers 52 bytes (48 in format 1), which fit in one block of BLAKE3.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut bytes = [0; 52];
        bytes[..8].copy_from_slice(&self.prev_hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.n.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.last_at.0.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.body_crc.to_le_bytes());
        let len = if let Some(clocks) = &self.clocks {
            bytes[48..].copy_from_slice(&crc32c::crc32c(&clocks.encode()).to_le_bytes());
            52
        } else {
            48
        };
        let mut first = [0; 8];
        first.copy_from_slice(&blake3::hash(&bytes[..len]).as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}

impl Group {
    /// The group's records, in order.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::new(self.header.n, self.header.at, &self.body)
    }

    /// Returns the record at the position `place`.
    ///
    /// # Errors
    /// [`DecodeError`] if no record of this group begins at that position.
    pub fn record(&self, place: Position) -> Result<Record<'_>, DecodeError> {
        self.records().at(place)
    }
}

impl Writer {
    /// Returns a writer that continues a journal at its end. The caller must have raised the epoch.
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    #[must_use]
    pub fn new(tip: Tip) -> Self {
        assert!(tip.is_sane(), "the journal cannot have another group");
        let start = start_of(tip.next_n);
        let (body, summed) = (Body::default(), Summed::default());
        Self { tip, clocks: None, base: Millis::ZERO, body, summed, start }
    }

    /// Sets the current clocks, which are recorded in the groups that are sealed from now on.
    /// Groups that are sealed before the clocks are first set have format 1.
    ///
    /// # Panics
    /// Panics if `clocks.boot` is zero.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        assert!(clocks.boot != 0, "clocks without a boot would be read back as no clocks");
        self.clocks = Some(clocks);
    }

    /// The clocks that were set last, or `None` if none have been set.
    #[must_use]
    pub fn clocks(&self) -> Option<Clocks> {
        self.clocks
    }

    /// Appends a record to the open group. The returned position is final.
    ///
    /// # Panics
    /// Panics if the record's time is earlier than the previous record's, if the record breaks
    /// another rule of the format ([`Record`]), or if the group has no room. See
    /// [`Self::has_room`].
    #[expect(clippy::inline_always, reason = "measured: see `record::encode`")]
    #[inline(always)]
    pub fn append(&mut self, record: &Record<'_>) -> Position {
        let at = record.at();
        assert!(at >= self.tip.last_at, "shard time went backwards");
        if self.body.is_empty() {
            self.base = at;
            // Computed once per group. The group's number always fits into a position.
            self.start = position(self.tip.next_n, 0);
        }
        let place = record.encode(self.start, self.base, &mut self.body);
        assert!(self.body.len() <= BODY_BYTES_MAX, "the group has no room for the record");
        self.tip.last_at = at;
        place
    }

    /// Whether the group should be sealed before another batch is applied.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.body.len() >= GROUP_FULL_BYTES
    }

    /// Whether `bytes` more bytes of records still fit in the open group. [`Record::bytes_max`]
    /// limits the size of one record.
    #[inline]
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        BODY_BYTES_MAX - self.body.len() >= bytes
    }

    /// The size in bytes of the records in the open group.
    #[inline]
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.body.len()
    }

    /// The position of the next record.
    ///
    /// # Panics
    /// Panics if the group has no room for another record.
    #[inline]
    #[must_use]
    pub fn next_position(&self) -> Position {
        behind(self.start, self.body.len())
    }

    /// The number of the open group.
    #[inline]
    #[must_use]
    pub fn pending_n(&self) -> u64 {
        self.tip.next_n
    }

    /// The end of the journal before the open group, with the time of the newest record.
    #[must_use]
    pub fn tip(&self) -> Tip {
        self.tip
    }

    /// The time of the newest record, in the open group or an earlier one.
    #[inline]
    #[must_use]
    pub fn last_at(&self) -> Millis {
        self.tip.last_at
    }

    /// Adds the records written so far to the group's checksum while they are still in the
    /// processor's cache. By the time the group is sealed, other batches have displaced these
    /// records from the cache.
    #[inline]
    pub fn sum(&mut self) {
        if self.body.len() >= self.summed.len + Summed::PIECE {
            self.summed = self.summed.up_to(self.body.as_slice());
        }
    }

    /// Seals the open group, if it has records. Records of the next group are collected in `spare`,
    /// whose contents are ignored. If the open group has no records, `spare` is dropped.
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    #[must_use]
    pub fn seal(&mut self, spare: Vec<u8>) -> Option<Group> {
        if self.body.is_empty() {
            return None;
        }
        let body = self.body.take(spare);
        // `append` limits the body to `BODY_BYTES_MAX`, so this never saturates.
        let body_len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let Tip { next_n: n, prev_hash, epoch, last_at, clocks: _ } = self.tip;
        let (at, clocks) = (self.base, self.clocks);
        let body_crc = std::mem::take(&mut self.summed).up_to(&body).crc;
        let header = GroupHeader { n, epoch, at, last_at, body_len, body_crc, prev_hash, clocks };
        assert!(header.is_sane(), "the group could not be read back");
        // Checked only in debug builds. In release builds, the check would take 13 instructions per
        // row of 100 bytes, and it would load the body into the processor's cache again.
        debug_assert!(
            crc32c::crc32c(&body) == body_crc,
            "the checksum does not cover the whole body"
        );
        self.tip = Tip::after(&header);
        self.start = start_of(self.tip.next_n);
        Some(Group { header, body })
    }

    /// Returns the record at the position `place`, if it is in the open group.
    #[must_use]
    pub fn read_pending(&self, place: Position) -> Option<Record<'_>> {
        if position_parts(place).0 != self.tip.next_n {
            return None;
        }
        Records::new(self.tip.next_n, self.base, self.body.as_slice()).at(place).ok()
    }
}

#[cfg(test)]
mod tests;
