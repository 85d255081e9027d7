//! An undamaged journal: eight frames in three segments. The last two segments are in recycled
//! files.

use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_journal::{
    BLOCK_BYTES, Group, Record, SEGMENT_HEADER_BYTES, SegmentHeader, Tip, Writer, encode_frame,
    frame_bytes,
};

use super::files::Files;

pub(super) const SHARD: u32 = 3;
pub(super) const JOURNAL: [u8; 16] = *b"fuzzed journal 1";
/// The count of segments in the sample.
pub(super) const SEGMENTS: u64 = 3;
/// The count of blocks in each segment.
pub(super) const BLOCKS: usize = 10;

/// A journal and the records written into it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The files as stored on the disk.
    pub files: Files,
    /// All answered records.
    pub groups: Vec<Group>,
    /// The location of each group.
    pub frames: Vec<Frame>,
}

/// The location of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The segment.
    pub segno: u64,
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

impl Frame {
    /// The contents of the frame's blocks in `files`; missing blocks are empty.
    #[must_use]
    pub fn blocks<'a>(&self, files: &'a Files) -> Vec<&'a [u8]> {
        let file = files.0.get(&self.segno).map_or(&[][..], Vec::as_slice);
        let starts = (self.offset..self.offset + self.bytes).step_by(BLOCK_BYTES);
        let ends = |start: usize| file.len().min(start + BLOCK_BYTES);
        starts.map(|start| file.get(start..ends(start)).unwrap_or_default()).collect()
    }
}

struct Author {
    sample: Sample,
    writer: Writer,
    salt: u64,
    segno: u64,
    used: usize,
}

impl Author {
    fn new(salt: u64) -> Self {
        let sample = Sample { files: Files::default(), groups: Vec::new(), frames: Vec::new() };
        let writer = Writer::new(Tip::FIRST.raise_epoch());
        Self { sample, writer, salt, segno: 0, used: 0 }
    }

    /// Begins a segment in a file that contains only zeros, or frames of another journal.
    fn segment(&mut self, mut file: Vec<u8>) {
        self.segno += 1;
        self.salt = self.salt.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
        let last = self.sample.groups.last();
        let tip = last.map_or(Tip::FIRST, |group| Tip::after(&group.header));
        let (segno, salt) = (self.segno, self.salt);
        let file_bytes = Some(file.len() as u64);
        let header = SegmentHeader { shard: SHARD, journal: JOURNAL, segno, salt, tip, file_bytes };
        file[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        self.sample.files.0.insert(segno, file);
        self.used = SEGMENT_HEADER_BYTES;
    }

    /// Adds a group that contains a tick, and a record with `params` bytes of parameters.
    fn group(&mut self, params: usize) {
        let at = Millis(1000 + self.writer.pending_n());
        let params = vec![b'x'; params];
        self.writer.append(&Record::Tick { at });
        self.writer.append(&Record::Carry {
            at,
            number: PromoNumber::from_e164(12_000_000_000 + at.0).unwrap(),
            slot: 7,
            clocks: None,
            pool: PoolId(150),
            allocated_at: at,
            locked_until: Millis(at.0 + 1),
            visitor: None,
            params: [&params, b""],
        });
        let group = self.writer.seal(Vec::new()).unwrap();
        let bytes = frame_bytes(&group.header);
        let frame = Frame { segno: self.segno, offset: self.used, bytes };
        let file = self.sample.files.0.get_mut(&self.segno).unwrap();
        encode_frame(&group, self.salt, &mut file[self.used..self.used + bytes]);
        self.used += bytes;
        self.sample.frames.push(frame);
        self.sample.groups.push(group);
    }
}

/// Returns the sample, which is the same on every call.
#[must_use]
pub fn sample() -> Sample {
    let mut old = Author::new(5);
    old.segment(vec![0; BLOCKS * BLOCK_BYTES]);
    (0..9).for_each(|_| old.group(100));
    let used = old.sample.files.0.remove(&1).unwrap();

    let mut author = Author::new(7);
    author.segment(vec![0; BLOCKS * BLOCK_BYTES]);
    author.group(100);
    author.group(5_000);
    author.segment(used.clone());
    author.group(9_000);
    author.group(10);
    author.group(10);
    author.segment(used);
    author.group(10);
    author.group(9_000);
    author.group(5_000);
    author.sample
}
