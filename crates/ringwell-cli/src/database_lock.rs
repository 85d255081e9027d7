//! The SQLite files for ring pools and calls: detects their faults, and locks each file so that
//! only one server uses it.
//!
//! If two servers with separate data directories shared a database of ring pools, they would ignore
//! each other's lockouts. If they shared a call log, both would send its webhooks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use ringwell_config::{Config, Database};
use ringwell_directory::Fault;
use ringwell_store::{FileFault, examine, file_exists, lock_of, place};

use crate::data_files;

/// The term that messages use for the call database.
pub(crate) const CALL_LOG: &str = "call log";

/// Returns the default path of the call log, which is in the data directory.
pub(crate) fn usual_call_log(config: &Config) -> PathBuf {
    config.data.join(data_files::CALLS)
}

/// Returns a configuration's database files, each with the name of its setting: first the file for
/// ring pools, then the file for calls.
pub(crate) fn files(config: &Config) -> [(&'static str, Option<PathBuf>); 2] {
    let file = |database: &Database| match database {
        Database::File(path) => Some(path.clone()),
        Database::Postgres(_) => None,
    };
    let calls = config.calls.as_ref().and_then(|calls| match &calls.database {
        None => Some(usual_call_log(config)),
        Some(database) => file(database),
    });
    [("directory.database", config.database.as_ref().and_then(file)), ("calls.database", calls)]
}

/// Returns a fault if a configuration keeps ring pools and calls in one SQLite file.
pub(crate) fn one_file_for_both(config: &Config) -> Option<Fault> {
    let [(_, pools), (field, calls)] = files(config);
    let (pools, calls) = pools.zip(calls)?;
    (place(&pools) == place(&calls)).then(|| Fault {
        field: field.to_owned(),
        message: format!(
            "{} contains the ring pools: store calls in a separate file",
            calls.display()
        ),
        hint: Some(format!("write e.g. \"sqlite:{}\"", usual_call_log(config).display())),
        ..Fault::default()
    })
}

/// Refuses a configuration that keeps ring pools and calls in one file.
///
/// # Errors
/// The fault.
pub(crate) fn refuse_one_file(config: &Config) -> anyhow::Result<()> {
    one_file_for_both(config).map_or(Ok(()), |fault| bail!("{fault}"))
}

/// Finds faults in a configuration's database files, without changing the files.
pub(crate) fn faults(config: &Config) -> Vec<Fault> {
    let fault = |(field, path): (&str, Option<PathBuf>)| {
        let message = message(field, &examine(&path?).err()?);
        Some(Fault { field: field.to_owned(), message, ..Fault::default() })
    };
    one_file_for_both(config)
        .into_iter()
        .chain(files(config).into_iter().filter_map(fault))
        .collect()
}

/// Formats a message about a fault in the database file that the setting `field` names.
pub(crate) fn message(field: &str, fault: &FileFault) -> String {
    if field == "calls.database" { fault.of_calls() } else { fault.to_string() }
}

/// Locks a server's database as [`claim`] does. If `path` is a directory, returns an error and
/// creates no lock file. A file that does not begin like a database may be a damaged database. It
/// is locked only if `is_own` is true or if a server has used it before.
///
/// # Errors
/// Returns a [`FileFault`], or the same errors as [`claim`].
pub(crate) fn claim_for_server(path: &Path, what: &str, is_own: bool) -> anyhow::Result<File> {
    match examine(path) {
        Ok(()) | Err(FileFault::Damaged { .. }) => {}
        Err(FileFault::NotADatabase(_)) if is_own || lock_of(path).exists() => {}
        Err(fault) if what == CALL_LOG => bail!(fault.of_calls()),
        Err(fault) => return Err(fault.into()),
    }
    claim(path, what)
}

/// Locks the database at `path`, which contains `what`, until the returned file is dropped or the
/// process ends. A separate file next to the database is locked, because SQLite locks the database
/// file itself.
///
/// # Errors
/// If another process holds the lock, or the lock file cannot be opened.
pub(crate) fn claim(path: &Path, what: &str) -> anyhow::Result<File> {
    if fs::metadata(path).is_ok_and(|file| file.nlink() > 1) {
        bail!(
            "{} has more than one hard link, so another server could open the file under another \
                name: remove the other links (`find -samefile` finds them)",
            path.display()
        );
    }
    let name = lock_of(path);
    file_exists(&name)?;
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600).open(&name);
    let lock = lock.with_context(|| format!("cannot open {}", name.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(
            "another server keeps its {what} in {}: stop that server first. Servers can share the \
             same {what} only in PostgreSQL (docs/reference.md, \"Configuration\")",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", name.display()))
        }
    }
}
