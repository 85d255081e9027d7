//! Whether the server that this client is connected to still reaches the others.
//!
//! A server that is cut off from the others keeps its connections. It may answer requests, but
//! never stores anything. If nothing is stored for a while, the client reconnects to any of the
//! servers, until one can store.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use tokio::time::Instant;

/// The time without progress after which the client connects again: longer than an election, which
/// takes 4 to 9 s.
const STUCK_MAX: Duration = Duration::from_secs(10);

/// The progress of one connection.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// The time of the first request without effect since the last one that had an effect.
    stuck_since: Mutex<Option<Instant>>,
}

impl Reach {
    /// Records that a request had its effect.
    pub(crate) fn progressed(&self) {
        *self.stuck_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records that a request, made at `asked`, had no effect.
    pub(crate) async fn stuck(&self, client: &Client, asked: Instant) {
        let is_long = {
            let mut since = self.stuck_since.lock().unwrap_or_else(PoisonError::into_inner);
            let is_long = since.get_or_insert(asked).elapsed() >= STUCK_MAX;
            if is_long {
                *since = None;
            }
            is_long
        };
        if is_long {
            let server = client.server_info().server_name;
            tracing::warn!(
                server,
                "this server stores nothing: reconnecting to any of the servers"
            );
            // An error means that the connection has ended for good.
            let _ = client.force_reconnect().await;
        }
    }
}
