//! A simulated telephone: sends the requests that a provider would send for a call, with signatures
//! and callbacks.
//!
//! Runs the steps of a call. Each provider's requests and documents are in a separate file. The
//! server cannot distinguish the telephone's requests from a provider's. Source:
//! docs/spec/calls.md, "Providers".

mod bandwidth;
mod generic;
mod markup;
mod plivo;
mod provider_side;
mod sign;
mod twilio;
mod vonage;

use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ringwell_config::CallProvider;

use self::provider_side::{Body, Dial, Report, Side, Step};
pub(crate) use self::provider_side::{Phone, Ring};
use crate::api_client::ApiClient;

/// The time that providers wait for an answer. Twilio waits the longest.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// The maximum ringing time of a destination if the server's document sets none.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The outcome of a call.
pub(crate) enum CallResult {
    /// The destination answered, and the parties talked.
    Answered,
    /// All destinations rang, but none answered in time.
    NoAnswer,
    /// The server's document names no destination for the caller.
    NotConnected(String),
}

const fn side(provider: CallProvider) -> &'static dyn Side {
    match provider {
        CallProvider::Twilio | CallProvider::SignalWire | CallProvider::Telnyx => &twilio::Twiml,
        CallProvider::Plivo => &plivo::Plivo,
        CallProvider::Vonage => &vonage::Vonage,
        CallProvider::Bandwidth => &bandwidth::Bandwidth,
        CallProvider::Generic => &generic::Generic,
    }
}

impl Phone {
    /// Makes the call, and returns after it has ended. Passes a description of each step to `say`.
    ///
    /// # Errors
    /// If the server does not answer correctly.
    pub(crate) fn ring(&self, ring: &Ring<'_>, say: impl Fn(&str)) -> anyhow::Result<CallResult> {
        let (client, side) = (ApiClient::without_token(ANSWER_MAX)?, side(self.provider));
        let document = self.post(&client, &self.hook("answer"), &side.begins(ring))?;
        let Some(mut dial) = side.read(&document) else {
            return Ok(CallResult::NotConnected(document));
        };
        // Sends reports, and returns the destination in the answers.
        let send = |reports: Vec<Report>| {
            let mut next = None;
            for (to, body) in reports {
                next = side.read(&self.post(&client, &self.target(&to)?, &body)?).or(next);
            }
            Ok::<_, anyhow::Error>(next)
        };
        let mut left = ring.answer_after;
        loop {
            let timeout = dial.timeout.map_or(TIMEOUT, Duration::from_secs);
            let seconds = timeout.as_secs();
            say(&format!("dialing {}, which rings for up to {seconds} s", dial.destination));
            send(side.reports(ring, &dial, Step::Ringing))?;
            thread::sleep(left.min(timeout));
            if left < timeout {
                break;
            }
            left -= timeout;
            let Some(next) = send(side.reports(ring, &dial, Step::NoAnswer))? else {
                send(side.ends(ring, None))?;
                return Ok(CallResult::NoAnswer);
            };
            say("no answer");
            dial = Dial { place: dial.place + 1, ..next };
        }
        send(side.reports(ring, &dial, Step::Answered))?;
        say("answered");
        thread::sleep(ring.talk);
        send(side.reports(ring, &dial, Step::Completed(ring.talk)))?;
        send(side.ends(ring, Some(ring.talk)))?;
        Ok(CallResult::Answered)
    }

    /// Posts a signed body to `target`, and returns the document in the answer.
    fn post(&self, client: &ApiClient, target: &str, body: &Body) -> anyhow::Result<String> {
        let (kind, text) = match body {
            Body::Form(fields) => ("application/x-www-form-urlencoded", form(fields)),
            Body::Json(value) => ("application/json", value.to_string()),
        };
        let headers = sign::headers(self, target, body, &text)?;
        let sent = (kind, text.into());
        let (status, answer) = client.send_with(&self.url, Method::POST, target, sent, headers)?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        ensure!(
            status != StatusCode::NOT_FOUND,
            "{} does not accept webhooks for account {}: set --url to the address in the running \
             server's `calls.listen` setting",
            self.url,
            self.account
        );
        ensure!(status == StatusCode::OK, "{} answered {status}: {}", self.url, text.trim());
        Ok(text)
    }

    /// Returns the path of one of the account's hooks.
    fn hook(&self, name: &str) -> String {
        format!("/t/{}/{name}", self.account)
    }

    /// Returns the request target for `url`, which is a hook's name or a callback URL below the
    /// account's `public_url`.
    fn target(&self, url: &str) -> anyhow::Result<String> {
        if !url.contains("://") {
            return Ok(self.hook(url));
        }
        let rest = url.strip_prefix(self.public_url.as_str());
        let rest =
            rest.with_context(|| format!("{url} does not begin with the account's public_url"))?;
        Ok(rest.to_owned())
    }
}

fn form(fields: &[(&str, String)]) -> String {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}
