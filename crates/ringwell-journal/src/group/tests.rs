use super::*;

fn tick(at: u64) -> Record<'static> {
    Record::Tick { at: Millis(at) }
}

#[test]
fn groups_are_dense_and_each_refers_to_the_previous_one() {
    let mut writer = Writer::new(Tip::FIRST.raise_epoch());
    let first = writer.append(&tick(10));
    let second = writer.append(&tick(30));
    let one = writer.seal(Vec::new()).unwrap();
    let third = writer.append(&tick(30));
    let two = writer.seal(Vec::new()).unwrap();
    assert!(first < second && second < third);
    assert_eq!((one.header.n, one.header.epoch, one.header.prev_hash), (1, 1, 0));
    assert_eq!((one.header.at, one.header.last_at), (Millis(10), Millis(30)));
    assert_eq!((two.header.n, two.header.prev_hash), (2, one.header.hash()));
    assert_eq!(two.records().next(), Some(Ok((third, tick(30)))));
    assert_eq!(one.record(second), Ok(tick(30)));
}

#[test]
fn the_hash_depends_on_every_field() {
    let header = GroupHeader {
        n: 5,
        epoch: 2,
        at: Millis(10),
        last_at: Millis(20),
        body_len: 30,
        body_crc: 40,
        prev_hash: 50,
        clocks: None,
    };
    let clocks = Clocks { boot: 1, shard_offset: 2, wall_offset: 3 };
    let others = [
        GroupHeader { n: 6, ..header },
        GroupHeader { epoch: 3, ..header },
        GroupHeader { at: Millis(11), ..header },
        GroupHeader { last_at: Millis(21), ..header },
        GroupHeader { body_len: 31, ..header },
        GroupHeader { body_crc: 41, ..header },
        GroupHeader { prev_hash: 51, ..header },
        GroupHeader { clocks: Some(clocks), ..header },
        GroupHeader { clocks: Some(Clocks { boot: 2, ..clocks }), ..header },
        GroupHeader { clocks: Some(Clocks { shard_offset: 3, ..clocks }), ..header },
        GroupHeader { clocks: Some(Clocks { wall_offset: 4, ..clocks }), ..header },
    ];
    let hashes: std::collections::BTreeSet<u64> = others.iter().map(GroupHeader::hash).collect();
    assert!(hashes.len() == others.len() && !hashes.contains(&header.hash()), "{hashes:?}");
}

#[test]
fn nothing_is_sealed_without_records() {
    let mut writer = Writer::new(Tip::FIRST);
    assert!(writer.seal(Vec::new()).is_none());
    assert_eq!(writer.pending_n(), 1);
}

#[test]
fn the_next_group_gathers_in_the_returned_buffer() {
    let mut writer = Writer::new(Tip::FIRST);
    writer.append(&tick(1));
    let mut spare = Vec::with_capacity(1234);
    spare.push(9);
    let _ = writer.seal(spare).unwrap();
    assert_eq!(writer.pending_bytes(), 0);
    writer.append(&tick(1));
    assert!(writer.seal(Vec::new()).unwrap().body.capacity() >= 1234);
}

#[test]
fn a_checksum_in_pieces_is_that_of_the_whole_group() {
    let mut writer = Writer::new(Tip::FIRST);
    for at in 1..2_000 {
        writer.append(&tick(at));
        if at % 7 == 0 {
            writer.sum();
        }
    }
    let first = writer.seal(Vec::new()).unwrap();
    assert_eq!(first.header.body_crc, crc32c::crc32c(&first.body));
    writer.append(&tick(2_000));
    writer.sum();
    let second = writer.seal(Vec::new()).unwrap();
    assert_eq!(second.header.body_crc, crc32c::crc32c(&second.body), "the next group begins anew");
}

#[test]
fn a_pending_record_is_read_and_others_are_not() {
    let mut writer = Writer::new(Tip::FIRST);
    let gone = writer.append(&tick(1));
    let _ = writer.seal(Vec::new());
    let here = writer.append(&tick(2));
    assert_eq!(writer.read_pending(here), Some(tick(2)));
    assert_eq!(writer.read_pending(gone), None);
    assert_eq!(writer.read_pending(Position(here.0 + 1000)), None);
}

#[test]
fn a_full_group_still_has_room_for_a_batch() {
    let params = [b'x'; 16_000];
    let mut writer = Writer::new(Tip::FIRST);
    let record = Record::Carry {
        at: Millis(1),
        number: ringwell_core::PromoNumber::from_e164(12_000_000_000).unwrap(),
        slot: 0,
        clocks: None,
        pool: ringwell_core::PoolId(1),
        allocated_at: Millis(1),
        locked_until: Millis(1),
        visitor: None,
        params: [&params, b""],
    };
    while !writer.is_full() {
        writer.append(&record);
    }
    assert!(writer.has_room(384 * 1024 - 17_000));
    while writer.has_room(record.bytes_max()) {
        writer.append(&record);
    }
    let group = writer.seal(Vec::new()).unwrap();
    assert!(group.body.len() > BODY_BYTES_MAX - 17_000);
    assert!(group.records().all(|result| result.is_ok()));
}

#[test]
#[should_panic(expected = "shard time went backwards")]
fn time_never_falls() {
    let mut writer = Writer::new(Tip { last_at: Millis(5), ..Tip::FIRST });
    writer.append(&tick(4));
}

#[test]
fn a_writer_reports_its_open_group_and_its_starting_point() {
    let tip = Tip { next_n: 4, prev_hash: 9, epoch: 2, last_at: Millis(7), clocks: None };
    let mut writer = Writer::new(tip);
    assert_eq!((writer.pending_n(), writer.pending_bytes()), (4, 0));
    assert_eq!(writer.last_at(), Millis(7));
    writer.append(&tick(8));
    writer.append(&tick(300));
    let bytes = writer.pending_bytes();
    assert_eq!(writer.tip(), Tip { last_at: Millis(300), ..tip });
    assert_eq!(writer.last_at(), Millis(300));
    let group = writer.seal(Vec::new()).unwrap();
    assert_eq!((group.body.len(), writer.pending_n()), (bytes, 5));
    assert_eq!(writer.tip(), Tip::after(&group.header));
    assert_eq!(writer.tip().raise_epoch(), Tip { epoch: 3, ..writer.tip() });
}

#[test]
fn a_group_has_room_up_to_its_last_byte_and_no_further() {
    let mut writer = Writer::new(Tip::FIRST);
    assert!(writer.has_room(BODY_BYTES_MAX) && !writer.has_room(BODY_BYTES_MAX + 1));
    writer.append(&tick(1));
    let left = BODY_BYTES_MAX - writer.pending_bytes();
    assert!(writer.has_room(left) && !writer.has_room(left + 1));
}

#[test]
fn a_group_is_full_from_640_kib_on() {
    let mut writer = Writer::new(Tip::FIRST);
    while !writer.is_full() {
        assert!(writer.pending_bytes() < 640 * 1024);
        writer.append(&tick(1));
    }
    assert!(writer.pending_bytes() - 640 * 1024 < 16, "{}", writer.pending_bytes());
}
