//! What links between shards are made of: when to ask an owner, and the frames that travel.
//!
//! No I/O, no clock, no randomness: time, seeds and bytes come in as arguments. Whoever drives a
//! link (a server's thread, a simulator, a test) owns sockets and timers.

#![forbid(unsafe_code)]

pub mod frame;
pub mod pacing;
