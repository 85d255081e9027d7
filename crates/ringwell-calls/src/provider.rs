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
mod report;
mod request;
mod signalwire;
mod signed;
mod telnyx;
mod twilio;
mod vonage;

use ringwell_config::CallProvider;

pub use connect::{Connect, Document, Instruction, Refusal};
pub(crate) use moment::{is_before_1970, is_too_late, parse as parse_moment};
use report::is_call_id;
pub use report::{Hook, Leg, Report, Stir, Unread, Unreadable};
pub use request::Incoming;
pub use signed::{Shown, Unsigned};

use crate::account::Account;

/// Checks that `request` was sent by `account`'s provider.
///
/// # Errors [`Unsigned`] if it was not. If the signature would match another URL, the error
/// contains that URL.
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
