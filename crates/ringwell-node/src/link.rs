//! Links to other nodes over HTTP/1.1: the outgoing connections and the incoming requests.
//! `ringwell-driver` decides which rows are sent, when they are sent, and which answers are
//! returned to clients.

pub(crate) mod call;
pub(crate) mod clocks;
pub(crate) mod serve;
pub(crate) mod tls;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use ringwell_driver::link::{Way, to_others};
use ringwell_driver::membership::Neighbour;
use ringwell_driver::queue::Peers;

use self::call::{Calls, HttpNet};
use crate::platform::Tokio;
use crate::server::Server;

/// Creates the links for the thread of shard `caller`, and adds their queues to `peers`.
pub(crate) fn ways(server: &Server, caller: u16, peers: &mut Peers) -> Vec<Way<Tokio>> {
    let node = &server.node;
    // Of all links between two machines, only one logs warnings about clocks.
    let is_first = node.shards().next() == Some(caller);
    let known = RefCell::new(BTreeSet::new());
    to_others(&Tokio, node, caller, peers, |neighbour| {
        let warns = is_first && known.borrow_mut().insert(neighbour.node.clone());
        let clocks = (warns, &server.clocks);
        HttpNet(Rc::new(Calls::new(node, neighbour, server.links.clone(), clocks)))
    })
}

/// Creates a connection to a node of the previous cluster file.
pub(crate) fn to_former(server: &Server, neighbour: &Neighbour) -> HttpNet {
    let clocks = (false, &server.clocks);
    HttpNet(Rc::new(Calls::new(&server.node, neighbour, server.links.clone(), clocks)))
}
