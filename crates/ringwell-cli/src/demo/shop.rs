//! The demo's shop: a page on which each visitor sees a different number, with two sliders.
//!
//! Owns the page, its address and the sliders' settings. Visitors use the server's own API. To slow
//! down a shard, the second slider makes the shard's thread sleep.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::Method;
use ringwell_calls::Service;
use ringwell_config::{Consent, Listen, Site, SiteOrigin, Swap, WebhookSettings};
use ringwell_directory::RingPool;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::inbox::{Inbox, WebhookReceiver};
use super::phone;
use crate::api_client::{Access, ApiClient, Url};
use crate::phone::Phone;

/// The shop's preferred address.
const HOST: &str = "127.0.0.1";
const PORT: u16 = 8082;
/// The number in the page's source.
const NUMBER: &str = "+18005550100";
const KEY: &str = "pk_demo";
/// The interval between batches.
const TICK: Duration = Duration::from_millis(100);
/// The maximum number of visitors per second. It keeps the size of each batch below the server's
/// maximum.
const LOAD_MAX: u32 = 2_000;
const SLOW_MAX_MS: u32 = 200;
/// The time that a slow shard works between pauses.
const WORKS: Duration = Duration::from_millis(20);

/// The sliders' current settings.
#[derive(Debug, Default)]
pub(super) struct Controls {
    visitors_a_second: AtomicU32,
    slow_ms: AtomicU32,
    /// Held during a call.
    line: Arc<tokio::sync::Mutex<()>>,
    calls: AtomicU32,
}

/// The shop before the server is running.
pub(super) struct Shop {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    /// The webhook receiver, and its secret once it is known.
    door: WebhookReceiver,
    secret: Option<String>,
    page: Page,
}

/// Returns the shop's preferred address. If another program listens there, the shop uses another
/// port.
pub(super) fn usual_address() -> Listen {
    Listen::Tcp { host: HOST.to_owned(), port: PORT }
}

#[derive(Clone)]
struct Page {
    controls: Arc<Controls>,
    inbox: Inbox,
    phone: Option<Phone>,
    /// The server's address, set once the server listens.
    api: Arc<OnceLock<String>>,
    dashboard: String,
    /// The pool that receives the first slider's load.
    pool: u64,
    numbers: u64,
    lifetime: Duration,
    address: SocketAddr,
}

impl Shop {
    /// Binds the shop's address.
    ///
    /// # Errors
    /// If this machine has no free port.
    pub(super) fn open(dashboard: &str, pool: &RingPool) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async {
            match TcpListener::bind((HOST, PORT)).await {
                Ok(listener) => Ok(listener),
                Err(_) => TcpListener::bind((HOST, 0)).await,
            }
        });
        let listener = listener.context("the demo's shop cannot listen on any port")?;
        let address = listener.local_addr()?;
        let page = Page {
            controls: Arc::default(),
            inbox: Inbox::default(),
            phone: None,
            api: Arc::default(),
            dashboard: dashboard.to_owned(),
            pool: pool.id().0,
            numbers: pool.number_count(),
            lifetime: Duration::from_millis(pool.lifetime().0),
            address,
        };
        let door = WebhookReceiver::open(&runtime)?;
        Ok(Self { runtime, listener, address, door, secret: None, page })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn controls(&self) -> Arc<Controls> {
        Arc::clone(&self.page.controls)
    }

    /// Creates the shop's web site. Its visitors get numbers from `pool`.
    ///
    /// # Errors
    /// If the address is not a valid origin, which cannot happen.
    pub(super) fn site(&self, pool: &RingPool) -> anyhow::Result<Site> {
        let port = self.address.port();
        let origins = ["127.0.0.1", "localhost"].map(|name| format!("http://{name}:{port}"));
        let origins: Result<Vec<SiteOrigin>, _> = origins.iter().map(|it| it.parse()).collect();
        let origins = origins.map_err(|error| anyhow::anyhow!("the shop's origin: {error}"))?;
        Ok(Site {
            key: KEY.to_owned(),
            origins,
            swaps: vec![Swap { number: NUMBER.to_owned(), pool: pool.id() }],
            params: Vec::new(),
            consent: Consent::Off,
            edge_key: None,
            leases_per_minute: 1_000,
        })
    }

    /// Returns the settings that let the server send webhooks to the shop.
    pub(super) fn webhooks(&self) -> WebhookSettings {
        self.door.settings()
    }

    /// Connects the telephone to the shop's call button, and makes the server send its events to
    /// the shop.
    ///
    /// # Errors
    /// If the call log does not answer.
    pub(super) fn has(&mut self, phone: Phone, service: &Service) -> anyhow::Result<()> {
        self.page.phone = Some(phone);
        self.secret = Some(self.door.register(&self.runtime, service)?);
        Ok(())
    }

    /// Serves the shop and sends the first slider's load. The server already listens at `api`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn serve(self, api: &str, pool: &RingPool) -> io::Result<()> {
        let Self { runtime, listener, door, secret, page, .. } = self;
        let inbox = page.inbox.clone();
        let _ = page.api.set(format!("http://{api}"));
        let (controls, pool) = (Arc::clone(&page.controls), pool.clone());
        if let Ok(url) = api.parse() {
            let send = move || send_visitors(&controls, &url, &pool);
            thread::Builder::new().name("demo-visitors".to_owned()).spawn(send)?;
        }
        let router = Router::new()
            .route("/", get(show))
            .route("/shop.css", get(|| async { file("text/css", include_str!("shop.css")) }))
            .route("/shop.js", get(|| async { file("text/javascript", include_str!("shop.js")) }))
            .route("/controls", post(control))
            .route("/ring", post(ring))
            .route("/webhooks", get(webhooks))
            .with_state(page);
        let serve = move || {
            let served = runtime.block_on(async {
                if let Some(secret) = secret {
                    tokio::spawn(door.serve(secret, inbox));
                }
                axum::serve(listener, router).await
            });
            if let Err(error) = served {
                tracing::warn!(%error, "the demo's shop stopped unexpectedly");
            }
        };
        thread::Builder::new().name("demo-shop".to_owned()).spawn(serve)?;
        Ok(())
    }
}

impl Controls {
    /// Runs on a shard's thread, and repeatedly makes that thread sleep for the time that the
    /// second slider sets. Never returns.
    pub(super) async fn slow_down(self: Arc<Self>) {
        loop {
            tokio::time::sleep(WORKS).await;
            let ms = self.slow_ms.load(Ordering::Relaxed);
            // Blocks the shard's thread on purpose, to show the effect of a slow shard.
            thread::sleep(Duration::from_millis(ms.into()));
        }
    }
}

/// Sends batches of rows for `pool` at the rate that the first slider sets. Each row is for a new
/// visitor.
fn send_visitors(controls: &Controls, url: &Url, pool: &RingPool) {
    let Ok(client) = ApiClient::new(&Access { url: url.clone(), token_file: None }) else { return };
    let (id, key) = (pool.id(), pool.key().reveal());
    let (mut visitor, mut tenths) = (0_u64, 0);
    loop {
        thread::sleep(TICK);
        // There are ten ticks per second. A fraction of a row is carried over to the next tick.
        tenths += controls.visitors_a_second.load(Ordering::Relaxed);
        let rows = tenths / 10;
        tenths %= 10;
        if rows == 0 {
            continue;
        }
        let rows: Vec<String> = (0..rows)
            .map(|_| {
                visitor += 1;
                let suffix = format!(
                    "{id}/allocate_number.json?ring_pool_key={key}&utm_source=demo&visit={visitor}"
                );
                format!(r#"{{"api_suffix":"{suffix}","request_id":"{visitor}"}}"#)
            })
            .collect();
        let body = format!(r#"{{"requests":[{}]}}"#, rows.join(","));
        let path = "/api/2013-07-01/bulk.json";
        let sent = client.send(url, Method::POST, path, ("application/json", body.into()));
        if let Err(error) = sent {
            tracing::debug!(%error, "the demo's visitors got no answer");
        }
    }
}

async fn show(State(page): State<Page>, headers: HeaderMap) -> Response {
    if !page.is_meant(&headers) {
        return StatusCode::MISDIRECTED_REQUEST.into_response();
    }
    let Page { controls, api, dashboard, pool, numbers, lifetime, .. } = page;
    let most = numbers / lifetime.as_secs().max(1);
    let html = include_str!("shop.html")
        .replace("{{api}}", api.get().map_or("", String::as_str))
        .replace("{{dashboard}}", &dashboard)
        .replace("{{pool}}", &pool.to_string())
        .replace("{{numbers}}", &numbers.to_string())
        .replace("{{most}}", &most.to_string())
        .replace("{{top}}", &(most * 4).clamp(20, LOAD_MAX.into()).to_string())
        .replace("{{load}}", &controls.visitors_a_second.load(Ordering::Relaxed).to_string())
        .replace("{{slow}}", &controls.slow_ms.load(Ordering::Relaxed).to_string());
    file("text/html; charset=utf-8", html)
}

/// Reads two numbers: visitors per second, and how many milliseconds the shard sleeps.
async fn control(State(page): State<Page>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let is_own = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
    if !is_own || !page.is_meant(&headers) {
        return StatusCode::FORBIDDEN;
    }
    let text = str::from_utf8(&body).unwrap_or_default();
    let figures = text
        .split_once(' ')
        .and_then(|(load, slow)| Some((load.parse::<u32>().ok()?, slow.parse::<u32>().ok()?)));
    let Some((load, slow)) = figures else { return StatusCode::BAD_REQUEST };
    page.controls.visitors_a_second.store(load.min(LOAD_MAX), Ordering::Relaxed);
    page.controls.slow_ms.store(slow.min(SLOW_MAX_MS), Ordering::Relaxed);
    StatusCode::NO_CONTENT
}

/// Calls the number in the request's body, which is the number that the page shows.
async fn ring(State(page): State<Page>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let is_own = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
    if !is_own || !page.is_meant(&headers) {
        return StatusCode::FORBIDDEN;
    }
    let number = str::from_utf8(&body).ok().filter(|text| {
        (8..=16).contains(&text.len()) && text.strip_prefix('+').is_some_and(is_digits)
    });
    let (Some(number), Some(phone)) = (number.map(str::to_owned), page.phone) else {
        return StatusCode::BAD_REQUEST;
    };
    // Allows one call at a time. Clicks during the call are answered with status 429.
    let Ok(line) = Arc::clone(&page.controls.line).try_lock_owned() else {
        return StatusCode::TOO_MANY_REQUESTS;
    };
    let call = format!("CAdemo{}", page.controls.calls.fetch_add(1, Ordering::Relaxed));
    let call = format!("{call}-{}", std::process::id());
    tokio::task::spawn_blocking(move || {
        let _line = line;
        if let Err(error) = phone::ring(&phone, &call, &number) {
            tracing::warn!(%error, "the demo's call was not connected");
        }
    });
    StatusCode::NO_CONTENT
}

/// Returns the latest events that the webhook receiver received.
async fn webhooks(State(page): State<Page>, headers: HeaderMap) -> Response {
    if !page.is_meant(&headers) {
        return StatusCode::MISDIRECTED_REQUEST.into_response();
    }
    file("application/json", page.inbox.to_json())
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Page {
    /// Returns whether a request's `Host` header names this address. Without this check, a page on
    /// another site could reach the shop by making its own host name resolve to this address.
    fn is_meant(&self, headers: &HeaderMap) -> bool {
        let port = self.address.port();
        let names = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| names.iter().any(|name| name == host))
    }
}

fn file(kind: &'static str, text: impl Into<String>) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text.into()).into_response()
}
