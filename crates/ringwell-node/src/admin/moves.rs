//! `POST /v1/shards/moves`: buckets go to another shard with their lockouts.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use ringwell_directory::BUCKETS;
use serde::Deserialize;

use super::Admin;
use super::problem::Problem;
use crate::handover::{self, Given, MoveError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// As in `0-15,20`.
    buckets: String,
    to: u16,
}

pub(crate) async fn post(State(admin): State<Admin>, body: Bytes) -> Result<Json<Given>, Problem> {
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|_| {
        Problem::bad_request("the body is {\"buckets\":\"0-15,20\",\"to\":3}: buckets and a shard")
    })?;
    let buckets = parse_buckets(&wanted.buckets).ok_or_else(|| {
        Problem::bad_request("buckets: numbers and ranges from 0 to 1023, as in 0-15,20")
    })?;
    // A client that hangs up does not stop a move half way.
    let given =
        tokio::spawn(
            async move { handover::give(&admin.node, &admin.peers, buckets, wanted.to).await },
        );
    let given = given.await.map_err(|_| Problem::unavailable("the node is stopping"))?;
    given.map(Json).map_err(|error| Problem::new(status(&error), error.to_string()))
}

/// Takes back what is on its way and does not arrive.
pub(crate) async fn delete(State(admin): State<Admin>) -> Result<Json<Given>, Problem> {
    let back = tokio::spawn(async move { handover::abort(&admin.node, &admin.peers).await });
    let back = back.await.map_err(|_| Problem::unavailable("the node is stopping"))?;
    back.map(Json).map_err(|error| Problem::new(status(&error), error.to_string()))
}

fn status(error: &MoveError) -> StatusCode {
    match error {
        MoveError::NoBucket(_) | MoveError::NoShard(_) => StatusCode::BAD_REQUEST,
        MoveError::NoCluster
        | MoveError::Elsewhere { .. }
        | MoveError::NotTaken { .. }
        | MoveError::Busy(_)
        | MoveError::NothingLeaves
        | MoveError::NotTakenBack { .. }
        | MoveError::Change(_) => StatusCode::CONFLICT,
        MoveError::NotServing | MoveError::OnTheirWay { .. } | MoveError::Map(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// `None` if it is no list of buckets.
fn parse_buckets(text: &str) -> Option<BTreeSet<u16>> {
    let mut buckets = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= BUCKETS {
            return None;
        }
        buckets.extend(first..=last);
    }
    Some(buckets)
}

#[cfg(test)]
#[test]
fn lists_of_buckets_are_read_or_refused() {
    let read = |text| parse_buckets(text).map(|buckets| buckets.into_iter().collect::<Vec<_>>());
    assert_eq!(read("3"), Some(vec![3]));
    assert_eq!(read("0-2, 5,2-3"), Some(vec![0, 1, 2, 3, 5]));
    assert_eq!(read("0-1023").map(|all| all.len()), Some(1024));
    for bad in ["", "1024", "3-2", "a", "1-", "-1", "1,,2"] {
        assert_eq!(read(bad), None, "{bad}");
    }
}
