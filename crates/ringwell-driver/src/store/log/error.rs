//! The reasons why a request to a log fails.

/// The reason why an append was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAppended {
    /// The log reports an end other than the expected one. This message itself may be the reason,
    /// because a leader may count messages that it has proposed but not stored.
    Taken,
    /// There was no answer, or the answer was unclear.
    Unknown,
    /// The log has no space left.
    Full,
    /// The log will never accept this message, for this reason.
    Refused(String),
}

/// The log did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request to the journal's servers failed: {0}")]
pub struct Unreached(pub String);
