use std::convert::Infallible;
use std::future::{Future, ready};

use ringwell_core::{NumberRange, PoolId, PoolSpec, PromoNumber};
use ringwell_engine::{Ask, Outcome, Refusal, Restore};
use ringwell_journal::{Group, Tip};

use super::*;
use crate::store::{Appended, Memory, MemoryReader, Stats};

const START: Millis = Millis(1_700_000_000_000);
const CLOCKS: Clocks = Clocks { boot: 1, shard_offset: 0, wall_offset: 0 };

/// A store that only provides counts.
#[derive(Default)]
struct Counted {
    stats: Stats,
    waits_for_snapshot: bool,
    oldest: Option<Part>,
}

impl Counted {
    fn written(written_bytes: u64) -> Self {
        Self { stats: Stats { written_bytes, ..Stats::default() }, ..Self::default() }
    }
}

impl Store for Counted {
    type Reader = MemoryReader;
    type Draft = Infallible;

    fn append(&self, _: Group) -> impl Future<Output = Appended> {
        ready(Appended::Failed("it only counts".to_owned()))
    }

    fn reader(&self) -> MemoryReader {
        Memory::new([0; 16], 0).reader()
    }

    fn expired(&self, _: Millis, _: Clocks) -> Option<Part> {
        self.oldest
    }

    fn waits_for_snapshot(&self) -> bool {
        self.waits_for_snapshot
    }

    fn drop_part(&self, _: Part) -> impl Future<Output = Result<(), FileError>> {
        ready(Ok(()))
    }

    fn draft(&self, replay_from: u64) -> Result<Infallible, FileError> {
        Memory::new([0; 16], 0).draft(replay_from)
    }

    fn identity(&self) -> [u8; 16] {
        [0; 16]
    }

    fn stats(&self) -> Stats {
        self.stats
    }
}

/// Creates an engine with a pool of two numbers; its last record was made at [`START`].
fn engine() -> Engine {
    let first = PromoNumber::from_e164(18_885_550_100).unwrap();
    let numbers = vec![NumberRange::new(first, 2).unwrap()];
    let spec = PoolSpec { id: PoolId(1), lockout: Millis(40_000), numbers };
    let restore = Restore::new(vec![spec], 9);
    let mut engine = restore.finish(Tip::FIRST.raise_epoch(), START, false).0;
    engine.set_clocks(CLOCKS);
    allocate(&mut engine, START);
    engine
}

fn allocate(engine: &mut Engine, at: Millis) {
    let ask = Ask { pool: 0, id: PoolId(1), params: [b"", b""], visitor: None, retry: None };
    let mut outcome = Outcome::Refused(Refusal::Late);
    let now = engine.at(at);
    engine.allocate(now, &ask, &mut outcome);
    assert!(matches!(outcome, Outcome::Allocated { .. }), "{outcome:?}");
    engine.seal(Vec::new()).unwrap();
}

fn rounds(every: u64, span: Option<Millis>) -> Rounds {
    Rounds::new(&Counted::written(1_000), every, span, START)
}

#[test]
fn a_quiet_shard_records_the_time_more_and_more_rarely() {
    let (mut engine, mut rounds) = (engine(), rounds(1, None));
    let mut tick = |engine: &mut Engine, ms| {
        let now = engine.at(START + Millis(ms));
        rounds.tick(engine, now, CLOCKS)
    };
    assert!(!tick(&mut engine, 4_999));
    assert!(tick(&mut engine, 5_000));
    // Until this tick is stored, no other tick is added.
    assert!(!tick(&mut engine, 14_000));
    engine.seal(Vec::new()).unwrap();
    assert!(!tick(&mut engine, 14_999));
    assert!(tick(&mut engine, 15_000));
    engine.seal(Vec::new()).unwrap();
    assert!(!tick(&mut engine, 34_999));
    // After an allocation, the interval starts again from its first value.
    allocate(&mut engine, START + Millis(34_999));
    assert!(!tick(&mut engine, 39_998));
    assert!(tick(&mut engine, 39_999));
}

#[test]
fn a_wall_clock_that_was_set_is_recorded_at_once() {
    for (by, is_recorded) in [(1_000, false), (1_001, true), (-1_000, false), (-1_001, true)] {
        let (mut engine, mut rounds) = (engine(), rounds(1, None));
        let set = Clocks { wall_offset: by, ..CLOCKS };
        assert_eq!(rounds.tick(&mut engine, START + Millis(1), set), is_recorded, "by {by}");
    }
}

#[test]
fn a_snapshot_is_due_by_bytes_or_by_time_or_for_retention() {
    let at = |ms| START + Millis(ms);
    let mut rounds = rounds(500, Some(Millis(60)));
    let wants =
        |rounds: &Rounds, written, ms| rounds.wants_snapshot(&Counted::written(written), at(ms));
    assert!(!wants(&rounds, 1_499, 59) && wants(&rounds, 1_500, 0));
    // However old the last snapshot is, a new one is due only if something has been written since.
    assert!(!wants(&rounds, 1_000, 60) && wants(&rounds, 1_001, 60));
    let waiting = |written| Counted { waits_for_snapshot: true, ..Counted::written(written) };
    assert!(!rounds.wants_snapshot(&waiting(1_000), at(0)));
    assert!(rounds.wants_snapshot(&waiting(1_001), at(0)));
    rounds.snapshot_taken(1_400, at(50));
    assert!(!wants(&rounds, 1_899, 109) && wants(&rounds, 1_900, 50));
    assert!(wants(&rounds, 1_401, 110));
    let rounds = super::Rounds { snapshot_span: None, ..rounds };
    assert!(!wants(&rounds, 1_899, 1_000_000));
}

#[test]
fn history_that_had_to_be_copied_for_the_most_part_is_kept_until_the_journal_grows() {
    let part = Part { first_n: 3, next_n: 5, bytes: 100, last_at: START };
    let store = |written_bytes, segment_bytes| {
        let stats = Stats { written_bytes, segment_bytes, ..Stats::default() };
        Counted { stats, oldest: Some(part), ..Counted::default() }
    };
    for (copied, kept) in [(50, None), (51, Some(400))] {
        let mut rounds = rounds(1, None);
        let carry = rounds.expired(&store(1_000, 400), START, CLOCKS).unwrap();
        assert_eq!((carry.part, carry.next_n, carry.before), (part, 3, 1_000));
        assert_eq!(rounds.carried(&store(1_000 + copied, 400), &carry), kept);
        let is_dropped = |bytes| rounds.expired(&store(2_000, bytes), START, CLOCKS).is_some();
        assert_eq!(is_dropped(499), kept.is_none());
        assert!(is_dropped(500));
    }
}
