//! The demo's telephone: a provider account that exists only in the demo, and its calls.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use ringwell_config::{
    CallAccount, CallProvider, Calls, DestinationRule, Listen, Secret, UnknownNumber,
};

use super::files::write_whole;
use crate::phone::{CallResult, Phone, Ring};

/// The URL that is signed with each request. A real provider would send its requests to this URL.
const PUBLIC_URL: &str = "https://calls.demo.example";
const ACCOUNT: &str = "demo";
/// The calling visitor's number, which is reserved for fiction.
const CALLER: &str = "+12005550177";
/// The shop's real telephone number.
const SHOP: &str = "+18005550100";
/// The name of the configuration file for `ringwell call`. The file is in the data directory, next
/// to the file with the secret.
pub(super) const SETTINGS: &str = "demo-calls.toml";
const SECRET: &str = "demo-calls.secret";
const RINGS: Duration = Duration::from_secs(2);
const TALKS: Duration = Duration::from_secs(5);

/// Creates the call settings that let the server accept calls from this telephone. `secret` is
/// generated anew at each startup.
///
/// # Errors
/// If `secret` is not a valid secret.
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

/// Writes a configuration that lets `ringwell call` use the demo's account.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn keep_settings(data: &Path, address: &str, secret: &str) -> anyhow::Result<()> {
    write_whole(&data.join(SECRET), 0o600, |out| writeln!(out, "{secret}"))?;
    write_whole(&data.join(SETTINGS), 0o644, |out| {
        write!(
            out,
            "# Lets `ringwell call --config` call the demo's numbers.\n\
             # `ringwell demo` overwrites this file at each start.\n\
             ring_pools = \"demo-pools.csv\"\n\n[calls]\nlisten = \"{address}\"\n\n[[calls.account]]\nname = \"{ACCOUNT}\"\n\
             provider = \"twilio\"\npublic_url = \"{PUBLIC_URL}\"\n\
             secret_files = [\"{SECRET}\"]\n"
        )
    })
}

/// Creates the telephone that the shop's call button uses.
///
/// # Errors
/// If the server's `address` is invalid.
pub(super) fn phone(address: &str, secret: &str) -> Result<Phone, &'static str> {
    Ok(Phone {
        url: address.parse()?,
        provider: CallProvider::Twilio,
        account: ACCOUNT.to_owned(),
        public_url: PUBLIC_URL.to_owned(),
        secret: secret.as_bytes().to_vec(),
    })
}

/// Calls `number`, talks for some seconds, and hangs up. Returns after that.
///
/// # Errors
/// If the server does not connect the call.
pub(super) fn ring(phone: &Phone, id: &str, number: &str) -> anyhow::Result<()> {
    let ring = Ring { id, from: CALLER, to: number, answer_after: RINGS, talk: TALKS };
    match phone.ring(&ring, |_| ())? {
        CallResult::Answered => Ok(()),
        CallResult::NoAnswer => bail!("no answer"),
        CallResult::NotConnected(document) => bail!("not connected: {document}"),
    }
}
