//! Ring pools as rows of the database.
//!
//! Owns the reading and writing of these rows. `rotation.rs` and `change.rs` own the rules for
//! changes.

use std::fmt;
use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{PoolFields, RingPool, RingPoolKey, Tracking};
use serde_json::{Map, Value, json};
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use crate::StoreError;
use crate::row::{Columns, digits, from_db, from_ms, key, ms, number, to_db};

/// The owner of a pool, in terms of the published API.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The network, which is the tenant.
    pub network: String,
    /// The advertiser's id in the network.
    pub advertiser: String,
    /// The campaign's id in the network.
    pub campaign: String,
}

/// The settings of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// Its owner.
    pub scope: Scope,
    /// The pool's id, assigned by the network and unique within it.
    pub id_from_network: String,
    /// Its display name. Whitespace around it is not stored, because lists of pools cannot contain
    /// it.
    pub name: String,
    /// The time for which an allocation is guaranteed.
    pub lifetime: Millis,
    /// The maximum count of the pool's numbers, including the overflow number.
    pub max_pool_size: u32,
    /// Whether pages that do not specify a pool use this one.
    pub preferred: bool,
    /// Whether the pool gets all its numbers at once.
    pub fill_immediately: bool,
    /// Whether the pool has an overflow number. Can only be set when the pool is created.
    pub allow_overflow: bool,
    /// The destination to which calls are connected.
    pub destination: Option<String>,
    /// The prefix of tracking URLs, or empty if there is none.
    pub tracking_url: String,
    /// The landing page, or empty if there is none.
    pub destination_url: String,
    /// Other fields of the published API, stored and returned as received.
    pub kept: Map<String, Value>,
}

impl PoolSettings {
    /// Removes whitespace around the name.
    pub(crate) fn trim_name(&mut self) {
        let trimmed = self.name.trim();
        if trimmed.len() < self.name.len() {
            self.name = trimmed.to_owned();
        }
    }
}

/// A pool in the database, without its numbers. Its `Debug` output contains no key.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The id that requests for numbers contain.
    pub id: PoolId,
    /// The version of the pool's last change.
    pub version: u64,
    /// The settings.
    pub settings: PoolSettings,
    /// The key that requests must contain.
    pub key: RingPoolKey,
    /// The key that will replace `key`. Until then, both keys are valid.
    pub next_key: Option<RingPoolKey>,
    /// The pool's overflow number, once the pool has one.
    pub overflow: Option<PromoNumber>,
    /// An earlier, longer lifetime, kept until all lockouts of that length have ended.
    pub(crate) former: Option<Former>,
}

/// An earlier, longer lifetime of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) lifetime: Millis,
    /// The version of the directory that ended this lifetime. Cleared once every node has confirmed
    /// that version.
    pub(crate) version: Option<u64>,
    pub(crate) until: Millis,
}

macro_rules! columns {
    () => {
        "id, version, network, advertiser, campaign, id_from_network, name, ring_pool_key, \
         next_ring_pool_key, lifetime_ms, former_lifetime_ms, former_version, former_until_ms, \
         max_pool_size, preferred, fill_immediately, allow_overflow, overflow_number, \
         destination, tracking_url, destination_url, kept"
    };
}
pub(crate) use columns;

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.advertiser, self.campaign)
    }
}

impl Pool {
    /// Returns the longest lockout that a number may have if it leaves the rotation at `now`.
    pub(crate) fn lockout(&self, now: Millis) -> Millis {
        let counts = |former: &Former| former.version.is_some() || former.until > now;
        let former = self.former.filter(counts).map_or(Millis::ZERO, |former| former.lifetime);
        former.max(self.settings.lifetime)
    }

    /// Returns the part of the pool that shards need, with `numbers` in rotation.
    ///
    /// # Errors
    /// The first rule that the pool breaks.
    pub(crate) fn ring_pool(&self, numbers: Vec<NumberRange>) -> Result<RingPool, StoreError> {
        let settings = &self.settings;
        let urls = (!settings.tracking_url.is_empty() && !settings.destination_url.is_empty())
            .then(|| Tracking {
                base_url: settings.tracking_url.clone(),
                destination_url: settings.destination_url.clone(),
            });
        let fields = PoolFields {
            id: self.id,
            name: Some(settings.name.clone()),
            key: self.key,
            next_key: self.next_key,
            lifetime: settings.lifetime,
            numbers,
            overflow: self.overflow,
            tracking: urls.map(Arc::new),
        };
        RingPool::waiting(fields).map_err(|faults| match faults.first() {
            Some(fault) => StoreError::from(*fault),
            None => StoreError::Damaged(format!("ring pool {}", self.id)),
        })
    }

    /// Returns the pool's id, settings and overflow number, for the audit log.
    pub(crate) fn to_json(&self) -> Value {
        let settings = &self.settings;
        json!({
            "id": self.id.0,
            "network": settings.scope.network,
            "advertiser": settings.scope.advertiser,
            "campaign": settings.scope.campaign,
            "id_from_network": settings.id_from_network,
            "name": settings.name,
            "lifetime_ms": settings.lifetime.0,
            "max_pool_size": settings.max_pool_size,
            "preferred": settings.preferred,
            "fill_immediately": settings.fill_immediately,
            "allow_overflow": settings.allow_overflow,
            "overflow_number": self.overflow.map(|number| number.to_string()),
            "destination": settings.destination,
            "tracking_url": settings.tracking_url,
            "destination_url": settings.destination_url,
            "kept": settings.kept,
        })
    }

    pub(crate) fn from_row(row: &AnyRow) -> Result<Self, StoreError> {
        let mut columns = Columns::of(row);
        let id = PoolId(from_db(columns.take()?, "a pool's id")?);
        let version = from_db(columns.take()?, "a version")?;
        let scope = Scope {
            network: columns.take()?,
            advertiser: columns.take()?,
            campaign: columns.take()?,
        };
        let id_from_network = columns.take()?;
        let name = columns.take()?;
        let ring_pool_key = key(&columns.take::<String>()?)?;
        let next_key: Option<String> = columns.take()?;
        let next_key = next_key.map(|text| key(&text)).transpose()?;
        let lifetime = from_ms(columns.take()?);
        let former = former(columns.take()?, columns.take()?, columns.take()?)?;
        let size: i64 = columns.take()?;
        let mut flag = || Ok::<_, StoreError>(columns.take::<i64>()? != 0);
        let (preferred, fill_immediately, allow_overflow) = (flag()?, flag()?, flag()?);
        let overflow: Option<i64> = columns.take()?;
        let destination = columns.take()?;
        let (tracking_url, destination_url) = (columns.take()?, columns.take()?);
        let kept = serde_json::from_str(&columns.take::<String>()?)
            .map_err(|error| StoreError::Damaged(format!("ring pool {id}: {error}")))?;
        let damaged = || StoreError::Damaged(format!("ring pool {id}: max_pool_size is {size}"));
        let settings = PoolSettings {
            scope,
            id_from_network,
            name,
            lifetime,
            max_pool_size: u32::try_from(size).map_err(|_| damaged())?,
            preferred,
            fill_immediately,
            allow_overflow,
            destination,
            tracking_url,
            destination_url,
            kept,
        };
        let overflow = overflow.map(number).transpose()?;
        Ok(Self { id, version, settings, key: ring_pool_key, next_key, overflow, former })
    }

    /// Inserts or updates the pool's row.
    pub(crate) async fn put(&self, db: &mut AnyConnection) -> Result<(), StoreError> {
        let settings = &self.settings;
        let query = sqlx::query(concat!(
            "INSERT INTO ring_pools (",
            columns!(),
            ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, \
             $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) \
             ON CONFLICT (id) DO UPDATE SET version = $2, network = $3, advertiser = $4, \
             campaign = $5, id_from_network = $6, name = $7, ring_pool_key = $8, \
             next_ring_pool_key = $9, lifetime_ms = $10, former_lifetime_ms = $11, \
             former_version = $12, former_until_ms = $13, max_pool_size = $14, preferred = $15, \
             fill_immediately = $16, allow_overflow = $17, overflow_number = $18, \
             destination = $19, tracking_url = $20, destination_url = $21, kept = $22"
        ));
        let former = self.former;
        let version = former.and_then(|former| former.version);
        query
            .bind(to_db(self.id.0, "a pool's id")?)
            .bind(to_db(self.version, "a version")?)
            .bind(settings.scope.network.clone())
            .bind(settings.scope.advertiser.clone())
            .bind(settings.scope.campaign.clone())
            .bind(settings.id_from_network.clone())
            .bind(settings.name.clone())
            .bind(self.key.reveal().to_owned())
            .bind(self.next_key.map(|key| key.reveal().to_owned()))
            .bind(ms(settings.lifetime))
            .bind(former.map(|former| ms(former.lifetime)))
            .bind(version.map(|version| to_db(version, "a version")).transpose()?)
            .bind(former.map(|former| ms(former.until)))
            .bind(i64::from(settings.max_pool_size))
            .bind(i64::from(settings.preferred))
            .bind(i64::from(settings.fill_immediately))
            .bind(i64::from(settings.allow_overflow))
            .bind(self.overflow.map(digits))
            .bind(settings.destination.clone())
            .bind(settings.tracking_url.clone())
            .bind(settings.destination_url.clone())
            .bind(Value::Object(settings.kept.clone()).to_string())
            .execute(db)
            .await?;
        Ok(())
    }
}

fn former(
    lifetime: Option<i64>,
    version: Option<i64>,
    until: Option<i64>,
) -> Result<Option<Former>, StoreError> {
    let Some(lifetime) = lifetime.map(from_ms) else { return Ok(None) };
    let version = version.map(|version| from_db(version, "a version")).transpose()?;
    Ok(Some(Former { lifetime, version, until: from_ms(until.unwrap_or(0)) }))
}

pub(crate) async fn by_id(db: &mut AnyConnection, id: PoolId) -> Result<Option<Pool>, StoreError> {
    // No row can contain an id that the database cannot store.
    let Ok(id) = i64::try_from(id.0) else { return Ok(None) };
    let query = sqlx::query(concat!("SELECT ", columns!(), " FROM ring_pools WHERE id = $1"));
    let row = query.bind(id).fetch_optional(db).await?;
    row.map(|row| Pool::from_row(&row)).transpose()
}

pub(crate) async fn by_network_id(
    db: &mut AnyConnection,
    network: &str,
    id: &str,
) -> Result<Option<Pool>, StoreError> {
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM ring_pools \
         WHERE network = $1 AND id_from_network = $2"
    ));
    let row = query.bind(network.to_owned()).bind(id.to_owned()).fetch_optional(db).await?;
    row.map(|row| Pool::from_row(&row)).transpose()
}

/// Returns the network of the pool `id`, even if the pool was removed. Returns `None` if the pool
/// never existed, or if it was removed before schema 6.
pub(crate) async fn network_of(
    db: &mut AnyConnection,
    id: PoolId,
) -> Result<Option<String>, StoreError> {
    let Ok(id) = i64::try_from(id.0) else { return Ok(None) };
    let query = sqlx::query(
        "SELECT network FROM ring_pools WHERE id = $1 \
         UNION ALL SELECT network FROM removed_pools WHERE id = $1",
    );
    let row = query.bind(id).fetch_optional(db).await?;
    row.map_or(Ok(None), |row| Columns::of(&row).take())
}

/// Returns the pools of one campaign, ordered by id.
pub(crate) async fn of_scope(
    db: &mut AnyConnection,
    scope: &Scope,
) -> Result<Vec<Pool>, StoreError> {
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM ring_pools \
         WHERE network = $1 AND advertiser = $2 AND campaign = $3 ORDER BY id"
    ));
    let query = query.bind(scope.network.clone()).bind(scope.advertiser.clone());
    let rows = query.bind(scope.campaign.clone()).fetch_all(db).await?;
    rows.iter().map(Pool::from_row).collect()
}

/// Returns at most `limit` pools whose ids are above `after`, ordered by id. With `network`,
/// returns only pools of that network.
pub(crate) async fn page(
    db: &mut AnyConnection,
    network: Option<&str>,
    after: i64,
    limit: u32,
) -> Result<Vec<Pool>, StoreError> {
    let query = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM ring_pools \
         WHERE id > $1 AND ($2 = '' OR network = $2) ORDER BY id LIMIT $3"
    ));
    let network = network.unwrap_or_default().to_owned();
    let rows = query.bind(after).bind(network).bind(i64::from(limit)).fetch_all(db).await?;
    rows.iter().map(Pool::from_row).collect()
}

/// Returns the ids of pools that may have fewer numbers than their initial size, in ascending
/// order.
pub(crate) async fn short(db: &mut AnyConnection) -> Result<Vec<PoolId>, StoreError> {
    let query = sqlx::query(
        "SELECT id FROM ring_pools WHERE (CASE WHEN overflow_number IS NULL THEN 0 ELSE 1 END) \
         + (SELECT COALESCE(SUM(last_number - first_number + 1), 0) FROM numbers WHERE pool = id) \
         < (CASE WHEN fill_immediately = 1 OR max_pool_size <= 10 THEN max_pool_size \
         ELSE (max_pool_size + 9) / 10 + 1 END) ORDER BY id",
    );
    let rows = query.fetch_all(db).await?;
    rows.iter().map(|row| Ok(PoolId(from_db(Columns::of(row).take()?, "a pool's id")?))).collect()
}
