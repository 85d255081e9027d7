//! Counts webhook endpoints by their state, for the metrics.

use std::sync::PoisonError;
use std::time::Duration;

use super::Service;
use crate::log::EndpointCounts;

/// The interval at which the endpoints are counted.
const EVERY: Duration = Duration::from_secs(10);

impl Service {
    /// The counts of endpoints, as last read from the log.
    #[must_use]
    pub fn endpoints(&self) -> EndpointCounts {
        *self.inner.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the endpoints periodically until the process ends. If the log does not answer, the
    /// counts remain unchanged; other metrics show that the log is unavailable.
    pub(super) async fn follow_endpoints(self) {
        loop {
            if let Ok(counts) = self.inner.log.count_endpoints().await {
                *self.inner.endpoints.lock().unwrap_or_else(PoisonError::into_inner) = counts;
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}
