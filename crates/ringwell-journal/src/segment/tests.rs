use super::*;
use crate::place::N_END;

const CLOCKS: Clocks = Clocks { boot: 7, shard_offset: -8, wall_offset: 9 };
const TIP: Tip =
    Tip { next_n: 9, prev_hash: 77, epoch: 3, last_at: Millis(1_234), clocks: Some(CLOCKS) };

fn header() -> SegmentHeader {
    let journal = *b"sample journal 1";
    SegmentHeader { shard: 3, journal, segno: 5, salt: 0x1234, tip: TIP, file_bytes: None }
}

#[test]
fn a_head_reads_back_as_it_was_written() {
    let block = header().encode();
    assert_eq!(SegmentHeader::decode(&block), Ok(header()));
    assert!(block[FIELDS_BYTES + 4..].iter().all(|byte| *byte == 0));
    assert_eq!(SegmentHeader::decode(&block[..FIELDS_BYTES + 4]), Ok(header()));
}

#[test]
fn a_head_contains_the_length_of_its_file() {
    let header = SegmentHeader { file_bytes: Some(64 << 20), ..header() };
    let block = header.encode();
    assert_eq!(SegmentHeader::decode(&block), Ok(header));
    for index in (FIELDS_BYTES + 4)..(FIELDS_BYTES + 4) + 12 {
        let mut changed = block;
        changed[index] ^= 0x10;
        assert_eq!(SegmentHeader::decode(&changed), Err(SegmentFault::Checksum), "byte {index}");
    }
}

#[test]
fn a_cut_or_changed_head_is_refused() {
    let block = header().encode();
    for len in 0..FIELDS_BYTES + 4 {
        assert_eq!(SegmentHeader::decode(&block[..len]), Err(SegmentFault::Magic), "{len} bytes");
    }
    for index in 0..FIELDS_BYTES + 4 {
        let mut changed = block;
        changed[index] ^= 0x10;
        let wanted = if index < 8 { SegmentFault::Magic } else { SegmentFault::Checksum };
        assert_eq!(SegmentHeader::decode(&changed), Err(wanted), "byte {index}");
    }
}

#[test]
fn a_head_that_no_group_can_follow_is_refused_though_its_checksum_is_right() {
    let good = header().encode();
    // `next_n`, then `epoch`.
    for (at, value, is_read) in [
        (48, 0, false),
        (48, 1, true),
        (48, N_END - 1, true),
        (48, N_END, false),
        (64, u64::MAX - 1, true),
        (64, u64::MAX, false),
    ] {
        let mut block = good;
        block[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        let crc = crc32c::crc32c(&block[..FIELDS_BYTES]);
        block[FIELDS_BYTES..FIELDS_BYTES + 4].copy_from_slice(&crc.to_le_bytes());
        let refused = SegmentHeader::decode(&block).err();
        assert_eq!(refused, (!is_read).then_some(SegmentFault::Tip), "{value} at {at}");
    }
}

#[test]
fn a_head_of_a_newer_version_is_reported_as_such() {
    let mut block = header().encode();
    block[8] = 3;
    let crc = crc32c::crc32c(&block[..FIELDS_BYTES]);
    block[FIELDS_BYTES..FIELDS_BYTES + 4].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&block), Err(SegmentFault::Version(3)));
}

#[test]
fn a_salt_names_its_start_and_differs_for_each_segment() {
    let start = 0x0123_4567_89ab_cdef;
    let mut salts: Vec<u64> = (1..=1_000).map(|segno| salt(start, segno)).collect();
    for (segno, salt) in (1..).zip(&salts) {
        let header = SegmentHeader { segno, salt: *salt, ..header() };
        assert_eq!(header.start(), start);
    }
    // Frames of different segments must never have the same stamps, whatever their group numbers
    // are.
    salts.extend([0, start]);
    for (at, one) in salts.iter().enumerate() {
        let is_near = |other: &u64| (one ^ other).leading_zeros() >= 64 - N_END.ilog2();
        assert!(!salts[at + 1..].iter().any(is_near), "{one:x}");
    }
}
