//! Links to other nodes as HTTP/1.1: connections out, requests in. The driver decides which rows
//! are sent when, and which answers return.

mod call;
mod clocks;
pub(crate) mod serve;
pub(crate) mod tls;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use ringwell_driver::link::{Way, to_others};
use ringwell_driver::queue::Peers;

use self::call::Calls;
pub(crate) use self::call::HttpNet;
use crate::platform::Tokio;
use crate::server::Server;

/// The links of the thread of shard `caller`; adds their queues to `peers`.
pub(crate) fn ways(server: &Server, caller: u16, peers: &mut Peers) -> Vec<Way<Tokio>> {
    let node = &server.node;
    // Of the links between two machines, one warns.
    let is_first = node.shards().next() == Some(caller);
    let known = RefCell::new(BTreeSet::new());
    to_others(&Tokio, node, caller, peers, |neighbour| {
        let warns = is_first && known.borrow_mut().insert(neighbour.node.clone());
        HttpNet(Rc::new(Calls::new(node, neighbour, server.links.clone(), warns)))
    })
}
