//! Calculates the size of a ring pool, and of a cluster.
//!
//! Owns the formulas and the measured cost of a row. Uses no files, no clock and no server, so that
//! both `ringwell plan` and a server that measures its own load can use this crate. The formulas in
//! words, with examples: docs/sizing.md.

pub mod cluster;

mod callers;
mod demand;
mod erlang;

pub use callers::{Callers, CallersError};
pub use demand::{Demand, DemandError, Forecast, Sizes};
pub use erlang::{NUMBERS_MAX, blocking, load_for, numbers_for};
