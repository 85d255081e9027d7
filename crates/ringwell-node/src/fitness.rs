//! The needs of a configuration on this machine, apart from databases and free addresses: `serve`
//! checks it before it opens anything, and so do `serve --check` and `ringwell doctor`.

use std::io;
use std::sync::Mutex;
use std::thread;

use ringwell_config::{Config, Durability};

use crate::ServeError;
use crate::listen::Listeners;
use crate::secure;

/// A shard has a thread for its requests, one that stores groups, one that prepares segments, and
/// one for calls that block.
const THREADS_PER_SHARD: usize = 4;

/// Threads of the whole process: signals, the lock, certificates, management, calls, traces.
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

/// Whether the data directory is one, or can be made.
fn data_directory(config: &Config) -> Result<(), ServeError> {
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    for place in data.ancestors() {
        let error = match place.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // Without the right to look there is none to judge either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            // A path below a file: the file comes next.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
            Err(error) => error,
            Ok(_) if place.is_dir() => return Ok(()),
            Ok(_) => rustix::io::Errno::NOTDIR.into(),
        };
        return Err(ServeError::DataDirectory { path: place.to_owned(), error });
    }
    Ok(())
}

/// Whether the process may have this many threads at once: without this, some shards would start and
/// others would not.
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
