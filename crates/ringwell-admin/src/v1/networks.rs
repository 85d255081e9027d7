//! Networks and their limits on numbers, and the nodes that serve the directory. Setting a
//! limit and forgetting a node require a token that has the role `admin` and is valid in all
//! networks.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use ringwell_store::{Network, NodeRecord, Role};
use serde::{Deserialize, Serialize};

use super::shared::{Done, PAGE_MAX, Trial, body, enter, enter_all, finish, query};
use crate::context::Context;
use crate::problem::Problem;

/// A network and its numbers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NetworkView {
    id: String,
    /// The count of numbers in its pools, including waiting and quarantined numbers.
    numbers: u64,
    /// The maximum count of numbers in all its pools together. Null means no limit.
    numbers_max: Option<u64>,
    /// Whether `numbers_max` was set for this network. Otherwise it is the default.
    is_own: bool,
}

/// The requested part of the list of networks.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct NetworkPage {
    /// The last network of the previous page.
    #[serde(default)]
    after: String,
    /// The maximum number of entries: 1 to 1,000.
    limit: Option<u32>,
}

/// A new limit on a network's numbers.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetLimit {
    /// The maximum count of numbers. Null restores the configuration's default.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required)]
    numbers_max: Option<u64>,
}

/// Lists networks, ordered by id.
#[utoipa::path(get, path = "/v1/networks", params(NetworkPage),
    responses((status = 200, body = [NetworkView])))]
pub(crate) async fn list(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Vec<NetworkView>>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let NetworkPage { after, limit } = query(&uri)?;
    let networks = match visitor.network() {
        None => {
            context.store.networks(&after, limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX)).await?
        }
        Some(own) if own > after.as_str() => {
            context.store.network(own).await?.into_iter().collect()
        }
        Some(_) => Vec::new(),
    };
    Ok(Json(networks.into_iter().map(NetworkView::of).collect()))
}

/// Shows a network.
#[utoipa::path(get, path = "/v1/networks/{network}", params(("network" = String, Path)),
    responses((status = 200, body = NetworkView), (status = 404)))]
pub(crate) async fn show(
    State(context): State<Context>,
    Path(network): Path<String>,
    headers: HeaderMap,
) -> Result<Json<NetworkView>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let found =
        if visitor.may_in(&network) { context.store.network(&network).await? } else { None };
    let found = found.ok_or_else(|| Problem::not_found("there is no such network"))?;
    Ok(Json(NetworkView::of(found)))
}

/// Sets or removes a network's limit. If the network's pools already contain more numbers than the
/// new limit allows, no numbers are removed.
#[utoipa::path(put, path = "/v1/networks/{network}", params(("network" = String, Path), Trial),
    request_body = SetLimit, responses((status = 200, body = Done), (status = 403)))]
pub(crate) async fn set(
    State(context): State<Context>,
    Path(network): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<Done>, Problem> {
    let visitor = enter_all(&context, &headers, Role::Admin).await?;
    let SetLimit { numbers_max } = body(&bytes)?;
    let trial = query(&uri)?;
    let mut change = context.change(&visitor).await?;
    change.set_ceiling(&network, numbers_max).await?;
    Ok(Json(finish(&context, change, &trial).await?))
}

impl NetworkView {
    fn of(network: Network) -> Self {
        let Network { id, numbers, ceiling, is_own } = network;
        Self { id, numbers, numbers_max: ceiling, is_own }
    }
}

/// A node that serves the directory.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NodeView {
    /// The node's name in the cluster file, or `the only node` for a server without a cluster.
    name: String,
    /// The newest version of the directory that the node serves.
    version: u64,
    /// The time at which the node began to serve this version, in milliseconds since 1970.
    since_ms: u64,
}

/// Lists the nodes that serve the directory, ordered by name. Numbers that are removed from a pool
/// wait until each of these nodes has confirmed the removal.
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, body = [NodeView])))]
pub(crate) async fn nodes(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<Json<Vec<NodeView>>, Problem> {
    enter_all(&context, &headers, Role::Read).await?;
    Ok(Json(context.store.nodes().await?.into_iter().map(NodeView::of).collect()))
}

/// Forgets a permanently removed node, so that numbers no longer wait for it.
#[utoipa::path(delete, path = "/v1/nodes/{name}", params(("name" = String, Path)),
    responses((status = 204), (status = 404)))]
pub(crate) async fn forget_node(
    State(context): State<Context>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let visitor = enter_all(&context, &headers, Role::Admin).await?;
    if !context.store.forget_node(&name, &visitor.who, context.live.now()).await? {
        return Err(Problem::not_found("there is no such node"));
    }
    Ok(StatusCode::NO_CONTENT)
}

impl NodeView {
    fn of(NodeRecord { name, version, at }: NodeRecord) -> Self {
        Self { name, version, since_ms: at.0 }
    }
}
