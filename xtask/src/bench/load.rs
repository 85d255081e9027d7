//! Sends load: with wrk in a closed loop together with a witness, or with
//! `ringwell-bench openloop`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::inputs::BenchInputs;
use super::machine::Machine;
use super::server::{Server, pinned};
use crate::shell::{output, root};

/// Rows per batch, in every benchmark.
pub(super) const ROWS: u32 = 40;
/// The counts of rows in batches of mixed sizes: most batches have few rows, some have hundreds,
/// and the average is [`ROWS`].
const SIZES: &str = "1,40,5,1,40,1,5,40,1,40,5,1,40,1,5,40,1,500,20,13";
/// Batches a second that the witness sends while wrk runs.
const WITNESS_RATE: u32 = 50;

/// The values in the `RESULT` line of `bulk.lua`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Wrk {
    pub(super) requests: u32,
    seconds: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    socket_errors: u32,
    timeouts: u32,
    bad_status: u32,
}

impl Wrk {
    /// Descriptions of the wrong answers.
    pub(super) fn problems(&self) -> Vec<String> {
        let checks = [
            (self.bad_status, "answers with another status"),
            (self.socket_errors, "socket errors"),
            (self.timeouts, "timeouts"),
        ];
        let bad = checks.iter().filter(|(count, _)| *count > 0);
        bad.map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// Percentiles as `ringwell-bench` prints them, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the JSON")]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
}

/// The output of `ringwell-bench openloop --json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct OpenLoop {
    pub(super) sent: u32,
    pub(super) ok: u32,
    pub(super) other_status: u32,
    pub(super) broken: u32,
    pub(super) rows: u32,
    pub(super) overflow_rows: u32,
    pub(super) error_rows: u32,
    pub(super) latency: Latency,
}

impl OpenLoop {
    /// Descriptions of the wrong answers. If `fixed` is set, the answers come from the fixed-bytes
    /// server and contain no rows.
    pub(super) fn problems(&self, fixed: bool) -> Vec<String> {
        let rows = if fixed { 0 } else { self.ok * ROWS };
        let checks = [
            (self.sent - self.ok, "batches without a 200"),
            (self.other_status, "answers with another status"),
            (self.broken, "broken connections"),
            (self.overflow_rows, "overflow rows"),
            (self.error_rows, "error rows"),
            (rows.abs_diff(self.rows), "rows too few or too many"),
        ];
        let bad = checks.iter().filter(|(count, _)| *count > 0);
        bad.map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// One measurement in a closed loop.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ClosedLoop {
    pub(super) requests_per_second: f64,
    /// The server's user and system time, divided by the count of requests that it answered.
    pub(super) cpu_us_per_request: f64,
    /// The share of the time for which the server kept its core busy.
    pub(super) busy: f64,
    wrk: Wrk,
    witness: OpenLoop,
}

impl ClosedLoop {
    pub(super) fn p50_us(&self) -> f64 {
        self.wrk.p50_us
    }

    pub(super) fn p99_us(&self) -> f64 {
        self.wrk.p99_us
    }

    /// The count of rows that the witness examined, and of the overflow rows among them.
    pub(super) fn witnessed(&self) -> (u32, u32) {
        (self.witness.rows, self.witness.overflow_rows)
    }

    /// Descriptions of the wrong answers.
    pub(super) fn problems(&self, fixed: bool) -> Vec<String> {
        let mut problems = self.wrk.problems();
        problems.extend(self.witness.problems(fixed));
        problems
    }
}

/// Sends batches over `connections` as fast as answers arrive.
///
/// wrk does not examine answers, because that would lower its rate by a sixth. Instead, a witness
/// on the same core sends 50 batches a second and examines each of its rows.
///
/// # Errors
/// If a sender fails or prints unexpected output.
pub(super) fn closed_loop(
    plan: &BenchInputs,
    server: &Server,
    pools: &Path,
    connections: u32,
    seconds: u32,
) -> anyhow::Result<ClosedLoop> {
    let mut witness = open_loop_command(plan, server, pools, &ROWS.to_string());
    witness.args(["--rate", &WITNESS_RATE.to_string(), "--seconds", &seconds.to_string()]);
    witness.args(["--coarse", "--connections", "1"]);
    let witness = witness.stdout(Stdio::piped()).spawn()?;
    let before = server.cpu_seconds()?;
    let wrk = wrk(&plan.machine, server, pools, connections, seconds)?;
    let cpu = server.cpu_seconds()? - before;
    let witness = witness.wait_with_output()?;
    let witness: OpenLoop =
        serde_json::from_slice(&witness.stdout).context("the witness failed")?;
    Ok(ClosedLoop {
        requests_per_second: f64::from(wrk.requests) / wrk.seconds,
        cpu_us_per_request: cpu * 1e6 / f64::from((wrk.requests + witness.ok).max(1)),
        busy: cpu / wrk.seconds,
        wrk,
        witness,
    })
}

/// Sends batches over `connections` as fast as answers arrive, without examining the answers.
///
/// # Errors
/// If wrk fails or prints unexpected output.
pub(super) fn wrk(
    machine: &Machine,
    server: &Server,
    pools: &Path,
    connections: u32,
    seconds: u32,
) -> anyhow::Result<Wrk> {
    wrk_in_style(machine, server, pools, [connections, seconds, ROWS], "compact")
}

/// Like [`wrk`], but with another batch size and another style of JSON; `bulk.lua` lists the
/// styles.
///
/// # Errors
/// As for [`wrk`].
pub(super) fn wrk_in_style(
    machine: &Machine,
    server: &Server,
    pools: &Path,
    [connections, seconds, rows]: [u32; 3],
    style: &str,
) -> anyhow::Result<Wrk> {
    let mut wrk = pinned(&machine.load_cores, Path::new("wrk"));
    wrk.arg(format!("-t{}", machine.load_threads)).arg(format!("-c{connections}"));
    wrk.arg(format!("-d{seconds}s")).args(["--timeout", "10s", "-s"]);
    wrk.arg(root().join("bench/bulk.lua")).arg(format!("http://{}", server.address));
    wrk.arg("--").arg(pools).arg(rows.to_string()).args(["0", style]);
    let printed = output(&mut wrk)?;
    let line = printed.lines().find_map(|line| line.strip_prefix("RESULT "));
    Ok(serde_json::from_str(line.context("wrk printed no RESULT line")?)?)
}

/// Sends `rate` batches a second, regardless of when answers arrive.
///
/// # Errors
/// If the sender fails or prints unexpected output.
pub(super) fn open_loop(
    plan: &BenchInputs,
    server: &Server,
    pools: &Path,
    rate: u32,
    seconds: u32,
) -> anyhow::Result<OpenLoop> {
    send(&mut open_loop_command(plan, server, pools, &ROWS.to_string()), rate, seconds)
}

/// Like [`open_loop`], but with batches of many sizes in turn.
///
/// # Errors
/// As for [`open_loop`].
pub(super) fn mixed_loop(
    plan: &BenchInputs,
    server: &Server,
    pools: &Path,
    rate: u32,
) -> anyhow::Result<OpenLoop> {
    send(&mut open_loop_command(plan, server, pools, SIZES), rate, plan.seconds)
}

fn send(command: &mut Command, rate: u32, seconds: u32) -> anyhow::Result<OpenLoop> {
    command.args(["--rate", &rate.to_string(), "--seconds", &seconds.to_string()]);
    serde_json::from_str(&output(command)?).context("unexpected output of openloop")
}

/// The command for the open loop, without the rate and the duration.
fn open_loop_command(plan: &BenchInputs, server: &Server, pools: &Path, rows: &str) -> Command {
    let mut command = pinned(&plan.machine.load_cores, &plan.programs.bench);
    command.args(["openloop", "--json", "--target", &server.address.to_string(), "--pools"]);
    command.arg(pools).args(["--rows", rows]);
    command
}

/// The output of `ringwell-bench flush`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Flush {
    pub(super) flushes: u32,
    pub(super) latency: Latency,
}

/// Overwrites and flushes `bytes` once a millisecond on the disk that holds the servers' data.
///
/// # Errors
/// If the disk fails.
pub(super) fn flush(plan: &BenchInputs, bytes: u32, seconds: u32) -> anyhow::Result<Flush> {
    let mut command = pinned(&plan.machine.load_cores, &plan.programs.bench);
    command.args(["flush", "--bytes", &bytes.to_string(), "--every", "1ms", "--time"]);
    command.arg(format!("{seconds}s")).arg("--dir").arg(&plan.programs.work);
    serde_json::from_str(&output(&mut command)?).context("unexpected output of flush")
}
