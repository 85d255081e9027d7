//! Configuration checks that `serve` and `doctor` share.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::ensure;
use ringwell_calls::number;
use ringwell_calls::route::Routes;
use ringwell_calls::webhook::address::Policy;
use ringwell_config::{CallAccount, Config, Database, DestinationRule, UnknownNumber};
use ringwell_core::{PoolId, PromoNumber};
use ringwell_directory::{Directory, Fault, RingPool};
use ringwell_node::disk::{Identity, OsFiles};
use ringwell_store::{Location, StoreError, probe_pools};
use tokio::runtime::Builder;

use crate::calls::serving;
use crate::print::counted;

/// The maximum number of pools that a warning lists.
const POOLS_SHOWN: usize = 20;
/// The warning if the environment variable and the configuration set different token hashes.
pub(crate) const TOKEN_VARIABLE: &str = "the variable RINGWELL_TOKEN_SHA256 overrides \
    management.token_sha256 in the configuration: remove the variable (the package sets it in \
    /etc/ringwell/environment) and restart";

/// The ring pools in a configuration's database.
pub(crate) enum InDatabase {
    /// The configuration has no database, or the next start will create or upgrade its tables.
    Unknown,
    /// The pools, which are valid.
    Valid(Directory),
    /// The pools could not be read, for this reason.
    NotChecked(String),
    /// The server would refuse the pools, for these reasons.
    Faulty(Vec<String>),
}

impl InDatabase {
    /// Reads the pools, and changes nothing. A server may be using the database.
    pub(crate) fn read(config: &Config) -> Self {
        let location = match &config.database {
            None => return Self::Unknown,
            Some(Database::File(path)) => Location::File(path.clone()),
            Some(Database::Postgres(url)) => Location::Url(url.reveal().to_owned()),
        };
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return Self::NotChecked(error.to_string()),
        };
        let of_setting = |error| format!("directory.database: {error}");
        match runtime.block_on(probe_pools(&location)) {
            Ok(None) => Self::Unknown,
            Ok(Some(pools)) => match Directory::new(1, pools, config.shards) {
                Ok(pools) => Self::Valid(pools),
                Err(faults) => Self::Faulty(
                    faults.into_iter().map(|fault| of_setting(fault.to_string())).collect(),
                ),
            },
            Err(error @ (StoreError::NewerSchema { .. } | StoreError::Damaged(_))) => {
                Self::Faulty(vec![of_setting(error.to_string())])
            }
            Err(error) => Self::NotChecked(of_setting(error.to_string())),
        }
    }

    /// Returns the pools that the server will use, if they are known. `of_file` contains the pools
    /// in the configuration's files.
    pub(crate) fn or_in_file<'a>(
        &'a self,
        config: &Config,
        of_file: &'a Directory,
    ) -> Option<&'a Directory> {
        match self {
            Self::Valid(pools) if pools.pool_count() > 0 => Some(pools),
            Self::Valid(_) => Some(of_file),
            _ => pools_in_file(config, of_file),
        }
    }

    /// Returns a warning if the pools were not checked.
    pub(crate) fn warning(&self) -> Option<String> {
        let Self::NotChecked(reason) = self else { return None };
        Some(format!("the ring pools in the database were not checked: {reason}"))
    }
}

/// Returns a short description of a configuration's ring pools.
pub(crate) fn pools_of(config: &Config, of_file: &Directory, in_database: &InDatabase) -> String {
    let counts = |directory: &Directory| {
        let pools = counted(directory.pool_count() as u64, "pool");
        format!("{pools}, {}", counted(directory.number_count(), "number"))
    };
    if let InDatabase::Valid(pools) = in_database
        && (pools.pool_count() > 0 || of_file.pool_count() == 0)
    {
        return format!("{} in the database", counts(pools));
    }
    match (of_file.pool_count(), &config.database, &config.application) {
        (0, Some(_), _) => "the ring pools are in the database".to_owned(),
        (_, Some(_), _) => {
            format!("{}, imported if the database has no ring pools", counts(of_file))
        }
        (0, None, Some(_)) => "the ring pools come from the application".to_owned(),
        (_, None, _) => counts(of_file),
    }
}

/// Checks, for replicated journals, that the data directory contains no journals in files.
/// Otherwise the replicated journals would start empty, and all allocations would be lost.
pub(crate) fn has_no_journals_in_files(data: &Path) -> anyhow::Result<()> {
    let identity = Identity::read(&OsFiles, data)?;
    ensure!(
        identity.is_none_or(|it| it.journals.is_empty()),
        "the journals in {} were written with `engine = \"files\"`: with `engine = \"nats\"`, the \
         allocations in them would be forgotten. Remove `engine` from [journal]. To begin with \
         empty streams instead, stop the server, wait for the longest lifetime of any pool, and \
         then start the server with a new data directory",
        data.display()
    );
    Ok(())
}

/// Returns the pools in the configuration's files, or `None` if the pools are in a database.
pub(crate) fn pools_in_file<'a>(config: &Config, of_file: &'a Directory) -> Option<&'a Directory> {
    config.database.is_none().then_some(of_file)
}

/// Returns warnings about destinations for ring pools that do not exist, and about ring pools
/// without a destination. These are not faults, because the pools or destinations may be added
/// later.
pub(crate) fn warn_of_destinations(config: &Config, pools: &Directory) -> Vec<String> {
    let Some(calls) = &config.calls else { return Vec::new() };
    let named: BTreeSet<PoolId> =
        calls.destinations.iter().flat_map(|rule| rule.ring_pools.iter().copied()).collect();
    let unknown = named.iter().copied().filter(|pool| pools.pool(*pool).is_none());
    let unknown = listed(unknown).map(|unknown| {
        format!(
            "calls.destination: ring_pools names pools that do not exist: {unknown}; the \
             destination has no effect for these pools until they are created"
        )
    });
    let numbers = calls.destinations.iter().flat_map(|rule| &rule.numbers);
    let numbers: BTreeSet<_> =
        numbers.filter_map(|number| PromoNumber::parse(number).ok()).collect();
    let is_of_numbers = |pool: &RingPool| {
        pool.numbers().iter().all(|range| {
            numbers.range(range.first()..=range.last()).count() == range.count() as usize
        })
    };
    let is_default = |rule: &DestinationRule| rule.ring_pools.is_empty() && rule.numbers.is_empty();
    let connects =
        |account: &CallAccount| matches!(account.unknown_number, UnknownNumber::Connect(_));
    // Without any rule, a program or the provider decides where calls go.
    let are_all_connected = calls.destinations.is_empty()
        || calls.routing.is_some()
        || calls.destinations.iter().any(is_default)
        || (!calls.accounts.is_empty() && calls.accounts.iter().all(connects));
    let is_without = |pool: &&Arc<RingPool>| {
        !are_all_connected && !named.contains(&pool.id()) && !is_of_numbers(pool)
    };
    let without: BTreeSet<PoolId> =
        pools.pools().filter(is_without).map(|pool| pool.id()).collect();
    let without = listed(without.into_iter()).map(|without| {
        format!(
            "calls.destination: no destination applies to numbers of the ring pools {without}: \
             calls to these numbers are not connected. Add destinations for them, or a default \
             one, which sets neither numbers nor ring_pools"
        )
    });
    unknown.into_iter().chain(without).collect()
}

/// Returns a fault for each `unknown_number` setting that would send calls to a number in `pools`
/// back to that number in an endless loop.
pub(crate) fn endless_unknown_numbers(config: &Config, pools: &Directory) -> Vec<Fault> {
    // A program may have a destination for each number.
    let Some(calls) = config.calls.as_ref().filter(|calls| calls.routing.is_none()) else {
        return Vec::new();
    };
    let pools_of = |number: &str| {
        number::promo_number(number).map(|number| serving(pools, number)).unwrap_or_default()
    };
    // The configuration was read, so its time zones exist.
    let endless = Routes::endless_unknown_numbers(calls, &pools_of).unwrap_or_default();
    let fault = |number: String| Fault {
        field: "calls.account.unknown_number".to_owned(),
        message: format!(
            "{number} is a number of this server, and calls to it would be sent to it again in an \
             endless loop"
        ),
        hint: Some(
            "write a number outside this server, or add a [[calls.destination]] for this number"
                .to_owned(),
        ),
        ..Fault::default()
    };
    endless.into_iter().map(fault).collect()
}

/// Returns a warning if the program that decides where calls go cannot be reached at its URL.
pub(crate) fn warn_of_routing(config: &Config) -> Option<String> {
    let calls = config.calls.as_ref()?;
    let routing = calls.routing.as_ref()?;
    let refused = Policy::new(&calls.webhooks).target(&routing.url).err()?;
    Some(format!(
        "calls.routing.url: {refused}. The program is never queried, and all calls go to \
         the configured destinations"
    ))
}

/// Lists the first pools. `None` if there are none.
fn listed(pools: impl Iterator<Item = PoolId>) -> Option<String> {
    let pools: Vec<PoolId> = pools.collect();
    let shown: Vec<String> = pools.iter().take(POOLS_SHOWN).map(ToString::to_string).collect();
    let more = pools.len().saturating_sub(POOLS_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| shown.join(", ") + &more)
}
