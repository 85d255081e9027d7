//! The contents of one shard's files, and the list of shards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ringwell_config::{Config, Durability};
use ringwell_core::{Millis, PoolSpec};
use ringwell_directory::{RingPool, SHARDS_MAX};
use ringwell_engine::{Recorded, Restore};
use ringwell_journal::{Chunk, Noted, Recovered, Snapshot, Tip};

use super::unfinished::{discard_unfinished, set_aside};
use crate::canary::{Bug, planted};
use crate::rows::spec;
use crate::store::{
    Dated, FileError, Files, FoundJournal, Identity, InlineJournal, OpenError, Settings,
    ShardStore, SnapshotRef, Unkept, WrittenJournal, flush_found_names, is_restored, journal_found,
    mark_restored, may_lack_groups,
};

/// The limits on how far the files are trusted.
#[derive(Clone, Copy, Debug)]
pub struct Believed {
    /// The maximum number of rows of repeatable batches whose answers are remembered.
    pub answer_rows_max: usize,
    /// The largest error that a machine's wall clock may have at boot.
    pub clock_skew_max: Millis,
    /// The machine's boot.
    pub boot: u64,
}

impl Believed {
    /// Returns the configured limits, for the machine's current boot.
    #[must_use]
    pub fn of(config: &Config, boot: u64) -> Self {
        let skew = u64::try_from(config.clock_skew_max.as_millis()).unwrap_or(u64::MAX);
        let answer_rows_max = config.limits.idempotency_rows;
        Self { answer_rows_max, clock_skew_max: Millis(skew), boot }
    }

    pub(super) fn restore(self, specs: &[PoolSpec]) -> Restore {
        let mut restore = Restore::new(specs.to_vec(), self.answer_rows_max);
        restore.believe(self.clock_skew_max);
        restore
    }
}

/// A shard whose files have been read. Reading changed nothing, except that damage after a power
/// cut may have been cut off.
#[derive(Debug)]
pub struct Read<F: Files> {
    /// The shard's index.
    pub shard: u16,
    pub(super) kept: KeptIn<F>,
    pub(super) restore: Restore,
    /// The part of the journal that was read.
    pub recovered: Recovered,
    /// Whether answered allocations may be missing for pools that this shard may now own.
    pub is_in_doubt: bool,
    /// Whether the state was read from a snapshot.
    pub has_snapshot: bool,
    /// Set if the first groups of a log are missing: nothing is known about the time before this
    /// wall-clock time.
    pub unknown_before: Option<Dated>,
}

/// The storage of a shard's groups.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each shard has one value, only during startup")]
pub(super) enum KeptIn<F: Files> {
    Files(ShardStore<F>),
    /// The groups are in a log; the files are open and match the log.
    Mirror(InlineJournal<F>),
    Memory {
        bytes_max: u64,
    },
}

impl<F: Files> Read<F> {
    /// Creates a shard whose history is not in doubt and that has no snapshot.
    pub(super) fn found(
        shard: u16,
        kept: KeptIn<F>,
        restore: Restore,
        recovered: Recovered,
    ) -> Self {
        Self {
            shard,
            kept,
            restore,
            recovered,
            is_in_doubt: false,
            has_snapshot: false,
            unknown_before: None,
        }
    }

    /// Creates a shard in memory, which is empty at first.
    fn in_memory(shard: u16, settings: &Settings, restore: Restore) -> Self {
        let recovered = Recovered::NOTHING;
        let kept = KeptIn::Memory { bytes_max: settings.history_bytes };
        Self::found(shard, kept, restore, recovered)
    }

    /// Whether nothing has ever been written for this shard.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.recovered.tip.last_at == Millis::ZERO
    }

    /// Returns the shard and its journal, if there is one.
    #[must_use]
    pub fn journal(&self) -> Option<(u16, FoundJournal)> {
        let heads = self.recovered.segments.iter().map(|info| &info.header);
        Some((self.shard, FoundJournal::of(heads)?))
    }

    /// Returns [`Self::journal`] in the form used in `identity.json`.
    pub(super) fn written(&self) -> Option<(u16, WrittenJournal)> {
        self.journal().map(|(shard, found)| (shard, found.written()))
    }

    /// Returns the clock readings at the ends of the shard's segments.
    pub(super) fn noted(&self) -> impl Iterator<Item = Noted> {
        let heads = self.recovered.segments.iter().map(|info| &info.header.tip);
        heads.chain([&self.recovered.tip]).filter_map(Tip::noted)
    }

    pub(super) fn recorded(&self) -> Recorded {
        self.restore.recorded(&self.recovered.tip)
    }
}

/// Reads one shard's newest intact snapshot, and the journal after it.
///
/// # Errors
/// Returns [`OpenError`] if the shard must not start. In that case, nothing has been changed,
/// except that damage may have been cut off, which is logged.
pub fn read<F: Files>(
    files: &F,
    settings: &Settings,
    shard: u16,
    specs: &[PoolSpec],
    believed: Believed,
) -> Result<Read<F>, OpenError> {
    let mut restore = believed.restore(specs);
    if settings.durability == Durability::Memory {
        return Ok(Read::in_memory(shard, settings, restore));
    }
    let mut store = ShardStore::open(files, settings, u32::from(shard))?;
    flush_found_names(files, &settings.shard_directory(shard.into()))?;
    let mut newest = None;
    for reference in store.snapshots()? {
        match load(&store, &reference, &mut restore) {
            Ok(snapshot) => {
                newest = Some(snapshot);
                break;
            }
            Err(error) => {
                tracing::warn!(shard, error, "a snapshot cannot be used; trying the one before it");
                restore = believed.restore(specs);
                store.note_unusable(&reference);
            }
        }
    }
    let visited = store.recover(newest.as_ref(), |header, body| restore.group(header, body));
    if let Err(OpenError::Refused { source, .. }) = &visited
        && (loses_end(files, settings, believed.boot)? || planted(Bug::CutAtBadFrame))
        && store.cut_at_damage(source)?
    {
        return read(files, settings, shard, specs, believed);
    }
    let recovered = visited?;
    let is_in_doubt = recovered.is_in_doubt() && !planted(Bug::NoHoldAfterRot);
    let has_snapshot = newest.is_some();
    let kept = KeptIn::Files(store);
    Ok(Read { is_in_doubt, has_snapshot, ..Read::found(shard, kept, restore, recovered) })
}

/// Whether a power cut may have lost groups but kept later ones. This is possible because any
/// unflushed block may survive a power cut. All pools are then held (see [`copied`]), so the
/// journal may be cut before the first lost group.
fn loses_end(files: &impl Files, settings: &Settings, boot: u64) -> Result<bool, FileError> {
    let lacks = may_lack_groups(files, &settings.data, boot)?.is_some();
    Ok(lacks && !planted(Bug::PowerCutRefused))
}

/// Reads the copy of a shard whose groups are in a log. If the copy cannot be trusted, for example
/// after a power cut, it is set aside, because the log has all its groups.
///
/// # Errors
/// [`OpenError`]
pub fn read_copy<F: Files>(
    files: &F,
    settings: &Settings,
    shard: u16,
    specs: &[PoolSpec],
    believed: Believed,
) -> Result<Read<F>, OpenError> {
    discard_unfinished(files, settings, shard)?;
    match read(files, settings, shard, specs, believed) {
        Err(error @ OpenError::Refused { .. }) => {
            tracing::warn!(
                shard,
                %error,
                "the copy of the journal on this machine cannot be used: setting the copy aside \
                and building a new one from the log"
            );
            set_aside(files, settings, shard)?;
            read(files, settings, shard, specs, believed)
        }
        read => read,
    }
}

/// Reads a snapshot to its end.
pub(super) fn load<F: Files>(
    store: &ShardStore<F>,
    reference: &SnapshotRef,
    restore: &mut Restore,
) -> Result<Snapshot, String> {
    let mut reader = store.read_snapshot(reference).map_err(|error| error.to_string())?;
    restore.begin_snapshot(reader.header());
    while let Some(chunk) = reader.next_chunk().map_err(|error| error.to_string())? {
        match chunk {
            Chunk::Numbers(entries) => entries.for_each(|entry| restore.number(&entry)),
            Chunk::Answers(entries) => entries.for_each(|entry| restore.answer(&entry)),
            Chunk::Holds(entries) => entries.for_each(|entry| restore.hold(&entry)),
            Chunk::ForeignTimes(entries) => entries.for_each(|entry| restore.foreign_time(&entry)),
        }
    }
    reader.end().copied().ok_or_else(|| "the end of the snapshot is missing".to_owned())
}

/// Returns the shards that have segments or snapshots in `data`. If there are none, a possible
/// reason is that the data volume is not mounted.
///
/// # Errors
/// [`FileError`]
pub fn shards_on_disk(files: &impl Files, data: &Path) -> Result<Vec<u16>, FileError> {
    let journals = data.join("journal");
    let mut shards = Vec::new();
    for name in files.list(&journals)? {
        let Some(shard) = name.parse().ok().filter(|shard| *shard < SHARDS_MAX) else { continue };
        let is_kept = |file: &String| {
            file.rsplit_once('.').is_some_and(|(_, kind)| kind == "rpj" || kind == "rps")
        };
        if files.list(&journals.join(name))?.iter().any(is_kept) {
            shards.push(shard);
        }
    }
    Ok(shards)
}

/// The reason why some answered allocations may be missing from the journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The data was restored from a copy, or another process kept its allocations only in memory.
    Restored,
    /// The journal of this shard is missing or is not the one that was last written.
    Replaced(u16),
    /// The journals are copies of a log that machines share. Another machine may have taken the
    /// shards over since.
    OfLog,
    /// Answers did not wait for the disk, and the process did not shut down in an orderly way.
    Unkept(Unkept),
}

/// Determines whether answered allocations may be missing from the journals in `reads`. If so, the
/// history of every shard that was read counts as in doubt. In a cluster, `own` contains the shards
/// of this node. `boot` identifies the machine's boot.
///
/// # Errors
/// [`FileError`]
pub fn copied<F: Files>(
    files: &F,
    settings: &Settings,
    own: Option<&[u16]>,
    reads: &[Read<F>],
    boot: u64,
) -> Result<Option<Copied>, FileError> {
    let data = &settings.data;
    if settings.durability == Durability::Memory {
        return Ok(None);
    }
    if is_restored(files, data) {
        return Ok(Some(Copied::Restored));
    }
    if is_of_log(files, data, reads)? {
        // The mark has the same purpose as below.
        mark_restored(files, data)?;
        return Ok(Some(Copied::OfLog));
    }
    let unkept = may_lack_groups(files, data, boot)?.filter(|_| !planted(Bug::PowerCutIgnored));
    let found = reads.iter().filter_map(Read::journal).collect();
    let other = other_journal(files, data, own, &found)?;
    // After a power cut, damaged segments were removed, possibly all segments of the last run, so
    // the journal may look older than it is.
    let other = other.filter(|other| unkept.is_none() || !other.is_older);
    if let Some(OtherJournal { shard, .. }) = other {
        // If this process ends before the hold is stored, it leaves a new, empty journal behind.
        // Because of the mark, the next startup holds the pools in that case too.
        mark_restored(files, data)?;
        return Ok(Some(Copied::Replaced(shard)));
    }
    Ok(unkept.map(Copied::Unkept))
}

/// Whether the last process that used this data directory kept its journals in a log that machines
/// share. Such a process names no journals in `identity.json`.
fn is_of_log<F: Files>(files: &F, data: &Path, reads: &[Read<F>]) -> Result<bool, FileError> {
    if planted(Bug::LogCopyBelieved) {
        return Ok(false);
    }
    let names_none = Identity::read(files, data)?.is_some_and(|known| known.journals.is_empty());
    Ok(names_none && reads.iter().any(|read| read.journal().is_some()))
}

/// A shard whose journal is not the one that was last written.
struct OtherJournal {
    shard: u16,
    /// Whether this journal has the same name as the one that was last written, but lacks its
    /// newest records.
    is_older: bool,
}

/// Finds a shard whose journal in `data` is missing, is not the one that was last written, or is an
/// older copy of it. In a cluster, `own` contains the shards of this node.
fn other_journal(
    files: &impl Files,
    data: &Path,
    own: Option<&[u16]>,
    found: &BTreeMap<u16, FoundJournal>,
) -> Result<Option<OtherJournal>, FileError> {
    let Some(known) = Identity::read(files, data)? else { return Ok(None) };
    if found.is_empty() && known.journals.is_empty() {
        // Earlier releases did not write a list of journals.
        return Ok(Some(OtherJournal { shard: 0, is_older: false }));
    }
    let mut own =
        known.journals.iter().filter(|(shard, _)| own.is_none_or(|own| own.contains(shard)));
    let is_other = |(shard, written): &(&u16, &WrittenJournal)| {
        !found.get(shard).is_some_and(|found| found.continues(written))
    };
    let other = own.find(is_other).map(|(shard, written)| {
        let is_older = found.get(shard).is_some_and(|found| found.written().name == written.name);
        OtherJournal { shard: *shard, is_older }
    });
    let is_noticed = |other: &OtherJournal| {
        found.is_empty() || other.is_older || !planted(Bug::LostShardIgnored)
    };
    Ok(other.filter(is_noticed))
}

/// Finds a shard whose journal is missing or was replaced. Reads only the heads of the segments.
/// Used by programs that do not start a node.
///
/// # Errors
/// [`FileError`]
pub fn replaced_journal(files: &impl Files, data: &Path) -> Result<Option<u16>, FileError> {
    let found = found_journals(files, data)?;
    Ok(other_journal(files, data, None, &found)?.map(|other| other.shard))
}

/// Returns the journals in `data`, identified by the heads of their segments.
pub(super) fn found_journals(
    files: &impl Files,
    data: &Path,
) -> Result<BTreeMap<u16, FoundJournal>, FileError> {
    let mut found = BTreeMap::new();
    for shard in shards_on_disk(files, data)? {
        let directory = data.join("journal").join(shard.to_string());
        found.extend(journal_found(files, &directory)?.map(|journal| (shard, journal)));
    }
    Ok(found)
}

/// Logs that the files found at startup are not those that were last written.
pub fn report_copied(settings: &Settings, copied: Option<Copied>) {
    let data = settings.data.display();
    match copied {
        Some(Copied::Restored) => {
            tracing::warn!(
                %data,
                "this data directory was restored from a copy, or a server with durability \
                `memory` has used it: answers sent after the copy was made, or by that server, are \
                unknown. All pools answer with overflow numbers for the longest lifetime, then \
                resume by themselves; no action is needed"
            );
        }
        Some(Copied::Replaced(shard)) => tracing::error!(
            %data,
            shard,
            "this data directory was last used with a different journal of this shard, and that \
                journal is now missing: all pools answer with overflow numbers for the longest \
                lifetime, then resume by themselves. If the missing journal was moved, or its \
                volume is not mounted, stop the server before you move that journal back or mount \
                the volume. That journal lacks the answers sent in the meantime, so after the next \
                startup, all pools answer with overflow numbers again"
        ),
        Some(Copied::OfLog) => tracing::warn!(
            %data,
            "this data directory was last used with `engine = \"nats\"`, and its journals are \
                copies of the streams: if another machine has served since, answers are missing. \
                All pools answer with overflow numbers for the longest lifetime, then resume by \
                themselves; no action is needed"
        ),
        Some(Copied::Unkept(unkept)) => tracing::error!(
            %data,
            "{}; with durability `os`, answers do not wait for the disk, so the last answered \
                allocations may be lost. All pools answer with overflow numbers for the longest \
                lifetime, then resume by themselves; no action is needed",
            reason(unkept)
        ),
        None => {}
    }
}

fn reason(unkept: Unkept) -> &'static str {
    match unkept {
        Unkept::Boot => "the machine was rebooted without an orderly shutdown",
        Unkept::Remount => {
            "the file system was remounted without an orderly shutdown of the server"
        }
        Unkept::FailedWrite => "a write or a flush failed before the last stop",
    }
}

/// Converts pools to the form that their shard uses.
#[must_use]
pub fn specs<'a>(pools: impl Iterator<Item = &'a Arc<RingPool>>) -> Vec<PoolSpec> {
    pools.map(|pool| spec(pool)).collect()
}
