//! The published API for ring pools.
//!
//! Owns the API's paths, upserts and status codes, and the three places where a token is accepted.
//! An advertiser or campaign in a path is created with its first pool, because the API has no other
//! way to create it. Source: docs/spec/management.md, "The published API".

mod fault;
mod fields;
mod members;
mod nested;
mod show;
mod values;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use ringwell_config::credentials;
use ringwell_core::PoolId;
use ringwell_directory::RingPoolKey;
use ringwell_store::{Change, Pool, Role, Scope, StoreError, first_size};
use serde_json::{Map, Value, json};

use crate::access::{Visitor, in_query};
use crate::context::Context;
use fault::Fault;
use fields::Draft;

const KEY_BYTES: usize = 16;

/// The routes, with and without a pool's id.
pub(crate) fn routes() -> Router<Context> {
    let base = "/api/{date}/{network}/advertisers/{advertiser}/advertiser_campaigns/{campaign}";
    Router::new()
        .route(&format!("{base}/ring_pools"), any(collection))
        .route(&format!("{base}/ring_pools.json"), any(collection))
        .route(&format!("{base}/ring_pools/{{id}}"), any(object))
}

type Base = (String, String, String, String);

/// The inputs that all requests have in common.
struct Asked {
    scope: Scope,
    visitor: Visitor,
    body: Map<String, Value>,
    /// The URL of the pool collection, used to build `object_url`.
    url: String,
}

async fn collection(
    State(context): State<Context>,
    Path((date, network, advertiser, campaign)): Path<Base>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    let scope = Scope { network, advertiser, campaign };
    let asked = ask(&context, &date, scope, (&method, &uri, &headers, &body)).await?;
    match method {
        Method::GET => list(&context, &asked).await,
        Method::POST | Method::PUT => {
            let id = match asked.body.get("id_from_network") {
                Some(Value::String(id)) if !id.is_empty() => Some(id.clone()),
                Some(Value::Number(id)) => Some(id.to_string()),
                _ => None,
            };
            put(&context, &asked, id, &method).await
        }
        _ => Ok(StatusCode::METHOD_NOT_ALLOWED.into_response()),
    }
}

async fn object(
    State(context): State<Context>,
    Path((date, network, advertiser, campaign, id)): Path<(String, String, String, String, String)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    let scope = Scope { network, advertiser, campaign };
    let asked = ask(&context, &date, scope, (&method, &uri, &headers, &body)).await?;
    let id = id.strip_suffix(".json").unwrap_or(&id).to_owned();
    match method {
        Method::GET => {
            let pool = context.store.pool_of_network(&asked.scope.network, &id).await?;
            let pool = pool.filter(|pool| pool.settings.scope == asked.scope);
            let pool = pool.ok_or_else(|| Fault::NotFound { id, scope: asked.scope.clone() })?;
            show(&context, &asked, &pool, StatusCode::OK).await
        }
        Method::POST | Method::PUT => put(&context, &asked, Some(id), &method).await,
        Method::DELETE => remove(&context, &asked, &id).await,
        _ => Ok(StatusCode::METHOD_NOT_ALLOWED.into_response()),
    }
}

/// Reads the common inputs of a request, and runs the checks that apply to all requests.
async fn ask(
    context: &Context,
    date: &str,
    scope: Scope,
    (method, uri, headers, body): (&Method, &Uri, &HeaderMap, &Bytes),
) -> Result<Asked, Fault> {
    if !is_date(date) {
        return Err(Fault::Unreadable("bad API version for route"));
    }
    let body: Map<String, Value> = match body.trim_ascii() {
        b"" => Map::new(),
        text => serde_json::from_slice(text)
            .map_err(|_| Fault::Unreadable("the body is not a JSON object"))?,
    };
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let header = header.map(|value| credentials(value, "Bearer").unwrap_or(value).to_owned());
    let sent = body.get("oauth_token").and_then(Value::as_str).map(str::to_owned);
    let token = header.or_else(|| in_query(uri)).or(sent);
    let role = if *method == Method::GET { Role::Read } else { Role::Write };
    let visitor = context.door.enter(token.as_deref(), role, Some(&scope.network)).await?;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let path = uri.path();
    let base = path.split_once("/ring_pools").map_or(path, |(base, _)| base);
    let url = format!("http://{}{base}/ring_pools", host.unwrap_or("localhost"));
    Ok(Asked { scope, visitor, body, url })
}

/// Whether `text` is a date such as `2013-07-01`.
fn is_date(text: &str) -> bool {
    let digits =
        |part: &str, count| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
    let mut parts = text.split('-');
    let fits = [4, 2, 2].into_iter().all(|count| parts.next().is_some_and(|it| digits(it, count)));
    fits && parts.next().is_none()
}

async fn list(context: &Context, asked: &Asked) -> Result<Response, Fault> {
    let mut shown = Vec::new();
    for pool in context.store.pools_of(&asked.scope).await? {
        shown
            .push(show::pool(&context.store, &pool, &url(asked, &pool), asked.visitor.role).await?);
    }
    Ok(axum::Json(shown).into_response())
}

async fn put(
    context: &Context,
    asked: &Asked,
    id: Option<String>,
    method: &Method,
) -> Result<Response, Fault> {
    let mut change = context.change(&asked.visitor).await?;
    let before = match &id {
        Some(id) => change.pool_of_network(&asked.scope.network, id).await?,
        None => None,
    };
    if let Some(other) = before.as_ref().filter(|pool| pool.settings.scope != asked.scope) {
        let id = other.settings.id_from_network.clone();
        return Err(Fault::NotFound { id, scope: asked.scope.clone() });
    }
    // If the request has no id, the pool gets one that no pool has had before.
    let id = match id {
        Some(id) => id,
        None => change.next_id().await?.to_string(),
    };
    let settings = before.as_ref().map(|pool| &pool.settings);
    let check = context.store.inventory().check_numbers;
    let draft = fields::read(&asked.body, settings, (&asked.scope, &id), check)?;
    let pool = write(&mut change, before.as_ref(), draft).await?;
    let pool = change.pool(pool).await?;
    context.live.changed(change.commit().await?);
    let is_new = before.is_none() && *method == Method::POST;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    show(context, asked, &pool, status).await
}

/// Changes the pool `before`, or creates a pool if there is none. Then adds or removes numbers as
/// the settings require.
async fn write(
    change: &mut Change,
    before: Option<&Pool>,
    Draft { settings, tag }: Draft,
) -> Result<PoolId, Fault> {
    let size = u64::from(settings.max_pool_size);
    let (first, fills) = (first_size(&settings), settings.fill_immediately);
    let destination = settings.destination.clone().zip(tag);
    let network = settings.scope.network.clone();
    let id = if let Some(before) = before {
        change.update_pool(before.id, settings).await?;
        change.shrink(before.id, size).await?;
        if fills {
            fill(change, before.id, &network, size).await?;
        } else {
            // When the pool was created, too few numbers may have been available. Adds the missing
            // numbers, as far as they are available now.
            change.fill(before.id, first).await?;
        }
        before.id
    } else {
        let id = change.create_pool(settings, None, new_key()?).await?;
        fill(change, id, &network, first).await?;
        id
    };
    if let Some((number, tag)) = destination {
        change.put_destination(&network, &number, &tag).await?;
    }
    Ok(id)
}

/// Adds numbers to the pool until it has `size` numbers or no more are available. Fails if
/// `network` would exceed its ceiling.
async fn fill(change: &mut Change, id: PoolId, network: &str, size: u64) -> Result<(), Fault> {
    let missing = size.saturating_sub(change.size(id).await?.total());
    if change.room(network).await?.is_some_and(|room| missing > room) {
        return Err(Fault::field("max_pool_size", fault::LIMIT_REACHED));
    }
    change.fill(id, size).await?;
    Ok(())
}

/// Creates a key of 128 random bits, written in hexadecimal.
pub(crate) fn new_key() -> Result<RingPoolKey, StoreError> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Damaged(error.to_string()))?;
    let text = format!("{:032X}", u128::from_ne_bytes(bytes));
    RingPoolKey::parse(&text).map_err(|error| StoreError::Damaged(error.to_string()))
}

async fn remove(context: &Context, asked: &Asked, id: &str) -> Result<Response, Fault> {
    let mut change = context.change(&asked.visitor).await?;
    let pool = change.pool_of_network(&asked.scope.network, id).await?;
    if let Some(pool) = pool.filter(|pool| pool.settings.scope == asked.scope) {
        change.remove_pool(pool.id).await?;
        context.live.changed(change.commit().await?);
    }
    Ok(axum::Json(json!({})).into_response())
}

async fn show(
    context: &Context,
    asked: &Asked,
    pool: &Pool,
    status: StatusCode,
) -> Result<Response, Fault> {
    let shown = show::pool(&context.store, pool, &url(asked, pool), asked.visitor.role).await?;
    Ok((status, axum::Json(shown)).into_response())
}

fn url(asked: &Asked, pool: &Pool) -> String {
    format!("{}/{}.json", asked.url, pool.settings.id_from_network)
}
