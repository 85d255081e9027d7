//! Rules that compare clients with journals: no allocation is lost or invented.

use foldhash::HashSet;

use super::across_parts::Rest;
use super::timeline::{Allocation, Timelines};
use crate::history::{CLOCK_SLACK, Part, What, Whole};
use crate::verdict::{Findings, Rule};

/// C2: for each row that got its own number, the journals contain exactly one allocation that names
/// the row.
pub(super) fn lost(whole: &Whole, part: &Part, timelines: &Timelines<'_>, findings: &mut Findings) {
    if whole.journals.is_empty() {
        return;
    }
    let (allocations, horizon) = (timelines.by_row(), whole.horizon());
    for row in whole.answered(&part.rows) {
        let What::Own(number) = row.what else { continue };
        let (rid, pool) = (&row.asked.rid, row.asked.pool);
        let same = |it: &&Allocation<'_>| it.number == *number && it.pool == pool;
        let found: Vec<_> = allocations.of(rid).filter(same).collect();
        let mut places = vec![row.batch.place, row.end.place];
        places.extend(found.iter().map(|allocation| allocation.place));
        let words = match found.as_slice() {
            [] => {
                let began = whole.wall_ms(row.batch.since);
                let dropped = |horizon| began.is_none_or(|began| began < horizon + CLOCK_SLACK);
                if horizon.is_some_and(dropped) {
                    findings.excuse(
                        Rule::Lost,
                        "rows that are older than the oldest record in the journals",
                    );
                    continue;
                }
                "no journal contains this allocation"
            }
            [only] if only.released => {
                "according to the journal, the number was released, although the client got it"
            }
            [_] => continue,
            // A repeated row may have been given a second allocation.
            [..] if row.batch.key.is_some() => continue,
            [..] => "the journal contains this allocation more than once",
        };
        let words = format!("{rid} got {number:010} of pool {pool}: {words}");
        findings.add(Rule::Lost, Some(row.end.t), words, &places);
    }
}

/// C3, for allocations whose numbers were given to the rows that requested them. The run's other
/// allocations are judged at the end.
pub(super) fn given(whole: &Whole, part: &Part, timelines: &Timelines<'_>, rest: &mut Rest) {
    let own = whole.answered(&part.rows).filter_map(|row| match row.what {
        What::Own(number) => Some((&*row.asked.rid, *number, row.asked.pool)),
        What::Overflow(_) | What::Error(_) => None,
    });
    let own: HashSet<_> = own.collect();
    for allocation in timelines.all() {
        let Some(rid) = allocation.rid.filter(|rid| whole.is_of_run(rid)) else { continue };
        if !own.contains(&(rid, allocation.number, allocation.pool)) {
            rest.allocated(rid, allocation);
        }
    }
}
