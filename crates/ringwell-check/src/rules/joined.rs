//! Where clients and journals must say the same: nothing lost, nothing made up, overflow with cause.

use std::collections::{BTreeMap, HashMap};

use super::timeline::Timelines;
use crate::history::{History, MS, Row, What};
use crate::verdict::{Findings, Rule};

/// How far the clocks of a client and of a server may be apart, in milliseconds.
const CLOCK_SLACK: i64 = 100;

/// C2: each row with a number of its own has one allocation that says so.
pub(super) fn lost(history: &History, timelines: &Timelines<'_>, findings: &mut Findings) {
    if history.journals.is_empty() {
        findings.not_judged.push((Rule::Lost, "no `jrn` lines"));
        return;
    }
    let allocations = timelines.by_row();
    let horizon = history.horizon();
    for row in history.rows() {
        let What::Own(number) = row.what else { continue };
        let (rid, pool) = (&row.asked.rid, row.asked.pool);
        let of_row = allocations.get(rid.as_str()).map_or(&[][..], Vec::as_slice);
        let same = |it: &&&_| same(it, *number, pool);
        let found: Vec<_> = of_row.iter().filter(same).copied().collect();
        let mut places = vec![row.batch.place, row.end.place];
        places.extend(found.iter().map(|allocation| allocation.place));
        let words = match found.as_slice() {
            [] => {
                let began = history.wall_ms(row.batch.since);
                let dropped = |horizon| began.is_none_or(|began| began < horizon);
                if horizon.is_some_and(dropped) {
                    findings.excuse(Rule::Lost, "rows older than what journals keep");
                    continue;
                }
                "no journal has it"
            }
            [only] if only.released => "its journal released it, although it was answered",
            // A row that was sent again may have been locked out anew.
            [_] => continue,
            [..] if row.batch.key.is_some() => continue,
            [..] => "the journal has it more than once",
        };
        let words = format!("{rid} got {number:010} of pool {pool}: {words}");
        findings.add(Rule::Lost, Some(row.end.t), words, &places);
    }
}

fn same(allocation: &super::timeline::Allocation<'_>, number: u64, pool: u64) -> bool {
    allocation.number == number && allocation.pool == pool
}

/// C3: each allocation of this run was asked for, and was given to who asked, or released.
pub(super) fn phantom(history: &History, timelines: &Timelines<'_>, findings: &mut Findings) {
    if history.journals.is_empty() {
        findings.not_judged.push((Rule::Phantom, "no `jrn` lines"));
        return;
    }
    let mut asked: HashMap<&str, u64> = HashMap::new();
    for row in history.batches.iter().flat_map(|batch| &batch.rows) {
        asked.insert(&row.rid, row.pool);
    }
    let mut answered: HashMap<&str, Vec<Row<'_>>> = HashMap::new();
    for row in history.rows() {
        answered.entry(&row.asked.rid).or_default().push(row);
    }
    for allocation in timelines.all() {
        let Some(rid) = allocation.rid.filter(|rid| history.is_of_run(rid)) else { continue };
        let (number, t) = (allocation.number, history.mono(allocation.at));
        match asked.get(rid) {
            Some(pool) if *pool == allocation.pool => {}
            Some(pool) => {
                let words = format!(
                    "{rid} asked pool {pool}, and {number:010} of pool {} was allocated to it",
                    allocation.pool
                );
                findings.add(Rule::Phantom, t, words, &[allocation.place]);
                continue;
            }
            None => {
                let words = format!("{number:010} was allocated to {rid}, which nobody sent");
                findings.add(Rule::Phantom, t, words, &[allocation.place]);
                continue;
            }
        }
        let rows = answered.get(rid).map_or(&[][..], Vec::as_slice);
        let given = rows.iter().any(|row| *row.what == What::Own(number));
        let Some(row) = rows.first().filter(|_| !given && !allocation.released) else { continue };
        if row.batch.key.is_some() {
            // Not released, because it may be asked for again.
            continue;
        }
        if history.faulty(row.batch.since, row.end.t) || history.journals.len() > 1 {
            // Given back over a link that was gone: it comes free when its lockout ends.
            findings.excuse(Rule::Phantom, "allocations that nobody got and that were kept");
            continue;
        }
        let words = format!(
            "{number:010} was allocated to {rid}, which got {}, and was not released",
            told(row.what)
        );
        let places = [allocation.place, row.batch.place, row.end.place];
        findings.add(Rule::Phantom, t, words, &places);
    }
}

fn told(what: &What) -> String {
    match what {
        What::Own(number) => format!("{number:010}"),
        What::Overflow(number) => format!("{number:010} as overflow"),
        What::Error(error) => error.clone(),
    }
}

/// C6: outside of faults a row overflows only if its pool was exhausted or held while it was under
/// way.
pub(super) fn overflow(history: &History, timelines: &Timelines<'_>, findings: &mut Findings) {
    let missing = [
        (history.journals.is_empty(), "no `jrn` lines"),
        (history.clocks.is_empty(), "no `clk` lines"),
        (history.pools.is_empty(), "no `cfg` lines"),
    ];
    if let Some((_, why)) = missing.into_iter().find(|(missing, _)| *missing) {
        findings.not_judged.push((Rule::Overflow, why));
        return;
    }
    let locked = timelines.locked();
    let mut exhausted: BTreeMap<u64, Vec<(i64, i64)>> = BTreeMap::new();
    for row in history.rows() {
        let What::Overflow(_) = row.what else { continue };
        let (pool, from, to) = (row.asked.pool, row.batch.since, row.end.t);
        if history.faulty(from, to) {
            findings.excuse(Rule::Overflow, "overflow rows during faults");
            continue;
        }
        let spans = exhausted.entry(pool).or_insert_with(|| {
            let locked = locked.get(&pool).map_or(&[][..], Vec::as_slice);
            timelines.exhausted(pool, locked, size(history, pool))
        });
        let (Some(began), Some(ended)) = (history.wall_ms(from), history.wall_ms(to)) else {
            continue;
        };
        let (began, ended) = (began - CLOCK_SLACK, ended + CLOCK_SLACK);
        let next = spans.partition_point(|(_, until)| *until < began);
        if spans.get(next).is_some_and(|(since, _)| *since <= ended) {
            continue;
        }
        let words = format!(
            "{} got overflow after {} ms, while pool {pool} was never exhausted nor held",
            row.asked.rid,
            (to - from) / MS
        );
        let places = [row.batch.place, row.end.place];
        findings.add(Rule::Overflow, Some(to), words, &places);
    }
}

/// The fewest numbers that a pool ever had.
fn size(history: &History, pool: u64) -> u64 {
    let versions = history.pools.get(&pool).map_or(&[][..], Vec::as_slice);
    let sizes = versions.iter().map(|version| {
        version.ranges.iter().map(|(first, last)| (last + 1).saturating_sub(*first)).sum()
    });
    sizes.min().unwrap_or(0)
}
