//! The machine on which figures are measured, and the location of their files.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::shell::{output, root};

/// The machine, and the commit that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    cpu: String,
    cpus: usize,
    kernel: String,
    commit: String,
    profile: String,
    /// The cores for the server, in the form that `taskset -c` takes.
    pub(super) server_cores: String,
    /// The cores for the sender.
    pub(super) load_cores: String,
    /// The count of the sender's threads: one for each of its cores.
    pub(super) load_threads: u32,
}

impl Machine {
    /// Examines this machine and assigns its cores. The server gets one core. The sender gets two
    /// cores if there are at least four, and otherwise one.
    ///
    /// # Errors
    /// If there are fewer than two cores, because the server and the sender would then have to
    /// share one.
    pub(super) fn look(profile: &str) -> anyhow::Result<Self> {
        let cpus = std::thread::available_parallelism()?.get();
        ensure!(
            cpus >= 2,
            "this benchmark needs two cores: one for the server and one for the load"
        );
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name"));
        let dirty = !output(Command::new("git").args(["status", "--porcelain"]))?.is_empty();
        let commit = output(Command::new("git").args(["rev-parse", "--short", "HEAD"]))?;
        let (load_cores, load_threads) = if cpus >= 4 { ("2,3", 2) } else { ("1", 1) };
        Ok(Self {
            cpu: model.unwrap_or("?").trim_start_matches([':', ' ', '\t']).to_owned(),
            cpus,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: format!("{}{}", commit.trim(), if dirty { "+" } else { "" }),
            profile: profile.to_owned(),
            server_cores: "0".to_owned(),
            load_cores: load_cores.to_owned(),
            load_threads,
        })
    }

    /// The machine and the commit as one line of text.
    pub(super) fn line(&self) -> String {
        format!(
            "{} x {}, Linux {}, commit {}, profile {}; server on core {}, load on core {}",
            self.cpus,
            self.cpu,
            self.kernel,
            self.commit,
            self.profile,
            self.server_cores,
            self.load_cores
        )
    }
}

/// Writes the raw figures to `bench/results/DATE/TIME.json`.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn save(machine: &Machine, plan: &Value, raw: &Value) -> anyhow::Result<()> {
    let stamp = output(Command::new("date").args(["-u", "+%Y-%m-%d %H%M%S"]))?;
    let (date, time) = stamp.trim().split_once(' ').context("unexpected output of date")?;
    let dir = root().join("bench/results").join(date);
    std::fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{time}.json"));
    let all = json!({"machine": machine, "plan": plan, "results": raw});
    std::fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")?;
    println!("\nraw figures: {}", path.display());
    Ok(())
}
