//! The nodes that serve the directory. Only administrators of all networks see and forget them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use ringwell_store::{NodeRecord, Role};
use serde::Serialize;

use super::enter_all;
use crate::Context;
use crate::problem::Problem;

/// A node that serves the directory.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NodeView {
    /// The node's name in the cluster file, or `the only node` for a server without a cluster.
    name: String,
    /// The newest version of the directory that the node serves.
    version: u64,
    /// The time since which it serves this version, in milliseconds since 1970.
    since_ms: u64,
}

/// Lists the nodes that serve the directory, by name. Numbers that leave a pool wait until each of
/// them has confirmed this change.
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, body = [NodeView])))]
pub(crate) async fn list(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<Json<Vec<NodeView>>, Problem> {
    enter_all(&context, &headers, Role::Read).await?;
    Ok(Json(context.store.nodes().await?.into_iter().map(NodeView::of).collect()))
}

/// Forgets a node that is gone for good, so that numbers no longer wait for it.
#[utoipa::path(delete, path = "/v1/nodes/{name}", params(("name" = String, Path)),
    responses((status = 204), (status = 404)))]
pub(crate) async fn forget(
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
