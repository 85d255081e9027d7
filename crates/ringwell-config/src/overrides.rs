//! Overrides of the configuration file: `RINGWELL_*` variables, and flags, which take precedence
//! over the variables.
//!
//! Ignores variables that are not in [`VARIABLES`], even if their names begin with `RINGWELL_`,
//! because Kubernetes sets `RINGWELL_PORT` and similar variables if a service is named `ringwell`.
//! [`meant`] detects misspelt names.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use ringwell_directory::{Fault, TokenHash};

use super::limits::{DEADLINE, SHARDS, one_a_core};
use super::settings::Config;
use super::values::{Durability, Listen, LogFormat};
use super::values::{ValueError, parse_duration, parse_path};

/// The variables that override settings.
pub const VARIABLES: [&str; 8] = [
    "RINGWELL_DATA",
    "RINGWELL_LISTEN",
    "RINGWELL_SHARDS",
    "RINGWELL_DURABILITY",
    "RINGWELL_DEADLINE",
    "RINGWELL_TOKEN_SHA256",
    "RINGWELL_LOG_FORMAT",
    "RINGWELL_LOG_LEVEL",
];

/// The variables that replace flags of `ringwell serve`, and override no setting.
const OF_FLAGS: [&str; 3] = ["RINGWELL_CONFIG", "RINGWELL_CLUSTER", "RINGWELL_NODE"];

/// The server variable that a user probably meant by the unknown name `name`.
#[must_use]
pub fn meant(name: &str) -> Option<&'static str> {
    let ours = name.strip_prefix("RINGWELL_")?;
    let all = || VARIABLES.into_iter().chain(OF_FLAGS);
    // Variables of other commands.
    if ["TOKEN", "WEBHOOK_SECRET"].contains(&ours) || all().any(|known| known == name) {
        return None;
    }
    let distance = |known: &&str| strsim::osa_distance(known, name);
    // If two letters of a four-letter name differ, it is probably a different word.
    let slips_max = |known: &str| if known.len() > "RINGWELL_DATA".len() { 2 } else { 1 };
    all().min_by_key(distance).filter(|known| distance(known) <= slips_max(known))
}

/// Settings that override those in the configuration file. If a field is `None`, the file's setting
/// applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The directory of journals and snapshots.
    pub data: Option<PathBuf>,
    /// The addresses to listen on.
    pub listen: Option<Vec<Listen>>,
    /// The count of shards; 0 for one per core.
    pub shards: Option<u16>,
    /// The durability that an allocation must reach before it is answered.
    pub durability: Option<Durability>,
    /// The deadline of a batch.
    pub deadline: Option<Duration>,
    /// The tokens for `/v1/`.
    pub token_sha256: Option<Vec<TokenHash>>,
    /// The format of the logs.
    pub log_format: Option<LogFormat>,
    /// The filter for log lines.
    pub log_level: Option<String>,
}

impl Overrides {
    /// Reads variables. `get` returns a variable's value; an empty value counts as unset.
    ///
    /// # Errors
    /// A fault for each variable with an invalid value.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<Fault>> {
        let mut read = Variables { get, faults: Vec::new() };
        let overrides = Self {
            data: read.one("RINGWELL_DATA", parse_path),
            listen: read.list("RINGWELL_LISTEN", str::parse),
            shards: read.one("RINGWELL_SHARDS", parse_shards),
            durability: read.one("RINGWELL_DURABILITY", str::parse),
            deadline: read.one("RINGWELL_DEADLINE", parse_deadline),
            token_sha256: read.list("RINGWELL_TOKEN_SHA256", parse_token_hash),
            log_format: read.one("RINGWELL_LOG_FORMAT", str::parse),
            log_level: read.one("RINGWELL_LOG_LEVEL", parse_level),
        };
        if read.faults.is_empty() { Ok(overrides) } else { Err(read.faults) }
    }

    /// Writes the settings that are not `None` into `config`, for a machine with `cores` processor
    /// cores.
    pub fn apply(self, config: &mut Config, cores: u16) {
        let put_shards = |shards| if shards == 0 { one_a_core(cores) } else { shards };
        replace(&mut config.data, self.data);
        replace(&mut config.listen, self.listen);
        replace(&mut config.shards, self.shards.map(put_shards));
        replace(&mut config.durability, self.durability);
        replace(&mut config.deadline, self.deadline);
        if let Some(hashes) = self.token_sha256 {
            let of_file = config.management.token_sha256.current();
            config.management.token_variable_wins = !of_file.is_empty() && *of_file != *hashes;
            config.management.token_sha256.replace(&hashes);
        }
        replace(&mut config.log.format, self.log_format);
        replace(&mut config.log.level, self.log_level);
    }
}

/// Reads a number of shards: 0 to 256.
///
/// # Errors
/// [`ValueError`] if `text` is invalid.
pub fn parse_shards(text: &str) -> Result<u16, ValueError> {
    SHARDS.check(text.parse().map_err(|_| SHARDS.fault())?)
}

/// Reads a batch's deadline: 1 ms to 60 s.
///
/// # Errors
/// [`ValueError`] if `text` is invalid.
pub fn parse_deadline(text: &str) -> Result<Duration, ValueError> {
    DEADLINE.check(parse_duration(text).map_err(|fault| fault.hint(DEADLINE.example_of(text)))?)
}

pub(super) fn parse_token_hash(text: &str) -> Result<TokenHash, ValueError> {
    let hint = "run `ringwell token` to create a token and print its SHA-256";
    TokenHash::parse(text).map_err(|error| ValueError::new(error.to_string()).hint(hint))
}

pub(super) fn parse_level(text: &str) -> Result<String, ValueError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_:,=[]{}".contains(&b);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new(
        "must be error, warn, info, debug or trace, or a list of levels for modules",
    )
    .hint("write e.g. \"info\" or \"warn,ringwell_node=debug\""))
}

fn replace<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

struct Variables<G> {
    get: G,
    faults: Vec<Fault>,
}

impl<G: Fn(&str) -> Option<String>> Variables<G> {
    fn one<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, ValueError>) -> Option<T> {
        let text = (self.get)(name).filter(|text| !text.is_empty())?;
        let value = read(&text);
        self.keep(name, value)
    }

    fn list<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Option<Vec<T>> {
        self.one(name, |text| text.split(',').map(|part| read(part.trim())).collect())
    }

    fn keep<T>(&mut self, name: impl Display, value: Result<T, ValueError>) -> Option<T> {
        let fault = |error: ValueError| Fault {
            field: name.to_string(),
            message: error.message,
            hint: error.hint,
            ..Fault::default()
        };
        value.map_err(|error| self.faults.push(fault(error))).ok()
    }
}
