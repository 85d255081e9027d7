//! Long work in short pieces, with pauses between them.
//!
//! A list of 10,000 pools takes seconds in the thread of the directory and in that of the database,
//! which wake each other some 200,000 times a second. On a core shared with a shard, the kernel
//! threads that complete disk writes had to wait equally long: no answer left the shard for up to
//! two seconds. Source: docs/decisions/015-management-rests.md.

use std::time::{Duration, Instant};

/// The time for which work continues before a pause: a few lines of a list.
const WORK: Duration = Duration::from_millis(1);
/// The shortest pause.
const REST: Duration = Duration::from_millis(1);

/// Decides when to pause.
#[derive(Debug)]
pub struct Pace {
    begun: Instant,
}

impl Pace {
    /// Marks the beginning of work.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now() }
    }

    /// Pauses if it is time. Call it after each small step.
    pub async fn step(&mut self) {
        if self.begun.elapsed() >= WORK {
            tokio::time::sleep(REST).await;
            self.begun = Instant::now();
        }
    }
}
