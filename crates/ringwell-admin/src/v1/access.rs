//! Tokens and the audit log. All requests require a token that has the role `admin` and is valid in
//! all networks.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use ringwell_store::{AuditLine, Grant, Role, StoreError};
use serde::{Deserialize, Serialize};

use super::shared::{Page, body, enter_all, query};
use crate::access::Visitor;
use crate::context::Context;
use crate::problem::Problem;

/// A token without its secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct TokenView {
    id: String,
    name: String,
    /// `lookup`, `read`, `write` or `admin`.
    role: &'static str,
    /// The only network in which the token is valid. Null if the token is valid in all networks.
    network: Option<String>,
}

/// A token to create.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    name: String,
    role: String,
    network: Option<String>,
}

/// A token that was created.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct MadeToken {
    /// The token's secret, which is shown only once.
    token: String,
    #[serde(flatten)]
    view: TokenView,
    /// Present if the token's network has neither a ring pool nor a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// A line of the audit log.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct AuditView {
    version: u64,
    /// The line's position among the lines of this version, counted from 0.
    line: u64,
    at_ms: u64,
    who: String,
    action: String,
    object: String,
    #[schema(value_type = Option<serde_json::Value>)]
    before: Option<serde_json::Value>,
    #[schema(value_type = Option<serde_json::Value>)]
    after: Option<serde_json::Value>,
}

/// The error text for a `lookup` token that is limited to one network. Such a token is not created,
/// because every request with it would be refused.
const LOOKUP_OF_ONE_NETWORK: &str = "a token with the role lookup can read only attributions \
    and calls, and cannot be limited to one network: omit the network, or choose the role read, \
    which permits reading the network's pools";

/// Lists tokens.
#[utoipa::path(get, path = "/v1/tokens", responses((status = 200, body = [TokenView])))]
pub(crate) async fn tokens(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<Json<Vec<TokenView>>, Problem> {
    administrator(&context, &headers).await?;
    let tokens = context.store.tokens().await?;
    Ok(Json(tokens.into_iter().map(TokenView::of).collect()))
}

/// Creates a token.
#[utoipa::path(post, path = "/v1/tokens", request_body = NewToken,
    responses((status = 201, body = MadeToken), (status = 422)))]
pub(crate) async fn create(
    State(context): State<Context>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<(StatusCode, Json<MadeToken>), Problem> {
    let visitor = administrator(&context, &headers).await?;
    let NewToken { name, role, network } = body(&bytes)?;
    let role = Role::parse(&role)
        .ok_or_else(|| Problem::bad_request("role must be lookup, read, write or admin"))?;
    if role == Role::Lookup && network.is_some() {
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, LOOKUP_OF_ONE_NETWORK));
    }
    let warning = match &network {
        Some(network) if context.store.network(network).await?.is_none() => Some(format!(
            "no ring pool and no limit belongs to the network {network} yet: check its spelling"
        )),
        _ => None,
    };
    let mut random = [0; 40];
    getrandom::fill(&mut random).map_err(|error| StoreError::Damaged(error.to_string()))?;
    let mut change = context.change(&visitor).await?;
    let (grant, token) = change.create_token(&name, role, network.as_deref(), random).await?;
    change.commit().await?;
    let made = MadeToken { token: token.reveal().to_owned(), view: TokenView::of(grant), warning };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Revokes a token.
#[utoipa::path(delete, path = "/v1/tokens/{id}", params(("id" = String, Path)),
    responses((status = 204), (status = 404)))]
pub(crate) async fn revoke(
    State(context): State<Context>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let visitor = administrator(&context, &headers).await?;
    let mut change = context.change(&visitor).await?;
    if !change.revoke_token(&id).await? {
        return Err(Problem::not_found("there is no such token"));
    }
    change.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The requested part of the audit log.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditPage {
    /// The `version` of the last line of the previous page.
    after: Option<u64>,
    /// The `line` of the last line of the previous page. Without it, the page begins with the
    /// version before `after`.
    line: Option<u64>,
    /// The maximum number of lines: 1 to 1,000.
    limit: Option<u32>,
}

/// Lists the audit log, newest line first.
#[utoipa::path(get, path = "/v1/audit", params(AuditPage),
    responses((status = 200, body = [AuditView])))]
pub(crate) async fn audit(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Vec<AuditView>>, Problem> {
    administrator(&context, &headers).await?;
    let AuditPage { after, line, limit } = query(&uri)?;
    let before = after.map(|version| (version, line));
    let page = Page { after, limit };
    let lines = context.store.audit_log(before, page.limit()).await?;
    Ok(Json(lines.into_iter().map(AuditView::of).collect()))
}

async fn administrator(context: &Context, headers: &HeaderMap) -> Result<Visitor, Problem> {
    enter_all(context, headers, Role::Admin).await
}

impl TokenView {
    fn of(grant: Grant) -> Self {
        let Grant { id, name, role, network } = grant;
        Self { id, name, role: role.as_str(), network }
    }
}

impl AuditView {
    fn of(line: AuditLine) -> Self {
        let AuditLine { version, place, at, who, action, object, before, after } = line;
        Self { version, line: place, at_ms: at.0, who, action, object, before, after }
    }
}
