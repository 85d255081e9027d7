//! Long work in short pieces, with rests between them.
//!
//! A list of 10,000 pools is seconds of work for the thread of the directory and for the one of the
//! database, which wake each other some 200,000 times a second. On a core shared with a shard, the
//! kernel's own threads that complete a write to the disk were kept waiting equally long: no answer
//! left the shard for up to two seconds. Source: docs/decisions/015-management-rests.md.

use std::time::{Duration, Instant};

/// The time for which work continues before it pauses: a few lines of a list.
const WORK: Duration = Duration::from_millis(1);
/// The shortest pause.
const REST: Duration = Duration::from_millis(1);

/// Decides when to rest.
#[derive(Debug)]
pub struct Pace {
    begun: Instant,
}

impl Pace {
    /// Work begins.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now() }
    }

    /// Rests if it is time to. To be called after each small step.
    pub async fn step(&mut self) {
        if self.begun.elapsed() >= WORK {
            tokio::time::sleep(REST).await;
            self.begun = Instant::now();
        }
    }
}
