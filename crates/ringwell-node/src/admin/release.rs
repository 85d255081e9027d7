//! `POST /v1/releases`: ends a lockout early.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use ringwell_core::PromoNumber;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::Admin;
use super::attribution::parse_moment;
use super::problem::Problem;
use crate::mesh::Message;

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
    State(admin): State<Admin>,
    body: Bytes,
) -> Result<Json<Released>, Problem> {
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|_| {
        Problem::bad_request(
            "the body is {\"number\":\"8885550142\"}, with \"allocated_at\" from the attribution \
             if only that allocation is meant",
        )
    })?;
    let number = PromoNumber::parse(&wanted.number)
        .map_err(|error| Problem::bad_request(format!("number: {error}")))?;
    let allocated_at = match wanted.allocated_at.as_deref().map(parse_moment) {
        None => None,
        Some(Some(at)) => Some(at),
        Some(None) => return Err(Problem::bad_request("allocated_at: not a point in time")),
    };
    let directory = admin.node.directory();
    let pool = directory.pool_by_number(number).and_then(|pool| directory.lookup(pool));
    let Some(owner) = pool else {
        return Err(Problem::new(
            axum::http::StatusCode::NOT_FOUND,
            "the number is in no ring pool's rotation",
        ));
    };
    let (reply, answer) = oneshot::channel();
    let message = Message::Release { number, allocated_at, reply };
    if !admin.peers.send(owner.shard(), message) {
        return Err(Problem::unavailable("the shard is busy; try again"));
    }
    match answer.await {
        Ok(Ok(released)) => Ok(Json(Released { number: number.to_string(), released })),
        Ok(Err(_)) | Err(_) => Err(Problem::unavailable(
            "the number's shard did not do it: its journal takes no writes, or its node cannot \
                 be reached; /readyz and /v1/shards say why",
        )),
    }
}
