//! Does long work in short pieces, with pauses between them.
//!
//! Without pauses, the import of 10,000 pools kept the directory thread and the database thread
//! busy for several seconds. The two woke each other about 200,000 times a second. On a core that
//! they shared with a shard, the kernel thread that completes disk writes waited a total of 2.5
//! seconds for the core. As a result, the shard's answers were delayed by up to a second. Source:
//! docs/decisions/015-management-rests.md.

use std::time::{Duration, Instant};

/// The time for which work continues before a pause. Long enough to import a few pools from a list.
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

    /// Pauses if a pause is due. Must be called after each small step.
    pub async fn step(&mut self) {
        if self.begun.elapsed() >= WORK {
            tokio::time::sleep(REST).await;
            self.begun = Instant::now();
        }
    }
}
