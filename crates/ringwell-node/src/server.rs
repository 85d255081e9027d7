//! The state that the process's threads share to serve HTTP, in addition to the driver's [`Node`].

use std::sync::Arc;

use ringwell_config::Durability;
use ringwell_driver::node::{Drills, Node};

use crate::application::Application;
use crate::link::clocks::Estimates;
use crate::link::tls::Tls;
use crate::memory::{Bodies, bodies_bytes};
use crate::secure::Secure;
use crate::site::sites::Sites;

/// The state that all threads share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) node: Arc<Node>,
    pub(crate) application: Option<Arc<Application>>,
    pub(crate) sites: Sites,
    /// The TLS settings for clients, if any listener for clients uses TLS.
    pub(crate) secure: Option<Secure>,
    /// The TLS settings for links over TCP.
    pub(crate) links: Option<Tls>,
    /// The differences between the clocks of other machines and this one's.
    pub(crate) clocks: Estimates,
    /// The memory for the bodies of clients' requests.
    pub(crate) bodies: Bodies,
}

impl Server {
    pub(crate) fn new(node: &Arc<Node>, secure: Option<Secure>, links: Option<Tls>) -> Self {
        let config = &node.config;
        let data = (config.durability != Durability::Memory).then_some(config.data.as_path());
        let application = config.application.clone();
        let application = application.map(|it| Arc::new(Application::new(it, data)));
        let sites = Sites::default();
        let limits = &config.limits;
        let bodies = limits.bodies_bytes.unwrap_or_else(|| bodies_bytes(limits.body_bytes));
        let bodies = Bodies::new(bodies);
        let clocks = Estimates::default();
        Self { node: Arc::clone(node), application, sites, secure, links, clocks, bodies }
    }
}

/// Returns, for tests, the strings that cause a panic if a request contains them. They are read
/// from two environment variables: `RINGWELL_DRILL_PANIC_ON`, and
/// `RINGWELL_DRILL_PANIC_AT_OWNER_ON` for a panic on the shard that owns a row.
pub(crate) fn drills() -> Drills {
    let text = |variable| std::env::var(variable).ok().map(String::into_bytes);
    Drills {
        panic_on: text("RINGWELL_DRILL_PANIC_ON"),
        panic_at_owner_on: text("RINGWELL_DRILL_PANIC_AT_OWNER_ON"),
    }
}
