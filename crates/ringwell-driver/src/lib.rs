//! Everything between the engine and the operating system, once: the server, the embedded engine
//! and the simulator run this code.
//!
//! Reaches disk, network, time, randomness and tasks only through traits. Knows nothing of tokio,
//! sockets, files or clocks.

pub mod store;
