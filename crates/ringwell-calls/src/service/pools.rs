//! Events about ring pools, for webhook subscribers.

use serde::Serialize;
use serde_json::json;

use super::Service;
use crate::clock::now;
use crate::log::{NewEvent, publish};

/// The data about a pool that is running out of numbers: it is too small now, or will be within an
/// hour if the present trend continues.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exhausting {
    /// The pool's id.
    pub pool: u64,
    /// The count of numbers in rotation.
    pub numbers: u32,
    /// The mean count of numbers that visitors need at the same time.
    pub load: f64,
    /// The expected value of `load` an hour from now.
    pub load_in_an_hour: f64,
    /// The share of recent visitors who got no number of their own.
    pub overflow: f64,
    /// The expected value of `overflow` an hour from now.
    pub overflow_in_an_hour: f64,
}

impl Service {
    /// Writes the event `pool.exhausting` in the background, to be sent to the endpoints that
    /// subscribe to it. If the log is unavailable, the event is lost. If the pool is still running
    /// out of numbers an hour later, a new event is written then.
    pub fn exhausting(&self, pool: &Exhausting) {
        let data = json!(pool);
        let service = self.clone();
        self.inner.runtime.spawn(async move {
            let event = NewEvent { kind: "pool.exhausting", call: None, at: now(), data };
            let written = async {
                let mut tx = service.inner.log.database().write().await?;
                publish(&mut tx, vec![event]).await?;
                tx.commit().await?;
                Ok::<_, crate::log::LogError>(())
            };
            match written.await {
                Ok(()) => service.wake(),
                Err(error) => tracing::warn!(
                    %error,
                    "a pool.exhausting event could not be stored, so it is not sent"
                ),
            }
        });
    }
}
