//! `POST /v1/releases`: ends a lockout early.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use ringwell_core::{Millis, PromoNumber};
use ringwell_node::{AskError, Handle};
use serde::{Deserialize, Serialize};

use super::attribution::{newest_at, parse_moment, parse_number};
use crate::problem::Problem;

const HANDED_ON: &str = "the number's node was slow, and another visitor may have the number now, \
    so no lockout was ended: try again, or set allocated_at to the time of the allocation whose \
    lockout you want to end";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    number: String,
    allocated_at: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Released {
    number: String,
    released: bool,
}

pub(crate) async fn post(
    State(node): State<Handle>,
    body: Bytes,
) -> Result<Json<Released>, Problem> {
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|_| {
        Problem::bad_request(
            "the body must contain the number, as in {\"number\":\"8885550142\"}; to end only the \
             lockout of one particular allocation, add \"allocated_at\" from the answer to GET \
             /v1/attributions",
        )
    })?;
    let number = parse_number(&wanted.number)?;
    let allocated_at = match wanted.allocated_at.as_deref().map(parse_moment) {
        None => None,
        Some(Some(at)) => Some(at),
        Some(None) => {
            return Err(Problem::bad_request(
                "allocated_at: must be a time, as in 2026-11-21T06:30:00Z",
            ));
        }
    };
    let directory = node.directory();
    let pool = directory.pool_by_number(number).and_then(|pool| directory.lookup(pool));
    let Some(owner) = pool else {
        return Err(Problem::new(
            axum::http::StatusCode::NOT_FOUND,
            "the number is not in rotation in any ring pool",
        ));
    };
    let meant = match allocated_at {
        // Determines the allocation to release, so that a delayed request does not end the lockout
        // of the next visitor.
        None => match node.newest_in(owner.shard(), number).await.map_err(unanswered)? {
            None => return Err(Problem::unavailable(HANDED_ON)),
            newest => newest,
        },
        Some(at) => Some(at),
    };
    let mut released = release(&node, owner.shard(), number, meant).await?;
    if let Some(wall) = allocated_at.filter(|_| !released) {
        // Look-ups return wall-clock times, which may differ from shard time.
        let at = newest_at(&node, number, wall).await?.filter(|at| *at != wall);
        if at.is_some() {
            released = release(&node, owner.shard(), number, at).await?;
        }
    }
    Ok(Json(Released { number: number.to_string(), released }))
}

async fn release(
    node: &Handle,
    shard: u16,
    number: PromoNumber,
    allocated_at: Option<Millis>,
) -> Result<bool, Problem> {
    match node.release(shard, number, allocated_at).await {
        Ok(Ok(released)) => Ok(released),
        Ok(Err(_)) => Err(unanswered(AskError::Stopped)),
        Err(error) => Err(unanswered(error)),
    }
}

fn unanswered(error: AskError) -> Problem {
    Problem::unavailable(match error {
        AskError::Busy => "the shard is busy; try again",
        AskError::Stopped => {
            "the number's shard has not confirmed the release: its journal does not accept writes, \
                or its node cannot be reached (/readyz and /v1/shards show the reason). The \
                release may still take effect later; it then ends only the lockout of the current \
                visitor, not the lockout of a later visitor"
        }
    })
}
