//! The reasons why a shard cannot continue from its log.

use ringwell_journal::{ChainFault, DecodeError, MessageFault};

use crate::store::{FileError, Unreached};

/// The reason why a shard cannot continue from its log. No number was handed out.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The servers of the log did not answer in time.
    #[error(transparent)]
    Unreached(#[from] Unreached),
    /// A file of the copy on this machine could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The log is empty, and no copy or snapshot contains its lost groups.
    #[error(
        "the log of shard {shard} is empty: its next group would be {begins}, but the groups from \
         {wanted} on are missing. The log's messages were removed, and no snapshot beside the log \
         can be read. Restore the shard's stream and its stream of snapshots from the same backup, \
         or start on a machine that has a copy of the journal"
    )]
    LostHead {
        /// The shard.
        shard: u16,
        /// The place of the log's next group.
        begins: u64,
        /// The first group that is missing.
        wanted: u64,
    },
    /// A message is missing, although the log has earlier and later messages.
    #[error(
        "message {n} is missing from the middle of the log of shard {shard}, so the records in \
         that message are unknown. Make another replica the leader of the stream, and start again"
    )]
    Hole {
        /// The shard.
        shard: u16,
        /// The message.
        n: u64,
    },
    /// A message cannot be used.
    #[error("message {n} of the log of shard {shard}: {fault}. {}", remedy(*fault))]
    Message {
        /// The shard.
        shard: u16,
        /// The message.
        n: u64,
        /// The reason.
        fault: MessageFault,
    },
    /// A message does not continue the one before it.
    #[error("message {n} of the log of shard {shard} does not follow the one before it: {fault}")]
    Chain {
        /// The shard.
        shard: u16,
        /// The message.
        n: u64,
        /// The rule that the message breaks.
        fault: ChainFault,
    },
    /// A message belongs to another journal.
    #[error(
        "message {n} of the log of shard {shard} belongs to another journal of this shard: it was \
         copied from another stream, and nothing after it can be used. Restore the stream from a \
         backup, or stop all Ringwell servers for the longest lifetime, then start them with \
         another `stream` that only Ringwell may publish to"
    )]
    Foreign {
        /// The shard.
        shard: u16,
        /// The message.
        n: u64,
    },
    /// A group cannot be read.
    #[error(
        "message {n} of the log of shard {shard} is intact, but {fault}. If a newer version of \
         Ringwell has served this shard, start that version"
    )]
    Record {
        /// The shard.
        shard: u16,
        /// The message.
        n: u64,
        /// The place of the error in the group, and the reason.
        fault: DecodeError,
    },
    /// The log does not accept the take-over.
    #[error("shard {shard} cannot be taken over: {reason}")]
    NotTaken {
        /// The shard.
        shard: u16,
        /// The reason.
        reason: String,
    },
}

fn remedy(fault: MessageFault) -> &'static str {
    match fault {
        MessageFault::Foreign => {
            "If a newer version has served this shard, start the newer version. If another program \
             has written the message, nothing after it can be used: stop all Ringwell servers \
             for the longest lifetime, then start them with another `stream` that only \
             Ringwell may publish to"
        }
        MessageFault::Damaged => {
            "No server of the stream has an intact copy of the message: restore the stream from a \
             backup, or stop all Ringwell servers for the longest lifetime, then start them with \
             another `stream`"
        }
    }
}

impl FollowError {
    /// Whether another server may have an intact copy of the message.
    pub(super) fn may_be_of_one_server(&self) -> bool {
        matches!(self, Self::Hole { .. } | Self::Message { fault: MessageFault::Damaged, .. })
    }
}
