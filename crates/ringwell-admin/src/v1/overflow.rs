//! `GET /v1/overflow`: the pools with the most overflow rows. `GET /v1/pools/ID/state`: the present
//! state of one pool.
//!
//! Both paths query this node's shards. Therefore, they work regardless of whether pools are in a
//! file or in a database.

use std::cmp::Reverse;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use ringwell_core::{Millis, PoolId};
use ringwell_node::Handle;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// The default number of pools in the list. `/metrics` shows the same number of pools.
pub(crate) const TOP: usize = 10;

/// The maximum number of pools in the list. This limits the cost of an answer. People would not
/// read a longer list.
const TOP_MAX: usize = 1000;

#[derive(Deserialize)]
pub(crate) struct Wanted {
    top: Option<usize>,
}

#[derive(Serialize)]
pub(crate) struct Listed {
    /// Pools with the most overflow rows come first; pools without any are omitted.
    ring_pools: Vec<Overflow>,
}

/// A pool's counts since this process started.
#[derive(Debug, Serialize)]
pub(crate) struct Overflow {
    pub(crate) ring_pool_id: u64,
    name: Option<String>,
    /// The count of numbers in rotation. Absent if a shard of another node owns the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    numbers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_seconds: Option<f64>,
    /// The count of numbers handed out. Absent if a shard of another node owns the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated: Option<u32>,
    /// The count of rows for which every number was locked out, because the pool is too small.
    exhausted: u64,
    /// The count of rows that overflowed for a reason other than an exhausted pool. `/metrics`
    /// shows the reasons.
    not_served: u64,
}

impl Overflow {
    pub(crate) const fn rows(&self) -> u64 {
        self.exhausted + self.not_served
    }
}

#[derive(Serialize)]
pub(crate) struct Now {
    ring_pool_id: u64,
    name: Option<String>,
    shard: u16,
    numbers: u32,
    free: u32,
    locked: u32,
    /// The time at which the next number becomes free, if none is free now.
    next_free: Option<String>,
    allocated: u32,
    exhausted: u32,
}

pub(crate) async fn overflow(
    State(node): State<Handle>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Listed>, Problem> {
    let top = query.ok().map(|Query(wanted)| wanted.top.unwrap_or(TOP));
    let top = top.filter(|top| (1..=TOP_MAX).contains(top));
    let top = top.ok_or_else(|| Problem::bad_request("top must be a number from 1 to 1000"))?;
    Ok(Json(Listed { ring_pools: most_overflowing(&node, top).await }))
}

/// At most `top` pools: those with the most overflow rows.
pub(crate) async fn most_overflowing(node: &Handle, top: usize) -> Vec<Overflow> {
    let mut not_served = node.most_refused(top).await;
    let mut found: Vec<Overflow> = Vec::new();
    let directory = node.directory();
    let name = |pool| directory.pool(pool).and_then(|pool| pool.name().map(str::to_owned));
    for pool in node.asked().await {
        let not_served = not_served.remove(&pool.pool).unwrap_or_default();
        if pool.exhausted == 0 && not_served == 0 {
            continue;
        }
        #[expect(clippy::cast_precision_loss, reason = "lifetimes are far below 2^52 ms")]
        let lifetime = pool.lifetime.0 as f64 / 1e3;
        found.push(Overflow {
            ring_pool_id: pool.pool.0,
            name: name(pool.pool),
            numbers: Some(pool.numbers),
            lifetime_seconds: Some(lifetime),
            allocated: Some(pool.allocated),
            exhausted: u64::from(pool.exhausted),
            not_served,
        });
    }
    // For pools of other nodes, only rows that arrived at this node are counted.
    found.extend(not_served.into_iter().map(|(pool, rows)| Overflow {
        ring_pool_id: pool.0,
        name: name(pool),
        numbers: None,
        lifetime_seconds: None,
        allocated: None,
        exhausted: 0,
        not_served: rows,
    }));
    found.sort_by_key(|pool| (Reverse(pool.rows()), pool.ring_pool_id));
    found.truncate(top);
    found
}

pub(crate) async fn state(
    State(node): State<Handle>,
    Path(id): Path<String>,
) -> Result<Json<Now>, Problem> {
    let not_here = || {
        let detail = "no shard of this node has this ring pool";
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    let pool = id.parse().map(PoolId).map_err(|_| not_here())?;
    let state = node.state(pool).await.ok_or_else(not_here)?;
    let directory = node.directory();
    Ok(Json(Now {
        ring_pool_id: pool.0,
        name: directory.pool(pool).and_then(|pool| pool.name().map(str::to_owned)),
        shard: state.shard,
        numbers: state.numbers,
        free: state.numbers.saturating_sub(state.locked),
        locked: state.locked,
        next_free: state.next_free.and_then(moment),
        allocated: state.allocated,
        exhausted: state.exhausted,
    }))
}

fn moment(at: Millis) -> Option<String> {
    let at = Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()?;
    Some(format!("{at:.3}"))
}
