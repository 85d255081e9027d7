//! Checks the databases of ring pools and of calls.

use std::fs::OpenOptions;
use std::path::Path;

use ringwell_calls::log::{self, examine_waiting};
use ringwell_config::{Config, Database};
use ringwell_store::{
    DIRECTORY, Probed, Schema, StoreError, examine, probe_postgres, probe_sqlite, trouble,
};
use tokio::runtime::{Builder, Runtime};

use super::findings::Findings;
use crate::data_files::WAITING;
use crate::database_lock::{self, one_file_for_both};

pub(super) fn check(config: &Config, findings: &mut Findings) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return findings.bad("database", error.to_string()),
    };
    let calls = config.calls.as_ref().and_then(|calls| calls.database.as_ref());
    let all = [
        ("directory.database", config.database.as_ref(), &DIRECTORY),
        ("calls.database", calls, &log::SCHEMA),
    ];
    for (field, database, schema) in all {
        if let Some(Database::Postgres(url)) = database {
            let probed = runtime.block_on(probe_postgres(url.reveal(), schema));
            postgres(field, probed, schema, findings);
        }
    }
    if let Some(fault) = one_file_for_both(config) {
        findings.bad("database", fault.to_string());
    }
    for (field, path) in database_lock::files(config) {
        if let Some(path) = path {
            file((field, &path), config, &runtime, findings);
        }
    }
    if config.calls.is_some()
        && let Err(error) = examine_waiting(&config.data.join(WAITING))
    {
        findings.bad(
            "calls",
            format!(
                "{error}; this file stores reports of calls while the call database is unavailable"
            ),
        );
    }
}

fn postgres(
    field: &str,
    probed: Result<Probed, StoreError>,
    schema: &Schema,
    findings: &mut Findings,
) {
    match probed {
        Ok(probed) => {
            if let Some(fault) = refuses(&probed, schema) {
                return findings.bad("database", format!("{field}: {fault}"));
            }
            let state = match probed.version {
                None => "the first start creates the tables".to_owned(),
                Some(version) if version == schema.steps.len() => format!("schema {version}"),
                Some(_) => "the first start upgrades the tables".to_owned(),
            };
            findings.ok("database", format!("{field}: PostgreSQL answers; {state}"));
        }
        Err(StoreError::Database(error)) => {
            findings.bad("database", format!("{field}: the database {}", trouble(&error)));
        }
        Err(StoreError::Silent) => findings.bad(
            "database",
            format!("{field}: the database does not answer: check its address and the firewall"),
        ),
        Err(error) => findings.bad("database", format!("{field}: {error}")),
    }
}

/// Returns the reason why a server cannot start with a PostgreSQL database.
fn refuses(probed: &Probed, schema: &Schema) -> Option<&'static str> {
    let is_current = probed.version == Some(schema.steps.len());
    match probed {
        Probed { is_read_only: true, .. } => {
            Some("PostgreSQL refuses changes: set the address of the primary server")
        }
        Probed { can_write: false, .. } => Some(
            "the user may not change the tables: run `GRANT ALL ON ALL TABLES IN SCHEMA public TO` \
             this user in the database",
        ),
        Probed { can_create: false, .. } if !is_current => Some(
            "the user may not create tables, which the next start needs: run `GRANT CREATE ON \
             SCHEMA public TO` this user in the database",
        ),
        Probed { .. } => None,
    }
}

/// Returns the reason why a server cannot start with its PostgreSQL database of ring pools. Returns
/// `None` if the database is not PostgreSQL or does not answer.
pub(crate) fn refusal(config: &Config) -> Option<String> {
    let Some(Database::Postgres(url)) = &config.database else { return None };
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let probed = runtime.block_on(probe_postgres(url.reveal(), &DIRECTORY)).ok()?;
    refuses(&probed, &DIRECTORY).map(|fault| format!("directory.database: {fault}"))
}

/// The minimum free space on a SQLite file's disk, in bytes: enough for its write-ahead log.
const FREE_MIN: u64 = 128 << 20;

fn file((field, path): (&str, &Path), config: &Config, runtime: &Runtime, findings: &mut Findings) {
    let shown = path.display();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Err(fault) = examine(path) {
        findings.bad("database", database_lock::message(field, &fault));
    } else if path.is_file() {
        if let Err(error) = OpenOptions::new().read(true).write(true).open(path) {
            return findings.bad("database", format!("{shown}: {error}"));
        }
        let free = rustix::fs::statvfs(path)
            .map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
        if free < FREE_MIN {
            let mib = free >> 20;
            let text = format!("{shown}: {mib} MiB free on its disk: free up disk space");
            findings.bad("space", text);
        }
        match runtime.block_on(probe_sqlite(path)) {
            Ok(true) => findings.ok("database", format!("{shown} is writable and undamaged")),
            Ok(false) => findings.ok("database", format!("{shown} is writable")),
            Err(fault) => findings.bad("database", database_lock::message(field, &fault)),
        }
    } else if folder.unwrap_or(Path::new(".")).is_dir() || path.starts_with(&config.data) {
        findings.ok("database", format!("{shown} will be created at the first start"));
    } else {
        findings.bad("database", format!("the directory of {shown} does not exist: create it"));
    }
}
