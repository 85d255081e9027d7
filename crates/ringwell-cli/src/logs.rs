//! Logs: written to stderr, as readable lines on a terminal and as JSON otherwise.

use std::io::{self, IsTerminal};

use anyhow::Context;
use ringwell_config::{Log, LogFormat};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Parses `log.level`: one level, or a comma-separated list of levels per module.
///
/// # Errors
/// If the text has neither form.
pub(crate) fn filter(log: &Log) -> anyhow::Result<Targets> {
    // Silenced because a pool of connections repeats each failure several times a second, and our
    // own code reports it.
    let all = Targets::new()
        .with_target("sqlx_core::pool", LevelFilter::OFF)
        // Silenced because it logs values from a database's URL, which may be passwords.
        .with_target("sqlx_postgres::options::parse", LevelFilter::OFF);
    let filter = log.level.split(',').try_fold(all, |filter, directive| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        match directive.trim().split_once('=') {
            None => Some(filter.with_default(level(directive)?)),
            Some(("", _)) => None,
            Some((module, text)) if module.chars().all(is_name) => {
                Some(filter.with_target(module, level(text)?))
            }
            Some(_) => None,
        }
    });
    filter.with_context(|| {
        format!(
            "log.level, or RINGWELL_LOG_LEVEL, cannot be {:?}; write e.g. \"info\" or \
             \"warn,ringwell_node=debug\"",
            log.level
        )
    })
}

fn level(text: &str) -> Option<LevelFilter> {
    let is_word = text.trim().chars().all(|c| c.is_ascii_alphabetic());
    text.trim().parse().ok().filter(|_| is_word)
}

/// Makes the program log to stderr from now on.
///
/// # Errors
/// Returns the same errors as [`filter`].
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = filter(log)?;
    let is_terminal = io::stderr().is_terminal();
    let is_text = match log.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = if is_text {
        let is_coloured = is_terminal && std::env::var_os("NO_COLOR").is_none();
        lines.with_ansi(is_coloured).boxed()
    } else {
        lines.json().flatten_event(true).boxed()
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(())
}
