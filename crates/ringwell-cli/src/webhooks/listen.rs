//! `ringwell webhooks listen`: receives, verifies and prints webhooks.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use axum::http::StatusCode;
use hyper::Method;
use hyper::body::Bytes;
use jiff::Timestamp;
use ringwell_config::{Listen, shown_file};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::{Answering, Received, Receiver};
use crate::api_client::{Access, ApiClient};
use crate::environment::variable;
use crate::print::print_note;
use crate::signals::{end_on_next_signal, ignores_hang_up};
use crate::usage::WrongUsage;

pub(crate) const HELP: &str = "\
Accepts POST requests at any path, and prints the time, the type, the id and the body of each. \
Requests without a valid signature are answered with 401, and only the reason is printed. Run \
the command where the sender can reach it, or route the sender's requests to it through a proxy.

With --register, the command creates an endpoint on a running server, and removes the endpoint \
when the command ends. If the server does not answer then, another Ctrl-C ends the command at \
once, and the endpoint remains. The server sends webhooks to addresses on its own machine only if \
its configuration contains
  [calls.webhooks]
  allow_networks = [\"127.0.0.0/8\"]
  allow_http = true
  allow_ports = [9000]

Without --register, pass the secret from POST /v1/webhooks with --secret-file or \
RINGWELL_WEBHOOK_SECRET; during a rotation, put both secrets into the file or variable, one on \
each line.

Exit codes: 0: ended by a signal, or received --count events; 1: the command could not start; 2: \
wrong usage, such as no secret.

Examples:
  ringwell webhooks listen --register --token-file secret \\
    --types call.completed
  ringwell webhooks listen --secret-file endpoint.secret \\
    --listen 127.0.0.1:9000 --json
  ringwell webhooks listen --secret-file endpoint.secret --answer 503";

/// If the server takes longer than this to create or remove an endpoint, it is considered hung.
const ANSWER_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on: HOST:PORT, or unix:PATH behind a proxy
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    listen: Listen,
    /// The file with the endpoint's secret, `whsec_…`
    #[arg(long, value_name = "FILE", conflicts_with = "register")]
    secret_file: Option<PathBuf>,
    /// On the server, create an endpoint for the --listen address, and remove it when this command
    /// ends
    #[arg(long)]
    register: bool,
    /// With --register: the types of events, separated by commas; by default all
    #[arg(long, value_name = "TYPES", value_delimiter = ',', requires = "register")]
    types: Vec<String>,
    /// HTTP status of the answer to each event
    #[arg(long, value_name = "STATUS", default_value_t = 204, value_parser = clap::value_parser!(u16).range(200..=599))]
    answer: u16,
    /// Exit after this many events; an event that is sent repeatedly counts once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print each request as one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

/// An endpoint that a server created for this command. Dropping it removes the endpoint from the
/// server.
struct Endpoint<'a> {
    client: ApiClient,
    access: &'a Access,
    id: String,
    secret: String,
}

/// Receives webhooks until a signal arrives, or until `--count` events have been received.
///
/// # Errors
/// If the address cannot be bound, if the secret is missing, or if the server does not create an
/// endpoint.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let given = if args.register { Vec::new() } else { secrets(args)? };
    let bound = runtime.block_on(Receiver::bind(&args.listen));
    let receiver = bound.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = receiver.address();
    let endpoint = if args.register { Some(Endpoint::register(args, &address)?) } else { None };
    let secrets = match &endpoint {
        Some(endpoint) => vec![endpoint.secret.clone()],
        None => given,
    };
    let status = StatusCode::from_u16(args.answer)?;
    let (is_json, most, events) = (args.json, args.count, AtomicU64::new(0));
    let enough = Arc::new(Notify::new());
    let notify = Arc::clone(&enough);
    let take = move |received: Received| {
        let line = if is_json { as_json(&received) } else { as_text(&received) };
        // If stdout is closed, the command ends.
        let is_open = io::stdout().lock().write_all(line.as_bytes()).is_ok();
        let so_far = events.fetch_add(u64::from(received.times == 1), Ordering::Relaxed);
        let so_far = so_far + u64::from(received.times == 1);
        if !is_open || most.is_some_and(|most| so_far >= most) {
            notify.notify_one();
        }
    };
    print_note(format_args!("receiving webhooks on {address}; Ctrl-C to stop"));
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up =
            if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) };
        let hung_up = async {
            match &mut hung_up {
                Some(signals) => signals.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = receiver.serve(Answering { secrets, status }, take) => {}
            () = enough.notified() => {
                // Leaves time to send the answer to the last event.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            ended = tokio::signal::ctrl_c() => ended?,
            _ = terminated.recv() => {}
            _ = hung_up => {}
        }
        io::Result::Ok(())
    })?;
    // The server may be slow to remove the endpoint.
    end_on_next_signal()?;
    Ok(ExitCode::SUCCESS)
}

fn secrets(args: &Args) -> anyhow::Result<Vec<String>> {
    let text = match &args.secret_file {
        Some(path) => {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", shown_file(path)))?
        }
        None => variable("RINGWELL_WEBHOOK_SECRET").unwrap_or_default(),
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let secrets: Vec<String> = lines.map(str::to_owned).collect();
    ensure!(
        secrets.iter().all(|secret| secret.starts_with("whsec_")),
        "a secret begins with whsec_: copy the secret from the server's answer to POST /v1/webhooks"
    );
    match &args.secret_file {
        Some(path) if secrets.is_empty() => bail!("{} contains no secret", path.display()),
        None if secrets.is_empty() => Err(WrongUsage(
            "no secret: set --secret-file or RINGWELL_WEBHOOK_SECRET, or use --register",
        )
        .into()),
        _ => Ok(secrets),
    }
}

impl<'a> Endpoint<'a> {
    fn register(args: &'a Args, address: &str) -> anyhow::Result<Self> {
        let Access { url, .. } = &args.access;
        if matches!(args.listen, Listen::Unix(_)) {
            bail!("--register needs a TCP address: webhooks are not sent to unix sockets");
        }
        let client = ApiClient::new(&args.access)?.waiting(ANSWER_MAX);
        let wanted = json!({ "url": format!("http://{address}/"), "types": args.types });
        let body = ("application/json", Bytes::from(wanted.to_string()));
        let (status, body) = client.send(url, Method::POST, "/v1/webhooks", body)?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let field = |name: &str| answer[name].as_str().map(str::to_owned);
        match (field("id"), field("secret")) {
            (Some(id), Some(secret)) if status == StatusCode::CREATED => {
                Ok(Self { client, access: &args.access, id, secret })
            }
            _ if status == StatusCode::NOT_FOUND => {
                bail!("{url} does not accept calls: add [calls] to its configuration")
            }
            _ => {
                let reason = field("detail").unwrap_or_else(|| format!("it answered {status}"));
                bail!("{url} did not create an endpoint for http://{address}/: {reason}")
            }
        }
    }
}

impl Drop for Endpoint<'_> {
    fn drop(&mut self) {
        let path = format!("/v1/webhooks/{}", self.id);
        let nothing = ("application/json", Bytes::new());
        let sent = self.client.send(&self.access.url, Method::DELETE, &path, nothing);
        if !sent.is_ok_and(|(status, _)| status == StatusCode::NO_CONTENT) {
            print_note(format_args!(
                "warning: the endpoint {} was not removed: remove it with DELETE {path}",
                self.id
            ));
        }
    }
}

/// Formats time, type, id and body, without control characters.
fn as_text(received: &Received) -> String {
    let time = shown(received);
    let Received { id, kind, body, times, checked, .. } = received;
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(200).collect::<String>();
    match checked {
        Ok(()) => {
            let again = if *times > 1 { format!(" (attempt {times})") } else { String::new() };
            let body: String = body.to_string().chars().filter(|c| !c.is_control()).collect();
            format!("{time} {} {}{again}\n  {body}\n", plain(kind), plain(id))
        }
        Err(reason) => format!("{time} refused: {reason}\n"),
    }
}

fn as_json(received: &Received) -> String {
    let Received { id, body, times, checked, .. } = received;
    let at = shown(received);
    let line = match checked {
        Ok(()) => json!({ "at": at, "id": id, "verified": true, "attempt": times, "body": body }),
        Err(reason) => json!({ "at": at, "verified": false, "reason": reason.to_string() }),
    };
    format!("{line}\n")
}

fn shown(received: &Received) -> String {
    let ms = i64::try_from(received.at.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_string()
}
