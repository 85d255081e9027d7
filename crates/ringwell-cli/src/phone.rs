//! A telephone: rings a number as its provider would, signature and callbacks included.
//!
//! Owns the provider's side of a call, as Twilio plays it. The server cannot distinguish it from
//! the provider.

use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ringwell_calls::digest::{Mac, base64};

use crate::call::{Caller, Url};

/// The ringing time of a destination if the document sets none: Twilio's default.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The address for the webhooks of a provider's account, and their secret.
#[derive(Clone)]
pub(crate) struct Phone {
    /// The server's address for them.
    pub(crate) url: Url,
    /// The account's name.
    pub(crate) account: String,
    /// The URL by which the provider reaches the server: signatures cover it.
    pub(crate) public_url: String,
    /// The secret that signs requests.
    pub(crate) secret: Vec<u8>,
}

/// A call to be made.
pub(crate) struct Ring<'a> {
    /// The provider's name for it.
    pub(crate) id: &'a str,
    /// The caller.
    pub(crate) from: &'a str,
    /// The number that is called.
    pub(crate) to: &'a str,
    /// The time for which the destination rings before it answers.
    pub(crate) answer_after: Duration,
    /// The duration of the conversation.
    pub(crate) talk: Duration,
}

/// The outcome of a call.
pub(crate) enum Rung {
    /// The parties have talked.
    Answered,
    /// The destination rang, and did not answer in time.
    NoAnswer,
    /// The server's document connects the caller to no destination.
    NotConnected(String),
}

impl Phone {
    /// Makes the call, which takes as long as it does; `say` gets each step in words.
    ///
    /// # Errors
    /// If the server does not answer as to a provider.
    pub(crate) fn ring(&self, ring: &Ring<'_>, say: impl Fn(&str)) -> anyhow::Result<Rung> {
        let caller = Caller::for_health()?;
        let post = |target: &str, fields: &[(&str, &str)]| self.post(&caller, target, fields);
        let Ring { id, from, to, .. } = *ring;
        let leg = [("CallSid", id), ("From", from), ("To", to), ("Direction", "inbound")];
        let begin = [&leg[..], &[("CallStatus", "ringing")]].concat();
        let document = post(&format!("/t/{}/answer", self.account), &begin)?;
        let Some(destination) = inner(&document, "Number").or_else(|| inner(&document, "Sip"))
        else {
            return Ok(Rung::NotConnected(document));
        };
        let timeout = attribute(&document, "timeout").and_then(|text| text.parse().ok());
        let timeout = timeout.map_or(TIMEOUT, Duration::from_secs);
        say(&format!("connected to {destination}, which may ring for {} s", timeout.as_secs()));
        let url = |name| attribute(&document, name).context("the document names no callback");
        let (status, action) =
            (self.target(&url("statusCallback")?)?, self.target(&url("action")?)?);
        let second_leg = format!("{id}-callee");
        let report = |place: &str, state: &str, more: &[(&str, &str)]| {
            let fields = [
                ("CallSid", second_leg.as_str()),
                ("ParentCallSid", id),
                ("SequenceNumber", place),
                ("CallStatus", state),
            ];
            post(&status, &[&fields[..], more].concat())
        };
        report("1", "ringing", &[])?;
        let is_answered = ring.answer_after < timeout;
        thread::sleep(ring.answer_after.min(timeout));
        let talk = ring.talk.as_secs().to_string();
        let mut end = leg.to_vec();
        if is_answered {
            report("2", "in-progress", &[])?;
            say("answered");
            thread::sleep(ring.talk);
            report("3", "completed", &[("CallDuration", talk.as_str())])?;
            end.extend([("DialCallStatus", "completed"), ("DialBridged", "true")]);
            end.push(("DialCallDuration", talk.as_str()));
        } else {
            report("2", "no-answer", &[])?;
            end.push(("DialCallStatus", "no-answer"));
        }
        post(&action, &end)?;
        Ok(if is_answered { Rung::Answered } else { Rung::NoAnswer })
    }

    /// Posts a form to a hook, signed; returns the document of the answer.
    fn post(
        &self,
        caller: &Caller,
        target: &str,
        fields: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let body: Vec<_> =
            fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let mut sorted = fields.to_vec();
        sorted.sort_unstable();
        let signed: String = sorted.iter().flat_map(|(name, value)| [*name, *value]).collect();
        let string = format!("{}{target}{signed}", self.public_url);
        let signature = base64(&Mac::Sha1.sign(&self.secret, &[string.as_bytes()]));
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static("x-twilio-signature");
        headers.insert(name, HeaderValue::from_str(&signature)?);
        let form = ("application/x-www-form-urlencoded", body.join("&").into());
        let (status, answer) = caller.send_with(&self.url, Method::POST, target, form, headers)?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        ensure!(status == StatusCode::OK, "{} answered {status}: {}", self.url, text.trim());
        Ok(text)
    }

    /// The target of a callback's URL, which lies below the account's public address.
    fn target(&self, url: &str) -> anyhow::Result<String> {
        let rest = url.strip_prefix(self.public_url.as_str());
        let rest = rest.with_context(|| format!("{url} is not below the account's public_url"))?;
        Ok(rest.to_owned())
    }
}

/// The text of the first element of that name.
fn inner<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let open = document.split_once(&format!("<{name}"))?.1;
    let text = open.split_once('>')?.1;
    text.split_once("</").map(|(text, _)| text)
}

/// The first attribute of that name, unescaped.
fn attribute(document: &str, name: &str) -> Option<String> {
    let value = document.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0;
    Some(value.replace("&amp;", "&"))
}
