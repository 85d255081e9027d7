use proptest::prelude::*;
use ringwell_core::{PoolId, Position, PromoNumber};

use super::*;
use crate::group::{Tip, Writer};
use crate::record::Record;

const AUTHOR: Author = Author { shard: 3, journal: [7; 16], incarnation: [9; 16] };

fn group(records: u64, clocks: Option<Clocks>) -> Group {
    let mut writer = Writer::new(Tip { epoch: 5, prev_hash: 77, next_n: 12, ..Tip::FIRST });
    if let Some(clocks) = clocks {
        writer.set_clocks(clocks);
    }
    for at in 0..records {
        writer.append(&Record::Tick { at: Millis(1_000 + at) });
    }
    writer.seal(Vec::new()).unwrap()
}

/// Returns a group whose records resemble those of real traffic.
fn allocations(count: u64) -> Group {
    let mut writer = Writer::new(Tip { epoch: 5, prev_hash: 77, next_n: 12, ..Tip::FIRST });
    for n in 0..count {
        let random = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let params = format!(
            "utm_source=google&utm_medium=cpc&utm_campaign=spring+{}&gclid=Cj0KCQjw{random:016x}\
             {:016x}{:016x}&landing_page=%2Foffers%2F{}",
            n % 40,
            random.rotate_left(23) ^ n,
            random.rotate_left(41).wrapping_mul(0xD6E8_FEB8_6659_FD93),
            n % 7,
        );
        writer.append(&Record::Allocate {
            at: Millis(1_000 + n / 10),
            pool: PoolId(n % 200),
            slot: u32::try_from(n).unwrap(),
            number: PromoNumber::parse(&format!("888555{n:04}")).unwrap(),
            lockout: Millis(300_000),
            previous: Position::NONE,
            was_doubted: false,
            visitor: None,
            idempotency: None,
            params: [params.as_bytes(), b""],
        });
    }
    writer.seal(Vec::new()).unwrap()
}

fn packed(group: &Group) -> Vec<u8> {
    encode_packed_message(&mut Packer::default(), &AUTHOR, group)
}

#[test]
fn a_message_equals_what_was_written() {
    let clocks = Clocks { boot: 4, shard_offset: -5, wall_offset: 6 };
    for group in [group(40, None), group(40, Some(clocks)), allocations(1), allocations(200)] {
        for message in [encode_message(&AUTHOR, &group), packed(&group)] {
            assert_eq!(decode_message(&message).unwrap(), (AUTHOR, group.clone()));
        }
    }
}

#[test]
fn a_changed_byte_and_a_missing_end_are_detected() {
    let group = group(3, None);
    let message = encode_message(&AUTHOR, &group);
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 1;
        assert!(decode_message(&changed).is_err(), "byte {at}");
        assert!(decode_message(&message[..at]).is_err(), "{at} bytes");
    }
}

#[test]
fn an_unknown_packing_is_of_another_version() {
    let group = group(3, None);
    let message = encode(&AUTHOR, &group.header, 2, &group.body);
    assert_eq!(decode_message(&message), Err(MessageFault::Foreign));
}

#[cfg(feature = "zstd")]
#[test]
fn a_packed_body_takes_less_than_half_and_its_changed_bits_change_no_record() {
    let group = allocations(60);
    let message = packed(&group);
    assert!(message.len() < group.body.len() / 2, "{} of {}", message.len(), group.body.len());
    for at in 0..message.len() {
        for bit in 0..8 {
            let mut changed = message.clone();
            changed[at] ^= 1 << bit;
            // Changing a bit that the format does not use has no effect.
            let read = decode_message(&changed);
            assert!(read.is_err() || read.is_ok_and(|read| read.1 == group), "byte {at}");
        }
        assert!(decode_message(&message[..at]).is_err(), "{at} bytes");
    }
    let mut longer = message;
    longer.push(0);
    assert!(decode_message(&longer).is_err());
}

/// The header contains the length of the decompressed body. A body that decompresses to more bytes
/// is refused, and no memory is allocated for the excess.
#[cfg(feature = "zstd")]
#[test]
fn a_body_that_unpacks_to_more_than_its_stated_length_is_refused() {
    let honest = allocations(10);
    let zeros = vec![0; 64 << 20];
    let bomb = zstd::bulk::compress(&zeros, 1).unwrap();
    assert!(bomb.len() < 10_000, "{}", bomb.len());
    let message = encode(&AUTHOR, &honest.header, ZSTD, &bomb);
    assert_eq!(decode_message(&message), Err(MessageFault::Damaged));
}

/// Messages that earlier versions wrote.
#[test]
fn messages_of_every_version_are_read() {
    let v1: [(&[u8], Group); 2] = [
        (include_bytes!("../../../../fixtures/log/v1/0.message"), group(1, None)),
        (include_bytes!("../../../../fixtures/log/v1/1.message"), allocations(40)),
    ];
    for (message, group) in v1 {
        assert_eq!(decode_message(message).unwrap(), (AUTHOR, group.clone()));
        assert_eq!(encode_message(&AUTHOR, &group), message, "written as before");
    }
    let v2: [(&[u8], Group); 2] = [
        (include_bytes!("../../../../fixtures/log/v2/0.message"), allocations(1)),
        (include_bytes!("../../../../fixtures/log/v2/1.message"), allocations(40)),
    ];
    for (message, group) in v2 {
        let wanted =
            if cfg!(feature = "zstd") { Ok((AUTHOR, group)) } else { Err(MessageFault::Foreign) };
        assert_eq!(decode_message(message), wanted);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in 0_usize..2_000,
    ) {
        let _ = decode_message(&bytes);
        let _ = unpack(&bytes, 1 << 20);
        for mut ours in [encode_message(&AUTHOR, &group(2, None)), packed(&allocations(20))] {
            for (byte, changed) in bytes.iter().zip(ours.iter_mut().skip(at)) {
                *changed = *byte;
            }
            let _ = decode_message(&ours);
        }
    }
}
