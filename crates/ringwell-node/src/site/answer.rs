//! Returns numbers for a page's visitor. The numbers are requested in a batch, with one row for
//! each number on the page.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Response;
use hyper::header::HeaderMap;
use ringwell_config::{Consent, Site};
use ringwell_core::Millis;
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::stats::Kind;
use ringwell_driver::{Platform, Traced};
use ringwell_wire::ResponseRow;

use super::leases::{BEAT_S, GivenNumber, Leases, Network};
use super::response::{nothing, refused};
use super::sites::{Outcome, SiteEntry};
use super::token::{Visitor, push_hex};
use super::visit::{Numbers, SwapJson, Visit};
use crate::response::{AnswerBody, set_fields};
use crate::shard::HttpShard;

/// The interval between two checks of whether a visitor's number is still being released.
const SETTLED_EVERY: Duration = Duration::from_millis(5);

/// The maximum number of header fields in an answer to a page.
const ANSWER_FIELDS: usize = 12;

/// The sender of a request from a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    /// The client's address, if it is known.
    pub(super) address: Option<IpAddr>,
    /// The trace that the request belongs to.
    pub(super) traced: Option<Traced>,
}

/// The numbers in the answer to a site's visitor.
pub(super) struct VisitorNumbers {
    pub(super) swaps: Vec<SwapJson>,
    /// The numbers that are not overflow numbers.
    held: Vec<GivenNumber>,
    /// The time until which the visitor keeps the numbers, and the lifetime in seconds; `None` if
    /// all numbers are overflow numbers.
    pub(super) until: Option<(Millis, u64)>,
}

/// Returns numbers for a new or returning visitor.
pub(super) async fn numbers(
    thread: &Rc<HttpShard>,
    entry: &Arc<SiteEntry>,
    visit: &Visit,
    sender: Sender,
) -> Response<AnswerBody> {
    let (sites, site) = (&thread.server.sites, &entry.site);
    if lacks_consent(site, visit) {
        entry.count(Outcome::Refused);
        return nothing();
    }
    let known = visit.visitor.as_deref().and_then(|text| sites.signer().visitor(&site.key, text));
    let is_new = known.is_none();
    let Some(visitor) = known.or_else(new_visitor) else { return nothing() };
    let lease = visit.lease.as_deref();
    let until = lease.and_then(|text| sites.signer().lease(&site.key, visitor, text));
    let holds = until.is_some_and(|until| until > thread.now());
    let wanted = u32::try_from(site.swaps.len()).unwrap_or(u32::MAX);
    let of = (&*site.key, Network::of(sender.address));
    let limits = (wanted, site.leases_per_minute);
    if !holds && !sites.leases().take(Instant::now(), of, limits) {
        entry.count(Outcome::Limited);
        return nothing();
    }
    let params = params(site, visit);
    let again = |leases: &mut Leases| leases.wait_on(Instant::now(), visitor);
    if !is_new && !settled(thread, again).await {
        return nothing();
    }
    let Some(given) = allocate(thread, entry, visitor, &params, sender.traced).await else {
        return nothing();
    };
    entry.count(Outcome::Numbers);
    // A returning visitor may have had the number for a long time, so the visitor gets no new
    // deadline for a first keep-alive.
    if !is_new {
        sites.leases().seen(visitor, &given.held);
    } else if !given.held.is_empty() {
        sites.leases().wait(Instant::now(), visitor, &given.held);
    }
    json(thread, site, visitor, given)
}

/// Whether the visitor gets no number, because the site requires consent and the visitor has not
/// consented. A request may contain parameters only if the visitor has consented.
pub(super) fn lacks_consent(site: &Site, visit: &Visit) -> bool {
    site.consent == Consent::Required && visit.params.is_none()
}

/// Returns the parameters to store with new numbers.
pub(super) fn params(site: &Site, visit: &Visit) -> String {
    match site.consent {
        Consent::Cookieless => String::new(),
        Consent::Off | Consent::Required => visit.query(&site.params),
    }
}

/// Waits until none of the visitor's numbers is being released. `is_free` checks this. Returns
/// `false` if the release is not complete within the time that a batch may take.
pub(super) async fn settled(thread: &HttpShard, is_free: impl Fn(&mut Leases) -> bool) -> bool {
    let until = Instant::now() + thread.node.config.deadline;
    while !is_free(&mut thread.server.sites.leases()) {
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(SETTLED_EVERY).await;
    }
    true
}

/// Answers a keep-alive: extends the lockouts of the visitor's numbers by a whole lifetime.
pub(super) async fn beat(
    thread: &Rc<HttpShard>,
    entry: &Arc<SiteEntry>,
    visit: &Visit,
    sender: Sender,
    outcome: Outcome,
) -> Response<AnswerBody> {
    let (sites, site) = (&thread.server.sites, &entry.site);
    let (Some(visitor), Some(lease)) = (visit.visitor.as_deref(), visit.lease.as_deref()) else {
        entry.count(Outcome::Refused);
        return refused(403, "both visitor and lease are required");
    };
    if lacks_consent(site, visit) {
        entry.count(Outcome::Refused);
        return nothing();
    }
    let visitor = sites.signer().visitor(&site.key, visitor);
    let until = visitor.and_then(|visitor| sites.signer().lease(&site.key, visitor, lease));
    // Without a valid lease, a visitor gets no numbers here, but the page may request new ones. The
    // lease may have expired, or may have been signed with a secret other than the current one.
    let Some((visitor, _)) = visitor.zip(until).filter(|(_, until)| *until > thread.now()) else {
        entry.count(Outcome::Refused);
        return nothing();
    };
    if !settled(thread, |leases| leases.keep(visitor)).await {
        return nothing();
    }
    // One of the visitor's numbers may have left its pool, or a pool may have a free number again.
    // The visitor then gets a new number.
    let params = params(site, visit);
    let Some(given) = allocate(thread, entry, visitor, &params, sender.traced).await else {
        return nothing();
    };
    entry.count(outcome);
    if outcome == Outcome::Tap {
        for (number, _) in given.held.iter().filter(|(number, _)| visit.is_tapped(*number)) {
            sites.tapped(*number);
        }
    }
    json(thread, site, visitor, given)
}

pub(super) fn new_visitor() -> Option<Visitor> {
    crate::disk::random().ok().map(Visitor)
}

fn json(
    thread: &HttpShard,
    site: &Site,
    visitor: Visitor,
    given: VisitorNumbers,
) -> Response<AnswerBody> {
    let signer = thread.server.sites.signer();
    let lease = given.until.map(|(until, _)| signer.lease_text(&site.key, visitor, until));
    let numbers = Numbers {
        visitor: signer.visitor_text(&site.key, visitor),
        lease,
        ttl: given.until.map_or(0, |(_, seconds)| seconds),
        beat: BEAT_S,
        swaps: given.swaps,
    };
    let mut response = Response::new(AnswerBody::from(numbers.json()));
    // Reserves capacity for the header fields that are added later: origin, times, length and date.
    *response.headers_mut() = HeaderMap::with_capacity(ANSWER_FIELDS);
    set_fields(&mut response, "application/json");
    response
}

/// Requests the visitor's numbers from the site's pools, in the same way as a client of the bulk
/// API.
pub(super) async fn allocate(
    thread: &Rc<HttpShard>,
    entry: &SiteEntry,
    visitor: Visitor,
    params: &str,
    traced: Option<Traced>,
) -> Option<VisitorNumbers> {
    let site = &entry.site;
    let mut body = String::with_capacity(32 + site.swaps.len() * (params.len() + 160));
    body.push_str("{\"requests\":[");
    let mut lifetime = u64::MAX;
    {
        let directory = thread.directory();
        for (place, swap) in site.swaps.iter().enumerate() {
            // If a pool is unknown, only its own row fails, and the other rows get numbers.
            let key = directory.pool(swap.pool).map_or("", |pool| pool.key().reveal());
            if let Some(entry) = directory.lookup(swap.pool) {
                lifetime = lifetime.min(entry.lifetime().0);
            }
            let (comma, pool) = (if place > 0 { "," } else { "" }, swap.pool.0);
            let _ = write!(
                body,
                "{comma}{{\"api_suffix\":\"{pool}/allocate_number.json?ring_pool_key={key}\
                 &ringwell_visitor="
            );
            push_hex(&mut body, &visitor.0);
            body.push_str(params);
            body.push_str("\"}");
        }
    }
    body.push_str("]}");
    let deadline = thread.platform.moment() + thread.node.config.deadline;
    let terms = Terms { retry: None, deadline, traced };
    let limits = &thread.node.wire_limits;
    let fill = |batch: &mut ringwell_wire::Batch| batch.parse(body.into(), limits);
    let render = |answered: &Answered<'_>| read(answered, entry, || thread.now(), lifetime);
    let given = batch::answer(thread, Kind::Page, &terms, fill, render).await.ok()??;
    (!given.swaps.is_empty()).then_some(given)
}

/// Reads the visitor's numbers from the answer; `None` if the whole batch failed.
fn read(
    answered: &Answered<'_>,
    entry: &SiteEntry,
    now: impl Fn() -> Millis,
    lifetime: u64,
) -> Option<VisitorNumbers> {
    if answered.is_failed() {
        return None;
    }
    let mut given = VisitorNumbers { swaps: Vec::new(), held: Vec::new(), until: None };
    for (row, (swap, code)) in entry.site.swaps.iter().zip(&entry.codes).enumerate() {
        given.held.extend(answered.given_number(row));
        let ResponseRow::Number { number, overflow, .. } = answered.row(row) else { continue };
        if !overflow {
            given.until = Some((Millis(now().0.saturating_add(lifetime)), lifetime / 1000));
        }
        given.swaps.push(SwapJson::new(&swap.number, *code, number));
    }
    Some(given)
}
