//! Numbers and the inventory. With a token that is limited to one network, a client can list and
//! move the numbers in this network's pools and those that only this network may use. Adding
//! numbers requires a token that is valid in all networks.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use ringwell_core::{Millis, PromoNumber};
use ringwell_store::{Goal, Leave, Numbers, Role};
use serde::{Deserialize, Deserializer, Serialize};

use super::shared::{
    Done, Page, Trial, body, change_with, enter, enter_all, finish, query, ranges,
};
use crate::context::Context;
use crate::numbering::{self, Written};
use crate::problem::Problem;

/// Consecutive numbers with the same state.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NumberRun {
    first: String,
    last: String,
    count: u32,
    /// `available`, `overflow`, `waiting`, `free`, `quarantined` or `retired`.
    state: &'static str,
    /// The pool that contains the numbers, or that they wait for.
    pool: Option<u64>,
    /// The next state of waiting numbers: `available` or `overflow`.
    goal: Option<&'static str>,
    network: Option<String>,
    /// The time after which no visitor can hold the numbers, in milliseconds since 1970. Null until
    /// all nodes have confirmed that the numbers are out of rotation.
    ready_ms: Option<u64>,
}

/// A number and its state.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NumberView {
    #[serde(flatten)]
    run: NumberRun,
    /// The number in international form, such as `+18885550142`.
    e164: String,
    /// The number in national form, such as `(888) 555-0142`.
    national: String,
    /// The two-letter code of the number's country. Null if libphonenumber does not assign a
    /// country to it.
    country: Option<String>,
}

/// New numbers for the inventory.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewNumbers {
    ranges: Vec<String>,
    /// The only network that may use the numbers. If absent, all networks may use them.
    network: Option<String>,
}

/// The numbers to move, and their new state.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Move {
    ranges: Vec<String>,
    to: Target,
    /// If `to` is `inventory`, the only network that may use the numbers from now on, or null for
    /// all networks. If absent, the networks that may use the numbers stay the same. A token that
    /// is limited to one network can name only this network.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    network: Users,
    /// If `to` is `pool`, the pause before the numbers return to the pool. 0 means no pause.
    #[serde(default)]
    cooldown_seconds: u64,
}

/// The destination of a move.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// To the inventory, from which any pool can draw.
    Inventory,
    /// To quarantine, until a person releases them.
    Quarantine,
    /// To retirement: the numbers are no longer used.
    Retired,
    /// From quarantine back to their pool.
    Pool,
}

/// The networks that may use numbers.
#[derive(Debug, Default, PartialEq, Eq)]
enum Users {
    #[default]
    AsBefore,
    All,
    Only(String),
}

impl<'de> Deserialize<'de> for Users {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::deserialize(from).map(|network| network.map_or(Self::All, Self::Only))
    }
}

/// The result of a change, with the count of numbers that it affects.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Counted {
    numbers: u64,
    #[serde(flatten)]
    done: Done,
}

/// The requested part of the list of numbers.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct NumberPage {
    /// The last number of the previous page. Only greater numbers are listed.
    after: Option<String>,
    /// The maximum number of entries: 1 to 1,000.
    limit: Option<u32>,
}

/// Lists numbers, ordered by their digits including the country code. Consecutive numbers with the
/// same state form one entry. With a token that is limited to one network, lists the numbers in
/// this network's pools and those that only this network may use.
#[utoipa::path(get, path = "/v1/numbers", params(NumberPage),
    responses((status = 200, body = [NumberRun])))]
pub(crate) async fn list(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Vec<NumberRun>>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let NumberPage { after, limit } = query(&uri)?;
    // An unencoded `+` arrives as a space.
    let after = after.map(|text| PromoNumber::parse(&text.replacen(' ', "+", 1))).transpose();
    let after = after.map_err(|error| Problem::bad_request(format!("after: {error}")))?;
    let limit = Page { after: None, limit }.limit();
    let numbers = context.store.numbers(after, limit, visitor.network()).await?;
    Ok(Json(numbers.iter().map(NumberRun::of).collect()))
}

/// Returns the state of one number.
#[utoipa::path(get, path = "/v1/numbers/{number}", params(("number" = String, Path)),
    responses((status = 200, body = NumberView), (status = 404)))]
pub(crate) async fn show(
    State(context): State<Context>,
    Path(number): Path<String>,
    headers: HeaderMap,
) -> Result<Json<NumberView>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let number = PromoNumber::parse(&number);
    let number = number.map_err(|error| Problem::bad_request(error.to_string()))?;
    let unknown = || Problem::not_found("there is no such number");
    let found = context.store.number(number).await?.ok_or_else(unknown)?;
    let is_for_network = found.network.as_deref().is_some_and(|network| visitor.may_in(network));
    if visitor.network().is_some() && !is_for_network {
        let pool = match found.pool {
            Some(pool) => context.store.pool(pool).await?,
            None => None,
        };
        pool.filter(|pool| visitor.may_in(&pool.settings.scope.network)).ok_or_else(unknown)?;
    }
    let Written { e164, national, country } = numbering::written(number);
    Ok(Json(NumberView { run: NumberRun::of(&found), e164, national, country }))
}

/// Adds numbers to the inventory.
#[utoipa::path(post, path = "/v1/numbers", params(Trial), request_body = NewNumbers,
    responses((status = 200, body = Counted), (status = 403), (status = 422)))]
pub(crate) async fn add(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<Counted>, Problem> {
    let visitor = enter_all(&context, &headers, Role::Write).await?;
    let NewNumbers { ranges: texts, network } = body(&bytes)?;
    let (ranges, trial) = (ranges(&texts)?, query(&uri)?);
    network.as_deref().map_or(Ok(()), check_name)?;
    let mut change = change_with(&context, &visitor, &ranges).await?;
    let numbers = change.add_to_inventory(&ranges, network.as_deref()).await?;
    let done = finish(&context, change, &trial).await?;
    if !trial.dry_run {
        // Some pools may have received too few numbers when they were created. Fills these pools
        // now, without waiting for the next check.
        let (version, _) = context.store.fill_short(context.live.now(), false).await?;
        context.live.changed(version);
    }
    Ok(Json(Counted { numbers, done }))
}

/// Takes numbers out of rotation, or ends their quarantine. A token that is limited to one network
/// can move only the numbers that `GET /v1/numbers` lists for it, and cannot let other networks use
/// them.
#[utoipa::path(post, path = "/v1/numbers/moves", params(Trial), request_body = Move,
    responses((status = 200, body = Counted), (status = 403), (status = 404), (status = 409)))]
pub(crate) async fn move_to(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<Counted>, Problem> {
    let mut visitor = enter(&context, &headers, Role::Write).await?;
    let Move { ranges: texts, to, network, cooldown_seconds } = body(&bytes)?;
    let (ranges, trial) = (ranges(&texts)?, query(&uri)?);
    if network != Users::AsBefore {
        let is_own =
            matches!((&network, visitor.network()), (Users::Only(of), Some(own)) if of == own);
        if !is_own {
            visitor = enter_all(&context, &headers, Role::Write).await?;
        }
        if let Users::Only(network) = &network {
            check_name(network)?;
        }
        if !matches!(to, Target::Inventory) {
            return Err(Problem::bad_request(
                "network: only numbers that move to the inventory can \
                be reserved for a network",
            ));
        }
    }
    let mut change = context.change(&visitor).await?;
    let leave = match to {
        Target::Inventory => Some(Leave::Inventory),
        Target::Quarantine => Some(Leave::Quarantine),
        Target::Retired => Some(Leave::Retire),
        Target::Pool => None,
    };
    let numbers = if let Some(leave) = leave {
        change.take_out(&ranges, leave).await?
    } else {
        let cooldown = Millis(cooldown_seconds.saturating_mul(1000));
        let placed = change.end_quarantine(&ranges, cooldown).await?;
        placed.entered + placed.waiting
    };
    match network {
        Users::AsBefore => {}
        Users::All => drop(change.reserve_for(&ranges, None).await?),
        Users::Only(network) => drop(change.reserve_for(&ranges, Some(&network)).await?),
    }
    let done = finish(&context, change, &trial).await?;
    Ok(Json(Counted { numbers, done }))
}

/// Checks the name of a network. No pool is in a network without a name, so no one could use the
/// numbers.
fn check_name(network: &str) -> Result<(), Problem> {
    if network.is_empty() {
        return Err(Problem::bad_request("network: must not be empty; for all networks, use null"));
    }
    Ok(())
}

impl NumberRun {
    pub(super) fn of(numbers: &Numbers) -> Self {
        Self {
            first: numbers.range.first().to_string(),
            last: numbers.range.last().to_string(),
            count: numbers.range.count(),
            state: numbers.state.as_str(),
            pool: numbers.pool.map(|pool| pool.0),
            goal: numbers.goal.map(Goal::as_str),
            network: numbers.network.clone(),
            ready_ms: numbers.ready.map(|ready| ready.0),
        }
    }
}
