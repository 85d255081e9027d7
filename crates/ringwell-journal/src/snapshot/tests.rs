use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

const HEADER: SnapshotHeader = SnapshotHeader {
    shard: 3,
    journal: *b"sample journal 1",
    replay_from: 40,
    prev_hash: 41,
    epoch: 2,
    created_at: Millis(1_700_000_000_000),
    last_at: Millis(1_700_000_000_001),
    numbers: 12,
    clocks: Some(Clocks { boot: 7, shard_offset: -8, wall_offset: 9 }),
};

#[derive(Debug, Default, PartialEq)]
struct Contents {
    numbers: Vec<NumberEntry>,
    answers: Vec<AnswerEntry>,
    holds: Vec<HoldEntry>,
    foreign_times: Vec<ForeignTimeEntry>,
}

fn number(n: u64) -> PromoNumber {
    // Of every six thousand numbers, one thousand are from Germany, and one thousand have the
    // maximum length.
    let world = [
        12_000_000_000,
        12_000_000_000,
        493_000_000_000,
        12_000_000_000,
        12_000_000_000,
        999_000_000_000_000,
    ];
    PromoNumber::from_e164(world[usize::try_from(n / 1000 % 6).unwrap()] + n).unwrap()
}

fn contents(count: u64) -> Contents {
    let numbers = (0..count).map(|n| NumberEntry {
        number: number(n),
        pool: PoolId(n / 7),
        allocated_at: Millis(n * 11),
        locked_until: Millis(n * 13),
        position: Position((n % 56) << 20 | 5),
        visitor: (n % 3 == 0).then_some(VisitorId([n.to_le_bytes()[0]; 16])),
    });
    let answers = (0..count / 2).map(|n| AnswerEntry {
        row: RowKey { batch: [n.to_le_bytes()[0]; 16], row: 9 },
        at: Millis(n),
        answer: if n % 2 == 0 {
            RecordedAnswer::Number(number(n))
        } else {
            RecordedAnswer::Overflow
        },
        pool: PoolId(1 + n % 3),
    });
    let holds = [Some(PoolId(0)), None].map(|pool| HoldEntry { pool, until: Millis(77) });
    let foreign_times = (0..count / 4).map(|n| ForeignTimeEntry {
        number: number(n),
        allocated_at: Millis(n * 11),
        local_at: Millis(n * 12),
    });
    Contents {
        numbers: numbers.collect(),
        answers: answers.collect(),
        holds: holds.into(),
        foreign_times: foreign_times.collect(),
    }
}

fn write(contents: &Contents) -> Vec<u8> {
    let mut writer = SnapshotWriter::new(&HEADER);
    let mut out = Vec::new();
    for entry in &contents.numbers {
        writer.number(entry);
        if writer.ready_bytes() > 0 {
            out.extend(writer.take(Vec::new()));
        }
    }
    contents.answers.iter().for_each(|entry| writer.answer(entry));
    contents.holds.iter().for_each(|entry| writer.hold(entry));
    contents.foreign_times.iter().for_each(|entry| writer.foreign_time(entry));
    out.extend(writer.finish(55));
    out
}

/// Returns the entries of a chunk, and checks that the iterator's size hint is exact.
fn counted<E: Entry>(entries: Entries<'_, E>) -> Vec<E> {
    let hint = entries.size_hint();
    let all: Vec<E> = entries.collect();
    assert_eq!(hint, (all.len(), Some(all.len())));
    all
}

fn read(mut bytes: &[u8]) -> Result<(Snapshot, Contents), SnapshotError<Infallible>> {
    let mut contents = Contents::default();
    // A source may return less than was requested.
    let mut reader = SnapshotReader::new(|out: &mut [u8]| {
        let len = out.len().min(bytes.len()).min(10_000);
        let (head, rest) = bytes.split_at(len);
        out[..len].copy_from_slice(head);
        bytes = rest;
        Ok(len)
    })?;
    while let Some(chunk) = reader.next_chunk()? {
        match chunk {
            Chunk::Numbers(entries) => contents.numbers.extend(counted(entries)),
            Chunk::Answers(entries) => contents.answers.extend(counted(entries)),
            Chunk::Holds(entries) => contents.holds.extend(counted(entries)),
            Chunk::ForeignTimes(entries) => contents.foreign_times.extend(counted(entries)),
        }
    }
    Ok((*reader.end().unwrap(), contents))
}

#[test]
fn a_snapshot_reads_back_as_it_was_written() {
    for count in [0, 1, 12, 5_000, 30_000] {
        let written = contents(count);
        let (snapshot, got) = read(&write(&written)).unwrap();
        assert_eq!(got, written);
        assert_eq!(snapshot.header, HEADER);
        assert_eq!((snapshot.through, snapshot.entries), (55, count + count / 2 + 2 + count / 4));
    }
}

#[test]
fn the_finished_part_can_be_taken_and_has_about_a_chunk_at_most() {
    let mut writer = SnapshotWriter::new(&HEADER);
    let mut taken = 0;
    for entry in &contents(20_000).numbers {
        let ready = writer.ready_bytes();
        assert!(ready <= CHUNK_BYTES + 1_000, "{ready}");
        let bytes = writer.take(Vec::new());
        assert_eq!((bytes.len(), writer.ready_bytes()), (ready, 0));
        taken += ready;
        writer.number(entry);
    }
    assert!(taken > 20_000 * NumberEntry::BYTES - CHUNK_BYTES, "{taken}");
}

#[test]
fn damage_to_any_byte_is_found() {
    let bytes = write(&contents(12));
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1 << (index % 8);
        assert!(read(&damaged).is_err(), "byte {index}");
        assert!(read(&bytes[..index]).is_err(), "length {index}");
    }
}

#[test]
fn an_error_contains_its_place() {
    let bytes = write(&contents(12));
    for len in 0..bytes.len() {
        let error = read(&bytes[..len]).unwrap_err();
        assert!(matches!(error, SnapshotError::Short(offset) if offset == len as u64), "{error}");
    }
    let mut damaged = bytes;
    let second_chunk = HEADER_BYTES + CHUNK_HEADER_BYTES + 12 * NumberEntry::BYTES;
    damaged[second_chunk + CHUNK_HEADER_BYTES + 3] ^= 1;
    let error = read(&damaged).unwrap_err();
    assert!(
        matches!(error, SnapshotError::Damaged(offset) if offset == second_chunk as u64),
        "{error}"
    );
}

#[test]
fn a_snapshot_with_wrong_counts_is_refused_though_its_hash_is_right() {
    let mut bytes = write(&contents(3));
    let end = bytes.len() - (16 + blake3::OUT_LEN);
    let head = end - CHUNK_HEADER_BYTES;
    bytes[end + 8] += 1;
    let covered = [&bytes[..head], &bytes[end..end + 16]].concat();
    bytes[end + 16..].copy_from_slice(blake3::hash(&covered).as_bytes());
    let crc = crc32c::crc32c(&[&bytes[head..head + 12], &bytes[end..]].concat());
    bytes[head + 12..end].copy_from_slice(&crc.to_le_bytes());
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, SnapshotError::Damaged(at) if at == head as u64), "{error}");
}

#[test]
fn a_number_of_a_later_group_than_the_snapshot_covers_is_refused() {
    let number = contents(56).numbers[55];
    for (through, is_read) in [(54, false), (55, true)] {
        let mut writer = SnapshotWriter::new(&HEADER);
        writer.number(&number);
        writer.answer(&contents(2).answers[0]);
        let got = read(&writer.finish(through)).map(|(_, got)| got.numbers).ok();
        assert_eq!(got, is_read.then_some(vec![number]), "{through}");
    }
}

#[test]
fn a_chunk_beyond_the_limit_is_refused_before_memory_is_allocated() {
    let header = &write(&contents(0))[..HEADER_BYTES];
    let refusal = |kind: u32, len: u32| {
        let head = [kind, 1, len, 0].map(u32::to_le_bytes).concat();
        read(&[header, &head].concat()).unwrap_err()
    };
    assert!(matches!(refusal(kind::NUMBERS, 512 * 1024), SnapshotError::Short(128)));
    assert!(matches!(refusal(kind::NUMBERS, 512 * 1024 + 1), SnapshotError::Damaged(112)));
    assert!(matches!(refusal(kind::NUMBERS, u32::MAX), SnapshotError::Damaged(112)));
    assert!(matches!(refusal(kind::END, 48), SnapshotError::Short(128)));
    assert!(matches!(refusal(kind::END, 49), SnapshotError::Damaged(112)));
}

#[test]
fn swapped_chunks_are_detected() {
    let mut a = SnapshotWriter::new(&HEADER);
    contents(12).numbers.iter().for_each(|entry| a.number(entry));
    let one = contents(12).numbers.len() * NumberEntry::BYTES + CHUNK_HEADER_BYTES;
    contents(12).answers.iter().for_each(|entry| a.answer(entry));
    let bytes = a.finish(0);
    let two = 6 * AnswerEntry::BYTES + CHUNK_HEADER_BYTES;
    let [head, rest] = [&bytes[..HEADER_BYTES], &bytes[HEADER_BYTES..]];
    let swapped = [head, &rest[one..one + two], &rest[..one], &rest[one + two..]].concat();
    assert_eq!(swapped.len(), bytes.len());
    assert!(matches!(read(&swapped), Err(SnapshotError::Hash)));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        keep in 0..200_usize,
    ) {
        let sample = write(&contents(3));
        let mixed = [&sample[..keep.min(sample.len())], &bytes].concat();
        prop_assert!(read(&mixed).is_err() || mixed.starts_with(&sample));
    }
}
