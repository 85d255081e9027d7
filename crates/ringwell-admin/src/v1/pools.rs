//! Ring pools: settings, numbers and present state.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use ringwell_core::{NumberRange, PoolId, PromoNumber};
use ringwell_store::{Pool, Role};
use serde::{Deserialize, Serialize};

use super::numbers::NumberRun;
use super::shared::{
    Done, Page, Trial, body, change_with, enter, finish, not_here, pool, query, ranges,
};
use super::sizing::LoadView;
use crate::context::Context;
use crate::problem::Problem;
use crate::published::new_key;

/// The error text for a pool that is in the directory, but has no state.
const NOT_SERVED: &str = "no shard of this node serves this pool: the pool may have no numbers in \
    rotation yet";

/// A ring pool without its secrets.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PoolView {
    id: u64,
    network: String,
    advertiser: String,
    campaign: String,
    id_from_network: String,
    name: String,
    lifetime_seconds: f64,
    max_pool_size: u32,
    allow_overflow: bool,
    fill_immediately: bool,
    overflow_number: Option<String>,
    /// Whether two keys are valid, because a key change is in progress.
    key_is_rotating: bool,
    /// The directory's version at the pool's last change.
    version: u64,
}

/// The present state of a pool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StateView {
    /// The count of numbers in rotation.
    numbers: u64,
    /// The count of numbers that can be handed out now.
    free: u64,
    /// The count of numbers that visitors hold.
    locked: u64,
    /// The time at which the next number becomes free, in milliseconds since 1970. Null if a number
    /// is free now.
    next_free_ms: Option<u64>,
    /// The shard that owns the pool.
    shard: u16,
    /// The count of numbers handed out since the server started.
    allocated: u64,
    /// The count of overflow rows since the server started, by reason. The count for `exhausted`
    /// comes from the pool's shard and includes rows that arrived at any node. The other counts
    /// include only rows that arrived at this node.
    overflow: BTreeMap<String, u64>,
    /// The pool's recent demand. Null until the pool has been sampled.
    load: Option<LoadView>,
}

/// Numbers to add to a pool.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddNumbers {
    /// Numbers and ranges, such as `8885550100-8885550149`.
    ranges: Vec<String>,
}

/// The counts of added numbers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Added {
    /// The count of numbers that entered rotation immediately.
    entered: u64,
    /// The count of numbers that wait until no visitor can hold them any more.
    waiting: u64,
    #[serde(flatten)]
    done: Done,
}

/// A new overflow number for a pool.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetOverflow {
    /// The number. Null removes the overflow number.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required)]
    number: Option<String>,
}

/// The result of replacing an overflow number.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct OverflowSet {
    /// Whether the pool has the new overflow number already. False while visitors may still hold
    /// that number.
    now: bool,
    #[serde(flatten)]
    done: Done,
}

/// The result of adding a key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NewKey {
    /// The new key. The previous key remains valid until it is removed.
    ring_pool_key: String,
    #[serde(flatten)]
    done: Done,
}

/// Lists ring pools, ordered by id.
#[utoipa::path(get, path = "/v1/pools", params(Page), responses((status = 200, body = [PoolView])))]
pub(crate) async fn list(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Vec<PoolView>>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let page: Page = query(&uri)?;
    let after = page.after.map(PoolId);
    let pools = context.store.pools(visitor.network(), after, page.limit()).await?;
    Ok(Json(pools.iter().map(PoolView::of).collect()))
}

/// Shows a ring pool.
#[utoipa::path(get, path = "/v1/pools/{id}", params(("id" = u64, Path)),
    responses((status = 200, body = PoolView), (status = 404)))]
pub(crate) async fn show(
    State(context): State<Context>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<PoolView>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    Ok(Json(PoolView::of(&pool(&context, &visitor, &id).await?)))
}

/// Returns the present state of a ring pool.
#[utoipa::path(get, path = "/v1/pools/{id}/state", params(("id" = u64, Path)),
    responses((status = 200, body = StateView), (status = 404), (status = 503)))]
pub(crate) async fn state(
    State(context): State<Context>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<StateView>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let pool = pool(&context, &visitor, &id).await?;
    let Some(state) = context.live.state(pool.id).await else {
        return Err(not_here(&context, pool.id, NOT_SERVED).await);
    };
    Ok(Json(StateView {
        numbers: state.numbers,
        free: state.free,
        locked: state.locked,
        next_free_ms: state.next_free.map(|at| at.0),
        shard: state.shard,
        allocated: state.allocated,
        overflow: state.overflow,
        load: context.live.load(pool.id).as_ref().map(LoadView::of),
    }))
}

/// Lists a ring pool's numbers.
#[utoipa::path(get, path = "/v1/pools/{id}/numbers", params(("id" = u64, Path)),
    responses((status = 200, body = [NumberRun]), (status = 404)))]
pub(crate) async fn numbers(
    State(context): State<Context>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Vec<NumberRun>>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let pool = pool(&context, &visitor, &id).await?;
    let numbers = context.store.numbers_of(pool.id).await?;
    Ok(Json(numbers.iter().map(NumberRun::of).collect()))
}

/// Adds numbers to a ring pool.
#[utoipa::path(post, path = "/v1/pools/{id}/numbers", params(("id" = u64, Path), Trial),
    request_body = AddNumbers,
    responses((status = 200, body = Added), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn add_numbers(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<Added>, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let pool = pool(&context, &visitor, &id).await?;
    let AddNumbers { ranges: texts } = body(&bytes)?;
    let (ranges, trial) = (ranges(&texts)?, query(&uri)?);
    let mut change = change_with(&context, &visitor, &ranges).await?;
    let placed = change.add_numbers(pool.id, &ranges).await?;
    change.raise_size(pool.id).await?;
    let done = finish(&context, change, &trial).await?;
    Ok(Json(Added { entered: placed.entered, waiting: placed.waiting, done }))
}

/// Sets or removes the overflow number of a ring pool.
#[utoipa::path(put, path = "/v1/pools/{id}/overflow", params(("id" = u64, Path), Trial),
    request_body = SetOverflow,
    responses((status = 200, body = OverflowSet), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn set_overflow(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<OverflowSet>, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let pool = pool(&context, &visitor, &id).await?;
    let SetOverflow { number } = body(&bytes)?;
    let number = number.map(|text| PromoNumber::parse(&text)).transpose();
    let number = number.map_err(|error| Problem::bad_request(error.to_string()))?;
    let trial = query(&uri)?;
    let range: Vec<_> = number.and_then(|number| NumberRange::new(number, 1)).into_iter().collect();
    let mut change = change_with(&context, &visitor, &range).await?;
    let now = change.set_overflow(pool.id, number).await?;
    let done = finish(&context, change, &trial).await?;
    Ok(Json(OverflowSet { now, done }))
}

/// The options for adding a key.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Rotation {
    /// Whether to simulate the change and answer as if it had been applied.
    #[serde(default)]
    dry_run: bool,
    /// Whether to replace the newer key if the pool has two keys.
    #[serde(default)]
    replace: bool,
}

/// Adds a second key to a ring pool. The first key remains valid. Answers 409 if the pool already
/// has two keys, unless `replace` is set.
#[utoipa::path(post, path = "/v1/pools/{id}/key", params(("id" = u64, Path), Rotation),
    responses((status = 200, body = NewKey), (status = 404), (status = 409)))]
pub(crate) async fn rotate_key(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<NewKey>, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let pool = pool(&context, &visitor, &id).await?;
    let (key, Rotation { dry_run, replace }) = (new_key()?, query(&uri)?);
    let mut change = context.change(&visitor).await?;
    if replace {
        change.replace_key(pool.id, key).await?;
    } else {
        change.rotate_key(pool.id, key).await?;
    }
    let done = finish(&context, change, &Trial { dry_run }).await?;
    Ok(Json(NewKey { ring_pool_key: key.reveal().to_owned(), done }))
}

/// Removes the older key of a ring pool that has two keys.
#[utoipa::path(delete, path = "/v1/pools/{id}/key/previous",
    params(("id" = u64, Path), Trial), responses((status = 200, body = Done), (status = 404)))]
pub(crate) async fn end_key_overlap(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Done>, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let pool = pool(&context, &visitor, &id).await?;
    let trial = query(&uri)?;
    let mut change = context.change(&visitor).await?;
    change.end_key_overlap(pool.id).await?;
    Ok(Json(finish(&context, change, &trial).await?))
}

impl PoolView {
    fn of(pool: &Pool) -> Self {
        let settings = pool.settings.clone();
        Self {
            id: pool.id.0,
            network: settings.scope.network,
            advertiser: settings.scope.advertiser,
            campaign: settings.scope.campaign,
            id_from_network: settings.id_from_network,
            name: settings.name,
            lifetime_seconds: std::time::Duration::from_millis(settings.lifetime.0).as_secs_f64(),
            max_pool_size: settings.max_pool_size,
            allow_overflow: settings.allow_overflow,
            fill_immediately: settings.fill_immediately,
            overflow_number: pool.overflow.map(|number| number.to_string()),
            key_is_rotating: pool.next_key.is_some(),
            version: pool.version,
        }
    }
}
