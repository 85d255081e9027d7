//! The holders of each number over time, according to the journals.
//!
//! Owns the meaning of records for one number. Invariant: an allocation occurs here only once, even
//! if the journals contain its record and a copy of the record.

use std::collections::BTreeMap;

use foldhash::HashMap;

use crate::history::{Kind, Part, Record, SourceLine, Whole};

/// One allocation, as its record describes it. Times are in shard time.
#[derive(Debug)]
pub(crate) struct Allocation<'a> {
    pub(crate) place: SourceLine,
    pub(crate) number: u64,
    pub(crate) pool: u64,
    pub(crate) at: i64,
    /// The end of the allocation's lockout, after all later changes.
    pub(crate) until: i64,
    pub(crate) rid: Option<&'a str>,
    pub(crate) released: bool,
    /// Whether the answer with this allocation was never sent, so that no visitor holds the number.
    pub(crate) unseen: bool,
    /// Whether only a copy of the record still exists, because the segment with the original was
    /// dropped.
    pub(crate) copy: bool,
}

/// All allocations of a part's numbers.
#[derive(Debug, Default)]
pub(crate) struct Timelines<'a> {
    /// The allocations of each number, in chronological order.
    pub(crate) numbers: BTreeMap<u64, Vec<Allocation<'a>>>,
}

/// Allocations by the rows that they name. Most rows have only one.
#[derive(Debug, Default)]
pub(crate) struct ByRow<'t> {
    first: HashMap<&'t str, &'t Allocation<'t>>,
    others: HashMap<&'t str, Vec<&'t Allocation<'t>>>,
}

impl<'t> ByRow<'t> {
    /// The allocations of a row.
    pub(crate) fn of(&self, rid: &str) -> impl Iterator<Item = &'t Allocation<'t>> {
        let others = self.others.get(rid).into_iter().flatten();
        self.first.get(rid).into_iter().chain(others).copied()
    }
}

impl<'a> Timelines<'a> {
    /// Merges the records of all journals in time order.
    pub(crate) fn new(whole: &Whole, part: &'a Part) -> Self {
        // Sorts journals by their owners, so that the order of the files does not matter.
        let mut ranks = vec![0; whole.owners.len()];
        for (rank, index) in whole.owners.values().enumerate() {
            ranks[*index as usize] = rank;
        }
        let mut records: Vec<_> = part.records.iter().collect();
        // The sort is stable: records with the same journal and millisecond keep their order.
        records.sort_by_key(|record| (record.at, ranks[record.owner as usize]));
        let mut timelines = Self::default();
        for record in records {
            timelines.take(record);
        }
        timelines
    }

    fn take(&mut self, record: &'a Record) {
        let Record { place, at, number, .. } = *record;
        match &record.kind {
            Kind::Allocate { pool, lockout, rid } => {
                self.push(Allocation {
                    place,
                    number,
                    pool: *pool,
                    at,
                    until: at.saturating_add(*lockout),
                    rid: rid.as_deref(),
                    released: false,
                    unseen: false,
                    copy: false,
                });
            }
            Kind::Carry { pool, allocated, until, rid } => {
                let known = self.numbers.get(&number).and_then(|all| all.last());
                if known.is_none_or(|known| known.at < *allocated) {
                    self.push(Allocation {
                        place,
                        number,
                        pool: *pool,
                        at: *allocated,
                        until: *until,
                        rid: rid.as_deref(),
                        released: false,
                        unseen: false,
                        copy: true,
                    });
                }
            }
            Kind::Until { until, ends, restored } => {
                let all = self.numbers.get_mut(&number).into_iter().flatten();
                if let Some(last) = { all }.rfind(|allocation| !allocation.unseen) {
                    last.until = *until;
                    last.released |= ends;
                    last.unseen |= restored.is_some();
                }
            }
        }
    }

    fn push(&mut self, allocation: Allocation<'a>) {
        self.numbers.entry(allocation.number).or_default().push(allocation);
    }

    /// All allocations of all numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Allocation<'a>> {
        self.numbers.values().flatten()
    }

    /// The allocations, by the row that each names.
    pub(crate) fn by_row(&self) -> ByRow<'_> {
        let mut rows = ByRow::default();
        for allocation in self.all() {
            let Some(rid) = allocation.rid else { continue };
            if rows.first.contains_key(rid) {
                rows.others.entry(rid).or_default().push(allocation);
            } else {
                rows.first.insert(rid, allocation);
            }
        }
        rows
    }
}

/// The periods in which all numbers of a pool were locked out, or the pool was held. The periods
/// are sorted and do not overlap. `locked` contains the lockouts of the pool's numbers.
pub(crate) fn exhausted(whole: &Whole, pool: u64, locked: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let all = i64::try_from(size(whole, pool)).unwrap_or(i64::MAX);
    let holds = whole.holds.iter().filter(|(of, ..)| of.is_none_or(|of| of == pool));
    let holds = holds.map(|(_, from, until)| (*from, *until, all));
    let lockouts = locked.iter().map(|(from, until)| (*from, *until, 1));
    // If times are equal, beginnings sort before ends.
    let steps = lockouts
        .chain(holds)
        .flat_map(|(from, until, count)| [(from, 0, count), (until.max(from), 1, -count)]);
    let mut steps: Vec<_> = steps.collect();
    steps.sort_unstable();
    let (mut count, mut since) = (0, None);
    let mut spans = Vec::new();
    for (at, _, change) in steps {
        count += change;
        match since {
            None if count >= all => since = Some(at),
            Some(from) if count < all => {
                spans.push((from, at));
                since = None;
            }
            _ => {}
        }
    }
    spans
}

/// The smallest count of numbers in any version of a pool.
fn size(whole: &Whole, pool: u64) -> u64 {
    let versions = whole.pools.get(&pool).map_or(&[][..], Vec::as_slice);
    let sizes = versions.iter().map(|version| {
        version.ranges.iter().map(|(first, last)| (last + 1).saturating_sub(*first)).sum()
    });
    sizes.min().unwrap_or(0)
}
