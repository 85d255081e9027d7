//! A provider's side of a call, and the telephone that belongs to an account.

use std::time::Duration;

use ringwell_config::CallProvider;
use serde_json::Value;

use crate::api_client::Url;

/// A telephone that belongs to a provider's account, with the address and the secret for the
/// account's webhooks.
#[derive(Clone)]
pub(crate) struct Phone {
    /// The server's address for webhooks.
    pub(crate) url: Url,
    /// The provider to simulate.
    pub(crate) provider: CallProvider,
    /// The account's name.
    pub(crate) account: String,
    /// The URL at which the provider would reach the server. Signatures cover it.
    pub(crate) public_url: String,
    /// The secret that signs requests. For Telnyx, the private key.
    pub(crate) secret: Vec<u8>,
}

/// A call to make.
pub(crate) struct Ring<'a> {
    /// The provider's id for the call.
    pub(crate) id: &'a str,
    /// The caller.
    pub(crate) from: &'a str,
    /// The called number.
    pub(crate) to: &'a str,
    /// The time that all destinations together ring before one answers.
    pub(crate) answer_after: Duration,
    /// The duration of the conversation.
    pub(crate) talk: Duration,
}

/// The body of a request.
pub(super) enum Body {
    Form(Vec<(&'static str, String)>),
    Json(Value),
}

/// The contents of a document that connects the caller.
pub(super) struct Dial {
    pub(super) destination: String,
    /// The count of destinations before this one.
    pub(super) place: usize,
    /// The maximum ringing time, in seconds.
    pub(super) timeout: Option<u64>,
    /// The URL for reports about the destination.
    pub(super) status: Option<String>,
    /// The URL to which the end of the destination's leg is reported.
    pub(super) action: Option<String>,
}

/// A call event that a provider reports.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// The destination rings.
    Ringing,
    /// The destination answered.
    Answered,
    /// The parties talked for this long and hung up.
    Completed(Duration),
    /// The destination did not answer in time.
    NoAnswer,
}

/// A report: its target (a URL, or the name of one of the account's hooks) and its body.
pub(super) type Report = (String, Body);

/// The provider's side of a call.
pub(super) trait Side {
    /// Returns the body of the first request about the call.
    fn begins(&self, ring: &Ring<'_>) -> Body;

    /// Reads the server's document. Returns `None` if it names no destination.
    fn read(&self, document: &str) -> Option<Dial>;

    /// Returns the requests that the provider sends for the event `step`, in order.
    fn reports(&self, ring: &Ring<'_>, dial: &Dial, step: Step) -> Vec<Report>;

    /// Returns the requests that the provider sends at the end of the caller's leg, with the duration
    /// of the conversation.
    fn ends(&self, ring: &Ring<'_>, talk: Option<Duration>) -> Vec<Report>;
}
