//! Tests with the sample journals that are checked in under `fixtures/journal`. All of them are
//! still readable, and this version writes exactly the bytes of `v2` to `v5`.

use std::convert::Infallible;

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use crate::*;

const SEGMENT_BYTES: usize = 64 * 1024;
const JOURNAL: [u8; 16] = *b"fixture journal1";
const AT: u64 = 1_790_000_000_000;
const BATCH: [u8; 16] = [0xB7; 16];

const CLOCKS: Clocks = Clocks { boot: 0xB007, shard_offset: 1_789_999_000_000, wall_offset: 5 };

/// A committed journal.
struct Fixture {
    segments: [&'static [u8]; 2],
    snapshot: &'static [u8],
    /// The clocks in the fixture's groups, or `None` in format 1.
    clocks: Option<Clocks>,
    numbers: fn(u64) -> PromoNumber,
    /// The row whose answer is removed by the fixture's `Release` record.
    forgotten: Option<RowKey>,
    /// Whether one of the numbers was in doubt until it was handed out again.
    was_doubted: bool,
}

macro_rules! fixture {
    ($version:literal, $clocks:expr, $numbers:expr, $forgotten:expr, $was_doubted:expr) => {
        Fixture {
            segments: [
                include_bytes!(concat!(
                    "../../../fixtures/journal/",
                    $version,
                    "/0/0000000000000001.rpj"
                )),
                include_bytes!(concat!(
                    "../../../fixtures/journal/",
                    $version,
                    "/0/0000000000000002.rpj"
                )),
            ],
            snapshot: include_bytes!(concat!(
                "../../../fixtures/journal/",
                $version,
                "/0/00000000000000000004.rps"
            )),
            clocks: $clocks,
            numbers: $numbers,
            forgotten: $forgotten,
            was_doubted: $was_doubted,
        }
    };
}

const FORGOTTEN: RowKey = RowKey { batch: BATCH, row: 7 };

const FIXTURES: [Fixture; 5] = [
    fixture!("v1", None, number, None, false),
    fixture!("v2", Some(CLOCKS), number, None, false),
    fixture!("v3", Some(CLOCKS), number_of_the_world, None, false),
    fixture!("v4", Some(CLOCKS), number, Some(FORGOTTEN), false),
    fixture!("v5", Some(CLOCKS), number, Some(FORGOTTEN), true),
];

impl Segments for Fixture {
    type Error = Infallible;

    fn list(&self) -> Result<Vec<SegmentFile>, Infallible> {
        let numbered = (1..).zip(self.segments);
        Ok(numbered.map(|(segno, f)| SegmentFile { segno, bytes: f.len() as u64 }).collect())
    }

    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, Infallible> {
        let file = self.segments[usize::try_from(segno).unwrap() - 1];
        let rest = file.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

fn number(last: u64) -> PromoNumber {
    PromoNumber::from_e164(18_005_550_100 + last).unwrap()
}

/// The first number is from Germany, the second from the Bahamas, and the third has the maximum
/// length.
fn number_of_the_world(last: u64) -> PromoNumber {
    let all = [493_012_345_678, 12_425_550_142, 999_000_000_000_001];
    PromoNumber::from_e164(all[usize::try_from(last - 1).unwrap()]).unwrap()
}

fn allocate(at: u64, last: u64, number: PromoNumber, previous: Position) -> Record<'static> {
    Record::Allocate {
        at: Millis(AT + at),
        pool: PoolId(150),
        slot: u32::try_from(last).unwrap(),
        number,
        lockout: Millis(30_000),
        previous,
        was_doubted: false,
        visitor: None,
        idempotency: None,
        params: [b"utm_source=fixture", b"x=1"],
    }
}

/// Returns the fixture's groups. They contain every kind of record, both with and without its
/// optional fields.
#[expect(clippy::too_many_lines, reason = "one line for each kind of record")]
fn groups(fixture: &Fixture) -> Vec<Group> {
    let &Fixture { clocks, numbers: number, forgotten, was_doubted, .. } = fixture;
    let mut writer = Writer::new(Tip::FIRST.raise_epoch());
    if let Some(clocks) = clocks {
        writer.set_clocks(clocks);
    }
    let mut groups = Vec::new();
    let first = writer.append(&allocate(0, 1, number(1), Position::NONE));
    let second = writer.append(&allocate(5, 2, number(2), Position::NONE));
    let row = |row| RowKey { batch: BATCH, row };
    let (at, pool) = (Millis(AT + 6), PoolId(150));
    writer.append(&Record::Answer { at, pool, row: row(1), number: None });
    groups.extend(writer.seal(Vec::new()));

    let until = Millis(AT + 40_000);
    let extend = |previous, allocation| Record::Extend {
        at,
        number: number(1),
        slot: 1,
        until,
        previous,
        allocation,
    };
    let mut extended = writer.append(&extend(first, Position::NONE));
    if clocks.is_some() {
        extended = writer.append(&extend(extended, first));
    }
    let restored = Restored { allocated_at: at, local_at: at, locked_until: until };
    let release = Record::Release {
        at,
        number: number(2),
        slot: 2,
        until: at,
        previous: second,
        restored: clocks.map(|_| restored),
        forgotten,
    };
    let released = writer.append(&release);
    writer.append(&Record::Answer { at, pool, row: row(2), number: Some(number(1)) });
    writer.append(&Record::Tick { at: Millis(AT + 5_000) });
    groups.extend(writer.seal(Vec::new()));

    let long = [b'p'; 9_000];
    let (visitor, idempotency) = (Some(VisitorId([0x5A; 16])), Some(row(0)));
    writer.append(&Record::Allocate {
        at: Millis(AT + 50_000),
        pool,
        slot: 1,
        number: number(1),
        lockout: Millis(30_000),
        previous: extended,
        was_doubted,
        visitor,
        idempotency,
        params: [&long, b""],
    });
    writer.append(&allocate(50_001, 2, number(2), released));
    groups.extend(writer.seal(Vec::new()));

    let mut writer = Writer::new(writer.tip().raise_epoch());
    // Simulates a reboot of the machine and a correction to its wall clock.
    if let Some(clocks) = clocks {
        writer.set_clocks(Clocks { boot: 0xB008, wall_offset: -7, ..clocks });
    }
    let at = Millis(AT + 60_000);
    writer.append(&Record::Hold { at, pool: None, until: Millis(AT + 90_000) });
    writer.append(&Record::Hold { at, pool: Some(pool), until: Millis(AT + 95_000) });
    groups.extend(writer.seal(Vec::new()));
    writer.append(&Record::Carry {
        at: Millis(AT + 60_001),
        number: number(3),
        slot: 3,
        pool,
        allocated_at: Millis(AT),
        locked_until: Millis(AT + 3_600_000),
        clocks,
        visitor,
        params: [b"carried=1", b""],
    });
    groups.extend(writer.seal(Vec::new()));
    groups
}

fn segments(fixture: &Fixture) -> [Vec<u8>; 2] {
    let groups = groups(fixture);
    let third = Tip::after(&groups[2].header);
    let segment = |segno, salt, bytes: usize, tip: Tip, groups: &[Group]| {
        let (tip, file_bytes) = (tip.raise_epoch(), Some(bytes as u64));
        let header = SegmentHeader { shard: 0, journal: JOURNAL, segno, salt, tip, file_bytes };
        let mut file = header.encode().to_vec();
        for group in groups {
            let begin = file.len();
            file.resize(begin + frame_bytes(&group.header), 0);
            encode_frame(group, salt, &mut file[begin..]);
        }
        file.resize(bytes, 0);
        file
    };
    let first = segment(1, 0x0102_0304_0506_0708, SEGMENT_BYTES, Tip::FIRST, &groups[..3]);
    let second = segment(2, 0x1112_1314_1516_1718, 3 * BLOCK_BYTES, third, &groups[3..]);
    [first, second]
}

/// The state of the fixture's two numbers after the third group, the last group before the
/// snapshot.
fn numbers(fixture: &Fixture) -> Vec<NumberEntry> {
    let group = &groups(fixture)[2];
    let entry = |read: Result<(Position, Record<'_>), DecodeError>| match read.unwrap() {
        (position, Record::Allocate { at, pool, number, lockout, visitor, .. }) => NumberEntry {
            number,
            pool,
            allocated_at: at,
            locked_until: at + lockout,
            position,
            visitor,
        },
        other => panic!("{other:?}"),
    };
    group.records().map(entry).collect()
}

fn answers(fixture: &Fixture) -> [AnswerEntry; 2] {
    [(0, RecordedAnswer::Number((fixture.numbers)(1))), (1, RecordedAnswer::Overflow)].map(
        |(row, answer)| {
            AnswerEntry {
                row: RowKey { batch: BATCH, row },
                at: Millis(AT + 6),
                answer,
                // The version that wrote the fixture's snapshot did not store the pool in it.
                pool: PoolId(0),
            }
        },
    )
}

fn snapshot(fixture: &Fixture) -> Vec<u8> {
    let tip = Tip::after(&groups(fixture)[2].header);
    let mut writer = SnapshotWriter::new(&SnapshotHeader {
        shard: 0,
        journal: JOURNAL,
        replay_from: tip.next_n,
        prev_hash: tip.prev_hash,
        epoch: tip.epoch,
        created_at: tip.last_at,
        last_at: tip.last_at,
        numbers: 2,
        clocks: Some(CLOCKS),
    });
    for entry in &numbers(fixture) {
        writer.number(entry);
    }
    for entry in &answers(fixture) {
        writer.answer(entry);
    }
    writer.hold(&HoldEntry { pool: Some(PoolId(7)), until: Millis(AT + 1) });
    writer.finish(4)
}

#[test]
fn this_version_writes_the_bytes_of_the_newest_committed_journals() {
    for (version, fixture) in ["v2", "v3", "v4", "v5"].into_iter().zip(&FIXTURES[1..]) {
        let same = segments(fixture) == fixture.segments;
        assert!(same, "segments differ from fixtures/journal/{version}");
        let same = snapshot(fixture) == fixture.snapshot;
        assert!(same, "the snapshot differs from fixtures/journal/{version}");
    }
}

#[test]
fn the_committed_journals_are_read_back() {
    for fixture in FIXTURES {
        let mut seen = Vec::new();
        let plan = RecoveryPlan { shard: 0, from: 1, snapshot: None };
        let recovered = recover(&fixture, &plan, |header, body| {
            for record in Records::new(header.n, header.at, body) {
                record?;
            }
            seen.push(Group { header: *header, body: body.to_vec() });
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, groups(&fixture));
        assert_eq!((recovered.verdict, recovered.tip.next_n), (Verdict::Clean, 6));
        assert_eq!(recovered.tip.epoch, 2);
        assert_eq!(recovered.tip.clocks.is_some(), fixture.clocks.is_some());
        assert_eq!(recovered.segments[1].header.tip.clocks, fixture.clocks);
    }
}

#[test]
fn the_committed_snapshots_are_read_back_and_fit_their_journals() {
    for fixture in FIXTURES {
        let mut rest = fixture.snapshot;
        let mut reader = SnapshotReader::new(|out: &mut [u8]| -> Result<usize, Infallible> {
            let (head, tail) = rest.split_at(out.len().min(rest.len()));
            out[..head.len()].copy_from_slice(head);
            rest = tail;
            Ok(head.len())
        })
        .unwrap();
        let Some(Chunk::Numbers(read)) = reader.next_chunk().unwrap() else { panic!() };
        assert!(read.eq(numbers(&fixture)));
        let Some(Chunk::Answers(read)) = reader.next_chunk().unwrap() else { panic!() };
        assert!(read.eq(answers(&fixture)));
        let Some(Chunk::Holds(read)) = reader.next_chunk().unwrap() else { panic!() };
        assert_eq!(read.count(), 1);
        assert!(reader.next_chunk().unwrap().is_none());
        let end = *reader.end().unwrap();
        assert_eq!(end.header.clocks, fixture.clocks);
        let plan = RecoveryPlan { shard: 0, from: 4, snapshot: Some(end.mark()) };
        assert_eq!(recover(&fixture, &plan, |_, _| Ok(())).unwrap().frames, 2);
    }
}
