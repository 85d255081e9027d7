//! The allocation rules: ring pools, promo numbers, allocations and lockouts.
//!
//! Does not depend on clocks, files, sockets, other shards or encodings: callers pass times and
//! journal positions as arguments. The crate is `no_std`, so code that uses a clock or a file does
//! not compile.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

#[cfg(canary)]
pub mod canary;
mod counts;
mod foreign_times;
mod number;
mod order;
mod pool;
mod rebuild;
mod recent;
mod resize;
mod runs;
mod shard;
mod slot;
#[cfg(test)]
mod tests;
mod throttle;
mod vacant;
mod value;
mod visitors;

pub use counts::PoolCounts;
pub use number::{NumberError, NumberRange, PromoNumber};
pub use pool::{Exhausted, PoolSpec};
pub use rebuild::{Fact, Rebuild};
pub use recent::{Before, RECENT_MAX};
pub use resize::InRotation;
pub use shard::{Grant, Retired, Shard, Withdrawn, is_doubted};
pub use slot::Slot;
pub use throttle::Throttle;
pub use value::{Millis, PoolId, Position, VisitorId};
