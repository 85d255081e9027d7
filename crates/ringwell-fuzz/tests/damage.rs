//! Tests more than 20,000 damaged journals: recovery returns a true prefix, reports that the end
//! may be lost, or refuses the journal.

use std::collections::BTreeMap;

use ringwell_fuzz::disk::{Damage, HEADER_BYTES, Outcome, STAMP_BYTES, Sample, judge, sample};
use ringwell_journal::{BLOCK_BYTES, SEGMENT_HEADER_BYTES};

/// The length of the used part of a segment's header, including its checksum.
const SEGMENT_FIELDS_BYTES: usize = 96;

#[derive(Default)]
struct Tally(BTreeMap<Outcome, u32>);

impl Tally {
    fn judge(&mut self, sample: &Sample, faults: &[Damage]) {
        let tried = std::panic::catch_unwind(|| judge(sample, faults));
        let outcome = tried.unwrap_or_else(|_| panic!("{faults:?}"));
        *self.0.entry(outcome).or_default() += 1;
    }

    fn of(&self, outcome: Outcome) -> u32 {
        self.0.get(&outcome).copied().unwrap_or_default()
    }

    fn all(&self) -> u32 {
        self.0.values().sum()
    }
}

/// The offset and the length of each header, and the stamps of all blocks.
fn headers(sample: &Sample) -> Vec<(u64, usize, usize)> {
    let mut found: Vec<_> =
        sample.files.0.keys().map(|segno| (*segno, 0, SEGMENT_FIELDS_BYTES)).collect();
    for frame in &sample.frames {
        found.push((frame.segno, frame.offset, STAMP_BYTES + HEADER_BYTES));
        let blocks = (frame.offset..frame.offset + frame.bytes).step_by(BLOCK_BYTES).skip(1);
        found.extend(blocks.map(|block| (frame.segno, block, STAMP_BYTES)));
    }
    found
}

#[test]
fn a_flipped_bit_of_a_header_loses_nothing_silently() {
    let (sample, mut tally) = (sample(), Tally::default());
    for (segno, start, bytes) in headers(&sample) {
        for bit in 0..8 * bytes {
            let fault = Damage::Flip { segno, at: start + bit / 8, bits: 1 << (bit % 8) };
            tally.judge(&sample, &[fault]);
        }
    }
    assert!(tally.all() > 6_000);
    assert_eq!(tally.of(Outcome::Cut), 0, "one bit alone is never enough to forget a frame");
    assert!(tally.of(Outcome::Refused) > 0 && tally.of(Outcome::Doubted) > 0);
}

#[test]
fn damage_at_and_beside_every_boundary_is_reported() {
    let (sample, mut tally) = (sample(), Tally::default());
    let starts = sample.frames.iter().map(|frame| (frame.segno, frame.offset));
    let ends = sample.frames.iter().map(|frame| (frame.segno, frame.offset + frame.bytes));
    let heads = sample.files.0.keys().map(|segno| (*segno, SEGMENT_HEADER_BYTES));
    for (segno, boundary) in starts.chain(ends).chain(heads) {
        for at in [boundary - 8, boundary - 1, boundary, boundary + 1, boundary + 8] {
            for bits in 1..=255 {
                tally.judge(&sample, &[Damage::Flip { segno, at, bits }]);
            }
            tally.judge(&sample, &[Damage::Truncate { segno, len: at }]);
            for len in [1, 8, 72, 512, BLOCK_BYTES, 3 * BLOCK_BYTES, 10 * BLOCK_BYTES] {
                for value in [0, 0xFF] {
                    tally.judge(&sample, &[Damage::Fill { segno, at, len, value }]);
                }
            }
        }
    }
    assert!(tally.all() > 20_000);
    for outcome in [Outcome::Whole, Outcome::Cut, Outcome::Doubted, Outcome::Refused] {
        assert!(tally.of(outcome) > 0, "{outcome:?} never happened");
    }
}

#[test]
fn several_faults_at_once_lose_nothing_silently() {
    let (sample, mut tally) = (sample(), Tally::default());
    let mut state = 0x5DEE_CE66_D1CE_4E5B_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    for _ in 0..20_000 {
        let count = 1 + usize::from(random()[0] % 4);
        let faults = std::iter::repeat_with(|| {
            let [mut kind, segment, low, high, first, second, ..] = random();
            // Only the fuzzer tries frames with corrected checksums.
            if kind % 7 == 6 {
                kind -= 6;
            }
            Damage::read(&[kind, segment, low, high, first, second])
        });
        let faults: Vec<_> = faults.take(count).collect();
        tally.judge(&sample, &faults);
    }
    for outcome in [Outcome::Whole, Outcome::Cut, Outcome::Doubted, Outcome::Refused] {
        assert!(tally.of(outcome) > 10, "{outcome:?} happened {} times", tally.of(outcome));
    }
}
