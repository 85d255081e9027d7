//! From files to engines: reads every shard's snapshot and journal, moves the lockouts of numbers
//! that changed shards, determines the time, and opens the journals for writing.
//!
//! ```text
//! read    each shard for itself; changes no file that counts
//! agree   all shards of the process: lockouts, doubts, answers, and what time it is
//! open    each shard: its journal for writing, and its engine
//! hold    the buckets that came without the lockouts of the previous owner
//! ```
//!
//! Plain functions over the store; the server, the embedded engine and the simulator call them in
//! this order. Source: docs/spec/journal.md, docs/spec/cluster.md.

mod agree;
mod beginning;
mod fetch;
mod follow;
mod hold;
mod lost;
mod read;

pub use agree::{OverflowTaken, agree};
pub use fetch::discard_unfinished;
pub use follow::{Beside, FollowError, Followed, follow, placement_name};
pub use hold::{OldMap, hold_buckets};
pub use read::{
    Believed, Copied, Read, copied, read, read_copy, replaced_journal, report_copied,
    shards_on_disk, specs,
};

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use read::KeptIn;
use ringwell_core::Millis;
use ringwell_directory::{BucketHolds, Directory, Owner};
use ringwell_engine::{Clocks, Doubts, Engine, Reading, Recorded};
use ringwell_journal::{Cut, Durability, Noted, Verdict};

use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::lifetimes::{self, Lifetimes};
use crate::lists::{self, Lists};
use crate::node;
use crate::store::{
    FileError, Files, Gaps, Identity, Inline, LastOwner, Memory, OverflowPeriods, ServedMap,
    Settings, WrittenJournal, note_unflushed, read_lifetimes, write_lifetimes,
};

/// The name of every data directory whose journals are copies of logs, because only the log may
/// have lost data.
const IN_LOG: &str = "log";

/// The inputs of a startup in addition to the files of its shards.
#[derive(Debug)]
pub struct Start<'a, F> {
    /// The files.
    pub files: &'a F,
    /// The place and the settings of journals.
    pub settings: &'a Settings,
    /// The pools, with the owners that this data last served.
    pub directory: &'a Directory,
    /// The clocks of the machine.
    pub reading: Reading,
    /// The shards that had files before.
    pub on_disk: &'a [u16],
    /// Whether the journals are in a log, and the files are copies of it.
    pub has_log: bool,
    /// The gaps that the notes of the logs record.
    pub noted_gaps: &'a Gaps,
    /// The time of another process that served the same shards, from its last heartbeat.
    pub last_owner: Option<&'a LastOwner>,
    /// In a cluster: the shards of this node, and the version of the cluster file.
    pub member: Option<(&'a [u16], u64)>,
    /// Opens only this shard: it takes over the lockouts of the others, whose files stay unchanged.
    pub only: Option<u16>,
}

/// Shards that can serve, and the facts that concern all of them.
#[derive(Debug)]
pub struct Begun<F: Files> {
    /// The shards.
    pub shards: Vec<Opened<F>>,
    /// The machine's clocks, and the shard time computed from them.
    pub clocks: Clocks,
    /// Buckets that arrived without the lockouts of the previous owner.
    pub holds: BucketHolds,
    /// The name of the data directory; empty if nothing is stored.
    pub identity: String,
    /// A time by the wall clock up to which the journals of all shards are complete; zero if none
    /// has a record.
    pub recorded_until: Millis,
    /// The times in which answered allocations may be missing.
    pub gaps: Gaps,
    /// The periods in which numbers were overflow numbers.
    pub overflow_periods: OverflowPeriods,
    /// The clock readings that the journals of all shards have recorded.
    pub noted: Vec<Noted>,
    /// The lists of pools that are served.
    pub lists: Lists,
    /// The lists that this data has served before; `None` if it has served none.
    pub served_lists: Option<Lists>,
    /// The longest lifetimes of the pools that are served, and of those served before.
    pub lifetimes: Lifetimes,
    /// Buckets that this data has served after they had become another node's.
    pub stale: BTreeSet<u16>,
    /// Owners that took buckets back, because this node had not accepted them.
    pub abandoned: BTreeMap<u16, Owner>,
    /// Identifies the machine's boot.
    pub boot: u64,
    /// The time until which numbers that enter a pool may be locked by allocations that this data
    /// has lost.
    pub unknown_until: Millis,
    /// The reason why all of the data was in doubt, if it was.
    pub copied: Option<Copied>,
    /// For each shard that is not in doubt, the count of its pools that are held because of a
    /// bucket.
    pub held: Vec<(u16, u64)>,
}

impl<F: Files> Begun<F> {
    /// Records the facts that must be durable before an answer: the boot, the name of the data
    /// directory with its `journals`, and the periods in which answered allocations may be
    /// `missing`.
    fn note(
        &mut self,
        start: &Start<'_, F>,
        mut journals: BTreeMap<u16, WrittenJournal>,
        missing: &[(Millis, Millis)],
    ) -> Result<(), FileError> {
        let Start { files, settings: Settings { data, durability, .. }, has_log, .. } = *start;
        if !has_log {
            note_unflushed(files, data, *durability, self.boot)?;
        }
        let is_copy = self.copied.is_some() && !planted(Bug::CopyKeepsName);
        let draw = if is_copy { Identity::draw } else { Identity::read_or_draw };
        journals.extend(self.shards.iter().filter_map(Opened::journal));
        if has_log {
            // A log has its own record of the shards.
            journals.clear();
        }
        let identity = draw(files, data, journals.clone())?;
        let is_recorded = identity.journals == journals;
        self.identity = if has_log { IN_LOG.to_owned() } else { identity.id };
        self.gaps = Gaps::read(files, data)?;
        self.overflow_periods = OverflowPeriods::read(files, data, start.reading.wall)?;
        // Another machine may have noticed a loss.
        self.gaps.merge(start.noted_gaps);
        for (from, until) in missing {
            self.gaps.add(*from, *until);
        }
        if !missing.is_empty() {
            self.gaps.write(files, data)?;
        }
        if is_recorded {
            // The record no longer refers to the starts that left empty segments.
            self.shards.iter().try_for_each(Opened::remove_empty)?;
        }
        Ok(())
    }

    /// The findings, for the node. `journals` are the shards' next groups; `is_first` means that
    /// nothing had been served from the data before.
    pub fn findings(&mut self, is_first: bool, journals: Vec<(u16, u64)>) -> node::Begun {
        node::Begun {
            holds: take(&mut self.holds),
            identity: take(&mut self.identity),
            is_first,
            journals,
            recorded_until: self.recorded_until,
            gaps: take(&mut self.gaps),
            overflow_periods: take(&mut self.overflow_periods),
            noted: take(&mut self.noted),
            lists: take(&mut self.lists),
            served_lists: take(&mut self.served_lists),
            lifetimes: self.lifetimes,
            stale: take(&mut self.stale),
            abandoned: take(&mut self.abandoned),
            boot: self.boot,
            unknown_until: self.unknown_until,
        }
    }
}

/// A shard that can serve.
#[derive(Debug)]
pub struct Opened<F: Files> {
    /// The shard's index.
    pub shard: u16,
    /// Its state.
    pub engine: Engine,
    /// Stores the groups that the engine seals.
    pub store: Inline<F>,
    /// The corrections of time or damage at startup. If lockouts were lengthened, no number may go
    /// out before a snapshot is taken, because no record shows the lengthening.
    pub doubts: Doubts,
    /// The end of the journal.
    pub verdict: Verdict,
}

impl<F: Files> Opened<F> {
    /// The shard and its journal, if it is in files.
    #[must_use]
    pub fn journal(&self) -> Option<(u16, WrittenJournal)> {
        let Inline::Left(journal) = &self.store else { return None };
        Some((self.shard, journal.written()))
    }

    /// Removes empty segments of earlier starts. One whose first frame is damaged stays, because
    /// each start must see it until a frame follows.
    fn remove_empty(&self) -> Result<(), FileError> {
        let Inline::Left(journal) = &self.store else { return Ok(()) };
        let doubted = match self.verdict {
            Verdict::Rotten(Cut { segno, .. }) => Some(segno),
            Verdict::Torn(_) | Verdict::Clean => None,
        };
        journal.remove_empty(doubted)
    }
}

/// The reason why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A visitor holds an overflow number.
    #[error(transparent)]
    Overflow(#[from] OverflowTaken),
    /// The cluster file is too old.
    #[error(transparent)]
    OldMap(#[from] OldMap),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Continues from the files of all shards: combines their facts, and opens each shard.
///
/// # Errors
/// [`StartError`]
pub fn begin<F: Files>(
    mut reads: Vec<Read<F>>,
    start: &Start<'_, F>,
) -> Result<Begun<F>, StartError> {
    let Start { files, settings, directory, .. } = *start;
    let has_files = settings.durability != Durability::Memory;
    let boot = start.reading.boot;
    let own = start.member.map(|(own, _)| own);
    let copied = if start.has_log { None } else { copied(files, settings, own, &reads, boot)? };
    for read in &mut reads {
        read.is_in_doubt |= copied.is_some();
    }
    let recorded_until = recorded_until(&reads);
    let noted = reads.iter().flat_map(Read::noted).collect();
    let heard = start.last_owner.filter(|owner| is_last_owner(owner, &reads));
    let heard = heard.map(|owner| owner.recorded);
    let clocks = agree(&mut reads, directory, &start.reading, heard)?;
    let now = clocks.shard(start.reading.since_boot);
    let doubtful: Vec<u16> =
        reads.iter().filter(|read| read.is_in_doubt).map(|read| read.shard).collect();
    let member = start.member.filter(|_| has_files);
    let served = if member.is_some() { ServedMap::read(files, &settings.data)? } else { None };
    let placement = directory.placement();
    let served_lists = served.as_ref().and_then(|served| served.lists.clone());
    let (stale, abandoned) = unsettled(served.as_ref(), member.map(|(_, version)| version));
    // This is like a change of the list: numbers that other nodes allocated under the former list
    // may still be locked.
    let (lifetimes, earlier) = follow_lists(&mut reads, start, served.as_ref(), now)?;
    let mut new = match member {
        // A shard in a log has no new buckets: its previous server left its lockouts in the log,
        // which refuses another placement.
        Some((own, version)) if !start.has_log => {
            hold::new_buckets(placement, version, own, served.as_ref())?
        }
        _ => BTreeSet::new(),
    };
    // Pools that are not in the list yet will be held for their own lifetimes, which may be longer
    // than all known ones.
    new.extend(doubtful.iter().flat_map(|shard| placement.buckets_of(*shard)));
    let journals = reads.iter().filter_map(Read::written).collect();
    let missing = missing(&reads, copied, (recorded_until, clocks.wall(now)));
    let opened = reads.into_iter().filter(|read| start.only.is_none_or(|it| it == read.shard));
    let shards = opened.map(|read| open(read, now)).collect::<Result<Vec<_>, _>>()?;
    let mut begun = Begun {
        shards,
        clocks,
        holds: BucketHolds::default(),
        identity: String::new(),
        recorded_until: Millis::ZERO,
        gaps: Gaps::default(),
        overflow_periods: OverflowPeriods::default(),
        noted,
        lists: lists::lists(directory),
        served_lists: None,
        lifetimes,
        stale,
        abandoned,
        boot,
        unknown_until: Millis::ZERO,
        copied,
        held: Vec::new(),
    };
    if has_files {
        begun.recorded_until = recorded_until;
        begun.note(start, journals, &missing)?;
    }
    begun.served_lists = served_lists;
    if member.is_some() && !new.is_empty() {
        begun.unknown_until = arrivals::unknown_until(lifetimes, now);
    }
    let ahead = begun.shards.iter().filter_map(|shard| shard.doubts.lengthened).max();
    let new = hold::New { buckets: new, at_least: earlier };
    begun.holds = hold::known_holds(files, &settings.data, served, ahead, new, now)?;
    for Opened { shard, engine, .. } in &mut begun.shards {
        let held = hold_buckets(engine, *shard, directory, &begun.holds, now);
        if !doubtful.contains(shard) {
            begun.held.push((*shard, held));
        }
    }
    Ok(begun)
}

/// The buckets whose moves other nodes may not know yet, if they moved by this version of the map:
/// [`ServedMap::stale`] and [`ServedMap::abandoned`].
fn unsettled(
    served: Option<&ServedMap>,
    version: Option<u64>,
) -> (BTreeSet<u16>, BTreeMap<u16, Owner>) {
    let of_map = served.filter(|served| version == Some(served.version));
    of_map.map(|it| (it.stale.clone(), it.abandoned.clone())).unwrap_or_default()
}

/// The periods in which answered allocations may be missing; `newest` is the one that ends with
/// this start.
fn missing<F: Files>(
    reads: &[Read<F>],
    copied: Option<Copied>,
    newest: (Millis, Millis),
) -> Vec<(Millis, Millis)> {
    let oldest = reads.iter().filter_map(|read| read.unknown_before).max();
    let is_in_doubt = reads.iter().any(|read| read.is_in_doubt);
    // If a journal is gone, nothing is known from its beginning on.
    let is_gone = match copied {
        Some(Copied::Replaced(shard)) => {
            reads.iter().find(|read| read.shard == shard).is_none_or(Read::is_new)
        }
        Some(_) => false,
        None => reads.iter().any(|read| read.is_in_doubt && read.is_new()),
    };
    let newest = if is_gone { (Millis::ZERO, newest.1) } else { newest };
    let oldest = oldest.map(|until| (Millis::ZERO, until));
    oldest.into_iter().chain(is_in_doubt.then_some(newest)).collect()
}

/// Records the lifetimes of this list and of earlier ones. Returns them, and the longest of earlier
/// lists whose lockouts may still run. Shards in doubt are held for the longest of them all.
fn follow_lists<F: Files>(
    reads: &mut [Read<F>],
    start: &Start<'_, F>,
    served: Option<&ServedMap>,
    now: Millis,
) -> Result<(Lifetimes, Millis), FileError> {
    let Start { files, settings, directory, .. } = *start;
    let has_files = settings.durability != Durability::Memory;
    let kept = if has_files { read_lifetimes(files, &settings.data)? } else { None };
    let before = kept.or(served.and_then(|served| served.lifetimes)).unwrap_or_default();
    // Lost allocations may be as old as the newest known one.
    let known_at = recorded_at(reads);
    for read in reads.iter_mut().filter(|_| !planted(Bug::LifetimesNotKept)) {
        read.restore.know_lockout(before.longest(known_at));
    }
    let lifetimes = before.followed_by(lifetimes::longest(directory), now);
    if has_files && kept != Some(lifetimes) {
        match write_lifetimes(files, &settings.data, lifetimes) {
            Err(error) if error.is_full() && kept.is_some_and(|it| it.covers(lifetimes, now)) => {
                tracing::warn!(
                    %error,
                    "lifetimes are not recorded: if answered allocations are lost, the next start \
                     may hold ring pools for longer than needed"
                );
            }
            written => written?,
        }
    }
    // The record may be from a former list whose lockouts still run.
    let earlier = before.followed_by(lifetimes::longest(directory), known_at).earlier(known_at);
    Ok((lifetimes, earlier))
}

/// The longest lockout under the current list of pools and the lists that this data has served
/// before.
///
/// # Errors
/// [`FileError`]
pub fn lockout_max(
    files: &impl Files,
    settings: &Settings,
    directory: &Directory,
) -> Result<Millis, FileError> {
    let before = read_lifetimes(files, &settings.data)?.unwrap_or_default();
    Ok(lifetimes::longest(directory).max(before.longest(Millis::ZERO)))
}

/// Whether the shards were taken over from `owner`: each take-over raises the epoch by one. A
/// process that has not noticed that it is fenced may use another clock.
fn is_last_owner<F: Files>(owner: &LastOwner, reads: &[Read<F>]) -> bool {
    let before = reads.iter().map(|read| read.recovered.tip.epoch.saturating_sub(1));
    before.eq(owner.epochs.iter().copied())
}

/// The newest time that a journal records.
fn recorded_at<F: Files>(reads: &[Read<F>]) -> Millis {
    reads.iter().map(|read| read.recorded().last_at).max().unwrap_or_default()
}

fn recorded_until<F: Files>(reads: &[Read<F>]) -> Millis {
    let recorded = reads.iter().map(Read::recorded);
    let recorded = recorded.filter(|recorded| recorded.last_at > Millis::ZERO);
    let wall = |it: Recorded| it.clocks.map_or(it.last_at, |clocks| clocks.wall(it.last_at));
    recorded.map(wall).min().unwrap_or_default()
}

/// Opens a shard's journal for writing and makes its engine. `now` is in shard time.
///
/// # Errors
/// [`FileError`]
pub fn open<F: Files>(read: Read<F>, now: Millis) -> Result<Opened<F>, FileError> {
    let Read { shard, kept, restore, recovered, is_in_doubt, .. } = read;
    let verdict = recovered.verdict;
    let (store, tip) = match kept {
        KeptIn::Files(store) => {
            let (journal, tip) = store.start_inline(recovered)?;
            (Inline::Left(journal), tip)
        }
        // The take-over has raised the epoch.
        KeptIn::Mirror(journal) => (Inline::Left(journal), recovered.tip),
        KeptIn::Memory { bytes_max } => {
            let store = Memory::new([0; 16], bytes_max);
            (Inline::Right(store), recovered.tip.raise_epoch())
        }
    };
    let (engine, doubts) = restore.finish(tip, now, is_in_doubt);
    Ok(Opened { shard, engine, store, doubts, verdict })
}
