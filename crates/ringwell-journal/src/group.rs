//! The open group, and the sealed groups that wait to be stored.
//!
//! Independent of how groups are stored. Each sealed group has its epoch, a dense number and the
//! hash of the previous group, so that any ordered store (segments of files, a replicated log with
//! one message per group) can be checked for gaps, duplicates and forks. Invariant: numbers are
//! dense, and times and epochs never go back. Source: docs/spec/journal.md, "Groups".

use ringwell_core::{Millis, Position};

use crate::bytes::Body;
use crate::clocks::{Clocks, Noted};
use crate::place::{BODY_BYTES_MAX, N_END, behind, position, position_parts, start_of};
use crate::record::{DecodeError, Record, Records};

/// A group whose body has this length accepts no further batch. The rest up to [`BODY_BYTES_MAX`],
/// 384 KiB, has room for nearly every batch; a longer one continues in the next group.
pub const GROUP_FULL_BYTES: usize = 640 * 1024;

/// The end of a journal: the data on earlier groups that the next group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Number of the next group.
    pub next_n: u64,
    /// Hash of the last group; zero before the first.
    pub prev_hash: u64,
    /// Epoch of the last group, or, after [`Self::raise_epoch`], of the next groups.
    pub epoch: u64,
    /// Time of the last record.
    pub last_at: Millis,
    /// The clocks at the last group; `None` before the first, and after one of format 1.
    pub clocks: Option<Clocks>,
}

/// The identity of a group, including a hash of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Dense number, from one.
    pub n: u64,
    /// Rises with each start (in a cluster: with each owner); never decreases.
    pub epoch: u64,
    /// Time of the first record: the base of the others.
    pub at: Millis,
    /// Time of the last record.
    pub last_at: Millis,
    /// Length of the body in bytes: at least one, at most [`BODY_BYTES_MAX`].
    pub body_len: u32,
    /// CRC32C of the body.
    pub body_crc: u32,
    /// Hash of the group before it; zero for the first.
    pub prev_hash: u64,
    /// The clocks when it was sealed; `None` for a group of format 1, which did not record them.
    pub clocks: Option<Clocks>,
}

impl GroupHeader {
    /// Whether the header is valid, independent of its neighbours.
    pub(crate) fn is_sane(&self) -> bool {
        let len = usize::try_from(self.body_len);
        // Leaves numbers for the next group and the next epoch.
        (1..N_END - 1).contains(&self.n)
            && self.epoch < u64::MAX
            && len.is_ok_and(|len| (1..=BODY_BYTES_MAX).contains(&len))
            && self.at <= self.last_at
    }
}

/// A sealed group, the unit of storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its identity.
    pub header: GroupHeader,
    /// Its records.
    pub body: Vec<u8>,
}

/// Appends records to the open group, and seals it.
#[derive(Debug)]
pub struct Writer {
    tip: Tip,
    /// The clocks, for the next group that is sealed.
    clocks: Option<Clocks>,
    base: Millis,
    body: Body,
    summed: Summed,
    /// The position of the first record of the open group.
    start: Position,
}

/// The checksum of the first bytes of the open group.
#[derive(Clone, Copy, Debug, Default)]
struct Summed {
    crc: u32,
    len: usize,
}

impl Summed {
    /// Fewer bytes wait for the next call: short pieces take more instructions a byte.
    const PIECE: usize = 1_024;

    /// Adds the bytes after those that it already covers.
    fn up_to(self, body: &[u8]) -> Self {
        Self { crc: crc32c::crc32c_append(self.crc, &body[self.len..]), len: body.len() }
    }
}

impl Tip {
    /// Whether another group may follow, in another epoch.
    pub(crate) fn is_sane(&self) -> bool {
        (1..N_END).contains(&self.next_n) && self.epoch < u64::MAX
    }

    /// A journal without groups.
    pub const FIRST: Self =
        Self { next_n: 1, prev_hash: 0, epoch: 0, last_at: Millis::ZERO, clocks: None };

    /// The tip after `header`.
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

    /// The clocks at the last group.
    #[must_use]
    pub fn noted(&self) -> Option<Noted> {
        self.clocks.map(|clocks| Noted { at: self.last_at, clocks })
    }

    /// The same tip, with the next epoch for later groups.
    #[must_use]
    pub fn raise_epoch(self) -> Self {
        Self { epoch: self.epoch + 1, ..self }
    }
}

impl GroupHeader {
    /// The hash by which the next group identifies this one: the first eight bytes of BLAKE3 over
    /// all fields. The body is covered through its CRC32C, and so are the clocks: with 52 bytes the
    /// hash takes one round of BLAKE3, as with the 48 of format 1.
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
    /// Its records, in order.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        Records::new(self.header.n, self.header.at, &self.body)
    }

    /// The record at `place`.
    ///
    /// # Errors
    /// [`DecodeError`] if no record of this group begins there.
    pub fn record(&self, place: Position) -> Result<Record<'_>, DecodeError> {
        self.records().at(place)
    }
}

impl Writer {
    /// Continues at the end of a journal. The caller has raised the epoch.
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    #[must_use]
    pub fn new(tip: Tip) -> Self {
        assert!(tip.is_sane(), "no group can follow");
        let start = start_of(tip.next_n);
        let (body, summed) = (Body::default(), Summed::default());
        Self { tip, clocks: None, base: Millis::ZERO, body, summed, start }
    }

    /// Sets the current readings of the clocks for the groups that are sealed from now on. Before
    /// the first call, groups have format 1.
    ///
    /// # Panics
    /// Panics if they have no boot.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        assert!(clocks.boot != 0, "clocks without a boot read back as none");
        self.clocks = Some(clocks);
    }

    /// The last readings of the clocks; `None` if they are not known yet.
    #[must_use]
    pub fn clocks(&self) -> Option<Clocks> {
        self.clocks
    }

    /// Appends a record to the open group. Its position is final.
    ///
    /// # Panics
    /// Panics if the record's time is earlier than that of the previous one, if it breaks another
    /// rule of the format ([`Record`]), or if the group has no room: see [`Self::has_room`].
    #[expect(clippy::inline_always, reason = "measured: see `record::encode`")]
    #[inline(always)]
    pub fn append(&mut self, record: &Record<'_>) -> Position {
        let at = record.at();
        assert!(at >= self.tip.last_at, "shard time went backwards");
        if self.body.is_empty() {
            self.base = at;
            // Runs once per group, so its number fits.
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

    /// Whether records with a total of `bytes` ([`Record::bytes_max`]) still fit.
    #[inline]
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        BODY_BYTES_MAX - self.body.len() >= bytes
    }

    /// Bytes of the records in the open group.
    #[inline]
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.body.len()
    }

    /// The position of the next record.
    ///
    /// # Panics
    /// Panics if the group has no room for any record.
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

    /// The base of the open group, with the time of the newest record.
    #[must_use]
    pub fn tip(&self) -> Tip {
        self.tip
    }

    /// Time of the newest record, in this group or an earlier one.
    #[inline]
    #[must_use]
    pub fn last_at(&self) -> Millis {
        self.tip.last_at
    }

    /// Adds the records written so far to the group's checksum, while the processor's cache still
    /// has them: by the time the group is sealed, many other batches have displaced them.
    #[inline]
    pub fn sum(&mut self) {
        if self.body.len() >= self.summed.len + Summed::PIECE {
            self.summed = self.summed.up_to(self.body.as_slice());
        }
    }

    /// Seals the open group, if it has records. The next group is collected in `spare`, whose
    /// contents are ignored; if there is no group, `spare` is dropped.
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    #[must_use]
    pub fn seal(&mut self, spare: Vec<u8>) -> Option<Group> {
        if self.body.is_empty() {
            return None;
        }
        let body = self.body.take(spare);
        // `append` keeps the body within BODY_BYTES_MAX, so this never saturates.
        let body_len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let Tip { next_n: n, prev_hash, epoch, last_at, clocks: _ } = self.tip;
        let (at, clocks) = (self.base, self.clocks);
        let body_crc = std::mem::take(&mut self.summed).up_to(&body).crc;
        let header = GroupHeader { n, epoch, at, last_at, body_len, body_crc, prev_hash, clocks };
        assert!(header.is_sane(), "the group could not be read back");
        // Checked in debug builds only: the body is no longer in the processor's cache, and with
        // 100 bytes a row this would take 13 instructions a row.
        debug_assert!(crc32c::crc32c(&body) == body_crc, "the checksum lacks a part of the body");
        self.tip = Tip::after(&header);
        self.start = start_of(self.tip.next_n);
        Some(Group { header, body })
    }

    /// The record at `place`, if it is in the open group.
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
