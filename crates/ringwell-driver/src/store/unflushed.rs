//! Whether the newest groups of a data directory may be missing after a boot: durability `os`.
//!
//! With that durability answers are sent when their group is in the cache of the operating system,
//! which a power cut empties. A process therefore records the boot of the machine before it
//! answers, and an orderly stop removes that record once everything is flushed. If the record of
//! another boot is found at startup, an unknown number of answered groups is missing. Source:
//! docs/reliability.md.

use std::path::Path;

use ringwell_journal::Durability;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::files::{FileError, Files, read_json, remove, write_json};
use crate::canary::{Bug, planted};

const FILE: &str = "unflushed.json";

/// Differs from every boot.
const NO_BOOT: u64 = 0;

/// The boot of the machine in which groups were answered without a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unflushed {
    boot: u64,
}

fn read(files: &impl Files, data: &Path) -> Result<Option<u64>, FileError> {
    Ok(read_json::<Unflushed>(files, &data.join(FILE))?.map(|unflushed| unflushed.boot))
}

/// Whether groups that were answered from `data` may have been lost by the boot `boot`.
///
/// # Errors
/// [`FileError`]
pub fn may_lack_groups(files: &impl Files, data: &Path, boot: u64) -> Result<bool, FileError> {
    let is_ignored = planted(Bug::PowerCutIgnored);
    Ok(read(files, data)?.is_some_and(|recorded| recorded != boot) && !is_ignored)
}

/// Runs when a write or a flush has failed, unless the disk was only full. Answered groups may then
/// be missing even if the machine was not booted in between, so the next start holds all pools as
/// after a boot. Returns the error to report.
pub(super) fn failed(files: &impl Files, settings: &Settings, error: FileError) -> FileError {
    let Settings { data, durability, .. } = settings;
    // Groups of a process with another durability may be in the cache.
    let may_lack = *durability == Durability::Os || files.exists(&data.join(FILE));
    if error.is_full() || !may_lack || planted(Bug::FailedFlushIgnored) {
        return error;
    }
    match write_json(files, data, FILE, &Unflushed { boot: NO_BOOT }) {
        Ok(()) => error,
        Err(unknown) => error.and(&format!(
            "{unknown}, so that the next start may not know that answered allocations are \
             missing: until a lockout has passed, restart only after a reboot of the machine"
        )),
    }
}

/// Runs before anything is answered from `data`. The record of an earlier boot stays until the hold
/// that it causes is stored: see [`settle_unflushed`].
///
/// # Errors
/// [`FileError`]
pub fn note_unflushed(
    files: &impl Files,
    data: &Path,
    durability: Durability,
    boot: u64,
) -> Result<(), FileError> {
    if durability != Durability::Os || read(files, data)?.is_some() {
        return Ok(());
    }
    files.make_directory(data)?;
    write_json(files, data, FILE, &Unflushed { boot })
}

/// Runs when the hold for groups that an earlier boot has lost is as durable as configured.
///
/// # Errors
/// [`FileError`]; then the next start may hold all pools again.
pub fn settle_unflushed(
    files: &impl Files,
    data: &Path,
    durability: Durability,
    boot: u64,
) -> Result<(), FileError> {
    match read(files, data)? {
        Some(recorded) if recorded != boot => match durability {
            Durability::Os => write_json(files, data, FILE, &Unflushed { boot }),
            Durability::Disk => remove(files, &data.join(FILE)),
            Durability::Memory => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Runs at the end of an orderly stop, when everything was flushed.
///
/// # Errors
/// [`FileError`]; then a start after the next boot holds all pools.
pub fn end_unflushed(files: &impl Files, data: &Path) -> Result<(), FileError> {
    let path = data.join(FILE);
    if files.exists(&path) { remove(files, &path) } else { Ok(()) }
}
