//! Creates the shards' engines from their files. Reads every shard's snapshot and journal, moves
//! the lockouts of numbers that changed shards, determines the time, and opens the journals for
//! writing.
//!
//! ```text
//! read    each shard separately; changes no file that matters
//! agree   all shards of the process: lockouts, doubts, answers, and the time
//! open    each shard: its journal for writing, and its engine
//! hold    the buckets that came without their previous owner's lockouts
//! ```
//!
//! This module contains plain functions over the store. The server, the embedded engine and the
//! simulator call these functions in the order given above. Source: docs/spec/journal.md,
//! docs/spec/cluster.md.

mod agree;
mod ask;
mod beginning;
mod belongs;
mod copy_source;
mod doubted;
mod dropped;
mod fetch;
mod follow;
mod follow_error;
mod hold;
mod lost;
mod read;
mod unfinished;

pub use agree::{OverflowTaken, agree};
pub use belongs::{OfCluster, of_cluster, unnamed_journals};
pub use copy_source::CopySource;
pub use follow::{Followed, follow, placement_name};
pub use follow_error::FollowError;
pub use hold::{OldMap, hold_buckets};
pub use read::{
    Believed, Copied, Read, copied, read, read_copy, replaced_journal, report_copied,
    shards_on_disk, specs,
};
pub use unfinished::discard_unfinished;

use std::collections::{BTreeMap, BTreeSet};

use read::KeptIn;
use ringwell_config::Durability;
use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::{Directory, Owner, Owners};
use ringwell_engine::{Clocks, Doubts, Engine, Reading, Recorded};
use ringwell_journal::{Cut, Noted, Verdict};

use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::lifetimes::{self, Lifetimes};
use crate::lists;
use crate::node;
use crate::store::{
    Dated, Dating, FileError, Files, Gaps, Identity, Inline, KeptNotes, LastOwner, Memory,
    OverflowPeriods, ServedMap, Settings, WrittenJournal, flush_found_names, note_unflushed,
    read_lifetimes, write_lifetimes,
};
use crate::withheld;

/// The name given to every data directory whose journals are copies of logs. Such directories need
/// no individual names, because data is lost only if the log loses it.
const IN_LOG: &str = "log";

/// The inputs of a startup, in addition to the shards' files.
#[derive(Debug)]
pub struct Start<'a, F> {
    /// The files.
    pub files: &'a F,
    /// The location and the settings of the journals.
    pub settings: &'a Settings,
    /// The pools, placed on the owners that were last in use with this data directory.
    pub directory: &'a Directory,
    /// The machine's clocks.
    pub reading: Reading,
    /// The shards that already had files.
    pub on_disk: &'a [u16],
    /// Whether the journals are in a log and the files are only copies of it.
    pub has_log: bool,
    /// The periods in the notes of the logs.
    pub noted: &'a KeptNotes,
    /// The shard time of the process that served these shards before, from its last heartbeat.
    pub last_owner: Option<&'a LastOwner>,
    /// Only in a cluster: this node's shards, and the version of the cluster file.
    pub member: Option<(&'a [u16], u64)>,
    /// Whether an overflow number that a visitor holds is withheld from its pools until the lockout
    /// has ended. Otherwise, the node does not start.
    pub withholds: bool,
    /// If set, only this shard is opened. It takes over lockouts of the other shards, whose files
    /// stay unchanged.
    pub only: Option<u16>,
}

/// The shards that can serve, and the facts that concern all of them.
#[derive(Debug)]
pub struct Begun<F: Files> {
    /// The shards.
    pub shards: Vec<Opened<F>>,
    /// The machine's clocks, and the shard time that was computed from them.
    pub clocks: Clocks,
    /// The facts that the node needs.
    pub facts: node::Begun,
    /// The reason why the history of all shards is in doubt, if it is.
    pub copied: Option<Copied>,
    /// For each shard whose history is not in doubt, the count of its pools that are held because
    /// their bucket is held.
    pub held: Vec<(u16, u64)>,
}

impl<F: Files> Begun<F> {
    /// Records the facts that must be durable before the first answer: the boot, the data
    /// directory's name and its `journals`, and the periods for which answered allocations may be
    /// `missing`.
    fn note(
        &mut self,
        start: &Start<'_, F>,
        mut journals: BTreeMap<u16, WrittenJournal>,
        missing: &Gaps,
    ) -> Result<(), FileError> {
        let Start { files, settings: Settings { data, durability, .. }, has_log, .. } = *start;
        if !has_log {
            note_unflushed(files, data, *durability, self.facts.boot)?;
        }
        let is_copy = self.copied.is_some() && !planted(Bug::CopyKeepsName);
        let draw = if is_copy { Identity::draw } else { Identity::read_or_draw };
        journals.extend(self.shards.iter().filter_map(Opened::journal));
        if has_log {
            // The log itself records its shards.
            journals.clear();
        }
        let identity = draw(files, data, journals.clone())?;
        let is_recorded = identity.journals == journals;
        self.facts.identity = if has_log { IN_LOG.to_owned() } else { identity.id };
        let now = self.clocks.shard(start.reading.since_boot);
        let now = Dated::new(now, Some(self.clocks));
        // Another machine may have detected that allocations are missing.
        let mut gaps = start.noted.gaps.clone();
        gaps.merge(&Gaps::read(files, data)?);
        gaps.merge(missing);
        let known = OverflowPeriods::read(files, data, now)?;
        let mut periods = known.clone();
        periods.merge(&start.noted.overflow);
        let dating = Dating { now: self.clocks, noted: &self.facts.noted };
        if gaps.settle(dating) || *missing != Gaps::default() {
            gaps.write(files, data)?;
        }
        if periods.settle(dating) || periods != known {
            periods.write(files, data)?;
        }
        (self.facts.gaps, self.facts.overflow_periods) = (gaps, periods);
        if is_recorded {
            // `identity.json` no longer refers to the startups that left empty segments behind.
            self.shards.iter().try_for_each(Opened::remove_empty)?;
        }
        Ok(())
    }
}

/// A shard that can serve.
#[derive(Debug)]
pub struct Opened<F: Files> {
    /// The shard's index.
    pub shard: u16,
    /// The shard's state.
    pub engine: Engine,
    /// Stores the groups that the engine seals.
    pub store: Inline<F>,
    /// The corrections that startup made because of the clocks or damage. If lockouts were
    /// lengthened, no number may be handed out before a snapshot is taken, because no record shows
    /// the lengthening.
    pub doubts: Doubts,
    /// The state in which the end of the journal was found.
    pub verdict: Verdict,
}

impl<F: Files> Opened<F> {
    /// Returns the shard and its journal, if the journal is in files.
    #[must_use]
    pub fn journal(&self) -> Option<(u16, WrittenJournal)> {
        let Inline::Left(journal) = &self.store else { return None };
        Some((self.shard, journal.written()))
    }

    /// Removes the empty segments that earlier startups left behind. A segment whose first frame is
    /// damaged is kept, because each startup must detect the damage until a frame is written after
    /// it.
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
    /// A visitor holds a number that is now an overflow number.
    #[error(transparent)]
    Overflow(#[from] OverflowTaken),
    /// The cluster file is too old.
    #[error(transparent)]
    OldMap(#[from] OldMap),
    /// There is no cluster file, but the data belongs to a node of a cluster.
    #[error(transparent)]
    OfCluster(#[from] OfCluster),
    /// A file could not be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Merges the facts that were read from all shards' files, and opens each shard.
///
/// # Errors
/// [`StartError`]
pub fn begin<F: Files>(
    mut reads: Vec<Read<F>>,
    start: &Start<'_, F>,
) -> Result<Begun<F>, StartError> {
    let Start { files, settings, directory, .. } = *start;
    let has_files = settings.durability != Durability::Memory;
    check(&reads, start)?;
    flush_found_names(files, &settings.data)?;
    let boot = start.reading.boot;
    let (ends, has_past_in_log) = ends(&reads, start);
    let own = start.member.map(|(own, _)| own);
    let copied = if start.has_log { None } else { copied(files, settings, own, &reads, boot)? };
    for read in &mut reads {
        read.is_in_doubt |= copied.is_some();
    }
    let noted: Vec<Noted> = reads.iter().flat_map(Read::noted).collect();
    let last_heartbeat = start.last_owner.filter(|owner| is_last_owner(owner, &reads));
    let recorded: Vec<Recorded> = reads.iter().map(Read::recorded).collect();
    let clocks = agree(&mut reads, &start.reading, last_heartbeat.map(|it| it.recorded));
    let dating = Dating { now: clocks, noted: &noted };
    let recorded_until = recorded_until(recorded, dating);
    let now = clocks.shard(start.reading.since_boot);
    let withheld = locked_overflow(&reads, start, now)?;
    let doubtful: Vec<u16> =
        reads.iter().filter(|read| read.is_in_doubt).map(|read| read.shard).collect();
    let served =
        start.member.map(|_| ServedMap::read(files, &settings.data)).transpose()?.flatten();
    let served_owners = served.as_ref().and_then(|served| served.owners.clone());
    let dropped = dropped_buckets(start, served_owners.as_ref());
    // With durability `memory`, the holds of earlier lists are lost, so every list counts as new.
    let served = served.filter(|_| has_files);
    let member = start.member.filter(|_| has_files);
    let (stale, abandoned) = unsettled(served.as_ref(), member.map(|(_, version)| version));
    // A startup is treated like a change to the list of pools: numbers that other nodes allocated
    // under the previous list may still be locked.
    let (lifetimes, earlier) = follow_lists(&mut reads, start, served.as_ref(), now)?;
    let mut new = match member {
        // A shard whose journal is in a log has no new buckets. Its lockouts are in the log, and a
        // process with a different placement does not start.
        Some((own, version)) if !start.has_log => {
            hold::new_buckets(directory.placement(), version, own, served.as_ref())?
        }
        _ => BTreeSet::new(),
    };
    // The buckets of doubtful shards are held too. Pools that are added to them later are then held
    // for their own lifetimes, which may be longer than all lifetimes known now.
    new.extend(doubtful.iter().flat_map(|shard| directory.placement().buckets_of(*shard)));
    let journals = reads.iter().filter_map(Read::written).collect();
    let missing = missing(&reads, copied, (recorded_until, now), dating, dropped);
    let opened = reads.into_iter().filter(|read| start.only.is_none_or(|it| it == read.shard));
    let shards = opened.map(|read| open(read, now)).collect::<Result<Vec<_>, _>>()?;
    let is_new = member.is_some() && !new.is_empty();
    let facts = node::Begun {
        is_first: has_files && start.on_disk.is_empty() && !has_past_in_log,
        has_past_in_log,
        journals: ends,
        noted,
        lists: lists::lists(directory),
        served_owners,
        lifetimes,
        stale,
        abandoned,
        boot,
        withheld,
        withholds_others: start.withholds && start.member.is_some(),
        unknown_until: if is_new { arrivals::unknown_until(lifetimes, now) } else { Millis::ZERO },
        forgotten_until: if has_files { Millis::ZERO } else { now },
        ..served_lists(served.as_ref())
    };
    let ahead = shards.iter().filter_map(|shard| shard.doubts.lengthened).max();
    let mut begun = Begun { shards, clocks, facts, copied, held: Vec::new() };
    if has_files {
        begun.facts.recorded_until = recorded_until;
        begun.note(start, journals, &missing)?;
        doubted::find(&mut begun.facts, (files, &settings.data), directory, ahead, now)?;
    }
    let new = hold::New { buckets: new, at_least: earlier };
    begun.facts.holds = hold::known_holds(files, &settings.data, served, ahead, new, now)?;
    hold_shards(&mut begun, directory, &doubtful, now);
    Ok(begun)
}

/// Returns facts that contain only the lists that were served before, and their time.
fn served_lists(served: Option<&ServedMap>) -> node::Begun {
    node::Begun {
        served_lists: served.and_then(|served| served.lists.clone()),
        served_at: served.and_then(|served| served.served_at),
        ..node::Begun::default()
    }
}

/// Returns the number of the next group of each shard's journal, as it was before this process took
/// over the shards, because other nodes compare these numbers. In a log, the process has already
/// written a group to take over a shard. Also returns [`node::Begun::has_past_in_log`].
fn ends<F: Files>(reads: &[Read<F>], start: &Start<'_, F>) -> (Vec<(u16, u64)>, bool) {
    let written = u64::from(start.has_log);
    let of = |read: &Read<F>| (read.shard, read.recovered.tip.next_n - written);
    let ends: Vec<_> = reads.iter().map(of).collect();
    let has_past = start.has_log && ends.iter().any(|(_, next_n)| *next_n > 1);
    (ends, has_past && !planted(Bug::LogPastIgnored))
}

/// Returns [`dropped::buckets`]. If the journals are in a shared log, shards are not lost with a
/// machine.
fn dropped_buckets<F>(start: &Start<'_, F>, served: Option<&Owners>) -> Option<BTreeSet<u16>> {
    let (served, (own, _)) = served.zip(start.member).filter(|_| !start.has_log)?;
    dropped::buckets(served, start.directory.placement().shards(), own, start.on_disk)
}

/// Checks that this process may serve the data directory, and warns of journals that do not belong
/// there. Marks the directory if the process will not read it.
fn check<F: Files>(reads: &[Read<F>], start: &Start<'_, F>) -> Result<(), StartError> {
    let Start { files, settings, .. } = *start;
    if start.member.is_none() {
        of_cluster(files, &settings.data)?.map_or(Ok(()), Err)?;
    }
    if settings.durability == Durability::Memory {
        belongs::mark_unread(files, settings, start.on_disk)?;
    } else {
        belongs::warn_of_unnamed(files, settings, reads)?;
    }
    Ok(())
}

/// Returns the overflow numbers that visitors hold, each with the end of its lockout.
///
/// # Errors
/// [`OverflowTaken`] if they are not to be withheld.
fn locked_overflow<F: Files>(
    reads: &[Read<F>],
    start: &Start<'_, F>,
    now: Millis,
) -> Result<Vec<(PromoNumber, Millis)>, OverflowTaken> {
    let taken = agree::overflow_taken(start.directory, reads, now);
    if let Some(first) = taken.first().filter(|_| !start.withholds) {
        return Err(*first);
    }
    for OverflowTaken { number, seconds, .. } in &taken {
        withheld::warn(*number, &start.directory.overflow_pools(*number), *seconds);
    }
    Ok(taken.iter().map(|it| (it.number, it.until)).collect())
}

/// Holds the pools in held buckets on each shard, and records how many. Shards in `doubtful` are
/// not counted, because all their pools are held anyway.
fn hold_shards<F: Files>(
    begun: &mut Begun<F>,
    directory: &Directory,
    doubtful: &[u16],
    now: Millis,
) {
    for Opened { shard, engine, .. } in &mut begun.shards {
        let held = hold_buckets(engine, *shard, directory, &begun.facts.holds, now);
        if !doubtful.contains(shard) {
            begun.held.push((*shard, held));
        }
    }
}

/// Returns [`ServedMap::stale`] and [`ServedMap::abandoned`] if they were recorded under this
/// `version` of the map. The moves of these buckets may not have been reported to all other nodes
/// yet.
fn unsettled(
    served: Option<&ServedMap>,
    version: Option<u64>,
) -> (BTreeSet<u16>, BTreeMap<u16, Owner>) {
    let of_map = served.filter(|served| version == Some(served.version));
    of_map.map(|it| (it.stale.clone(), it.abandoned.clone())).unwrap_or_default()
}

/// Returns the periods for which answered allocations may be missing from the journals. The newest
/// period lasts from `recorded_until` until this startup, which is `now` in shard time. The history
/// of the `dropped` buckets is missing up to this startup.
fn missing<F: Files>(
    reads: &[Read<F>],
    copied: Option<Copied>,
    (recorded_until, now): (Dated, Millis),
    dating: Dating<'_>,
    dropped: Option<BTreeSet<u16>>,
) -> Gaps {
    let started = Dated::new(now, Some(dating.now));
    let oldest = reads.iter().filter_map(|read| read.unknown_before);
    let oldest = oldest.max_by_key(|until| until.wall(dating));
    let is_in_doubt = reads.iter().any(|read| read.is_in_doubt);
    // If a journal is gone, allocations from any time before this startup may be missing.
    let is_gone = match copied {
        Some(Copied::Replaced(shard)) => {
            reads.iter().find(|read| read.shard == shard).is_none_or(Read::is_new)
        }
        Some(_) => false,
        None => reads.iter().any(|read| read.is_in_doubt && read.is_new()),
    };
    let newest = (if is_gone { Dated::default() } else { recorded_until }, started);
    let oldest = oldest.map(|until| (Dated::default(), until));
    let mut gaps = Gaps::default();
    for (from, until) in oldest.into_iter().chain(is_in_doubt.then_some(newest)) {
        gaps.add(from, until);
    }
    if let Some(buckets) = dropped {
        gaps.add_of_others(started, buckets);
    }
    gaps
}

/// Records the longest lifetimes in the current list of pools and in earlier lists. Returns these
/// lifetimes, and the longest lifetime in those earlier lists whose lockouts may still run. Shards
/// whose history is in doubt are held for the longest of all these lifetimes.
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
    // Lost allocations may have been made at any time since the newest known allocation.
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
                    "lifetimes could not be recorded: if answered allocations are lost, ring pools \
                    may answer with overflow numbers for longer than needed after the next startup"
                );
            }
            written => written?,
        }
    }
    // The recorded lifetimes may be those of an earlier list whose lockouts still run.
    let earlier = before.followed_by(lifetimes::longest(directory), known_at).earlier(known_at);
    Ok((lifetimes, earlier))
}

/// Returns the longest lockout under the current list of pools and the lists that were served from
/// this data directory before.
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

/// Whether the shards were taken over from `owner`. Each take-over raises the epoch by one. If the
/// epochs do not match, `owner` may be fenced without having detected it, and may use another
/// clock.
fn is_last_owner<F: Files>(owner: &LastOwner, reads: &[Read<F>]) -> bool {
    let before = reads.iter().map(|read| read.recovered.tip.epoch.saturating_sub(1));
    before.eq(owner.epochs.iter().copied())
}

/// Returns the newest time that is recorded in a journal.
fn recorded_at<F: Files>(reads: &[Read<F>]) -> Millis {
    reads.iter().map(|read| read.recorded().last_at).max().unwrap_or_default()
}

/// Returns [`node::Begun::recorded_until`].
fn recorded_until(recorded: Vec<Recorded>, dating: Dating<'_>) -> Dated {
    let recorded = recorded.into_iter().filter(|recorded| recorded.last_at > Millis::ZERO);
    let dated = recorded.map(|it| Dated::new(it.last_at, it.clocks));
    dated.min_by_key(|dated| dated.wall(dating)).unwrap_or_default()
}

/// Opens a shard's journal for writing, and creates its engine. `now` is in shard time.
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
        // For a mirror, the take-over has already raised the epoch.
        KeptIn::Mirror(journal) => (Inline::Left(journal), recovered.tip),
        KeptIn::Memory { bytes_max } => {
            let store = Memory::new([0; 16], bytes_max);
            (Inline::Right(store), recovered.tip.raise_epoch())
        }
    };
    let (engine, doubts) = restore.finish(tip, now, is_in_doubt);
    Ok(Opened { shard, engine, store, doubts, verdict })
}
