//! The providers. For each: the authentication of its requests, its reports, and the document that
//! connects a call in its language.
//!
//! Pure: requests and times are arguments; reports and documents are results. Independent of the
//! database and of attribution. Source: docs/spec/calls.md, "Providers".

mod bandwidth;
mod connect;
mod generic;
mod moment;
mod plivo;
mod signalwire;
mod signed;
mod telnyx;
mod twilio;
mod vonage;

use axum::http::{HeaderMap, Method};
use ringwell_config::CallProvider;
use ringwell_core::Millis;

pub use connect::{Connect, Document, Instruction, Refusal};
pub(crate) use moment::parse as parse_moment;
pub use signed::{Shown, Unsigned};

use crate::account::Account;
use crate::call::CallEvent;
use crate::form::Form;

/// The longest id of a call at a provider, in bytes.
const CALL_ID_BYTES_MAX: usize = 200;

/// One request of a provider, as received.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// GET or POST.
    pub method: Method,
    /// Path and query, byte for byte.
    pub target: String,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The time of its arrival.
    pub received: Millis,
}

/// The subject of a request, given by the last part of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A call has arrived; the answer connects it.
    Answer,
    /// A destination has finished; the answer names the next step.
    Dial,
    /// An event, for information.
    Status,
    /// The announcement to the callee before the parties are connected.
    Whisper,
}

/// The index of a hook's destination in a call's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leg {
    /// Its index in the list.
    pub place: usize,
    /// Whether it is the last of the list.
    pub is_last: bool,
}

/// The contents of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The provider's id of the call: that of the caller's leg, even in reports about the other
    /// leg.
    pub call: String,
    /// The event, if it is relevant.
    pub events: Vec<CallEvent>,
    /// The called number, as received.
    pub to: Option<String>,
    /// The caller, as received.
    pub from: Option<String>,
    /// The network's verdict on the caller's number.
    pub stir: Option<Stir>,
    /// The index of its destination.
    pub leg: Leg,
}

/// STIR/SHAKEN: whether the network attests the caller's number.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stir {
    /// The verdict as the provider words it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verstat: Option<String>,
    /// `A`, `B` or `C`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<String>,
}

/// The reason why a correctly signed request is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The request identifies no call, or its id is invalid.
    #[error("the request does not identify a call")]
    NoCall,
    /// The call's id is invalid, or missing.
    #[error(
        "{0} must be a text of 1 to {CALL_ID_BYTES_MAX} printable ASCII characters without spaces"
    )]
    CallId(&'static str),
    /// The body is not in the provider's format.
    #[error("the body is not {0}")]
    Form(&'static str),
}

impl Hook {
    /// The hook at the end of a path.
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

impl Incoming {
    /// The query, without its `?`.
    #[must_use]
    pub fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// Names and values of the query.
    #[must_use]
    pub fn query_form(&self) -> Form {
        Form::read(self.query().as_bytes())
    }

    /// Names and values of the body; empty unless it is a form. The body of a GET is ignored,
    /// because the signature of a GET request does not cover it.
    #[must_use]
    pub fn form(&self) -> Form {
        if self.method == Method::POST && self.is_form() {
            Form::read(&self.body)
        } else {
            Form::default()
        }
    }

    /// Whether the query or the form of the body has more fields than are read, so that their
    /// signature cannot be checked.
    #[must_use]
    pub fn has_too_many_fields(&self) -> bool {
        let is_form = self.method == Method::POST && self.is_form();
        Form::is_too_long(self.query().as_bytes()) || is_form && Form::is_too_long(&self.body)
    }

    fn is_form(&self) -> bool {
        self.header("content-type").starts_with("application/x-www-form-urlencoded")
    }

    /// The value of a header field; empty if it is missing or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn leg(&self) -> Leg {
        let query = self.query_form();
        let place = query.get("leg").parse().unwrap_or_default();
        Leg { place, is_last: query.get("last") == "1" }
    }
}

/// Checks that the provider of `account` has sent `request`.
///
/// # Errors
/// [`Unsigned`] has a URL that would have matched, if there is one.
pub fn verify(account: &Account, request: &Incoming) -> Result<(), Unsigned> {
    match account.provider {
        CallProvider::Twilio => twilio::verify(account, request),
        CallProvider::SignalWire => signalwire::verify(account, request),
        CallProvider::Telnyx => telnyx::verify(account, request),
        CallProvider::Plivo => plivo::verify(account, request),
        CallProvider::Vonage => vonage::verify(account, request),
        CallProvider::Bandwidth => bandwidth::verify(account, request),
        CallProvider::Generic => generic::verify(account, request),
    }
}

/// Reads the contents of `request`.
///
/// # Errors
/// [`Unreadable`].
pub fn read(account: &Account, hook: Hook, request: &Incoming) -> Result<Report, Unreadable> {
    let report = match account.provider {
        CallProvider::Twilio | CallProvider::SignalWire => {
            let report = twilio::read(hook, request)?;
            // The signed string does not delimit fields, so the field after the id could be read as
            // part of it.
            if !twilio::is_sid(&report.call) {
                return Err(Unreadable::NoCall);
            }
            report
        }
        CallProvider::Telnyx => telnyx::read(hook, request)?,
        CallProvider::Plivo => plivo::read(hook, request)?,
        CallProvider::Vonage => vonage::read(hook, request)?,
        CallProvider::Bandwidth => bandwidth::read(hook, request)?,
        CallProvider::Generic => generic::read(hook, request)?,
    };
    if is_call_id(&report.call) { Ok(report) } else { Err(Unreadable::NoCall) }
}

/// Whether `id` can be the id of a call.
fn is_call_id(id: &str) -> bool {
    (1..=CALL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// The document that makes the provider carry out `answer`.
#[must_use]
pub fn document(account: &Account, answer: &Instruction) -> Document {
    match account.provider {
        CallProvider::Twilio | CallProvider::SignalWire | CallProvider::Telnyx => {
            twilio::document(account, answer)
        }
        CallProvider::Plivo => plivo::document(account, answer),
        CallProvider::Vonage => vonage::document(account, answer),
        CallProvider::Bandwidth => bandwidth::document(account, answer),
        CallProvider::Generic => generic::document(answer),
    }
}

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod vectors;
