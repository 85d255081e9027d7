//! Determines whether a log contains a message, although the log may answer late, wrongly, or
//! never. Each [`Appending`] covers one message, and does no I/O.
//!
//! An append names the place of its message, so the message cannot be stored twice. An
//! acknowledgement means that the message is stored. No other answer proves anything about a
//! message that was sent earlier. For example, a leader without a quorum refuses a message because
//! it counts its own proposals, which may be stored later or never. The result of an append depends
//! only on which message ends up at the append's place.
//!
//! If the log has lost its newest messages, another owner may have filled it up to the message's
//! place. Checking only the place would then not fence this process. So nothing is sent again
//! before the preceding message has been read. While that message is missing, nothing is sent at
//! all, because another owner may be filling the log at the same time. Source: docs/spec/log.md,
//! "Appending".

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use ringwell_journal::{Author, Group, Tip, decode_message};

use super::{NotAppended, Unreached};
use crate::canary::{Bug, planted};

/// The first pause before a message is sent again. Each further pause is twice as long as the one
/// before.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The maximum time for which a new leader may lack acknowledged messages. The longest time
/// measured was 18 s.
pub(crate) const STALE_MAX: Duration = Duration::from_secs(25);

/// The maximum time for which a leader may report that it has a message without returning it. After
/// that, another server is asked to lead.
const HIDDEN_MAX: Duration = Duration::from_secs(2);

/// A message that is being appended to a log.
#[derive(Debug)]
pub struct Appending {
    author: Author,
    n: u64,
    message: Bytes,
    /// Whether the message was sent and may be in the log now or later.
    is_open: bool,
    pause: Duration,
    /// The hash of the preceding message; `None` if that message is not checked.
    before: Option<u64>,
    /// Whether this process wrote the preceding message.
    is_before_own: bool,
    /// Whether the log answered the last requests but lacks the preceding message.
    is_missing: bool,
    /// The time for which the preceding message has been missing.
    missing: Duration,
    /// The time for which the log has refused the message because its place is taken, although the
    /// leader returns no message for that place.
    hidden: Duration,
}

/// The message before the one that is being appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Another process wrote this message, and it has just been read.
    OfAnother,
    /// This process wrote this message. If the message is old, it is read before anything is sent,
    /// because the log may have lost it since.
    Own {
        /// Whether the message is so old that the log may have lost it.
        is_old: bool,
    },
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read the preceding message, and pass the answer to [`Appending::before`].
    ReadBefore,
    /// Read the range of the log, and pass the answer to [`Appending::ends`].
    ReadEnds,
    /// Ask another server to lead, and pass the answer to [`Appending::changed_leader`].
    ChangeLeader,
    /// Send the message, and pass the answer to [`Appending::appended`].
    Append,
    /// Read the message's place, and pass the answer to [`Appending::read`].
    Read,
    /// Wait for this long, and then call [`Appending::paused`].
    Pause(Duration),
    /// The fate of the message is known.
    Done(Fate),
}

/// The fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The log has the message.
    Stored,
    /// The log has another owner's message at this message's place, so it will never store this
    /// message.
    Taken {
        /// The other owner's epoch.
        epoch: u64,
    },
    /// The log has no space left, and has never had the message.
    Full,
    /// The message cannot be stored, for this reason.
    Failed(String),
}

impl Appending {
    /// Begins to append `message` as message `n`.
    #[must_use]
    pub fn begin(author: Author, n: u64, message: Bytes) -> (Self, Ask) {
        let appending = Self {
            author,
            n,
            message,
            is_open: false,
            pause: PAUSE_MIN,
            before: None,
            is_before_own: false,
            is_missing: false,
            missing: Duration::ZERO,
            hidden: Duration::ZERO,
        };
        (appending, Ask::Append)
    }

    /// Sets the preceding message's origin and `hash`.
    #[must_use]
    pub fn after(self, hash: u64, message: Before) -> (Self, Ask) {
        let before = Some(hash).filter(|_| self.n > 1 && !planted(Bug::PlaceAlone));
        let is_old = message == Before::Own { is_old: true };
        let is_before_own = message != Before::OfAnother;
        let ask = if is_old && before.is_some() { Ask::ReadBefore } else { Ask::Append };
        (Self { before, is_before_own, ..self }, ask)
    }

    /// A pause is over.
    #[must_use]
    pub fn paused(&self) -> Ask {
        if self.before.is_some() { Ask::ReadBefore } else { Ask::Append }
    }

    /// Processes the answer to a read of the preceding message.
    #[must_use]
    pub fn before(&mut self, answer: Result<Option<Bytes>, Unreached>) -> Ask {
        let n = self.n - 1;
        match answer {
            Err(_) => self.pause(),
            // The preceding message was dropped with old history, or the log ends before it.
            Ok(None) if self.missing < STALE_MAX => {
                self.is_missing = true;
                Ask::ReadEnds
            }
            Ok(None) => Ask::Done(Fate::Failed(format!(
                "the log has lost message {n}, which it had acknowledged, and possibly others"
            ))),
            Ok(Some(there)) => match decode_message(&there) {
                Err(fault) => Ask::Done(Fate::Failed(format!("message {n} of the log: {fault}"))),
                Ok((author, group)) if self.continues(&author, &group) => {
                    (self.is_missing, self.missing) = (false, Duration::ZERO);
                    Ask::Append
                }
                Ok((_, group)) => Ask::Done(Fate::Taken { epoch: group.header.epoch }),
            },
        }
    }

    /// Whether `group` is the preceding message. The hash of a group alone does not identify the
    /// author. If the log loses a take-over's group and a second process takes over at the same
    /// place, both processes write the same group.
    fn continues(&self, author: &Author, group: &Group) -> bool {
        Some(Tip::after(&group.header).prev_hash) == self.before
            && (!self.is_before_own || author.incarnation == self.author.incarnation)
    }

    /// Processes the range of the log, which was read because the preceding message or the message
    /// at this one's place is missing.
    #[must_use]
    pub fn ends(&mut self, answer: Result<Range<u64>, Unreached>) -> Ask {
        if self.hidden >= HIDDEN_MAX {
            self.hidden = Duration::ZERO;
            return match answer {
                Ok(ends) if ends.start > self.n => Ask::Done(Fate::Failed(format!(
                    "the log no longer contains message {}, which another process has written",
                    self.n
                ))),
                // A message that is in the log is missing only from the leader's copy.
                Ok(ends) if ends.end > self.n && !planted(Bug::HiddenIgnored) => Ask::ChangeLeader,
                Ok(_) | Err(_) => self.pause(),
            };
        }
        match answer {
            // All messages before this one were dropped with old history.
            Ok(ends) if ends.start >= self.n => Ask::Append,
            Ok(_) | Err(_) => self.pause(),
        }
    }

    /// Processes the answer to an append.
    #[must_use]
    pub fn appended(&mut self, answer: Result<(), NotAppended>) -> Ask {
        match answer {
            Ok(()) => Ask::Done(Fate::Stored),
            Err(NotAppended::Taken) if planted(Bug::TakenIsTheirs) => {
                Ask::Done(Fate::Taken { epoch: 0 })
            }
            Err(NotAppended::Taken) if planted(Bug::TakenIsMine) => Ask::Done(Fate::Stored),
            Err(NotAppended::Taken) => {
                self.is_open = true;
                Ask::Read
            }
            Err(NotAppended::Unknown) => {
                (self.is_open, self.is_missing) = (true, false);
                Ask::Read
            }
            Err(NotAppended::Full | NotAppended::Refused(_)) if self.is_open => Ask::Read,
            Err(NotAppended::Full) => Ask::Done(Fate::Full),
            Err(NotAppended::Refused(why)) => Ask::Done(Fate::Failed(why)),
        }
    }

    /// Processes the answer to a read of the message's place.
    #[must_use]
    pub fn read(&mut self, answer: Result<Option<Bytes>, Unreached>) -> Ask {
        match answer {
            Ok(Some(there)) if there == self.message => Ask::Done(Fate::Stored),
            Ok(Some(there)) => Ask::Done(self.judge(&there)),
            Ok(None) if self.hidden >= HIDDEN_MAX => Ask::ReadEnds,
            Ok(None) => {
                self.hidden += self.pause;
                self.pause()
            }
            Err(_) => self.pause(),
        }
    }

    /// Processes the answer to a request that another server should lead. If no other server can
    /// lead, the request is repeated later.
    #[must_use]
    pub fn changed_leader(&mut self, _: Result<(), Unreached>) -> Ask {
        self.pause()
    }

    fn pause(&mut self) -> Ask {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        if self.is_missing {
            self.missing += pause;
        }
        Ask::Pause(pause)
    }

    /// Decides the fate of the message if another message is at its place.
    fn judge(&self, there: &[u8]) -> Fate {
        let n = self.n;
        match decode_message(there) {
            Err(fault) => Fate::Failed(format!("message {n} of the log: {fault}")),
            Ok((author, _)) if author.incarnation == self.author.incarnation => Fate::Failed(
                format!("this process has already written a different message {n} to the log"),
            ),
            Ok((author, group)) => {
                let is_ours =
                    (author.shard, author.journal) == (self.author.shard, self.author.journal);
                if is_ours && group.header.n == n {
                    Fate::Taken { epoch: group.header.epoch }
                } else {
                    Fate::Failed(format!(
                        "message {n} of the log belongs to another journal: if two processes \
                         were started at the same time on an empty log, start this one again"
                    ))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
