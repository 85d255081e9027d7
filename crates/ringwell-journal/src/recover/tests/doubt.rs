//! Tests frames that cannot be read although answers may have been sent for them. If such a frame
//! is cut off, later startups must return `Verdict::Rotten` until a new frame is written.

use super::*;

#[test]
fn the_doubt_survives_any_number_of_starts_that_write_nothing() {
    let mut author = Author::new(Tip::FIRST.raise_epoch());
    author.segment(Tip::FIRST, None);
    author.group(10, 100);
    author.group(11, 100);
    author.files.0.get_mut(&1).unwrap()[2 * BLOCK_BYTES + 100] ^= 1;
    let tip = Tip::after(&author.groups[0].header);
    // Two consecutive startups cut off frame 2. Both ended before they wrote a frame.
    author.segment(tip.raise_epoch(), None);
    author.segment(tip.raise_epoch().raise_epoch(), None);
    let mark = SnapshotMark { journal: JOURNAL, prev_hash: tip.prev_hash, through: 1 };
    for plan in [PLAN, RecoveryPlan { from: 2, snapshot: Some(mark), ..PLAN }] {
        let cut = Cut { segno: 1, offset: 2 * BLOCK_BYTES as u64, n: 2 };
        assert_eq!(recovered(&author.files, &plan).unwrap().0.verdict, Verdict::Rotten(cut));
    }
}

#[test]
fn a_frame_whose_first_stamp_has_changed_was_begun_all_the_same() {
    let mut author = sample();
    let end = author.used;
    let begin = end - 3 * BLOCK_BYTES;
    let file = author.files.0.get_mut(&3).unwrap();
    file[begin] ^= 1;
    file[begin + BLOCK_BYTES..end].fill(0);
    let cut = Cut { segno: 3, offset: begin as u64, n: 7 };
    assert_eq!(verdict_of(&author.files), (Verdict::Torn(cut), 6));
}

#[test]
fn the_frame_itself_at_a_wrong_place_is_refused() {
    let mut author = sample();
    let (begin, end) = (author.used - 3 * BLOCK_BYTES, author.used);
    let file = author.files.0.get_mut(&3).unwrap();
    // The disk wrote frame 7 three blocks after its correct place, so answers may have been sent
    // for it.
    file.copy_within(begin..end, end);
    file[begin..end].fill(0);
    match recovered(&author.files, &PLAN).unwrap_err() {
        RecoverError::Damaged { n: 7, fault, newer_n: 7, newer_offset, .. } => {
            assert_eq!((fault, newer_offset), (FrameFault::NotWritten, end as u64));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_older_frame_at_a_wrong_place_after_the_end_proves_nothing() {
    let mut author = sample();
    let file = author.files.0.get_mut(&3).unwrap();
    // Writes frame 6 a second time, two blocks after the end of the journal.
    let frame = SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + BLOCK_BYTES;
    file.copy_within(frame, author.used + 2 * BLOCK_BYTES);
    assert_eq!(verdict_of(&author.files), (Verdict::Clean, 7));
}
