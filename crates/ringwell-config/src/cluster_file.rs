//! Cluster files: the nodes of a cluster, their shards, and the owner of each bucket.
//!
//! Owns the fields of these files and the rules that relate the fields to each other. Independent
//! of a single server's configuration. Invariant: no fault and no warning shows the secret.

mod buckets;
mod secret;
mod tls;

pub(super) use self::secret::read_file as read_secret_file;

use std::collections::BTreeMap;
use std::path::Path;

use ringwell_directory::Fault;
use toml::de::DeValue;

use super::fields::{text, whole};
use super::limits;
use super::section::Section;
use super::toml_file::{parse, read_bytes, unreadable};
use super::values::ValueError;
use crate::{Cluster, ClusterMap, ClusterNode, Listen};

const NAME_BYTES_MAX: usize = 64;
const NODE_HINT: &str = "write [[node]], and below it name, shards, link and listen";

impl Cluster {
    /// Reads a cluster file. A relative `secret_file` is relative to the file's directory.
    ///
    /// # Errors
    /// All faults, sorted by line.
    pub fn load(path: &Path) -> Result<Self, Vec<Fault>> {
        let (map, ((secret, warnings), tls)) = read(path, |file| {
            let (secret, tls) = (secret::read(file, path), tls::read(file, path));
            secret.zip(Some(tls))
        })?;
        Ok(Self::new(map, secret, tls, warnings))
    }
}

impl ClusterMap {
    /// Reads a cluster file without its secret, for programs that are not nodes.
    ///
    /// # Errors
    /// All faults except those in the secret and the certificates, sorted by line.
    pub fn load(path: &Path) -> Result<Self, Vec<Fault>> {
        let (map, ()) = read(path, |file| {
            secret::skip(file);
            tls::skip(file);
            Some(())
        })?;
        Ok(map)
    }
}

/// Reads the file at `path`, and calls `secret` to read its secret.
fn read<S>(
    path: &Path,
    secret: impl FnOnce(&mut Section<'_, '_>) -> Option<S>,
) -> Result<(ClusterMap, S), Vec<Fault>> {
    let bytes = read_bytes(path).map_err(|error| vec![unreadable(path, &error)])?;
    let (source, table) = parse(path, &bytes)?;
    let mut file = Section::new(&source, String::new(), 0, table);
    let version = file.require("version", "write version = 1", whole(&limits::MAP_VERSION));
    let secret = secret(&mut file);
    let nodes = read_nodes(&mut file);
    let shards = nodes.as_ref().map(|nodes| nodes.iter().map(|node| node.shards.len()).sum());
    let placement = buckets::read(&mut file, shards);
    file.finish();
    let map = version
        .zip(nodes)
        .zip(placement)
        .and_then(|((version, nodes), placement)| ClusterMap::new(version, nodes, placement));
    let mut faults = source.into_faults();
    faults.sort_by_key(|fault| fault.line);
    match map.zip(secret) {
        Some(read) if faults.is_empty() => Ok(read),
        _ => Err(faults),
    }
}

/// Reads the nodes; returns `None` if one of them is invalid, or if they contradict each other.
fn read_nodes(file: &mut Section<'_, '_>) -> Option<Vec<ClusterNode>> {
    let mut sections = file.sections("node");
    if sections.is_empty() {
        let message =
            if file.has("node") { "must contain at least one node" } else { "is missing" };
        file.fault("node", ValueError::new(message).hint(NODE_HINT));
        return None;
    }
    let nodes: Vec<_> = sections.iter_mut().map(read_node).collect();
    let fit = [
        distinct_names(&sections, &nodes),
        distinct_addresses(&sections, &nodes),
        complete_shards(&sections, &nodes),
    ];
    sections.into_iter().for_each(Section::finish);
    let nodes: Option<Vec<_>> = nodes.into_iter().map(Fields::node).collect();
    nodes.filter(|_| fit == [true; 3])
}

/// The fields of a node. Each is `None` if it could not be read.
#[derive(Debug)]
struct Fields {
    name: Option<String>,
    shards: Option<Vec<u16>>,
    link: Option<Listen>,
    listen: Option<Vec<Listen>>,
}

impl Fields {
    fn node(self) -> Option<ClusterNode> {
        let Self { name, shards, link, listen } = self;
        let mut shards = shards?;
        shards.sort_unstable();
        Some(ClusterNode { name: name?, shards, link: link?, listen: listen? })
    }
}

fn read_node(section: &mut Section<'_, '_>) -> Fields {
    Fields {
        name: section.require("name", "write e.g. name = \"a\"", text(parse_name)),
        shards: read_list(section, "shards", "write e.g. [0, 1]", whole(&limits::SHARD)),
        link: section.require("link", "write e.g. \"10.0.0.1:9000\"", text(parse_address)),
        listen: read_list(section, "listen", "write e.g. [\"10.0.0.1:8080\"]", text(parse_address)),
    }
}

/// Reads a required list, which must not be empty.
fn read_list<T>(
    section: &mut Section<'_, '_>,
    field: &'static str,
    hint: &str,
    read: impl Fn(&DeValue<'_>) -> Result<T, ValueError>,
) -> Option<Vec<T>> {
    let list = section.take_list(field, read);
    section.miss(field, hint);
    if list.as_ref().is_some_and(Vec::is_empty) {
        section.fault(field, ValueError::new("must not be empty").hint(hint));
        return None;
    }
    list
}

/// Reads a node's name, which appears in logs, in metrics and in proxy configurations.
fn parse_name(name: &str) -> Result<String, ValueError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(name.to_owned());
    }
    Err(ValueError::new(format!("must be 1 to {NAME_BYTES_MAX} letters, digits, -, _ and .")))
}

/// Reads an address that other machines can connect to. An address that is only suitable for
/// listening is refused.
fn parse_address(address: &str) -> Result<Listen, ValueError> {
    let address: Listen = address.parse()?;
    let is_any = |host: &str| host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_unspecified());
    let message = match &address {
        Listen::Tcp { port: 0, .. } => "must have a fixed port",
        Listen::Tcp { host, .. } if is_any(host) => {
            "must be an address that other machines can reach"
        }
        Listen::Unix(path) if path.is_relative() => {
            "must be an absolute path, because nodes run in different directories"
        }
        _ => return Ok(address),
    };
    Err(ValueError::new(message).hint("write e.g. \"10.0.0.1:8080\" or \"unix:/run/ringwell/a\""))
}

fn distinct_names(sections: &[Section<'_, '_>], nodes: &[Fields]) -> bool {
    let mut seen = BTreeMap::new();
    let named = sections.iter().zip(nodes).filter_map(|(s, node)| Some((s, node.name.as_ref()?)));
    let mut fits = true;
    for (section, name) in named {
        if let Some(line) = seen.insert(name, section.line_of("name")) {
            let error = ValueError::new(format!("is already used by the node on line {line}"));
            section.fault("name", error.hint("give each node a different name"));
            fits = false;
        }
    }
    fits
}

fn distinct_addresses(sections: &[Section<'_, '_>], nodes: &[Fields]) -> bool {
    let mut seen = BTreeMap::new();
    let mut fits = true;
    for (section, node) in sections.iter().zip(nodes) {
        let links = node.link.iter().map(|address| ("link", address));
        let listens = node.listen.iter().flatten().map(|address| ("listen", address));
        for (field, address) in links.chain(listens) {
            let line = section.line_of(field);
            if let Some(other) = seen.insert(address.to_string(), line) {
                let message = format!("contains {address}, which line {other} already contains");
                section.fault(field, ValueError::new(message).hint("use each address only once"));
                fits = false;
            }
        }
    }
    fits
}

/// Checks that the shards are numbered 0, 1 and so on, and that each is listed exactly once.
fn complete_shards(sections: &[Section<'_, '_>], nodes: &[Fields]) -> bool {
    let mut lines = BTreeMap::new();
    let mut last: Option<(u16, &Section<'_, '_>)> = None;
    let mut fits = true;
    for (section, node) in sections.iter().zip(nodes) {
        for shard in node.shards.iter().flatten() {
            if let Some(line) = lines.insert(*shard, section.line_of("shards")) {
                let error = ValueError::new(format!(
                    "contains shard {shard}, which line {line} already contains"
                ));
                section.fault("shards", error.hint("assign each shard to only one node"));
                fits = false;
            }
            if last.is_none_or(|(greatest, _)| *shard > greatest) {
                last = Some((*shard, section));
            }
        }
    }
    // If a list could not be read, it may contain the shards that seem to be missing.
    let Some((greatest, section)) = last.filter(|_| nodes.iter().all(|n| n.shards.is_some()))
    else {
        return false;
    };
    let missing: Vec<_> =
        (0..greatest).filter(|s| !lines.contains_key(s)).map(|s| s.to_string()).collect();
    if !missing.is_empty() {
        let message = format!("contains shard {greatest}, but no node has {}", missing.join(", "));
        let hint = "number the shards from 0 without gaps";
        section.fault("shards", ValueError::new(message).hint(hint));
    }
    fits && missing.is_empty()
}

#[cfg(test)]
mod tests;
