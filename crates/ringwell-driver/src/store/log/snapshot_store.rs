//! Snapshots beside a log that several machines share. With these snapshots, a machine without a
//! copy of the log reads only a small part of the log, and the log's beginning can be dropped.
//!
//! A snapshot consists of pieces and an index that names their places. It becomes valid once its
//! index is stored. The two newest snapshots are kept. Invariants: an index is stored only after
//! the log has every group that the snapshot covers. Groups that the older of the two snapshots
//! needs are never trimmed. Source: docs/spec/log.md, "Snapshots".

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use ringwell_core::Millis;
use ringwell_journal::{SnapshotError, SnapshotReader};

use super::error::Unreached;
use super::interface::SnapshotStore;
use super::places::Places;
use crate::canary::{Bug, planted};
use crate::locks::lock;
use crate::store::files::FileError;
use crate::store::interface::Draft;

/// The length of a piece. A piece, together with its headers, fits into one message to the log's
/// servers.
const PIECE_BYTES: usize = 1 << 20;

const MAGIC: [u8; 4] = *b"RPi1";
/// The number of bytes in an index before the places of its pieces.
const HEADER_BYTES: usize = 52;
const CRC_BYTES: usize = 4;

/// The maximum number of pieces in one snapshot, which together are 64 GiB.
const PIECES_MAX: usize = 1 << 16;

/// The maximum number of places that are searched for an index.
const PIECES_TRIED: usize = 1 << 12;

/// One snapshot's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The shard.
    pub shard: u32,
    /// The journal's identity.
    pub journal: [u8; 16],
    /// The first group to replay after the snapshot.
    pub replay_from: u64,
    /// The last group that the snapshot may cover.
    pub through: u64,
    /// The place of the previous index; 0 if there is none.
    pub before: u64,
    /// The places of the snapshot's pieces, in order.
    pub pieces: Vec<u64>,
}

impl Index {
    /// Returns the index in the form in which it is stored.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEADER_BYTES + 8 * self.pieces.len() + CRC_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.shard.to_le_bytes());
        out.extend_from_slice(&self.journal);
        for wide in [self.replay_from, self.through, self.before] {
            out.extend_from_slice(&wide.to_le_bytes());
        }
        let count = u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for place in &self.pieces {
            out.extend_from_slice(&place.to_le_bytes());
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out.into()
    }

    /// Reads an index; returns `None` if it is damaged or of another version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, crc) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
        if crc32c::crc32c(bytes).to_le_bytes() != *crc {
            return None;
        }
        let (head, places) = bytes.split_at_checked(HEADER_BYTES)?;
        let narrow = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let wide = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let count = usize::try_from(narrow(48)?).ok()?;
        if head[..4] != MAGIC || count > PIECES_MAX || places.len() != 8 * count {
            return None;
        }
        let place = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        Some(Self {
            shard: narrow(4)?,
            journal: head[8..24].try_into().ok()?,
            replay_from: wide(24)?,
            through: wide(32)?,
            before: wide(40)?,
            pieces: places.chunks_exact(8).map(place).collect::<Option<_>>()?,
        })
    }

    /// Returns the place of the snapshot's first piece. No part of the snapshot is stored before
    /// it.
    fn begin(&self, at: u64) -> u64 {
        self.pieces.iter().copied().min().unwrap_or(at).min(at)
    }
}

/// Returns the kept indexes that can be read, newest first, with their places.
///
/// # Errors
/// [`Unreached`]
pub fn indexes(store: &dyn SnapshotStore) -> Result<Vec<(u64, Index)>, Unreached> {
    let Some((newest, bytes)) = store.newest_index()? else { return Ok(Vec::new()) };
    let Some(index) = Index::decode(&bytes) else {
        return Ok(index_before(store, newest)?.into_iter().collect());
    };
    let before = index.before;
    let mut found = vec![(newest, index)];
    if before > 0
        && let Some(bytes) = store.get(before)?
        && let Some(index) = Index::decode(&bytes)
    {
        found.push((before, index));
    }
    Ok(found)
}

/// Returns the index that precedes the damaged newest one. It is stored before the pieces of the
/// newest snapshot.
fn index_before(store: &dyn SnapshotStore, newest: u64) -> Result<Option<(u64, Index)>, Unreached> {
    for place in (1..newest).rev().take(PIECES_TRIED) {
        let Some(bytes) = store.get(place)? else { return Ok(None) };
        if let Some(index) = Index::decode(&bytes) {
            return Ok(Some((place, index)));
        }
    }
    Ok(None)
}

/// Whether a snapshot can be read to its end.
fn is_whole(store: &dyn SnapshotStore, index: &Index) -> Result<bool, Unreached> {
    let (mut pieces, mut piece) = (index.pieces.iter(), Bytes::new());
    let source = |out: &mut [u8]| -> Result<usize, Unreached> {
        while piece.is_empty() {
            let Some(place) = pieces.next() else { return Ok(0) };
            // If this piece is missing, the pieces after it are not read.
            piece = store.get(*place)?.unwrap_or_default();
            if piece.is_empty() {
                pieces = [].iter();
            }
        }
        let count = out.len().min(piece.len());
        out[..count].copy_from_slice(&piece.split_to(count));
        Ok(count)
    };
    let read = SnapshotReader::new(source).and_then(|mut reader| {
        while reader.next_chunk()?.is_some() {}
        let header = reader.header();
        let is_its_own = (header.shard, header.journal, header.replay_from)
            == (index.shard, index.journal, index.replay_from);
        Ok(is_its_own && reader.end().is_some_and(|end| end.through == index.through))
    });
    match read {
        Err(SnapshotError::Read { source, .. }) => Err(source),
        read => Ok(read.unwrap_or(false)),
    }
}

/// The part of the log before this machine's copy. Look-ups read this part from the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// The number of the log's first group.
    pub first_n: u64,
    /// The number of the copy's first group.
    pub copied_n: u64,
    /// The approximate number of bytes in the log before the copy.
    pub bytes: u64,
    /// A shard time at which the last record of this part had already been written.
    pub last_at: Millis,
}

/// The snapshots of an opened shard.
#[derive(Clone, Debug)]
pub(super) struct LogSnapshots {
    store: Arc<dyn SnapshotStore>,
    shard: u32,
    journal: [u8; 16],
    /// The two newest indexes, with their places.
    kept: Arc<Mutex<Vec<(u64, Index)>>>,
    /// The places of groups in the log.
    places: Places,
}

impl LogSnapshots {
    pub(super) fn new(
        store: Arc<dyn SnapshotStore>,
        shard: u32,
        journal: [u8; 16],
        kept: Vec<(u64, Index)>,
        places: Places,
    ) -> Self {
        Self { store, shard, journal, kept: Arc::new(Mutex::new(kept)), places }
    }

    pub(super) fn store(&self) -> &Arc<dyn SnapshotStore> {
        &self.store
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(u64, Index)>> {
        lock(&self.kept)
    }

    /// Returns the first group that a kept snapshot needs. Returns 0 if there are fewer than two
    /// snapshots.
    pub(super) fn needed_from(&self) -> u64 {
        let kept = self.kept();
        if kept.len() < 2 { 0 } else { kept.iter().map(|it| it.1.replay_from).min().unwrap_or(0) }
    }

    /// Returns the places of the kept indexes.
    pub(super) fn places(&self) -> Vec<u64> {
        self.kept().iter().map(|it| it.0).collect()
    }

    /// Reads the kept snapshots back, and drops the damaged ones from `kept`. Until later snapshots
    /// have replaced the damaged ones, the log is not trimmed.
    pub(super) fn drop_damaged(&self) -> Result<(), Unreached> {
        let kept = self.kept().clone();
        for (place, index) in kept {
            if !is_whole(&*self.store, &index)? {
                tracing::error!(
                    shard = self.shard,
                    replay_from = index.replay_from,
                    "a snapshot beside the journal's log is damaged: the log is not trimmed until \
                     another snapshot is taken. Check the disks of the journal's servers"
                );
                self.kept().retain(|it| it.0 != place);
            }
        }
        Ok(())
    }

    /// Like [`Self::publish`], but only if the log still has the last group that the snapshot
    /// covers. If the log has lost its newest groups, publishing two snapshots that are ahead of
    /// the log would leave no snapshot to continue from.
    fn publish_stored(
        &self,
        replay_from: u64,
        through: u64,
        pieces: Vec<u64>,
    ) -> Result<(), Unreached> {
        if self.store.message(self.places.place(through))?.is_none() {
            return Err(Unreached(format!("the log does not have group {through}")));
        }
        self.publish(replay_from, through, pieces)
    }

    fn publish(&self, replay_from: u64, through: u64, pieces: Vec<u64>) -> Result<(), Unreached> {
        let (shard, journal) = (self.shard, self.journal);
        let before = self.kept().first().map_or(0, |newest| newest.0);
        let index = Index { shard, journal, replay_from, through, before, pieces };
        let at = self.store.add_index(index.encode())?;
        let begin = {
            let mut kept = self.kept();
            kept.insert(0, (at, index));
            kept.truncate(2);
            kept.iter().map(|(at, index)| index.begin(*at)).min().unwrap_or(at)
        };
        self.store.trim(begin)
    }
}

/// A snapshot that is written to a file on this machine and also stored beside the log.
#[derive(Debug)]
pub struct LogDraft<D> {
    draft: D,
    replay_from: u64,
    /// `None` if the snapshot is not stored beside the log, or if that has failed.
    snapshots: Option<LogSnapshots>,
    pieces: Vec<u64>,
    gathered: Vec<u8>,
}

impl<D: Draft> LogDraft<D> {
    pub(super) fn new(draft: D, replay_from: u64, snapshots: Option<LogSnapshots>) -> Self {
        Self { draft, replay_from, snapshots, pieces: Vec::new(), gathered: Vec::new() }
    }

    /// Adds all complete pieces, and at the end of the snapshot also the last, shorter piece.
    fn add(&mut self, is_end: bool) {
        while self.gathered.len() >= PIECE_BYTES || is_end && !self.gathered.is_empty() {
            let Some(snapshots) = &self.snapshots else {
                self.gathered.clear();
                return;
            };
            let rest = self.gathered.split_off(self.gathered.len().min(PIECE_BYTES));
            let piece = std::mem::replace(&mut self.gathered, rest);
            match snapshots.store.add(piece.into()) {
                Ok(place) => self.pieces.push(place),
                Err(error) => self.give_up(&error),
            }
        }
    }

    /// Keeps the snapshot only in the file, which can be used without the log. Later snapshots
    /// are stored beside the log as usual.
    fn give_up(&mut self, error: &Unreached) {
        let shard = self.snapshots.take().map(|snapshots| snapshots.shard);
        tracing::warn!(shard, %error, "a snapshot could not be stored beside the journal's log");
    }
}

impl<D: Draft> Draft for LogDraft<D> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.draft.write(bytes)?;
        if self.snapshots.is_some() {
            self.gathered.extend_from_slice(bytes);
            self.add(false);
        }
        Ok(())
    }

    fn publish(mut self, through: u64) -> Result<(), FileError> {
        self.add(true);
        let (snapshots, pieces) = (self.snapshots.take(), std::mem::take(&mut self.pieces));
        if let Some(snapshots) = snapshots.as_ref().filter(|_| planted(Bug::SnapshotAhead)) {
            // The newest group has not been sent yet.
            let _ = snapshots.publish(self.replay_from, through + 1, pieces.clone());
        }
        // If a group that the snapshot covers is not stored, publishing the file fails, and no
        // index is stored beside the log.
        self.draft.publish(through)?;
        if let Some(snapshots) = snapshots
            && let Err(error) = snapshots.publish_stored(self.replay_from, through, pieces)
        {
            tracing::warn!(
                shard = snapshots.shard, %error,
                "a snapshot could not be stored beside the journal's log"
            );
        }
        Ok(())
    }

    fn stored(&self) -> u64 {
        self.draft.stored()
    }
}

#[cfg(test)]
mod tests;
