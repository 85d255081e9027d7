//! Measures the disk's flush latency: repeatedly overwrites a block of an existing file and calls
//! `fdatasync`.
//!
//! Makes the same system calls as a journal in preallocated segments, but is not a journal. Limits
//! on the server's latency are stated relative to the flush latency that was measured in the same
//! run, because disks differ more than servers do.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::report::{Latency, Recorder};

/// The size of the file. It is overwritten from beginning to end repeatedly.
const FILE_BYTES: usize = 16 * 1024 * 1024;

/// Flags of `ringwell-bench flush`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory on the disk to measure; a temporary file is created there.
    #[arg(long)]
    dir: PathBuf,
    /// Bytes per write.
    #[arg(long, default_value_t = 4_096)]
    bytes: usize,
    /// Duration of writing.
    #[arg(long, default_value = "1s")]
    time: humantime::Duration,
    /// Pause between the starts of two writes; `0s` writes back to back.
    #[arg(long, default_value = "0s")]
    every: humantime::Duration,
}

#[derive(Serialize)]
struct Outcome {
    bytes: usize,
    flushes: u64,
    latency: Latency,
}

/// Measures, and prints the result as one JSON line.
///
/// # Errors
/// If the file cannot be created or written.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let path = args.dir.join("flush-probe.tmp");
    let outcome = prepare(&path).and_then(|file| {
        measure(file, args.bytes.clamp(1, FILE_BYTES), args.time.into(), args.every.into())
    });
    std::fs::remove_file(&path).ok();
    let outcome = outcome.with_context(|| format!("while writing {}", path.display()))?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

fn prepare(path: &Path) -> anyhow::Result<File> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let zeros = vec![0; 1024 * 1024];
    for _ in 0..FILE_BYTES / zeros.len() {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn measure(
    mut file: File,
    bytes: usize,
    time: Duration,
    every: Duration,
) -> anyhow::Result<Outcome> {
    let block = vec![0x5a; bytes];
    let mut recorder = Recorder::new()?;
    let (mut offset, mut flushes) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < time {
        let begun = Instant::now();
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(&block)?;
        file.sync_data()?;
        recorder.add(begun.elapsed());
        flushes += 1;
        offset += bytes as u64;
        if offset + bytes as u64 > FILE_BYTES as u64 {
            offset = 0;
        }
        std::thread::sleep(every.saturating_sub(begun.elapsed()));
    }
    Ok(Outcome { bytes, flushes, latency: recorder.latency() })
}

#[cfg(test)]
mod tests {
    use super::{measure, prepare};
    use std::time::Duration;

    #[test]
    fn the_probe_flushes_at_least_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = prepare(&dir.path().join("probe")).unwrap();
        let outcome = measure(file, 4_096, Duration::from_millis(5), Duration::ZERO).unwrap();
        assert!(outcome.flushes > 0);
    }
}
