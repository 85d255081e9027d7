//! Results of calls, as the users' programs report them.

use ringwell_core::Millis;
use serde_json::{Value, json};

use super::change::{NewEvent, publish};
use super::query::{call, moment};
use super::{Log, LogError, OutcomeRow, ms};

impl Log {
    /// Keeps a result of a call, and writes `conversion.recorded`. `Some(false)` if the call has a
    /// result of that `external_id` already, which stays as it is; `None` if there is no such call.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn record_outcome(
        &self,
        id: &str,
        outcome: &OutcomeRow,
        now: Millis,
    ) -> Result<Option<bool>, LogError> {
        let mut tx = self.database().write().await?;
        let Some(row) = call(&mut tx, id).await? else { return Ok(None) };
        let query = sqlx::query(
            "INSERT INTO call_outcomes (call, external_id, type, value, currency, at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        );
        let query = query.bind(id.to_owned()).bind(outcome.external_id.clone());
        let query = query.bind(outcome.kind.clone()).bind(outcome.value.clone());
        let query = query.bind(outcome.currency.clone()).bind(ms(outcome.at));
        let is_new = query.execute(&mut *tx).await?.rows_affected() > 0;
        if is_new {
            let data = json!({ "call": row.to_json(), "conversion": outcome.to_json() });
            let call = Some(id.to_owned());
            let event = NewEvent { kind: "conversion.recorded", call, at: now, data };
            publish(&mut tx, vec![event]).await?;
        }
        tx.commit().await?;
        Ok(Some(is_new))
    }
}

impl OutcomeRow {
    /// As the API and webhooks show it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "type": self.kind,
            "value": self.value,
            "currency": self.currency,
            "at": moment(self.at),
            "external_id": self.external_id,
        })
    }
}
