//! Verifies requests that were signed by the providers' own libraries. Reads the requests from
//! standard input, one per line, as `clients/telephony/sign.py` writes them. Also checks that no
//! request passes verification after one byte is changed. `cargo xtask telephony` runs both
//! programs.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::ExitCode;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use ringwell_calls::Account;
use ringwell_calls::provider::{Incoming, verify};
use ringwell_config::{CallProvider, UnknownNumber};
use ringwell_core::Millis;
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    provider: String,
    public_url: String,
    target: String,
    method: String,
    headers: BTreeMap<String, String>,
    body: String,
    secret: String,
    now: u64,
}

fn main() -> ExitCode {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut faults = 0;
    for line in std::io::stdin().lock().lines() {
        let Some((line, account, incoming)) = line.ok().and_then(|line| read(&line)) else {
            println!("a line cannot be read");
            return ExitCode::FAILURE;
        };
        let count = counts.entry(line.provider.clone()).or_default();
        count.0 += 1;
        if let Err(unsigned) = verify(&account, &incoming) {
            println!("{}: refused: {unsigned:?}\n  {:?}", line.provider, incoming.target);
            faults += 1;
        }
        for flipped in flipped(&incoming) {
            count.1 += 1;
            if verify(&account, &flipped).is_ok() {
                println!("{}: accepted although changed: {flipped:?}", line.provider);
                faults += 1;
            }
        }
    }
    for (provider, (signed, changed)) in &counts {
        println!("{provider:<12} {signed} verified, {changed} changed ones refused");
    }
    if faults == 0 && !counts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(text: &str) -> Option<(Line, Account, Incoming)> {
    let line: Line = serde_json::from_str(text).ok()?;
    let provider = match line.provider.as_str() {
        "twilio" => CallProvider::Twilio,
        "signalwire" => CallProvider::SignalWire,
        "telnyx" => CallProvider::Telnyx,
        "plivo" => CallProvider::Plivo,
        "vonage" => CallProvider::Vonage,
        "generic" => CallProvider::Generic,
        _ => return None,
    };
    let account = Account {
        name: "main".to_owned(),
        provider,
        public_url: line.public_url.clone(),
        secrets: vec![line.secret.clone().into_bytes()],
        shared_keys: Vec::new(),
        unknown_number: UnknownNumber::Unavailable,
        warnings: ringwell_calls::Warnings::default(),
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &line.headers {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        headers.insert(name, HeaderValue::from_str(value).ok()?);
    }
    let incoming = Incoming {
        method: line.method.parse::<Method>().ok()?,
        target: line.target.clone(),
        headers,
        body: line.body.clone().into_bytes(),
        received: Millis(line.now * 1000),
    };
    Some((line, account, incoming))
}

/// Returns copies of the request. Each has one changed letter, either in the body or in a header
/// with the signature.
fn flipped(incoming: &Incoming) -> Vec<Incoming> {
    let mut all = Vec::new();
    let letter = |byte: &u8| byte.is_ascii_lowercase();
    if incoming.method == Method::POST
        && let Some(place) = incoming.body.iter().rposition(letter)
    {
        let mut changed = incoming.clone();
        changed.body[place] = if changed.body[place] == b'z' { b'y' } else { b'z' };
        all.push(changed);
    }
    for (name, value) in &incoming.headers {
        if !(name.as_str().contains("signature") || name == "authorization") {
            continue;
        }
        let mut bytes = value.as_bytes().to_vec();
        // Changes an earlier character, because the last character of base64 text may contain
        // unused bits.
        let place = bytes.len().saturating_sub(10);
        let Some(byte) = bytes.get_mut(place).filter(|byte| byte.is_ascii_alphanumeric()) else {
            continue;
        };
        *byte = if *byte == b'A' { b'B' } else { b'A' };
        if let Ok(value) = HeaderValue::from_bytes(&bytes) {
            let mut changed = incoming.clone();
            changed.headers.insert(name.clone(), value);
            all.push(changed);
        }
    }
    all
}
