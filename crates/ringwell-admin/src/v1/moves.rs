//! `POST /v1/shards/moves`: moves buckets, with their lockouts, to another shard.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use ringwell_directory::BUCKETS;
use ringwell_node::{Handle, MoveReport};
use serde::Deserialize;

use crate::problem::Problem;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The buckets to move, such as `0-15,20`.
    buckets: String,
    to: u16,
}

pub(crate) async fn post(
    State(node): State<Handle>,
    body: Bytes,
) -> Result<Json<MoveReport>, Problem> {
    let wanted: Wanted = serde_json::from_slice(&body).map_err(|_| {
        Problem::bad_request(
            "the body must contain buckets and the shard to move them to, as in \
             {\"buckets\":\"0-15,20\",\"to\":3}",
        )
    })?;
    let buckets = parse_buckets(&wanted.buckets).ok_or_else(|| {
        Problem::bad_request("buckets: must be numbers and ranges from 0 to 1023, as in 0-15,20")
    })?;
    Ok(Json(node.give(buckets, wanted.to).await?))
}

/// Cancels the move of each bucket that has not arrived at its new shard yet.
pub(crate) async fn delete(State(node): State<Handle>) -> Result<Json<MoveReport>, Problem> {
    Ok(Json(node.take_back().await?))
}

/// Parses a list of buckets. Returns `None` if `text` is not such a list.
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
