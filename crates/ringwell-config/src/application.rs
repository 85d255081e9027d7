//! The sections `[directory]`, `[inventory]` and `[application]`: the sources of ring pools and
//! numbers outside the configuration file.

use std::path::Path;
use std::time::Duration;

use super::cluster_file::read_secret_file;
use super::database_url::parse_database;
use super::fields::{duration, text};
use super::section::Section;
use super::settings::{Application, Config};
use super::values::Listen;
use super::values::{ValueError, parse_path};
use super::{inventory, limits};

/// The placeholder for the pool's id in an application's URL.
const ID: &str = "{id}";

pub(super) fn read(file: &mut Section<'_, '_>, base: &Path, config: &mut Config) {
    let mut directory = file.section("directory");
    config.database = directory.take("database", text(|name| parse_database(name, base)));
    directory.finish();
    inventory::read(file.section("inventory"), base, &mut config.inventory);
    let section = file.section("application");
    if file.has("application") {
        config.application = read_application(section, base);
    }
}

fn read_application(mut section: Section<'_, '_>, base: &Path) -> Option<Application> {
    let url =
        section.require("url", "write e.g. \"http://127.0.0.1:3000/pools/{id}\"", text(parse_url));
    let mut timeout = Duration::from_secs(2);
    section.set(&mut timeout, "timeout", duration(&limits::APPLICATION_TIMEOUT));
    let mut refusal_age = Duration::from_secs(10);
    section.set(&mut refusal_age, "refusal_age", duration(&limits::REFUSAL_AGE));
    let mut pool_age = Duration::from_hours(1);
    section.set(&mut pool_age, "pool_age", duration(&limits::POOL_AGE));
    let secret = |name: &str| read_secret_file(&base.join(parse_path(name)?));
    let token = section.take("token_file", text(secret));
    let webhook_secret = section.take("webhook_secret_file", text(secret));
    section.finish();
    let (address, path) = url?;
    Some(Application { address, path, token, timeout, refusal_age, pool_age, webhook_secret })
}

/// Reads an application's URL: the address, and the path before and after the pool's id.
fn parse_url(url: &str) -> Result<(Listen, (String, String)), ValueError> {
    let fault = |what: &str| {
        ValueError::new(what)
            .hint("write e.g. \"http://127.0.0.1:3000/pools/{id}\"; for TLS use a proxy")
    };
    let rest = url.strip_prefix("http://").ok_or_else(|| fault("must start with http://"))?;
    let slash = rest.find('/').ok_or_else(|| fault("must have a path"))?;
    let (host, path) = rest.split_at(slash);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { host.to_owned() } else { format!("{host}:80") };
    let is_plain = path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'<' | b'>'));
    match path.split_once(ID) {
        Some((before, after)) if is_plain => {
            let address =
                address.parse().map_err(|_| fault("must have a host, optionally with a port"))?;
            Ok((address, (before.to_owned(), after.to_owned())))
        }
        Some(_) => Err(fault("must be printable ASCII without spaces")),
        None => Err(fault("must have {id} where the ring pool's id goes")),
    }
}

#[cfg(test)]
#[test]
fn urls_and_databases_are_read_or_refused() {
    let url = |text| parse_url(text).map(|(address, path)| (address.to_string(), path));
    let (address, path) = url("http://app.local/pools/{id}.json?x=1").unwrap();
    assert_eq!(
        (address.as_str(), path.0.as_str(), path.1.as_str()),
        ("app.local:80", "/pools/", ".json?x=1")
    );
    assert_eq!(url("http://[::1]:3000/{id}").unwrap().0, "[::1]:3000");
    for bad in ["https://a/{id}", "http://a", "http://a/pools", "http://a/{id} x", "a"] {
        assert!(url(bad).is_err(), "{bad}");
    }
    let database = |text| parse_database(text, Path::new("/etc"));
    assert_eq!(
        database("sqlite:d.sqlite"),
        Ok(super::database_url::Database::File("/etc/d.sqlite".into()))
    );
    let secret = database("postgres://me:secret@host/db").unwrap();
    assert!(!format!("{secret:?}").contains("secret"), "{secret:?}");
    assert!(database("postgres://me@host/db?sslpassword=secret").is_err());
    assert!(database("mysql://x").is_err() && database("sqlite:").is_err());
}
