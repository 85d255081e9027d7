//! The connection to the servers.

use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use ringwell_config::{Replicated, shown_file};

use crate::error::{NatsError, unreached};

/// The time limit for connecting to a server, which may have lost power. After that, the next
/// server is tried.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The interval between pings. If a server leaves three pings unanswered, the client closes the
/// connection to that server.
const PING_EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn connect(settings: &Replicated) -> Result<Client, NatsError> {
    let failed = |error: String| unreached(settings, &error);
    let mut options = ConnectOptions::new().name("ringwell").max_reconnects(None).event_callback(
        |event| async move { tracing::info!(%event, "connection to the journal's servers") },
    );
    options = options.connection_timeout(CONNECT_MAX).ping_interval(PING_EVERY);
    // If a server is down, the next one is tried at once. The client pauses between two attempts to
    // connect to the same server.
    options = options.reconnect_delay_callback(|attempts| {
        Duration::from_millis(if attempts < 4 { 10 } else { 250 })
    });
    if let Some(path) = &settings.credentials {
        let unreadable = |error: String| failed(format!("{}: {error}", shown_file(path)));
        let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
        options = match text.trim() {
            // The seed of a user's key, in the form printed by `nk -gen user`.
            seed if seed.starts_with("SU") && !seed.contains(char::is_whitespace) => {
                options.nkey(seed.to_owned())
            }
            _ => options.credentials(&text).map_err(|e| unreadable(e.to_string()))?,
        };
    }
    if let Some(path) = &settings.authority {
        options = options.add_root_certificates(path.clone()).require_tls(true);
    }
    options.connect(&*settings.servers).await.map_err(|error| failed(error.to_string()))
}
