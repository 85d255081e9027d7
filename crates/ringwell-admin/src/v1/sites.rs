//! Web sites whose pages show each visitor a promo number.
//!
//! A token that is limited to one network permits reading and changing a site only if all of the
//! site's pools are in that network. A removed pool still counts as part of its network.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use ringwell_config::{Site, SiteText, SwapText};
use ringwell_core::PoolId;
use ringwell_store::{Refusal, Role};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::shared::{Done, PAGE_MAX, Trial, body, enter, finish, query};
use crate::access::Visitor;
use crate::context::Context;
use crate::problem::Problem;

/// A number on the site's pages, and the ring pool whose numbers replace it.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwapView {
    /// The number on the pages, such as `+18005550100`.
    number: String,
    /// The ring pool's id.
    ring_pool: u64,
}

/// A web site.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SiteView {
    /// The site's key. It appears in the site's pages and is not secret.
    key: String,
    /// The origins whose pages may request numbers.
    origins: Vec<String>,
    swaps: Vec<SwapView>,
    /// The query parameters that are stored with an allocation, in addition to advertising
    /// parameters.
    params: Vec<String>,
    /// `off`, `required` or `cookieless`.
    consent: String,
    /// Whether the site has a key for web servers that replace the numbers in its pages. The key is
    /// not shown.
    has_edge_key: bool,
    /// The maximum count of new numbers that one client address can get in a minute.
    leases_per_minute: u32,
    /// Ring pools whose lifetime is too short for a page's keep-alive interval of one minute.
    /// Increase their lifetime.
    short_lived_ring_pools: Vec<u64>,
}

/// The settings of a site. They replace all previous settings. `origins` and `swaps` are required.
/// Any other omitted setting gets its default, except `edge_key`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutSite {
    origins: Vec<String>,
    swaps: Vec<SwapView>,
    #[serde(default)]
    params: Vec<String>,
    /// `off`, `required` or `cookieless` (default: `off`).
    consent: Option<String>,
    /// The key for web servers that replace the numbers in the site's pages: 16 to 256 characters.
    /// If absent, the site keeps its key. If empty, the site's key is removed.
    edge_key: Option<String>,
    /// The maximum count of new numbers that one client address can get in a minute (default: 60).
    leases_per_minute: Option<u32>,
    /// Ignored. Accepted so that a site can be sent back as it was received.
    #[serde(default, rename = "short_lived_ring_pools")]
    #[schema(value_type = Option<Vec<u64>>)]
    _shown: IgnoredAny,
}

/// The requested part of the list of sites.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SitePage {
    /// The key of the last site of the previous page.
    #[serde(default)]
    after: String,
    /// The maximum number of entries: 1 to 1,000.
    limit: Option<u32>,
}

/// Lists sites, ordered by key.
#[utoipa::path(get, path = "/v1/sites", params(SitePage),
    responses((status = 200, body = [SiteView])))]
pub(crate) async fn list(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Vec<SiteView>>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let SitePage { after, limit } = query(&uri)?;
    let limit = limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    // A directory has at most 1,000 sites, so they all fit on one page.
    let mut views = Vec::new();
    for site in context.store.sites(&after, PAGE_MAX).await? {
        if may_see(&context, &visitor, &site).await? {
            views.push(SiteView::of(&context, &site).await?);
        }
        if views.len() == limit as usize {
            break;
        }
    }
    Ok(Json(views))
}

/// Shows a site.
#[utoipa::path(get, path = "/v1/sites/{key}", params(("key" = String, Path)),
    responses((status = 200, body = SiteView), (status = 404)))]
pub(crate) async fn show(
    State(context): State<Context>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<Json<SiteView>, Problem> {
    let visitor = enter(&context, &headers, Role::Read).await?;
    let site = find(&context, &visitor, &key).await?.ok_or_else(no_site)?;
    Ok(Json(SiteView::of(&context, &site).await?))
}

/// Creates or changes a site.
#[utoipa::path(put, path = "/v1/sites/{key}", params(("key" = String, Path), Trial),
    request_body = PutSite,
    responses((status = 200, body = Done), (status = 201, body = Done), (status = 422)))]
pub(crate) async fn put(
    State(context): State<Context>,
    Path(key): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<(StatusCode, Json<Done>), Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let wanted: PutSite = body(&bytes)?;
    let trial = query(&uri)?;
    let mut change = context.change(&visitor).await?;
    let before = change.site(&key).await?;
    // If the configuration has a site with this key, the settings in the directory would replace
    // its settings. Therefore, that site is checked as well.
    let owned = before.clone().or_else(|| context.configured_site(&key));
    if let Some(owned) = &owned
        && !may_see(&context, &visitor, owned).await?
    {
        // The answer does not say which network uses the key.
        return Err(Problem::new(StatusCode::CONFLICT, format!("the key {key} is already in use")));
    }
    let site = wanted.site(key, before.as_ref())?;
    for swap in &site.swaps {
        if !may_use(&context, &visitor, swap.pool).await? {
            let detail = format!("swaps: {}", Refusal::UnknownPool(swap.pool));
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
        }
    }
    let is_new = change.put_site(&site).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(finish(&context, change, &trial).await?)))
}

/// Removes a site. After the removal, its pages show their own numbers.
#[utoipa::path(delete, path = "/v1/sites/{key}", params(("key" = String, Path), Trial),
    responses((status = 200, body = Done), (status = 404)))]
pub(crate) async fn remove(
    State(context): State<Context>,
    Path(key): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Done>, Problem> {
    let visitor = enter(&context, &headers, Role::Write).await?;
    let trial = query(&uri)?;
    let mut change = context.change(&visitor).await?;
    find(&context, &visitor, &key).await?.ok_or_else(no_site)?;
    if !change.remove_site(&key).await? {
        return Err(no_site());
    }
    Ok(Json(finish(&context, change, &trial).await?))
}

fn no_site() -> Problem {
    Problem::not_found("there is no such site")
}

async fn find(context: &Context, visitor: &Visitor, key: &str) -> Result<Option<Site>, Problem> {
    let Some(site) = context.store.site(key).await? else { return Ok(None) };
    Ok(may_see(context, visitor, &site).await?.then_some(site))
}

/// Whether all pools of `site` are or were in the visitor's network. Always true if the visitor may
/// see all networks.
async fn may_see(context: &Context, visitor: &Visitor, site: &Site) -> Result<bool, Problem> {
    let Some(own) = visitor.network() else { return Ok(true) };
    for swap in &site.swaps {
        if context.store.network_of(swap.pool).await?.as_deref() != Some(own) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the pool exists and `visitor` may use its network.
async fn may_use(context: &Context, visitor: &Visitor, pool: PoolId) -> Result<bool, Problem> {
    let pool = context.store.pool(pool).await?;
    Ok(pool.is_some_and(|pool| visitor.may_in(&pool.settings.scope.network)))
}

impl PutSite {
    fn site(self, key: String, before: Option<&Site>) -> Result<Site, Problem> {
        let Self { origins, swaps, params, consent, edge_key, leases_per_minute, .. } = self;
        let kept = || before.and_then(|before| before.to_text().edge_key);
        let swap = |SwapView { number, ring_pool }| SwapText { number, ring_pool };
        let mut text = SiteText {
            key,
            origins,
            swaps: swaps.into_iter().map(swap).collect(),
            params,
            edge_key: edge_key.or_else(kept).filter(|key| !key.is_empty()),
            ..SiteText::default()
        };
        if let Some(consent) = consent {
            text.consent = consent;
        }
        if let Some(leases) = leases_per_minute {
            text.leases_per_minute = leases;
        }
        let refused = |fault: ringwell_config::SiteFault| {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, fault.to_string())
        };
        text.check().map_err(refused)
    }
}

impl SiteView {
    async fn of(context: &Context, site: &Site) -> Result<Self, Problem> {
        let text = site.to_text();
        let mut lifetimes = BTreeMap::new();
        for swap in &site.swaps {
            let pool = context.store.pool(swap.pool).await?;
            lifetimes.extend(pool.map(|pool| (swap.pool, pool.settings.lifetime)));
        }
        let short = site.short_lived(|pool| lifetimes.get(&pool).copied());
        let swap = |SwapText { number, ring_pool }| SwapView { number, ring_pool };
        Ok(Self {
            key: text.key,
            origins: text.origins,
            swaps: text.swaps.into_iter().map(swap).collect(),
            params: text.params,
            consent: text.consent,
            has_edge_key: text.edge_key.is_some(),
            leases_per_minute: text.leases_per_minute,
            short_lived_ring_pools: short.iter().map(|pool| pool.0).collect(),
        })
    }
}
