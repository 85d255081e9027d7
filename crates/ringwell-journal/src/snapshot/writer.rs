//! Converts entries to a snapshot's bytes, one piece at a time.

use std::convert::Infallible;

use super::reader::decode_header;
use super::{
    AnswerEntry, CHUNK_BYTES, CHUNK_BYTES_MAX, CHUNK_HEADER_BYTES, Entry, ForeignTimeEntry,
    HEADER_BYTES, HoldEntry, LONG_NUMBER_BYTES, MAGIC, NUMBER_BYTES, NumberEntry, PoollessAnswer,
    SNAPSHOT_VERSION, SnapshotHeader, kind,
};
use crate::clocks::CLOCKS_BYTES;

/// Writes one snapshot. Buffers the bytes until [`Self::take`] returns them.
#[derive(Debug)]
pub struct SnapshotWriter {
    ready: Vec<u8>,
    hasher: blake3::Hasher,
    /// The payload of the open chunk, and the kind and count of its entries.
    open: Vec<u8>,
    open_kind: u32,
    open_entries: u32,
    entries: u64,
}

impl SnapshotWriter {
    /// Begins a snapshot.
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    #[must_use]
    pub fn new(header: &SnapshotHeader) -> Self {
        let mut writer = Self {
            ready: Vec::new(),
            hasher: blake3::Hasher::new(),
            open: Vec::with_capacity(CHUNK_BYTES + 64),
            open_kind: kind::NUMBERS,
            open_entries: 0,
            entries: 0,
        };
        let bytes = encode_header(header);
        let read = decode_header::<Infallible>(&bytes).ok();
        assert!(read == Some(*header), "the header reads back differently");
        writer.push(&bytes);
        writer
    }

    /// Adds a number.
    pub fn number(&mut self, entry: &NumberEntry) {
        self.entry(entry);
    }

    /// Adds the answer to a row.
    pub fn answer(&mut self, entry: &AnswerEntry) {
        if entry.pool.0 == 0 && !is_long(entry) && self.open_kind != kind::LONG_ANSWERS {
            self.entry(&PoollessAnswer(*entry));
        } else {
            self.entry(entry);
        }
    }

    /// Adds an allocation's time by another node's clock. Must be called after the numbers have
    /// been added.
    pub fn foreign_time(&mut self, entry: &ForeignTimeEntry) {
        self.entry(entry);
    }

    /// Adds a hold.
    pub fn hold(&mut self, entry: &HoldEntry) {
        self.entry(entry);
    }

    /// The count of bytes that [`Self::take`] would return.
    #[must_use]
    pub fn ready_bytes(&self) -> usize {
        self.ready.len()
    }

    /// Takes the finished bytes. The caller must write them after the bytes from earlier calls.
    /// Clears `spare` and uses it as the next buffer, so that its capacity is reused.
    #[must_use]
    pub fn take(&mut self, mut spare: Vec<u8>) -> Vec<u8> {
        spare.clear();
        std::mem::replace(&mut self.ready, spare)
    }

    /// Ends the snapshot and returns its last bytes. The snapshot includes no records of frames
    /// after `through`. It may be published once the frame `through` is stored.
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    #[must_use]
    pub fn finish(mut self, through: u64) -> Vec<u8> {
        self.close_chunk();
        self.open.extend_from_slice(&through.to_le_bytes());
        self.open.extend_from_slice(&self.entries.to_le_bytes());
        self.hasher.update(&self.open);
        let hash = self.hasher.finalize();
        self.open.extend_from_slice(hash.as_bytes());
        self.open_kind = kind::END;
        self.open_entries = 1;
        self.close_chunk();
        assert!(self.open.is_empty(), "an entry is in no chunk");
        self.ready
    }

    fn entry<E: Entry>(&mut self, entry: &E) {
        // Short numbers (country code 1) are also added to a chunk of long numbers. Otherwise, each
        // switch between short and long numbers would start a new chunk.
        let is_long = is_long(entry) || self.open_kind == E::LONG_KIND;
        let kind = if is_long { E::LONG_KIND } else { E::KIND };
        if self.open_kind != kind {
            self.close_chunk();
            self.open_kind = kind;
        }
        let number_bytes = if is_long { LONG_NUMBER_BYTES } else { NUMBER_BYTES };
        let end = self.open.len() + E::BYTES;
        entry.encode(number_bytes, &mut self.open);
        let is_whole = [end, end - NUMBER_BYTES + number_bytes].contains(&self.open.len());
        assert!(is_whole, "an entry has the wrong length");
        self.open_entries += 1;
        self.entries += 1;
        if self.open.len() >= CHUNK_BYTES {
            self.close_chunk();
        }
    }

    fn close_chunk(&mut self) {
        if self.open_entries == 0 {
            return;
        }
        assert!(self.open.len() <= CHUNK_BYTES_MAX, "the chunk is longer than readers accept");
        let len = u32::try_from(self.open.len()).unwrap_or(u32::MAX);
        let mut header = [0; CHUNK_HEADER_BYTES];
        header[..4].copy_from_slice(&self.open_kind.to_le_bytes());
        header[4..8].copy_from_slice(&self.open_entries.to_le_bytes());
        header[8..12].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &self.open);
        header[12..].copy_from_slice(&crc.to_le_bytes());
        self.push(&header);
        self.hasher.update(&self.open);
        self.ready.append(&mut self.open);
        self.open_entries = 0;
    }

    fn push(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.ready.extend_from_slice(bytes);
    }
}

fn is_long(entry: &impl Entry) -> bool {
    entry.number().is_some_and(|number| number.to_nanp().is_none())
}

fn encode_header(header: &SnapshotHeader) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&SNAPSHOT_VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&header.shard.to_le_bytes());
    out[16..32].copy_from_slice(&header.journal);
    let values = [
        header.replay_from,
        header.prev_hash,
        header.epoch,
        header.created_at.0,
        header.last_at.0,
        header.numbers,
    ];
    for (field, value) in out[32..80].chunks_exact_mut(8).zip(values) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    if let Some(clocks) = &header.clocks {
        out[80..80 + CLOCKS_BYTES].copy_from_slice(&clocks.encode());
    }
    let crc = crc32c::crc32c(&out[..HEADER_BYTES - 4]);
    out[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    out
}
