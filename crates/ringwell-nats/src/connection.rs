//! The connection to the servers.

use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use ringwell_directory::Replicated;

use crate::error::{NatsError, unreached};

pub(crate) async fn connect(settings: &Replicated) -> Result<Client, NatsError> {
    let failed = |error: String| unreached(settings, &error);
    let mut options = ConnectOptions::new().name("ringwell").max_reconnects(None).event_callback(
        |event| async move { tracing::info!(%event, "the connection to the journal's servers") },
    );
    // If a server is gone, the next one is asked at once, and each gets a pause between attempts.
    options = options.reconnect_delay_callback(|attempts| {
        Duration::from_millis(if attempts < 4 { 10 } else { 250 })
    });
    if let Some(path) = &settings.credentials {
        options = options.credentials_file(path).await.map_err(|e| failed(e.to_string()))?;
    }
    if let Some(path) = &settings.authority {
        options = options.add_root_certificates(path.clone()).require_tls(true);
    }
    options.connect(&*settings.servers).await.map_err(|error| failed(error.to_string()))
}
