//! The journal of one shard: records, groups, frames, recovery and snapshots, as bytes.
//!
//! A shard appends **records** to the open **group**. When a group is sealed, it gets the next
//! number `n`, counted from 1, and the hash of the previous group. While one group is being stored,
//! the next one collects records. A group that is stored in a file is a **frame** in a **segment**.
//! A **snapshot** limits the number of frames that must be read at startup.
//!
//! The crate takes bytes and returns bytes. It does not depend on files, clocks, threads or the
//! allocation rules. All input is checked, even input that this version wrote. Invalid input leads
//! to an error, never to a panic. Source: docs/spec/journal.md.

mod bytes;
mod clocks;
mod erase;
mod frame;
mod group;
mod message;
mod place;
mod record;
mod recover;
mod segment;
mod snapshot;

pub use clocks::{
    CLOCK_DIFFERENCE_MAX, Clocks, Noted, believed_wall, shifted, wall_before, wall_less_shard,
    wall_less_shard_at,
};
pub use erase::{ERASABLE_BYTES_MIN, erase, parameters_in, pieces};
pub use frame::{
    BLOCK_BYTES, FrameFault, FrameHeader, decode_body, decode_header, encode_frame, frame_bytes,
    has_stamp,
};
pub use group::{GROUP_FULL_BYTES, Group, GroupHeader, Tip, Writer};
pub use message::{
    Author, MESSAGE_BYTES_MAX, MessageFault, Packer, decode_message, encode_message,
    encode_packed_message, is_foreign_message, message_number,
};
pub use place::{BODY_BYTES_MAX, position, position_parts};
pub use record::{
    DecodeError, DecodeFault, PARAMS_BYTES_MAX, RECORD_OVERHEAD_MAX, Record, Records, Restored,
    RowKey,
};
pub use recover::{
    ChainFault, Cut, Foreign, Oldest, RecoverError, Recovered, RecoveryPlan, SegmentFile,
    SegmentInfo, Segments, SnapshotMark, Step, Verdict, Walk, continues, recover,
};
pub use segment::{
    FORMAT_VERSION, SEGMENT_HEADER_BYTES, SegmentFault, SegmentHeader, encode_end, salt,
};
pub use snapshot::{
    AnswerEntry, Chunk, Entries, ForeignTimeEntry, HoldEntry, NumberEntry, RecordedAnswer,
    SNAPSHOT_VERSION, Snapshot, SnapshotError, SnapshotHeader, SnapshotReader, SnapshotWriter,
};

#[cfg(test)]
mod tests;
