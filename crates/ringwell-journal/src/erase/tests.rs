use proptest::prelude::*;
use ringwell_core::{Millis, PoolId, Position, PromoNumber};

use super::*;
use crate::{BLOCK_BYTES, Tip, Writer, decode_body, decode_header, encode_frame, frame_bytes};

proptest! {
    #[test]
    fn erased_bytes_are_gone_and_the_checksum_stays(
        mut body in prop::collection::vec(any::<u8>(), 5..3000),
        start in any::<prop::sample::Index>(),
        len in 5_usize..300,
    ) {
        let start = start.index(body.len() - 4);
        // No request contains this byte.
        prop_assume!(body[start] != ERASED);
        let range = start..(start + len).min(body.len());
        let before = body.clone();
        prop_assert!(erase(&mut body, range.clone()));
        prop_assert_eq!(crc32c::crc32c(&body), crc32c::crc32c(&before));
        prop_assert_eq!(&body[..range.start], &before[..range.start]);
        prop_assert_eq!(&body[range.end..], &before[range.end..]);
        prop_assert_ne!(&body[range.clone()], &before[range.clone()]);
        if range.len() > HEAD.len() + PATCH_BYTES {
            prop_assert!(body[range].starts_with(HEAD));
        }
    }
}

#[test]
fn four_bytes_and_fewer_are_left_unchanged() {
    for end in [6, 7] {
        let mut body = *b"0123456789";
        assert!(!erase(&mut body, 3..end));
        assert_eq!(&body, b"0123456789");
    }
}

#[test]
fn a_frame_whose_parameters_were_overwritten_in_place_is_intact() {
    let mut writer = Writer::new(Tip::FIRST.raise_epoch());
    let number = |n: u64| PromoNumber::parse(&(2_000_000_000 + n).to_string()).unwrap();
    // The parameters of some records span two blocks.
    let secret = |n: u64| format!("gclid=secret-{n}&more={}", "x".repeat(700));
    for n in 0..20 {
        writer.append(&Record::Allocate {
            at: Millis(1_000 + n),
            pool: PoolId(7),
            slot: 0,
            number: number(n),
            lockout: Millis(1_000),
            previous: Position::NONE,
            was_doubted: false,
            visitor: None,
            idempotency: None,
            params: [secret(n).as_bytes(), &[]],
        });
    }
    let group = writer.seal(Vec::new()).unwrap();
    let mut frame = vec![0; frame_bytes(&group.header)];
    encode_frame(&group, 99, &mut frame);
    let header = decode_header(&frame[..BLOCK_BYTES], 99, Some(1)).unwrap();
    let mut body = group.body.clone();
    let is_odd = |record: &Record<'_>, _: &[u8]| record.at().0 % 2 == 1;
    let places = parameters_in(&header, &group.body, is_odd).unwrap();
    assert_eq!(places.len(), 10);
    for range in places {
        assert!(erase(&mut body, range.clone()));
        for (offset, bytes) in pieces(&header, range) {
            frame[offset..offset + bytes.len()].copy_from_slice(&body[bytes]);
        }
    }
    let mut read = Vec::new();
    decode_body(&frame, 99, &header, &mut read).unwrap();
    assert_eq!(read, body);
    let text = String::from_utf8_lossy(&read).into_owned();
    for n in 0..20 {
        assert_eq!(text.contains(&format!("secret-{n}&")), n % 2 == 0, "{n}");
    }
    assert_eq!(Records::new(1, header.group.at, &read).flatten().count(), 20);
}
