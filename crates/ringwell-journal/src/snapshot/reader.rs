//! Reads a snapshot as a stream, and checks everything in it.

use std::marker::PhantomData;

use ringwell_core::Millis;

use super::{
    AnswerEntry, CHUNK_BYTES_MAX, CHUNK_HEADER_BYTES, Entry, ForeignTimeEntry, HEADER_BYTES,
    HoldEntry, LONG_NUMBER_BYTES, MAGIC, NUMBER_BYTES, NumberEntry, PLAIN_HEADER_BYTES,
    PoollessAnswer, SNAPSHOT_VERSION, Snapshot, SnapshotHeader, kind,
};
use crate::bytes::Cursor;
use crate::clocks::Clocks;

/// The size of the end chunk's payload in bytes: the last frame, the count of entries and the hash.
const END_BYTES: usize = 8 + 8 + blake3::OUT_LEN;

/// Reads one snapshot from a source: a function that reads into a buffer and returns the count of
/// bytes read (zero at the end). If reading fails, all state that was already loaded must be
/// discarded.
#[derive(Debug)]
pub struct SnapshotReader<R> {
    source: R,
    header: SnapshotHeader,
    hasher: blake3::Hasher,
    payload: Vec<u8>,
    entries: u64,
    /// The newest group to which an entry refers.
    newest_group: u64,
    offset: u64,
    end: Option<Snapshot>,
}

/// Entries of one kind.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// The newest allocations of numbers.
    Numbers(Entries<'a, NumberEntry>),
    /// Answers to rows that may be repeated.
    Answers(Entries<'a, AnswerEntry>),
    /// Holds, each on one pool or on all pools of the shard.
    Holds(Entries<'a, HoldEntry>),
    /// Times of allocations that were made by other nodes.
    ForeignTimes(Entries<'a, ForeignTimeEntry>),
}

/// The entries of a chunk, in order. The checksum of the chunk has been checked.
#[derive(Debug)]
pub struct Entries<'a, E> {
    bytes: std::slice::ChunksExact<'a, u8>,
    newest_group: u64,
    entry: PhantomData<E>,
}

/// The reason why a snapshot cannot be used. An older one must be used instead.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError<E> {
    /// The snapshot cannot be read.
    #[error("cannot be read at offset {offset}: {source}")]
    Read {
        /// The offset at which the read failed.
        offset: u64,
        /// The error that the storage returned.
        source: E,
    },
    /// The snapshot does not begin with the magic bytes of a snapshot.
    #[error("does not begin with the magic bytes of a snapshot")]
    Magic,
    /// The snapshot has a format version that this program cannot read.
    #[error("has format version {0}; this program reads versions 1 to {SNAPSHOT_VERSION}")]
    Version(u32),
    /// The snapshot ends too early.
    #[error("ends early, at offset {0}")]
    Short(u64),
    /// A checksum is wrong, or a value is impossible.
    #[error("is damaged in the part that begins at offset {0}")]
    Damaged(u64),
    /// Every part is intact, but the hash of the whole snapshot is wrong.
    #[error("is damaged: the hash of the whole file is wrong")]
    Hash,
}

impl<R, E> SnapshotReader<R>
where
    R: FnMut(&mut [u8]) -> Result<usize, E>,
{
    /// Reads the header.
    ///
    /// # Errors
    /// [`SnapshotError`]
    pub fn new(source: R) -> Result<Self, SnapshotError<E>> {
        let header = SnapshotHeader {
            shard: 0,
            journal: [0; 16],
            replay_from: 0,
            prev_hash: 0,
            epoch: 0,
            created_at: Millis::ZERO,
            last_at: Millis::ZERO,
            numbers: 0,
            clocks: None,
        };
        let mut reader = Self {
            source,
            header,
            hasher: blake3::Hasher::new(),
            payload: Vec::new(),
            entries: 0,
            newest_group: 0,
            offset: 0,
            end: None,
        };
        let mut block = [0; HEADER_BYTES];
        reader.fill(&mut block[..PLAIN_HEADER_BYTES])?;
        let bytes = header_bytes(&block)?;
        reader.fill(&mut block[PLAIN_HEADER_BYTES..bytes])?;
        reader.hasher.update(&block[..bytes]);
        reader.header = decode_header(&block[..bytes])?;
        Ok(reader)
    }

    /// The data in the snapshot's header.
    #[must_use]
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The data about the whole snapshot. Available once [`Self::next_chunk`] has returned `None`.
    #[must_use]
    pub fn end(&self) -> Option<&Snapshot> {
        self.end.as_ref()
    }

    /// Returns the next chunk of entries. After the last one, verifies the hash of the whole
    /// snapshot and returns `None`.
    ///
    /// # Errors
    /// [`SnapshotError`]
    pub fn next_chunk(&mut self) -> Result<Option<Chunk<'_>>, SnapshotError<E>> {
        if self.end.is_some() {
            return Ok(None);
        }
        let offset = self.offset;
        let damaged = SnapshotError::Damaged(offset);
        let mut head = [0; CHUNK_HEADER_BYTES];
        self.fill(&mut head)?;
        let Some(chunk) = ChunkHeader::decode(&head) else { return Err(damaged) };
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(chunk.len, 0);
        let filled = self.fill(&mut payload);
        self.payload = payload;
        filled?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &self.payload);
        if crc != chunk.crc {
            return Err(damaged);
        }
        if chunk.kind == kind::END {
            self.end = Some(self.check_end(offset)?);
            return Ok(None);
        }
        self.hasher.update(&head);
        self.hasher.update(&self.payload);
        self.entries += u64::from(chunk.entries);
        let whole = match chunk.kind {
            kind::NUMBERS => Entries::new(&self.payload, chunk.entries).map(Chunk::Numbers),
            kind::ANSWERS => {
                let width = PoollessAnswer::BYTES;
                Entries::of_width(&self.payload, chunk.entries, width).map(Chunk::Answers)
            }
            kind::ANSWERS_OF_POOLS => {
                Entries::new(&self.payload, chunk.entries).map(Chunk::Answers)
            }
            kind::LONG_NUMBERS => Entries::long(&self.payload, chunk.entries).map(Chunk::Numbers),
            kind::LONG_ANSWERS => Entries::long(&self.payload, chunk.entries).map(Chunk::Answers),
            kind::LONG_FOREIGN_TIMES => {
                Entries::long(&self.payload, chunk.entries).map(Chunk::ForeignTimes)
            }
            kind::HOLDS => Entries::new(&self.payload, chunk.entries).map(Chunk::Holds),
            kind::FOREIGN_TIMES => {
                Entries::new(&self.payload, chunk.entries).map(Chunk::ForeignTimes)
            }
            _ => None,
        };
        if let Some(Chunk::Numbers(numbers)) = &whole {
            self.newest_group = self.newest_group.max(numbers.newest_group);
        }
        whole.map(Some).ok_or(damaged)
    }

    fn check_end(&mut self, offset: u64) -> Result<Snapshot, SnapshotError<E>> {
        let damaged = SnapshotError::Damaged(offset);
        let Some((counts, hash)) = self.payload.split_at_checked(END_BYTES - blake3::OUT_LEN)
        else {
            return Err(damaged);
        };
        self.hasher.update(counts);
        if self.hasher.finalize().as_bytes() != hash {
            return Err(SnapshotError::Hash);
        }
        let mut cursor = Cursor::new(counts);
        match (cursor.u64(), cursor.u64()) {
            (Some(through), Some(entries))
                if entries == self.entries && self.newest_group <= through =>
            {
                Ok(Snapshot { header: self.header, through, entries })
            }
            _ => Err(damaged),
        }
    }

    fn fill(&mut self, mut out: &mut [u8]) -> Result<(), SnapshotError<E>> {
        while !out.is_empty() {
            let offset = self.offset;
            let got = (self.source)(out)
                .map_err(|source| SnapshotError::Read { offset, source })?
                .min(out.len());
            if got == 0 {
                return Err(SnapshotError::Short(offset));
            }
            self.offset += got as u64;
            out = &mut out[got..];
        }
        Ok(())
    }
}

impl<'a, E: Entry> Entries<'a, E> {
    /// Returns `None` if `bytes` is not exactly `count` valid entries.
    fn new(bytes: &'a [u8], count: u32) -> Option<Self> {
        Self::of_width(bytes, count, E::BYTES)
    }

    /// Like [`Self::new`], for entries whose numbers take `LONG_NUMBER_BYTES` each.
    fn long(bytes: &'a [u8], count: u32) -> Option<Self> {
        Self::of_width(bytes, count, E::BYTES - NUMBER_BYTES + LONG_NUMBER_BYTES)
    }

    /// Like [`Self::new`], for entries of `width` bytes each.
    fn of_width(bytes: &'a [u8], count: u32, width: usize) -> Option<Self> {
        let bytes_wanted = (count as usize).checked_mul(width)?;
        let mut entries = bytes.chunks_exact(width).map(E::decode);
        let newest = entries.try_fold(0, |newest: u64, it| Some(newest.max(it?.newest_group())));
        let newest_group = newest.filter(|_| bytes.len() == bytes_wanted)?;
        Some(Self { bytes: bytes.chunks_exact(width), newest_group, entry: PhantomData })
    }
}

impl<E: Entry> Iterator for Entries<'_, E> {
    type Item = E;

    #[inline]
    fn next(&mut self) -> Option<E> {
        // `of_width` has already decoded every entry once, so decoding cannot fail here.
        self.bytes.next().and_then(E::decode)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.bytes.size_hint()
    }
}

struct ChunkHeader {
    kind: u32,
    entries: u32,
    len: usize,
    crc: u32,
}

impl ChunkHeader {
    fn decode(head: &[u8; CHUNK_HEADER_BYTES]) -> Option<Self> {
        let mut cursor = Cursor::new(head);
        let (kind, entries) = (cursor.u32()?, cursor.u32()?);
        let len = usize::try_from(cursor.u32()?).ok()?;
        let crc = cursor.u32()?;
        let sane = len <= CHUNK_BYTES_MAX && (kind != kind::END || len == END_BYTES);
        sane.then_some(Self { kind, entries, len, crc })
    }
}

/// Returns the length of the header that begins with `block`.
fn header_bytes<E>(block: &[u8; HEADER_BYTES]) -> Result<usize, SnapshotError<E>> {
    let mut cursor = Cursor::new(block);
    if cursor.array() != Some(MAGIC) {
        return Err(SnapshotError::Magic);
    }
    Ok(if cursor.u32() == Some(1) { PLAIN_HEADER_BYTES } else { HEADER_BYTES })
}

pub(super) fn decode_header<E>(block: &[u8]) -> Result<SnapshotHeader, SnapshotError<E>> {
    let damaged = SnapshotError::Damaged(0);
    let (fields, crc) = block.split_at(block.len() - 4);
    if Cursor::new(crc).u32() != Some(crc32c::crc32c(fields)) {
        return Err(damaged);
    }
    let mut cursor = Cursor::new(&fields[MAGIC.len()..]);
    let version = cursor.u32().unwrap_or(0);
    if !(1..=SNAPSHOT_VERSION).contains(&version) {
        return Err(SnapshotError::Version(version));
    }
    let read = |cursor: &mut Cursor<'_>| {
        Some(SnapshotHeader {
            shard: cursor.u32()?,
            journal: cursor.array()?,
            replay_from: cursor.u64()?,
            prev_hash: cursor.u64()?,
            epoch: cursor.u64()?,
            created_at: Millis(cursor.u64()?),
            last_at: Millis(cursor.u64()?),
            numbers: cursor.u64()?,
            clocks: if version == 1 { None } else { Clocks::decode(cursor.array()?) },
        })
    };
    read(&mut cursor).ok_or(damaged)
}
