//! The demo's introduction: its pools, its addresses, and requests to try.
//!
//! Invariant: each command in the introduction can be pasted into a shell.

use std::fmt::Write as _;
use std::time::Duration;

use ringwell_config::Config;
use ringwell_directory::RingPool;

use super::front::{Also, Front};
use super::phone;

/// The state of the data directory's list of pools at startup.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// There was no list.
    Made,
    /// The list contained exactly the pools of this demo.
    Found,
    /// The list contained other pools.
    Changed,
}

/// The introduction without the addresses, which are unknown until the server listens.
#[derive(Debug)]
pub(super) struct Introduction {
    /// A word that shows whether the pools are new, and a description of the pools.
    pools: String,
    kept: String,
    /// The lines that describe the extra pools for load. Empty if there are no such pools.
    load: String,
    shards: u16,
    /// A batch of two rows.
    body: String,
    /// The first pool's first number, which a new demo hands out for its first row.
    number: String,
    token_file: String,
    /// The command that calls `number`.
    call: String,
}

impl Introduction {
    pub(super) fn new(
        origin: Origin,
        pools: &[RingPool],
        (load_pools, has_busy): (usize, bool),
        config: &Config,
    ) -> Self {
        let data = config.data.display();
        let first = pools.first();
        let numbers = first.map_or(0, RingPool::number_count);
        let lifetime = first.map_or(0, |pool| pool.lifetime().0);
        let lifetime = humantime::format_duration(Duration::from_millis(lifetime));
        let number = first.and_then(|pool| pool.numbers().first());
        let durability = config.durability;
        let (verb, instead) = match origin {
            Origin::Made => ("made", ""),
            Origin::Found => ("found", ""),
            Origin::Changed => ("made", ", in place of the previous ones"),
        };
        let count = pools.len();
        let mut load = match load_pools {
            0 => String::new(),
            more => format!(
                "\n  load    {more} more pools for `ringwell load`; their numbers become free \
                 again within milliseconds"
            ),
        };
        if has_busy {
            load += "\n  shop    1 more pool for the load that the shop's page creates";
        }
        Self {
            pools: format!(
                "{verb:<7} {count} ring pools of {numbers} number{}, lifetime {lifetime}{instead}",
                if numbers == 1 { "" } else { "s" }
            ),
            kept: format!("{data}, durability {durability}; keys in {data}/demo-pools.csv"),
            load,
            shards: config.shards,
            body: body(pools),
            number: number.map_or(String::new(), |range| range.first().to_string()),
            token_file: quoted(&config.data.join("demo-token").display().to_string()),
            call: format!(
                "{} call --config {}",
                quoted(&program()),
                quoted(&config.data.join(phone::SETTINGS).display().to_string())
            ),
        }
    }

    /// Formats the introduction, with a final newline.
    pub(super) fn introduction(
        &self,
        addresses: &[String],
        front: &Front,
        takes_calls: bool,
    ) -> String {
        let (options, base) = curl_target(addresses.first().map_or("", String::as_str));
        let Self { pools, kept, load, shards, body, number, token_file, call } = self;
        let shards = if *shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") };
        let addresses = addresses.join(", ");
        let (url, also) = (&front.url, also(&front.also));
        let call = if takes_calls {
            format!(
                "Call number {number}; the dashboard shows the call:\n  {call} --to {number}\n\n"
            )
        } else {
            String::new()
        };
        format!(
            "\
Ringwell demo
  {pools}
  data    {kept}{load}
  serves  {addresses}, {shards}
{also}
Open this page, which links to the dashboard. The URL logs you in, but only once:
  {url}

Request two numbers:
  curl -w '\\n' {options}-d '{body}' {base}/api/2013-07-01/bulk.json

Look up who got number {number}:
  curl -w '\\n' {options}-H \"Authorization: Bearer $(cat {token_file})\" \
'{base}/v1/attributions?number={number}'

{call}Ctrl-C stops the demo.
"
        )
    }
}

/// Lists the demo's additional listeners, and reports those whose usual address is in use.
fn also(listeners: &[Also]) -> String {
    let named = listeners.iter().map(|Also { name, address, .. }| format!("{name} {address}"));
    let mut text = format!("  also    {}\n", named.collect::<Vec<_>>().join(", "));
    for Also { name, address, busy } in listeners {
        if let Some(busy) = busy {
            let _ = writeln!(
                text,
                "  note    {busy} ({name}) is in use by another program: {address} is used instead"
            );
        }
    }
    text
}

/// Returns the command that started this program.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "ringwell".to_owned())
}

/// Returns the body of a batch with two rows, one for each of the first two pools.
fn body(pools: &[RingPool]) -> String {
    let row = |pool: &RingPool, parameters: &str, request: &str| {
        let (id, key) = (pool.id(), pool.key().reveal());
        let suffix = format!("{id}/allocate_number.json?ring_pool_key={key}&{parameters}");
        format!(r#"{{"api_suffix":"{suffix}","request_id":"{request}"}}"#)
    };
    let first = pools.first().map(|pool| row(pool, "m1=autos&m2=ford", "A1"));
    let second = pools.get(1).or(pools.first()).map(|pool| row(pool, "m1=homes", "B2"));
    let rows: Vec<String> = first.into_iter().chain(second).collect();
    format!(r#"{{"requests":[{}]}}"#, rows.join(","))
}

/// Returns the curl options and the URL prefix for reaching `address` from this machine.
fn curl_target(address: &str) -> (String, String) {
    if let Some(path) = address.strip_prefix("unix:") {
        return (format!("--unix-socket {} ", quoted(path)), "http://localhost".to_owned());
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "80"));
    // A client cannot connect to the wildcard address, so the loopback address is shown.
    let host = match host {
        "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        host => host,
    };
    // curl interprets brackets as a pattern.
    let options = if host.starts_with('[') { "-g " } else { "" };
    (options.to_owned(), format!("http://{host}:{port}"))
}

/// Quotes `text` as one word for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_asked_on_the_loopback() {
        assert_eq!(curl_target("0.0.0.0:8080"), (String::new(), "http://127.0.0.1:8080".into()));
        assert_eq!(curl_target("[::]:80"), ("-g ".into(), "http://[::1]:80".into()));
    }

    #[test]
    fn a_unix_socket_is_queried_by_its_path() {
        let (options, base) = curl_target("unix:/run/ring well.sock");
        assert_eq!(options, "--unix-socket '/run/ring well.sock' ");
        assert_eq!(base, "http://localhost");
    }

    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(quoted("demo-data/demo-token"), "demo-data/demo-token");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
