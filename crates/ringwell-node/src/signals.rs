//! The signals that the process handles: SIGTERM, SIGINT and SIGHUP.

use std::thread::JoinHandle;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::ServeError;
use crate::platform::current_thread;

/// The receivers of SIGTERM, SIGINT and SIGHUP.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Whether a SIGHUP arrived before these receivers existed.
    hung_up: bool,
}

impl Signals {
    /// Takes over the signals from the thread that handled them during startup. No signal is lost,
    /// because the receivers exist before that thread ends.
    pub(crate) fn take_over(of_start: Option<StartSignals>) -> Result<Self, ServeError> {
        let mut signals = Self::new()?;
        signals.hung_up = of_start.is_some_and(StartSignals::end);
        Ok(signals)
    }

    fn new() -> Result<Self, ServeError> {
        let of = |kind| signal(kind).map_err(ServeError::Thread);
        Ok(Self {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hang_up: of(SignalKind::hangup())?,
            hung_up: false,
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

/// Handles signals while a process starts, waits for other servers, or waits as a standby.
///
/// SIGTERM and SIGINT end the process with exit code 0. No number has been handed out yet, so there
/// is nothing to drain. Files are left as after a crash. Without a handler, the kernel would not
/// even deliver these signals to the first process of a container. A SIGHUP is recorded, because an
/// operator who reloads all nodes may send it to a node that is still starting.
#[derive(Debug)]
pub struct StartSignals {
    over: oneshot::Sender<()>,
    /// Returns whether a SIGHUP arrived.
    thread: JoinHandle<bool>,
}

impl StartSignals {
    /// Handles signals from now on, on a separate thread.
    ///
    /// # Errors
    /// Returns [`ServeError::Thread`] if the system refuses a handler or a thread.
    pub fn begin() -> Result<Self, ServeError> {
        let runtime = current_thread()?;
        let mut signals = runtime.block_on(async { Signals::new() })?;
        let (over, mut is_over) = oneshot::channel::<()>();
        let handle = async move {
            let mut hung_up = false;
            loop {
                let name = tokio::select! {
                    biased;
                    name = signals.next() => name,
                    _ = &mut is_over => return hung_up,
                };
                if name == "SIGHUP" {
                    hung_up = true;
                    continue;
                }
                tracing::info!(signal = name, "stopped before the startup was complete");
                std::process::exit(0);
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let thread = thread.spawn(move || runtime.block_on(handle)).map_err(ServeError::Thread)?;
        Ok(Self { over, thread })
    }

    /// Stops handling signals. Returns whether a SIGHUP arrived.
    fn end(self) -> bool {
        drop(self.over);
        self.thread.join().unwrap_or_default()
    }
}
