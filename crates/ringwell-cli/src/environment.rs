//! The environment of the process: variables and processors.

use std::thread;

/// The value of a variable, if it has one that is text.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The count of processor cores that this process may use.
pub(crate) fn cores() -> u16 {
    thread::available_parallelism()
        .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX))
}
