//! The code between the engine and the operating system. The server, the embedded engine and the
//! simulator all run it.
//!
//! It uses the disk, the network, time, randomness and tasks only through traits. It does not use
//! tokio's runtime, sockets, files or clocks. Of tokio, it uses only the `sync` module, which needs
//! nothing but wakers.

#![deny(clippy::await_holding_refcell_ref)]

pub mod arrivals;
pub mod batch;
pub mod canary;
pub mod change;
pub mod clock;
pub mod commit;
pub mod holder;
mod kept;
pub mod lifecycle;
pub mod lifetimes;
pub mod link;
pub mod lists;
pub mod local;
mod locks;
pub mod lookup;
pub mod maintenance;
pub mod membership;
pub mod message;
pub mod moment;
pub mod moves;
pub mod node;
pub mod open;
pub mod partial_change;
pub mod platform;
pub mod pool_query;
pub mod queue;
pub mod reload_requests;
pub mod rows;
pub mod serve;
pub mod shard;
pub mod stats;
pub mod store;
pub mod suspension;
pub mod watch;
mod withheld;
pub mod witness;
pub mod writer;

pub use canary::{Bug, planted};
pub use platform::{Moment, Net, Path, Platform, Traced, Trouble};
pub use shard::Shard;
pub use watch::Watch;
