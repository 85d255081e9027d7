//! The options of a run.

use std::collections::BTreeSet;

use ringwell_driver::Bug;

use crate::fault::Kind;

/// The options of a run. The same options always give exactly the same run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The seed for all random choices.
    pub seed: u64,
    /// The kinds of faults that happen as often as possible.
    pub on: Vec<Kind>,
    /// The kinds of faults that never happen.
    pub off: Vec<Kind>,
    /// If set, only these faults happen, each given as its kind and its index within the kind.
    pub only_faults: Option<BTreeSet<(Kind, u64)>>,
    /// If set, only these batches are sent.
    pub only_batches: Option<BTreeSet<u32>>,
    /// Whether the run takes hours, with quiet times between bursts of requests.
    pub has_hours: bool,
    /// A bug to plant.
    pub bug: Option<Bug>,
    /// Whether the events of the run are also recorded as readable text.
    pub keeps_tale: bool,
}
