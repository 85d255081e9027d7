//! The size of a ring pool according to its own load, and the return of surplus numbers.
//!
//! The mathematics are those of `ringwell plan`. Source: docs/sizing.md.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use ringwell_core::{Millis, PoolId};
use ringwell_plan::{Callers, Demand, Forecast, Sizes};
use ringwell_store::{Resized, Role};
use serde::{Deserialize, Serialize};

use super::{Done, enter, pool, query};
use crate::problem::Problem;
use crate::running_server::PoolLoad;
use crate::{Context, access::Visitor};

/// The largest load for which sizes are calculated: twice the capacity of the largest pool. Above
/// it, no size helps, and the answer would take a long time.
const LOAD_MAX: f64 = 200_000.0;

/// The target overflow, and further options.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// The share of rows that may overflow, above 0 and below 1 (default: 0.01).
    #[serde(default = "one_percent")]
    #[param(exclusive_minimum = 0, exclusive_maximum = 1)]
    target: f64,
    /// Another size to evaluate, 1 to 100,000.
    #[param(minimum = 1, maximum = 100_000)]
    numbers: Option<u32>,
    /// Rows of one batch that request numbers of the pool together, 1 to 10,000 (default: 1).
    #[serde(default = "one")]
    #[param(minimum = 1, maximum = 10_000)]
    together: u32,
}

/// The condition under which numbers count as unused.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Unused {
    /// The time since which a number has not been held, in milliseconds since 1970.
    since_ms: u64,
    /// Whether to simulate the change and answer as if it were done.
    #[serde(default)]
    dry_run: bool,
}

/// The recent demand for a pool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LoadView {
    /// The period of the counts: about a lifetime, or the time since the server started.
    over_seconds: f64,
    /// Rows in that time, including overflow rows.
    rows: u64,
    /// The count of those rows that found every number locked.
    exhausted: u64,
    rows_per_second: f64,
    /// Rows in one lifetime at that rate: the count of numbers that would be locked on average.
    load: f64,
    /// The highest mean load of a clock hour in the last day.
    busiest_hour: f64,
}

/// The count of numbers that a pool needs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SizingView {
    pool: u64,
    /// Numbers in rotation now. The overflow number is not counted, here and below.
    numbers: u32,
    lifetime_seconds: f64,
    load: LoadView,
    /// The share of rows that may overflow.
    target: f64,
    /// The smallest count of numbers that meets the target in the busiest hour; null if no pool is
    /// large enough.
    numbers_needed: Option<u32>,
    /// Forecasts of the busiest hour for several sizes, including the present one.
    forecasts: Vec<ForecastView>,
}

/// The result for a pool of this size. Shares are from 0 to 1.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ForecastView {
    numbers: u32,
    /// Share of rows that overflow.
    overflow: f64,
    /// Numbers locked on average.
    locked: f64,
    /// The time from one allocation of a number to its next; null if it is never needed again.
    reuse_seconds: Option<f64>,
    /// Share of callers who call after their number was given to another visitor.
    misattributed: f64,
    /// The same share, if any free number could be handed out next.
    misattributed_random: f64,
    /// The share of overflow and wrongly attributed callers together.
    not_attributed: f64,
}

/// The result of returning a pool's numbers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct GivenBack {
    /// Numbers that the pool had, including the overflow number.
    before: u64,
    /// Numbers that the pool has now.
    after: u64,
    #[serde(flatten)]
    done: Done,
}

/// Returns how many numbers a ring pool needs for its own load.
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

/// Returns the same as the sizing of a pool, at the path that other ring pool APIs use.
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

/// Returns unused numbers of a ring pool to the inventory, as at the end of a month. The pool keeps
/// its initial numbers.
#[utoipa::path(post, path = "/v1/pools/{id}/unused", params(("id" = u64, Path), Unused),
    responses((status = 200, body = GivenBack), (status = 404)))]
pub(crate) async fn give_back(
    State(context): State<Context>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<GivenBack>, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let pool = pool(&context, &visitor, &id).await?.id;
    let Unused { since_ms, dry_run } = query(&uri)?;
    let unused = context.live.unused(pool, Millis(since_ms)).await;
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
    let load = context.live.load(id).ok_or_else(not_counted)?;
    // Formulas of many steps run on another thread, so that other requests need not wait.
    let worked_out = tokio::task::spawn_blocking(move || work_out(id, &load, &wanted));
    let failed = |what: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what);
    Ok(Json(worked_out.await.map_err(|error| failed(error.to_string()))??))
}

fn work_out(pool: PoolId, load: &PoolLoad, wanted: &Wanted) -> Result<SizingView, Problem> {
    let Wanted { target, numbers, together } = *wanted;
    let lifetime = Duration::from_millis(load.lifetime.0);
    let busiest = load.busiest.max(load.load);
    // Above ten million, differences no longer matter.
    let demand = Demand::of_load(busiest.min(1e7), lifetime)
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
            return Err(Problem::bad_request("target must be a share above 0 and below 1"));
        }
        if self.numbers.is_some_and(|numbers| !(1..=100_000).contains(&numbers)) {
            return Err(Problem::bad_request("numbers must be 1 to 100000"));
        }
        if !(1..=10_000).contains(&self.together) {
            return Err(Problem::bad_request("together must be 1 to 10000"));
        }
        Ok(())
    }
}

impl LoadView {
    pub(super) fn of(load: &PoolLoad) -> Self {
        let lifetime = Duration::from_millis(load.lifetime.0).as_secs_f64();
        Self {
            over_seconds: Duration::from_millis(load.over.0).as_secs_f64(),
            rows: load.asked,
            exhausted: load.exhausted,
            rows_per_second: rounded(load.load / lifetime),
            load: rounded(load.load),
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

/// Rounds to six decimals. Further digits are noise, and differ between machines.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The answer if the pool is new to this node, or another node serves it.
fn not_counted() -> Problem {
    let detail = "this node has no counts of the pool's requests yet: counts are taken every few \
        minutes. Try again later, or ask the node that serves the pool";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}
