//! A cluster: its nodes, their shards and certificates, and the secret that the nodes share.
//!
//! Owns the contents of a cluster file; `cluster_file.rs` reads it. Independent of how nodes
//! communicate. Invariants: every shard with a number below [`ClusterMap::shards`] belongs to
//! exactly one node; the secret is never shown.

use std::fmt;
use std::path::{Path, PathBuf};

use ringwell_directory::{Fault, Owners, Placement};
use subtle::ConstantTimeEq;

use crate::values::Listen;

/// A node: one process, with its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its name: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its shards, in ascending order; at least one.
    pub shards: Vec<u16>,
    /// The address at which other nodes reach it.
    pub link: Listen,
    /// The addresses at which clients, or a proxy, reach it; at least one.
    pub listen: Vec<Listen>,
}

/// The nodes with their shards and addresses, and the owner of each bucket: everything in a cluster
/// file except the secret and the certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    version: u64,
    nodes: Vec<ClusterNode>,
    /// The node of each shard, as an index into `nodes`.
    node_of: Vec<usize>,
    placement: Placement,
}

impl ClusterMap {
    /// Returns `None` unless each shard of `placement` is on exactly one node, and no node has
    /// other shards.
    #[must_use]
    pub fn new(version: u64, nodes: Vec<ClusterNode>, placement: Placement) -> Option<Self> {
        let mut owned: Vec<(u16, usize)> = (0..)
            .zip(&nodes)
            .flat_map(|(place, node)| node.shards.iter().map(move |shard| (*shard, place)))
            .collect();
        owned.sort_unstable();
        let is_each_once = owned.iter().map(|(shard, _)| *shard).eq(0..placement.shards());
        let node_of = owned.into_iter().map(|(_, place)| place).collect();
        is_each_once.then_some(Self { version, nodes, node_of, placement })
    }

    /// The version of the map; a later map has a greater version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// All nodes, in the order in which the cluster file lists them.
    #[must_use]
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// The node called `name`, and its index in [`ClusterMap::nodes`].
    #[must_use]
    pub fn node(&self, name: &str) -> Option<(usize, &ClusterNode)> {
        self.nodes.iter().enumerate().find(|(_, node)| node.name == name)
    }

    /// The node that has `shard`, as an index into [`ClusterMap::nodes`].
    ///
    /// # Panics
    /// If the shard does not exist. Shards that come from this map or from its placement always
    /// exist.
    #[must_use]
    pub fn node_of(&self, shard: u16) -> usize {
        self.node_of[usize::from(shard)]
    }

    /// The total number of shards of all nodes.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.placement.shards()
    }

    /// The owner of each bucket.
    #[must_use]
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The owners of all buckets before any bucket was moved.
    #[must_use]
    pub fn owners(&self) -> Owners {
        Owners::at_first(self.version, &self.placement)
    }
}

/// A cluster with everything that its nodes need: the map, the secret and the certificates.
#[derive(Clone, Debug)]
pub struct Cluster {
    map: ClusterMap,
    secret: Secret,
    tls: Option<TlsFiles>,
    warnings: Vec<Fault>,
}

/// The certificates that identify nodes to each other on links over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The path of the authority's certificate. The authority signs the certificates of all nodes.
    pub(crate) authority: PathBuf,
    /// The path of each node's certificate; `{node}` is replaced by the node's name.
    pub(crate) certificate: PathBuf,
    /// The path of each node's key; `{node}` is also replaced here.
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// The path of the certificate for `node`, which must be issued for the node's name.
    #[must_use]
    pub fn certificate(&self, node: &str) -> PathBuf {
        of_node(&self.certificate, node)
    }

    /// The path of the key for `node`.
    #[must_use]
    pub fn key(&self, node: &str) -> PathBuf {
        of_node(&self.key, node)
    }
}

fn of_node(path: &Path, node: &str) -> PathBuf {
    path.to_string_lossy().replace("{node}", node).into()
}

impl Cluster {
    pub(crate) const fn new(
        map: ClusterMap,
        secret: Secret,
        tls: Option<TlsFiles>,
        warnings: Vec<Fault>,
    ) -> Self {
        Self { map, secret, tls, warnings }
    }

    /// Creates a cluster without a file, for simulations and tests. Its links are unencrypted.
    #[must_use]
    pub fn of_map(map: ClusterMap, secret: Secret) -> Self {
        Self::new(map, secret, None, Vec::new())
    }

    /// The certificates for links over TCP; `None` if those links are unencrypted.
    #[must_use]
    pub const fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// The map: everything except the secret and the certificates.
    #[must_use]
    pub const fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// See [`ClusterMap::version`].
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.map.version()
    }

    /// See [`ClusterMap::nodes`].
    #[must_use]
    pub fn nodes(&self) -> &[ClusterNode] {
        self.map.nodes()
    }

    /// See [`ClusterMap::node`].
    #[must_use]
    pub fn node(&self, name: &str) -> Option<(usize, &ClusterNode)> {
        self.map.node(name)
    }

    /// See [`ClusterMap::node_of`].
    ///
    /// # Panics
    /// If the shard does not exist.
    #[must_use]
    pub fn node_of(&self, shard: u16) -> usize {
        self.map.node_of(shard)
    }

    /// See [`ClusterMap::shards`].
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.map.shards()
    }

    /// See [`ClusterMap::placement`].
    #[must_use]
    pub const fn placement(&self) -> &Placement {
        self.map.placement()
    }

    /// The secret as it is sent: 16 to 256 bytes of printable ASCII without spaces. Not for logs.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret.0
    }

    /// Whether `presented` is the secret. The comparison time depends only on the lengths of the
    /// two texts.
    #[must_use]
    pub fn secret_matches(&self, presented: &[u8]) -> bool {
        self.secret.0.ct_eq(presented).into()
    }

    /// Warnings: faults that should be fixed but do not keep the cluster from running.
    #[must_use]
    pub fn warnings(&self) -> &[Fault] {
        &self.warnings
    }
}

/// A secret that two programs share: 16 to 256 bytes of printable ASCII without spaces.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// The minimum length of a secret that cannot be guessed.
    const BYTES_MIN: usize = 16;
    /// The maximum length: the secret must fit into a header.
    const BYTES_MAX: usize = 256;

    /// The secret itself. Not for logs.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// Reads a secret.
    ///
    /// # Errors
    /// The error describes the expected form and does not contain the secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&text.len()) {
            let (least, most) = (Self::BYTES_MIN, Self::BYTES_MAX);
            return Err(format!("must have {least} to {most} bytes, has {}", text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("must be printable ASCII without spaces".to_owned());
        }
        Ok(Self(text.as_bytes().into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
