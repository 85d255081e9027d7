//! Finds calls that have no destination, and whose end was not reported.

use ringwell_core::Millis;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::Log;
use super::error::LogError;
use super::values::{from_ms, ms};

/// The key of the event for a call without a destination.
pub(crate) const NO_DESTINATION: &str = "no_destination";

/// A call that Ringwell did not connect, and that is still ringing according to the log.
pub(crate) struct RingingCall {
    pub(crate) account: String,
    pub(crate) provider: String,
    pub(crate) provider_call: String,
    /// The time of the newest report about the call.
    pub(crate) last: Millis,
}

impl RingingCall {
    fn read(row: &AnyRow) -> Result<Self, LogError> {
        Ok(Self {
            account: row.try_get("account")?,
            provider: row.try_get("provider")?,
            provider_call: row.try_get("provider_call_id")?,
            last: from_ms(row.try_get("last_ms")?),
        })
    }
}

impl Log {
    /// Lists at most `most` calls that have no destination, began before `before` and are still
    /// ringing.
    ///
    /// # Errors
    /// [`LogError`].
    pub(crate) async fn ringing_without_destination(
        &self,
        before: Millis,
        most: u32,
    ) -> Result<Vec<RingingCall>, LogError> {
        let mut tx = self.database().read().await?;
        let query = sqlx::query(
            "SELECT account, provider, provider_call_id, \
             (SELECT MAX(at_ms) FROM call_timeline WHERE call = id) AS last_ms \
             FROM calls WHERE state = 'ringing' AND started_ms < $1 AND EXISTS \
             (SELECT 1 FROM call_timeline WHERE call = id AND report = $2) \
             ORDER BY started_ms LIMIT $3",
        );
        let query = query.bind(ms(before)).bind(NO_DESTINATION).bind(i64::from(most));
        query.fetch_all(&mut *tx).await?.iter().map(RingingCall::read).collect()
    }
}
