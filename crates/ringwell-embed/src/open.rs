//! Opens the single shard of a data directory by the driver's rules, on the calling thread.

use std::collections::BTreeMap;

use ringwell_directory::{Config, Directory};
use ringwell_driver::open::{self, Believed, Opened, OverflowTaken, Read, agree, shards_on_disk};
use ringwell_driver::store::{FileError, Identity, Inline, OpenError, Settings, note_unflushed};
use ringwell_engine::{Doubts, Engine};
use ringwell_journal::Durability;
use ringwell_os::OsFiles;
use ringwell_os::clock::{Clock, reading};

/// The reason why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// A journal is damaged, or cannot be read.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// An overflow number is locked out.
    #[error(transparent)]
    Overflow(#[from] OverflowTaken),
}

/// A directory's only shard, served by the calling thread.
#[derive(Debug)]
pub(crate) struct Alone {
    /// Its state.
    pub(crate) engine: Engine,
    /// Stores the groups that the engine has sealed.
    pub(crate) store: Inline<OsFiles>,
    /// The time.
    pub(crate) clock: Clock,
    /// The corrections of time or damage at startup. If lockouts were lengthened, no number may be
    /// handed out before a snapshot is taken, because no record says that lockouts were lengthened.
    pub(crate) doubts: Doubts,
    /// The boot of the machine.
    pub(crate) boot: u64,
}

/// Opens a directory of one shard without starting a thread. Other shards in the journals pass it
/// their lockouts, and their files stay unchanged.
///
/// # Errors
/// The reason why it cannot be opened; then nothing has been changed.
pub(crate) fn open_alone(
    config: &Config,
    directory: &Directory,
    durability: Durability,
) -> Result<Alone, Refused> {
    let settings = Settings::of(config, directory, durability);
    let others = match durability {
        Durability::Memory => Vec::new(),
        Durability::Disk | Durability::Os => shards_on_disk(&OsFiles, &settings.data)?,
    };
    let reading = reading();
    let last = others.into_iter().max().unwrap_or_default();
    let read = |shard| {
        let specs = open::specs(directory.pools_of(shard));
        open::read(&OsFiles, &settings, shard, &specs, Believed::of(config))
    };
    let mut reads = (0..=last).map(read).collect::<Result<Vec<_>, _>>()?;
    let copied = open::copied(&OsFiles, &settings, None, &reads, reading.boot)?;
    open::report_copied(&settings, copied);
    for read in &mut reads {
        read.is_in_doubt |= copied.is_some();
    }
    let clocks = agree(&mut reads, directory, &reading, None)?;
    let clock = Clock::going_on(clocks, reading.since_boot);
    note_unflushed(&OsFiles, &settings.data, durability, reading.boot)?;
    let mut journals: BTreeMap<_, _> = reads.iter().filter_map(Read::journal).collect();
    let opened = open::open(reads.swap_remove(0), clock.now())?;
    journals.extend([opened.journal()]);
    if durability != Durability::Memory {
        Identity::read_or_draw(&OsFiles, &settings.data, journals)?;
    }
    let Opened { engine, store, doubts, .. } = opened;
    Ok(Alone { engine, store, clock, doubts, boot: reading.boot })
}
