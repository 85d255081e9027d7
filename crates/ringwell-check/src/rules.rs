//! The rules, in docs/spec/checker.md's words. Each file has those that look at the same lines.
//!
//! Invariant: a rule never blames a server for what the history leaves open; it says so instead.

mod clients;
mod joined;
mod journals;
mod timeline;

use crate::history::History;
use crate::verdict::Findings;
use timeline::Timelines;

/// Judges by all rules.
pub(crate) fn judge(history: &History) -> Findings {
    let mut findings = Findings::default();
    let timelines = Timelines::new(history);
    clients::double(history, &mut findings);
    journals::double(history, &timelines, &mut findings);
    joined::lost(history, &timelines, &mut findings);
    joined::phantom(history, &timelines, &mut findings);
    clients::pool(history, &mut findings);
    clients::answers(history, &mut findings);
    joined::overflow(history, &timelines, &mut findings);
    journals::order(history, &mut findings);
    journals::owners(history, &mut findings);
    clients::deadline(history, &mut findings);
    clients::attribution(history, &mut findings);
    journals::recovery(history, &mut findings);
    findings
}
