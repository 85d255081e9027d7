//! `ringwell call`: calls one of a running server's numbers without a provider.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ringwell_calls::digest::{base64, ed25519, from_base64, hex};
use ringwell_calls::number::called;
use ringwell_config::{CallAccount, CallProvider, Config, Overrides, load, shown_file};

use crate::api_client::Url;
use crate::environment::{cores, variable};
use crate::faults::show_of_file;
use crate::phone::{CallResult, Phone, Ring};
use crate::print::print_line;

pub(crate) const HELP: &str = "\
Calls one of a running server's numbers without a provider: the request is signed with the \
account's secret and sent to the address for the provider's webhooks. The call is logged like any \
other call: see GET /v1/calls.

Telnyx signs its requests with its own private key, and the account has only Telnyx's public key: \
set --key to a file with your own private key (32 bytes in base64, such as the output of \
openssl rand -base64 32). One of the account's secret_files must contain the public key for your \
private key; if none does, the command prints that public key.

Exit codes: 0: the call was connected, or no destination answered in time; 1: the call was \
not connected, or the server could not be reached.

Examples:
  ringwell call --config demo-data/demo-calls.toml --to 2000000000
  ringwell call --config ringwell.toml --to 2000000000
  ringwell call --config ringwell.toml --to 2000000000 --provider plivo
  ringwell call --config ringwell.toml --to +493012345678 --answer-after 3s \\
    --talk 20s";

/// The default caller, which is a number reserved for fiction.
const FROM: &str = "+12005550100";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number to call: ten digits, or + with a country code
    #[arg(long, value_name = "NUMBER")]
    to: String,
    /// Number of the caller
    #[arg(long, value_name = "NUMBER", default_value = FROM)]
    from: String,
    /// The provider whose webhooks are sent: twilio, signalwire, telnyx, plivo, vonage, bandwidth
    /// or generic
    #[arg(long, value_name = "PROVIDER", value_parser = CallProvider::parse)]
    provider: Option<CallProvider>,
    /// The account in the configuration; by default, the first one, or with --provider, the first
    /// one of that provider
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// File with a private key, for a Telnyx account
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Ringing time until a destination answers; if a destination's limit is shorter, the next one
    /// rings, and if there is no next one, the call is not answered
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = ringwell_config::parse_duration)]
    answer_after: Duration,
    /// Duration of the conversation
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = ringwell_config::parse_duration)]
    talk: Duration,
    /// The server's configuration, which contains the account, its secret and the address for
    /// webhooks
    #[arg(long, value_name = "FILE", env = "RINGWELL_CONFIG")]
    config: PathBuf,
    /// Address for webhooks, if it differs from calls.listen in the configuration
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
}

/// Calls the number.
///
/// # Errors
/// If the configuration lacks the account, or the server does not answer correctly.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // A placeholder: the configuration need not contain the data directory, because a test call
    // does not use it.
    let flags = Overrides { data: Some(PathBuf::new()), ..Overrides::default() };
    let loaded = load(&args.config, variable, flags, cores());
    let config = match loaded {
        Ok((config, _)) => config,
        Err(faults) => return Ok(show_of_file(&faults, &args.config)),
    };
    let account = account(&config, args)?;
    let secret = secret(account, args)?;
    let listen = config.calls.as_ref().map(|calls| calls.listen.to_string());
    let url = match &args.url {
        Some(url) => url.clone(),
        None => listen.unwrap_or_default().parse().map_err(anyhow::Error::msg)?,
    };
    let (name, public_url) = (account.name.clone(), account.public_url.clone());
    let phone = Phone { url, provider: account.provider, account: name, public_url, secret };
    let to = called(&args.to).with_context(|| {
        format!(
            "--to {:?} is not a telephone number: write ten digits, or + with a country code, as \
             in 2005550142 or +493012345678",
            args.to
        )
    })?;
    let from = called(&args.from).unwrap_or_else(|| args.from.clone());
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    let id = format!("CA{}", hex(&random));
    print_line(format_args!("{id}: {from} calls {to}"));
    let Args { answer_after, talk, .. } = *args;
    let ring = Ring { id: &id, from: &from, to: &to, answer_after, talk };
    match phone.ring(&ring, |step: &str| print_line(step))? {
        CallResult::Answered => {
            print_line(format_args!("ended after a conversation of {} s", talk.as_secs()));
        }
        CallResult::NoAnswer => print_line("no answer"),
        CallResult::NotConnected(document) => {
            print_line(format_args!("not connected: {document}"));
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn account<'a>(config: &'a Config, args: &Args) -> anyhow::Result<&'a CallAccount> {
    let calls = config.calls.as_ref();
    let accounts = calls.map(|calls| calls.accounts.as_slice()).unwrap_or_default();
    let is_it = |account: &&CallAccount| {
        args.account.as_ref().is_none_or(|name| account.name == *name)
            && args.provider.is_none_or(|provider| account.provider == provider)
    };
    let provider = args.provider.map_or("twilio", CallProvider::name);
    accounts.iter().find(is_it).with_context(|| {
        format!(
            "no account in the configuration matches: check --account and --provider, or add \
             [[calls.account]] with provider = \"{provider}\""
        )
    })
}

/// Returns the secret that signs the requests.
fn secret(account: &CallAccount, args: &Args) -> anyhow::Result<Vec<u8>> {
    let own = account.secrets.first().map(|secret| secret.reveal().to_vec());
    if account.provider != CallProvider::Telnyx {
        return own.context("the account has no secret: add a file to its secret_files");
    }
    let path = args.key.as_ref().context(
        "only Telnyx has the private key that signs its requests: pass your own with --key (see \
         --help)",
    )?;
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read {}", shown_file(path)))?
        .trim()
        .to_owned();
    let pair = from_base64(&text).and_then(|key| ed25519(&key, b""));
    let (_, public) = pair.context("the private key must be 32 bytes in base64")?;
    let public = base64(&public);
    let is_known = account.secrets.iter().any(|secret| secret.reveal() == public.as_bytes());
    ensure!(
        is_known,
        "none of the secret_files of account {} contains the public key for the private key in \
         --key: add a file that contains {public}",
        account.name
    );
    Ok(text.into_bytes())
}
