//! Checks whether this machine can serve a configuration. Databases are not checked, and addresses
//! need not be free. `serve` runs these checks before it opens anything. `serve --check` and
//! `ringwell doctor` run them too.

use std::io;
use std::sync::Mutex;
use std::thread;

use ringwell_config::{Config, Durability};
use ringwell_driver::open::{StartError, of_cluster};

use crate::ServeError;
use crate::disk::OsFiles;
use crate::listen::Listeners;
use crate::secure;

/// The threads of a shard: one each for its requests, for storing groups, for preparing segments,
/// and for blocking calls.
const THREADS_PER_SHARD: usize = 4;

/// The threads that serve the whole process: for signals, the lock on the data directory,
/// certificates, management, calls and traces.
const OTHER_THREADS: usize = 8;

/// Returns the reasons why this machine cannot serve this configuration, each with its remedy.
/// `has_cluster` is whether the process gets a cluster file.
#[must_use]
pub fn unfit(config: &Config, has_cluster: bool) -> Vec<ServeError> {
    let mut all = Vec::new();
    if config.durability != Durability::Memory {
        all.extend(data_directory(config).err());
    } else if has_cluster {
        all.push(ServeError::MemoryInCluster);
    }
    if !has_cluster && config.data.is_dir() {
        all.extend(alone(config).err());
    }
    all.extend(config.tls.as_ref().and_then(|tls| secure::check(tls).err()));
    let has_management = config.database.is_some() || config.management.dashboard;
    let management = has_management.then_some(&config.management.address);
    let calls = config.calls.as_ref().map(|calls| &calls.listen);
    let addresses = config.listen.iter().chain(&config.site_listen).chain(calls).chain(management);
    all.extend(addresses.filter_map(|address| Listeners::check(address).err()).map(Into::into));
    all.extend(threads(config.shards).err());
    all
}

/// Checks that the data directory does not belong to a node of a cluster. This cannot be checked
/// without permission to read it.
fn alone(config: &Config) -> Result<(), ServeError> {
    match of_cluster(&OsFiles, &config.data) {
        Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        checked => checked?.map_or(Ok(()), |error| Err(StartError::from(error).into())),
    }
}

/// Checks that the data directory is a directory, or can be created.
fn data_directory(config: &Config) -> Result<(), ServeError> {
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    for place in data.ancestors() {
        let error = match place.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // The path cannot be checked without permission to access it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            // An ancestor of this path is a file instead of a directory. A later iteration of this
            // loop reaches that file.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
            Err(error) => error,
            Ok(_) if place.is_dir() => return Ok(()),
            Ok(_) => rustix::io::Errno::NOTDIR.into(),
        };
        return Err(ServeError::DataDirectory { path: place.to_owned(), error });
    }
    Ok(())
}

/// Checks that the process can run the threads of all `shards` shards at the same time. Without
/// this check, some shards might start while others fail.
fn threads(shards: u16) -> Result<(), ServeError> {
    let count = usize::from(shards) * THREADS_PER_SHARD + OTHER_THREADS;
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _closed = gate.lock();
        (0..count).try_for_each(|_| {
            let wait = || drop(gate.lock());
            thread::Builder::new().spawn_scoped(scope, wait).map(drop).map_err(ServeError::Thread)
        })
    })
}
