//! Shared parts of the tests with real processes: the server as a process, a small HTTP client, and
//! the configuration.
//!
//! Uses none of the server's own code, so that it cannot repeat the server's mistakes.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod batch;
pub(crate) mod client;
pub(crate) mod disk;
pub(crate) mod image;
pub(crate) mod server;
pub(crate) mod site;
pub(crate) mod wall;
