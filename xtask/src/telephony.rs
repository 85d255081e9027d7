//! Signatures against the libraries of others: those of telephony providers sign requests, those of
//! Standard Webhooks verify webhooks.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::shell::{root, run, target_dir};

/// Requests that each provider's library signs.
const REQUESTS: &str = "1000";

/// Installs the libraries if they are not there, and runs both.
///
/// # Errors
/// When a signature is refused, or accepted although something was changed.
pub(crate) fn run_all() -> anyhow::Result<()> {
    let home = target_dir().join("telephony");
    let scripts = root().join("clients/telephony");
    run(Command::new(scripts.join("setup")).arg(&home))?;
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(root());
        cargo
    };
    let example = ["-p", "ringwell-calls", "--example", "verify_signatures"];
    run(cargo().arg("build").args(example))?;
    for (place, which) in [("twilio", "twilio"), ("python", "others")] {
        let mut python = Command::new(home.join(place).join("bin/python"));
        python.arg(scripts.join("sign.py")).args([which, REQUESTS]);
        let mut signer = python.stdout(Stdio::piped()).spawn().context("cannot start Python")?;
        let requests = signer.stdout.take().context("Python has no output")?;
        let verifier = target_dir().join("debug/examples/verify_signatures");
        run(Command::new(verifier).stdin(requests))?;
        ensure!(signer.wait()?.success(), "sign.py {which} failed");
    }
    let test = ["test", "-p", "ringwell-cli", "--test", "calls", "webhooks"];
    run(cargo().args(test).env("RINGWELL_TELEPHONY", &home))
}
