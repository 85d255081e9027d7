//! Tests recovery from segments that are too long for one read.

use std::cell::Cell;

use super::*;
use crate::recover::{Step, Walk};

const LONG: usize = 12 << 20;

/// Returns one segment with ten frames, some short and some nearly as long as a frame may be.
fn long() -> Author {
    let mut author = Author::new(Tip::FIRST.raise_epoch());
    author.segment(Tip::FIRST, Some(vec![0; LONG]));
    for at in 1..=10 {
        if at % 4 != 0 {
            let params = vec![b'x'; 16_000];
            let record = carry(at, &params);
            while author.writer.has_room(record.bytes_max() + 16_000) {
                author.writer.append(&record);
            }
        }
        author.group(at, 10);
    }
    assert!(author.used > 7 << 20 && author.used < LONG - (1 << 20), "{}", author.used);
    author
}

/// Returns the offset of each frame, followed by the end of the last frame.
fn offsets(author: &Author) -> Vec<usize> {
    let mut offset = SEGMENT_HEADER_BYTES;
    let mut all = vec![offset];
    for group in &author.groups {
        offset += frame_bytes(&group.header);
        all.push(offset);
    }
    all
}

#[test]
fn a_segment_longer_than_one_read_is_recovered_completely() {
    let author = long();
    let (recovered, seen) = recovered(&author.files, &PLAN).unwrap();
    assert!(seen == author.groups, "{} frames", seen.len());
    assert_eq!((recovered.verdict, recovered.frames), (Verdict::Clean, 10));
    let wanted: Vec<u64> = offsets(&author).iter().map(|&offset| offset as u64).collect();
    assert_eq!(recovered.segments[0].offsets, Some(wanted.clone()));
    let file = SegmentFile { segno: 1, bytes: LONG as u64 };
    let mut walk = Walk::new(&author.files, file, SALTS[1]);
    for (n, begins) in (1..).zip(&wanted) {
        assert_eq!(walk.offset(), *begins);
        match walk.step(n).unwrap() {
            Step::Frame { offset, header } => assert_eq!((offset, header.group.n), (*begins, n)),
            Step::Fault { offset, fault } => {
                assert_eq!((offset, fault, n), (*begins, FrameFault::NotWritten, 11));
            }
        }
    }
}

#[test]
fn a_newer_frame_is_found_beyond_one_read() {
    let mut author = long();
    let offsets = offsets(&author);
    // All frames but the last two are overwritten with zeros.
    author.files.0.get_mut(&1).unwrap()[offsets[0]..offsets[8]].fill(0);
    match recovered(&author.files, &PLAN).unwrap_err() {
        RecoverError::Damaged { n: 1, newer_n: 9, newer_offset, .. } => {
            assert_eq!(newer_offset, offsets[8] as u64);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn any_one_block_of_the_longest_frame_shows_that_it_was_begun() {
    let mut author = long();
    let offsets = offsets(&author);
    let (begin, end) = (offsets[9], offsets[10]);
    assert!(frame_bytes(&author.groups[9].header) > 240 * BLOCK_BYTES);
    let whole = author.files.0[&1][begin..end].to_vec();
    let cut = Cut { segno: 1, offset: begin as u64, n: 10 };
    for block in [0, 1, 100, whole.len() / BLOCK_BYTES - 1] {
        let file = author.files.0.get_mut(&1).unwrap();
        file[begin..end].fill(0);
        let part = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        file[begin + part.start..begin + part.end].copy_from_slice(&whole[part]);
        let (recovered, seen) = recovered(&author.files, &PLAN).unwrap();
        assert_eq!((recovered.verdict, seen.len()), (Verdict::Torn(cut), 9), "block {block}");
    }
}

/// Files, and the count of reads from them.
struct Counted {
    files: Files,
    reads: Cell<usize>,
}

impl Segments for Counted {
    type Error = Infallible;

    fn list(&self) -> Result<Vec<SegmentFile>, Infallible> {
        self.files.list()
    }

    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, Infallible> {
        self.reads.set(self.reads.get() + 1);
        self.files.read_at(segno, offset, out)
    }
}

#[test]
fn a_segment_is_read_in_pieces_of_megabytes() {
    let counted = Counted { files: long().files, reads: Cell::new(0) };
    let recovered = recover(&counted, &PLAN, |_, _| Ok(())).unwrap();
    assert_eq!(recovered.frames, 10);
    // Recovery reads the segment's head, and then 12 MiB in pieces of 4 MiB. Each piece starts at
    // the frame that did not fit completely into the previous piece.
    assert!(counted.reads.get() <= 6, "{} reads", counted.reads.get());
}
