//! The providers. For each provider, authenticates its requests, reads its reports, and writes the
//! document that connects a call.
//!
//! All functions are pure: they take requests and times, and return reports and documents. They do
//! not depend on the database or on attribution. Source: docs/spec/calls.md, "Providers".

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

/// The maximum length of a provider's id of a call, in bytes.
const CALL_ID_BYTES_MAX: usize = 200;

/// A request from a provider, as received.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The method: GET or POST.
    pub method: Method,
    /// The path and query, byte for byte.
    pub target: String,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The time at which the request arrived.
    pub received: Millis,
}

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

impl Incoming {
    /// The query string without its `?`.
    #[must_use]
    pub fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// The names and values in the query string.
    #[must_use]
    pub fn query_form(&self) -> Form {
        Form::read(self.query().as_bytes())
    }

    /// The names and values in the body. Empty if the body is not a form. Ignores the body of a GET
    /// request, because the signature does not cover it.
    #[must_use]
    pub fn form(&self) -> Form {
        if self.method == Method::POST && self.is_form() {
            Form::read(&self.body)
        } else {
            Form::default()
        }
    }

    /// Whether the query string or the form in the body has more fields than are read. The
    /// signature of such a request cannot be checked.
    #[must_use]
    pub fn has_too_many_fields(&self) -> bool {
        let is_form = self.method == Method::POST && self.is_form();
        Form::is_too_long(self.query().as_bytes()) || is_form && Form::is_too_long(&self.body)
    }

    fn is_form(&self) -> bool {
        self.header("content-type").starts_with("application/x-www-form-urlencoded")
    }

    /// The value of a header field. Empty if the field is missing or not text.
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

/// Checks that `request` was sent by the provider of `account`.
///
/// # Errors
/// [`Unsigned`] if it was not. The error contains a URL with which the signature would match, if
/// there is one.
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
            // The string that these providers sign does not delimit fields. In a forged request,
            // the id could therefore contain the beginning of the next field.
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

/// Whether `id` is a valid id of a call.
fn is_call_id(id: &str) -> bool {
    (1..=CALL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
}

/// Converts `answer` to a document in the provider's format.
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
