//! `ringwell call`: rings a number of a running server without a provider.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ringwell_calls::digest::hex;
use ringwell_calls::number::called;
use ringwell_directory::{CallAccount, CallProvider, Config, Overrides, load};

use crate::call::Url;
use crate::environment::{cores, variable};
use crate::phone::{Phone, Ring, Rung};
use crate::serve::show_of_file;

pub(crate) const HELP: &str = "\
Rings a number of a running server without a provider: the request is signed with the account's own
secret and goes where the provider's webhooks come in. The call is logged like any other; ask for it
with GET /v1/calls.

Exit codes: 0 the call was connected; 1 it was not, or the server was not reached.

Examples:
  ringwell call --config ringwell.toml --to 2000000000
  ringwell call --config ringwell.toml --to +493012345678 --answer-after 3s --talk 20s";

/// A number reserved for fiction.
const FROM: &str = "+12005550100";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number to ring: ten digits, or with + and country code
    #[arg(long, value_name = "NUMBER")]
    to: String,
    /// Number of the caller
    #[arg(long, value_name = "NUMBER", default_value = FROM)]
    from: String,
    /// The provider whose webhooks are sent: twilio
    #[arg(long, default_value = "twilio")]
    provider: String,
    /// The account of the configuration; without it, the first one of the provider
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Ringing time before the destination answers; longer than its limit: no answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = ringwell_directory::parse_duration)]
    answer_after: Duration,
    /// Duration of the conversation
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = ringwell_directory::parse_duration)]
    talk: Duration,
    /// The server's configuration, which has the account, its secret and the address for webhooks
    #[arg(long, value_name = "FILE", env = "RINGWELL_CONFIG")]
    config: PathBuf,
    /// Address for webhooks, if it differs from calls.listen of the configuration
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
}

/// Rings the number.
///
/// # Errors
/// If the configuration has no such account, or the server does not answer as to a provider.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.provider == "twilio",
        "--provider {}: only twilio can be played so far",
        args.provider
    );
    let loaded = load(&args.config, variable, Overrides::default(), cores());
    let config = match loaded {
        Ok((config, _)) => config,
        Err(faults) => return Ok(show_of_file(&faults, &args.config)),
    };
    let account = account(&config, args)?;
    let secret = account.secrets.first().context("the account has no secret")?.reveal().to_vec();
    let listen = config.calls.as_ref().map(|calls| calls.listen.to_string());
    let url = match &args.url {
        Some(url) => url.clone(),
        None => listen.unwrap_or_default().parse().map_err(anyhow::Error::msg)?,
    };
    let (name, public_url) = (account.name.clone(), account.public_url.clone());
    let phone = Phone { url, account: name, public_url, secret };
    let to = called(&args.to).with_context(|| format!("{} is no telephone number", args.to))?;
    let from = called(&args.from).unwrap_or_else(|| args.from.clone());
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    let id = format!("CA{}", hex(&random));
    println!("{id}: {from} calls {to}");
    let Args { answer_after, talk, .. } = *args;
    let ring = Ring { id: &id, from: &from, to: &to, answer_after, talk };
    match phone.ring(&ring, |step| println!("{step}"))? {
        Rung::Answered => println!("ended after {} s of talk", talk.as_secs()),
        Rung::NoAnswer => println!("no answer"),
        Rung::NotConnected(document) => {
            println!("not connected: {document}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn account<'a>(config: &'a Config, args: &Args) -> anyhow::Result<&'a CallAccount> {
    let calls = config.calls.as_ref();
    let accounts = calls.map(|calls| calls.accounts.as_slice()).unwrap_or_default();
    let fits = |account: &&CallAccount| match &args.account {
        Some(name) => account.name == *name,
        None => account.provider == CallProvider::Twilio,
    };
    let found = accounts.iter().find(fits).context(
        "the configuration has no such account: add [[calls.account]] with provider = \"twilio\"",
    )?;
    if found.provider != CallProvider::Twilio {
        bail!("the account {} is not of Twilio", found.name);
    }
    Ok(found)
}
