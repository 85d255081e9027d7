//! The pure parts of the links between shards: request pacing and frames.
//!
//! No I/O, no clock and no randomness: times, seeds and bytes are passed in as arguments. The user
//! of a link (a server thread, a simulator or a test) owns the sockets and timers.

#![forbid(unsafe_code)]

pub mod frame;
pub mod pacing;
