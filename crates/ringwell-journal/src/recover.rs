//! Reads a journal back at startup, and decides whether it can be trusted.
//!
//! Walks the frames in order, checks that each frame continues the one before it, and passes them
//! to a callback. At the end of the journal, an unfinished write is distinguished from damage.
//! Never changes anything. Invariant: from the first requested frame onward, the callback receives
//! the frames as they were written, without gaps. No answer was ever sent for a group after the
//! last of these frames, unless an error is returned or the verdict is `Verdict::Rotten`. Source:
//! docs/spec/journal.md, "Recovery".

mod error;
mod walk;

pub use error::{ChainFault, Foreign, Oldest, RecoverError};
pub use walk::{Step, Walk};

use std::fmt;

use ringwell_core::Millis;

use crate::frame::{FrameFault, FrameHeader};
use crate::group::{GroupHeader, Tip};
use crate::record::DecodeError;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

/// A source of segments.
pub trait Segments {
    /// The error that the storage returns.
    type Error: std::error::Error;

    /// Returns the existing segments, in any order.
    ///
    /// # Errors
    /// An error from the storage.
    fn list(&self) -> Result<Vec<SegmentFile>, Self::Error>;

    /// Reads a segment from `offset` into `out`, and returns the count of bytes read. The count is
    /// less than requested only at the end of the segment.
    ///
    /// # Errors
    /// An error from the storage.
    fn read_at(&self, segno: u64, offset: u64, out: &mut [u8]) -> Result<usize, Self::Error>;
}

/// A segment in the storage's list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Its number.
    pub segno: u64,
    /// Its length.
    pub bytes: u64,
}

/// The shard whose journal is read, and the frame from which it is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPlan {
    /// The shard.
    pub shard: u32,
    /// The first frame that `recover` passes to `visit`.
    pub from: u64,
    /// The data about the loaded snapshot, if any.
    pub snapshot: Option<SnapshotMark>,
}

/// The data in a snapshot that recovery compares with the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMark {
    /// The journal's identity.
    pub journal: [u8; 16],
    /// The hash of the frame before the first frame to replay.
    pub prev_hash: u64,
    /// The last frame that the snapshot may cover. The journal must reach this frame.
    pub through: u64,
}

/// A journal that can be trusted, up to `tip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The end of the journal.
    pub tip: Tip,
    /// The journal's identity, or `None` if the journal does not exist yet.
    pub journal: Option<[u8; 16]>,
    /// The condition of the journal's end.
    pub verdict: Verdict,
    /// All segments, oldest first.
    pub segments: Vec<SegmentInfo>,
    /// The count of frames that were passed to `visit`.
    pub frames: u64,
}

impl Recovered {
    /// A journal that does not exist yet.
    pub const NOTHING: Self = Self {
        tip: Tip::FIRST,
        journal: None,
        verdict: Verdict::Clean,
        segments: Vec::new(),
        frames: 0,
    };
}

/// The condition of a journal's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing follows the last frame.
    Clean,
    /// The next frame was never completely written, and no answer was sent for it. The journal ends
    /// before this frame.
    Torn(Cut),
    /// The next frame was written and has been damaged since. Answers may have been sent for this
    /// frame, so the shard's pools must hand out nothing for one lockout. The first record of the
    /// next group must be a `Hold`.
    Rotten(Cut),
}

impl Recovered {
    /// Whether records may be missing from the end of the journal although their answers were sent.
    /// The engine must then hold all pools for one lockout, and this hold must be the first record
    /// that it appends.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        matches!(self.verdict, Verdict::Rotten(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("clean"),
            Self::Torn(Cut { segno, offset, n }) => write!(
                f,
                "cut before frame {n}, which was never completely written (segment {segno:016}, \
                 offset {offset})"
            ),
            Self::Rotten(Cut { segno, offset, n }) => write!(
                f,
                "cut before frame {n}, which is corrupted; answers may have been sent for this \
                 frame (segment {segno:016}, offset {offset})"
            ),
        }
    }
}

/// The place where a journal was cut: the beginning of a bad frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub segno: u64,
    /// The offset of the bad frame.
    pub offset: u64,
    /// The number of the bad frame. The next good frame will get the same number.
    pub n: u64,
}

/// The data that recovery collected about a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its head.
    pub header: SegmentHeader,
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// The number of the frame after the segment's last frame.
    pub next_n: u64,
    /// The time of the segment's last record. If the segment contains no records, the time of the
    /// last record before the segment.
    pub last_at: Millis,
    /// The offsets of the segment's frames, followed by the offset at which the next frame would
    /// begin. `None` if the segment was not read.
    pub offsets: Option<Vec<u64>>,
}

/// Reads the journal that `plan` describes, and passes its frames to `visit`, beginning with number
/// `plan.from`.
///
/// If a segment ends before `plan.from`, only its head is read. `visit` returns an error if it
/// cannot read a record of a frame.
///
/// # Errors
/// [`RecoverError`]. If this error is returned, the shard must not start.
///
/// # Panics
/// Panics only if an invariant of the journal is broken.
pub fn recover<S: Segments>(
    store: &S,
    plan: &RecoveryPlan,
    visit: impl FnMut(&GroupHeader, &[u8]) -> Result<(), DecodeError>,
) -> Result<Recovered, RecoverError<S::Error>> {
    let segments = heads(store, plan)?;
    let Some(first) = start(&segments, plan)? else {
        let tip = Tip::FIRST;
        return Ok(Recovered { tip, journal: None, verdict: Verdict::Clean, segments, frames: 0 });
    };
    let journal = Some(segments[first].header.journal);
    let tip = segments[first].header.tip;
    let mut recovery = Recovery { store, plan, segments, tip, visit, doubt: None, frames: 0 };
    let mut verdict = recovery.walk_from(first)?;
    if let Some(before) = recovery.unread_before(first) {
        recovery.tip = recovery.segments[before].header.tip;
        verdict = recovery.walk_from(before)?;
    }
    recovery.check_end()?;
    let Recovery { segments, tip, frames, .. } = recovery;
    assert!(frames == tip.next_n - plan.from, "a frame was left out or visited twice");
    let end = segments.last().map(|info| (info.next_n, info.last_at));
    assert!(
        end == Some((tip.next_n, tip.last_at)),
        "the last segment does not end where the journal ends"
    );
    Ok(Recovered { tip, journal, verdict, segments, frames })
}

/// Reads and checks the heads of all segments.
fn heads<S: Segments>(
    store: &S,
    plan: &RecoveryPlan,
) -> Result<Vec<SegmentInfo>, RecoverError<S::Error>> {
    let mut files = store.list().map_err(RecoverError::List)?;
    files.sort_by_key(|file| file.segno);
    let mut infos: Vec<SegmentInfo> = Vec::with_capacity(files.len());
    let mut journal = plan.snapshot.map(|mark| mark.journal);
    for SegmentFile { segno, bytes } in files {
        let mut block = [0; SEGMENT_HEADER_BYTES];
        let got = store.read_at(segno, 0, &mut block);
        let got = got.map_err(|source| RecoverError::Read { segno, offset: 0, source })?;
        let header = SegmentHeader::decode(&block[..got])
            .map_err(|fault| RecoverError::Segment { segno, fault })?;
        let why = if header.segno != segno {
            Some(Foreign::Number(header.segno))
        } else if header.shard != plan.shard {
            Some(Foreign::Shard(header.shard))
        } else if journal.is_some_and(|known| known != header.journal) {
            Some(Foreign::Journal)
        } else {
            None
        };
        if let Some(why) = why {
            return Err(RecoverError::Foreign { segno, why });
        }
        journal = Some(header.journal);
        if let Some(before) = infos.last_mut() {
            before.next_n = header.tip.next_n;
            before.last_at = header.tip.last_at;
        }
        infos.push(SegmentInfo {
            header,
            file_bytes: bytes,
            next_n: header.tip.next_n,
            last_at: header.tip.last_at,
            offsets: None,
        });
    }
    Ok(infos)
}

/// Returns the segment to start with: the last one that begins at or before `plan.from`.
fn start<E>(
    segments: &[SegmentInfo],
    plan: &RecoveryPlan,
) -> Result<Option<usize>, RecoverError<E>> {
    let missing = |found| Err(RecoverError::Missing { expected: plan.from, found });
    match segments {
        // The list of segments may be empty only if nothing has been written yet. In this case, the
        // replay begins with the first frame, and the snapshot, if there is one, covers no frames.
        [] if plan.from <= 1 && plan.snapshot.is_none_or(|mark| mark.through == 0) => Ok(None),
        [] => missing(Oldest::None),
        [oldest, ..] if oldest.header.tip.next_n > plan.from => {
            missing(Oldest::Frame(oldest.header.tip.next_n))
        }
        _ => Ok(segments.iter().rposition(|info| info.header.tip.next_n <= plan.from)),
    }
}

/// Whether `header` continues a journal that ends with `tip`.
///
/// # Errors
/// [`ChainFault`], the first rule that `header` breaks.
pub fn continues(tip: &Tip, header: &GroupHeader) -> Result<(), ChainFault> {
    if header.n != tip.next_n {
        Err(ChainFault::Number(header.n))
    } else if header.prev_hash != tip.prev_hash {
        Err(ChainFault::Hash)
    } else if header.epoch < tip.epoch {
        Err(ChainFault::Epoch)
    } else if header.at < tip.last_at {
        Err(ChainFault::Time)
    } else {
        Ok(())
    }
}

struct Recovery<'a, S, V> {
    store: &'a S,
    plan: &'a RecoveryPlan,
    segments: Vec<SegmentInfo>,
    tip: Tip,
    visit: V,
    /// The damaged frame at which an earlier startup cut the journal, if nothing has been written
    /// since.
    doubt: Option<Cut>,
    frames: u64,
}

impl<S, V> Recovery<'_, S, V>
where
    S: Segments,
    V: FnMut(&GroupHeader, &[u8]) -> Result<(), DecodeError>,
{
    fn walk_from(&mut self, first: usize) -> Result<Verdict, RecoverError<S::Error>> {
        for index in first..self.segments.len() {
            let SegmentInfo { header, file_bytes, .. } = self.segments[index];
            let segno = header.segno;
            let file = SegmentFile { segno, bytes: file_bytes };
            let mut walk = Walk::new(self.store, file, header.salt);
            let mut offsets = Vec::new();
            let (offset, fault) = loop {
                match walk.step(self.tip.next_n)? {
                    Step::Frame { offset, header } => {
                        self.take(segno, offset, &header, walk.body())?;
                        offsets.push(offset);
                    }
                    Step::Fault { offset, fault } => break (offset, fault),
                }
            };
            offsets.push(offset);
            assert!(offsets.is_sorted(), "frames are out of order");
            let info = &mut self.segments[index];
            info.offsets = Some(offsets);
            info.next_n = self.tip.next_n;
            info.last_at = self.tip.last_at;
            let cut = Cut { segno, offset, n: self.tip.next_n };
            if fault == FrameFault::Rotten {
                self.doubt = Some(cut);
            }
            let next = self.segments.get(index + 1).map(|info| info.header);
            if let Some(next) = next {
                self.pass_over(cut, fault, &next)?;
            } else {
                return self.judge_end(cut, fault, &mut walk);
            }
        }
        Ok(Verdict::Clean)
    }

    /// Returns the segment that the walk must go back to, if any. Going back is necessary if no
    /// frame follows the snapshot and the segment where the walk began starts with the first frame
    /// to replay. In this case, an earlier startup may have cut the previous segment at a damaged
    /// frame.
    fn unread_before(&self, first: usize) -> Option<usize> {
        let begins_at = |info: &SegmentInfo| info.header.tip.next_n;
        let is_unread = self.frames == 0 && begins_at(&self.segments[first]) == self.plan.from;
        let before = &self.segments[..first];
        is_unread.then(|| before.iter().rposition(|it| begins_at(it) < self.plan.from)).flatten()
    }

    fn take(
        &mut self,
        segno: u64,
        offset: u64,
        frame: &FrameHeader,
        body: &[u8],
    ) -> Result<(), RecoverError<S::Error>> {
        let n = self.tip.next_n;
        let chain = |fault| RecoverError::Chain { segno, offset, n, fault };
        continues(&self.tip, &frame.group).map_err(chain)?;
        self.fits_snapshot().map_err(chain)?;
        if n >= self.plan.from {
            let visited = (self.visit)(&frame.group, body);
            visited.map_err(|source| RecoverError::Record { segno, offset, source })?;
            self.frames += 1;
        }
        self.tip = Tip::after(&frame.group);
        assert!(self.tip.next_n == n + 1, "frame numbers are not consecutive");
        self.doubt = None;
        Ok(())
    }

    /// If the next frame is the first one to replay, checks that the snapshot belongs to this
    /// journal.
    fn fits_snapshot(&self) -> Result<(), ChainFault> {
        let mark = self.plan.snapshot.filter(|_| self.tip.next_n == self.plan.from);
        match mark {
            Some(mark) if mark.prev_hash != self.tip.prev_hash => Err(ChainFault::Snapshot),
            _ => Ok(()),
        }
    }

    /// Continues from the last frame of a segment to the segment `next`, if `next` continues the
    /// journal.
    fn pass_over(
        &mut self,
        cut: Cut,
        fault: FrameFault,
        next: &SegmentHeader,
    ) -> Result<(), RecoverError<S::Error>> {
        let Cut { segno, offset, n } = cut;
        if next.tip.next_n > n {
            return Err(RecoverError::Damaged {
                segno,
                offset,
                n,
                fault,
                newer_segno: next.segno,
                newer_offset: 0,
                newer_n: next.tip.next_n,
            });
        }
        let fault = if next.tip.next_n < n {
            ChainFault::Number(next.tip.next_n)
        } else if next.tip.prev_hash != self.tip.prev_hash {
            ChainFault::Hash
        } else if next.tip.epoch < self.tip.epoch {
            ChainFault::Epoch
        } else if next.tip.last_at < self.tip.last_at {
            ChainFault::Time
        } else {
            self.tip = next.tip;
            return Ok(());
        };
        Err(RecoverError::Chain { segno: next.segno, offset: 0, n, fault })
    }

    fn judge_end(
        &mut self,
        cut: Cut,
        fault: FrameFault,
        walk: &mut Walk<'_, S>,
    ) -> Result<Verdict, RecoverError<S::Error>> {
        let Cut { segno, offset, n } = cut;
        let last = self.segments.last().map(|info| (info.header.file_bytes, info.file_bytes));
        if let Some((made, bytes)) = last
            && walk.is_short(made, n)?
        {
            return Err(RecoverError::Short { segno, bytes });
        }
        let behind = walk.scan(n)?;
        if let Some((newer_offset, newer_n)) = behind.newer {
            return Err(RecoverError::Damaged {
                segno,
                offset,
                n,
                fault,
                newer_segno: segno,
                newer_offset,
                newer_n,
            });
        }
        Ok(match (fault, self.doubt) {
            (FrameFault::Rotten, _) => Verdict::Rotten(cut),
            (FrameFault::NotWritten, Some(doubt)) => Verdict::Rotten(doubt),
            (FrameFault::NotWritten, None) if behind.begun => Verdict::Torn(cut),
            (FrameFault::NotWritten, None) => Verdict::Clean,
        })
    }

    /// Checks that the journal reaches the last frame that the snapshot may cover. Otherwise, new
    /// records would get positions that are already in use.
    fn check_end(&self) -> Result<(), RecoverError<S::Error>> {
        let needed = self.plan.snapshot.map_or(0, |mark| mark.through);
        let through = needed.max(self.plan.from.saturating_sub(1));
        let (last, n) = (self.tip.next_n - 1, self.tip.next_n);
        let end = self.segments.last();
        let segno = end.map_or(0, |info| info.header.segno);
        let offset = end.and_then(|info| info.offsets.as_ref()?.last().copied()).unwrap_or(0);
        if through > last {
            return Err(RecoverError::Behind { through, last, segno, offset });
        }
        self.fits_snapshot().map_err(|fault| RecoverError::Chain { segno, offset, n, fault })
    }
}

#[cfg(test)]
mod tests;
