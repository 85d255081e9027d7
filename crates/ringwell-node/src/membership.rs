//! This process's membership in a cluster, with the certificates of its links.

use ringwell_config::{Cluster, ClusterNode};
use ringwell_driver::membership;

use crate::link::tls::{Tls, TlsError};

/// A node's membership in a cluster. A process without a membership has all shards.
#[derive(Clone, Debug)]
pub struct Membership {
    pub(crate) member: membership::Membership,
    pub(crate) tls: Option<Tls>,
}

impl Membership {
    /// Creates the membership of the node `name`; `None` if the cluster has no such node.
    ///
    /// # Errors
    /// Returns a [`TlsError`] if the certificates of the node's links cannot be used.
    pub fn new(cluster: Cluster, name: &str) -> Result<Option<Self>, TlsError> {
        let Some(member) = membership::Membership::new(cluster, name) else { return Ok(None) };
        let cluster = member.cluster();
        let names = cluster.nodes().iter().map(|node| node.name.as_str());
        let tls = cluster.tls().map(|files| Tls::load(files, name, names)).transpose()?;
        Ok(Some(Self { member, tls }))
    }

    /// This node's entry in the cluster file.
    #[must_use]
    pub fn own(&self) -> &ClusterNode {
        self.member.own()
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.member.cluster()
    }
}
