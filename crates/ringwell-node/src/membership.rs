//! This process's place in a cluster: which shards are its own, and the way to the others.

use ringwell_directory::{Cluster, ClusterNode, Listen};

use crate::link::tls::{Tls, TlsError};

/// A node of a cluster. Without one, all shards are of this process.
#[derive(Clone, Debug)]
pub struct Membership {
    cluster: Cluster,
    /// This node's place among the cluster's.
    place: usize,
    tls: Option<Tls>,
}

/// A shard of another node.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    /// The shard.
    pub(crate) shard: u16,
    /// The name of its node.
    pub(crate) node: String,
    /// Where the node is asked.
    pub(crate) link: Listen,
}

impl Membership {
    /// The node called `name`; `None` if the cluster has none.
    ///
    /// # Errors
    /// [`TlsError`] if the certificates of its links cannot be used.
    pub fn new(cluster: Cluster, name: &str) -> Result<Option<Self>, TlsError> {
        let Some((place, _)) = cluster.node(name) else { return Ok(None) };
        let names = cluster.nodes().iter().map(|node| node.name.as_str());
        let tls = cluster.tls().map(|files| Tls::load(files, name, names)).transpose()?;
        Ok(Some(Self { cluster, place, tls }))
    }

    /// What links over TCP are made safe with.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// What the cluster's file says of this node.
    #[must_use]
    pub fn own(&self) -> &ClusterNode {
        &self.cluster.nodes()[self.place]
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The shards of the other nodes.
    pub(crate) fn others(&self) -> impl Iterator<Item = Neighbour> {
        let others = (0..).zip(self.cluster.nodes()).filter(|(place, _)| *place != self.place);
        others.flat_map(|(_, node)| {
            node.shards.iter().map(|shard| Neighbour {
                shard: *shard,
                node: node.name.clone(),
                link: node.link.clone(),
            })
        })
    }

    /// A shard of each other node.
    pub(crate) fn first_shards_of_others(&self) -> impl Iterator<Item = u16> {
        let nodes = self.cluster.nodes().iter().enumerate();
        let others = nodes.filter(|(place, _)| *place != self.place);
        others.filter_map(|(_, node)| node.shards.first().copied())
    }

    /// The cluster's secret as the value of the header `Authorization`.
    pub(crate) fn authorization(&self) -> Vec<u8> {
        [b"Bearer ", self.cluster.secret()].concat()
    }
}
