//! The contents of a history, independent of the file format.
//!
//! Owns the facts, and what follows directly from them: the pool version in effect at a given time,
//! the relation between the monotonic clock and the wall clock, and the times of the faults. Judges
//! nothing.
//!
//! There are two kinds of facts. Those in [`Whole`] (batches, frames, pools) stay in memory. Rows
//! and records are in memory only for one [`Part`] of the numbers at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Nanoseconds of a millisecond.
pub(crate) const MS: i64 = 1_000_000;
/// The largest tolerated difference between a client's clock and a server's clock, in milliseconds.
pub(crate) const CLOCK_SLACK: i64 = 100;
/// The time after the end of a fault during which overflow is still attributed to the fault.
const RECOVERY: i64 = 10_000 * MS;

/// The position of a line: the index of its file, and the line number, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct SourceLine {
    pub(crate) file: u32,
    pub(crate) line: u64,
}

/// The node and the shard that own a journal.
pub(crate) type Owner = (String, u64);

/// The facts that stay in memory, from all files.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) lines: u64,
    pub(crate) unknown_lines: u64,
    /// The deadline of each run; the key is the prefix of the run's batch ids and row ids.
    pub(crate) runs: BTreeMap<String, Option<i64>>,
    pub(crate) pools: BTreeMap<u64, Vec<Version>>,
    /// Readings of both clocks at the same moment: the monotonic clock in nanoseconds, and the wall
    /// clock in milliseconds.
    pub(crate) clocks: Vec<(i64, i64)>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) batches: Vec<Batch>,
    /// Batches that have the same id as an earlier batch.
    pub(crate) doubled: Vec<u32>,
    /// Answers to batches that were never sent: id, time and line.
    pub(crate) strays: Vec<(String, i64, SourceLine)>,
    /// Idempotency keys that several batches used.
    pub(crate) retried: HashSet<Box<str>>,
    /// Pools whose overflow number was given to a row.
    pub(crate) overflowing: BTreeSet<u64>,
    /// Every node and shard that has a journal or a state. The value is the index by which facts
    /// refer to the owner.
    pub(crate) owners: BTreeMap<Owner, u32>,
    pub(crate) journals: BTreeMap<Owner, Journal>,
    /// Periods in which pools were held: the pool (`None` for all pools), the start and the end, in
    /// shard time.
    pub(crate) holds: Vec<(Option<u64>, i64, i64)>,
    pub(crate) lookups: u64,
    pub(crate) states: BTreeMap<Owner, FinalState>,
}

/// A pool version, in effect from `t` until the next version.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) t: i64,
    pub(crate) lifetime_ms: i64,
    pub(crate) overflow: Option<u64>,
    pub(crate) ranges: Vec<(u64, u64)>,
}

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) place: SourceLine,
    pub(crate) t: i64,
    pub(crate) ends: bool,
}

/// A batch without its rows.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) place: SourceLine,
    pub(crate) id: Box<str>,
    pub(crate) t: i64,
    /// The earliest time at which the batch's rows may have been served. For a batch with an
    /// idempotency key, this is the first attempt's `t`.
    pub(crate) since: i64,
    pub(crate) key: Option<Box<str>>,
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) end: Option<End>,
    /// The time and the line of a second answer, which breaks a rule.
    pub(crate) second: Option<(i64, SourceLine)>,
    /// The reason why the answer is malformed; `None` if it is well-formed.
    pub(crate) misshapen: Option<Box<str>>,
}

/// The end of a batch: a `ret` or `unk` line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) place: SourceLine,
    pub(crate) t: i64,
    pub(crate) is_answer: bool,
}

/// The facts about a journal as a whole.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) segments: Vec<Segment>,
    pub(crate) frames: Vec<Frame>,
    /// The count of records in each frame, by frame number.
    pub(crate) counts: HashMap<u64, u64>,
    pub(crate) records: u64,
    /// The time of the first record.
    pub(crate) first_at: Option<i64>,
    pub(crate) last: Option<Last>,
    /// The first record that is out of order: a description, the record's time, and the lines of
    /// the previous record and of this one.
    pub(crate) out_of_order: Option<(&'static str, i64, [SourceLine; 2])>,
    pub(crate) damaged: bool,
}

/// The last record read from a journal so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) place: SourceLine,
    pub(crate) position: u64,
    pub(crate) at: i64,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) place: SourceLine,
    pub(crate) journal: String,
    pub(crate) first_frame: u64,
    pub(crate) epoch: u64,
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) place: SourceLine,
    pub(crate) number: u64,
    pub(crate) epoch: u64,
    pub(crate) at: i64,
    pub(crate) last_at: i64,
    pub(crate) records: u64,
    pub(crate) names_the_one_before: bool,
}

/// The facts about a shard's final state.
#[derive(Debug, Default)]
pub(crate) struct FinalState {
    /// The line with the reported count of the shard's numbers, and that count.
    pub(crate) count: Option<(SourceLine, u64)>,
    /// The count of numbers that the state lists.
    pub(crate) there: u64,
}

/// The facts about some numbers. All facts about a number are in one part, in the order in which
/// they occur in the files.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) rows: Vec<Asked>,
    pub(crate) records: Vec<Record>,
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) held: Vec<HeldAtEnd>,
    pub(crate) spans: Vec<Span>,
}

/// One fact, stored until its part is judged.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Fact {
    Row(Asked),
    Record(Record),
    Lookup(Lookup),
    Held(HeldAtEnd),
    Span(Span),
}

/// A row of a batch, with its answer if the batch was answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The index of the row's batch.
    pub(crate) batch: u32,
    pub(crate) pool: u64,
    pub(crate) rid: Box<str>,
    pub(crate) what: Option<What>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    Own(u64),
    Overflow(u64),
    Error(Box<str>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The index of the journal's owner in [`Whole::owners`].
    pub(crate) owner: u32,
    pub(crate) place: SourceLine,
    pub(crate) at: i64,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Allocate {
        pool: u64,
        lockout: i64,
        rid: Option<Box<str>>,
    },
    /// The lockout ends at `until`; `ends` marks a release. If `restored` is set, no visitor saw
    /// the allocation. The previous allocation, made at the time `restored`, is then the number's
    /// newest again (`restored` is 0 if there was none).
    Until {
        until: i64,
        ends: bool,
        restored: Option<i64>,
    },
    Carry {
        pool: u64,
        allocated: i64,
        until: i64,
        rid: Option<Box<str>>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lookup {
    pub(crate) place: SourceLine,
    pub(crate) t: i64,
    pub(crate) rid: Box<str>,
    pub(crate) number: u64,
    pub(crate) status: u16,
    pub(crate) outcome: Option<Box<str>>,
    pub(crate) pool: Option<u64>,
    pub(crate) found: Option<Box<str>>,
}

/// A number in a server's final state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HeldAtEnd {
    /// The index of the state's owner in [`Whole::owners`].
    pub(crate) owner: u32,
    pub(crate) place: SourceLine,
    pub(crate) number: u64,
    pub(crate) pool: Option<u64>,
    pub(crate) allocated: i64,
    pub(crate) until: i64,
}

/// The period in which an allocation locked out a number of `pool`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) pool: u64,
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// An answered row, with its batch, the batch's answer and the row's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) end: &'a End,
    pub(crate) asked: &'a Asked,
    pub(crate) what: &'a What,
}

impl Whole {
    /// A row's batch.
    pub(crate) fn batch(&self, row: &Asked) -> &Batch {
        &self.batches[row.batch as usize]
    }

    /// Whether the dump of at least one journal ends early because of damage.
    pub(crate) fn is_damaged(&self) -> bool {
        self.journals.values().any(|journal| journal.damaged)
    }

    /// The answered rows among `rows`.
    pub(crate) fn answered<'a>(&'a self, rows: &'a [Asked]) -> impl Iterator<Item = Row<'a>> {
        rows.iter().filter_map(|asked| {
            let batch = self.batch(asked);
            let (end, what) = (batch.answer()?, asked.what.as_ref()?);
            Some(Row { batch, end, asked, what })
        })
    }

    /// The pool versions that may have been in effect between two times.
    pub(crate) fn versions(&self, pool: u64, from: i64, to: i64) -> impl Iterator<Item = &Version> {
        let all = self.pools.get(&pool).map_or(&[][..], Vec::as_slice);
        all.iter().enumerate().filter_map(move |(index, version)| {
            let over = all.get(index + 1).is_some_and(|next| next.t < from);
            (version.t <= to && !over).then_some(version)
        })
    }

    /// Converts a monotonic time to wall-clock time, based on the nearest reading of both clocks.
    pub(crate) fn wall_ms(&self, t: i64) -> Option<i64> {
        let at = self.clocks.partition_point(|(mono, _)| *mono < t);
        let beside = [at.checked_sub(1), Some(at)].into_iter().flatten();
        let nearest = beside.filter_map(|index| self.clocks.get(index));
        let (mono, wall) = nearest.min_by_key(|(mono, _)| (mono - t).abs())?;
        Some(wall + (t - mono).div_euclid(MS))
    }

    /// Converts a wall-clock time to monotonic time.
    pub(crate) fn mono(&self, wall_ms: i64) -> Option<i64> {
        let (mono, wall) = self.clocks.iter().min_by_key(|(_, wall)| (wall - wall_ms).abs())?;
        Some(mono + (wall_ms - wall) * MS)
    }

    /// Whether a fault explains an unusual event that occurred between two times.
    pub(crate) fn faulty(&self, from: i64, to: i64) -> bool {
        let Some(first) = self.faults.first() else { return false };
        let over = self.faults.last().filter(|last| last.ends).map(|last| last.t + RECOVERY);
        to >= first.t && over.is_none_or(|over| from <= over)
    }

    /// Whether the row id `rid` belongs to a run in this history.
    pub(crate) fn is_of_run(&self, rid: &str) -> bool {
        rid.split_once('-').is_some_and(|(run, _)| self.runs.contains_key(run))
    }

    /// The earliest shard time from which all journals are complete; `None` if no journal has lost
    /// its oldest part.
    pub(crate) fn horizon(&self) -> Option<i64> {
        let cut = self.journals.values().filter(|journal| !journal.is_whole());
        cut.filter_map(|journal| journal.first_at).max()
    }
}

impl Batch {
    /// The batch's answer; `None` if the batch has no answer or several.
    pub(crate) fn answer(&self) -> Option<&End> {
        self.end.as_ref().filter(|end| end.is_answer && self.second.is_none())
    }
}

impl Journal {
    /// Whether the history contains the whole journal, starting with its first frame.
    pub(crate) fn is_whole(&self) -> bool {
        let first = self.segments.iter().map(|segment| segment.first_frame).min();
        first
            .or_else(|| self.frames.first().map(|frame| frame.number))
            .is_none_or(|first| first <= 1)
    }
}
