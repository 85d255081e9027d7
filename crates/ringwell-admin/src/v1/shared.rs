//! The parts that the handlers share: tokens, dry runs, and the formats of bodies and numbers.

use axum::Json;
use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri};
use ringwell_calls::parse_fault::described;
use ringwell_core::{NumberRange, PoolId};
use ringwell_store::{Change, Pool, Role};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::access::{Visitor, bearer};
use crate::context::Context;
use crate::numbering;
use crate::problem::Problem;

/// The maximum number of entries on one page, which is also the default.
pub(super) const PAGE_MAX: u32 = 1000;

/// The options that all changes share.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Trial {
    /// Whether to simulate the change and answer as if it had been applied.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// The requested part of a long list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// The id of the last entry of the previous page or, in the audit log, the version of that
    /// entry.
    pub(super) after: Option<u64>,
    /// The maximum number of entries: 1 to 1,000.
    pub(super) limit: Option<u32>,
}

/// The result of a change.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Done {
    /// The directory's version after the change or, in a dry run, the version that it would have.
    pub(super) version: u64,
    /// Whether the change was only simulated.
    pub(super) dry_run: bool,
}

impl Page {
    pub(super) fn limit(&self) -> u32 {
        self.limit.map_or(PAGE_MAX, |limit| limit.clamp(1, PAGE_MAX))
    }
}

/// Admits a client whose bearer token has at least `role`.
pub(super) async fn enter(
    context: &Context,
    headers: &HeaderMap,
    role: Role,
) -> Result<Visitor, Problem> {
    let token = bearer(headers).and_then(|token| str::from_utf8(token).ok());
    Ok(context.door.enter(token, role, None).await?)
}

/// Admits a client whose bearer token has at least `role` and is valid in all networks. Used for
/// data that all networks share, such as the inventory, the tokens and the nodes.
pub(super) async fn enter_all(
    context: &Context,
    headers: &HeaderMap,
    role: Role,
) -> Result<Visitor, Problem> {
    let token = bearer(headers).and_then(|token| str::from_utf8(token).ok());
    Ok(context.door.enter_all(token, role).await?)
}

/// Begins a change that adds `ranges`. Fails if any number that is new to the directory is not
/// valid.
pub(super) async fn change_with(
    context: &Context,
    visitor: &Visitor,
    ranges: &[NumberRange],
) -> Result<Change, Problem> {
    let mut change = context.change(visitor).await?;
    match numbering::refused(&mut change, context.store.inventory(), ranges).await? {
        None => Ok(change),
        Some(detail) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)),
    }
}

/// The pool whose id is `id`, if `visitor` may see it.
pub(super) async fn pool(context: &Context, visitor: &Visitor, id: &str) -> Result<Pool, Problem> {
    let Ok(id) = id.parse::<u64>() else {
        return Err(Problem::not_found("the id of a ring pool must be a whole number"));
    };
    let pool = context.store.pool(PoolId(id)).await?;
    let pool = pool.filter(|pool| visitor.may_in(&pool.settings.scope.network));
    pool.ok_or_else(|| Problem::not_found(format!("there is no ring pool {id}")))
}

/// The answer if this node has no data about a pool: names the node that has it, or gives `reason`.
pub(super) async fn not_here(context: &Context, pool: PoolId, reason: &str) -> Problem {
    let detail = match context.live.other_owner(pool).await {
        Some(node) => format!(
            "node \"{node}\" serves ring pool {pool}, and only that node has these figures: send \
             the request to its management address (with `ringwell pools`, set --url)"
        ),
        None => reason.to_owned(),
    };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}

/// Commits the change, unless it is a dry run.
pub(super) async fn finish(
    context: &Context,
    mut change: Change,
    trial: &Trial,
) -> Result<Done, Problem> {
    let dry_run = trial.dry_run;
    if dry_run {
        change.check().await?;
        return Ok(Done { version: change.version(), dry_run });
    }
    let version = change.commit().await?;
    context.live.changed(version);
    Ok(Done { version, dry_run })
}

pub(super) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let read = Json::from_bytes(bytes).map(|Json(read)| read);
    read.map_err(|error| Problem::bad_request(format!("body: {}", described(&error.body_text()))))
}

pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let query = Query::try_from_uri(uri);
    let read = query.map(|Query(query)| query);
    read.map_err(|error| Problem::bad_request(described(&error.body_text())))
}

/// Parses a number or range, such as `8885550100` or `8885550100-8885550149`.
pub(super) fn range(text: &str) -> Result<NumberRange, Problem> {
    NumberRange::parse(text).ok().flatten().ok_or_else(|| {
        Problem::bad_request(
            "numbers must have ten digits, the first from 2 to 9, or a + and a country code, e.g. \
                8885550100-8885550149 or +493012345600-+493012345649",
        )
    })
}

pub(super) fn ranges(texts: &[String]) -> Result<Vec<NumberRange>, Problem> {
    texts.iter().map(|text| range(text)).collect()
}
