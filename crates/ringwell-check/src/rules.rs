//! The rules, in docs/spec/checker.md's words. Rules that read the same lines are in one file.
//!
//! Some rules judge the whole, some the numbers of one part after the other; cases that a part
//! cannot decide (a row of another number, a pool's other numbers) are judged at the end, by
//! `rest`. Invariant: a rule never blames a server for a point that the history does not decide; it
//! reports the point instead.

mod clients;
mod joined;
mod journals;
mod rest;
mod timeline;

use std::io;

use crate::history::Whole;
use crate::spill::Spill;
use crate::verdict::{Findings, Rule};
use journals::Deviations;
use rest::{Overflows, Rest};
use timeline::Timelines;

/// Judges by all rules.
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
        clients::attribution(whole, &part, &mut rest, &mut findings);
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
    // In the order of the rules; for overflow the first missing kind of line counts.
    let missing = [
        (pools, Rule::Double, "by clients: there are no `cfg` lines"),
        (journals, Rule::Double, "by the journal: there are no `jrn` lines"),
        (journals, Rule::Lost, "no `jrn` lines"),
        (journals, Rule::Phantom, "no `jrn` lines"),
        (pools, Rule::Pool, "no `cfg` lines"),
        (journals, Rule::Overflow, "no `jrn` lines"),
        (!journals && whole.clocks.is_empty(), Rule::Overflow, "no `clk` lines"),
        (!journals && !whole.clocks.is_empty() && pools, Rule::Overflow, "no `cfg` lines"),
        (journals, Rule::Order, "no `jrn` lines"),
        (segments, Rule::Owner, "no `jrn` lines of segments"),
        (
            !clients::tells_a_deadline(whole),
            Rule::Deadline,
            "no line of `run` or `inv` has a deadline",
        ),
        (whole.lookups == 0, Rule::Attribution, "no `att` lines"),
        (whole.states.is_empty(), Rule::Recovery, "no `fin` lines"),
        (alone, Rule::Recovery, "a state has no journal beside it"),
    ];
    missing.into_iter().filter(|(is, ..)| *is).map(|(_, rule, why)| (rule, why)).collect()
}
