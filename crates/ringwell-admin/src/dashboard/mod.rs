//! The dashboard: pages for people, on the management address.
//!
//! Owns the paths under `/ui/`, the sessions, and the formats of pages: each page is also available
//! as `.json` and `.csv`. The node, the store and `ringwell-plan` supply the rules and figures.
//! Loading a page changes nothing; only its HTML forms request changes (`actions.rs`). Invariant:
//! no data is shown without a session, and no received text is shown unescaped. Source:
//! docs/dashboard.md.

mod actions;
mod asked;
mod assets;
mod calls;
mod cluster;
mod layout;
mod login;
mod now;
mod number;
mod pool;
mod pools;
mod sample;
mod session;
mod site_forms;
mod sites;
mod stream;
mod table;
mod words;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ringwell_calls::{Service, Waiting};
use ringwell_core::PoolId;
use ringwell_directory::TokenHash;
use ringwell_node::Handle;

use self::asked::{Asked, Form, Live, NoPage, View, pairs};
use self::layout::{Frame, page};
use self::sample::Sampler;
use self::session::{Session, Sessions};
use self::stream::Figures;
use crate::Context;
use crate::access::{Door, Visitor};
use crate::loads::SharedLoads;

/// Permits scripts and styles only from this server, and connections only to this server. Does not
/// permit scripts to turn text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'";

/// The dashboard of one node. Clones share it.
#[derive(Clone)]
pub struct Dashboard(Arc<Inner>);

struct Inner {
    /// Empty until the node runs.
    node: OnceLock<Handle>,
    /// Empty if no calls are accepted.
    calls: OnceLock<Service>,
    sampler: Arc<Sampler>,
    figures: Figures,
    sessions: Sessions,
}

/// The state that handlers share.
#[derive(Clone)]
struct Ui {
    dashboard: Dashboard,
    door: Door,
    /// Applies changes. `None` if pools come from the configuration.
    context: Option<Context>,
}

impl Dashboard {
    /// A dashboard that shows nothing until a node is attached. [`Self::run`] updates `loads`.
    #[must_use]
    pub fn new(loads: SharedLoads) -> Self {
        let sampler = Arc::new(Sampler::new(loads));
        Self(Arc::new(Inner {
            node: OnceLock::new(),
            calls: OnceLock::new(),
            sampler,
            figures: Figures::default(),
            sessions: Sessions::default(),
        }))
    }

    /// Starts serving the node's pages. Only the first call of this function has an effect.
    pub fn attach(&self, node: Handle) {
        // Any later call comes from another thread of the same node.
        let _ = self.0.node.set(node);
    }

    /// Adds the pages about calls. Only the first call of this function has an effect.
    pub fn attach_calls(&self, calls: Service) {
        let _ = self.0.calls.set(calls);
    }

    /// The counts of call reports that are not stored yet. Zero if no calls are accepted.
    pub(crate) fn waiting_calls(&self) -> Waiting {
        self.0.calls.get().map(Service::waiting).unwrap_or_default()
    }

    /// The count of providers' webhooks that were refused because of their signatures.
    pub(crate) fn unsigned_webhooks(&self) -> u64 {
        let count = self.0.calls.get().map(Service::unsigned_webhooks);
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Samples the node repeatedly. Never returns.
    pub async fn run(&self) {
        loop {
            if let Some(node) = self.0.node.get() {
                return self.0.sampler.run(node, &self.0.calls).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// Creates a one-time login path below the server's root. The first user who opens it gets the
    /// permissions of `token`. Returns `None` if too many such paths are unused.
    #[must_use]
    pub fn login_path(&self, token: TokenHash) -> Option<String> {
        let code = self.0.sessions.link(Visitor::configured(), token)?;
        Some(format!("/ui/login#{code}"))
    }

    /// The count of pools that are too small now, and the count of pools that will be exhausted
    /// within an hour. `None` if no sample has been taken yet.
    pub(crate) fn in_trouble(&self) -> Option<[usize; 2]> {
        let sample = self.0.sampler.newest();
        (sample.at.0 > 0).then_some([sample.too_small, sample.exhausting])
    }

    /// Whether a request belongs to a logged-in user.
    pub(crate) fn recognizes(&self, headers: &HeaderMap) -> bool {
        self.0.sessions.of(headers).is_some()
    }

    pub(crate) fn routes(&self, door: Door, context: Option<Context>) -> Router {
        Router::new()
            .route("/", get(|| async { redirect("ui/") }))
            .route("/ui", get(|| async { redirect("ui/") }))
            .route("/ui/", get(first))
            .route("/ui/login", get(login::form).post(login::enter))
            .route("/ui/logout", post(login::leave))
            .route("/ui/assets/{name}", get(asset))
            .route("/ui/live/{*path}", get(stream::get))
            .route("/ui/{*path}", get(show).post(actions::act))
            .route("/v1/ui/links", post(login::link))
            .layer(middleware::from_fn(protect))
            .with_state(Ui { dashboard: self.clone(), door, context })
    }
}

impl Ui {
    fn sessions(&self) -> &Sessions {
        &self.dashboard.0.sessions
    }

    fn sampler(&self) -> &Arc<Sampler> {
        &self.dashboard.0.sampler
    }

    /// The request's session, if its token is still valid.
    async fn session(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let session = self.sessions().of(headers)?;
        // The list of tokens may be up to a second old, so a token that was created in the last
        // second may be missing from it.
        if self.door.still_knows(&session.token).await || self.still_may(&session).await.is_ok() {
            return Some(session);
        }
        None
    }

    /// Refuses the session if its token is no longer valid, according to the configuration and a
    /// fresh query of the store.
    async fn still_may(&self, session: &Session) -> Result<(), NoPage> {
        if self.door.knows_now(&session.token).await? {
            return Ok(());
        }
        self.sessions().end_all_of(&session.token);
        Err(NoPage::Forbidden("The token of this session is no longer valid."))
    }

    /// The data from which the page at `path` is rendered. `path` is relative to `/ui/` and has no
    /// suffix.
    fn asked<'a>(
        &'a self,
        path: &str,
        query: Option<&str>,
        session: &'a Session,
    ) -> Result<Asked<'a>, NoPage> {
        let node = self.dashboard.0.node.get();
        let starting = || NoPage::Unavailable("The server is starting.".to_owned());
        Ok(Asked {
            node: node.ok_or_else(starting)?,
            sampler: self.sampler(),
            query: pairs(query),
            up: if path.contains('/') { "../" } else { "" },
            session,
            calls: self.dashboard.0.calls.get(),
            context: self.context.as_ref(),
        })
    }

    /// Renders the page at `path`.
    async fn view(
        &self,
        path: &str,
        query: Option<&str>,
        session: &Session,
    ) -> Result<View, NoPage> {
        let asked = self.asked(path, query, session)?;
        match path.split('/').collect::<Vec<_>>()[..] {
            ["" | "now"] => Ok(now::view(&asked)),
            ["pools"] => Ok(pools::view(&asked)),
            ["pools", id] => pool::view(&asked, pool_id(id)?).await,
            ["number"] => number::view(&asked).await,
            ["calls"] => calls::list(&asked, asked.calls()?).await,
            ["calls", id] => calls::one(&asked, asked.calls()?, id).await,
            ["webhooks"] => calls::webhooks(&asked, asked.calls()?).await,
            ["sites"] => sites::list(&asked).await,
            ["sites", key] => sites::one(&asked, key).await,
            ["cluster"] => Ok(cluster::view(&asked)),
            _ => Err(NoPage::Missing("There is no such page.")),
        }
    }

    /// The figures that change while the page at `path` is open.
    async fn live(
        &self,
        path: &str,
        query: Option<&str>,
        session: &Session,
    ) -> Result<Live, NoPage> {
        if let Some(id) = path.strip_prefix("pools/") {
            // Does not render the whole page, because that requires slow calculations and a scan of
            // the pool's numbers.
            let asked = self.asked(path, query, session)?;
            return Ok(pool::live(&asked, pool_id(id)?).await);
        }
        Ok(self.view(path, query, session).await?.live)
    }
}

fn pool_id(text: &str) -> Result<PoolId, NoPage> {
    text.parse().map(PoolId).map_err(|_| NoPage::Missing("There is no such ring pool."))
}

async fn first(state: State<Ui>, headers: HeaderMap, uri: Uri) -> Response {
    show(state, Path(String::new()), headers, uri).await
}

/// Returns a page as HTML, JSON or CSV.
async fn show(
    State(ui): State<Ui>,
    Path(path): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let (path, form) = match path.rsplit_once('.') {
        Some((path, "json")) => (path, Form::Json),
        Some((path, "csv")) => (path, Form::Csv),
        _ => (&*path, Form::Html),
    };
    let up = if path.contains('/') { "../" } else { "" };
    let Some(session) = ui.session(&headers).await else {
        if form == Form::Html {
            return redirect(&format!("{up}login"));
        }
        return (StatusCode::UNAUTHORIZED, "not logged in: use the dashboard's login page\n")
            .into_response();
    };
    let has_calls = ui.dashboard.0.calls.get().is_some();
    let viewed = ui.view(path, uri.query(), &session).await;
    match (viewed, form) {
        (Ok(view), Form::Json) => axum::Json(view.data).into_response(),
        (Ok(view), Form::Csv) => {
            let kind = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];
            (kind, view.table.csv()).into_response()
        }
        (Ok(view), Form::Html) => {
            let frame = Frame { path, query: uri.query(), up, session: Some(&session), has_calls };
            let has_stream = !view.live.is_empty();
            page(&frame, &view.title, &view.body, has_stream).into_response()
        }
        (Err(error), form) => error.answer(form, up, &session, has_calls),
    }
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    assets::get(&name, &headers)
}

/// Redirects to another page. The address is relative, because a proxy may serve the dashboard
/// under another path.
fn redirect(to: &str) -> Response {
    let Ok(to) = HeaderValue::try_from(to) else { return StatusCode::NOT_FOUND.into_response() };
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// Adds headers that block foreign scripts and frames.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    let same = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-opener-policy", same.clone());
    headers.insert("cross-origin-resource-policy", same);
    response
}
