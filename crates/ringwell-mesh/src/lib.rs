//! The parts of links between shards: the pacing of requests to an owner, and the frames.
//!
//! No I/O, no clock, no randomness: time, seeds and bytes come in as arguments. The user of a link
//! (a server's thread, a simulator, a test) owns sockets and timers.

#![forbid(unsafe_code)]

pub mod frame;
pub mod pacing;
