//! Requests from web pages (`/site/v1/…`), and the script that sends them (`/rw.js`).
//!
//! A page is identified by the public key of its site and by its origin. A visitor is identified by
//! a signed text. At first, a visitor gets a number for 75 seconds. The first keep-alive extends
//! this time to the whole lifetime. All requests for numbers are processed as batches. If a request
//! is refused for any reason, the page keeps its own numbers. Source: docs/spec/site.md.

mod answer;
mod edge;
mod leases;
mod script;
mod token;
mod visit;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use ringwell_config::{Site, client_address};
use ringwell_core::PromoNumber;
use tokio::sync::oneshot;

use self::leases::{LeasedNumber, Leases};
pub use self::script::{Script, script};
use self::token::Signer;
use self::visit::{BODY_BYTES_MAX, Visit, code_of};
use crate::api::{trace, traced, whole};
use crate::http::{AnswerBody, read_within, values};
use crate::server::Server;
use crate::shard::HttpShard;
use crate::timing::time_headers;
use ringwell_driver::Traced;
use ringwell_driver::message::Message;
use ringwell_driver::node::Node;
use ringwell_wire::RequestError;

const PREFIX: &str = "/site/v1/";
/// The interval between two searches for numbers whose visitors have sent no keep-alive.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A function that is called with each number that a visitor has tapped.
type OnTap = Box<dyn Fn(PromoNumber) + Send + Sync>;

/// The function that receives taps.
#[derive(Default)]
struct Taps(OnceLock<OnTap>);

impl std::fmt::Debug for Taps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Taps")
    }
}

/// All sites, with the data on their visitors. All threads share this state.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// Created together with the first site.
    signer: OnceLock<Signer>,
    leases: Mutex<Leases>,
    taps: Taps,
    table: RwLock<Arc<Table>>,
}

/// Sites by key. A change replaces the table.
pub(crate) type Table = BTreeMap<String, Arc<SiteEntry>>;

/// A site, and the outcomes of requests from its pages.
#[derive(Debug)]
pub(crate) struct SiteEntry {
    site: Site,
    /// For each swap, the country code of the number that the site's pages contain.
    codes: Vec<Option<u16>>,
    /// A site keeps these counts when its settings change.
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Tally([AtomicU64; Outcome::ALL.len()]);

/// The outcome of a request from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Numbers,
    Beat,
    Tap,
    Bot,
    Origin,
    Limited,
    Refused,
}

impl Outcome {
    pub(crate) const ALL: [Self; 7] = [
        Self::Numbers,
        Self::Beat,
        Self::Tap,
        Self::Bot,
        Self::Origin,
        Self::Limited,
        Self::Refused,
    ];

    /// Returns the outcome's name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Beat => "beat",
            Self::Tap => "tap",
            Self::Bot => "bot",
            Self::Origin => "wrong_origin",
            Self::Limited => "limited",
            Self::Refused => "refused",
        }
    }
}

impl Sites {
    /// Replaces all sites. Sites that already existed keep their counts.
    fn replace(&self, sites: Vec<Site>) {
        let before = self.table();
        let entry = |site: Site| {
            let known = before.get(&site.key).map(|entry| Arc::clone(&entry.tally));
            let codes = site.swaps.iter().map(|swap| code_of(&swap.number)).collect();
            let entry = SiteEntry { site, codes, tally: known.unwrap_or_default() };
            (entry.site.key.clone(), Arc::new(entry))
        };
        let table = Arc::new(sites.into_iter().map(entry).collect());
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// The current sites.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn signer(&self) -> &Signer {
        // Sites are served only after the signer was created, so this random secret never signs a
        // text.
        self.signer.get_or_init(|| Signer::new(&crate::disk::random::<32>().unwrap_or_default()))
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        // Every method leaves the contents consistent, so a poisoned lock can still be used.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn on_taps(&self, tapped: OnTap) {
        // Every shard's thread calls this for the same node. Only the first call takes effect.
        let _ = self.taps.0.set(tapped);
    }

    fn tapped(&self, number: PromoNumber) {
        if let Some(tapped) = self.taps.0.get() {
            tapped(number);
        }
    }

    /// Returns the number of visitors who have not yet shown that they are people.
    pub(crate) fn waiting(&self) -> usize {
        self.leases().waiting()
    }
}

impl SiteEntry {
    fn count(&self, outcome: Outcome) {
        let before = self.tally.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
        if outcome == Outcome::Limited && before == 0 {
            tracing::warn!(
                site = self.site.key,
                leases_per_minute = self.site.leases_per_minute,
                "a client address has reached its limit of new numbers per minute, so further \
                 visitors from that address see the page's original number. If the address \
                 belongs to a proxy, add it to trusted_proxies"
            );
        }
    }

    pub(crate) const fn site(&self) -> &Site {
        &self.site
    }

    /// Returns the count of the site's requests for each outcome, in the order of [`Outcome::ALL`].
    pub(crate) fn counts(&self) -> [u64; Outcome::ALL.len()] {
        self.tally.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// Serves exactly these sites from now on.
///
/// # Errors
/// Returns an error if the secret that signs visitors' texts can neither be read nor created. The
/// sites then stay unchanged.
pub(crate) fn serve(server: &Server, sites: Vec<Site>) -> io::Result<()> {
    if !sites.is_empty() && server.sites.signer.get().is_none() {
        let made = signer(&server.node)?;
        // If two threads get here at the same time, both use the signer of the first one.
        server.sites.signer.get_or_init(|| made);
    }
    server.sites.replace(sites);
    Ok(())
}

/// Creates a signer from the cluster secret, or from a secret in the data directory. With
/// durability `memory` and no cluster, creates it from random bytes.
fn signer(node: &Node) -> io::Result<Signer> {
    if let Some(membership) = &node.membership {
        return Ok(Signer::new(membership.cluster().secret()));
    }
    if node.answers_wait() {
        return crate::disk::kept_secret(&node.config.data.join(crate::disk::SECRET))
            .map(|secret| Signer::new(&secret));
    }
    crate::disk::random::<32>().map(|secret| Signer::new(&secret))
}

/// Releases the numbers of visitors who have sent no keep-alive, until the task ends.
pub(crate) async fn sweep(thread: Rc<HttpShard>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let ended = thread.server.sites.leases().ended(Instant::now());
        let mut replies = Vec::with_capacity(ended.len());
        for LeasedNumber { number, allocated_at, seen_at } in ended {
            let directory = thread.node.directory();
            let pool = directory.pool_by_number(number).and_then(|pool| directory.lookup(pool));
            let Some(owner) = pool else { continue };
            // If the owner is too busy to release the number, the number stays locked until the
            // lockout ends.
            let (reply, released) = oneshot::channel();
            replies.push(released);
            // If the lockout was extended by anything other than a keep-alive from the page, for
            // example by a client of the bulk API, the visitor keeps the number.
            let (allocated_at, seen_at) = (Some(allocated_at), Some(seen_at));
            let message = Message::Release { number, allocated_at, seen_at, reply };
            thread.peers.send_when_there_is_room(owner.shard(), message).await;
        }
        // If the owner cannot be reached, the reply is dropped, and the number stays locked until
        // the lockout ends.
        let all = async {
            for released in replies {
                let _ = released.await;
            }
        };
        let _ = tokio::time::timeout(SWEEP_EVERY, all).await;
        thread.server.sites.leases().released();
    }
}

/// The sender of a request from a page.
#[derive(Clone, Copy, Debug)]
struct Sender {
    /// The client's address, if it is known.
    address: Option<IpAddr>,
    /// The trace to which the request belongs.
    traced: Option<Traced>,
}

/// Whether requests to this path come from web pages.
pub(crate) fn is_for(path: &str) -> bool {
    path.starts_with(PREFIX) || script::is_at(path)
}

/// Answers a page's request. `peer` is the address at the other end of the connection.
pub(crate) async fn answer(
    thread: &Rc<HttpShard>,
    request: Request<Incoming>,
    peer: Option<IpAddr>,
) -> Response<AnswerBody> {
    let span = trace(request.method(), request.uri(), request.headers(), "a page's request");
    let (head, body) = request.into_parts();
    let name = X_FORWARDED_FOR;
    let forwarded = values(&head.headers, &name).map(|it| it.to_str().unwrap_or("?"));
    let forwarded: Vec<_> = forwarded.collect();
    let trusted = &thread.node.config.trusted_proxies;
    let address = client_address(trusted, peer, forwarded.into_iter());
    let sender = Sender { address, traced: span.as_deref().map(traced) };
    let query = head.uri.query().unwrap_or_default();
    let started = Instant::now();
    let room = thread.server.bodies.room();
    let mut response = match (&head.method, head.uri.path()) {
        (&Method::GET | &Method::HEAD, path) if script::is_at(path) => script::answer(path),
        (&Method::OPTIONS, _) => preflight(thread, &head.headers),
        (&Method::POST, path) if path.starts_with(PREFIX) => {
            match read_within(thread, body, BODY_BYTES_MAX, room).await {
                Ok((body, _room)) => match Visit::read(&body) {
                    Ok(visit) => {
                        let path = path.strip_prefix(PREFIX).unwrap_or_default();
                        post(thread, path, &visit, &head.headers, sender).await
                    }
                    Err(fault) => refused(400, &fault),
                },
                Err(error @ RequestError::TooLarge { limit }) => {
                    refused(error.status(), &format!("the body must have at most {limit} bytes"))
                }
                Err(error) => refused(error.status(), "the body is incomplete"),
            }
        }
        (&Method::GET, "/site/v1/number") => {
            edge::headers(thread, query, &head.headers, sender).await
        }
        (&Method::GET, "/site/v1/amp") => edge::amp(thread, query, &head.headers, sender).await,
        _ => refused(404, "no such path under /site/v1/"),
    };
    time_headers(&mut response, started.elapsed());
    if let Some(mut span) = span {
        span.status(response.status().as_u16());
    }
    response
}

async fn post(
    thread: &Rc<HttpShard>,
    path: &str,
    visit: &Visit,
    headers: &HeaderMap,
    sender: Sender,
) -> Response<AnswerBody> {
    let Some(entry) = site(thread, &visit.site) else {
        return refused(403, "the site key is unknown");
    };
    let Some(origin) = origin(&entry.site, headers) else {
        entry.count(Outcome::Origin);
        return refused(403, "this origin is not allowed: add this origin to the site's origins");
    };
    let mut response = if is_program(headers) {
        entry.count(Outcome::Bot);
        nothing()
    } else {
        match path {
            "numbers" => answer::numbers(thread, &entry, visit, sender).await,
            "beat" => answer::beat(thread, &entry, visit, sender, Outcome::Beat).await,
            "tap" => answer::beat(thread, &entry, visit, sender, Outcome::Tap).await,
            _ => refused(404, "no such path under /site/v1/"),
        }
    };
    allow(&mut response, origin);
    response
}

/// Finds the site with this key.
fn site(thread: &HttpShard, key: &str) -> Option<Arc<SiteEntry>> {
    thread.server.sites.table().get(key).cloned()
}

/// Returns the request's origin, if the site allows it. Browsers send the origin with every POST
/// request.
fn origin(site: &Site, headers: &HeaderMap) -> Option<HeaderValue> {
    let mut origins = values(headers, &header::ORIGIN);
    let origin = origins.next().filter(|_| origins.next().is_none())?;
    let text = origin.to_str().ok()?;
    site.origins.iter().any(|allowed| allowed.matches(text)).then(|| origin.clone())
}

/// Returns the first value of a header field, if it is text.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether the client is a program rather than a person's browser.
fn is_program(headers: &HeaderMap) -> bool {
    if text(headers, &SEC_PURPOSE).is_some_and(|purpose| purpose.starts_with("prefetch")) {
        return true;
    }
    let Some(agent) = text(headers, &header::USER_AGENT) else { return true };
    let kind = Agent::of(agent);
    // Chromium has sent `Sec-Fetch-Site` with every request since 2019.
    kind == Agent::Program || (kind == Agent::Chromium && text(headers, &SEC_FETCH_SITE).is_none())
}

/// The kind of a client, according to its User-Agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Program,
    Chromium,
    Other,
}

impl Agent {
    /// Examines each byte once, and ignores case.
    fn of(agent: &str) -> Self {
        let bytes = agent.as_bytes();
        let mut kind = Self::Other;
        for (place, byte) in bytes.iter().enumerate() {
            let names: &[&str] = match byte | 0x20 {
                b'b' => &["bot"],
                b'c' => &["crawl", "curl/", "chrome/"],
                b's' => &["spider", "slurp"],
                b'h' => &["headless"],
                b'l' => &["lighthouse"],
                b'p' => &["preview"],
                _ => continue,
            };
            let is_at = |name: &&&str| {
                let here = bytes.get(place..place + name.len());
                here.is_some_and(|here| here.eq_ignore_ascii_case(name.as_bytes()))
            };
            match names.iter().find(is_at) {
                Some(&"chrome/") => kind = Self::Chromium,
                Some(_) => return Self::Program,
                None => {}
            }
        }
        kind
    }
}

/// Answers a preflight request. A preflight request does not name a site, so the origin may belong
/// to any site.
fn preflight(thread: &HttpShard, headers: &HeaderMap) -> Response<AnswerBody> {
    let sites = thread.server.sites.table();
    let Some(origin) = sites.values().find_map(|entry| origin(&entry.site, headers)) else {
        return refused(403, "no site permits this origin: add it to the origins of its site");
    };
    let mut response = nothing();
    allow(&mut response, origin);
    let headers = response.headers_mut();
    let set = |value| HeaderValue::from_static(value);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, set("POST"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, set("content-type"));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, set("7200"));
    response
}

/// Allows pages from `origin` to read the answer.
fn allow(response: &mut Response<AnswerBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
}

/// Returns an empty answer, which makes the page keep its own numbers.
fn nothing() -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::from(Vec::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn refused(status: u16, why: &str) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let body = serde_json::json!({ "status": status.as_u16(), "title": why });
    let mut response = whole(status, "application/problem+json", body.to_string().into_bytes());
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if status == StatusCode::PAYLOAD_TOO_LARGE || status == StatusCode::REQUEST_TIMEOUT {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
#[test]
fn programs_are_recognized_by_their_user_agents() {
    for (agent, kind) in [
        ("Mozilla/5.0 (compatible; Googlebot/2.1)", Agent::Program),
        ("Mozilla/5.0 Chrome/156.0 (compatible; BINGBOT/2.0)", Agent::Program),
        ("curl/8.5", Agent::Program),
        ("Mozilla/5.0 HeadlessChrome/156.0.0.0", Agent::Program),
        ("Mozilla/5.0 Chrome-Lighthouse", Agent::Program),
        ("Yahoo! Slurp", Agent::Program),
        ("WhatsApp Link Preview", Agent::Program),
        ("some spider", Agent::Program),
        ("a Crawler", Agent::Program),
        ("Mozilla/5.0 Chrome/156.0.0.0 Safari/537.36", Agent::Chromium),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", Agent::Other),
        ("curl", Agent::Other),
        ("", Agent::Other),
    ] {
        assert_eq!(Agent::of(agent), kind, "{agent}");
    }
}
