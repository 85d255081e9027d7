//! Computes the size that a ring pool needs for its load, and returns surplus numbers to the
//! inventory.
//!
//! Uses the same formulas as `ringwell plan`. Source: docs/sizing.md.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use ringwell_core::{Millis, PoolId};
use ringwell_plan::{Callers, Demand, Forecast, Sizes};
use ringwell_store::{Resized, Role};
use serde::{Deserialize, Serialize};

use super::shared::{Done, enter, not_here, pool, query};
use crate::access::Visitor;
use crate::context::Context;
use crate::problem::Problem;
use crate::running_server::PoolLoad;

/// The largest load for which sizes are computed: twice the maximum size of a pool. For a higher
/// load, no size suffices, and the computation would take a long time.
const LOAD_MAX: f64 = 200_000.0;

/// The error text for a pool that is new to this node, so that its load is unknown.
const NOT_COUNTED: &str = "this node has not counted the pool's requests for long enough yet: try \
    again in two minutes";

/// The target overflow, and further options.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// The share of rows that may overflow, above 0 and below 1 (default: 0.01).
    #[serde(default = "one_percent")]
    #[param(exclusive_minimum = 0, exclusive_maximum = 1)]
    target: f64,
    /// An additional pool size to evaluate, from 1 to 100,000.
    #[param(minimum = 1, maximum = 100_000)]
    numbers: Option<u32>,
    /// The count of rows in one batch that request numbers from the pool, from 1 to 10,000
    /// (default: 1).
    #[serde(default = "one")]
    #[param(minimum = 1, maximum = 10_000)]
    together: u32,
}

/// The condition for numbers to count as unused, and whether to simulate the change.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Unused {
    /// A time in milliseconds since 1970. Numbers that no visitor has held since then are unused.
    since_ms: u64,
    /// Whether to simulate the change and answer as if it had been applied.
    #[serde(default)]
    dry_run: bool,
}

/// The recent demand for a pool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LoadView {
    /// The period of the counts: about one lifetime, or the server's uptime if that is shorter.
    over_seconds: f64,
    /// The count of rows in that period, including overflow rows.
    rows: u64,
    /// The count of those rows for which every number was locked.
    exhausted: u64,
    rows_per_second: f64,
    /// The mean count of numbers that would be locked if the pool never ran out: the rows per
    /// second times `lockout_seconds`.
    load: f64,
    /// The mean time that an allocation locks a number: the lifetime, plus the time that
    /// keep-alives add, minus the time that releases save.
    lockout_seconds: f64,
    /// The highest mean load in a clock hour of the last day.
    busiest_hour: f64,
}

/// The count of numbers that a pool needs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SizingView {
    pool: u64,
    /// The count of numbers in rotation now. No count in this answer includes the overflow number.
    numbers: u32,
    lifetime_seconds: f64,
    load: LoadView,
    /// The share of rows that may overflow.
    target: f64,
    /// The smallest count of numbers that meets the target in the busiest hour. Null if no pool
    /// size suffices.
    numbers_needed: Option<u32>,
    /// Forecasts of the busiest hour for several pool sizes, including the present one.
    forecasts: Vec<ForecastView>,
}

/// The forecast for a pool of `numbers` numbers. Shares are from 0 to 1.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ForecastView {
    numbers: u32,
    /// The share of rows that overflow.
    overflow: f64,
    /// The mean count of locked numbers.
    locked: f64,
    /// The mean time from one allocation of a number to the next. Null if the number is never
    /// needed again.
    reuse_seconds: Option<f64>,
    /// The share of callers who call after their number was handed out to another visitor.
    misattributed: f64,
    /// The value of `misattributed` if the next number were chosen at random among the free ones.
    misattributed_random: f64,
    /// The share of callers who are not attributed correctly, because of overflow or because their
    /// number was handed out to another visitor.
    not_attributed: f64,
}

/// The result of returning a pool's unused numbers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct GivenBack {
    /// The count of numbers that the pool had, including the overflow number.
    before: u64,
    /// The count of numbers that the pool has now.
    after: u64,
    #[serde(flatten)]
    done: Done,
}

/// Computes the count of numbers that a ring pool needs for its load.
#[utoipa::path(get, path = "/v1/pools/{id}/sizing", params(("id" = u64, Path), Wanted),
    responses((status = 200, body = SizingView), (status = 404), (status = 503)))]
pub(crate) async fn show(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<SizingView>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    sizing(&context, &visitor, &id, &uri).await
}

/// Computes the count of numbers that a ring pool needs, like `/v1/pools/{id}/sizing`. The path
/// `/v1/ring_pools/{id}/sizing` follows the naming of other ring pool APIs.
#[utoipa::path(get, path = "/v1/ring_pools/{id}/sizing", params(("id" = u64, Path), Wanted),
    responses((status = 200, body = SizingView), (status = 404), (status = 503)))]
pub(crate) async fn show_ring_pool(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<SizingView>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    sizing(&context, &visitor, &id, &uri).await
}

/// Returns unused numbers of a ring pool to the inventory, as the server does at the end of each
/// month. The pool keeps at least as many numbers as its initial size.
#[utoipa::path(post, path = "/v1/pools/{id}/unused", params(("id" = u64, Path), Unused),
    responses((status = 200, body = GivenBack), (status = 404), (status = 409)))]
pub(crate) async fn give_back(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<GivenBack>, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let pool = pool(&context, &visitor, &id).await?.id;
    let Unused { since_ms, dry_run } = query(&uri)?;
    let unused = context.live.unused(pool, Millis(since_ms)).await.ok_or_else(|| {
        Problem::new(
            StatusCode::CONFLICT,
            format!(
                "some allocations of ring pool {pool} after since_ms may be lost, so it is unknown \
                 which numbers visitors held: specify a later time"
            ),
        )
    })?;
    let (who, now) = (&visitor.who, context.live.now());
    let given = context.store.give_back_unused(who, now, pool, &unused, dry_run);
    let (version, Resized { before, after, .. }) = given.await?;
    if !dry_run {
        context.live.changed(version);
    }
    Ok(Json(GivenBack { before, after, done: Done { version, dry_run } }))
}

async fn sizing(
    context: &Context,
    visitor: &Visitor,
    id: &str,
    uri: &Uri,
) -> Result<Json<SizingView>, Problem> {
    let id = pool(context, visitor, id).await?.id;
    let wanted: Wanted = query(uri)?;
    wanted.check()?;
    let Some(load) = context.live.load(id) else {
        return Err(not_here(context, id, NOT_COUNTED).await);
    };
    // The computation takes a long time, so it runs on another thread and does not delay other
    // requests.
    let worked_out = tokio::task::spawn_blocking(move || work_out(id, &load, &wanted));
    let failed = |what: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what);
    Ok(Json(worked_out.await.map_err(|error| failed(error.to_string()))??))
}

fn work_out(pool: PoolId, load: &PoolLoad, wanted: &Wanted) -> Result<SizingView, Problem> {
    let Wanted { target, numbers, together } = *wanted;
    let lifetime = Duration::from_millis(load.lifetime.0);
    let busiest = load.busiest.max(load.load);
    // Above ten million, the load makes no difference to the results.
    let demand = Demand::of_load(busiest.min(1e7), load.lockout)
        .and_then(|demand| demand.in_batches_of(together))
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    let callers = Callers::assumed();
    let sizes = if busiest < LOAD_MAX { demand.sizes(target, numbers, &callers) } else { None };
    let (numbers_needed, mut forecasts) = match sizes {
        Some(Sizes { numbers, forecasts }) => (Some(numbers), forecasts),
        None => (None, numbers.map(|size| demand.forecast(size, &callers)).into_iter().collect()),
    };
    let place = forecasts.binary_search_by_key(&load.numbers, |forecast| forecast.numbers);
    if let Err(place) = place {
        forecasts.insert(place, demand.forecast(load.numbers, &callers));
    }
    Ok(SizingView {
        pool: pool.0,
        numbers: load.numbers,
        lifetime_seconds: lifetime.as_secs_f64(),
        load: LoadView::of(load),
        target,
        numbers_needed,
        forecasts: forecasts.iter().map(ForecastView::of).collect(),
    })
}

const fn one_percent() -> f64 {
    0.01
}

const fn one() -> u32 {
    1
}

impl Wanted {
    fn check(&self) -> Result<(), Problem> {
        if !(self.target > 0.0 && self.target < 1.0) {
            return Err(Problem::bad_request("target must be greater than 0 and less than 1"));
        }
        if self.numbers.is_some_and(|numbers| !(1..=100_000).contains(&numbers)) {
            return Err(Problem::bad_request("the parameter \"numbers\" must be from 1 to 100000"));
        }
        if !(1..=10_000).contains(&self.together) {
            return Err(Problem::bad_request("the parameter \"together\" must be from 1 to 10000"));
        }
        Ok(())
    }
}

impl LoadView {
    pub(super) fn of(load: &PoolLoad) -> Self {
        let over_seconds = Duration::from_millis(load.over.0).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "counts of a lifetime are below 2^52")]
        let rows = load.asked as f64;
        Self {
            over_seconds,
            rows: load.asked,
            exhausted: load.exhausted,
            rows_per_second: rounded(rows / over_seconds),
            load: rounded(load.load),
            lockout_seconds: rounded(load.lockout.as_secs_f64()),
            busiest_hour: rounded(load.busiest),
        }
    }
}

impl ForecastView {
    fn of(forecast: &Forecast) -> Self {
        Self {
            numbers: forecast.numbers,
            overflow: rounded(forecast.overflow),
            locked: rounded(forecast.locked),
            reuse_seconds: forecast.reuse.map(|reuse| rounded(reuse.as_secs_f64())),
            misattributed: rounded(forecast.misattributed),
            misattributed_random: rounded(forecast.misattributed_random),
            not_attributed: rounded(forecast.lost()),
        }
    }
}

/// Rounds to six decimals. Further digits are noise and may differ between machines.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
