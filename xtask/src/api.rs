//! Checks the OpenAPI document against the server that it describes: schemathesis sends valid and
//! invalid requests, and compares the answers with the document.
//!
//! `.ci/run` installs schemathesis; without schemathesis, the step is skipped.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::shell::{self, target_dir};

/// The time limit for the server's startup.
const PATIENCE: Duration = Duration::from_mins(1);

/// The default count of requests for each operation. CI uses it for every commit; nightly runs send
/// more.
const EXAMPLES: &str = "8";

/// A management token for this run only, and its SHA-256.
const TOKEN: &str = "a-token-of-the-tests-0123456789";
const TOKEN_SHA256: &str = "af302123040d812ad3584e5d695d360b9164fe78912d741368fb068de6202952";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The count of generated requests for each operation, both valid and invalid.
    #[arg(long, default_value = EXAMPLES)]
    examples: u32,
}

/// A server; dropping it kills the process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program, where `.ci/run` installs it.
pub(crate) fn schemathesis() -> Option<PathBuf> {
    Some(target_dir().join("schemathesis/bin/st")).filter(|program| program.is_file())
}

/// Starts a server with its pools in SQLite, and sends it requests.
///
/// # Errors
/// If a program does not start, or an answer contradicts the document.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let schemathesis = schemathesis().context("schemathesis is not installed: see .ci/run")?;
    let folder = target_dir().join("api");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let (_server, address) = start(&folder)?;
    println!("management at {address}");
    let mut command = Command::new(schemathesis);
    command.args(["run", &format!("http://{address}/v1/openapi.json"), "--no-color"]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    command.args(["--generation-deterministic", "--max-examples", &args.examples.to_string()]);
    // A schema cannot forbid a pool without numbers, or a range that ends before it begins. Such
    // requests match the schema, but the server refuses them.
    command.args(["--exclude-checks", "positive_data_acceptance", "--warnings", "off"]);
    // Schemathesis stores its findings in its working directory.
    shell::run(command.current_dir(&folder))
}

/// Starts a server with two ring pools; returns it and its management address.
fn start(folder: &Path) -> anyhow::Result<(Server, String)> {
    let config = folder.join("ringwell.toml");
    let pools = [1, 2].map(|id| {
        format!(
            "[[ring_pool]]\nid = {id}\nring_pool_key = \"key-of-pool-{id}\"\nlifetime = \"30m\"\n\
             numbers = [\"888555{id}000-888555{id}099\"]\noverflow_number = \"888555{id}100\"\n"
        )
    });
    let settings = format!(
        "data = \"data\"\nlisten = [\"127.0.0.1:0\"]\nshards = 1\nlog.format = \"json\"\n\
         management.address = \"127.0.0.1:0\"\nmanagement.requests_per_second = 100000\n\
         management.token_sha256 = [\"{TOKEN_SHA256}\"]\ngrowth.every = \"1s\"\n\
         directory.database = \"sqlite:directory.sqlite\"\n{}",
        pools.concat()
    );
    fs::write(&config, settings)?;
    let log = folder.join("log");
    let mut command = Command::new(target_dir().join("debug/ringwell"));
    command.arg("serve").arg("--config").arg(&config).stdin(Stdio::null());
    command.stdout(fs::File::create(folder.join("out"))?).stderr(fs::File::create(&log)?);
    let server =
        Server(command.spawn().context("cannot start target/debug/ringwell: build it first")?);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let text = fs::read_to_string(&log)? + &fs::read_to_string(folder.join("out"))?;
        if let Some(address) = address(&text).filter(|address| knows_its_load(address)) {
            return Ok((server, address));
        }
        ensure!(!text.contains("\"ERROR\""), "the server does not start: {text}");
        thread::sleep(Duration::from_millis(50));
    }
    bail!("the server does not start: {}", fs::read_to_string(&log)?)
}

/// Whether the shards serve and their metrics have been sampled twice.
fn knows_its_load(address: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        let head = format!("authorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n");
        write!(stream, "GET /v1/pools/1/sizing HTTP/1.1\r\nhost: {address}\r\n{head}")?;
        std::io::read_to_string(stream)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The management address, which is read from the server's log.
fn address(log: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut lines = lines.filter(|line| line["message"] == "management");
    Some(lines.next()?["address"].as_str()?.to_owned())
}
