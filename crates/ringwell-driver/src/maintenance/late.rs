//! A snapshot that claims to cover more than it does, for a planted bug.

use ringwell_journal::{Chunk, SnapshotHeader, SnapshotReader, SnapshotWriter};

/// Returns a snapshot's entries with a different header.
pub(super) fn headed(bytes: &[u8], header: &SnapshotHeader, through: u64) -> Vec<u8> {
    let mut rest = bytes;
    let source = |out: &mut [u8]| {
        let count = rest.len().min(out.len());
        let (head, tail) = rest.split_at(count);
        out[..count].copy_from_slice(head);
        rest = tail;
        Ok::<_, std::convert::Infallible>(count)
    };
    let mut writer = SnapshotWriter::new(header);
    let Ok(mut reader) = SnapshotReader::new(source) else { return Vec::new() };
    while let Ok(Some(chunk)) = reader.next_chunk() {
        match chunk {
            Chunk::Numbers(entries) => entries.for_each(|entry| writer.number(&entry)),
            Chunk::Answers(entries) => entries.for_each(|entry| writer.answer(&entry)),
            Chunk::Holds(entries) => entries.for_each(|entry| writer.hold(&entry)),
            Chunk::ForeignTimes(entries) => entries.for_each(|entry| writer.foreign_time(&entry)),
        }
    }
    writer.finish(through)
}
