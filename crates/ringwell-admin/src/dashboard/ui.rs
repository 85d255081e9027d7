//! A node's dashboard, and the state that the handlers of its pages share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;
use ringwell_calls::{Attributed, EndpointCounts, Service, Waiting};
use ringwell_directory::TokenHash;
use ringwell_node::Handle;

use super::asked::{Asked, NoPage, pairs};
use super::figures::Figures;
use super::sample::Sampler;
use super::session::{Session, Sessions};
use crate::access::{Door, Visitor};
use crate::context::Context;
use crate::loads::SharedLoads;

/// The dashboard of one node. Clones share it.
#[derive(Clone)]
pub struct Dashboard(pub(super) Arc<Inner>);

pub(super) struct Inner {
    /// Empty until the node runs.
    pub(super) node: OnceLock<Handle>,
    /// Empty if no calls are accepted.
    pub(super) calls: OnceLock<Service>,
    sampler: Arc<Sampler>,
    pub(super) figures: Figures,
    sessions: Sessions,
}

/// The state that handlers share.
#[derive(Clone)]
pub(super) struct Ui {
    pub(super) dashboard: Dashboard,
    pub(super) door: Door,
    /// Applies changes. `None` if pools come from the configuration.
    pub(super) context: Option<Context>,
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

    /// Starts serving the node's pages. Only the first invocation has an effect.
    pub fn attach(&self, node: Handle) {
        // Any later call comes from another thread of the same node.
        let _ = self.0.node.set(node);
    }

    /// Adds the pages about calls. Only the first invocation has an effect.
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

    /// The counts of completed attributions, by result. Empty if no calls are accepted.
    pub(crate) fn attributed(&self) -> Vec<(Attributed, u64)> {
        self.0.calls.get().map(|calls| calls.attributed().collect()).unwrap_or_default()
    }

    /// The counts of the endpoints that receive call events.
    pub(crate) fn endpoints(&self) -> EndpointCounts {
        self.0.calls.get().map(Service::endpoints).unwrap_or_default()
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
        let code = self.0.sessions.link(Visitor::configured(&token), token)?;
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
}

impl Ui {
    pub(super) fn sessions(&self) -> &Sessions {
        &self.dashboard.0.sessions
    }

    pub(super) fn sampler(&self) -> &Arc<Sampler> {
        &self.dashboard.0.sampler
    }

    /// The request's session, if its token is still valid.
    pub(super) async fn session(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
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
    pub(super) async fn still_may(&self, session: &Session) -> Result<(), NoPage> {
        if self.door.knows_now(&session.token).await? {
            return Ok(());
        }
        self.sessions().end_all_of(&session.token);
        Err(NoPage::Forbidden("This session's token is no longer valid."))
    }

    /// The data that the page at `path` is rendered from. `path` is relative to `/ui/` and has no
    /// suffix.
    pub(super) fn asked<'a>(
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
}
