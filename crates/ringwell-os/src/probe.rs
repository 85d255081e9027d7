//! Tests, before the server uses a disk, whether flushed data is likely to survive a power cut.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ringwell_driver::store::FileError;
use ringwell_journal::BLOCK_BYTES;

use crate::files::{Context, create};
use crate::platform;

const FLUSHES: usize = 50;
/// The shortest believable time for a disk to store a block. Only memory, or a disk that
/// acknowledges writes from a volatile cache, is faster.
const BELIEVABLE: Duration = Duration::from_micros(20);

/// The result of the test.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The median flush duration.
    pub flush_p50: Duration,
    /// The 99th percentile of the flush durations.
    pub flush_p99: Duration,
    /// The name of the file system, if it is one that may lose flushed data in a power cut.
    pub doubtful_file_system: Option<&'static str>,
}

/// Writes a few blocks to a new file in `directory`, flushing each one, and removes the file.
///
/// # Errors
/// Returns a [`FileError`] if the file cannot be created, written or flushed.
pub fn probe(directory: &Path) -> Result<Probe, FileError> {
    let path = directory.join("probe.tmp");
    let result = measure(&path);
    // A leftover file does no harm, so an error does not matter here.
    let _ = fs::remove_file(&path);
    let mut times = result?;
    times.sort_unstable();
    let doubtful_file_system =
        platform::doubtful_file_system(directory).context("look at", directory)?;
    Ok(Probe {
        flush_p50: times[FLUSHES / 2],
        flush_p99: times[FLUSHES * 99 / 100],
        doubtful_file_system,
    })
}

impl Probe {
    /// Returns the reasons why stored groups may not survive a power cut, as sentences for the
    /// operator.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(name) = self.doubtful_file_system {
            warnings.push(format!(
                "the data directory is on {name}, which may lose files in a power cut: allocations \
                may be lost"
            ));
        }
        if self.flush_p50 < BELIEVABLE {
            warnings.push(format!(
                "half of the test flushes took less than {} us: the disk probably acknowledges \
                flushes before it has stored the data, so allocations may be lost in a power cut",
                self.flush_p50.as_micros().max(1)
            ));
        }
        warnings
    }
}

fn measure(path: &Path) -> Result<Vec<Duration>, FileError> {
    // Removes the file if an earlier start was interrupted and left it behind.
    let _ = fs::remove_file(path);
    let file = create(path)?;
    let block = [0x5A; BLOCK_BYTES];
    (0..FLUSHES)
        .map(|index| {
            let begun = Instant::now();
            file.write_all_at(&block, (index * BLOCK_BYTES) as u64).context("write", path)?;
            file.sync_data().context("flush", path)?;
            Ok(begun.elapsed())
        })
        .collect()
}
