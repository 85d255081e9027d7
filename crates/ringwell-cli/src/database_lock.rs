//! A lock that lets only one server use a SQLite file of ring pools or calls.
//!
//! Two servers with separate data directories would be unaware of each other's lockouts, and would
//! both send the webhooks of one call log.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

/// Locks the database at `path`, which contains `what`, until the returned file is dropped, or the
/// process ends. The lock is on a file next to the database, because SQLite locks the database file
/// itself.
///
/// # Errors
/// If another process has it, or the lock's file cannot be used.
pub(crate) fn claim(path: &Path, what: &str) -> anyhow::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = Path::new(&name);
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600).open(name);
    let lock = lock.with_context(|| format!("cannot open {}", name.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(
            "another server uses its {what} in {}: stop it first. Several servers with the same \
                {what} need PostgreSQL (docs/guides/several-machines.md)",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", name.display()))
        }
    }
}
