//! Detects that the server to which this client is connected no longer reaches the other servers.
//!
//! A server that is cut off from the others keeps its client connections. Such a server may answer
//! requests, but it never stores anything. If nothing is stored for a while, the client reconnects
//! to any of the servers, and repeats this until one of them stores messages.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use tokio::time::Instant;

/// The time without progress after which the client reconnects. It is longer than an election,
/// which takes 4 to 9 s.
const STUCK_MAX: Duration = Duration::from_secs(10);

/// The time without progress after which the client reconnects once more, because it may have
/// reconnected to the same server.
const STUCK_AGAIN_MAX: Duration = Duration::from_secs(4);

/// The progress of one connection.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// The time at which the client reconnects if no request makes progress before then; `None` if
    /// the last request made progress.
    stuck_until: Mutex<Option<Instant>>,
}

impl Reach {
    /// Records that a request made progress: the message was stored, or it was refused because it
    /// is not acceptable or the stream is full.
    pub(crate) fn progressed(&self) {
        *self.stuck_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records that a request sent at `asked` made no progress.
    pub(crate) async fn stuck(&self, client: &Client, asked: Instant) {
        let is_long = {
            let mut until = self.stuck_until.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let is_long = *until.get_or_insert(asked + STUCK_MAX) <= now;
            if is_long {
                *until = Some(now + STUCK_AGAIN_MAX);
            }
            is_long
        };
        if is_long {
            let server = client.server_info().server_name;
            tracing::warn!(
                server,
                "requests to this journal server have failed: reconnecting, possibly \
                to another server"
            );
            // An error means that the connection is permanently closed.
            let _ = client.force_reconnect().await;
        }
    }
}
