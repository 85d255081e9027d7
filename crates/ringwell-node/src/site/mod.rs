//! Requests from web pages (`/site/v1/…`), and the script that sends them (`/rw.js`).
//!
//! A page is identified by the public key of its site and by its origin. A visitor is identified by
//! a signed string. At first, a visitor gets a number for 75 seconds. The first keep-alive extends
//! this time to the whole lifetime. All requests for numbers are processed as batches. If a request
//! is refused for any reason, the page keeps its own numbers. Source: docs/spec/site.md.

mod agent;
mod answer;
mod edge;
mod leases;
mod response;
mod script;
pub(crate) mod sites;
mod token;
mod visit;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use ringwell_config::client_address;
use tokio::sync::oneshot;

use self::agent::is_program;
use self::answer::Sender;
use self::leases::LeasedNumber;
use self::response::{allow, nothing, refused};
pub use self::script::{Script, script};
pub(crate) use self::sites::{Outcome, SiteEntry};
use self::visit::{BODY_BYTES_MAX, Visit};
use crate::fields::values;
use crate::request::{read_within, trace, traced};
use crate::response::AnswerBody;
use crate::shard::HttpShard;
use crate::timing::time_headers;
use ringwell_driver::message::Message;
use ringwell_wire::RequestError;

const PREFIX: &str = "/site/v1/";
/// The interval between two searches for numbers whose visitors have sent no keep-alive.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Runs forever, and releases the numbers of visitors who have sent no keep-alive.
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
    let Some(entry) = thread.server.sites.find(&visit.site) else {
        return refused(403, "the site key is unknown");
    };
    let Some(origin) = entry.origin(headers) else {
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

/// Answers a preflight request. A preflight request does not name a site, so the origin may belong
/// to any site.
fn preflight(thread: &HttpShard, headers: &HeaderMap) -> Response<AnswerBody> {
    let sites = thread.server.sites.table();
    let Some(origin) = sites.values().find_map(|entry| entry.origin(headers)) else {
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
