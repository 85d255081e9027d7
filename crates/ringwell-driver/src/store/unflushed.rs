//! Determines whether the newest groups of a data directory may be missing: after a boot, after its
//! file system was remounted, or after a failed write. Applies to durability `os`.
//!
//! With this durability, answers are sent once their group is in the operating system's cache. A
//! power cut empties the cache. Cached data is also lost if a disk fails and is mounted again.
//! Before a process sends its first answer, it therefore records the ids of the current boot and of
//! the file system's mount. An orderly shutdown removes that record once all data is flushed. If
//! startup finds the record of another boot or mount, an unknown number of answered groups may be
//! missing. Source: docs/reliability.md, docs/decisions/051-a-file-system-that-is-mounted-again.md.

use std::path::Path;

use ringwell_config::Durability;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::files::{FileError, Files, read_json, remove, write_json, write_json_to_cache};
use crate::canary::{Bug, planted};
use crate::locks::lock;

const FILE: &str = "unflushed.json";

/// Differs from the id of every boot.
const NO_BOOT: u64 = 0;

/// The boot and the mount during which groups were answered without a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unflushed {
    /// The boot, or [`NO_BOOT`] after a failed write.
    boot: u64,
    /// The result of [`Files::mount_of`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mount: Option<u64>,
}

impl Unflushed {
    fn now(files: &impl Files, data: &Path, boot: u64) -> Self {
        Self { boot, mount: files.mount_of(data) }
    }

    /// Compares this record with the current boot and mount. Returns the reason why answered groups
    /// may be missing, if there is one.
    fn lacks(self, now: Self) -> Option<Unkept> {
        let is_remounted = self.mount.is_some() && self.mount != now.mount;
        match self.boot {
            NO_BOOT => Some(Unkept::FailedWrite),
            boot if boot != now.boot => Some(Unkept::Boot),
            _ if is_remounted && !planted(Bug::RemountIgnored) => Some(Unkept::Remount),
            _ => None,
        }
    }
}

pub(super) fn read(files: &impl Files, data: &Path) -> Result<Option<Unflushed>, FileError> {
    read_json(files, &data.join(FILE))
}

/// The reason why groups that were answered without a flush may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// The machine was rebooted.
    Boot,
    /// The file system was remounted.
    Remount,
    /// A write or a flush has failed.
    FailedWrite,
}

/// Determines whether groups that were answered from `data` may have been lost, and returns the
/// reason. `boot` is the id of the current boot.
///
/// # Errors
/// [`FileError`]
pub fn may_lack_groups(
    files: &impl Files,
    data: &Path,
    boot: u64,
) -> Result<Option<Unkept>, FileError> {
    let Some(recorded) = read(files, data)? else { return Ok(None) };
    Ok(recorded.lacks(Unflushed::now(files, data, boot)))
}

/// Records that a write or flush has failed, unless the disk was only full. Answered groups may
/// then be missing even if the machine was not rebooted. So the next startup holds all pools, as it
/// does after a reboot. Returns the error that is to be reported.
pub(super) fn failed(files: &impl Files, settings: &Settings, error: FileError) -> FileError {
    let Settings { data, durability, failing, .. } = settings;
    let _alone = lock(failing);
    // The groups of an earlier process with another durability may still be only in the cache.
    let may_lack = *durability == Durability::Os || files.exists(&data.join(FILE));
    if error.is_full() || !may_lack || planted(Bug::FailedFlushIgnored) {
        return error;
    }
    let record = Unflushed { boot: NO_BOOT, mount: None };
    let Err(unknown) = write_json(files, data, FILE, &record) else { return error };
    // While the file system stays mounted, the next startup reads this record from the cache. After
    // a remount, it detects that the mount has changed.
    let is_cached = write_json_to_cache(files, data, FILE, &record).is_ok();
    let advice = match (is_cached, files.mount_of(data)) {
        (true, Some(_)) => return error,
        (false, Some(_)) => "unmount the file system and mount it again before the next startup",
        (_, None) => "use --restored at the next startup of the server",
    };
    error.and(&format!(
        "{unknown}, so the next startup may not detect that answered allocations are missing: \
         {advice}"
    ))
}

/// Records the current boot and mount. Runs before any answer is sent from `data`. A record of lost
/// groups is kept until the hold that it causes is stored; see [`settle_unflushed`].
///
/// # Errors
/// [`FileError`]
pub fn note_unflushed(
    files: &impl Files,
    data: &Path,
    durability: Durability,
    boot: u64,
) -> Result<(), FileError> {
    if durability != Durability::Os {
        return Ok(());
    }
    files.make_directory(data)?;
    let now = Unflushed::now(files, data, boot);
    match read(files, data)? {
        Some(recorded) if recorded == now || recorded.lacks(now).is_some() => Ok(()),
        _ => write_json(files, data, FILE, &now),
    }
}

/// Replaces or removes a record of lost groups. Runs once the hold that the record causes is as
/// durable as configured.
///
/// # Errors
/// Returns [`FileError`]; the next startup may then hold all pools again.
pub fn settle_unflushed(
    files: &impl Files,
    data: &Path,
    durability: Durability,
    boot: u64,
) -> Result<(), FileError> {
    let now = Unflushed::now(files, data, boot);
    match read(files, data)? {
        Some(recorded) if recorded.lacks(now).is_some() => match durability {
            Durability::Os => write_json(files, data, FILE, &now),
            Durability::Disk => remove(files, &data.join(FILE)),
            Durability::Memory => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Removes the record of the boot and the mount. Runs at the end of an orderly shutdown, when all
/// data has been flushed.
///
/// # Errors
/// Returns [`FileError`]; the first startup after the next boot then holds all pools.
pub fn end_unflushed(files: &impl Files, data: &Path) -> Result<(), FileError> {
    let path = data.join(FILE);
    if files.exists(&path) { remove(files, &path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_may_be_missing_after_another_boot_or_mount_or_a_failed_write() {
        let of = |boot, mount| Unflushed { boot, mount };
        let check = |recorded: Unflushed, now, wanted| {
            assert_eq!(recorded.lacks(now), wanted, "{recorded:?} {now:?}");
        };
        check(of(7, Some(1)), of(7, Some(1)), None);
        check(of(7, Some(1)), of(8, Some(1)), Some(Unkept::Boot));
        check(of(7, Some(1)), of(7, Some(2)), Some(Unkept::Remount));
        check(of(7, Some(1)), of(7, None), Some(Unkept::Remount));
        // The mount is unknown in files from older releases.
        check(of(7, None), of(7, Some(1)), None);
        check(of(NO_BOOT, None), of(7, Some(1)), Some(Unkept::FailedWrite));
    }
}
