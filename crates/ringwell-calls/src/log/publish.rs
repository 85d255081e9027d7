//! Publishes events: writes them, with their deliveries to webhook endpoints.

use ringwell_core::Millis;
use serde_json::json;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::error::LogError;
use super::places::{Places, ROWS_MAX};
use super::values::{event_id, ms, text};
use crate::clock::moment;

/// An event to write and send.
pub(crate) struct NewEvent {
    pub(crate) kind: &'static str,
    pub(crate) call: Option<String>,
    pub(crate) at: Millis,
    pub(crate) data: serde_json::Value,
}

/// Writes events, and for each one a delivery to every endpoint that subscribes to its type.
/// Returns the ids of the events.
pub(crate) async fn publish(
    db: &mut AnyConnection,
    events: Vec<NewEvent>,
) -> Result<Vec<String>, LogError> {
    let (events, has_endpoints) = placed(db, events).await?;
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(Vec::new()) };
    let places = (first.0, last.0);
    let ids = write(db, events).await?;
    if !has_endpoints {
        return Ok(ids);
    }
    // Deliveries to a disabled endpoint are held, so that missed events can be replayed.
    let query = sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint, event, state, attempts, next_ms) \
         SELECT e.id, v.place, CASE WHEN e.state = 'enabled' THEN 'pending' ELSE 'held' END, \
         0, v.at_ms FROM webhook_endpoints e, call_events v WHERE v.place >= $1 AND v.place <= $2 \
         AND (e.types = '' OR e.types LIKE ('% ' || v.type || ' %'))",
    );
    query.bind(places.0).bind(places.1).execute(db).await?;
    Ok(ids)
}

/// Writes an event for one endpoint only. Returns the event's id.
pub(crate) async fn publish_to(
    db: &mut AnyConnection,
    event: NewEvent,
    endpoint: &str,
) -> Result<String, LogError> {
    let at = event.at;
    let (events, _) = placed(db, vec![event]).await?;
    let places: Vec<i64> = events.iter().map(|(place, _)| *place).collect();
    let ids = write(db, events).await?;
    for place in places {
        let query = sqlx::query(
            "INSERT INTO webhook_deliveries (endpoint, event, state, attempts, next_ms) \
             VALUES ($1, $2, 'pending', 0, $3)",
        );
        query.bind(endpoint.to_owned()).bind(place).bind(ms(at)).execute(&mut *db).await?;
    }
    Ok(ids.concat())
}

/// Assigns a place in the sequence of events to each event, and returns whether any webhook
/// endpoints exist. All places come from a counter in one row, so transactions assign them one at a
/// time. Events therefore become visible in the order of their places, so a reader can continue
/// after the last place it has read without missing any.
async fn placed(
    db: &mut AnyConnection,
    events: Vec<NewEvent>,
) -> Result<(Vec<(i64, NewEvent)>, bool), LogError> {
    if events.is_empty() {
        return Ok((Vec::new(), false));
    }
    let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
    let query = "UPDATE call_counter SET last_place = last_place + $1 \
         RETURNING last_place, (SELECT COUNT(*) FROM webhook_endpoints)";
    let row = sqlx::query(query).bind(count).fetch_one(db).await?;
    let (last, endpoints): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(((last - count + 1..).zip(events).collect(), endpoints > 0))
}

/// Writes the events with their places. Returns their ids.
async fn write(
    db: &mut AnyConnection,
    events: Vec<(i64, NewEvent)>,
) -> Result<Vec<String>, LogError> {
    let mut ids = Vec::with_capacity(events.len());
    for part in events.chunks(ROWS_MAX) {
        let statement = format!(
            "INSERT INTO call_events (place, id, type, call, at_ms, body) VALUES {}",
            Places::of(db).rows(part.len(), 6)
        );
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for (place, event) in part {
            let id = event_id(event.at)?;
            let body = text(&json!({
                "type": event.kind,
                "timestamp": moment(event.at),
                "data": event.data,
            }))?;
            query = query.bind(*place).bind(id.clone()).bind(event.kind);
            query = query.bind(event.call.clone()).bind(ms(event.at)).bind(body);
            ids.push(id);
        }
        query.execute(&mut *db).await?;
    }
    Ok(ids)
}
