//! Numbers that can be bought, and numbers that were bought. All requests require a token that is
//! valid in all networks.

use std::ops::RangeInclusive;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use ringwell_core::PromoNumber;
use ringwell_directory::AreaCode;
use ringwell_store::{Offer, Purchase, Role};
use serde::{Deserialize, Serialize};

use super::shared::{Done, PAGE_MAX, Trial, body, enter_all, finish, query};
use crate::context::Context;
use crate::problem::Problem;

/// A number that can be bought, and its monthly price in hundredths of the provider's currency.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct OfferView {
    number: String,
    price_cents: u64,
}

/// A purchased number.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PurchaseView {
    #[serde(flatten)]
    offer: OfferView,
    network: String,
    at_ms: u64,
}

/// A filter for offers.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// The three-digit area code of the offers. If absent, numbers with any area code are listed.
    area_code: Option<u16>,
    /// The maximum number of offers: 1 to 1,000.
    limit: Option<u32>,
}

/// An order for numbers.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// The network to buy numbers for. Only its pools may draw them.
    network: String,
    /// The count of numbers to buy.
    numbers: u32,
    /// The three-digit area code of the numbers. If absent, the numbers may have any area code.
    area_code: Option<u16>,
}

/// The purchased numbers or, in a dry run, those that would be purchased.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Bought {
    /// The numbers. There are fewer than ordered if too few are offered or the network's limit is
    /// reached.
    numbers: Vec<OfferView>,
    /// The monthly price of all numbers together.
    price_cents: u64,
    #[serde(flatten)]
    done: Done,
}

/// Lists numbers that can be bought, cheapest first.
#[utoipa::path(get, path = "/v1/offers", params(Wanted),
    responses((status = 200, body = [OfferView]), (status = 404)))]
pub(crate) async fn offers(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Vec<OfferView>>, Problem> {
    enter_all(&context, &headers, Role::Read).await?;
    let Wanted { area_code, limit } = query(&uri)?;
    let limit = limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX) as usize;
    let offers = context.store.offers(numbers(area_code)?, limit).await?;
    Ok(Json(offers.iter().map(OfferView::of).collect()))
}

/// Lists purchased numbers.
#[utoipa::path(get, path = "/v1/purchases",
    responses((status = 200, body = [PurchaseView]), (status = 404)))]
pub(crate) async fn list(
    State(context): State<Context>,
    headers: HeaderMap,
) -> Result<Json<Vec<PurchaseView>>, Problem> {
    enter_all(&context, &headers, Role::Read).await?;
    let purchases = context.store.purchases().await?;
    Ok(Json(purchases.into_iter().map(PurchaseView::of).collect()))
}

/// Buys numbers for the inventory of a network, cheapest first.
#[utoipa::path(post, path = "/v1/purchases", params(Trial), request_body = Order,
    responses((status = 200, body = Bought), (status = 404), (status = 503)))]
pub(crate) async fn buy(
    State(context): State<Context>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Json<Bought>, Problem> {
    let visitor = enter_all(&context, &headers, Role::Write).await?;
    let Order { network, numbers: count, area_code } = body(&bytes)?;
    let (wanted, trial) = (numbers(area_code)?, query(&uri)?);
    let mut change = context.change(&visitor).await?;
    let bought = change.buy(&network, wanted, count.into()).await?;
    let done = finish(&context, change, &trial).await?;
    let price_cents = bought.iter().map(|offer| offer.price_cents).sum();
    Ok(Json(Bought { numbers: bought.iter().map(OfferView::of).collect(), price_cents, done }))
}

/// The range of all numbers with the area code `area`, or with any area code if it is `None`.
fn numbers(area: Option<u16>) -> Result<RangeInclusive<PromoNumber>, Problem> {
    let [first, last] = [area.unwrap_or(200), area.unwrap_or(999)]
        .map(|digits| AreaCode::new(digits).and_then(AreaCode::numbers));
    let range = first.zip(last).map(|(first, last)| first.first()..=last.last());
    range.ok_or_else(|| Problem::bad_request("area_code must be a number from 200 to 999"))
}

impl OfferView {
    fn of(offer: &Offer) -> Self {
        Self { number: offer.number.to_string(), price_cents: offer.price_cents }
    }
}

impl PurchaseView {
    fn of(purchase: Purchase) -> Self {
        let Purchase { offer, network, at } = purchase;
        Self { offer: OfferView::of(&offer), network, at_ms: at.0 }
    }
}
