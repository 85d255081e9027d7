//! Checks that this machine can serve a configuration, apart from databases and free addresses.
//! `serve` does this before it opens anything; so do `serve --check` and `ringwell doctor`.

use std::io;
use std::sync::Mutex;
use std::thread;

use ringwell_config::{Config, Durability};

use crate::ServeError;
use crate::listen::Listeners;
use crate::secure;

/// A shard has four threads: for its requests, for storing groups, for preparing segments, and for
/// calls that block.
const THREADS_PER_SHARD: usize = 4;

/// Threads that serve the whole process: signals, the lock, certificates, management, calls,
/// traces.
const OTHER_THREADS: usize = 8;

/// The reasons why this machine cannot serve this configuration, each with its remedy.
#[must_use]
pub fn unfit(config: &Config) -> Vec<ServeError> {
    let mut all = Vec::new();
    if config.durability != Durability::Memory {
        all.extend(data_directory(config).err());
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

/// Checks that the data directory is a directory or can be made.
fn data_directory(config: &Config) -> Result<(), ServeError> {
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    for place in data.ancestors() {
        let error = match place.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // Without permission to look, there is nothing to judge.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            // This path is below a file. The loop reaches that file next.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
            Err(error) => error,
            Ok(_) if place.is_dir() => return Ok(()),
            Ok(_) => rustix::io::Errno::NOTDIR.into(),
        };
        return Err(ServeError::DataDirectory { path: place.to_owned(), error });
    }
    Ok(())
}

/// Checks that the process may have this many threads at once. Without this, some shards would
/// start and others would not.
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
