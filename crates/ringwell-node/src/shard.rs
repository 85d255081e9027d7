//! A shard that serves HTTP: the driver's shard, its clients' connections, and the state that all
//! threads of the server share.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::conn::Connections;
use crate::platform::Tokio;
use crate::server::Server;

/// The driver's shard, on a thread of the server.
pub(crate) type ShardThread = ringwell_driver::Shard<Tokio>;

/// A shard that serves clients.
#[derive(Debug)]
pub(crate) struct HttpShard {
    shard: Rc<ShardThread>,
    pub(crate) server: Arc<Server>,
    pub(crate) connections: Rc<Connections>,
}

impl HttpShard {
    pub(crate) fn new(shard: Rc<ShardThread>, server: Arc<Server>) -> Self {
        Self { shard, server, connections: Rc::default() }
    }
}

impl Deref for HttpShard {
    type Target = Rc<ShardThread>;

    fn deref(&self) -> &Rc<ShardThread> {
        &self.shard
    }
}
