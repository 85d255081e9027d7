//! Cases that need data from several parts of the numbers: repeated rows, pools that overflowed,
//! and allocations and look-ups whose row got a different number or none.
//!
//! Collects these cases from all parts. A run without faults has almost no such cases, except for
//! overflow rows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use super::clients;
use super::timeline::{Allocation, Timelines, exhausted};
use crate::history::{
    Asked, CLOCK_SLACK, Fact, Lookup, MS, Part, Row, SourceLine, Span, What, Whole,
};
use crate::spill::Spill;
use crate::verdict::{Findings, Rule};

/// An allocation that no row in its part received.
#[derive(Debug)]
struct Left {
    rid: Box<str>,
    place: SourceLine,
    number: u64,
    pool: u64,
    at: i64,
    released: bool,
}

/// Allocations and look-ups whose rows are in other parts.
#[derive(Debug, Default)]
pub(super) struct Rest {
    allocations: Vec<Left>,
    lookups: Vec<Lookup>,
    rids: HashSet<Box<str>>,
}

impl Rest {
    /// Adds an allocation whose number no row in the allocation's part got.
    pub(super) fn allocated(&mut self, rid: &str, allocation: &Allocation<'_>) {
        let Allocation { place, number, pool, at, released, .. } = *allocation;
        self.rids.insert(rid.into());
        self.allocations.push(Left { rid: rid.into(), place, number, pool, at, released });
    }

    /// Adds a look-up for a row that is in another part.
    pub(super) fn look_up(&mut self, lookup: &Lookup) {
        self.rids.insert(lookup.rid.clone());
        self.lookups.push(lookup.clone());
    }

    /// Reads the rows, and judges the collected cases.
    pub(super) fn judge(
        self,
        whole: &Whole,
        spill: &mut Spill,
        findings: &mut Findings,
    ) -> io::Result<()> {
        if self.rids.is_empty() && whole.retried.is_empty() {
            return Ok(());
        }
        let mut rows = Vec::new();
        for index in 0..spill.len() {
            spill.each(index, |fact| {
                let Fact::Row(row) = fact else { return };
                let key = whole.batch(&row).key.as_ref();
                let is_retried = key.is_some_and(|key| whole.retried.contains(key));
                if is_retried || self.rids.contains(&row.rid) {
                    rows.push(row);
                }
            })?;
        }
        rows.sort_by_key(|row: &Asked| row.batch);
        clients::attempts(whole, &rows, findings);
        self.phantom(whole, &rows, findings);
        let by_rid: HashMap<_, _> = rows.iter().rev().map(|row| (&*row.rid, row)).collect();
        for lookup in &self.lookups {
            clients::looked_up(whole, lookup, by_rid.get(&*lookup.rid).copied(), findings);
        }
        Ok(())
    }

    /// C3: each allocation of this run was requested by a row; either the row got the number, or
    /// the number was released.
    fn phantom(&self, whole: &Whole, rows: &[Asked], findings: &mut Findings) {
        let asked: HashMap<_, _> = rows.iter().map(|row| (&*row.rid, row.pool)).collect();
        let mut answered: HashMap<&str, Vec<Row<'_>>> = HashMap::new();
        for row in whole.answered(rows) {
            answered.entry(&row.asked.rid).or_default().push(row);
        }
        for left in &self.allocations {
            let Left { rid, number, .. } = left;
            let wrong = match asked.get(&**rid) {
                Some(pool) if *pool == left.pool => None,
                Some(pool) => Some(format!(
                    "row {rid} requested a number of pool {pool}, but {number:010} of pool {} was \
                     allocated to it",
                    left.pool
                )),
                None => {
                    Some(format!("{number:010} was allocated to row {rid}, which was never sent"))
                }
            };
            if let Some(words) = wrong {
                findings.add(Rule::Phantom, whole.mono(left.at), words, &[left.place]);
                continue;
            }
            let rows = answered.get(&**rid).map_or(&[][..], Vec::as_slice);
            let given = rows.iter().any(|row| *row.what == What::Own(*number));
            let row = rows.first().filter(|_| !given && !left.released);
            if let Some(row) = row {
                kept(whole, left, row, findings);
            }
        }
    }
}

/// Judges an allocation that was not released, although the row that it names did not get the
/// number.
fn kept(whole: &Whole, left: &Left, row: &Row<'_>, findings: &mut Findings) {
    if row.batch.key.is_some() {
        // The server keeps the allocation, because the client may send the batch again.
        return;
    }
    if whole.faulty(row.batch.since, row.end.t) || whole.journals.len() > 1 {
        // The message that releases the number may have been lost on a broken link. The number then
        // becomes free when its lockout ends.
        findings
            .excuse(Rule::Phantom, "numbers that no client received but that stayed locked out");
        return;
    }
    let got = match row.what {
        What::Own(number) => format!("{number:010}"),
        What::Overflow(number) => format!("{number:010} as overflow"),
        What::Error(error) => error.to_string(),
    };
    let (number, rid) = (left.number, &left.rid);
    let words =
        format!("{number:010} was allocated to row {rid} and not released, but the row got {got}");
    let places = [left.place, row.batch.place, row.end.place];
    findings.add(Rule::Phantom, whole.mono(left.at), words, &places);
}

/// C6: collects overflow rows and the lockouts of their pools, stored by pool.
pub(super) struct Overflows {
    spill: Spill,
}

impl Overflows {
    /// Creates an empty collection.
    pub(super) fn new(parts: usize) -> io::Result<Self> {
        Ok(Self { spill: Spill::new(parts)? })
    }

    /// Adds a part's overflow rows, and the lockouts of the pools that overflowed.
    pub(super) fn take(
        &mut self,
        whole: &Whole,
        part: &Part,
        timelines: &Timelines<'_>,
        findings: &mut Findings,
    ) -> io::Result<()> {
        if whole.journals.is_empty() || whole.clocks.is_empty() || whole.pools.is_empty() {
            return Ok(());
        }
        for row in whole.answered(&part.rows) {
            let What::Overflow(_) = row.what else { continue };
            if whole.faulty(row.batch.since, row.end.t) {
                findings.excuse(Rule::Overflow, "overflow rows during faults");
            } else {
                self.spill.put(row.asked.pool, &Fact::Row(row.asked.clone()))?;
            }
        }
        let overflowing = |it: &&Allocation<'_>| whole.overflowing.contains(&it.pool);
        for Allocation { pool, at, until, .. } in timelines.all().filter(overflowing) {
            let span = Span { pool: *pool, from: *at, until: (*until).max(*at) };
            self.spill.put(*pool, &Fact::Span(span))?;
        }
        Ok(())
    }

    /// Judges the collected rows: except during faults, a row overflows only if its pool was
    /// exhausted or held while the row was in progress.
    pub(super) fn judge(mut self, whole: &Whole, findings: &mut Findings) -> io::Result<()> {
        for index in 0..self.spill.len() {
            let part = self.spill.part(index)?;
            let mut locked: BTreeMap<u64, Vec<(i64, i64)>> = BTreeMap::new();
            for Span { pool, from, until } in part.spans {
                locked.entry(pool).or_default().push((from, until));
            }
            let mut spans = BTreeMap::new();
            for row in whole.answered(&part.rows) {
                let pool = row.asked.pool;
                let spans = spans.entry(pool).or_insert_with(|| {
                    let locked = locked.remove(&pool).unwrap_or_default();
                    exhausted(whole, pool, &locked)
                });
                overflow(whole, &row, spans, findings);
            }
        }
        Ok(())
    }
}

fn overflow(whole: &Whole, row: &Row<'_>, spans: &[(i64, i64)], findings: &mut Findings) {
    let (pool, from, to) = (row.asked.pool, row.batch.since, row.end.t);
    let (Some(began), Some(ended)) = (whole.wall_ms(from), whole.wall_ms(to)) else { return };
    let (began, ended) = (began - CLOCK_SLACK, ended + CLOCK_SLACK);
    let next = spans.partition_point(|(_, until)| *until < began);
    if spans.get(next).is_some_and(|(since, _)| *since <= ended) {
        return;
    }
    let words = format!(
        "row {} got an overflow number after {} ms, although pool {pool} was neither exhausted nor \
         held in that time",
        row.asked.rid,
        (to - from) / MS
    );
    findings.add(Rule::Overflow, Some(to), words, &[row.batch.place, row.end.place]);
}

/// C10: a look-up finds the row that held the number. If the row got a number that belongs to
/// another part, the look-up is judged at the end.
pub(super) fn attribution(whole: &Whole, part: &Part, rest: &mut Rest, findings: &mut Findings) {
    if part.lookups.is_empty() {
        return;
    }
    let rows: HashMap<_, _> = part.rows.iter().map(|row| (&*row.rid, row)).collect();
    for lookup in &part.lookups {
        match rows.get(&*lookup.rid) {
            Some(row) => clients::looked_up(whole, lookup, Some(row), findings),
            None => rest.look_up(lookup),
        }
    }
}
