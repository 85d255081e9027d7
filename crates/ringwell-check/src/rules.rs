//! The rules, as docs/spec/checker.md states them. Rules that read the same kinds of lines are in
//! one file.
//!
//! Some rules judge the whole history. Others judge the numbers part by part. Cases that need data
//! from several parts, for example about all numbers of a pool, are judged at the end, in `rest`.
//! Invariant: if a history does not show whether a rule was kept, the rule is reported as not
//! judged, and not as violated.

mod across_parts;
mod clients;
mod joined;
mod journals;
mod timeline;

use std::io;

use crate::history::{Journal, Whole};
use crate::spill::Spill;
use crate::verdict::{Findings, Rule};
use across_parts::{Overflows, Rest};
use journals::Deviations;
use timeline::Timelines;

/// Applies all rules.
pub(crate) fn judge(whole: &Whole, spill: &mut Spill) -> io::Result<Findings> {
    let mut findings = Findings { not_judged: not_judged(whole), ..Findings::default() };
    clients::answers(whole, &mut findings);
    clients::deadline(whole, &mut findings);
    journals::order(whole, &mut findings);
    journals::owners(whole, &mut findings);
    let mut rest = Rest::default();
    let mut overflows = Overflows::new(spill.len())?;
    let mut deviations = Deviations::default();
    for index in 0..spill.len() {
        let part = spill.part(index)?;
        let timelines = Timelines::new(whole, &part);
        clients::count(whole, &part, &mut findings);
        clients::double(whole, &part, &mut findings);
        clients::pool(whole, &part, &mut findings);
        across_parts::attribution(whole, &part, &mut rest, &mut findings);
        journals::double(whole, &timelines, &mut findings);
        joined::lost(whole, &part, &timelines, &mut findings);
        joined::given(whole, &part, &timelines, &mut rest);
        overflows.take(whole, &part, &timelines, &mut findings)?;
        deviations.take(whole, &part);
    }
    rest.judge(whole, spill, &mut findings)?;
    overflows.judge(whole, &mut findings)?;
    deviations.judge(whole, &mut findings);
    Ok(findings)
}

/// The rules, or parts of them, for which the required lines are missing.
fn not_judged(whole: &Whole) -> Vec<(Rule, &'static str)> {
    let journals = whole.journals.is_empty();
    let pools = whole.pools.is_empty();
    let segments = whole.journals.values().all(|journal| journal.segments.is_empty());
    let alone = whole.states.keys().any(|owner| !whole.journals.contains_key(owner));
    let journal = |is: fn(&Journal) -> bool| whole.journals.values().any(is);
    let frameless = journal(|journal| journal.records > 0 && journal.frames.is_empty());
    let begins_late = journal(|journal| {
        let first = journal.segments.first().zip(journal.frames.first());
        first.is_some_and(|(segment, frame)| segment.first_frame < frame.number)
    });
    let uncounted = whole.states.values().any(|state| state.count.is_none());
    // The entries are in the order of the rules. For overflow, only the first missing kind of line
    // is reported.
    let missing = [
        (pools, Rule::Double, "the part \"according to clients\": no `cfg` lines"),
        (journals, Rule::Double, "the part \"according to journals\": no `jrn` lines"),
        (journals, Rule::Lost, "no `jrn` lines"),
        (journals, Rule::Phantom, "no `jrn` lines"),
        (pools, Rule::Pool, "no `cfg` lines"),
        (journals, Rule::Overflow, "no `jrn` lines"),
        (!journals && whole.clocks.is_empty(), Rule::Overflow, "no `clk` lines"),
        (!journals && !whole.clocks.is_empty() && pools, Rule::Overflow, "no `cfg` lines"),
        (journals, Rule::Order, "no `jrn` lines"),
        (frameless, Rule::Order, "no lines for frames, although a journal has records"),
        (begins_late, Rule::Order, "no lines for the first frames of a journal's segment"),
        (segments, Rule::Owner, "no `jrn` lines for segments"),
        (
            !clients::tells_a_deadline(whole),
            Rule::Deadline,
            "no `run` or `inv` line has a deadline",
        ),
        (whole.lookups == 0, Rule::Attribution, "no `att` lines"),
        (whole.states.is_empty(), Rule::Recovery, "no `fin` lines"),
        (
            uncounted,
            Rule::Recovery,
            "no count of the numbers in a shard's final state, so that state may be incomplete",
        ),
        (alone, Rule::Recovery, "the history has a shard's final state, but not its journal"),
    ];
    missing.into_iter().filter(|(is, ..)| *is).map(|(_, rule, why)| (rule, why)).collect()
}
