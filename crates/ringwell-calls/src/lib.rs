//! Calls: telephony providers, the call log, attribution at the ring, webhooks out.

pub mod account;
pub mod call;
pub mod caller;
pub mod confidence;
pub mod digest;
pub mod form;
pub mod markup;
pub mod provider;

pub use account::Account;
pub use call::{CallEvent, EventKind, Facts, Outcome, State};
pub use caller::Caller;
