//! The options and the results of a run.

use ringwell_driver::Bug;

use super::fault::LogFault;
use crate::model::Violation;

/// The options of a run. The same options always give the same run.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The seed for all random choices.
    pub seed: u64,
    /// The faults that happen at their highest rate.
    pub on: Vec<LogFault>,
    /// The faults that never happen.
    pub off: Vec<LogFault>,
    /// A planted bug.
    pub bug: Option<Bug>,
    /// Whether to record the events of the run as lines of text.
    pub keeps_tale: bool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct LogReport {
    /// The promise that was broken, if any.
    pub violation: Option<Violation>,
    /// The length of the run in simulated microseconds.
    pub length_us: u64,
    /// The number of rows that were answered.
    pub rows: u64,
    /// The number of answered rows that got a number.
    pub numbers: u64,
    /// The number of times that a process took over all shards.
    pub take_overs: u64,
    /// The number of take-overs at which the previous owner was still running.
    pub from_the_living: u64,
    /// The number of faults of each kind.
    pub faults: Vec<(LogFault, u64)>,
    /// A digest of all events. Equal runs have equal digests.
    pub hash: u64,
    /// The events as lines of text, if they were requested.
    pub story: Vec<String>,
}
