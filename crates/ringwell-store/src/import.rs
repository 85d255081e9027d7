//! Imports a whole list of pools into an empty directory. Used to move pools from a configuration
//! file to a database.
//!
//! Each range of numbers is stored as one row, so 10 million numbers in 100,000 pools take only
//! 200,000 rows: one for each pool, and one for its range. Each statement inserts several rows. The
//! import does not repeat the checks that were made when the list was read. The database itself,
//! however, refuses numbers that are in two pools.

use std::fmt::Write;

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPool;
use serde_json::{Map, json};
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe, Row};

use crate::change::{Change, FAR, put_scope};
use crate::pools::{self, PoolSettings, Scope};
use crate::row::{digits, ms, to_db};
use crate::{Refusal, Store, StoreError};

/// The maximum number of rows per statement. SQLite searches for each argument from the first one
/// onward, so statements with more rows take longer per row. An import of 100,000 pools took 6.6 s
/// with 8 rows per statement, 10.8 s with 25 and 25.6 s with 200 (examples/import.rs).
const ROWS: usize = 8;
/// The maximum number of times that an import waits for the import of another server. Importing a
/// list of the maximum size into PostgreSQL takes longer than a single wait.
const WAITS_MAX: u32 = 30;
const POOL_COLUMNS: usize = 22;
const NUMBER_COLUMNS: usize = 7;

impl Scope {
    /// The scope of pools from a configuration file. Such a file does not specify networks,
    /// advertisers or campaigns.
    #[must_use]
    pub fn of_file() -> Self {
        let own = || "local".to_owned();
        Self { network: own(), advertiser: own(), campaign: own() }
    }
}

impl Store {
    /// Imports `pools` if the directory has never been changed. If several servers do this at the
    /// same time, one of them imports its list, and the others wait until the import is complete.
    /// Returns whether this server imported its list.
    ///
    /// # Errors
    /// [`Refusal::NotEmpty`] or [`StoreError::Database`].
    pub async fn import_once(
        &self,
        who: &str,
        now: Millis,
        pools: &[RingPool],
        scope: &Scope,
    ) -> Result<bool, StoreError> {
        if self.version().await? > 0 {
            return Ok(false);
        }
        let mut waits = 0;
        let mut change = loop {
            match self.change(who, now).await {
                Err(error) if error.is_busy() && waits < WAITS_MAX => {
                    waits += 1;
                    tracing::info!("another server is importing its pools into the database");
                }
                begun => break begun?,
            }
        };
        // This change has locked the version, so if another server was importing its list, that
        // import is now complete.
        if change.version() > 1 {
            return Ok(false);
        }
        change.import(pools, scope).await?;
        change.commit().await?;
        Ok(true)
    }
}

impl Change {
    /// Inserts `pools` into an empty directory, with their ids, keys and numbers.
    ///
    /// # Errors
    /// [`Refusal::NotEmpty`], or [`StoreError::Database`] if a number is in two pools.
    pub async fn import(&mut self, pools: &[RingPool], scope: &Scope) -> Result<(), StoreError> {
        let query = sqlx::query(
            "SELECT (SELECT COUNT(*) FROM ring_pools) \
             + (SELECT COUNT(*) FROM numbers)",
        );
        if query.fetch_one(&mut *self.tx).await?.try_get::<i64, _>(0)? > 0 {
            return Err(Refusal::NotEmpty.into());
        }
        put_scope(&mut self.tx, scope).await?;
        let version = to_db(self.version, "a version")?;
        for chunk in pools.chunks(ROWS) {
            insert_pools(&mut self.tx, chunk, scope, version).await?;
        }
        let ids: Vec<i64> =
            pools.iter().map(|pool| to_db(pool.id().0, "a pool's id")).collect::<Result<_, _>>()?;
        let rotations = pools.iter().zip(&ids).flat_map(|(pool, id)| {
            pool.numbers().iter().map(move |range| (*range, "available", Some(*id)))
        });
        // Several pools in a configuration file may share an overflow number.
        let mut shared: Vec<PromoNumber> = pools.iter().filter_map(RingPool::overflow).collect();
        shared.sort_unstable();
        shared.dedup();
        let overflow = shared.into_iter().filter_map(|number| NumberRange::new(number, 1));
        let overflow = overflow.map(|range| (range, "overflow", None));
        let mut rows: Vec<_> = rotations.chain(overflow).collect();
        rows.sort_unstable_by_key(|(range, ..)| range.first());
        for chunk in rows.chunks(ROWS) {
            insert_numbers(&mut self.tx, chunk, &scope.network).await?;
        }
        let near = pools.iter().map(RingPool::id).filter(|id| id.0 < FAR);
        let last = near.max().unwrap_or(PoolId(0));
        self.reserve_id(last).await?;
        let after = json!({ "ring_pools": pools.len(), "network": scope.network });
        self.log("import", "directory", None, Some(after)).await
    }
}

async fn insert_pools(
    db: &mut AnyConnection,
    chunk: &[RingPool],
    scope: &Scope,
    version: i64,
) -> Result<(), StoreError> {
    let insert = concat!("INSERT INTO ring_pools (", pools::columns!(), ") VALUES ");
    let mut query = rows_of(insert, chunk.len(), POOL_COLUMNS);
    for pool in chunk {
        let settings = PoolSettings::of_file(pool, scope);
        query = query
            .bind(to_db(pool.id().0, "a pool's id")?)
            .bind(version)
            .bind(settings.scope.network)
            .bind(settings.scope.advertiser)
            .bind(settings.scope.campaign)
            .bind(settings.id_from_network)
            .bind(settings.name)
            .bind(pool.key().reveal().to_owned())
            .bind(pool.next_key().map(|key| key.reveal().to_owned()))
            .bind(ms(settings.lifetime))
            .bind(None::<i64>)
            .bind(None::<i64>)
            .bind(None::<i64>)
            .bind(i64::from(settings.max_pool_size))
            .bind(i64::from(settings.preferred))
            .bind(i64::from(settings.fill_immediately))
            .bind(i64::from(settings.allow_overflow))
            .bind(pool.overflow().map(digits))
            .bind(settings.destination)
            .bind(settings.tracking_url)
            .bind(settings.destination_url)
            .bind("{}");
    }
    query.execute(db).await?;
    Ok(())
}

async fn insert_numbers(
    db: &mut AnyConnection,
    chunk: &[(NumberRange, &'static str, Option<i64>)],
    network: &str,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO numbers (first_number, last_number, state, pool, network, \
         lockout_ms, ready_ms) VALUES ";
    let mut query = rows_of(insert, chunk.len(), NUMBER_COLUMNS);
    for (range, state, pool) in chunk {
        query = query
            .bind(digits(range.first()))
            .bind(digits(range.last()))
            .bind(*state)
            .bind(*pool)
            .bind(network.to_owned())
            .bind(0_i64)
            .bind(0_i64);
    }
    query.execute(db).await?;
    Ok(())
}

impl PoolSettings {
    /// Returns the settings of a pool from a configuration file.
    #[must_use]
    pub fn of_file(pool: &RingPool, scope: &Scope) -> Self {
        let overflow = u64::from(pool.overflow().is_some());
        let tracking = pool.tracking();
        Self {
            scope: scope.clone(),
            id_from_network: pool.id().to_string(),
            name: pool.name().map_or_else(|| format!("Ring pool {}", pool.id()), str::to_owned),
            lifetime: pool.lifetime(),
            max_pool_size: u32::try_from(pool.number_count() + overflow).unwrap_or(u32::MAX),
            preferred: false,
            fill_immediately: true,
            allow_overflow: pool.overflow().is_some(),
            destination: None,
            tracking_url: tracking.map_or_else(String::new, |urls| urls.base_url.clone()),
            destination_url: tracking.map_or_else(String::new, |urls| urls.destination_url.clone()),
            kept: Map::new(),
        }
    }
}

/// Returns the statement `insert` with `rows` rows of `columns` arguments each.
fn rows_of(insert: &str, rows: usize, columns: usize) -> Query<'static, Any, AnyArguments> {
    let mut text = insert.to_owned();
    for row in 0..rows {
        text.push_str(if row == 0 { "(" } else { ", (" });
        for column in 1..=columns {
            let comma = if column == 1 { "" } else { ", " };
            // Writing to a string never fails.
            let _ = write!(text, "{comma}${}", row * columns + column);
        }
        text.push(')');
    }
    // Safe: the text consists only of a constant and placeholders for arguments.
    sqlx::query(AssertSqlSafe(text))
}
