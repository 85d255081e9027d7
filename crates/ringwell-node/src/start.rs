//! Opens the node's shards: starts the threads that read their files, and logs messages for the
//! operator. The rules of startup are in the driver (`ringwell_driver::open`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_directory::Directory;
use ringwell_driver::clock::WALL_APART_WARNED;
use ringwell_driver::membership::Membership;
use ringwell_driver::node::Begun;
use ringwell_driver::open::{self, CopySource, Opened, OverflowTaken, Start, shards_on_disk};
use ringwell_driver::store::{
    HistoryLimits, KeptNotes, LastOwner, LogEnd, LogNotes, LogStore, Logs, Numbered, Prefix,
    SharedLog, SnapshotIndex, SnapshotStore, lost_logs, reached_ends,
};
use ringwell_engine::Engine;
use ringwell_journal::Author;
use ringwell_os::clock::{Clock, reading};
use tokio::task::LocalSet;

use crate::ServeError;
use crate::disk::{self, Inline, Journal, OsFiles};
use crate::platform::{Tokio, current_thread};

pub(crate) use ringwell_driver::open::Believed;

type Read = open::Read<OsFiles>;

/// A shard that is ready to serve.
pub(crate) struct Started {
    pub(crate) shard: u16,
    pub(crate) engine: Engine,
    pub(crate) store: Inline<OsFiles>,
    /// The shared log that contains the shard's journal, if there is one.
    pub(crate) log: Option<ShardLog>,
    /// The time by which lockouts were lengthened, if no record of this exists yet. The shard must
    /// not serve before a snapshot contains the lengthened lockouts.
    pub(crate) lengthened: Option<Millis>,
}

/// The store of a shard whose journal is in a shared log, which is copied to files.
pub(crate) type CopiedLog = LogStore<Numbered<Arc<dyn SharedLog>>, Journal, Tokio>;

/// A shard's log, and the identity that this process uses to write to the log.
pub(crate) struct ShardLog {
    log: Numbered<Arc<dyn SharedLog>>,
    author: Author,
    snapshots: Arc<dyn SnapshotStore>,
    /// The snapshots that the log contains.
    kept: Vec<(u64, SnapshotIndex)>,
    prefix: Prefix,
    limits: HistoryLimits,
}

impl ShardLog {
    /// Creates the store of the shard's groups. The log is copied to the files of `copy`.
    pub(crate) fn store(self, copy: Journal) -> CopiedLog {
        let Self { log, author, snapshots, kept, prefix, limits } = self;
        LogStore::new(log, copy, Tokio, author).with_snapshots(snapshots, kept, prefix, limits)
    }
}

/// Opens all of the directory's shards, and those that exist only in journals. The latter have no
/// pools. They pass their lockouts on to the current owners of the numbers, and continue to answer
/// look-ups. If `withholds` is set and a visitor holds a pool's overflow number, the pool gets that
/// number only after the visitor's lockout.
///
/// # Errors
/// Returns a [`ServeError`] if a journal is damaged or cannot be read. In this case, nothing was
/// changed.
pub(crate) fn start(
    directory: &Directory,
    settings: &disk::Settings,
    believed: Believed,
    membership: Option<&Membership>,
    (logs, last_owner): (Option<&dyn Logs>, Option<&LastOwner>),
    withholds: bool,
) -> Result<(Vec<Started>, Clock, Begun), ServeError> {
    let on_disk = shards_on_disk(&OsFiles, &settings.data)?;
    let shards = shards(directory, settings, membership, &on_disk)?;
    let mut reads = read_all(directory, &shards, settings, believed, logs.is_some())?;
    let (mut owned, mut noted) = (BTreeMap::new(), KeptNotes::default());
    if let Some(logs) = logs {
        let placement = crate::shared_logs::placement(directory, membership);
        refuse_more_shards(logs, membership, shards.len())?;
        let lockout_max = open::lockout_max(&OsFiles, settings, directory)?;
        let reached = reached_ends(&shards, last_owner, lockout_max);
        let opened = open_logs(logs, &shards, &placement, &reached)?;
        for log in opened.values() {
            noted.gaps.merge(&log.notes.gaps);
            noted.overflow.merge(&log.notes.overflow);
        }
        (reads, owned) = take_over(reads, logs, &opened, (directory, settings, believed))?;
    }
    let start = Start {
        files: &OsFiles,
        settings,
        directory,
        reading: reading(),
        on_disk: &on_disk,
        has_log: logs.is_some(),
        noted: &noted,
        last_owner,
        member: membership.map(|it| (&*it.own().shards, it.cluster().version())),
        withholds,
        only: None,
    };
    let open::Begun { shards, clocks, facts, copied, held } = open::begin(reads, &start)?;
    open::report_copied(settings, copied);
    let clock = Clock::going_on(clocks, start.reading.since_boot);
    let started = |opened: Opened<OsFiles>| {
        let log = owned.remove(&opened.shard);
        started(opened, log, settings)
    };
    let started = shards.into_iter().map(started).collect();
    for (shard, ring_pools) in held.into_iter().filter(|(_, pools)| *pools > 0) {
        tracing::warn!(
            shard,
            ring_pools,
            "another node may have served some of this shard's pools, so these pools answer with \
            overflow numbers until lockouts on that node would have ended: /readyz shows the time \
            left"
        );
    }
    Ok((started, clock, facts))
}

/// Returns the shards that are to be opened.
fn shards(
    directory: &Directory,
    settings: &disk::Settings,
    membership: Option<&Membership>,
    on_disk: &[u16],
) -> Result<Vec<u16>, ServeError> {
    let own: Vec<u16> = match membership {
        Some(membership) => membership.own().shards.clone(),
        None => (0..directory.shards()).collect(),
    };
    match settings.durability {
        Durability::Memory => {
            if !on_disk.is_empty() {
                tracing::warn!(
                    data = %settings.data.display(),
                    "with durability `memory`, the existing journal is ignored: numbers that are \
                        still locked out may be handed out again. After the next start with \
                        another durability, all pools answer with overflow numbers for the \
                        longest lifetime"
                );
            }
            Ok(own)
        }
        Durability::Disk | Durability::Os => {
            let foreign = on_disk.iter().find(|shard| !own.contains(shard));
            if let (Some(membership), Some(&shard)) = (membership, foreign) {
                let (data, node) = (settings.data.clone(), membership.own().name.clone());
                return Err(ServeError::ForeignShard { shard, data, node });
            }
            let known = own.iter().chain(on_disk).max().map_or(0, |last| last + 1);
            Ok(if membership.is_some() { own } else { (0..known).collect() })
        }
    }
}

/// A log that was opened.
struct OpenLog {
    log: Arc<dyn SharedLog>,
    notes: LogNotes,
    /// The position after the last message that the log contained before this process opened it.
    end: u64,
    /// The latest end of the log that other processes have reported.
    reached: LogEnd,
}

type OpenLogs = BTreeMap<u16, OpenLog>;

/// Opens the logs of all shards. All logs are created before a message is appended to any of them.
/// If one log contains messages and another does not exist, the missing log must therefore have
/// been lost.
fn open_logs(
    logs: &dyn Logs,
    shards: &[u16],
    placement: &str,
    reached: &BTreeMap<u16, LogEnd>,
) -> Result<OpenLogs, ServeError> {
    let found = each(shards.iter().copied(), |shard| {
        Ok((shard, logs.find(shard).map_err(ServeError::Log)?))
    })?;
    let (all, lost) = (shards.iter().copied().collect(), lost_logs(&found, reached));
    let (all, lost): (&BTreeSet<u16>, _) = (&all, &lost);
    let opened = each(found.into_iter(), |(shard, found)| {
        let notes = found.notes(all, lost.contains(&shard));
        let log = logs.log(shard, placement, &notes).map_err(ServeError::Log)?;
        let (end, reached) = (found.end(), reached.get(&shard).copied().unwrap_or_default());
        Ok((shard, OpenLog { log, notes, end, reached }))
    })?;
    Ok(opened.into_iter().collect())
}

/// Calls `work` for each item, each time on a new thread.
fn each<I: Send, T: Send>(
    items: impl Iterator<Item = I>,
    work: impl Fn(I) -> Result<T, ServeError> + Sync,
) -> Result<Vec<T>, ServeError> {
    let work = &work;
    std::thread::scope(|scope| {
        let begin = |item| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || work(item));
            thread.map_err(ServeError::Thread)
        };
        let threads = items.map(begin).collect::<Result<Vec<_>, _>>()?;
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or(Err(ServeError::ReaderPanicked))
        };
        threads.into_iter().map(join).collect()
    })
}

/// For each shard, reads the part of its log that is missing from this machine's files, and takes
/// over the shard.
fn take_over(
    reads: Vec<Read>,
    logs: &dyn Logs,
    opened: &OpenLogs,
    of: ShardFiles<'_>,
) -> Result<(Vec<Read>, BTreeMap<u16, ShardLog>), ServeError> {
    let followed = each(reads.into_iter(), |read| follow(read, logs, opened, of))?;
    Ok(followed.into_iter().unzip())
}

/// Refuses to start if a log exists for the shard with the number `shards`, because no shard of
/// this process would respect the lockouts in that log.
fn refuse_more_shards(
    logs: &dyn Logs,
    membership: Option<&Membership>,
    shards: usize,
) -> Result<(), ServeError> {
    let next = u16::try_from(shards).unwrap_or(u16::MAX);
    if membership.is_none() && logs.has_log(next).map_err(ServeError::Log)? {
        return Err(ServeError::Log(format!(
            "the NATS servers have a stream for shard {next}, but this process has only {shards} \
                shards: start with the same number of shards as before. To continue with fewer \
                shards, stop all Ringwell processes for the longest lifetime, and then use \
                another `stream`"
        )));
    }
    Ok(())
}

/// The directory, the file settings, and how far the files may be trusted.
type ShardFiles<'a> = (&'a Directory, &'a disk::Settings, Believed);

fn follow(
    read: Read,
    logs: &dyn Logs,
    opened: &OpenLogs,
    (directory, settings, believed): ShardFiles<'_>,
) -> Result<(Read, (u16, ShardLog)), ServeError> {
    let (shard, began) = (read.shard, Instant::now());
    let OpenLog { log, notes, end, reached } = &opened[&shard];
    let log = Numbered::new(Arc::clone(log), shard);
    let snapshots = logs.snapshots(shard).map_err(ServeError::Log)?;
    let specs = open::specs(directory.pools_of(shard));
    let source = CopySource {
        snapshots: &*snapshots,
        settings,
        specs: &specs,
        believed,
        is_replacement: notes.is_replacement,
        end: *end,
        reached: *reached,
        failed_at: notes.failed_at,
    };
    let followed = open::follow(&Tokio, &OsFiles, read, &log, &source);
    let followed = current_thread()?.block_on(LocalSet::new().run_until(followed));
    let open::Followed { read, author, prefix, kept, groups } =
        followed.map_err(|error| ServeError::Log(error.to_string()))?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        shard,
        took_ms,
        groups,
        snapshot = read.has_snapshot,
        epoch = read.recovered.tip.epoch,
        "read the journal's log and took over the shard"
    );
    let limits = HistoryLimits { bytes: settings.history_bytes, age: settings.history_age };
    Ok((read, (shard, ShardLog { log, author, snapshots, kept, prefix, limits })))
}

/// Reads the files of all shards, each on a separate thread.
fn read_all(
    directory: &Directory,
    shards: &[u16],
    settings: &disk::Settings,
    believed: Believed,
    are_copies: bool,
) -> Result<Vec<Read>, ServeError> {
    each(shards.iter().copied(), |shard| read(shard, directory, settings, believed, are_copies))
}

/// Reads one shard's newest complete snapshot, and the part of the journal after the snapshot.
fn read(
    shard: u16,
    directory: &Directory,
    settings: &disk::Settings,
    believed: Believed,
    is_copy: bool,
) -> Result<Read, ServeError> {
    let began = Instant::now();
    let specs = open::specs(directory.pools_of(shard));
    let read = if is_copy { open::read_copy } else { open::read };
    let read = read(&OsFiles, settings, shard, &specs, believed)?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        shard,
        took_ms,
        snapshot = read.has_snapshot,
        groups = read.recovered.frames,
        verdict = %read.recovered.verdict,
        "read the journal"
    );
    Ok(read)
}

impl From<OverflowTaken> for ServeError {
    fn from(taken: OverflowTaken) -> Self {
        Self::Start(taken.into())
    }
}

/// Logs the reasons to doubt a shard's clock or history, and returns everything that the shard
/// needs to serve.
fn started(opened: Opened<OsFiles>, log: Option<ShardLog>, settings: &disk::Settings) -> Started {
    let Opened { shard, engine, store, doubts, verdict } = opened;
    let directory = settings.shard_directory(u32::from(shard));
    if let Some(by) = doubts.lengthened {
        tracing::warn!(
            shard,
            by_ms = by.0,
            "the machine was rebooted, so only the wall clock shows how much time has passed, and \
                this clock may be wrong: to be safe, running lockouts were extended"
        );
    }
    if doubts.wall_less_shard.unsigned_abs() > WALL_APART_WARNED.0 {
        tracing::warn!(
            shard,
            wall_ahead_ms = doubts.wall_less_shard,
            "the wall clock differs from this server's time, because the wall clock was set or \
                is wrong. Lockouts are not affected; look-ups use the wall clock"
        );
    }
    if let Some(until) = doubts.held_until {
        tracing::error!(
            shard,
            until_ms = until.0,
            journal = %directory.display(),
            %verdict,
            "the last answered allocations may be lost: all pools of the shard answer with \
                overflow numbers for the longest lifetime, then resume by themselves. If the \
                verdict mentions damage, check the disk; `ringwell journal verify` checks the \
                whole journal"
        );
    }
    Started { shard, engine, store, log, lengthened: doubts.lengthened }
}
