//! The reasons why a shard does not start, written for the operator who has to decide what to do.

use std::fmt;

use crate::frame::FrameFault;
use crate::record::DecodeError;
use crate::segment::SegmentFault;

/// The journal cannot be trusted, or cannot be read. Nothing was changed.
///
/// Every variant means that this shard does not start. The error message states where the damage is
/// and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError<E> {
    /// The segments could not be listed.
    #[error("cannot list the segments: {0}")]
    List(E),
    /// A segment could not be read.
    #[error("cannot read segment {segno:016} at offset {offset}: {source}")]
    Read {
        /// The segment.
        segno: u64,
        /// The offset in the segment.
        offset: u64,
        /// The error that the storage returned.
        source: E,
    },
    /// A segment does not begin with a valid head.
    #[error("segment {segno:016} {}", explain(*fault))]
    Segment {
        /// The segment.
        segno: u64,
        /// The rule that the segment's first block breaks.
        fault: SegmentFault,
    },
    /// The end of the newest segment is missing.
    #[error(
        "segment {segno:016} has {bytes} bytes but was longer when it was created: answers may \
         have been sent for frames in the missing part. {RESTORE}"
    )]
    Short {
        /// The segment.
        segno: u64,
        /// The length of the segment's file in bytes.
        bytes: u64,
    },
    /// A segment belongs to another journal or shard, or the number in its head differs from the
    /// number in its file's name.
    #[error(
        "segment {segno:016} does not belong here: {why}. Move it away or restore the right file"
    )]
    Foreign {
        /// The segment.
        segno: u64,
        /// The evidence that the segment does not belong here.
        why: Foreign,
    },
    /// The first frames to replay are missing.
    #[error(
        "frame {expected} is needed, but {found}. Restore the missing segments from a copy, then \
         start the server again"
    )]
    Missing {
        /// The first frame that is needed.
        expected: u64,
        /// The oldest frame that was found.
        found: Oldest,
    },
    /// A bad frame is followed by newer frames, so the damage is in the middle of the journal.
    #[error(
        "segment {segno:016} is damaged at offset {offset}: frame {n} is {fault}, but frame \
         {newer_n} in segment {newer_segno:016} at offset {newer_offset} was written after it, so \
         answers were sent for frame {n}, and this frame must not be cut off. Restore segment \
         {segno:016} from a copy, then start the server again"
    )]
    Damaged {
        /// The segment.
        segno: u64,
        /// The offset of the bad frame.
        offset: u64,
        /// Its number.
        n: u64,
        /// The fault in the bad frame.
        fault: FrameFault,
        /// The segment that contains a newer frame, or whose head shows that its first frame is
        /// newer.
        newer_segno: u64,
        /// The offset of the newer frame.
        newer_offset: u64,
        /// The number of the newer frame.
        newer_n: u64,
    },
    /// A frame is intact but does not continue the journal.
    #[error(
        "segment {segno:016} at offset {offset}, where frame {n} is expected: the frame is intact, \
         but {fault}. {RESTORE}"
    )]
    Chain {
        /// The segment.
        segno: u64,
        /// The offset of the frame.
        offset: u64,
        /// The number that was expected.
        n: u64,
        /// The rule that the frame breaks.
        fault: ChainFault,
    },
    /// A frame is intact, but contains a record that cannot be read.
    #[error("segment {segno:016} at offset {offset}: the frame is intact, but {source}. {VERSION}")]
    Record {
        /// The segment.
        segno: u64,
        /// The offset of the frame.
        offset: u64,
        /// The fault in the record.
        source: DecodeError,
    },
    /// The journal ends before the last frame that the snapshot may cover.
    #[error(
        "the snapshot covers frames up to {through}, but the journal ends with frame {last}, in \
         segment {segno:016} at offset {offset}: frames for which answers were sent are missing. \
         Restore the segments from a copy, then start the server again"
    )]
    Behind {
        /// The last frame that the snapshot may cover.
        through: u64,
        /// The last frame that was read.
        last: u64,
        /// The segment in which the journal ends.
        segno: u64,
        /// The offset at which the journal ends.
        offset: u64,
    },
}

const RESTORE: &str = "Restore the segment from a copy, then start the server again";
const VERSION: &str = "If a newer version of Ringwell wrote the frame, start that version";

fn explain(fault: SegmentFault) -> String {
    match fault {
        SegmentFault::Version(_) => format!(
            "cannot be read: {fault}. If a newer version of Ringwell wrote the segment, start that \
             version"
        ),
        _ => format!("is damaged: {fault}. {RESTORE}"),
    }
}

/// The evidence that a segment does not belong to the journal that is being recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// The segment's head contains this number instead of the number in the file's name.
    Number(u64),
    /// The segment belongs to another shard.
    Shard(u32),
    /// The segment belongs to a different journal than the snapshot or the segments before it.
    Journal,
}

/// The oldest frame that was found, reported if the frame that is needed is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    /// There are no segments at all.
    None,
    /// The oldest segment begins with this frame.
    Frame(u64),
}

/// The reason why an intact frame or segment does not continue its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainFault {
    /// The frame, or the first frame of the segment, has this number instead of the expected one.
    Number(u64),
    /// The frame or segment contains a wrong hash of its predecessor.
    Hash,
    /// The epoch is lower than the predecessor's.
    Epoch,
    /// The time is earlier than the predecessor's.
    Time,
    /// The frame before the first frame to replay does not have the hash that the snapshot
    /// contains.
    Snapshot,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(segno) => {
                write!(f, "its first block identifies it as segment {segno:016}")
            }
            Self::Shard(shard) => write!(f, "it belongs to shard {shard}"),
            Self::Journal => f.write_str("it belongs to another journal"),
        }
    }
}

impl fmt::Display for Oldest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("there is no segment"),
            Self::Frame(n) => write!(f, "the oldest segment begins with frame {n}"),
        }
    }
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "it has number {n}"),
            Self::Hash => f.write_str("its hash of the previous frame does not match that frame"),
            Self::Epoch => f.write_str("its epoch is lower than that of the frame before it"),
            Self::Time => f.write_str("its time is earlier than that of the frame before it"),
            Self::Snapshot => {
                f.write_str("the snapshot contains a different hash of the previous frame")
            }
        }
    }
}
