//! Everything between the engine and the operating system, once: the server, the embedded engine
//! and the simulator run this code.
//!
//! Reaches disk, network, time, randomness and tasks only through traits. Knows nothing of tokio's
//! runtime, sockets, files or clocks; of tokio it uses `sync`, which needs nothing but wakers.

#![deny(clippy::await_holding_refcell_ref)]

pub mod canary;
pub mod local;
pub mod platform;
pub mod store;

pub use canary::{Bug, planted};
pub use platform::{Moment, Net, Path, Platform, Trouble};
