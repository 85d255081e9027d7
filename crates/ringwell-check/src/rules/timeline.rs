//! Who held which number when, by the journals.
//!
//! Owns the meaning of records for one number. Invariant: an allocation that was copied because its
//! segment was dropped stands here once.

use std::collections::{BTreeMap, HashMap};

use crate::history::{History, Kind, Place, Record};

/// One allocation, by its record. Times are shard time in milliseconds.
#[derive(Debug)]
pub(crate) struct Allocation<'a> {
    pub(crate) place: Place,
    pub(crate) number: u64,
    pub(crate) pool: u64,
    pub(crate) at: i64,
    /// End of its lockout, with all that came to it later.
    pub(crate) until: i64,
    pub(crate) rid: Option<&'a str>,
    pub(crate) released: bool,
    /// Whether only its copy is left.
    pub(crate) copy: bool,
}

/// All allocations of all journals.
#[derive(Debug, Default)]
pub(crate) struct Timelines<'a> {
    /// By number, each in the order of time.
    pub(crate) numbers: BTreeMap<u64, Vec<Allocation<'a>>>,
    /// When pools handed out nothing: pool (`None`: all), from, until.
    pub(crate) holds: Vec<(Option<u64>, i64, i64)>,
}

impl<'a> Timelines<'a> {
    /// Reads all journals side by side, by the times of their records.
    pub(crate) fn new(history: &'a History) -> Self {
        let records = history.journals.values().flat_map(|journal| &journal.records);
        let mut records: Vec<_> = records.collect();
        // A stable sort: records of one journal and millisecond keep their order.
        records.sort_by_key(|record| record.at);
        let mut timelines = Self::default();
        for record in records {
            timelines.take(record);
        }
        timelines
    }

    fn take(&mut self, record: &'a Record) {
        let (place, at) = (record.place, record.at);
        match &record.kind {
            Kind::Allocate { number, pool, lockout, rid } => {
                self.push(Allocation {
                    place,
                    number: *number,
                    pool: *pool,
                    at,
                    until: at.saturating_add(*lockout),
                    rid: rid.as_deref(),
                    released: false,
                    copy: false,
                });
            }
            Kind::Carry { number, pool, allocated, until, rid } => {
                let known = self.numbers.get(number).and_then(|all| all.last());
                if known.is_none_or(|known| known.at < *allocated) {
                    self.push(Allocation {
                        place,
                        number: *number,
                        pool: *pool,
                        at: *allocated,
                        until: *until,
                        rid: rid.as_deref(),
                        released: false,
                        copy: true,
                    });
                }
            }
            Kind::Until { number, until, ends } => {
                let last = self.numbers.get_mut(number).and_then(|all| all.last_mut());
                if let Some(last) = last {
                    last.until = *until;
                    last.released |= ends;
                }
            }
            Kind::Hold { pool, until } => self.holds.push((*pool, at, *until)),
            Kind::Other => {}
        }
    }

    fn push(&mut self, allocation: Allocation<'a>) {
        self.numbers.entry(allocation.number).or_default().push(allocation);
    }

    /// All allocations of all numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Allocation<'a>> {
        self.numbers.values().flatten()
    }

    /// Allocations by the row that they are of.
    pub(crate) fn by_row(&self) -> HashMap<&'a str, Vec<&Allocation<'a>>> {
        let mut rows: HashMap<_, Vec<_>> = HashMap::new();
        for allocation in self.all() {
            if let Some(rid) = allocation.rid {
                rows.entry(rid).or_default().push(allocation);
            }
        }
        rows
    }

    /// From when until when each allocation of a pool locked its number out, by pool.
    pub(crate) fn locked(&self) -> HashMap<u64, Vec<(i64, i64)>> {
        let mut pools: HashMap<_, Vec<_>> = HashMap::new();
        for allocation in self.all() {
            let span = (allocation.at, allocation.until.max(allocation.at));
            pools.entry(allocation.pool).or_default().push(span);
        }
        pools
    }

    /// When all of so many `numbers` of a pool were locked out, or the pool was held: spans in the
    /// order of time that do not overlap. `locked` are the lockouts of the pool.
    pub(crate) fn exhausted(
        &self,
        pool: u64,
        locked: &[(i64, i64)],
        numbers: u64,
    ) -> Vec<(i64, i64)> {
        let all = i64::try_from(numbers).unwrap_or(i64::MAX);
        let holds = self.holds.iter().filter(|(of, ..)| of.is_none_or(|of| of == pool));
        let holds = holds.map(|(_, from, until)| (*from, *until, all));
        let lockouts = locked.iter().map(|(from, until)| (*from, *until, 1));
        // Beginnings sort before ends of the same moment.
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
}
