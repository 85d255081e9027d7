//! Tests calls with other programs. Telephony providers' libraries sign requests and create answer
//! documents, the Standard Webhooks libraries verify webhooks, and switches request call
//! destinations.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::ValueEnum as _;

use crate::shell::{self, root, target_dir};

/// Requests that each provider's library signs.
const REQUESTS: &str = "1000";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only run these steps.
    #[arg(value_enum)]
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    /// Requests that the providers' libraries sign, and the documents that they make.
    Signatures,
    /// Webhooks that the Standard Webhooks libraries verify.
    Webhooks,
    /// Calls and webhooks of a server that is killed repeatedly.
    Drill,
    /// Exports as Parquet.
    Parquet,
    /// Calls through Kamailio, and through `FreeSWITCH` if `RINGWELL_FREESWITCH` names its program.
    Sip,
}

const FREESWITCH: &str = "RINGWELL_FREESWITCH";

/// Installs the libraries if they are missing, and runs the given steps, or all steps if none is
/// given.
///
/// # Errors
/// If a step fails, for example because a valid signature is refused, or because a signature is
/// accepted although the request was changed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let home = target_dir().join("telephony");
    let setup = root().join("clients/telephony/setup");
    shell::run(Command::new(setup).arg(&home))?;
    let all = Step::value_variants().iter();
    for step in all.filter(|step| args.steps.is_empty() || args.steps.contains(step)) {
        match step {
            Step::Signatures => signatures(&home)?,
            Step::Webhooks => test(&home, "calls", &["webhooks"])?,
            Step::Drill => {
                test(&home, "calls", &["drill", "--", "--include-ignored", "--nocapture"])?;
            }
            Step::Parquet => test(&home, "calls", &["parquet", "--features", "parquet"])?,
            Step::Sip => {
                test(&home, "sip", &[])?;
                if std::env::var_os(FREESWITCH).is_some() {
                    test(&home, "sip", &["freeswitch", "--", "--ignored"])?;
                }
            }
        }
    }
    Ok(())
}

fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root());
    cargo
}

/// Runs tests of `ringwell-cli`, which use the libraries in `home`.
fn test(home: &Path, program: &str, part: &[&str]) -> anyhow::Result<()> {
    let test = ["test", "-p", "ringwell-cli", "--test", program];
    shell::run(cargo().args(test).args(part).env("RINGWELL_TELEPHONY", home))
}

fn signatures(home: &Path) -> anyhow::Result<()> {
    let scripts = root().join("clients/telephony");
    shell::run(cargo().args(["build", "-p", "ringwell-calls", "--examples"]))?;
    let example = |name: &str| Command::new(target_dir().join("debug/examples").join(name));
    for (place, which) in [("twilio", "twilio"), ("python", "others")] {
        let mut python = Command::new(home.join(place).join("bin/python"));
        python.arg(scripts.join("sign.py")).args([which, REQUESTS]);
        let mut signer = python.stdout(Stdio::piped()).spawn().context("cannot start Python")?;
        let requests = signer.stdout.take().context("Python's output is not captured")?;
        shell::run(example("verify_signatures").stdin(requests))?;
        ensure!(signer.wait()?.success(), "sign.py {which} failed");
        let mut documents = example("documents").stdout(Stdio::piped()).spawn()?;
        let lines =
            documents.stdout.take().context("the output of the documents is not captured")?;
        let mut python = Command::new(home.join(place).join("bin/python"));
        shell::run(python.arg(scripts.join("documents.py")).arg(which).stdin(lines))?;
        ensure!(documents.wait()?.success(), "the documents could not be printed");
    }
    Ok(())
}
