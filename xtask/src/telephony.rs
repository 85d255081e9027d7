//! Signatures and documents tested against other libraries: those of telephony providers sign
//! requests and make answer documents, those of Standard Webhooks verify webhooks.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::shell::{root, run, target_dir};

/// Requests that each provider's library signs.
const REQUESTS: &str = "1000";

/// Installs the libraries if they are missing, and runs both.
///
/// # Errors
/// If a signature is refused, or accepted although something was changed.
pub(crate) fn run_all() -> anyhow::Result<()> {
    let home = target_dir().join("telephony");
    let scripts = root().join("clients/telephony");
    run(Command::new(scripts.join("setup")).arg(&home))?;
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(root());
        cargo
    };
    run(cargo().args(["build", "-p", "ringwell-calls", "--examples"]))?;
    let example = |name: &str| Command::new(target_dir().join("debug/examples").join(name));
    for (place, which) in [("twilio", "twilio"), ("python", "others")] {
        let mut python = Command::new(home.join(place).join("bin/python"));
        python.arg(scripts.join("sign.py")).args([which, REQUESTS]);
        let mut signer = python.stdout(Stdio::piped()).spawn().context("cannot start Python")?;
        let requests = signer.stdout.take().context("Python has no output")?;
        run(example("verify_signatures").stdin(requests))?;
        ensure!(signer.wait()?.success(), "sign.py {which} failed");
        let mut documents = example("documents").stdout(Stdio::piped()).spawn()?;
        let lines = documents.stdout.take().context("the documents have no output")?;
        let mut python = Command::new(home.join(place).join("bin/python"));
        run(python.arg(scripts.join("documents.py")).arg(which).stdin(lines))?;
        ensure!(documents.wait()?.success(), "the documents were not printed");
    }
    let test = ["test", "-p", "ringwell-cli", "--test", "calls"];
    let run_of =
        |part: &[&str]| run(cargo().args(test).args(part).env("RINGWELL_TELEPHONY", &home));
    run_of(&["webhooks"])?;
    run_of(&["drill", "--", "--include-ignored", "--nocapture"])?;
    run_of(&["parquet", "--features", "parquet"])
}
