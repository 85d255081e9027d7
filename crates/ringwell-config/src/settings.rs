//! The settings of a server, and their defaults.
//!
//! The limits of the settings are in `limits.rs`; the other modules read the settings from files,
//! variables and flags. Invariant: `Debug` output of a [`Config`] contains no secret.

use std::path::PathBuf;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_directory::TokenHashes;

use crate::calls::Calls;
use crate::cluster::Secret;
use crate::database_url::Database;
use crate::growth::Growth;
use crate::inventory::Inventory;
use crate::limits::one_a_core;
use crate::proxies::TrustedProxy;
use crate::sites::Site;
use crate::values::{Durability, Listen, LogFormat};

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The directory of journals and snapshots. There is no default, because a relative default
    /// would make a server lose its allocations when it starts in another working directory.
    pub data: PathBuf,
    /// The addresses to listen on (default: `127.0.0.1:8080`).
    pub listen: Vec<Listen>,
    /// The addresses to listen on for TLS, and the certificate.
    pub tls: Option<ClientTls>,
    /// The count of shards, 1 to 256 (default: one per core).
    pub shards: u16,
    /// The durability that an allocation must reach before it is answered (default:
    /// [`Durability::Disk`]).
    pub durability: Durability,
    /// The deadline of a batch, 1 ms to 60 s (default: 100 ms).
    pub deadline: Duration,
    /// The largest expected error of the wall clock (default: 1 minute). After the machine reboots,
    /// earlier lockouts are extended by twice this time, so that none ends early.
    pub clock_skew_max: Duration,
    /// The time for which a stopping server still answers requests before it closes connections
    /// (default: 1 s). During this time, `/readyz` reports 503.
    pub drain_pause: Duration,
    /// The tokens for `/v1/`.
    pub management: Management,
    /// The database of ring pools, if they are not in the configuration file.
    pub database: Option<Database>,
    /// The rules for the numbers of pools in a database, and for the purchase of numbers.
    pub inventory: Inventory,
    /// Automatic growth and shrinking of pools in a database.
    pub growth: Growth,
    /// The application that supplies ring pools unknown to this server.
    pub application: Option<Application>,
    /// The limits on clients.
    pub limits: Limits,
    /// This node's time limits for requests to shards of other nodes.
    pub links: Links,
    /// The journal's use of the disk.
    pub journal: Journal,
    /// Choices that the published API leaves open.
    pub api: Api,
    /// The contents and the format of the log.
    pub log: Log,
    /// Proxies whose `X-Forwarded-For` is trusted (default: none).
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Web sites whose pages show each visitor a number (default: none).
    pub sites: Vec<Site>,
    /// The addresses that serve only web pages; if there are none, web pages are served at
    /// `listen`.
    pub site_listen: Vec<Listen>,
    /// The settings for calls (default: no calls are accepted).
    pub calls: Option<Calls>,
}

/// The tokens for `/v1/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// The hashes of the accepted management tokens (default: none).
    pub token_sha256: TokenHashes,
    /// Whether an environment variable has replaced the file's hashes with different ones (default:
    /// no).
    pub token_variable_wins: bool,
    /// The hashes of tokens that may be used only to read attributions and calls; callers' numbers
    /// are masked (default: none).
    pub lookup_sha256: TokenHashes,
    /// The address for managing pools in a database (default: `127.0.0.1:8081`).
    pub address: Listen,
    /// The maximum number of requests that are served at `address` per second; further requests get
    /// a 429 (default: 100).
    pub requests_per_second: u32,
    /// Whether the published API's routes for ring pools are also served at the addresses for
    /// clients (default: no).
    pub on_data_port: bool,
    /// If `address` is a loopback address: the host names that requests may use, in addition to
    /// localhost and loopback addresses (default: none).
    pub hosts: Vec<String>,
    /// Whether the dashboard is served at `address` even if there is no database (default: no).
    pub dashboard: bool,
}

/// The main application, which the server queries for unknown ring pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its address.
    pub address: Listen,
    /// The path before and after the pool's id.
    pub path: (String, String),
    /// The token sent as `Authorization: Bearer TOKEN`.
    pub token: Option<Secret>,
    /// The time limit for an answer (default: 2 s).
    pub timeout: Duration,
    /// The time for which the server remembers that the application refused a pool (default: 10 s).
    pub refusal_age: Duration,
    /// The time for which a fetched pool is valid (default: 1 h). After that, a pool in use is
    /// fetched again, and an unused pool is dropped.
    pub pool_age: Duration,
    /// The secret that the application uses to sign pushed changes; without a secret, pushed
    /// changes are refused.
    pub webhook_secret: Option<Secret>,
}

/// The limits on clients. All lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest body (default: 1 MiB).
    pub body_bytes: usize,
    /// The maximum total size of all bodies that are being received; `None` means a tenth of the
    /// memory.
    pub bodies_bytes: Option<usize>,
    /// The maximum number of rows in a batch (default: 500).
    pub rows: usize,
    /// The longest `api_suffix`, unescaped (default: 8 KiB).
    pub suffix_bytes: usize,
    /// The longest `request_id`, as sent (default: 256).
    pub request_id_bytes: usize,
    /// The longest head of a request (default: 16 KiB).
    pub header_bytes: usize,
    /// The maximum number of header fields (default: 64).
    pub headers: usize,
    /// The longest path and query (default: 8 KiB).
    pub uri_bytes: usize,
    /// The maximum number of open connections of all shards together (default: 12,000).
    pub connections: usize,
    /// Time limit for a client to send the head of a request (default: 5 s).
    pub head_timeout: Duration,
    /// Time limit for a client to send a body (default: 10 s).
    pub body_timeout: Duration,
    /// The longest idle time of a connection between two requests (default: 60 s).
    pub idle_timeout: Duration,
    /// Time limit for a client to receive an answer (default: 10 s).
    pub write_timeout: Duration,
    /// The maximum number of rows that each shard remembers for requests with an `Idempotency-Key`
    /// (default: 1,000,000).
    pub idempotency_rows: usize,
}

/// A node's time limits for requests to shards of other nodes. Source: docs/spec/pacing.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// The time within which another shard must answer its rows of a batch (default: 50 ms).
    pub deadline: Duration,
    /// The time after which an answer counts as slow, at most `deadline` (default: 25 ms).
    pub slow: Duration,
    /// The longest time that a row waits for its turn on a link (default: 15 ms).
    pub wait: Duration,
}

/// The journal's use of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The size of a segment, 1 MiB to 1 GiB (default: 64 MiB).
    pub segment_bytes: u64,
    /// The count of segments that each shard keeps prepared (default: 1).
    pub spare_segments: u32,
    /// A snapshot is taken each time the journal has grown by this size (default: 256 MiB).
    pub snapshot_every_bytes: u64,
    /// The time for which allocations can be looked up (default: 30 days).
    pub history_age: Millis,
    /// The disk space that each shard may use for the history of allocations (default: 8 GiB).
    pub history_bytes: u64,
    /// The servers that keep the journals; `None` if the journals are files on this machine.
    pub replicated: Option<Replicated>,
}

/// The settings for journals in NATS JetStream streams, which several machines share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// Addresses of the servers, as in `nats://10.0.0.1:4222`.
    pub servers: Vec<String>,
    /// The servers' monitoring addresses, as in `http://10.0.0.1:8222`.
    pub monitor: Vec<String>,
    /// The prefix of stream names (default: `RINGWELL`).
    pub stream: String,
    /// The count of servers that store each stream (default: 3).
    pub replicas: u32,
    /// The largest size of a stream (default: 8 GiB).
    pub stream_bytes: u64,
    /// A file with the credentials that this server uses as a NATS client.
    pub credentials: Option<PathBuf>,
    /// The certificate of the authority that issued the servers' certificates, as PEM; if it is
    /// set, TLS is used.
    pub authority: Option<PathBuf>,
    /// Whether a starting server waits if another process is already serving (default: no).
    pub standby: bool,
}

impl Replicated {
    /// The servers as shown in messages: without the user and the password that an address may
    /// contain.
    #[must_use]
    pub fn shown_servers(&self) -> String {
        let without_user = |address: &String| match address.split_once("://") {
            Some((scheme, rest)) => {
                format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
            }
            None => address.clone(),
        };
        self.servers.iter().map(without_user).collect::<Vec<_>>().join(", ")
    }
}

/// TLS for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// The addresses to listen on for TLS.
    pub listen: Vec<Listen>,
    /// A certificate and its chain up to the authority, as PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, as PEM.
    pub key: PathBuf,
}

/// Choices that the published API leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// Whether a row without parameters is an error (default: no).
    pub strict_params: bool,
    /// Whether the legacy request for one number is refused (default: no).
    pub bulk_only: bool,
    /// Whether answers to batches are compressed for clients that accept gzip (default: no).
    pub gzip: bool,
    /// Origins whose web pages may use the published API (default: none).
    pub origins: Vec<String>,
}

/// The contents and the format of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The format (default: [`LogFormat::Auto`]).
    pub format: LogFormat,
    /// A level, or directives such as `info,ringwell_node=debug` (default: `info`).
    pub level: String,
    /// Host and port of the collector that receives traces by OTLP over HTTP (default: none).
    pub traces: Option<String>,
    /// The sampling rate: with the default of 100, one in 100 requests is traced. A request's
    /// `traceparent` takes precedence.
    pub traces_one_in: u32,
}

impl Config {
    /// The defaults for a server with the data directory `data` and `cores` processor cores.
    #[must_use]
    pub fn new(data: PathBuf, cores: u16) -> Self {
        Self {
            data,
            listen: vec![Listen::Tcp { host: "127.0.0.1".to_owned(), port: 8080 }],
            tls: None,
            shards: one_a_core(cores),
            durability: Durability::default(),
            deadline: Duration::from_millis(100),
            clock_skew_max: Duration::from_mins(1),
            drain_pause: Duration::from_secs(1),
            management: Management::default(),
            database: None,
            inventory: Inventory::default(),
            growth: Growth::default(),
            application: None,
            limits: Limits::default(),
            links: Links::default(),
            journal: Journal::default(),
            api: Api::default(),
            log: Log::default(),
            trusted_proxies: Vec::new(),
            sites: Vec::new(),
            site_listen: Vec::new(),
            calls: None,
        }
    }
}

impl Default for Management {
    fn default() -> Self {
        let address = Listen::Tcp { host: "127.0.0.1".to_owned(), port: 8081 };
        let (token_sha256, lookup_sha256) = (TokenHashes::default(), TokenHashes::default());
        let (hosts, dashboard, on_data_port) = (Vec::new(), false, false);
        Self {
            token_sha256,
            token_variable_wins: false,
            lookup_sha256,
            address,
            requests_per_second: 100,
            on_data_port,
            hosts,
            dashboard,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            bodies_bytes: None,
            rows: 500,
            suffix_bytes: 8 << 10,
            request_id_bytes: 256,
            header_bytes: 16 << 10,
            headers: 64,
            uri_bytes: 8 << 10,
            connections: 12_000,
            head_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            write_timeout: Duration::from_secs(10),
            idempotency_rows: 1_000_000,
        }
    }
}

impl Default for Links {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(50),
            slow: Duration::from_millis(25),
            wait: Duration::from_millis(15),
        }
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            spare_segments: 1,
            snapshot_every_bytes: 256 << 20,
            history_age: Millis(30 * 24 * 60 * 60 * 1000),
            history_bytes: 8 << 30,
            replicated: None,
        }
    }
}

impl Default for Replicated {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            monitor: Vec::new(),
            stream: "RINGWELL".to_owned(),
            replicas: 3,
            stream_bytes: 8 << 30,
            credentials: None,
            authority: None,
            standby: false,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::default(),
            level: "info".to_owned(),
            traces: None,
            traces_one_in: 100,
        }
    }
}
