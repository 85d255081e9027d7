use super::*;
use crate::group::{Tip, Writer};
use crate::place::{BODY_BYTES_MAX, N_END};
use crate::record::Record;

const SALT: u64 = 0x0123_4567_89AB_CDEF;
const CLOCKS: Clocks = Clocks { boot: 7, shard_offset: -8, wall_offset: 9 };

fn group(records: u64) -> Group {
    group_of(Some(CLOCKS), records)
}

fn group_of(clocks: Option<Clocks>, records: u64) -> Group {
    let mut writer = Writer::new(Tip { next_n: 5, prev_hash: 77, ..Tip::FIRST }.raise_epoch());
    if let Some(clocks) = clocks {
        writer.set_clocks(clocks);
    }
    for at in 0..records {
        writer.append(&Record::Tick { at: Millis(at) });
    }
    writer.seal(Vec::new()).unwrap()
}

fn frame(group: &Group) -> Vec<u8> {
    let mut out = vec![0xAA; frame_bytes(&group.header)];
    encode_frame(group, SALT, &mut out);
    out
}

/// Reads the frame that should contain group 5. Returns the group, or the reason why it cannot be
/// read.
fn read(frame: &[u8], salt: u64) -> Result<Group, FrameFault> {
    let header = decode_header(frame, salt, Some(5))?;
    let mut body = vec![1, 2, 3];
    decode_body(frame, salt, &header, &mut body)?;
    Ok(Group { header: header.group, body })
}

#[test]
fn frames_read_back_as_they_were_written() {
    // Some bodies end just before, exactly at or just after the end of the first or second block.
    for records in (1..=2_100).chain([30_000]) {
        for clocks in [None, Some(CLOCKS)] {
            let group = group_of(clocks, records);
            assert_eq!(read(&frame(&group), SALT), Ok(group));
        }
    }
    assert_eq!(frame_bytes(&group(2_100).header), 3 * BLOCK_BYTES);
}

#[test]
fn each_block_holds_4088_bytes() {
    for (clocks, header) in [(None, 64), (Some(CLOCKS), 88)] {
        let of = |body_len| frame_bytes(&GroupHeader { body_len, clocks, ..group(1).header });
        assert_eq!(of(1), 4096);
        assert_eq!(of(4088 - header), 4096);
        assert_eq!(of(4088 - header + 1), 8192);
        assert_eq!(of(2 * 4088 - header), 8192);
    }
}

#[test]
fn every_block_begins_with_the_stamp_of_its_salt_group_and_place() {
    let whole = frame(&group(3_000));
    for (index, block) in (0_u64..).zip(whole.chunks(BLOCK_BYTES)) {
        let stamp = (SALT ^ 5).wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert_eq!(block[..8], stamp.to_le_bytes(), "block {index}");
    }
}

#[test]
fn a_frame_with_another_salt_counts_as_never_written() {
    assert_eq!(read(&frame(&group(3_000)), SALT + 1), Err(FrameFault::NotWritten));
}

#[test]
fn a_frame_with_a_missing_block_counts_as_never_written() {
    let group = group(3_000);
    let whole = frame(&group);
    for block in 0..whole.len() / BLOCK_BYTES {
        let mut torn = whole.clone();
        torn[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].fill(0);
        assert_eq!(read(&torn, SALT), Err(FrameFault::NotWritten), "block {block}");
    }
    assert_eq!(read(&whole[..BLOCK_BYTES], SALT), Err(FrameFault::NotWritten));
}

#[test]
fn a_flipped_bit_of_a_written_frame_is_rot_if_it_matters() {
    let group = group(3_000);
    let whole = frame(&group);
    let last = HEADER_BYTES + 3 * STAMP_BYTES + group.body.len();
    for index in 0..whole.len() {
        let mut rotten = whole.clone();
        rotten[index] ^= 0x10;
        // If the checksums are right, damaged stamps and padding do no harm, because they carry no
        // data.
        let harmless = index % BLOCK_BYTES < STAMP_BYTES || index >= last;
        let expected = if harmless { Ok(group.clone()) } else { Err(FrameFault::Rotten) };
        assert_eq!(read(&rotten, SALT), expected, "byte {index}");
    }
}

#[test]
fn an_impossible_header_is_refused_though_its_checksum_is_right() {
    let good = GroupHeader { at: Millis(3), last_at: Millis(5), ..group(1).header };
    let longest = u32::try_from(BODY_BYTES_MAX).unwrap();
    let read = |header: &GroupHeader| {
        let mut block = vec![0; BLOCK_BYTES];
        let place = STAMP_BYTES..STAMP_BYTES + HEADER_BYTES;
        let place = &mut block[place];
        encode_header(header, SALT, place.try_into().unwrap());
        decode_header(&block, SALT, None).map(|found| found.group)
    };
    for header in [
        good,
        GroupHeader { n: 1, ..good },
        GroupHeader { n: N_END - 2, ..good },
        GroupHeader { epoch: u64::MAX - 1, ..good },
        GroupHeader { body_len: 1, ..good },
        GroupHeader { body_len: longest, ..good },
        GroupHeader { at: Millis(5), ..good },
        GroupHeader { clocks: None, ..good },
    ] {
        assert_eq!(read(&header), Ok(header));
    }
    for header in [
        GroupHeader { n: 0, ..good },
        GroupHeader { n: N_END - 1, ..good },
        GroupHeader { epoch: u64::MAX, ..good },
        GroupHeader { body_len: 0, ..good },
        GroupHeader { body_len: longest + 1, ..good },
        GroupHeader { at: Millis(6), ..good },
        GroupHeader { clocks: Some(Clocks { boot: 0, ..CLOCKS }), ..good },
    ] {
        assert_eq!(read(&header), Err(FrameFault::NotWritten), "{header:?}");
    }
}

#[test]
#[should_panic(expected = "the buffer's length differs from the frame's")]
fn a_frame_is_not_written_into_a_buffer_of_another_length() {
    encode_frame(&group(1), SALT, &mut vec![0; 2 * BLOCK_BYTES]);
}
