//! A test's data directory, and a configuration with ring pools.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::server::ringwell;

/// The management token for all tests. The configuration contains its SHA-256 hash.
pub(crate) const TOKEN: &str = "a-token-of-the-tests-0123456789";
pub(crate) const TOKEN_SHA256: &str =
    "af302123040d812ad3584e5d695d360b9164fe78912d741368fb068de6202952";

/// A test's ring pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) first: u64,
    pub(crate) numbers: u64,
    pub(crate) overflow: u64,
    pub(crate) lifetime: Duration,
}

impl Pool {
    pub(crate) fn new(id: u64, numbers: u64, lifetime: Duration) -> Self {
        // The pools' number ranges do not overlap for the ids and sizes that tests use.
        let first = 2_000_000_000 + id * 100_000;
        Self {
            id,
            key: format!("key-of-{id:05}"),
            first,
            numbers,
            overflow: 9_990_000_000 + id,
            lifetime,
        }
    }

    /// Returns the `api_suffix` of a row with the given parameters.
    pub(crate) fn suffix(&self, parameters: &str) -> String {
        format!("{}/allocate_number.json?ring_pool_key={}&{parameters}", self.id, self.key)
    }

    fn toml(&self) -> String {
        let last = self.first + self.numbers - 1;
        format!(
            "\n[[ring_pool]]\nid = {}\nring_pool_key = \"{}\"\nlifetime = \"{}ms\"\n\
             numbers = [\"{}-{last}\"]\noverflow_number = \"{}\"\n",
            self.id,
            self.key,
            self.lifetime.as_millis(),
            self.first,
            self.overflow
        )
    }
}

/// Makes segments small, because startup spends most of its processor time on filling segments with
/// zeros.
fn with_small_segments(settings: &str) -> String {
    const SMALL: &str = "segment_bytes = \"4MiB\"";
    if settings.contains("segment_bytes") {
        settings.to_owned()
    } else if settings.contains("[journal]\n") {
        settings.replacen("[journal]\n", &format!("[journal]\n{SMALL}\n"), 1)
    } else {
        format!("journal.{SMALL}\n{settings}")
    }
}

/// A folder for one test. It contains the data directory `data` and the configuration
/// `ringwell.toml`.
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
    data: PathBuf,
    /// The configuration without its pools.
    settings: String,
    pub(crate) pools: Vec<Pool>,
}

impl Site {
    /// Creates a site with the given pools. `more` is added to the configuration. The deadline is
    /// so long that a slow disk does not cause overflow numbers.
    pub(crate) fn new(pools: Vec<Pool>, more: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        Self::with_data(folder, data, pools, more)
    }

    /// Creates a site with the data directory `data`.
    pub(crate) fn with_data(folder: TempDir, data: PathBuf, pools: Vec<Pool>, more: &str) -> Self {
        // The default drain pause is short, because most tests have no proxy that polls `/readyz`.
        let pause = if more.contains("drain_pause") { "" } else { "drain_pause = \"50ms\"\n" };
        let more = with_small_segments(more);
        let settings = format!(
            "data = \"{}\"\nlisten = [\"127.0.0.1:0\"]\ndeadline = \"10s\"\n{pause}\
             management.token_sha256 = [\"{TOKEN_SHA256}\"]\nlog.format = \"json\"\n{more}\n",
            data.display()
        );
        let mut site = Self { folder, data, settings, pools: Vec::new() };
        site.write(pools);
        site
    }

    /// Writes the configuration with the given pools.
    pub(crate) fn write(&mut self, pools: Vec<Pool>) {
        let mut toml = self.settings.clone();
        for pool in &pools {
            toml.write_str(&pool.toml()).unwrap();
        }
        // The file is replaced atomically, so that a server that starts meanwhile never reads an
        // incomplete file.
        let new = self.config().with_extension("new");
        fs::write(&new, toml).unwrap();
        fs::rename(new, self.config()).unwrap();
        self.pools = pools;
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("ringwell.toml")
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the file to which shard 0 writes its journal.
    #[allow(dead_code, reason = "some tests do not look at files")]
    pub(crate) fn newest_segment(&self) -> PathBuf {
        let files = fs::read_dir(self.data.join("journal/0")).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let is_segment = |path: &PathBuf| path.extension().is_some_and(|it| it == "rpj");
        paths.filter(is_segment).max().unwrap()
    }

    /// Returns a `ringwell serve` command with additional flags.
    pub(crate) fn serve(&self, flags: &[&str]) -> Command {
        let config = self.config();
        let mut command = ringwell(&["serve", "--config", config.to_str().unwrap()]);
        command.args(flags);
        command
    }
}
