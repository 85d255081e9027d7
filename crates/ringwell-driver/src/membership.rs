//! This process's membership in a cluster: its own shards, and the links to the other shards.

use ringwell_config::{Cluster, ClusterNode, Listen};

/// This process as a node of a cluster. Without a cluster, this process owns all shards.
#[derive(Clone, Debug)]
pub struct Membership {
    cluster: Cluster,
    /// This node's index in the cluster's list of nodes.
    place: usize,
}

/// Another node's shard.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The shard.
    pub shard: u16,
    /// The name of the shard's node.
    pub node: String,
    /// The address at which other nodes reach this shard's node.
    pub link: Listen,
}

impl Membership {
    /// Creates the membership of the node whose name is `name`. Returns `None` if the cluster has
    /// no such node.
    #[must_use]
    pub fn new(cluster: Cluster, name: &str) -> Option<Self> {
        let (place, _) = cluster.node(name)?;
        Some(Self { cluster, place })
    }

    /// Returns this node's entry in the cluster file.
    #[must_use]
    pub fn own(&self) -> &ClusterNode {
        &self.cluster.nodes()[self.place]
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the other nodes' shards.
    pub fn others(&self) -> impl Iterator<Item = Neighbour> {
        let others = (0..).zip(self.cluster.nodes()).filter(|(place, _)| *place != self.place);
        others.flat_map(|(_, node)| {
            node.shards.iter().map(|shard| Neighbour {
                shard: *shard,
                node: node.name.clone(),
                link: node.link.clone(),
            })
        })
    }

    /// Returns one shard of each other node.
    pub fn first_shards_of_others(&self) -> impl Iterator<Item = u16> {
        let nodes = self.cluster.nodes().iter().enumerate();
        let others = nodes.filter(|(place, _)| *place != self.place);
        others.filter_map(|(_, node)| node.shards.first().copied())
    }

    /// Returns the cluster secret as the value of the `Authorization` header.
    #[must_use]
    pub fn authorization(&self) -> Vec<u8> {
        [b"Bearer ", self.cluster.secret()].concat()
    }
}
