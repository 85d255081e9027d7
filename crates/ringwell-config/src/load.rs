//! Combines the defaults, the configuration file, environment variables and flags.
//!
//! Owns their precedence. Finds every fault in one run, with three exceptions. After a syntax
//! error, the rest of the file is not checked. Conflicts are found only between pools that are
//! valid themselves. A site's reference to a ring pool that does not exist is found only if there
//! is no other fault.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwell_directory::{Directory, Fault, clashes, even};

use super::fields::text;
use super::overrides::Overrides;
use super::pools::Found;
use super::section::Section;
use super::settings::Config;
use super::toml_file::{parse, read_bytes, readable, unreadable};
use super::values::Listen;
use super::values::{ValueError, parse_path};
use super::{csv, file, pools};

/// The settings that name files to read at startup. Some of these files are read again when they
/// change.
const READ_BEFORE: [&str; 4] =
    ["tls.certificate", "tls.key", "journal.credentials", "journal.authority"];

/// Reads the file at `path` for a machine with `cores` processor cores. Variables (read with `get`)
/// and `flags` override the file.
///
/// Relative paths in the file are relative to the file's directory.
///
/// # Errors
/// All faults, sorted by file and line.
pub fn load(
    path: &Path,
    get: impl Fn(&str) -> Option<String>,
    flags: Overrides,
    cores: u16,
) -> Result<(Config, Directory), Vec<Fault>> {
    let Reloaded { config, directory, .. } = load_except(path, get, flags, cores, |_| false)?;
    Ok((config, directory))
}

/// The configuration of a server that is already running.
#[derive(Debug)]
pub struct Reloaded {
    /// The settings.
    pub config: Config,
    /// The pools.
    pub directory: Directory,
    /// Faults in files that the server has already read, such as its certificate. The server keeps
    /// using the contents that it read earlier.
    pub ignored: Vec<Fault>,
}

/// Like [`load`], for a server that is already running.
///
/// # Errors
/// All faults except those in [`Reloaded::ignored`].
pub fn reload(
    path: &Path,
    get: impl Fn(&str) -> Option<String>,
    flags: Overrides,
    cores: u16,
) -> Result<Reloaded, Vec<Fault>> {
    load_except(path, get, flags, cores, |fault| READ_BEFORE.contains(&&*fault.field))
}

fn load_except(
    path: &Path,
    get: impl Fn(&str) -> Option<String>,
    flags: Overrides,
    cores: u16,
    is_ignored: impl Fn(&Fault) -> bool,
) -> Result<Reloaded, Vec<Fault>> {
    let mut faults = Vec::new();
    let variables = Overrides::from_variables(get).unwrap_or_else(|found| {
        faults = found;
        Overrides::default()
    });
    let mut config = Config::new(PathBuf::new(), cores);
    let (mut found, mut fields) = (Found::default(), BTreeMap::new());
    let has_data = flags.data.is_some() || variables.data.is_some();
    match read_bytes(path) {
        Ok(bytes) => {
            let of_file = read(path, &bytes, cores, has_data, &mut config, &mut found);
            faults.extend(of_file.0);
            fields = of_file.1;
        }
        Err(error) => faults.push(unreadable(path, &error)),
    }
    variables.apply(&mut config, cores);
    flags.apply(&mut config, cores);
    let fault = |(field, message)| Fault {
        file: Some(path.display().to_string()),
        line: fields.get(&field).copied(),
        field,
        message,
        ..Fault::default()
    };
    faults.extend(shared_addresses(&config).into_iter().map(fault));
    faults.extend(clashes(&found.pools).into_iter().filter_map(|clash| found.fault(clash)));
    // Faults in environment variables come first, because they have no file. The sort is stable, so
    // faults on the same line keep their order.
    faults.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    let ignored = faults.extract_if(.., |fault| is_ignored(fault)).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let placement = even(config.shards)?;
    let directory =
        Directory::build(1, found.pools.into_iter().map(Arc::new).collect(), placement)?;
    let faults: Vec<Fault> = missing_pools(&config, &directory).into_iter().map(fault).collect();
    if faults.is_empty() { Ok(Reloaded { config, directory, ignored }) } else { Err(faults) }
}

/// Finds addresses that two listeners would use; returns a field and a message for each.
fn shared_addresses(config: &Config) -> Vec<(String, String)> {
    let management = &config.management;
    let manages = config.database.is_some() || management.dashboard;
    let tls = config.tls.iter().flat_map(|tls| &tls.listen).map(|it| ("tls.listen", it));
    let manages = manages.then_some(("management.address", &management.address));
    let pages = config.site_listen.iter().map(|it| ("sites.listen", it));
    let calls = config.calls.iter().map(|calls| ("calls.listen", &calls.listen));
    let clients = config.listen.iter().map(|it| ("listen", it));
    let all: Vec<(&str, &Listen)> =
        clients.chain(tls).chain(manages).chain(pages).chain(calls).collect();
    let mut found = Vec::new();
    for (place, (field, address)) in all.iter().enumerate() {
        let other = all[..place].iter().find(|(_, other)| is_same(other, address));
        if let Some((other, _)) = other {
            let message = if other == field {
                "must not contain the same address twice".to_owned()
            } else {
                format!("conflicts with an address in `{other}`")
            };
            found.push(((*field).to_owned(), message));
        }
    }
    found
}

/// Whether two listeners cannot bind their addresses at the same time.
fn is_same(one: &Listen, other: &Listen) -> bool {
    match (one, other) {
        (Listen::Tcp { host, port }, Listen::Tcp { host: other_host, port: other_port }) => {
            let is_any = |host: &str| host == "0.0.0.0" || host == "::";
            let meet = host == other_host || is_any(host) || is_any(other_host);
            *port != 0 && port == other_port && meet
        }
        (Listen::Unix(one), Listen::Unix(other)) => one == other,
        (Listen::Tcp { .. }, Listen::Unix(_)) | (Listen::Unix(_), Listen::Tcp { .. }) => false,
    }
}

/// Finds the sites' references to ring pools that do not exist; returns a field and a message for
/// each.
fn missing_pools(config: &Config, directory: &Directory) -> Vec<(String, String)> {
    // The pools of a database or an application are not in the configuration.
    if config.database.is_some() || config.application.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (site, of) in config.sites.iter().enumerate() {
        let swaps = of.swaps.iter().enumerate();
        for (swap, it) in swaps.filter(|(_, it)| directory.pool(it.pool).is_none()) {
            let field = format!("site[{site}].swap[{swap}].ring_pool");
            found.push((field, format!("there is no ring pool {}", it.pool)));
        }
    }
    found
}

/// Reads the configuration file and the CSV file that it names. Returns the faults, and the line of
/// each field.
fn read(
    path: &Path,
    bytes: &[u8],
    cores: u16,
    has_data: bool,
    config: &mut Config,
    found: &mut Found,
) -> (Vec<Fault>, BTreeMap<String, u32>) {
    let (source, table) = match parse(path, bytes) {
        Ok(parsed) => parsed,
        Err(faults) => return (faults, BTreeMap::new()),
    };
    let base = path.parent().unwrap_or(Path::new(""));
    let mut faults = Vec::new();
    let mut top = Section::new(&source, String::new(), 0, table);
    let names_data = file::read(&mut top, base, cores, config);
    if !names_data && !has_data {
        let hint = "write e.g. data = \"/var/lib/ringwell\", or use --data";
        source.fault(None, "data".to_owned(), ValueError::new("is missing").hint(hint));
    }
    let file: Arc<str> = Arc::from(source.name.as_str());
    for table in top.sections("ring_pool") {
        pools::read(table, &file, found);
    }
    let csv_path = |name: &str| readable(base.join(parse_path(name)?));
    let has_others = config.database.is_some() || config.application.is_some();
    if let Some(csv_path) = top.take("ring_pools", text(csv_path)) {
        csv::read(&csv_path, found, &mut faults);
        if !has_others && found.pools.is_empty() && faults.is_empty() {
            top.fault("ring_pools", ValueError::new("the file has no ring pool"));
        }
    }
    if !has_others && !top.has("ring_pool") && !top.has("ring_pools") {
        let hint = "add a table [[ring_pool]], or write e.g. ring_pools = \"pools.csv\"";
        source.fault(None, "ring_pool".to_owned(), ValueError::new("is missing").hint(hint));
    }
    top.finish();
    let (of_file, fields) = source.into_parts();
    faults.extend(of_file);
    (faults, fields)
}
