//! Begins a copy of a log with a snapshot that is stored beside the log.
//!
//! While the copy is incomplete, a file marks it. If the mark is found at startup, the copy is
//! removed and made again. The files of the copy cannot replace an incomplete snapshot, because
//! only the log has the groups that the snapshot covers. Source: docs/spec/log.md, "Snapshots".

use std::ops::Range;
use std::path::Path;

use ringwell_journal::{Recovered, Snapshot, Tip, Verdict};

use super::ask::answered_beside;
use super::copy_source::CopySource;
use super::follow_error::FollowError;
use super::read::{KeptIn, Read, load};
use super::unfinished::{MARK, clear};
use crate::platform::Platform;
use crate::store::{Files, ShardStore, SnapshotIndex, SnapshotRef, write_whole};

/// Begins the copy with the newest readable snapshot; returns `None` if there is none.
///
/// # Errors
/// [`FollowError`]
pub(super) async fn fetch<F: Files, P: Platform>(
    platform: &P,
    files: &F,
    source: &CopySource<'_>,
    shard: u16,
    kept: &[(u64, SnapshotIndex)],
    ends: &Range<u64>,
) -> Result<Option<Read<F>>, FollowError> {
    for (_, index) in kept {
        if !(ends.start..=ends.end).contains(&index.replay_from) {
            continue;
        }
        match fetch_one(platform, files, source, shard, index).await? {
            Ok(read) => return Ok(Some(read)),
            Err(error) => {
                tracing::warn!(
                    shard,
                    error,
                    replay_from = index.replay_from,
                    "a snapshot stored beside the log cannot be used; trying an older snapshot"
                );
            }
        }
    }
    Ok(None)
}

/// Begins an empty copy.
pub(super) fn begin_anew<F: Files>(
    files: &F,
    source: &CopySource<'_>,
    shard: u16,
) -> Result<Read<F>, FollowError> {
    let store = ShardStore::open(files, source.settings, u32::from(shard))?;
    write_whole(files, &store.directory().join(MARK), b"")?;
    clear(files, store.directory())?;
    let recovered = Recovered::NOTHING;
    let restore = source.believed.restore(source.specs);
    let kept = KeptIn::Files(store);
    Ok(Read::found(shard, kept, restore, recovered))
}

async fn fetch_one<F: Files, P: Platform>(
    platform: &P,
    files: &F,
    source: &CopySource<'_>,
    shard: u16,
    index: &SnapshotIndex,
) -> Result<Result<Read<F>, String>, FollowError> {
    let store = ShardStore::open(files, source.settings, u32::from(shard))?;
    let directory = store.directory().to_owned();
    write_whole(files, &directory.join(MARK), b"")?;
    clear(files, &directory)?;
    let path = directory.join(format!("{:020}.rps", index.replay_from));
    if let Err(error) = download(platform, files, source, index, &path).await? {
        return Ok(Err(error));
    }
    let mut restore = source.believed.restore(source.specs);
    let reference = SnapshotRef { replay_from: index.replay_from, path };
    let snapshot = match load(&store, &reference, &mut restore) {
        Ok(snapshot) => snapshot,
        Err(error) => return Ok(Err(error)),
    };
    let Snapshot { header, through, .. } = snapshot;
    let is_its_own = header.shard == index.shard
        && header.shard == u32::from(shard)
        && header.journal == index.journal
        && (header.replay_from, through) == (index.replay_from, index.through);
    if !is_its_own {
        return Ok(Err("the snapshot does not match its index entry".to_owned()));
    }
    let tip = Tip {
        next_n: header.replay_from,
        prev_hash: header.prev_hash,
        epoch: header.epoch,
        last_at: header.last_at,
        clocks: header.clocks,
    };
    let recovered = Recovered {
        tip,
        journal: Some(header.journal),
        verdict: Verdict::Clean,
        segments: Vec::new(),
        frames: 0,
    };
    let kept = KeptIn::Files(store);
    Ok(Ok(Read { has_snapshot: true, ..Read::found(shard, kept, restore, recovered) }))
}

/// Copies the pieces of a snapshot into a file. The inner error means that the snapshot is
/// incomplete.
async fn download<F: Files, P: Platform>(
    platform: &P,
    files: &F,
    source: &CopySource<'_>,
    index: &SnapshotIndex,
    path: &Path,
) -> Result<Result<(), String>, FollowError> {
    let mut file = files.create(path)?;
    let mut offset = 0;
    for (at, place) in index.pieces.iter().enumerate() {
        let piece = answered_beside(platform, || source.snapshots.get(*place)).await?;
        let Some(piece) = piece else { return Ok(Err(format!("piece {at} is missing"))) };
        files.write_at(&mut file, offset, &piece)?;
        offset += piece.len() as u64;
    }
    files.flush(&file)?;
    path.parent().map_or(Ok(()), |directory| files.flush_names(directory))?;
    Ok(Ok(()))
}
