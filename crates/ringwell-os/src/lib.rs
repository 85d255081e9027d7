//! The operating system, behind the driver's traits: files, the threads that store groups, locks
//! and probes.
//!
//! Owns direct writes, file modes, and the decision about which errors mean a full disk. Does not
//! depend on the contents of files.

pub mod clock;
mod files;
mod journal;
mod lock;
mod platform;
mod probe;
mod secret;

pub use clock::Clock;
pub use files::{OsFile, OsFiles, create_directory, random, warn_of_mode};
pub use journal::Journal;
pub use lock::{
    DataLock, LockError, RESTORING, ReadLock, check_complete, check_lock, is_incomplete,
};
pub use probe::{Probe, probe};
pub use secret::{check_secret, kept_secret};

#[cfg(test)]
mod tests;
