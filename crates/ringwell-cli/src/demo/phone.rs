//! The demo's telephone: rings a number as a provider of telephony does, with its signature.
//!
//! Owns what the provider would say. The server knows no difference: the hooks, the signature and the
//! documents are those of Twilio.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use ringwell_calls::digest::{Mac, base64};
use ringwell_directory::{
    CallAccount, CallProvider, Calls, DestinationRule, Listen, Secret, UnknownNumber,
};

/// How the provider would reach the server: signatures cover it.
const PUBLIC_URL: &str = "https://calls.demo.example";
const ACCOUNT: &str = "demo";
/// The visitor who calls; nobody has this number.
const CALLER: &str = "+12005550177";
/// The shop's real telephone.
const SHOP: &str = "+18005550100";
const RINGS: Duration = Duration::from_secs(2);
const TALKS: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// A telephone, and where the server takes calls.
#[derive(Clone, Debug)]
pub(super) struct Phone {
    address: String,
    secret: Vec<u8>,
}

/// The settings of calls by which this telephone is believed. `secret` is drawn anew at each start.
///
/// # Errors
/// If `secret` cannot be one.
pub(super) fn settings(secret: &str, port: u16) -> Result<Calls, String> {
    let account = CallAccount {
        name: ACCOUNT.to_owned(),
        provider: CallProvider::Twilio,
        public_url: PUBLIC_URL.to_owned(),
        secrets: vec![Secret::parse(secret)?],
        shared_keys: Vec::new(),
        unknown_number: UnknownNumber::Reject,
    };
    let destination = DestinationRule {
        ring_pools: [].into(),
        numbers: [].into(),
        to: vec![SHOP.to_owned()],
        timeout: Duration::from_secs(30),
        whisper: None,
        caller_id: None,
        hours: Vec::new(),
        time_zone: "UTC".to_owned(),
        closed: Vec::new(),
    };
    Ok(Calls {
        listen: Listen::Tcp { host: "127.0.0.1".to_owned(), port },
        accounts: vec![account],
        destinations: vec![destination],
        ..Calls::default()
    })
}

impl Phone {
    pub(super) fn new(address: &str, secret: &str) -> Self {
        Self { address: address.to_owned(), secret: secret.as_bytes().to_vec() }
    }

    /// Rings `number`, talks for some seconds, and hangs up; takes as long.
    ///
    /// # Errors
    /// If the server does not connect the call.
    pub(super) fn ring(&self, call: &str, number: &str) -> io::Result<()> {
        let sid = ("CallSid", call);
        let target = format!("/t/{ACCOUNT}/answer");
        let begun = [sid, ("CallStatus", "ringing"), ("From", CALLER), ("To", number)];
        let document = self.post(&target, &begun)?;
        let action = document.split(&format!("action=\"{PUBLIC_URL}")).nth(1);
        let action =
            action.and_then(|rest| rest.split('"').next()).map(|it| it.replace("&amp;", "&"));
        let action =
            action.ok_or_else(|| io::Error::other(format!("not connected: {document}")))?;
        let status = action.replace("/dial", "/status");
        let callee = format!("{call}callee");
        for (sequence, state, time) in [("1", "ringing", RINGS), ("2", "in-progress", TALKS)] {
            let fields = [
                ("CallSid", callee.as_str()),
                ("ParentCallSid", call),
                ("SequenceNumber", sequence),
                ("CallStatus", state),
            ];
            self.post(&status, &fields)?;
            thread::sleep(time);
        }
        let seconds = TALKS.as_secs().to_string();
        let ended = [
            sid,
            ("DialCallStatus", "completed"),
            ("DialCallDuration", &seconds),
            ("DialBridged", "true"),
        ];
        self.post(&action, &ended).map(drop)
    }

    /// Posts a form, signed as Twilio signs it; what the server answers.
    fn post(&self, target: &str, fields: &[(&str, &str)]) -> io::Result<String> {
        let mut sorted = fields.to_vec();
        sorted.sort_unstable();
        let signed: String = sorted.iter().flat_map(|(name, value)| [*name, *value]).collect();
        let string = format!("{PUBLIC_URL}{target}{signed}");
        let signature = base64(&Mac::Sha1.sign(&self.secret, &[string.as_bytes()]));
        let fields =
            fields.iter().map(|(name, value)| format!("{name}={}", value.replace('+', "%2B")));
        let body = fields.collect::<Vec<_>>().join("&");
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            stream,
            "POST {target} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\nx-twilio-signature: {signature}\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = BufReader::new(stream).take(ANSWER_BYTES_MAX);
        let mut status = String::new();
        answer.read_line(&mut status)?;
        let mut rest = String::new();
        answer.read_to_string(&mut rest)?;
        if !status.contains(" 200 ") {
            return Err(io::Error::other(format!("{target}: {}", status.trim())));
        }
        Ok(rest)
    }
}
