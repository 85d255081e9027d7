//! The state that all handlers share.

use std::sync::Arc;

use ringwell_config::Site;
use ringwell_store::{Change, Store, StoreError};

use crate::access::{Door, Visitor};
use crate::running_server::RunningServer;

/// The state that handlers share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) live: Arc<dyn RunningServer>,
    pub(crate) door: Door,
}

impl Context {
    /// Begins a change by `visitor`, limited to the network of the visitor's token.
    pub(crate) async fn change(&self, visitor: &Visitor) -> Result<Change, StoreError> {
        let change = self.store.change(&visitor.who, self.live.now()).await?;
        Ok(change.limited_to(visitor.network()))
    }

    /// The web site in the configuration that has the key `key`.
    pub(crate) fn configured_site(&self, key: &str) -> Option<Site> {
        self.live.configured_sites().into_iter().find(|site| site.key == key)
    }
}
