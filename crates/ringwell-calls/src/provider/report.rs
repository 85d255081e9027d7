//! The contents of a provider's request: the call, its events, and the request's purpose.

use ringwell_core::Millis;

use crate::call::CallEvent;
use crate::digest;
use crate::form::Form;

/// The maximum length of a provider's call id, in bytes.
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

/// An attempt to reach a destination. It is part of the URLs in answers to the provider, so it
/// needs no storage and survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leg {
    /// The count of attempts before this one.
    pub place: usize,
    /// The [`mark`]s of the destinations tried so far, including this one. Empty if the URL is from
    /// a release that wrote only `place`, which was then the index in the list of destinations.
    pub tried: Vec<String>,
}

/// The number of characters in a [`mark`].
const MARK_CHARS: usize = 8;
/// The maximum number of attempts for one call. A list contains at most ten destinations, but the
/// list may change while the call rings.
const ATTEMPTS_MAX: usize = 30;

/// Identifies the destination `to` in a URL: the beginning of its SHA-256.
fn mark(to: &str) -> String {
    digest::sha256_hex(to.as_bytes())[..MARK_CHARS].to_owned()
}

impl Leg {
    /// Reads the query string of a URL.
    pub(super) fn read(query: &Form) -> Self {
        let place = query.get("leg").parse().unwrap_or_default();
        let marks = query.get("tried").as_bytes().chunks_exact(MARK_CHARS).take(ATTEMPTS_MAX);
        let tried = marks.map(|mark| String::from_utf8_lossy(mark).into_owned()).collect();
        Self { place, tried }
    }

    /// The leg's part of a query string.
    pub(super) fn query(&self) -> String {
        format!("leg={}&tried={}", self.place, self.tried.concat())
    }

    /// A call's first attempt to reach the destinations in `plan`. `None` if there are none.
    pub(crate) fn first(plan: &[String]) -> Option<(&String, Self)> {
        let to = plan.first()?;
        Some((to, Self { place: 0, tried: vec![mark(to)] }))
    }

    /// The attempt after this one: the first destination in `plan` that has not been tried yet. The
    /// list may have changed since the call began. A destination that is listed twice is tried
    /// twice.
    pub(crate) fn next<'a>(&self, plan: &'a [String]) -> Option<(&'a String, Self)> {
        let mut tried = self.tried.clone();
        if tried.is_empty() {
            tried.extend(plan.iter().take(self.place.saturating_add(1)).map(|to| mark(to)));
        }
        let place = self.place.checked_add(1).filter(|place| *place < ATTEMPTS_MAX)?;
        let marks: Vec<String> = plan.iter().map(|to| mark(to)).collect();
        let count = |all: &[String], mark: &String| all.iter().filter(|it| *it == mark).count();
        let is_left = |index: &usize| {
            count(&marks[..=*index], &marks[*index]) > count(&tried, &marks[*index])
        };
        let index = (0..plan.len()).find(is_left)?;
        tried.push(marks[index].clone());
        Some((&plan[index], Self { place, tried }))
    }
}

/// The contents of a provider's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The provider's id for the call. It is the id of the caller's leg, even in reports about the
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
    /// The destination that the report refers to.
    pub leg: Leg,
    /// The time for which the report waited at the provider.
    pub waited: Millis,
    /// The fields that were ignored, because their values are not accepted.
    pub unread: Vec<Unread>,
}

/// A field that was ignored, because its value is not accepted. Does not contain the value, which
/// may identify a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The field's name.
    pub field: &'static str,
    /// The accepted values.
    pub accepted: &'static str,
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
    /// The request does not contain a valid call id.
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

/// Whether `id` is a valid call id.
pub(super) fn is_call_id(id: &str) -> bool {
    (1..=CALL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}
