//! `ringwell call`: rings a number as its provider would, signature and callbacks included.
//!
//! Owns the provider's side of one call. The server is asked where its webhooks come in, as by the
//! provider itself: nothing of it knows that the call is a trial.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ringwell_calls::digest::{Mac, base64, hex};
use ringwell_calls::number::called;
use ringwell_directory::{CallAccount, CallProvider, Config, Overrides, load};

use crate::call::{Caller, Url};
use crate::serve::{cores, show_of_file, variable};

pub(crate) const HELP: &str = "\
Rings a number of a running server without a provider: the request is signed with the account's own
secret and goes where the provider's webhooks come in. The call is logged like any other; ask for it
with GET /v1/calls.

Exit codes: 0 the call was connected; 1 it was not, or the server was not reached.

Examples:
  ringwell call --config ringwell.toml --to 2000000000
  ringwell call --config ringwell.toml --to +493012345678 --answer-after 3s --talk 20s";

/// A caller of a test: no number of anybody.
const FROM: &str = "+12005550100";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number to ring: ten digits, or with + and country code
    #[arg(long, value_name = "NUMBER")]
    to: String,
    /// Who calls
    #[arg(long, value_name = "NUMBER", default_value = FROM)]
    from: String,
    /// The provider whose webhooks are sent: twilio
    #[arg(long, default_value = "twilio")]
    provider: String,
    /// The account of the configuration; without it, the first one of the provider
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// How long the destination rings before it answers; longer than it may ring: nobody answers
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = ringwell_directory::parse_duration)]
    answer_after: Duration,
    /// How long they talk
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = ringwell_directory::parse_duration)]
    talk: Duration,
    /// The server's configuration: it has the account, its secret and where webhooks come in
    #[arg(long, value_name = "FILE", env = "RINGWELL_CONFIG")]
    config: PathBuf,
    /// Where webhooks come in, if not at calls.listen of the configuration
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
}

/// One call, seen from the provider.
struct Phone<'a> {
    caller: Caller,
    url: Url,
    account: &'a CallAccount,
    secret: Vec<u8>,
}

impl Phone<'_> {
    /// Posts a form to a hook, signed; returns the document of the answer.
    fn post(&self, target: &str, fields: &[(&str, &str)]) -> anyhow::Result<String> {
        let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let body: Vec<_> =
            fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let mut sorted = fields.to_vec();
        sorted.sort_unstable();
        let mut string = format!("{}{target}", self.account.public_url);
        for (name, value) in sorted {
            string.push_str(name);
            string.push_str(value);
        }
        let signature = base64(&Mac::Sha1.sign(&self.secret, &[string.as_bytes()]));
        let mut headers = HeaderMap::new();
        let name = HeaderName::from_static("x-twilio-signature");
        headers.insert(name, HeaderValue::from_str(&signature)?);
        let form = ("application/x-www-form-urlencoded", body.join("&").into());
        let (status, answer) =
            self.caller.send_with(&self.url, Method::POST, target, form, headers)?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        ensure!(status == StatusCode::OK, "{} answered {status}: {}", self.url, text.trim());
        Ok(text)
    }

    /// What a document's URL asks for, below the account's public address.
    fn target(&self, url: &str) -> anyhow::Result<String> {
        let rest = url.strip_prefix(self.account.public_url.as_str());
        let rest = rest.with_context(|| format!("{url} is not below the account's public_url"))?;
        Ok(rest.to_owned())
    }
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
    let phone = Phone { caller: Caller::for_health()?, url, account, secret };
    let to = called(&args.to).with_context(|| format!("{} is no telephone number", args.to))?;
    let from = called(&args.from).unwrap_or_else(|| args.from.clone());
    ring(&phone, args, &to, &from)
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

fn ring(phone: &Phone<'_>, args: &Args, to: &str, from: &str) -> anyhow::Result<ExitCode> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    let id = format!("CA{}", hex(&random));
    println!("{id}: {from} calls {to}");
    let leg = [("CallSid", id.as_str()), ("From", from), ("To", to), ("Direction", "inbound")];
    let begin = [&leg[..], &[("CallStatus", "ringing")]].concat();
    let document = phone.post(&format!("/t/{}/answer", phone.account.name), &begin)?;
    let Some(destination) = inner(&document, "Number").or_else(|| inner(&document, "Sip")) else {
        println!("not connected: {document}");
        return Ok(ExitCode::FAILURE);
    };
    let timeout = attribute(&document, "timeout").and_then(|text| text.parse().ok()).unwrap_or(30);
    let timeout = Duration::from_secs(timeout);
    println!("connected to {destination}, which may ring for {} s", timeout.as_secs());
    let url = |name| attribute(&document, name).context("the document names no callback");
    let (status, action) = (phone.target(&url("statusCallback")?)?, phone.target(&url("action")?)?);
    let callee = format!("CA{}", hex(&random.map(|byte| !byte)));
    let report = |place: &str, state: &str, more: &[(&str, &str)]| {
        let fields = [
            ("CallSid", callee.as_str()),
            ("ParentCallSid", id.as_str()),
            ("SequenceNumber", place),
            ("CallStatus", state),
        ];
        phone.post(&status, &[&fields[..], more].concat())
    };
    report("1", "ringing", &[])?;
    let is_answered = args.answer_after < timeout;
    std::thread::sleep(args.answer_after.min(timeout));
    let talk = args.talk.as_secs().to_string();
    let mut end = leg.to_vec();
    if is_answered {
        report("2", "in-progress", &[])?;
        println!("answered");
        std::thread::sleep(args.talk);
        report("3", "completed", &[("CallDuration", talk.as_str())])?;
        end.extend([("DialCallStatus", "completed"), ("DialBridged", "true")]);
        end.push(("DialCallDuration", talk.as_str()));
    } else {
        report("2", "no-answer", &[])?;
        end.push(("DialCallStatus", "no-answer"));
    }
    phone.post(&action, &end)?;
    if is_answered {
        println!("ended after {talk} s of talk");
    } else {
        println!("no answer");
    }
    Ok(ExitCode::SUCCESS)
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
