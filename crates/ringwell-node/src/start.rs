//! From files to engines: reads every shard's snapshot and journal, lets numbers that changed
//! shards take their lockouts along, and opens the journals for writing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ringwell_core::{Millis, PoolSpec};
use ringwell_directory::{BucketHold, BucketHolds, Config, Directory, RingPool, SHARDS_MAX};
use ringwell_engine::{Doubts, Engine, Recorded, Restore, lockout};
use ringwell_journal::{Chunk, Durability, Recovered, Snapshot};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::ServeError;
use crate::clock::{Clock, WALL_APART_WARNED};
use crate::disk::{
    self, Flushed, Gaps, Identity, InlineJournal, Journal, OsFiles, ServedMap, ShardStore,
};
use crate::run::disk_settings;
use ringwell_driver::membership::Membership;
use ringwell_driver::node::Begun;

/// A shard that can serve.
pub(crate) struct Started {
    pub(crate) shard: u16,
    pub(crate) engine: Engine,
    pub(crate) journal: Journal,
    pub(crate) flushed: UnboundedReceiver<Flushed>,
    /// Lockouts were lengthened by this, and no record says so: the shard must not go on before a
    /// snapshot does.
    pub(crate) lengthened: Option<Millis>,
}

/// How much of what is read is believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Believed {
    /// Rows of repeatable batches whose answers are remembered.
    answer_rows_max: usize,
    /// See [`Config::clock_skew_max`].
    clock_skew_max: Millis,
}

impl Believed {
    /// As configured.
    pub(crate) fn of(config: &Config) -> Self {
        let skew = u64::try_from(config.clock_skew_max.as_millis()).unwrap_or(u64::MAX);
        let answer_rows_max = config.limits.idempotency_rows;
        Self { answer_rows_max, clock_skew_max: Millis(skew) }
    }

    fn restore(self, specs: &[PoolSpec]) -> Restore {
        let mut restore = Restore::new(specs.to_vec(), self.answer_rows_max);
        restore.believe(self.clock_skew_max);
        restore
    }
}

/// A shard whose files have been read and not yet changed.
struct Read {
    shard: u16,
    store: ShardStore,
    restore: Restore,
    recovered: Recovered,
    /// Answered allocations of pools that may be here may be missing.
    is_in_doubt: bool,
}

/// Opens all shards of the directory. Shards that only the journals know have no pools any more:
/// they give their lockouts to those that own the numbers now, and keep answering for history.
///
/// # Errors
/// [`ServeError`] if a journal is damaged or cannot be read; nothing has been changed then.
pub(crate) fn start(
    directory: &Directory,
    settings: &disk::Settings,
    believed: Believed,
    membership: Option<&Membership>,
) -> Result<(Vec<Started>, Clock, Begun), ServeError> {
    let own: Vec<u16> = match membership {
        Some(membership) => membership.own().shards.clone(),
        None => (0..directory.shards()).collect(),
    };
    let on_disk = shards_on_disk(&settings.data)?;
    let shards = match settings.durability {
        Durability::Memory => {
            if !on_disk.is_empty() {
                tracing::warn!(
                    data = %settings.data.display(),
                    "durability memory passes over the journal that is there: numbers that are \
                     still locked out may go out again"
                );
            }
            own
        }
        Durability::Disk | Durability::Os => {
            let foreign = on_disk.iter().find(|shard| !own.contains(shard));
            if let (Some(membership), Some(&shard)) = (membership, foreign) {
                let (data, node) = (settings.data.clone(), membership.own().name.clone());
                return Err(ServeError::ForeignShard { shard, data, node });
            }
            let known = own.iter().chain(&on_disk).max().map_or(0, |last| last + 1);
            if membership.is_some() { own } else { (0..known).collect() }
        }
    };
    let mut reads = std::thread::scope(|scope| {
        let readers: Vec<_> = shards
            .into_iter()
            .map(|shard| {
                scope.spawn(move || {
                    read(shard, &specs(directory.pools_of(shard)), settings, believed)
                })
            })
            .collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or(Err(ServeError::ReaderPanicked)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let is_copy = is_copy(settings, &on_disk)?;
    for read in &mut reads {
        read.is_in_doubt |= is_copy;
    }
    let recorded_until = recorded_until(&reads);
    let is_in_doubt = reads.iter().any(|read| read.is_in_doubt);
    let clock = agree(&mut reads, directory)?;
    let is_new = |read: &&Read| read.recovered.tip.last_at == Millis::ZERO;
    let new_shards: Vec<u16> = reads.iter().filter(is_new).map(|read| read.shard).collect();
    let journals = reads.iter().map(|read| (read.shard, read.recovered.tip.next_n)).collect();
    let mut started =
        reads.into_iter().map(|read| open(read, &clock)).collect::<Result<Vec<_>, _>>()?;
    let mut begun = Begun { journals, ..Begun::default() };
    if settings.durability != Durability::Memory {
        begun.is_first = on_disk.is_empty();
        begun.identity = Identity::read_or_draw(&OsFiles, &settings.data)?.id;
        begun.recorded_until = recorded_until;
        begun.gaps = Gaps::read(&OsFiles, &settings.data)?;
        if is_in_doubt {
            begun.gaps.add(recorded_until, clock.clocks().wall(clock.now()));
            begun.gaps.write(&OsFiles, &settings.data)?;
        }
    }
    if let Some(membership) = membership.filter(|_| settings.durability != Durability::Memory) {
        let served = ServedMap::read(&OsFiles, &settings.data)?;
        let new = new_buckets(directory, membership, served.as_ref(), &new_shards)?;
        let mut holds = known_holds(served, &started, &settings.data)?;
        let since = BucketHold { since: clock.now(), until: Millis::ZERO };
        for bucket in new {
            holds.add(bucket, since);
        }
        hold_buckets(&mut started, directory, &holds, clock.now());
        begun.holds = holds;
    }
    Ok((started, clock, begun))
}

/// Buckets that were held when this data was served last, or are still. If the clock has leapt, they
/// are held for longer by that, and the file says so before a snapshot makes this start's time the
/// newest that is known: the start after it sees no leap.
fn known_holds(
    served: Option<ServedMap>,
    started: &[Started],
    data: &Path,
) -> Result<BucketHolds, ServeError> {
    let Some(mut served) = served else { return Ok(BucketHolds::default()) };
    let ahead = started.iter().filter_map(|shard| shard.lengthened).max();
    if let Some(ahead) = ahead.filter(|_| !served.holds.is_empty()) {
        served.holds.prolong(ahead);
        served.write(&OsFiles, data)?;
    }
    Ok(served.holds)
}

/// By the wall clock, a time up to which the journals of all shards record what was answered; zero if
/// none records anything.
fn recorded_until(reads: &[Read]) -> Millis {
    let recorded = reads.iter().map(|read| read.restore.recorded(&read.recovered.tip));
    let recorded = recorded.filter(|recorded| recorded.last_at > Millis::ZERO);
    let wall = |it: Recorded| it.clocks.map_or(it.last_at, |clocks| clocks.wall(it.last_at));
    recorded.map(wall).min().unwrap_or_default()
}

/// Brings shards that were read for themselves together: lockouts, and what time it is.
fn agree(reads: &mut [Read], directory: &Directory) -> Result<Clock, ServeError> {
    adopt(reads);
    let recorded = |read: &Read| read.restore.recorded(&read.recovered.tip);
    let recorded: Vec<Recorded> = reads.iter().map(recorded).collect();
    let clock = Clock::resume(&recorded);
    let (clocks, now) = (clock.clocks(), clock.now());
    check_overflow(directory, reads, now)?;
    for read in reads {
        // All shards of a process have one time, and the newest has come for every one: lockouts
        // that are taken over and holds for doubts count from there, also by a clock that was set
        // back.
        read.restore.clock_elsewhere(now);
        read.restore.resume(clocks);
    }
    Ok(clock)
}

/// A directory's only shard, served by the thread that asks.
#[derive(Debug)]
pub struct Alone {
    /// Its state.
    pub engine: Engine,
    /// Stores what the engine has sealed.
    pub journal: InlineJournal,
    /// What time it is.
    pub clock: Clock,
    /// What the start had to do about time or damage. If lockouts were lengthened, no number may go out
    /// before a snapshot is taken, because no record says that lockouts were lengthened.
    pub doubts: Doubts,
}

/// Opens a directory of one shard without starting a thread. Other shards that the journals know
/// give it their lockouts, and their files stay as they are.
///
/// # Errors
/// [`ServeError`] as of a server; nothing has been changed then.
pub fn open_alone(
    config: &Config,
    directory: &Directory,
    durability: Durability,
) -> Result<Alone, ServeError> {
    let settings = disk_settings(config, directory, durability);
    let others = match durability {
        Durability::Memory => Vec::new(),
        Durability::Disk | Durability::Os => shards_on_disk(&settings.data)?,
    };
    let is_copy = is_copy(&settings, &others)?;
    let last = others.into_iter().max().unwrap_or_default();
    let believed = Believed::of(config);
    let read = |shard| read(shard, &specs(directory.pools_of(shard)), &settings, believed);
    let mut reads = (0..=last).map(read).collect::<Result<Vec<_>, _>>()?;
    for read in &mut reads {
        read.is_in_doubt |= is_copy;
    }
    let clock = agree(&mut reads, directory)?;
    let Read { store, restore, recovered, is_in_doubt, .. } = reads.swap_remove(0);
    let (journal, tip) = store.start_inline(recovered)?;
    let (engine, doubts) = restore.finish(tip, clock.now(), is_in_doubt);
    Ok(Alone { engine, journal, clock, doubts })
}

/// The buckets that this node owns now.
fn buckets(directory: &Directory, membership: &Membership) -> BTreeSet<u16> {
    let of = |shard: &u16| directory.placement().buckets_of(*shard);
    membership.own().shards.iter().flat_map(of).collect()
}

/// The buckets that another node may have served last. The first map brings none: nobody has
/// served before. A shard with a journal and without a map served its buckets without a cluster, or
/// was stopped before it wrote down its first map. If maps were passed over, all may have been
/// elsewhere in between.
fn new_buckets(
    directory: &Directory,
    membership: &Membership,
    served: Option<&ServedMap>,
    new_shards: &[u16],
) -> Result<BTreeSet<u16>, ServeError> {
    let own = buckets(directory, membership);
    let version = membership.cluster().version();
    let of = |shard: &u16| directory.placement().buckets_of(*shard);
    Ok(match served {
        Some(served) if served.version > version => {
            return Err(ServeError::OldMap { version, served: served.version });
        }
        Some(served) if served.version + 1 < version => own,
        Some(served) => own.difference(&served.buckets).copied().collect(),
        None if version > 1 => new_shards.iter().flat_map(of).collect(),
        None => BTreeSet::new(),
    })
}

/// Pools of buckets that came without the lockouts of the node before hand out nothing for a
/// lifetime from then on. Holds that are over are known all the same: see `Facts::settle_apart`.
fn hold_buckets(started: &mut [Started], directory: &Directory, holds: &BucketHolds, now: Millis) {
    if holds.is_empty() {
        return;
    }
    for Started { shard, engine, .. } in started {
        let mut held = 0;
        for pool in directory.pools_of(*shard) {
            let Some(until) = holds.until(pool.id(), spec(pool).lifetime) else { continue };
            engine.hold_unrecorded(pool.id(), until);
            held += u64::from(until > now);
        }
        if held > 0 {
            tracing::warn!(
                shard = *shard,
                ring_pools = held,
                "another node may have served these pools: they answer with overflow numbers for one lifetime"
            );
        }
    }
}

/// The shards that have files.
fn shards_on_disk(data: &Path) -> Result<Vec<u16>, ServeError> {
    let entries = match std::fs::read_dir(data.join("journal")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ServeError::Data { path: data.to_owned(), error }),
    };
    let mut shards = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| ServeError::Data { path: data.to_owned(), error })?;
        let shard = entry.file_name().to_str().and_then(|name| name.parse::<u16>().ok());
        shards.extend(shard.filter(|shard| *shard < SHARDS_MAX));
    }
    Ok(shards)
}

/// A pool as its shard has it.
pub(crate) fn spec(pool: &RingPool) -> PoolSpec {
    PoolSpec { lifetime: lockout(pool.lifetime()), ..pool.spec() }
}

fn specs<'a>(pools: impl Iterator<Item = &'a Arc<RingPool>>) -> Vec<PoolSpec> {
    pools.map(|pool| spec(pool)).collect()
}

/// Reads one shard's newest whole snapshot and the journal after it.
fn read(
    shard: u16,
    specs: &[PoolSpec],
    settings: &disk::Settings,
    believed: Believed,
) -> Result<Read, ServeError> {
    let began = Instant::now();
    let store = ShardStore::open(&OsFiles, settings, u32::from(shard))?;
    let mut restore = believed.restore(specs);
    let mut newest = None;
    for reference in store.snapshots()? {
        match load(&store, &reference, &mut restore) {
            Ok(snapshot) => {
                newest = Some(snapshot);
                break;
            }
            Err(error) => {
                tracing::warn!(shard, error, "a snapshot cannot be used; trying the one before");
                restore = believed.restore(specs);
            }
        }
    }
    let recovered = store.recover(newest.as_ref(), |header, body| restore.group(header, body))?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        shard,
        took_ms,
        snapshot = newest.is_some(),
        groups = recovered.frames,
        verdict = %recovered.verdict,
        "read the journal"
    );
    let is_in_doubt = recovered.is_in_doubt();
    Ok(Read { shard, store, restore, recovered, is_in_doubt })
}

/// Whether allocations that were answered may be in another journal: this one was put back from a
/// copy, or was removed from a directory that has been served before.
fn is_copy(settings: &disk::Settings, on_disk: &[u16]) -> Result<bool, ServeError> {
    let data = &settings.data;
    if settings.durability == Durability::Memory {
        return Ok(false);
    }
    if disk::is_restored(&OsFiles, data) {
        tracing::error!(
            data = %data.display(),
            "this data directory was restored from a copy: what was answered since the copy is not \
             known. All pools answer with overflow numbers for the longest lifetime, then go on by \
             themselves; nothing has to be done"
        );
        return Ok(true);
    }
    let is_copy = on_disk.is_empty() && Identity::read(&OsFiles, data)?.is_some();
    if is_copy {
        tracing::error!(
            data = %data.display(),
            "this data directory has been served before, and its journal is not there any more: all \
             pools answer with overflow numbers for the longest lifetime, then go on by themselves. If \
             the journal was moved, stop the server and bring it back"
        );
    }
    Ok(is_copy)
}

fn load(
    store: &ShardStore,
    reference: &disk::SnapshotRef,
    restore: &mut Restore,
) -> Result<Snapshot, String> {
    let mut reader = store.read_snapshot(reference).map_err(|error| error.to_string())?;
    restore.clock(reader.header().created_at, reader.header().clocks);
    while let Some(chunk) = reader.next_chunk().map_err(|error| error.to_string())? {
        match chunk {
            Chunk::Numbers(entries) => entries.for_each(|entry| restore.number(&entry)),
            Chunk::Answers(entries) => entries.for_each(|entry| restore.answer(&entry)),
            Chunk::Holds(entries) => entries.for_each(|entry| restore.hold(&entry)),
            Chunk::Told(entries) => entries.for_each(|entry| restore.told(&entry)),
        }
    }
    reader.end().copied().ok_or_else(|| "it has no end".to_owned())
}

/// Gives every lockout to the shard that owns its number now. If there are any, the directory or
/// the number of shards has changed: then every shard gets to know all answers of repeatable
/// batches, because it may own their pools now.
fn adopt(reads: &mut [Read]) {
    let retired: Vec<_> = reads.iter().flat_map(|read| read.restore.retired()).copied().collect();
    let has_new = reads.iter().any(|read| read.recovered.tip.last_at == Millis::ZERO);
    adopt_doubts(reads, has_new || !retired.is_empty());
    if retired.is_empty() {
        return;
    }
    for number in &retired {
        for read in reads.iter_mut() {
            read.restore.adopt(number);
        }
    }
    let mut answers: Vec<_> = reads.iter().flat_map(|read| read.restore.answers()).collect();
    answers.sort_by_key(|answer| (answer.at, answer.row));
    for read in reads {
        read.restore.know_answers(&answers);
    }
}

/// An overflow number goes to everybody: none may be somebody's own.
fn check_overflow(directory: &Directory, reads: &[Read], now: Millis) -> Result<(), ServeError> {
    for retired in reads.iter().flat_map(|read| read.restore.retired()) {
        let number = retired.slot.number;
        if retired.slot.locked_until > now
            && let Some(pool) = directory.overflow_pools(number).first()
        {
            let seconds = (retired.slot.locked_until - now).0.div_ceil(1000);
            return Err(ServeError::OverflowInUse { number, pool: *pool, seconds });
        }
    }
    Ok(())
}

/// Tells every shard of pools that are held: they may be its own now. If pools have moved, what is
/// in doubt in one journal may concern any shard.
fn adopt_doubts(reads: &mut [Read], have_moved: bool) {
    let holds: Vec<_> = reads.iter().flat_map(|read| read.restore.holds()).collect();
    let longest = reads.iter().map(|read| read.restore.lockout_max()).max().unwrap_or_default();
    let is_in_doubt = reads.iter().any(|read| read.is_in_doubt);
    for read in reads {
        for (pool, until) in &holds {
            if pool.is_some() || have_moved {
                read.restore.adopt_hold(*pool, *until);
            }
        }
        read.restore.know_lockout(longest);
        read.is_in_doubt |= is_in_doubt && have_moved;
    }
}

/// Opens a shard's journal for writing and makes its engine.
fn open(read: Read, clock: &Clock) -> Result<Started, ServeError> {
    let Read { shard, store, restore, recovered, is_in_doubt } = read;
    let (directory, verdict) = (store.directory().to_owned(), recovered.verdict);
    let (sender, flushed) = unbounded_channel();
    // The shard's thread has ended if nobody listens.
    let tell = Box::new(move |told| drop(sender.send(told)));
    let (journal, tip) = Journal::start(store, recovered, tell)?;
    let (engine, doubts) = restore.finish(tip, clock.now(), is_in_doubt);
    if let Some(by) = doubts.lengthened {
        tracing::warn!(
            shard,
            by_ms = by.0,
            "the machine was booted since, so that only its wall clock says how long that took: \
             lockouts that ran before last longer by this"
        );
    }
    if doubts.wall_less_shard.unsigned_abs() > WALL_APART_WARNED.0 {
        tracing::warn!(
            shard,
            wall_ahead_ms = doubts.wall_less_shard,
            "the wall clock is not where this server's time is: it was set, or it is wrong. Lockouts \
             are as they should be; look-ups go by the wall clock"
        );
    }
    if let Some(until) = doubts.held_until {
        tracing::error!(
            shard,
            until_ms = until.0,
            journal = %directory.display(),
            %verdict,
            "what was answered last may be lost: all pools of the shard answer with overflow numbers \
             for one lockout, then go on by themselves. If the verdict names damage, look at the disk; \
             `ringwell journal verify` reads all of the journal"
        );
    }
    Ok(Started { shard, engine, journal, flushed, lengthened: doubts.lengthened })
}
