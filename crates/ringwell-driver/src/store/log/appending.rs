//! Decides whether a message is in a log that answers late, wrongly, or never: one decision,
//! without I/O.
//!
//! An append names the place of its message, so that it cannot be stored twice. An acknowledgement
//! says that it is stored. No other answer says anything about a message that was sent before: a
//! leader without a quorum refuses a message because of its own proposals, which may be stored
//! later or never. Only the message at that place decides. Source: docs/spec/log.md, "Appending".

use std::time::Duration;

use bytes::Bytes;
use ringwell_journal::{Author, decode_message};

use super::{NotAppended, Unreached};
use crate::canary::{Bug, planted};

/// The first pause before a message is sent again; each is twice as long as the previous one.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// One message on its way into a log.
#[derive(Debug)]
pub struct Appending {
    author: Author,
    n: u64,
    message: Bytes,
    /// Whether a sent message may be in the log, or may still enter it.
    is_open: bool,
    pause: Duration,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Send the message, and report with [`Appending::appended`].
    Append,
    /// Read the message at its place, and report with [`Appending::read`].
    Read,
    /// Wait this long, then send the message.
    Pause(Duration),
    /// That is all.
    Done(Fate),
}

/// The fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The log has it.
    Stored,
    /// The log has another owner's at its place, and will never have it.
    Taken {
        /// The other owner's epoch.
        epoch: u64,
    },
    /// The log has no room, and has never had it.
    Full,
    /// It cannot be stored.
    Failed(String),
}

impl Appending {
    /// Begins to append `message` as number `n`.
    #[must_use]
    pub fn begin(author: Author, n: u64, message: Bytes) -> (Self, Ask) {
        (Self { author, n, message, is_open: false, pause: PAUSE_MIN }, Ask::Append)
    }

    /// The log has answered an append.
    #[must_use]
    pub fn appended(&mut self, answer: Result<(), NotAppended>) -> Ask {
        match answer {
            Ok(()) => Ask::Done(Fate::Stored),
            Err(NotAppended::Taken) if planted(Bug::TakenIsTheirs) => {
                Ask::Done(Fate::Taken { epoch: 0 })
            }
            Err(NotAppended::Taken) if planted(Bug::TakenIsMine) => Ask::Done(Fate::Stored),
            Err(NotAppended::Taken | NotAppended::Unknown) => {
                self.is_open = true;
                Ask::Read
            }
            Err(NotAppended::Full | NotAppended::Refused(_)) if self.is_open => Ask::Read,
            Err(NotAppended::Full) => Ask::Done(Fate::Full),
            Err(NotAppended::Refused(why)) => Ask::Done(Fate::Failed(why)),
        }
    }

    /// The log has answered a read of the message's place.
    #[must_use]
    pub fn read(&mut self, answer: Result<Option<Bytes>, Unreached>) -> Ask {
        let Ok(Some(there)) = answer else {
            let pause = self.pause;
            self.pause = (pause * 2).min(PAUSE_MAX);
            return Ask::Pause(pause);
        };
        Ask::Done(if there == self.message { Fate::Stored } else { self.judge(&there) })
    }

    /// Another message has this one's place.
    fn judge(&self, there: &[u8]) -> Fate {
        let n = self.n;
        match decode_message(there) {
            Err(fault) => Fate::Failed(format!("message {n} of the log: {fault}")),
            Ok((author, _)) if author.incarnation == self.author.incarnation => {
                Fate::Failed(format!("message {n} of the log is another one of this process"))
            }
            Ok((author, group)) => {
                let is_ours =
                    (author.shard, author.journal) == (self.author.shard, self.author.journal);
                if is_ours && group.header.n == n {
                    Fate::Taken { epoch: group.header.epoch }
                } else {
                    Fate::Failed(format!("message {n} of the log is of another journal"))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
