//! What a history says, apart from how it is written.
//!
//! Owns the facts and the little that follows from them alone: which version of a pool was in
//! force, what the clocks have to do with each other, when faults were. Judges nothing.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Nanoseconds of a millisecond.
pub(crate) const MS: i64 = 1_000_000;
/// After the end of a fault, overflow needs no other cause for so long.
const RECOVERY: i64 = 10_000 * MS;

/// Where a line stands: file by index, line from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) line: u64,
}

/// Which journal: node and shard.
pub(crate) type Owner = (String, u64);

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) lines: u64,
    pub(crate) unknown_lines: u64,
    /// Deadline by what ids begin with.
    pub(crate) runs: BTreeMap<String, Option<i64>>,
    pub(crate) pools: BTreeMap<u64, Vec<Version>>,
    /// Monotonic nanoseconds and wall milliseconds.
    pub(crate) clocks: Vec<(i64, i64)>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) batches: Vec<Batch>,
    /// Answers and failures by id, as they were found.
    pub(crate) ends: HashMap<String, Vec<End>>,
    pub(crate) journals: BTreeMap<Owner, Journal>,
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) states: BTreeMap<Owner, State>,
}

/// A pool from `t` on.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) t: i64,
    pub(crate) lifetime_ms: i64,
    pub(crate) overflow: Option<u64>,
    pub(crate) ranges: Vec<(u64, u64)>,
}

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) t: i64,
    pub(crate) ends: bool,
}

#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) place: Place,
    pub(crate) id: String,
    pub(crate) t: i64,
    /// From when on its rows may have been served: the first attempt's `t`, if it has a key.
    pub(crate) since: i64,
    pub(crate) key: Option<String>,
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) rows: Vec<Asked>,
}

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) pool: u64,
    pub(crate) rid: String,
}

/// A `ret`, or an `unk` (then without `answer`).
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) place: Place,
    pub(crate) t: i64,
    pub(crate) answer: Option<Answer>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) bad: Option<String>,
    pub(crate) rows: Vec<Got>,
}

#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) rid: Option<String>,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Own(u64),
    Overflow(u64),
    Error(String),
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) segments: Vec<Segment>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) records: Vec<Record>,
    pub(crate) damaged: bool,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) place: Place,
    pub(crate) journal: String,
    pub(crate) first_frame: u64,
    pub(crate) epoch: u64,
}

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) place: Place,
    pub(crate) number: u64,
    pub(crate) epoch: u64,
    pub(crate) at: i64,
    pub(crate) last_at: i64,
    pub(crate) records: u64,
    pub(crate) names_the_one_before: bool,
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) place: Place,
    pub(crate) frame: u64,
    pub(crate) position: u64,
    pub(crate) at: i64,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Allocate {
        number: u64,
        pool: u64,
        lockout: i64,
        rid: Option<String>,
    },
    /// The lockout ends at `until`; a release if `ends`.
    Until {
        number: u64,
        until: i64,
        ends: bool,
    },
    Carry {
        number: u64,
        pool: u64,
        allocated: i64,
        until: i64,
        rid: Option<String>,
    },
    Hold {
        pool: Option<u64>,
        until: i64,
    },
    Other,
}

#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) place: Place,
    pub(crate) t: i64,
    pub(crate) rid: String,
    pub(crate) number: u64,
    pub(crate) status: u16,
    pub(crate) outcome: Option<String>,
    pub(crate) pool: Option<u64>,
    pub(crate) found: Option<String>,
}

/// The state that a server ended with.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) numbers: Vec<Held>,
    /// How many numbers the shard said it had, and where.
    pub(crate) count: Option<(Place, u64)>,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) place: Place,
    pub(crate) number: u64,
    pub(crate) pool: Option<u64>,
    pub(crate) allocated: i64,
    pub(crate) until: i64,
}

/// A row that was answered, with all that belongs to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) end: &'a End,
    pub(crate) asked: &'a Asked,
    pub(crate) what: &'a What,
}

impl History {
    /// The one answer of a batch; none if there is none, or more than one.
    pub(crate) fn answer(&self, batch: &Batch) -> Option<(&End, &Answer)> {
        match self.ends.get(&batch.id).map(Vec::as_slice) {
            Some([end]) => end.answer.as_ref().map(|answer| (end, answer)),
            _ => None,
        }
    }

    /// All rows that were answered.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.batches.iter().flat_map(|batch| {
            self.answer(batch).into_iter().flat_map(move |(end, answer)| {
                let pairs = batch.rows.iter().zip(&answer.rows);
                pairs.map(move |(asked, got)| Row { batch, end, asked, what: &got.what })
            })
        })
    }

    /// Versions of a pool that may have served somebody between two moments.
    pub(crate) fn versions(&self, pool: u64, from: i64, to: i64) -> impl Iterator<Item = &Version> {
        let all = self.pools.get(&pool).map_or(&[][..], Vec::as_slice);
        all.iter().enumerate().filter_map(move |(index, version)| {
            let over = all.get(index + 1).is_some_and(|next| next.t < from);
            (version.t <= to && !over).then_some(version)
        })
    }

    /// The wall clock at a monotonic moment, by the nearest line that has both.
    pub(crate) fn wall_ms(&self, t: i64) -> Option<i64> {
        let at = self.clocks.partition_point(|(mono, _)| *mono < t);
        let beside = [at.checked_sub(1), Some(at)].into_iter().flatten();
        let nearest = beside.filter_map(|index| self.clocks.get(index));
        let (mono, wall) = nearest.min_by_key(|(mono, _)| (mono - t).abs())?;
        Some(wall + (t - mono).div_euclid(MS))
    }

    /// The monotonic moment of a time by the wall clock.
    pub(crate) fn mono(&self, wall_ms: i64) -> Option<i64> {
        let (mono, wall) = self.clocks.iter().min_by_key(|(_, wall)| (wall - wall_ms).abs())?;
        Some(mono + (wall_ms - wall) * MS)
    }

    /// Whether a fault explains what happened between two moments.
    pub(crate) fn faulty(&self, from: i64, to: i64) -> bool {
        let Some(first) = self.faults.first() else { return false };
        let over = self.faults.last().filter(|last| last.ends).map(|last| last.t + RECOVERY);
        to >= first.t && over.is_none_or(|over| from <= over)
    }

    /// Whether an id of a row belongs to a run of this history.
    pub(crate) fn is_of_run(&self, rid: &str) -> bool {
        rid.split_once('-').is_some_and(|(run, _)| self.runs.contains_key(run))
    }

    /// Since when the journals have everything, in shard time: later than the beginning of time
    /// only if the oldest part of one has been dropped.
    pub(crate) fn horizon(&self) -> Option<i64> {
        let cut = self.journals.values().filter(|journal| !journal.is_whole());
        cut.filter_map(|journal| journal.records.first().map(|record| record.at)).max()
    }
}

impl Journal {
    /// Whether it begins with its first frame.
    pub(crate) fn is_whole(&self) -> bool {
        let first = self.segments.iter().map(|segment| segment.first_frame).min();
        first
            .or_else(|| self.frames.first().map(|frame| frame.number))
            .is_none_or(|first| first <= 1)
    }
}
