//! Does long work in short pieces, with pauses between them.
//!
//! A list of 10,000 pools keeps the directory's thread and the database's thread busy for seconds.
//! The two wake each other about 200,000 times a second. On a core that these threads shared with a
//! shard, the kernel threads that complete disk writes had to wait for those seconds. No answer
//! left the shard for up to two seconds. Source: docs/decisions/015-management-rests.md.

use std::time::{Duration, Instant};

/// The time for which work continues before a pause. It is enough for a few lines of a list.
const WORK: Duration = Duration::from_millis(1);
/// The shortest pause.
const REST: Duration = Duration::from_millis(1);

/// Decides when work must pause.
#[derive(Debug)]
pub struct Pace {
    begun: Instant,
}

impl Pace {
    /// Begins measuring the time that work takes.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now() }
    }

    /// Pauses if work has continued for long enough. Must be called after each small step.
    pub async fn step(&mut self) {
        if self.begun.elapsed() >= WORK {
            tokio::time::sleep(REST).await;
            self.begun = Instant::now();
        }
    }
}
