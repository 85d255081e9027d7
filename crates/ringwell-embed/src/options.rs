//! An engine's options: JSON that specifies a configuration file or contains the ring pools.
//!
//! Owns the names of the JSON members, but not the rules for pools and settings. Environment
//! variables are not read, because the process belongs to another program.

use std::path::PathBuf;
use std::time::Duration;

use ringwell_config::{Config, DEADLINE_MAX, Durability, Overrides, load, pool_from_json};
use ringwell_directory::{Directory, Fault};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The number of shards. More than one would require threads.
const SHARDS: u16 = 1;

/// The maximum segment size. Smaller than a server's segments, because the caller waits while a new
/// segment is filled with zeros.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionsJson<'a> {
    /// The path of a configuration file.
    config: Option<PathBuf>,
    /// The directory for journals and snapshots.
    data: Option<PathBuf>,
    /// The durability: `disk`, `os` or `memory`.
    durability: Option<String>,
    /// A batch's deadline, in milliseconds.
    deadline_ms: Option<u64>,
    /// The ring pools, if no configuration file is given.
    #[serde(borrow)]
    pools: Option<Vec<&'a RawValue>>,
}

/// All options of an engine.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) config: Config,
    pub(crate) directory: Directory,
}

impl Options {
    /// Parses the options, and reads the configuration file if one is given.
    ///
    /// # Errors
    /// Returns a message that lists all faults. It contains no ring pool keys.
    pub(crate) fn read(json: &[u8]) -> Result<Self, String> {
        let given: OptionsJson<'_> = serde_json::from_slice(json)
            .map_err(|error| format!("the options are invalid: {error}"))?;
        let durability = given.durability.as_deref().map(str::parse).transpose();
        let overrides = Overrides {
            data: given.data,
            durability: durability.map_err(|error| format!("durability {error}"))?,
            deadline: given.deadline_ms.map(deadline).transpose()?,
            shards: Some(SHARDS),
            ..Overrides::default()
        };
        let (mut config, directory) = match (given.config, given.pools) {
            (Some(path), None) => {
                load(&path, |_| None, overrides, SHARDS).map_err(|faults| text(&faults))?
            }
            (None, Some(pools)) => of_pools(&pools, overrides)?,
            _ => return Err("set either config or pools, and not both".to_owned()),
        };
        config.journal.segment_bytes = config.journal.segment_bytes.min(SEGMENT_BYTES_MAX);
        refuse_unsupported(&config)?;
        Ok(Self { config, directory })
    }
}

fn deadline(ms: u64) -> Result<Duration, String> {
    let deadline = Duration::from_millis(ms);
    let is_right = !deadline.is_zero() && deadline <= DEADLINE_MAX;
    is_right.then_some(deadline).ok_or_else(|| "deadline_ms must be 1 to 60000".to_owned())
}

fn of_pools(pools: &[&RawValue], overrides: Overrides) -> Result<(Config, Directory), String> {
    let pool = |(at, json): (usize, &&RawValue)| {
        pool_from_json(json.get().as_bytes()).map_err(|error| format!("pools[{at}]: {error}"))
    };
    let pools = pools.iter().enumerate().map(pool).collect::<Result<Vec<_>, _>>()?;
    let mut config = Config::new(PathBuf::new(), SHARDS);
    overrides.apply(&mut config, SHARDS);
    let directory = Directory::new(1, pools, SHARDS).map_err(|faults| text(&faults))?;
    Ok((config, directory))
}

fn refuse_unsupported(config: &Config) -> Result<(), String> {
    if config.database.is_some() || config.application.is_some() {
        return Err("an embedded engine gets its ring pools only from the configuration: \
            remove `database` under [directory], and [application], or use a server"
            .to_owned());
    }
    if config.journal.replicated.is_some() {
        return Err("an embedded engine stores its journal in files: remove `engine` under \
            [journal], or use a server"
            .to_owned());
    }
    if config.durability != Durability::Memory && config.data.as_os_str().is_empty() {
        return Err(
            "data must be set to the directory for journals: every durability except \"memory\" \
            needs one"
                .to_owned(),
        );
    }
    Ok(())
}

fn text(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}
