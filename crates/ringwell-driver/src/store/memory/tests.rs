use ringwell_journal::{Record, Tip, Writer};

use super::*;

const CLOCKS: Clocks = Clocks { boot: 1, shard_offset: 0, wall_offset: 0 };

/// Returns group `n`, with `records` records.
fn group(writer: &mut Writer, n: u64, records: usize) -> Group {
    for _ in 0..records {
        writer.append(&Record::Tick { at: Millis(n) });
    }
    writer.seal(Vec::new()).unwrap()
}

#[test]
fn groups_are_stored_at_once_and_read_back() {
    let (memory, mut writer) = (Memory::new([0; 16], 100_000), Writer::new(Tip::FIRST));
    for n in 1..=100 {
        let group = group(&mut writer, n, 1);
        memory.store(group.clone());
        assert_eq!(memory.reader().read(n).unwrap(), group);
    }
    assert!(matches!(memory.reader().read(101), Err(ReadError::NotYet(101))));
    assert!(memory.draft(1).is_err());
    assert_eq!(memory.expired(Millis(100), CLOCKS), None);
}

#[test]
fn the_oldest_groups_expire_first() {
    let (memory, mut writer) = (Memory::new([0; 16], 400), Writer::new(Tip::FIRST));
    let mut store = |n| {
        let group = group(&mut writer, n, 20);
        assert_eq!(group.body.len(), 60);
        memory.store(group);
    };
    (1..=7).for_each(&mut store);
    assert_eq!(memory.take_oldest().unwrap().header.n, 1);
    assert!(matches!(memory.reader().read(1), Err(ReadError::Gone(1))));
    assert_eq!(memory.take_oldest(), None);
    (8..=9).for_each(&mut store);
    memory.keep_more(60);
    assert_eq!(memory.take_oldest().unwrap().header.n, 2);
    assert_eq!(memory.take_oldest(), None);
    assert_eq!(memory.stats().segment_bytes, 420);
}
