//! Answers GET requests for numbers. The requests come from servers that swap numbers themselves,
//! and from AMP pages, which do not run the script `/rw.js`.
//!
//! Such clients send no keep-alives, so the visitor gets a number for a whole lifetime from the
//! start.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use ringwell_config::Consent;
use subtle::ConstantTimeEq;

use super::agent::is_program;
use super::answer::{
    Sender, VisitorNumbers, allocate, lacks_consent, new_visitor, params, settled,
};
use super::leases::Network;
use super::response::{allow, nothing, refused};
use super::sites::{Outcome, SiteEntry};
use super::token::Visitor;
use super::visit::Visit;
use crate::fields::{text, values};
use crate::response::{AnswerBody, whole};
use crate::shard::HttpShard;

/// The request headers of a server that swaps numbers itself.
const EDGE_KEY: HeaderName = HeaderName::from_static("ringwell-edge-key");
const X_VISITOR: HeaderName = HeaderName::from_static("x-visitor");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
const CONSENT: HeaderName = HeaderName::from_static("ringwell-consent");
/// Global Privacy Control: a browser sends `1` if its user objects to being tracked.
const SEC_GPC: HeaderName = HeaderName::from_static("sec-gpc");
/// The headers of the answer to a server that swaps numbers itself.
const NUMBER: HeaderName = HeaderName::from_static("ringwell-number");
const TEL: HeaderName = HeaderName::from_static("ringwell-tel");
/// Marks a request from an AMP page to its own origin. Browsers send no `Origin` with such a
/// request.
const AMP_SAME_ORIGIN: HeaderName = HeaderName::from_static("amp-same-origin");

/// `GET /site/v1/number?site=`: returns a number to a server that swaps numbers itself. The number
/// is in the headers of the answer.
pub(super) async fn headers(
    thread: &Rc<HttpShard>,
    query: &str,
    headers: &HeaderMap,
    sender: Sender,
) -> Response<AnswerBody> {
    let Some(entry) = site(thread, query) else {
        return refused(403, "the site key is unknown");
    };
    let presented = headers.get(&EDGE_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    let key = entry.site.edge_key.as_ref();
    if !key.is_some_and(|key| bool::from(key.reveal().ct_eq(presented))) {
        entry.count(Outcome::Refused);
        return refused(403, "the header Ringwell-Edge-Key must contain the site's edge_key");
    }
    // The request contains the edge key, so its headers for the client's address and the requested
    // page are trusted.
    let address = text(headers, &X_REAL_IP).and_then(|text| text.parse().ok()).or(sender.address);
    let sender = Sender { address, ..sender };
    let page = text(headers, &X_ORIGINAL_URI).unwrap_or_default();
    let (landing, page_query) = page.split_once('?').unwrap_or((page, ""));
    let may_store = has_consented(headers) || entry.site.consent != Consent::Required;
    let visit = Visit {
        visitor: text(headers, &X_VISITOR).map(str::to_owned),
        params: may_store.then(|| Visit::params_of(page_query)),
        landing: Some(landing.to_owned()),
        referrer: text(headers, &header::REFERER).map(str::to_owned),
        ..Visit::default()
    };
    let Some((visitor, given)) = give(thread, &entry, &visit, (headers, sender)).await else {
        return nothing();
    };
    let mut response = nothing();
    if let Some(first) = given.swaps.first() {
        let ttl = given.until.map_or(0, |(_, seconds)| seconds);
        let text = thread.server.sites.signer().visitor_text(&entry.site.key, visitor);
        let cookie = format!("rw_v={text}; Max-Age={ttl}; Path=/; SameSite=Lax; Secure");
        let is_cookieless = entry.site.consent == Consent::Cookieless;
        let cookie = (!is_cookieless).then_some((header::SET_COOKIE, &cookie));
        let fields = [(NUMBER, &first.formatted), (TEL, &first.to)].into_iter().chain(cookie);
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
    }
    response
}

/// Whether the visitor has consented. If a header occurs several times, each of its values counts, so
/// that one refusal suffices.
fn has_consented(headers: &HeaderMap) -> bool {
    let (consent, privacy) = (CONSENT, SEC_GPC);
    let mut consents = values(headers, &consent).peekable();
    let is_granted = consents.peek().is_some() && consents.all(|value| value == "granted");
    let objects = |value: &HeaderValue| {
        let mut items = value.as_bytes().split(|byte| *byte == b',');
        items.any(|item| item.trim_ascii() == b"1")
    };
    is_granted && !values(headers, &privacy).any(objects)
}

/// `GET /site/v1/amp?site=`: answers a request from `amp-call-tracking`. If the answer is `{}`, the
/// page keeps its own number.
pub(super) async fn amp(
    thread: &Rc<HttpShard>,
    query: &str,
    headers: &HeaderMap,
    sender: Sender,
) -> Response<AnswerBody> {
    let Some(entry) = site(thread, query) else {
        return refused(403, "the site key is unknown");
    };
    let is_same_origin =
        !headers.contains_key(header::ORIGIN) && text(headers, &AMP_SAME_ORIGIN) == Some("true");
    let origin = entry.origin(headers);
    if origin.is_none() && !is_same_origin {
        entry.count(Outcome::Origin);
        return refused(403, "this origin is not allowed: add this origin to the site's origins");
    }
    let mut params = Visit::params_of(query);
    let visit = Visit {
        landing: params.remove("landing"),
        referrer: params.remove("referrer"),
        // AMP pages cannot report the visitor's consent.
        params: (entry.site.consent != Consent::Required).then_some(params),
        ..Visit::default()
    };
    let given = give(thread, &entry, &visit, (headers, sender)).await;
    let first = given.and_then(|(_, given)| given.swaps.into_iter().next());
    let body = first.map_or_else(
        || serde_json::json!({}),
        |swap| {
            serde_json::json!({ "phoneNumber": swap.to, "formattedPhoneNumber": swap.formatted })
        },
    );
    let body = body.to_string().into_bytes();
    let mut response = whole(StatusCode::OK, "application/json", body);
    if let Some(origin) = origin {
        allow(&mut response, origin);
        // The AMP component always sends credentials, although the server does not use them.
        let name = header::ACCESS_CONTROL_ALLOW_CREDENTIALS;
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}

fn site(thread: &HttpShard, query: &str) -> Option<Arc<SiteEntry>> {
    let key = query.split('&').find_map(|pair| pair.strip_prefix("site="))?;
    thread.server.sites.find(key)
}

/// Returns numbers for the visitor, unless the client is a program, the visitor's consent is missing,
/// or the client's network has reached the limit on new numbers.
async fn give(
    thread: &Rc<HttpShard>,
    entry: &Arc<SiteEntry>,
    visit: &Visit,
    (headers, sender): (&HeaderMap, Sender),
) -> Option<(Visitor, VisitorNumbers)> {
    let (sites, site) = (&thread.server.sites, &entry.site);
    if is_program(headers) {
        entry.count(Outcome::Bot);
        return None;
    }
    if lacks_consent(site, visit) {
        entry.count(Outcome::Refused);
        return None;
    }
    let known = visit.visitor.as_deref().and_then(|text| sites.signer().visitor(&site.key, text));
    let wanted = u32::try_from(site.swaps.len()).unwrap_or(u32::MAX);
    let (of, limits) =
        ((&*site.key, Network::of(sender.address)), (wanted, site.leases_per_minute));
    if known.is_none() && !sites.leases().take(Instant::now(), of, limits) {
        entry.count(Outcome::Limited);
        return None;
    }
    // The client of this request sends no keep-alives. Numbers that the script has already
    // requested for this visitor are therefore kept even if no keep-alive arrives.
    if let Some(known) = known
        && !settled(thread, |leases| leases.keep(known)).await
    {
        return None;
    }
    let visitor = known.or_else(new_visitor)?;
    let params = params(site, visit);
    let given = allocate(thread, entry, visitor, &params, sender.traced).await?;
    entry.count(Outcome::Numbers);
    Some((visitor, given))
}

#[cfg(test)]
#[test]
fn one_refusal_suffices_if_a_header_occurs_twice() {
    let has_consented = |consents: &[&'static str], privacy: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for (name, values) in [(CONSENT, consents), (SEC_GPC, privacy)] {
            for value in values {
                headers.append(name.clone(), HeaderValue::from_static(value));
            }
        }
        has_consented(&headers)
    };
    assert!(has_consented(&["granted"], &[]));
    assert!(has_consented(&["granted", "granted"], &["0", "0"]));
    for consents in
        [&[][..], &["granted", "denied"], &["denied", "granted"], &["granted", ""], &["Granted"]]
    {
        assert!(!has_consented(consents, &[]), "{consents:?}");
    }
    for privacy in [&["1"][..], &["0", "1"], &["1", "0"], &["0, 1"]] {
        assert!(!has_consented(&["granted"], privacy), "{privacy:?}");
    }
}
