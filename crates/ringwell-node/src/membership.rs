//! This process's place in a cluster: which shards are its own, and the way to the others.

use std::fmt;

use ringwell_directory::Listen;
use subtle::ConstantTimeEq;

/// What a node knows of its cluster. Without one, all shards are of this process.
#[derive(Clone, Debug)]
pub struct Membership {
    /// What this node is called.
    pub node: String,
    /// Its shards, in rising order.
    pub shards: Vec<u16>,
    /// Where the other nodes ask it.
    pub link: Listen,
    /// The shards of the other nodes: their node's name, and where it is asked.
    pub others: Vec<Neighbour>,
    /// What every node of the cluster knows, and nobody else.
    pub secret: Secret,
    /// Which state of the map this is.
    pub map_version: u64,
}

/// A shard of another node.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The shard.
    pub shard: u16,
    /// The name of its node.
    pub node: String,
    /// Where the node is asked.
    pub link: Listen,
}

/// What nodes of a cluster know each other by. Never shown.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Takes it as it stands in a file.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(secret.into())
    }

    /// Whether `presented` is it, in a time that depends on nothing but the length presented.
    #[must_use]
    pub(crate) fn matches(&self, presented: &[u8]) -> bool {
        self.0.ct_eq(presented).into()
    }

    /// As the value of the header `Authorization`.
    pub(crate) fn authorization(&self) -> Vec<u8> {
        [b"Bearer ", &*self.0].concat()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
