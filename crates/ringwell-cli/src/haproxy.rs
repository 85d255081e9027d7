//! `ringwell haproxy`: prints an `HAProxy` configuration for a cluster's nodes.
//!
//! Contains the text of the configuration, including the reason for each setting, because operators
//! read the generated file and not this source file. Does not read the cluster's secret. The
//! configuration requires `HAProxy` 2.4 or later. Invariant: a request that a node may have carried
//! out is sent again only if its `Idempotency-Key` lets the nodes recognize it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ringwell_config::{ClusterMap, ClusterNode, Config, Listen, Overrides, load};
use ringwell_directory::Fault;

use crate::environment::{cores, variable};
use crate::faults::{NAME_CLUSTER, show_with_advice};
use crate::print::print;

pub(crate) const HELP: &str = "\
Examples:
  ringwell haproxy --cluster cluster.toml >haproxy.cfg
  haproxy -c -f haproxy.cfg                            # check the file
  ringwell haproxy --cluster cluster.toml --bind unix:/run/ringwell/proxy.sock";

/// The time that a node may take beyond the deadline before it is considered hung. In this time,
/// the node can wait for a free thread and send the answer.
const SLACK: Duration = Duration::from_millis(200);

/// The number of proxies that can share the nodes without exhausting a node's connections.
const PROXIES: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster file (TOML) that lists the nodes
    #[arg(long, value_name = "FILE", env = "RINGWELL_CLUSTER")]
    cluster: PathBuf,
    /// The nodes' configuration, which sets the deadline and the limits; without it, the defaults
    /// are used
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for clients: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:80", value_parser = parse_bind)]
    bind: Listen,
    /// Path of the socket for commands to `HAProxy`, for example to drain a node
    #[arg(long, value_name = "PATH", default_value = "/run/haproxy/admin.sock", value_parser = parse_path)]
    stats_socket: String,
}

/// Parses a path that may be written into the configuration without quotes.
fn parse_path(path: &str) -> Result<String, &'static str> {
    let is_plain = |c: char| !(c.is_whitespace() || c.is_control() || "\"'\\#$".contains(c));
    if !path.is_empty() && path.chars().all(is_plain) {
        Ok(path.to_owned())
    } else {
        Err("must be a path without spaces, quotes, backslashes, # or $")
    }
}

fn parse_bind(address: &str) -> Result<Listen, String> {
    let listen: Listen = address.parse().map_err(|error| format!("{error}"))?;
    match &listen {
        Listen::Unix(_) => parse_path(address).map(|_| listen).map_err(str::to_owned),
        Listen::Tcp { .. } => Ok(listen),
    }
}

/// Prints the configuration. If the cluster file or the nodes' configuration has faults, prints the
/// faults instead.
///
/// # Errors
/// If the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let map = ClusterMap::load(&args.cluster);
    let config = settings(args.config.as_deref());
    if let (Ok(map), Ok(config)) = (&map, &config) {
        return print(render(map, config, args).as_bytes());
    }
    if let Err(faults) = map {
        show_with_advice(&faults, &args.cluster, NAME_CLUSTER);
    }
    if let (Err(faults), Some(path)) = (config, &args.config) {
        show_with_advice(&faults, path, "set --config to the nodes' configuration");
    }
    Ok(ExitCode::FAILURE)
}

fn settings(path: Option<&Path>) -> Result<Config, Vec<Fault>> {
    match path {
        None => Ok(Config::new(PathBuf::new(), cores())),
        Some(path) => {
            // `data` is set to a placeholder, because the configuration may lack it: a node may get
            // `data` from a flag or variable. Only the deadline and the limits are used.
            let flags = Overrides { data: Some(PathBuf::new()), ..Overrides::default() };
            load(path, variable, flags, cores()).map(|(config, _)| config)
        }
    }
}

fn render(map: &ClusterMap, config: &Config, args: &Args) -> String {
    let socket = &args.stats_socket;
    let nodes: String = map.nodes().iter().map(|node| server(node, "")).collect();
    let followers: String = map
        .nodes()
        .iter()
        .map(|node| server(node, &format!(" track ringwell/{}", node.name)))
        .collect();
    let has_names = map.nodes().iter().any(|node| is_name(address(node)));
    [
        head(map, socket),
        global(config, socket),
        defaults(config),
        if has_names { RESOLVERS.to_owned() } else { String::new() },
        frontend(&args.bind),
        backend(config, &nodes),
        management(&followers),
    ]
    .join("")
}

/// Returns the comment at the head of the configuration: its purpose, and the commands that take a
/// node out of service.
fn head(map: &ClusterMap, socket: &str) -> String {
    let first = map.nodes().first().map_or("", |node| &node.name);
    format!(
        "\
# HAProxy in front of Ringwell: {} nodes, {} shards, version {} of the cluster file.
# Generated by `ringwell haproxy`: change the cluster file, generate this file again, and run
#   haproxy -c -f haproxy.cfg && systemctl reload haproxy
#
# To take node {first} out of service without errors for clients, and to bring it back:
#   echo 'set server ringwell/{first} state drain' | socat - {socket}
#   echo 'show servers conn ringwell' | socat - {socket}    until {first} has no connections in use
#   systemctl stop ringwell                                 on its machine
#   echo 'set server ringwell/{first} state ready' | socat - {socket}
# If a node stops without being drained (SIGTERM, a crash), only the batches in progress on it can
# fail. Batches with an Idempotency-Key are sent again to another node.

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
    # The account that Debian's package creates. It needs permission for the nodes' unix sockets, if
    # there are any. No chroot is set, because it would hide these sockets.
    user haproxy
    group haproxy
    # The socket for commands. During a reload, the new process takes over the listening sockets, so
    # no client is refused.
    stats socket {socket} mode 660 level admin expose-fd listeners
    log stdout format raw local0 notice
    # As many clients as one node accepts: limits.connections. HAProxy does not start unless it is
    # allowed to open twice as many files (ulimit -n; systemd allows 524288).
    maxconn {connections}
    # A request can only be sent again if it fits into this buffer, as most batches of 500 rows do. The
    # memory is allocated when it is needed.
    tune.bufsize 131072
    # Spreads the checks of several proxies and nodes over time.
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
    # A log line for each request would cost more than the request: only failures are logged.
    option httplog
    option dontlog-normal
    # A request is read completely before it is sent to a node: slow clients do not occupy nodes.
    option http-buffer-request
    timeout http-request {head}ms
    # The time limits for a client to send its next request, and to read an answer.
    timeout http-keep-alive {idle}ms
    timeout client {write}ms
    # Do not wait longer than half the deadline for a connection to a node, or for a place in the queue.
    timeout connect {half}ms
    timeout queue {half}ms
    # A check that a node does not answer within this time has failed.
    timeout check 250ms
    # If a connection could not be made, nothing was sent: another node is tried at once, for any
    # request.
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

/// The section that resolves nodes' host names repeatedly, because a node's address may change
/// while the proxy runs.
const RESOLVERS: &str = "\
# For nodes whose addresses in the cluster file are host names: the names are resolved repeatedly.
# Write full names in that file, because no search domain is added.
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
    # For a load balancer in front of this proxy: answers 200 as long as at least one node is up.
    monitor-uri /proxyz
    monitor fail if {{ nbsrv(ringwell) lt 1 }}
    # Metrics and health are available only from each node itself. /rw. and /site/v1/ serve web
    # pages: the script, with or without a hash in its name, and the script's requests.
    http-request return status 404 unless {{ path_beg /api/ /v1/ /site/v1/ /rw. }}
    # Nodes limit how many new numbers each client address gets for web pages. A node reads the
    # address from this header if its trusted_proxies contains this proxy.
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
    # Any node accepts any batch and requests rows from the other nodes, so the simplest
    # distribution is the best. The weight of a node is its number of shards, which are threads.
    balance roundrobin
    # Connections to nodes are kept open and reused for the next client.
    http-reuse always
    # An answer is sent within the deadline ({deadline} ms), with overflow numbers if necessary. A node
    # that takes {slack} ms longer is considered hung.
    timeout server {server}ms
    # A kept-alive connection may close just as a request is sent, and a node may hang. It is then unknown
    # whether the node has read the request. Batches with an Idempotency-Key are recognized by every
    # node and are sent again. Other batches are not, because that could use up numbers twice.
    retry-on conn-failure empty-response response-timeout
    acl is_recognised req.hdr(idempotency-key) -m found
    http-request disable-l7-retry unless METH_POST is_recognised
    # A node is taken out after two failed checks (0.3 s), or after one failed check and three
    # failed connections. It is put back after two successful checks. If a node stops or its disk is
    # full, /readyz reports it. Requests in progress are not interrupted.
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 250ms fastinter 50ms downinter 250ms fall 2 rise 2
    default-server observe layer4 error-limit 3 on-error fail-check
    # Requests in progress on a node: limits.connections divided by {PROXIES}, so that {PROXIES} proxies
    # can share the nodes. Further requests wait here.
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
# Look-ups and releases, which may read history from the disk. No page waits for them. Nodes are
# taken out and put back as above.
backend management
    balance roundrobin
    timeout server 30s
{nodes}"
    )
}

/// Formats a node as a `server` line of a backend.
fn server(node: &ClusterNode, more: &str) -> String {
    let address = address(node);
    let resolve = if is_name(address) {
        // Lets the proxy start even if it cannot resolve the name yet.
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

/// Returns the address at which the proxy reaches a node. A unix socket is preferred, because it
/// costs less than TCP.
fn address(node: &ClusterNode) -> &Listen {
    let local = node.listen.iter().find(|address| matches!(address, Listen::Unix(_)));
    // The fallback to the link's address is never used, because a node has at least one address for
    // clients. Clients' requests to the link's address would be refused.
    local.or(node.listen.first()).unwrap_or(&node.link)
}

fn is_name(address: &Listen) -> bool {
    matches!(address, Listen::Tcp { host, .. } if host.parse::<std::net::IpAddr>().is_err())
}
