//! The signals that the node handles: SIGTERM, SIGINT and SIGHUP.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ServeError;

/// The receivers of SIGTERM, SIGINT and SIGHUP.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Whether a SIGHUP arrived before these receivers existed.
    hung_up: bool,
}

impl Signals {
    pub(crate) fn new(hung_up: &AtomicBool) -> Result<Self, ServeError> {
        let of = |kind| signal(kind).map_err(ServeError::Thread);
        Ok(Self {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hang_up: of(SignalKind::hangup())?,
            hung_up: hung_up.load(Ordering::Relaxed),
        })
    }

    /// Waits for a signal, and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        if std::mem::take(&mut self.hung_up) {
            return "SIGHUP";
        }
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }

    /// Ends the process immediately when SIGTERM or SIGINT arrives.
    pub(crate) fn exit_at_once_on_the_next(mut self) {
        tokio::spawn(async move {
            let mut name = self.next().await;
            while name == "SIGHUP" {
                name = self.next().await;
            }
            // Shells report this exit status for a process that was ended by the signal.
            let status = if name == "SIGTERM" { 143 } else { 130 };
            tracing::warn!(signal = name, "second signal: exiting immediately");
            std::process::exit(status);
        });
    }
}
