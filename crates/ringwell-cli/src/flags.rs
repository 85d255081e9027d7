//! Flags that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ringwell_config::{Durability, Listen, LogFormat, Overrides, parse_deadline, parse_shards};

/// Flags that `serve` and `demo` share.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// Address to listen on: HOST:PORT or unix:PATH; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = str::parse::<Listen>)]
    listen: Vec<Listen>,
    /// Number of shards; 0 for one per core
    #[arg(long, value_name = "N", value_parser = parse_shards)]
    shards: Option<u16>,
    /// Where an allocation is stored before the answer is sent: with `disk`, it survives a power
    /// cut; with `os`, it survives a process crash
    #[arg(long, value_name = "WHERE", value_parser = durability())]
    durability: Option<Durability>,
    /// Deadline for answering a batch, e.g. 100ms; rows without a number by then get overflow
    /// numbers
    #[arg(long, value_name = "DURATION", value_parser = parse_deadline)]
    deadline: Option<Duration>,
    /// Log format: auto is text on a terminal and JSON otherwise
    #[arg(long, value_name = "FORMAT", value_parser = log_format())]
    log_format: Option<LogFormat>,
}

impl Server {
    /// Returns the flags as settings that take precedence over all other sources.
    pub(crate) fn overrides(self, data: Option<PathBuf>) -> Overrides {
        Overrides {
            data,
            listen: (!self.listen.is_empty()).then_some(self.listen),
            shards: self.shards,
            durability: self.durability,
            deadline: self.deadline,
            log_format: self.log_format,
            ..Overrides::default()
        }
    }
}

/// Returns a parser for durability names.
pub(crate) fn durability() -> impl TypedValueParser<Value = Durability> {
    PossibleValuesParser::new(["disk", "os", "memory"]).try_map(|text| text.parse::<Durability>())
}

fn log_format() -> impl TypedValueParser<Value = LogFormat> {
    PossibleValuesParser::new(["auto", "text", "json"]).try_map(|text| text.parse::<LogFormat>())
}
