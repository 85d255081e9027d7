//! Logs: lines for people on a terminal, JSON otherwise, on stderr.

use std::io::{self, IsTerminal};

use anyhow::Context;
use ringwell_directory::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// What `log.level` lets through.
///
/// # Errors
/// If it is no level and no list of directives.
pub(crate) fn filter(log: &Log) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(&log.level).with_context(|| {
        format!(
            "log.level, or RINGWELL_LOG_LEVEL, cannot be {:?}; write e.g. \"info\" or \
             \"warn,ringwell_node=debug\"",
            log.level
        )
    })
}

/// Sends the program's log lines to stderr from now on.
///
/// # Errors
/// As [`filter`].
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = filter(log)?;
    let is_terminal = io::stderr().is_terminal();
    let is_text = match log.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if is_text {
        lines.with_ansi(is_terminal && std::env::var_os("NO_COLOR").is_none()).init();
    } else {
        lines.json().flatten_event(true).init();
    }
    Ok(())
}
