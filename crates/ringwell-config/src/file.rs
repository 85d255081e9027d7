//! The sections of the configuration file, except for the ring pools.
//!
//! Owns the names of fields, and the rules about which fields belong together. Does not read
//! environment variables or flags.

use std::path::Path;

use ringwell_core::Millis;
use toml::de::DeValue;

use super::application;
use super::calls;
use super::fields::{duration, size, text, truth, whole};
use super::growth;
use super::limits::{self, one_a_core};
use super::overrides::{parse_level, parse_token_hash};
use super::section::Section;
use super::settings::{Api, ClientTls, Config, Journal, Limits, Links, Log, Replicated};
use super::sites;
use super::toml_file::readable;
use super::values::{Listen, ValueError, parse_path};

/// Reads every section except the pools into `config`. Relative paths are relative to `base`.
/// Returns whether the file names a data directory.
pub(super) fn read(
    file: &mut Section<'_, '_>,
    base: &Path,
    cores: u16,
    config: &mut Config,
) -> bool {
    file.set(&mut config.data, "data", text(|path| Ok(base.join(parse_path(path)?))));
    if let Some(listen) = file.take_list("listen", text(str::parse)) {
        if listen.is_empty() {
            let hint = "write e.g. [\"127.0.0.1:8080\"]";
            file.fault("listen", ValueError::new("must contain at least one address").hint(hint));
        }
        config.listen = listen;
    }
    let tls = file.section("tls");
    if file.has("tls") {
        config.tls = read_tls(tls, base);
    }
    let shards = |shards| if shards == 0 { one_a_core(cores) } else { shards };
    file.set(&mut config.shards, "shards", |value| whole(&limits::SHARDS)(value).map(shards));
    file.set(&mut config.durability, "durability", text(str::parse));
    file.set(&mut config.deadline, "deadline", duration(&limits::DEADLINE));
    let skew = duration(&limits::CLOCK_SKEW_MAX);
    file.set(&mut config.clock_skew_max, "clock_skew_max", skew);
    file.set(&mut config.drain_pause, "drain_pause", duration(&limits::DRAIN_PAUSE));

    let mut management = file.section("management");
    if let Some(hashes) = management.take_list("token_sha256", text(parse_token_hash)) {
        config.management.token_sha256.replace(&hashes);
    }
    if let Some(hashes) = management.take_list("lookup_sha256", text(parse_token_hash)) {
        config.management.lookup_sha256.replace(&hashes);
    }
    management.set(&mut config.management.address, "address", text(str::parse));
    let a_second = whole(&limits::REQUESTS_PER_SECOND);
    management.set(&mut config.management.requests_per_second, "requests_per_second", a_second);
    management.set(&mut config.management.on_data_port, "on_data_port", truth);
    if let Some(hosts) = management.take_list("hosts", text(parse_host)) {
        config.management.hosts = hosts;
    }
    management.set(&mut config.management.dashboard, "dashboard", truth);
    management.finish();
    application::read(file, base, config);
    calls::read(file, base, &mut config.calls);
    growth::read(file.section("growth"), &mut config.growth);
    read_limits(file.section("limits"), &mut config.limits);
    read_links(file.section("links"), &mut config.links);
    read_journal(file.section("journal"), &mut config.journal, base);
    read_api(file.section("api"), &mut config.api);
    read_log(file.section("log"), &mut config.log);
    if let Some(proxies) = file.take_list("trusted_proxies", text(str::parse)) {
        config.trusted_proxies = proxies;
    }
    let mut pages = file.section("sites");
    if let Some(listen) = pages.take_list("listen", text(str::parse)) {
        config.site_listen = listen;
    }
    pages.finish();
    for site in file.sections("site") {
        sites::read(site, &mut config.sites);
    }
    file.has("data")
}

/// Reads the name of a machine, without a port.
fn parse_host(text: &str) -> Result<String, ValueError> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if !text.is_empty() && text.bytes().all(is_name) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be a host name without a port").hint("write \"admin.example\""))
}

fn read_limits(mut section: Section<'_, '_>, into: &mut Limits) {
    section.set(&mut into.body_bytes, "body_bytes", size(&limits::BODY_BYTES));
    let bodies = size::<usize>(&limits::BODIES_BYTES);
    section.set(&mut into.bodies_bytes, "bodies_bytes", |value| bodies(value).map(Some));
    if into.bodies_bytes.is_some_and(|bytes| bytes < into.body_bytes) {
        section.fault("bodies_bytes", ValueError::new("must not be less than limits.body_bytes"));
    }
    section.set(&mut into.rows, "rows", whole(&limits::ROWS));
    section.set(&mut into.suffix_bytes, "suffix_bytes", size(&limits::SUFFIX_BYTES));
    section.set(&mut into.request_id_bytes, "request_id_bytes", size(&limits::REQUEST_ID_BYTES));
    section.set(&mut into.header_bytes, "header_bytes", size(&limits::HEADER_BYTES));
    section.set(&mut into.headers, "headers", whole(&limits::HEADERS));
    section.set(&mut into.uri_bytes, "uri_bytes", size(&limits::URI_BYTES));
    section.set(&mut into.connections, "connections", whole(&limits::CONNECTIONS));
    section.set(&mut into.head_timeout, "head_timeout", duration(&limits::TIMEOUT));
    section.set(&mut into.body_timeout, "body_timeout", duration(&limits::TIMEOUT));
    section.set(&mut into.idle_timeout, "idle_timeout", duration(&limits::TIMEOUT));
    section.set(&mut into.write_timeout, "write_timeout", duration(&limits::TIMEOUT));
    section.set(&mut into.idempotency_rows, "idempotency_rows", whole(&limits::IDEMPOTENCY_ROWS));
    section.finish();
}

fn read_links(mut section: Section<'_, '_>, into: &mut Links) {
    section.set(&mut into.deadline, "deadline", duration(&limits::DEADLINE));
    section.set(&mut into.slow, "slow", duration(&limits::DEADLINE));
    section.set(&mut into.wait, "wait", duration(&limits::DEADLINE));
    if into.slow > into.deadline {
        section.fault("slow", ValueError::new("must not be longer than links.deadline"));
    }
    section.finish();
}

fn read_journal(mut section: Section<'_, '_>, into: &mut Journal, base: &Path) {
    section.set(&mut into.segment_bytes, "segment_bytes", size(&limits::SEGMENT_BYTES));
    section.set(&mut into.spare_segments, "spare_segments", whole(&limits::SPARE_SEGMENTS));
    let every = size(&limits::SNAPSHOT_EVERY_BYTES);
    section.set(&mut into.snapshot_every_bytes, "snapshot_every_bytes", every);
    let age = |value: &DeValue<'_>| {
        let age = duration(&limits::HISTORY_AGE)(value)?;
        Ok(Millis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
    };
    section.set(&mut into.history_age, "history_age", age);
    section.set(&mut into.history_bytes, "history_bytes", size(&limits::HISTORY_BYTES));
    let mut is_shared = false;
    section.set(&mut is_shared, "engine", text(parse_engine));
    if is_shared {
        into.replicated = Some(read_replicated(&mut section, base));
    } else {
        section.refuse(&REPLICATED, "applies only to engine = \"nats\"");
    }
    section.finish();
}

/// Reads the kind of storage for the journals. Returns `true` for NATS servers, which several
/// machines share.
fn parse_engine(text: &str) -> Result<bool, ValueError> {
    match text {
        "files" => Ok(false),
        "nats" => Ok(true),
        _ => Err(ValueError::new("must be \"files\" or \"nats\"")),
    }
}

/// The fields that [`read_replicated`] reads.
const REPLICATED: [&str; 8] = [
    "servers",
    "monitor",
    "stream",
    "replicas",
    "stream_bytes",
    "credentials",
    "authority",
    "standby",
];

fn read_replicated(section: &mut Section<'_, '_>, base: &Path) -> Replicated {
    let mut into = Replicated::default();
    let server = |text: &str| match text.split_once("://") {
        Some(("nats" | "tls", host)) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(ValueError::new("must be an address such as \"nats://10.0.0.1:4222\"")),
    };
    let monitor = |text: &str| match text.strip_prefix("http://") {
        Some(host) if host.contains(':') => Ok(text.to_owned()),
        _ => Err(ValueError::new("must be an address such as \"http://10.0.0.1:8222\"")),
    };
    into.servers = section.take_list("servers", text(server)).unwrap_or_default();
    if into.servers.is_empty() && !section.is_faulty("servers") {
        let hint = "write e.g. [\"nats://10.0.0.1:4222\", \"nats://10.0.0.2:4222\"]";
        let error = ValueError::new("must contain the addresses of the NATS servers");
        section.fault("servers", error.hint(hint));
    }
    into.monitor = section.take_list("monitor", text(monitor)).unwrap_or_default();
    if into.monitor.is_empty() && !section.is_faulty("monitor") {
        let hint = "write one address for each server, e.g. [\"http://10.0.0.1:8222\"]: at each \
            start, Ringwell uses these addresses to check that each server flushes a write before \
            it acknowledges the write";
        let error = ValueError::new("must contain the monitoring address of each NATS server");
        section.fault("monitor", error.hint(hint));
    }
    let name = |text: &str| {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let is_short = (1..=64).contains(&text.len());
        if is_short && text.bytes().all(is_name) {
            Ok(text.to_owned())
        } else {
            Err(ValueError::new("must be 1 to 64 letters, digits, - and _"))
        }
    };
    section.set(&mut into.stream, "stream", text(name));
    section.set(&mut into.replicas, "replicas", whole(&limits::REPLICAS));
    section.set(&mut into.stream_bytes, "stream_bytes", size(&limits::HISTORY_BYTES));
    let path = |name: &str| readable(base.join(parse_path(name)?)).map(Some);
    section.set(&mut into.credentials, "credentials", text(path));
    section.set(&mut into.authority, "authority", text(path));
    section.set(&mut into.standby, "standby", truth);
    into
}

fn read_tls(mut section: Section<'_, '_>, base: &Path) -> Option<ClientTls> {
    let path = |name: &str| readable(base.join(parse_path(name)?));
    let hint = "write e.g. \"certificate.pem\"";
    let certificate = section.require("certificate", hint, text(path));
    let key = section.require("key", "write e.g. \"key.pem\"", text(path));
    let listen = section.take_list("listen", text(str::parse)).unwrap_or_default();
    if !listen.iter().any(|address| matches!(address, Listen::Tcp { .. })) {
        let hint = "write e.g. [\"0.0.0.0:8443\"]";
        let error = ValueError::new("must contain at least one HOST:PORT address");
        section.fault("listen", error.hint(hint));
    }
    section.finish();
    Some(ClientTls { listen, certificate: certificate?, key: key? })
}

fn read_api(mut section: Section<'_, '_>, into: &mut Api) {
    section.set(&mut into.strict_params, "strict_params", truth);
    section.set(&mut into.bulk_only, "bulk_only", truth);
    section.set(&mut into.gzip, "gzip", truth);
    if let Some(origins) = section.take_list("origins", text(parse_origin)) {
        into.origins = origins;
    }
    section.finish();
}

/// Reads an origin as browsers write it: `https://www.example.org`, optionally with a port.
fn parse_origin(text: &str) -> Result<String, ValueError> {
    let host = text.strip_prefix("https://").or(text.strip_prefix("http://"));
    let is_host = |host: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
        !host.is_empty() && host.bytes().all(is_part)
    };
    if host.is_some_and(is_host) {
        Ok(text.to_ascii_lowercase())
    } else {
        let hint = "write e.g. \"https://www.example.org\", without a path";
        Err(ValueError::new("must be an origin").hint(hint))
    }
}

fn read_log(mut section: Section<'_, '_>, into: &mut Log) {
    section.set(&mut into.format, "format", text(str::parse));
    section.set(&mut into.level, "level", text(parse_level));
    section.set(&mut into.traces, "traces", text(|url| parse_collector(url).map(Some)));
    section.set(&mut into.traces_one_in, "traces_one_in", whole(&limits::TRACES_ONE_IN));
    section.finish();
}

/// Reads the host and the port from `http://HOST:PORT`.
fn parse_collector(url: &str) -> Result<String, ValueError> {
    let place = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let is_tcp = |place: &&str| matches!(place.parse(), Ok(Listen::Tcp { port, .. }) if port > 0);
    place.filter(is_tcp).map(str::to_owned).ok_or_else(|| {
        ValueError::new("must be the address of a collector that speaks OTLP over HTTP")
            .hint("write \"http://127.0.0.1:4318\"")
    })
}
