//! Signals that end a command that has work to finish first.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Returns a flag that SIGINT and SIGTERM set. A second signal ends the program immediately.
///
/// # Errors
/// If the system refuses the handlers.
pub(crate) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("cannot handle signals")?;
    }
    Ok(stop)
}

/// Lets the next SIGINT, SIGTERM or SIGHUP end the program immediately. For the end of a command
/// that has handled these signals itself.
///
/// # Errors
/// If the system refuses the handlers.
pub(crate) fn end_on_next_signal() -> anyhow::Result<()> {
    let always = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal != SIGHUP || !ignores_hang_up() {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&always))
                .context("cannot handle signals")?;
        }
    }
    Ok(())
}

/// Whether the process ignores SIGHUP, for example because it was started with `nohup`. Then the
/// command must continue when its terminal is closed.
pub(crate) fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or_default() >> (SIGHUP - 1) & 1 == 1
}
