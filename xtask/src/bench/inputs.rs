//! The benchmarks' inputs and results.

use serde_json::Value;

use super::machine::Machine;
use super::server::Programs;

/// The inputs to every benchmark.
pub(super) struct BenchInputs {
    pub(super) programs: Programs,
    pub(super) machine: Machine,
    pub(super) seconds: u32,
    pub(super) rounds: u32,
    pub(super) smoke: bool,
}

/// A benchmark's results, in addition to its printed output.
pub(super) struct Findings {
    pub(super) raw: Value,
    /// Descriptions of wrong answers; empty if there were none.
    pub(super) problems: Vec<String>,
}
