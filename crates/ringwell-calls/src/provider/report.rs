//! The contents of a provider's request: the call, its events, and the request's purpose.

use crate::call::CallEvent;

/// The maximum length of a provider's id of a call, in bytes.
pub(super) const CALL_ID_BYTES_MAX: usize = 200;

/// The purpose of a request, according to the last part of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A call has arrived. The answer connects it.
    Answer,
    /// The call to a destination has ended. The answer contains the next step.
    Dial,
    /// An event that needs no answer.
    Status,
    /// The callee has picked up. The answer to this request contains the announcement to play
    /// before the parties are connected.
    Whisper,
}

/// The destination to which a request refers, in the call's list of destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leg {
    /// The index of the destination.
    pub place: usize,
    /// Whether the destination is the last one in the list.
    pub is_last: bool,
}

/// The contents of a provider's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The provider's id of the call. It is the id of the caller's leg, even in reports about the
    /// callee's leg.
    pub call: String,
    /// The relevant events that the report contains.
    pub events: Vec<CallEvent>,
    /// The called number, as received.
    pub to: Option<String>,
    /// The caller's number or address, as received.
    pub from: Option<String>,
    /// The telephone network's verdict on whether the caller's number is genuine.
    pub stir: Option<Stir>,
    /// The destination to which the report refers.
    pub leg: Leg,
}

/// The result of STIR/SHAKEN: whether the telephone network attests that the caller's number is
/// genuine.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stir {
    /// The verdict, in the provider's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verstat: Option<String>,
    /// The attestation level: `A`, `B` or `C`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<String>,
}

/// The reason why a correctly signed request is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The request does not contain a valid id of a call.
    #[error("the request does not identify a call")]
    NoCall,
    /// The field with the call's id is invalid or missing.
    #[error(
        "{0} must be a string of 1 to {CALL_ID_BYTES_MAX} printable ASCII characters without spaces"
    )]
    CallId(&'static str),
    /// The body is not in the provider's format.
    #[error("the body is not {0}")]
    Form(&'static str),
}

impl Hook {
    /// Parses the last part of a path.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "answer" | "initiate" => Some(Self::Answer),
            "dial" | "complete" => Some(Self::Dial),
            "status" | "event" | "events" | "hangup" | "disconnect" => Some(Self::Status),
            "whisper" => Some(Self::Whisper),
            _ => None,
        }
    }
}

/// Whether `id` is a valid id of a call.
pub(super) fn is_call_id(id: &str) -> bool {
    (1..=CALL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}
