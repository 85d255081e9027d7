use proptest::prelude::*;

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

#[test]
fn a_message_says_what_was_written() {
    let clocks = Clocks { boot: 4, shard_offset: -5, wall_offset: 6 };
    for clocks in [None, Some(clocks)] {
        let group = group(40, clocks);
        let message = encode_message(&AUTHOR, &group);
        assert_eq!(decode_message(&message).unwrap(), (AUTHOR, group));
    }
}

#[test]
fn a_byte_that_has_changed_and_an_end_that_is_missing_are_noticed() {
    let message = encode_message(&AUTHOR, &group(3, None));
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 1;
        assert!(decode_message(&changed).is_err(), "byte {at}");
        assert!(decode_message(&message[..at]).is_err(), "{at} bytes");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_message(&bytes);
        let mut ours = encode_message(&AUTHOR, &group(2, None));
        for (at, byte) in bytes.iter().enumerate().take(ours.len()) {
            ours[at] = *byte;
        }
        let _ = decode_message(&ours);
    }
}
