//! `ringwell haproxy`: a configuration of `HAProxy` for the nodes of a cluster.
//!
//! Owns its text, including the reasons for each setting: operators read that file and not this
//! one. Needs `HAProxy` 2.4 or later. Does not read the cluster's secret. Invariant: a request that
//! a node may have carried out is sent again only if the nodes can recognise it by its
//! `Idempotency-Key`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ringwell_directory::{ClusterMap, ClusterNode, Config, Fault, Listen, Overrides, load};

use crate::environment::{cores, variable};
use crate::print::print;
use crate::serve::show;

pub(crate) const HELP: &str = "\
Examples:
  ringwell haproxy --cluster cluster.toml >haproxy.cfg
  haproxy -c -f haproxy.cfg                            checks it
  ringwell haproxy --cluster cluster.toml --bind unix:/run/ringwell/proxy.sock";

/// The time after its deadline at which a node counts as hung; includes sending the answer and
/// waiting for a thread's turn.
const SLACK: Duration = Duration::from_millis(200);

/// The count of proxies that can share the nodes without exhausting a node's connections.
const PROXIES: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster whose nodes it spreads requests over, a TOML file
    #[arg(long, value_name = "FILE", env = "RINGWELL_CLUSTER")]
    cluster: PathBuf,
    /// The nodes' configuration, for deadline and limits; without it, their defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for clients: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:80")]
    bind: Listen,
    /// Socket for commands, to drain nodes
    #[arg(long, value_name = "PATH", default_value = "/run/haproxy/admin.sock")]
    stats_socket: PathBuf,
}

/// Prints the configuration. Prints faults of the files instead, if there are any.
///
/// # Errors
/// If the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let map = ClusterMap::load(&args.cluster);
    match (map, settings(args.config.as_deref())) {
        (Ok(map), Ok(config)) => print(render(&map, &config, args).as_bytes()),
        (Err(faults), Ok(_)) | (Ok(_), Err(faults)) => Ok(show(&faults)),
        (Err(of_map), Err(of_config)) => Ok(show(&[of_map, of_config].concat())),
    }
}

fn settings(path: Option<&Path>) -> Result<Config, Vec<Fault>> {
    match path {
        None => Ok(Config::new(PathBuf::new(), cores())),
        Some(path) => {
            // Only deadline and limits are read, because `data` may come from a node's flag or
            // variable.
            let flags = Overrides { data: Some(PathBuf::new()), ..Overrides::default() };
            load(path, variable, flags, cores()).map(|(config, _)| config)
        }
    }
}

fn render(map: &ClusterMap, config: &Config, args: &Args) -> String {
    let socket = args.stats_socket.display();
    let nodes: String = map.nodes().iter().map(|node| server(node, "")).collect();
    let followers: String = map
        .nodes()
        .iter()
        .map(|node| server(node, &format!(" track ringwell/{}", node.name)))
        .collect();
    let has_names = map.nodes().iter().any(|node| is_name(address(node)));
    [
        head(map, &socket.to_string()),
        global(config, &socket.to_string()),
        defaults(config),
        if has_names { RESOLVERS.to_owned() } else { String::new() },
        frontend(&args.bind),
        backend(config, &nodes),
        management(&followers),
    ]
    .join("")
}

/// The purpose of the file, and the commands for taking a node out.
fn head(map: &ClusterMap, socket: &str) -> String {
    let first = map.nodes().first().map_or("", |node| &node.name);
    format!(
        "\
# HAProxy before Ringwell: {} nodes, {} shards, version {} of the cluster file.
# Made by `ringwell haproxy`: change the cluster file and make it again, then
#   haproxy -c -f haproxy.cfg && systemctl reload haproxy
#
# To take node {first} out without errors for clients, and to bring it back:
#   echo 'set server ringwell/{first} state drain' | socat - {socket}
#   echo 'show servers conn ringwell' | socat - {socket}    until {first} has none in use
#   systemctl stop ringwell                                 on its machine
#   echo 'set server ringwell/{first} state ready' | socat - {socket}
# A node that is stopped undrained (SIGTERM, a crash) costs at most the batches on their way to it;
# those with an Idempotency-Key go to another node.

",
        map.nodes().len(),
        map.shards(),
        map.version()
    )
}

fn global(config: &Config, socket: &str) -> String {
    format!(
        "\
global
    # The account of Debian's package. It needs the right to the nodes' unix sockets, if they have
    # some. No chroot: it would hide those.
    user haproxy
    group haproxy
    # Commands come here. A reload takes the listening sockets over, so that no client is refused.
    stats socket {socket} mode 660 level admin expose-fd listeners
    log stdout format raw local0 notice
    # As many clients as one node takes: limits.connections. It does not start unless it may open
    # twice as many files (ulimit -n; systemd allows 524288).
    maxconn {connections}
    # Requests are sent again only if they fit; a batch of 500 rows mostly does. Taken when needed.
    tune.bufsize 131072
    # Checks of several proxies and nodes do not fall together.
    spread-checks 20

",
        connections = config.limits.connections
    )
}

fn defaults(config: &Config) -> String {
    format!(
        "\
defaults
    mode http
    log global
    # A line for each request would cost more than the request: only what failed is logged.
    option httplog
    option dontlog-normal
    # The whole request is here before a node is asked: slow clients hold no node.
    option http-buffer-request
    timeout http-request {head}ms
    # Between two requests of a client, and for a client that takes its answer slowly.
    timeout http-keep-alive {idle}ms
    timeout client {write}ms
    # A node that does not take a connection in half a deadline is not the one to wait for; nor is a
    # place in the queue.
    timeout connect {half}ms
    timeout queue {half}ms
    # A node that does not answer a check in this time has failed it.
    timeout check 250ms
    # A connection that could not be made has carried nothing: another node is tried at once, for
    # any request.
    retries 2
    option redispatch 1
    retry-on conn-failure

",
        head = config.limits.head_timeout.as_millis(),
        idle = config.limits.idle_timeout.as_millis(),
        write = config.limits.write_timeout.as_millis(),
        half = (config.deadline / 2).as_millis().max(1),
    )
}

/// Needed for nodes given by name, because their addresses may change while the proxy runs.
const RESOLVERS: &str = "\
# Nodes that the cluster file names by host: their addresses are looked up again and again. Write
# full names there, as no search domain is added.
resolvers system
    parse-resolv-conf
    hold valid 5s

";

fn frontend(bind: &Listen) -> String {
    let bind = match bind {
        Listen::Unix(path) => format!("unix@{} mode 666", path.display()),
        Listen::Tcp { .. } => bind.to_string(),
    };
    format!(
        "\
frontend clients
    bind {bind}
    # For a balancer in front of this proxy: 200 as long as one node serves.
    monitor-uri /proxyz
    monitor fail if {{ nbsrv(ringwell) lt 1 }}
    # Metrics and health of single nodes are asked at the nodes. /rw. and /site/v1/ are for web pages:
    # the script with or without its hash, and its requests.
    http-request return status 404 unless {{ path_beg /api/ /v1/ /site/v1/ /rw. }}
    # Numbers of pages are limited by address: nodes that name this proxy in trusted_proxies read it here.
    http-request add-header X-Forwarded-For %[src] if {{ path_beg /site/v1/ }} {{ src -m found }}
    use_backend management if {{ path_beg /v1/ }}
    default_backend ringwell

"
    )
}

fn backend(config: &Config, nodes: &str) -> String {
    format!(
        "\
backend ringwell
    # Any node takes any batch and asks the others for their rows, so that the plainest way to
    # spread them is the best. The weight is how many shards, which is threads, a node has.
    balance roundrobin
    # Connections to nodes are kept and serve the next client.
    http-reuse always
    # An answer comes within the deadline ({deadline} ms), if need be with overflow numbers. A node
    # that is {slack} ms later hangs.
    timeout server {server}ms
    # A kept connection may end just as a request goes out, and a node may hang. Nobody knows then
    # whether it has read the request. Batches with an Idempotency-Key are recognised by every
    # node: they are sent again. All others are not, as that could spend numbers twice.
    retry-on conn-failure empty-response response-timeout
    acl is_recognised req.hdr(idempotency-key) -m found
    http-request disable-l7-retry unless METH_POST is_recognised
    # Out after two failed checks (0.3 s), or one and three failed connections; back after two good
    # ones. A node that stops, or whose disk is full, says so by /readyz. What is in flight to it is
    # not cut.
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 250ms fastinter 50ms downinter 250ms fall 2 rise 2
    default-server observe layer4 error-limit 3 on-error fail-check
    # In flight to a node at once: limits.connections over {PROXIES}, so that so many proxies can share
    # the nodes. More wait here.
    default-server maxconn {maxconn}
{nodes}
",
        deadline = config.deadline.as_millis(),
        slack = SLACK.as_millis(),
        server = (config.deadline + SLACK).as_millis(),
        maxconn = (config.limits.connections / PROXIES).max(1),
    )
}

fn management(nodes: &str) -> String {
    format!(
        "\
# Look-ups and releases: they may read history from the disk, and nobody's page waits for them.
# Nodes are in and out as above.
backend management
    balance roundrobin
    timeout server 30s
{nodes}"
    )
}

/// A node as a server of a backend.
fn server(node: &ClusterNode, more: &str) -> String {
    let address = address(node);
    let resolve = if is_name(address) {
        // Starts even if a name cannot be resolved yet.
        " resolvers system init-addr last,libc,none"
    } else {
        ""
    };
    let address = match address {
        Listen::Unix(path) => format!("unix@{}", path.display()),
        Listen::Tcp { .. } => address.to_string(),
    };
    format!("    server {} {address} weight {}{resolve}{more}\n", node.name, node.shards.len())
}

/// The address of a node for the proxy: a unix socket costs less than TCP.
fn address(node: &ClusterNode) -> &Listen {
    let local = node.listen.iter().find(|address| matches!(address, Listen::Unix(_)));
    // A node has at least one address; the address of its links would refuse the request.
    local.or(node.listen.first()).unwrap_or(&node.link)
}

fn is_name(address: &Listen) -> bool {
    matches!(address, Listen::Tcp { host, .. } if host.parse::<std::net::IpAddr>().is_err())
}
