//! Three forms of snapshots: raw bytes, chunks with correct checksums, and a good snapshot with
//! damage.

use std::convert::Infallible;

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};
use ringwell_journal::{
    AnswerEntry, Chunk, ForeignTimeEntry, HoldEntry, NumberEntry, RecordedAnswer, RowKey,
    SnapshotError, SnapshotHeader, SnapshotReader, SnapshotWriter,
};

use crate::memory::bounded;

const HEADER: SnapshotHeader = SnapshotHeader {
    shard: 3,
    journal: *b"fuzzed journal 1",
    replay_from: 40,
    prev_hash: 41,
    epoch: 2,
    created_at: Millis(1_700_000_000_000),
    last_at: Millis(1_700_000_000_001),
    clocks: None,
    numbers: 12,
};
const HEADER_BYTES: usize = 96;
const THROUGH: u64 = 55;

#[derive(Debug, Default, PartialEq)]
struct Contents {
    numbers: Vec<NumberEntry>,
    answers: Vec<AnswerEntry>,
    holds: Vec<HoldEntry>,
    foreign_times: Vec<ForeignTimeEntry>,
}

/// Checks any file: either it is refused, or its contents can be written and read again. Damage to
/// a good snapshot must be detected. The first byte selects one of the three forms.
pub fn snapshot(bytes: &[u8]) {
    let Some((&form, bytes)) = bytes.split_first() else { return };
    match form % 3 {
        0 => check(bytes),
        1 => check(&forged(bytes)),
        _ => check_damaged(bytes),
    }
}

fn check(file: &[u8]) {
    // A chunk's payload is read in one piece, and may be up to 512 KiB long.
    let read = || bounded(file.len() + (1 << 19), 8, || read(file));
    let Ok((through, contents)) = read() else { return };
    let again = read_back(through, &contents);
    assert_eq!(again, contents);
}

fn read_back(through: u64, contents: &Contents) -> Contents {
    let (end, again) = read(&write(through, contents)).unwrap();
    assert_eq!(end, through);
    again
}

/// Makes a chunk from each piece of `bytes`. A piece begins with a byte for the chunk's kind, one
/// for the claimed count of entries, and one for the length.
fn forged(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = SnapshotWriter::new(&HEADER).take(Vec::new());
    let mut entries = 0_u64;
    while let [kind, count, len, rest @ ..] = bytes {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        let mut head = [0; 16];
        head[0] = kind % 5;
        head[4] = *count;
        head[8..12].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), payload);
        head[12..].copy_from_slice(&crc.to_le_bytes());
        file.extend_from_slice(&head);
        file.extend_from_slice(payload);
        entries += u64::from(*count);
        bytes = rest;
    }
    let mut end = [THROUGH.to_le_bytes(), entries.to_le_bytes()].concat();
    let hash = blake3::Hasher::new().update(&file).update(&end).finalize();
    end.extend_from_slice(hash.as_bytes());
    let mut head = [0; 16];
    head[0] = 255;
    head[4] = 1;
    head[8] = u8::try_from(end.len()).unwrap();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &end);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    [file, head.to_vec(), end].concat()
}

/// Damages a good snapshot. Of every three bytes in `bytes`, the first two are a position in the
/// file, and the third contains the bits to flip there. If bytes are left over, the first of them
/// is the count of bytes to cut off the end of the file.
fn check_damaged(bytes: &[u8]) {
    let contents = sample();
    let good = write(THROUGH, &contents);
    let mut file = good.clone();
    let (changes, rest) = bytes.as_chunks::<3>();
    for [low, high, change] in changes {
        let place = usize::from(u16::from_le_bytes([*low, *high])) % file.len();
        file[place] ^= change;
    }
    if let [cut, ..] = rest {
        file.truncate(file.len().saturating_sub(usize::from(*cut)));
    }
    match read(&file) {
        Ok(read) => {
            assert_eq!(file, good, "the damage was not detected");
            assert_eq!(read, (THROUGH, contents));
        }
        Err(_) => assert_ne!(file, good),
    }
}

fn sample() -> Contents {
    let number = |n| PromoNumber::from_e164(12_000_000_000 + n).unwrap();
    let numbers = (0..9).map(|n| NumberEntry {
        number: number(n),
        pool: PoolId(n / 4),
        allocated_at: Millis(n * 11),
        locked_until: Millis(n * 13),
        position: Position(n << 20 | 5),
        visitor: (n % 3 == 0).then_some(VisitorId([7; 16])),
    });
    let answers = [(RecordedAnswer::Number(number(1)), 0), (RecordedAnswer::Overflow, 3)].map(
        |(answer, pool)| {
            let row = RowKey { batch: [8; 16], row: 9 };
            AnswerEntry { row, at: Millis(5), answer, pool: PoolId(pool) }
        },
    );
    let holds = [Some(PoolId(0)), None].map(|pool| HoldEntry { pool, until: Millis(77) });
    let foreign_times =
        ForeignTimeEntry { number: number(2), allocated_at: Millis(22), local_at: Millis(23) };
    let foreign_times = vec![foreign_times];
    Contents {
        numbers: numbers.collect(),
        answers: answers.into(),
        holds: holds.into(),
        foreign_times,
    }
}

fn write(through: u64, contents: &Contents) -> Vec<u8> {
    let mut writer = SnapshotWriter::new(&HEADER);
    contents.numbers.iter().for_each(|entry| writer.number(entry));
    contents.answers.iter().for_each(|entry| writer.answer(entry));
    contents.holds.iter().for_each(|entry| writer.hold(entry));
    contents.foreign_times.iter().for_each(|entry| writer.foreign_time(entry));
    let file = writer.finish(through);
    assert!(file.len() > HEADER_BYTES);
    file
}

fn read(mut file: &[u8]) -> Result<(u64, Contents), SnapshotError<Infallible>> {
    let mut contents = Contents::default();
    let mut reader = SnapshotReader::new(|out: &mut [u8]| {
        let len = out.len().min(file.len()).min(1000);
        let (head, rest) = file.split_at(len);
        out[..len].copy_from_slice(head);
        file = rest;
        Ok(len)
    })?;
    while let Some(chunk) = reader.next_chunk()? {
        match chunk {
            Chunk::Numbers(entries) => contents.numbers.extend(entries),
            Chunk::Answers(entries) => contents.answers.extend(entries),
            Chunk::Holds(entries) => contents.holds.extend(entries),
            Chunk::ForeignTimes(entries) => contents.foreign_times.extend(entries),
        }
    }
    let end = reader.end().unwrap();
    let Contents { numbers, answers, holds, foreign_times } = &contents;
    let entries = numbers.len() + answers.len() + holds.len() + foreign_times.len();
    assert_eq!(end.entries, entries as u64);
    Ok((end.through, contents))
}
