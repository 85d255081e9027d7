mod doubt;
mod long;
mod words;

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;
use ringwell_core::PromoNumber;

use super::*;
use crate::clocks::Clocks;
use crate::frame::{BLOCK_BYTES, encode_frame, frame_bytes};
use crate::group::{Group, Writer};
use crate::record::{Record, Records};
use crate::segment::encode_end;

const JOURNAL: [u8; 16] = *b"sample journal 1";
const SALTS: [u64; 4] = [0, 0x1111_2222_3333_4444, 0x5555_6666_7777_8888, 0x9999_AAAA_BBBB_CCCC];
const SEGMENT_BYTES: usize = 10 * BLOCK_BYTES;

/// Segments in memory. Recovery cannot change the segments, because it has only a shared reference
/// to them.
#[derive(Clone, Default)]
struct Files(BTreeMap<u64, Vec<u8>>);

impl Segments for Files {
    type Error = Infallible;

    fn list(&self) -> Result<Vec<SegmentFile>, Infallible> {
        Ok(self.0.iter().map(|(&segno, f)| SegmentFile { segno, bytes: f.len() as u64 }).collect())
    }

    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, Infallible> {
        let file = &self.0[&segno];
        let rest = file.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// Writes groups into segments, as the store on disk does.
struct Author {
    files: Files,
    writer: Writer,
    segno: u64,
    used: usize,
    groups: Vec<Group>,
}

impl Author {
    fn new(writer_tip: Tip) -> Self {
        let mut writer = Writer::new(writer_tip);
        writer.set_clocks(Clocks { boot: 1, shard_offset: 1_000, wall_offset: 900 });
        Self { files: Files::default(), writer, segno: 0, used: 0, groups: Vec::new() }
    }

    /// Starts a segment in a file that contains zeros or another journal's frames.
    fn segment(&mut self, tip: Tip, recycled: Option<Vec<u8>>) {
        self.segno += 1;
        let salt = SALTS[usize::try_from(self.segno).unwrap()];
        let mut file = recycled.unwrap_or_else(|| vec![0; SEGMENT_BYTES]);
        let (segno, file_bytes) = (self.segno, Some(file.len() as u64));
        let header = SegmentHeader { shard: 3, journal: JOURNAL, segno, salt, tip, file_bytes };
        file[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
        self.files.0.insert(self.segno, file);
        self.used = SEGMENT_HEADER_BYTES;
    }

    /// Adds a group that contains a tick and a record with `params` bytes of parameters.
    fn group(&mut self, at: u64, params: usize) {
        let params = vec![b'x'; params];
        self.writer.append(&Record::Tick { at: Millis(at) });
        self.writer.append(&carry(at, &params));
        let group = self.writer.seal(Vec::new()).unwrap();
        let bytes = frame_bytes(&group.header);
        let salt = SALTS[usize::try_from(self.segno).unwrap()];
        let file = self.files.0.get_mut(&self.segno).unwrap();
        encode_frame(&group, salt, &mut file[self.used..self.used + bytes]);
        self.used += bytes;
        self.groups.push(group);
    }

    fn tip(&self) -> Tip {
        self.groups.last().map_or(Tip::FIRST, |group| Tip::after(&group.header))
    }
}

/// Returns a record with the parameters `params`.
fn carry(at: u64, params: &[u8]) -> Record<'_> {
    Record::Carry {
        at: Millis(at),
        number: PromoNumber::from_e164(12_000_000_000 + at).unwrap(),
        slot: 7,
        clocks: None,
        pool: ringwell_core::PoolId(150),
        allocated_at: Millis(at),
        locked_until: Millis(at + 1),
        visitor: None,
        params: [params, b""],
    }
}

/// Returns three segments with seven frames. The last two segments are in recycled files.
fn sample() -> Author {
    let mut old = Author::new(Tip::FIRST.raise_epoch());
    old.segment(Tip::FIRST, None);
    (0..9).for_each(|at| old.group(at, 100));
    let recycled = old.files.0.remove(&1).unwrap();

    let mut author = Author::new(Tip::FIRST.raise_epoch());
    author.segment(Tip::FIRST, None);
    author.group(10, 100);
    author.group(11, 5_000);
    author.segment(author.tip(), Some(recycled.clone()));
    author.group(12, 9_000);
    author.group(13, 10);
    author.group(14, 10);
    author.segment(author.tip(), Some(recycled));
    author.group(15, 10);
    author.group(16, 9_000);
    author
}

const PLAN: RecoveryPlan = RecoveryPlan { shard: 3, from: 1, snapshot: None };

fn recovered(
    files: &Files,
    plan: &RecoveryPlan,
) -> Result<(Recovered, Vec<Group>), RecoverError<Infallible>> {
    let mut seen = Vec::new();
    let recovered = recover(files, plan, |header, body| {
        Records::new(header.n, header.at, body).try_for_each(|record| record.map(|_| ()))?;
        seen.push(Group { header: *header, body: body.to_vec() });
        Ok(())
    })?;
    Ok((recovered, seen))
}

fn verdict_of(files: &Files) -> (Verdict, usize) {
    let (recovered, seen) = recovered(files, &PLAN).unwrap();
    (recovered.verdict, seen.len())
}

#[test]
fn an_undamaged_journal_is_recovered_completely() {
    let author = sample();
    let (recovered, seen) = recovered(&author.files, &PLAN).unwrap();
    assert_eq!(seen, author.groups);
    assert_eq!(recovered.verdict, Verdict::Clean);
    assert_eq!(recovered.tip, author.tip());
    assert_eq!(recovered.journal, Some(JOURNAL));
    let ends: Vec<_> = recovered.segments.iter().map(|info| info.next_n).collect();
    assert_eq!(ends, [3, 6, 8]);
}

#[test]
fn an_empty_journal_begins_with_the_first_frame() {
    let (recovered, seen) = recovered(&Files::default(), &PLAN).unwrap();
    assert_eq!((recovered.tip, recovered.verdict, seen.len()), (Tip::FIRST, Verdict::Clean, 0));
}

#[test]
fn replay_begins_where_the_snapshot_ends_and_skips_older_segments() {
    let author = sample();
    for from in 1..=8 {
        let (recovered, seen) = recovered(&author.files, &RecoveryPlan { from, ..PLAN }).unwrap();
        assert_eq!(seen, author.groups[usize::try_from(from).unwrap() - 1..]);
        assert_eq!(recovered.tip, author.tip());
        let read: Vec<_> = recovered.segments.iter().map(|info| info.offsets.is_some()).collect();
        assert_eq!(read, [from < 3, from < 6, true]);
        let ends = recovered.segments.iter().map(|info| (info.next_n, info.last_at.0));
        assert_eq!(ends.collect::<Vec<_>>(), [(3, 11), (6, 14), (8, 16)]);
        assert_eq!(recovered.frames, seen.len() as u64);
    }
}

/// The main recovery test: damages each byte of the journal in turn.
#[test]
fn a_flipped_byte_never_loses_an_answered_frame_silently() {
    let author = sample();
    let mut files = author.files.clone();
    for segno in 1..=3 {
        for index in 0..SEGMENT_BYTES {
            let bit = 1_u8 << (index % 8);
            files.0.get_mut(&segno).unwrap()[index] ^= bit;
            if let Ok((recovered, seen)) = recovered(&files, &PLAN) {
                assert!(author.groups.starts_with(&seen), "segment {segno} byte {index}");
                let doubted = matches!(recovered.verdict, Verdict::Rotten(_));
                assert_eq!(seen.len() < 7, doubted, "segment {segno} byte {index}");
                assert!(seen.len() >= 6, "segment {segno} byte {index}");
            }
            files.0.get_mut(&segno).unwrap()[index] ^= bit;
        }
    }
}

/// A file gets its full length before it is used, so a crash never leaves a shorter file.
#[test]
fn a_cut_file_gives_the_complete_journal_or_a_refusal() {
    let author = sample();
    for segno in 1..=3 {
        for len in 0..SEGMENT_BYTES {
            let mut files = author.files.clone();
            files.0.get_mut(&segno).unwrap().truncate(len);
            let Ok((_, seen)) = recovered(&files, &PLAN) else { continue };
            assert!(segno < 3, "segment {segno} length {len}");
            assert_eq!(seen, author.groups, "segment {segno} length {len}");
        }
    }
}

#[test]
fn a_file_cut_by_a_start_may_end_there_and_nowhere_else() {
    let mut author = sample();
    let (end, salt) = (author.used, SALTS[3]);
    author.files.0.get_mut(&3).unwrap().truncate(end);
    author.files.0.get_mut(&3).unwrap().extend(encode_end(salt, 8));
    assert_eq!(verdict_of(&author.files), (Verdict::Clean, 7));
    for len in 0..end + BLOCK_BYTES {
        let mut files = author.files.clone();
        files.0.get_mut(&3).unwrap().truncate(len);
        assert!(recovered(&files, &PLAN).is_err(), "length {len}");
    }
    for block in [encode_end(salt, 7), encode_end(salt + 1, 8)] {
        author.files.0.get_mut(&3).unwrap()[end..].copy_from_slice(&block);
        let error = recovered(&author.files, &PLAN).unwrap_err();
        assert!(matches!(error, RecoverError::Short { segno: 3, .. }), "{error}");
    }
}

/// Tests segments whose heads do not contain the initial length of the file.
#[test]
fn an_earlier_journal_may_end_with_a_frame_and_not_within_one() {
    let mut author = sample();
    let file = author.files.0.get_mut(&3).unwrap();
    let header = SegmentHeader::decode(file).unwrap();
    let header = SegmentHeader { file_bytes: None, ..header };
    file[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
    for len in SEGMENT_HEADER_BYTES..SEGMENT_BYTES {
        let mut files = author.files.clone();
        files.0.get_mut(&3).unwrap().truncate(len);
        let result = recovered(&files, &PLAN);
        let is_end = [1, 2, 5].map(|blocks| blocks * BLOCK_BYTES).contains(&len);
        let may_end = is_end || (len > author.used && len % BLOCK_BYTES == 0);
        assert_eq!(result.is_ok(), may_end, "length {len}");
    }
}

proptest! {
    /// A power failure during the last write leaves any subset of its sectors on the disk.
    #[test]
    fn a_torn_write_is_cut_off_and_nothing_else_is_lost(
        sectors in proptest::collection::vec(any::<bool>(), 24),
        recycled in any::<bool>(),
    ) {
        let mut author = sample();
        if !recycled {
            author.files.0.get_mut(&3).unwrap()[author.used..].fill(0);
        }
        let before = author.files.0[&3].clone();
        author.group(17, 9_000);
        let start = before.len() - 12_288 - (before.len() - author.used);
        let file = author.files.0.get_mut(&3).unwrap();
        for (index, arrived) in sectors.iter().enumerate() {
            let range = start + index * 512..start + (index + 1) * 512;
            if !arrived {
                file[range.clone()].copy_from_slice(&before[range]);
            }
        }
        let (recovered, seen) = recovered(&author.files, &PLAN).unwrap();
        prop_assert!(seen.len() == 7 || seen.len() == 8);
        prop_assert!(author.groups.starts_with(&seen));
        if seen.len() == 8 {
            prop_assert_eq!(recovered.verdict, Verdict::Clean);
        }
        prop_assert_eq!(recovered.tip.next_n, seen.len() as u64 + 1);
    }

    #[test]
    fn no_files_make_recovery_panic(
        noise in proptest::collection::vec((1..=3_u64, 0..SEGMENT_BYTES, any::<u8>()), 1..40),
        from in 0..12_u64,
    ) {
        let mut files = sample().files;
        for (segno, index, value) in noise {
            files.0.get_mut(&segno).unwrap()[index] = value;
        }
        let _ = recovered(&files, &RecoveryPlan { from, ..PLAN });
    }
}

#[test]
fn a_frame_without_its_last_block_is_torn() {
    let mut author = sample();
    let end = author.used;
    author.files.0.get_mut(&3).unwrap()[end - BLOCK_BYTES..end].fill(0);
    let offset = (SEGMENT_HEADER_BYTES + BLOCK_BYTES) as u64;
    assert_eq!(verdict_of(&author.files), (Verdict::Torn(Cut { segno: 3, offset, n: 7 }), 6));
}

#[test]
fn an_intact_frame_that_rotted_at_the_end_is_cut_off_and_reported() {
    let mut author = sample();
    let end = author.used;
    author.files.0.get_mut(&3).unwrap()[end - BLOCK_BYTES + 100] ^= 1;
    let offset = (SEGMENT_HEADER_BYTES + BLOCK_BYTES) as u64;
    assert_eq!(verdict_of(&author.files), (Verdict::Rotten(Cut { segno: 3, offset, n: 7 }), 6));
}

#[test]
fn the_doubt_stays_until_a_frame_follows_the_cut() {
    let mut author = sample();
    let end = author.used;
    author.files.0.get_mut(&2).unwrap().fill(0);
    author.files.0.remove(&2);
    author.files.0.remove(&3);
    // Segment 1 ends with the damaged frame 2. The next startup cut the journal there and began
    // segment 2.
    author.files.0.get_mut(&1).unwrap()[2 * BLOCK_BYTES + 200] ^= 1;
    let tip = Tip::after(&author.groups[0].header).raise_epoch();
    let (segno, salt) = (2, SALTS[2]);
    let file_bytes = Some(SEGMENT_BYTES as u64);
    let header = SegmentHeader { shard: 3, journal: JOURNAL, segno, salt, tip, file_bytes };
    let mut file = vec![0; SEGMENT_BYTES];
    file[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
    author.files.0.insert(2, file);
    assert!(matches!(verdict_of(&author.files), (Verdict::Rotten(Cut { segno: 1, n: 2, .. }), 1)));
    let prev_hash = author.groups[0].header.hash();
    let mark = SnapshotMark { journal: JOURNAL, prev_hash, through: 1 };
    let covered = RecoveryPlan { from: 2, snapshot: Some(mark), ..PLAN };
    let verdict = |files: &Files| recovered(files, &covered).unwrap().0.verdict;
    assert!(matches!(verdict(&author.files), Verdict::Rotten(Cut { segno: 1, n: 2, .. })));

    let mut next = Author { segno: 2, used: SEGMENT_HEADER_BYTES, ..author };
    next.writer = Writer::new(tip);
    next.group(20, 10);
    assert_eq!(verdict_of(&next.files), (Verdict::Clean, 2));
    assert_eq!(verdict(&next.files), Verdict::Clean);
    assert!(end > 0);
}

#[test]
fn damage_before_an_intact_frame_is_refused_with_its_place() {
    let mut author = sample();
    author.files.0.get_mut(&3).unwrap()[SEGMENT_HEADER_BYTES + 80] ^= 1;
    let error = recovered(&author.files, &PLAN).unwrap_err();
    let expected = RecoverError::Damaged::<Infallible> {
        segno: 3,
        offset: 4096,
        n: 6,
        fault: FrameFault::Rotten,
        newer_segno: 3,
        newer_offset: 8192,
        newer_n: 7,
    };
    assert_eq!(error.to_string(), expected.to_string());
    assert!(
        error.to_string().contains("segment 0000000000000003 is damaged at offset 4096: frame 6")
    );
}

#[test]
fn damage_at_the_end_of_an_older_segment_is_refused() {
    let mut author = sample();
    author.files.0.get_mut(&1).unwrap()[2 * BLOCK_BYTES..3 * BLOCK_BYTES].fill(0);
    let error = recovered(&author.files, &PLAN).unwrap_err();
    assert!(matches!(
        error,
        RecoverError::Damaged { segno: 1, offset: 8192, n: 2, newer_segno: 2, newer_n: 3, .. }
    ));
}

#[test]
fn a_missing_segment_is_refused() {
    let author = sample();
    let refused = |segno: u64, from: u64| {
        let mut files = author.files.clone();
        files.0.remove(&segno);
        recovered(&files, &RecoveryPlan { from, ..PLAN }).unwrap_err()
    };
    assert!(matches!(refused(1, 1), RecoverError::Missing { expected: 1, .. }));
    assert!(matches!(refused(2, 1), RecoverError::Damaged { segno: 1, n: 3, .. }));
    assert!(matches!(refused(3, 8), RecoverError::Behind { through: 7, last: 5, .. }));
    let none = recovered(&Files::default(), &RecoveryPlan { from: 8, ..PLAN }).unwrap_err();
    assert!(matches!(none, RecoverError::Missing { expected: 8, found: Oldest::None }));
}

#[test]
fn a_segment_from_elsewhere_is_refused() {
    let author = sample();
    let plan = RecoveryPlan { shard: 4, ..PLAN };
    let error = recovered(&author.files, &plan).unwrap_err();
    assert!(matches!(error, RecoverError::Foreign { segno: 1, why: Foreign::Shard(3) }));

    let mark = SnapshotMark { journal: [9; 16], prev_hash: 0, through: 0 };
    let plan = RecoveryPlan { snapshot: Some(mark), ..PLAN };
    let error = recovered(&author.files, &plan).unwrap_err();
    assert!(matches!(error, RecoverError::Foreign { segno: 1, why: Foreign::Journal }));

    let mut files = author.files.clone();
    let third = files.0[&3].clone();
    files.0.insert(2, third);
    let error = recovered(&files, &PLAN).unwrap_err();
    assert!(matches!(error, RecoverError::Foreign { segno: 2, why: Foreign::Number(3) }));
}

#[test]
fn the_journal_must_fit_and_reach_its_snapshot() {
    let author = sample();
    let hash = author.groups[4].header.hash();
    let plan = |prev_hash, through| {
        let mark = SnapshotMark { journal: JOURNAL, prev_hash, through };
        RecoveryPlan { from: 6, snapshot: Some(mark), ..PLAN }
    };
    assert_eq!(recovered(&author.files, &plan(hash, 7)).unwrap().1.len(), 2);
    let error = recovered(&author.files, &plan(hash, 8)).unwrap_err();
    assert!(matches!(error, RecoverError::Behind { through: 8, last: 7, segno: 3, .. }));
    let error = recovered(&author.files, &plan(hash + 1, 7)).unwrap_err();
    assert!(matches!(error, RecoverError::Chain { fault: ChainFault::Snapshot, n: 6, .. }));
}

#[test]
fn a_snapshot_without_its_segments_is_refused() {
    let plan = |through| {
        let mark = SnapshotMark { journal: JOURNAL, prev_hash: 0, through };
        RecoveryPlan { snapshot: Some(mark), ..PLAN }
    };
    // The snapshot was taken before anything was written.
    assert!(recovered(&Files::default(), &plan(0)).is_ok());
    // The snapshot began before the first frame and completed after the fifth frame.
    let error = recovered(&Files::default(), &plan(5)).unwrap_err();
    assert!(matches!(error, RecoverError::Missing { expected: 1, found: Oldest::None }));
}

#[test]
fn an_intact_frame_that_does_not_continue_the_journal_is_refused() {
    let fault = |tip: Tip, at: u64| {
        let mut author = sample();
        author.writer = Writer::new(tip);
        author.group(at, 10);
        match recovered(&author.files, &PLAN).unwrap_err() {
            RecoverError::Chain { segno: 3, n: 8, fault, .. } => fault,
            other => panic!("{other}"),
        }
    };
    let tip = sample().tip();
    assert_eq!(fault(Tip { prev_hash: 1, ..tip }, 17), ChainFault::Hash);
    assert_eq!(fault(Tip { next_n: 9, ..tip }, 17), ChainFault::Number(9));
    assert_eq!(fault(Tip { epoch: 0, ..tip }, 17), ChainFault::Epoch);
    assert_eq!(fault(Tip { last_at: Millis(0), ..tip }, 15), ChainFault::Time);
}

#[test]
fn a_segment_that_does_not_continue_the_journal_is_refused() {
    let fault = |tip: Tip| {
        let mut author = sample();
        author.files.0.remove(&3);
        author.segno = 2;
        author.segment(tip, None);
        match recovered(&author.files, &PLAN).unwrap_err() {
            RecoverError::Chain { segno: 3, offset: 0, n: 6, fault } => fault,
            other => panic!("{other}"),
        }
    };
    let tip = Tip::after(&sample().groups[4].header);
    assert_eq!(fault(Tip { prev_hash: 1, ..tip }), ChainFault::Hash);
    assert_eq!(fault(Tip { next_n: 5, ..tip }), ChainFault::Number(5));
    assert_eq!(fault(Tip { epoch: 0, ..tip }), ChainFault::Epoch);
    assert_eq!(fault(Tip { last_at: Millis(0), ..tip }), ChainFault::Time);
}

#[test]
fn a_newer_frame_is_found_however_far_after_the_bad_one() {
    let mut author = sample();
    author.group(17, 10);
    let file = author.files.0.get_mut(&3).unwrap();
    // Frames 6 and 7, which take four blocks together, are missing. Frame 8 is present.
    file[SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + 4 * BLOCK_BYTES].fill(0);
    let error = recovered(&author.files, &PLAN).unwrap_err();
    assert!(matches!(error, RecoverError::Damaged { n: 6, newer_n: 8, newer_offset: 20_480, .. }));
}
