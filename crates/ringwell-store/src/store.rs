//! The directory in a database: its contents, and the nodes' confirmations.
//!
//! Owns the transactions: everything that one transaction reads is consistent. Changes to the
//! directory are in `change.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use ringwell_config::{Inventory, Site};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPool;
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{Any, AnyConnection, Row, Transaction};

use crate::change::Change;
use crate::database::{Database, Location};
use crate::numbers::{self, Goal, NumberState, Run};
use crate::orders::Orders;
use crate::pace::Pace;
use crate::pools::{self, Pool, Scope};
use crate::provider::{FileProvider, Provider};
use crate::row::{Columns, from_db, from_ms, ms, to_db};
use crate::site_rows;
use crate::slow_hash::SlowHash;
use crate::{StoreError, schema};

/// The directory's database.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) database: Database,
    margin: Millis,
    pub(crate) inventory: Inventory,
    pub(crate) provider: Option<Arc<dyn Provider>>,
    pub(crate) slow_hash: SlowHash,
}

/// All pools and sites, as of one version of the directory.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The directory's version.
    pub version: u64,
    /// By id.
    pub pools: Vec<RingPool>,
    /// By key.
    pub sites: Vec<Site>,
}

/// The changes since an earlier version.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// The current version of the directory.
    pub version: u64,
    /// New or changed pools in their current form, with the latest change last.
    pub changed: Vec<RingPool>,
    /// Removed pools.
    pub removed: Vec<PoolId>,
    /// All sites, if at least one has changed.
    pub sites: Option<Vec<Site>>,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditLine {
    /// The version that the change has created.
    pub version: u64,
    /// The index of the line among the lines of that change.
    pub place: u64,
    /// The time of the change, in milliseconds since 1970.
    pub at: Millis,
    /// The author.
    pub who: String,
    /// The action.
    pub action: String,
    /// The object of the change, as in `ring_pool 7`.
    pub object: String,
    /// The value before the change, if there was one.
    pub before: Option<Value>,
    /// The new value.
    pub after: Option<Value>,
}

/// Consecutive numbers that have the same state.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// The numbers.
    pub range: NumberRange,
    /// Their state.
    pub state: NumberState,
    /// The pool that has the numbers or is promised them.
    pub pool: Option<PoolId>,
    /// The next state of the numbers, if they wait for a lockout to end.
    pub goal: Option<Goal>,
    /// The network that may use the numbers, or `None` if all networks may.
    pub network: Option<String>,
    /// The time after which no visitor can hold the numbers. `None` until every node has confirmed
    /// that they are out of rotation. For most numbers this time is in the past.
    pub ready: Option<Millis>,
}

impl Store {
    /// The smallest margin for the difference between the nodes' clocks, and for the longest time
    /// that an answer takes to reach its client. A number that leaves a rotation waits for its
    /// lockout plus the margin before it moves elsewhere.
    pub const MARGIN: Millis = Millis(60_000);

    /// Opens the database, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Database`] or [`StoreError::NewerSchema`].
    pub async fn open(location: &Location) -> Result<Self, StoreError> {
        let database = Database::open(location, &schema::DIRECTORY).await?;
        let (inventory, slow_hash) = (Inventory::default(), SlowHash::default());
        Ok(Self { database, margin: Self::MARGIN, inventory, provider: None, slow_hash })
    }

    /// Returns the same directory, for nodes whose wall clocks are wrong by at most `skew_max`.
    #[must_use]
    pub fn with_clocks(self, skew_max: Duration) -> Self {
        let apart = u64::try_from((2 * skew_max).as_millis()).unwrap_or(u64::MAX);
        Self { margin: Self::MARGIN.max(Millis(apart)), ..self }
    }

    /// Returns the same directory, with the limits and the provider from `inventory`.
    #[must_use]
    pub fn with_inventory(self, inventory: Inventory) -> Self {
        let files = inventory.offers.clone().zip(inventory.purchases.clone());
        let provider = files.map(|(offers, bought)| FileProvider::new(offers, bought));
        let provider = provider.map(|it| Arc::new(it) as Arc<dyn Provider>);
        Self { inventory, provider, ..self }
    }

    /// The limits on pools, and the rules for numbers and purchases.
    #[must_use]
    pub const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Waits until all operations have ended, and closes the database. The process must end after
    /// this: see [`Database::close_keeping_files`].
    pub async fn close(&self) {
        self.database.close_keeping_files().await;
    }

    /// Begins a change whose author is `who`. Waits until all other changes have ended.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if another change takes too long, or [`StoreError::Database`].
    pub async fn change(&self, who: &str, now: Millis) -> Result<Change, StoreError> {
        let orders = Orders::of(self.provider.clone());
        let rules = (self.margin, self.inventory.clone(), orders);
        Change::begin(self.begin().await?, who, now, rules).await
    }

    /// Begins a transaction that changes the database.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if another change takes too long, or [`StoreError::Database`].
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        match self.database.write().await {
            Err(StoreError::Database(sqlx::Error::PoolTimedOut)) if self.database.is_changing() => {
                Err(StoreError::Busy)
            }
            begun => begun,
        }
    }

    /// Whether the database refuses all changes, as a standby of PostgreSQL does.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn is_read_only(&self) -> Result<bool, StoreError> {
        self.database.is_read_only().await
    }

    /// Returns a pool's network, even if the pool was removed. Returns `None` if the pool never
    /// existed, or if it was removed before schema 6.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn network_of(&self, pool: PoolId) -> Result<Option<String>, StoreError> {
        pools::network_of(&mut *self.database.read().await?, pool).await
    }

    /// Returns the version of the last change.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn version(&self) -> Result<u64, StoreError> {
        version(&mut *self.database.read().await?).await
    }

    /// Loads all pools, including pools without a number in rotation. Each row is converted to a
    /// pool as soon as it is read.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a pool breaks a rule.
    pub async fn load_all(&self) -> Result<Loaded, StoreError> {
        let mut tx = self.database.read().await?;
        let version = version(&mut tx).await?;
        let pools = load_pools(&mut tx).await?;
        Ok(Loaded { version, pools, sites: site_rows::all(&mut tx).await? })
    }

    /// Returns the changes after the version `since`, or everything if it is 0. The cost depends on
    /// the count of changed pools, not on the total count of pools.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a pool breaks a rule.
    pub async fn changed_since(&self, since: u64) -> Result<Delta, StoreError> {
        let mut tx = self.database.read().await?;
        let mut delta = Delta { version: version(&mut tx).await?, ..Delta::default() };
        if delta.version == since {
            return Ok(delta);
        }
        let since = to_db(since, "a version")?;
        // An import may change 10,000 pools, so one query reads them all, with pauses.
        let mut pace = Pace::begin();
        let query = "SELECT pool, first_number, last_number FROM numbers \
             WHERE state = 'available' \
             AND pool IN (SELECT id FROM ring_pools WHERE version > $1) \
             ORDER BY pool, first_number";
        let rows = sqlx::query(query).bind(since).fetch(&mut *tx);
        let mut rotations = rotations(rows, Some(&mut pace)).await?;
        let query = concat!(
            "SELECT ",
            pools::columns!(),
            " FROM ring_pools \
             WHERE version > $1 ORDER BY version, id"
        );
        let mut rows = sqlx::query(query).bind(since).fetch(&mut *tx);
        while let Some(row) = rows.try_next().await? {
            let pool = Pool::from_row(&row)?;
            let ranges = rotations.remove(&pool.id).unwrap_or_default();
            delta.changed.push(pool.ring_pool(ranges)?);
            pace.step().await;
        }
        drop(rows);
        let query = sqlx::query("SELECT id FROM removed_pools WHERE version > $1 ORDER BY id");
        for row in query.bind(since).fetch_all(&mut *tx).await? {
            delta.removed.push(PoolId(from_db(row.try_get(0)?, "a pool's id")?));
        }
        delta.sites = site_rows::changed_since(&mut tx, since).await?;
        Ok(delta)
    }

    /// Records that a node has served `version` since the time `at`. A node confirms a version
    /// before it hands out its first number, and again after it has applied each new version. A
    /// node returns to an older version only if the database was restored to an older state.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn confirm(&self, node: &str, version: u64, at: Millis) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let query = sqlx::query(
            "INSERT INTO nodes (name, applied_version, at_ms) \
             VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE SET applied_version = $2, at_ms = $3",
        );
        let query = query.bind(node.to_owned()).bind(to_db(version, "a version")?);
        query.bind(ms(at)).execute(&mut *tx).await?;
        settle(&mut tx, self.margin).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Moves waiting numbers to the pools that they are promised to, once no visitor can hold the
    /// numbers any more. Returns the new version, if anything was changed.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn due(&self, now: Millis) -> Result<Option<u64>, StoreError> {
        if numbers::due(&mut *self.database.read().await?, now).await?.is_empty() {
            return Ok(None);
        }
        let mut change = self.change("ringwell: lockouts over", now).await?;
        change.move_due().await?;
        Ok(Some(change.commit().await?))
    }

    /// Returns the pool `id`, if it exists.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pool(&self, id: PoolId) -> Result<Option<Pool>, StoreError> {
        pools::by_id(&mut *self.database.read().await?, id).await
    }

    /// Returns the pool with the id `id` in `network`, if it exists.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pool_of_network(
        &self,
        network: &str,
        id: &str,
    ) -> Result<Option<Pool>, StoreError> {
        pools::by_network_id(&mut *self.database.read().await?, network, id).await
    }

    /// Returns the pools of one campaign, ordered by id.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pools_of(&self, scope: &Scope) -> Result<Vec<Pool>, StoreError> {
        pools::of_scope(&mut *self.database.read().await?, scope).await
    }

    /// Returns at most `limit` pools whose ids are above `after`. With `network`, returns only
    /// pools of that network.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pools(
        &self,
        network: Option<&str>,
        after: Option<PoolId>,
        limit: u32,
    ) -> Result<Vec<Pool>, StoreError> {
        let after = after.map_or(Ok(-1), |id| to_db(id.0, "a pool's id"))?;
        pools::page(&mut *self.database.read().await?, network, after, limit).await
    }

    /// Returns the numbers of `pool`, in ascending order. They include quarantined and waiting
    /// numbers.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn numbers_of(&self, pool: PoolId) -> Result<Vec<Numbers>, StoreError> {
        let runs = numbers::of_pool(&mut *self.database.read().await?, pool).await?;
        runs.into_iter().map(Numbers::new).collect()
    }

    /// Returns the state of `number`, or `None` if the number is unknown.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn number(&self, number: PromoNumber) -> Result<Option<Numbers>, StoreError> {
        let run = numbers::holding(&mut *self.database.read().await?, number).await?;
        run.map(Numbers::new).transpose()
    }

    /// Returns at most `limit` runs of numbers, in ascending order. Each run begins above `after`.
    /// If `only` is a network, returns only the numbers in its pools and those that only this
    /// network may use.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn numbers(
        &self,
        after: Option<PromoNumber>,
        limit: u32,
        only: Option<&str>,
    ) -> Result<Vec<Numbers>, StoreError> {
        let after = after.map_or(0, crate::row::digits);
        let runs = numbers::page(&mut *self.database.read().await?, after, limit, only).await?;
        runs.into_iter().map(Numbers::new).collect()
    }

    /// Returns the id of the JavaScript tag that is stored with a destination.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn destination_tag(
        &self,
        network: &str,
        phone_number: &str,
    ) -> Result<Option<String>, StoreError> {
        let query = sqlx::query(
            "SELECT obfuscated_tag_id FROM destinations \
             WHERE network = $1 AND phone_number = $2",
        );
        let query = query.bind(network.to_owned()).bind(phone_number.to_owned());
        let row = query.fetch_optional(&mut *self.database.read().await?).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Returns at most `limit` lines of the audit log, newest first. If `before` is given, returns
    /// only lines before that version or, if `before` contains a line's place, before that line of
    /// the version.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn audit_log(
        &self,
        before: Option<(u64, Option<u64>)>,
        limit: u32,
    ) -> Result<Vec<AuditLine>, StoreError> {
        let query = sqlx::query(
            "SELECT version, place, at_ms, who, action, object, \
             before_change, after_change FROM audit_log \
             WHERE version < $1 OR version = $1 AND place < $2 \
             ORDER BY version DESC, place DESC LIMIT $3",
        );
        let (version, place) = before.unwrap_or((i64::MAX.cast_unsigned(), None));
        let version = to_db(version, "a version")?;
        let place = place.map_or(Ok(0), |place| to_db(place, "a line's place"))?;
        let query = query.bind(version).bind(place).bind(i64::from(limit));
        let rows = query.fetch_all(&mut *self.database.read().await?).await?;
        rows.iter().map(AuditLine::from_row).collect()
    }
}

impl Numbers {
    fn new(run: Run) -> Result<Self, StoreError> {
        let ready = run.left.version.is_none().then_some(run.left.ready);
        let range = run.range()?;
        let Run { state, pool, goal, network, .. } = run;
        Ok(Self { range, state, pool, goal, network, ready })
    }
}

impl AuditLine {
    fn from_row(row: &AnyRow) -> Result<Self, StoreError> {
        let mut columns = Columns::of(row);
        let damaged = |error| StoreError::Damaged(format!("the audit log: {error}"));
        let json = |text: Option<String>| {
            text.map(|text| serde_json::from_str(&text)).transpose().map_err(damaged)
        };
        Ok(Self {
            version: from_db(columns.take()?, "a version")?,
            place: from_db(columns.take()?, "a line's place")?,
            at: from_ms(columns.take()?),
            who: columns.take()?,
            action: columns.take()?,
            object: columns.take()?,
            before: json(columns.take()?)?,
            after: json(columns.take()?)?,
        })
    }
}

async fn version(db: &mut AnyConnection) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT version FROM directory").fetch_one(db).await?;
    from_db(row.try_get(0)?, "the version")
}

/// Reads all pools.
pub(crate) async fn load_pools(db: &mut AnyConnection) -> Result<Vec<RingPool>, StoreError> {
    let query = "SELECT pool, first_number, last_number FROM numbers \
         WHERE state = 'available' ORDER BY first_number";
    let mut rotations = rotations(sqlx::query(query).fetch(&mut *db), None).await?;
    let query = concat!("SELECT ", pools::columns!(), " FROM ring_pools ORDER BY id");
    let mut rows = sqlx::query(query).fetch(&mut *db);
    let mut pools = Vec::with_capacity(rotations.len());
    while let Some(row) = rows.try_next().await? {
        let pool = Pool::from_row(&row)?;
        let ranges = rotations.remove(&pool.id).unwrap_or_default();
        let damaged = |error| StoreError::Damaged(format!("ring pool {}: {error}", pool.id));
        pools.push(pool.ring_pool(ranges).map_err(damaged)?);
    }
    Ok(pools)
}

/// Reads the numbers in rotation, grouped by pool. If `pace` is given, pauses between rows so that
/// other requests are served.
async fn rotations(
    mut rows: impl Stream<Item = Result<AnyRow, sqlx::Error>> + Unpin,
    mut pace: Option<&mut Pace>,
) -> Result<HashMap<PoolId, Vec<NumberRange>>, StoreError> {
    let mut found: HashMap<PoolId, Vec<NumberRange>> = HashMap::new();
    while let Some(row) = rows.try_next().await? {
        let (pool, first, last): (i64, i64, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let count = u32::try_from(last - first + 1).ok();
        let range = count.zip(crate::row::number(first).ok());
        let range = range.and_then(|(count, first)| NumberRange::new(first, count));
        let range = range.ok_or_else(|| StoreError::Damaged(format!("numbers from {first}")))?;
        found.entry(PoolId(from_db(pool, "a pool's id")?)).or_default().push(range);
        if let Some(pace) = &mut pace {
            pace.step().await;
        }
    }
    Ok(found)
}

/// Applies the nodes' confirmations to the numbers and pools that wait for them. If all nodes have
/// confirmed the version in which a number left its rotation, the number cannot have been handed
/// out since the last confirmation.
async fn settle(db: &mut AnyConnection, margin: Millis) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT MAX(at_ms) FROM nodes").fetch_one(&mut *db).await?;
    let at = row.try_get::<Option<i64>, _>(0)?.map_or(Millis::ZERO, from_ms);
    settle_at(db, at, margin).await
}

/// Like [`settle`], with the time of the last confirmation.
pub(crate) async fn settle_at(
    db: &mut AnyConnection,
    at: Millis,
    margin: Millis,
) -> Result<(), StoreError> {
    let query = sqlx::query("SELECT MIN(applied_version) FROM nodes");
    // If there are no nodes, every version counts as confirmed.
    let confirmed = query.fetch_one(&mut *db).await?.try_get::<Option<i64>, _>(0)?;
    let confirmed = confirmed.unwrap_or(i64::MAX);
    let query = sqlx::query(
        "UPDATE numbers SET left_version = NULL, ready_ms = CASE \
         WHEN ready_ms > $1 + lockout_ms THEN ready_ms ELSE $1 + lockout_ms END \
         WHERE left_version <= $2",
    );
    query.bind(ms(at)).bind(confirmed).execute(&mut *db).await?;
    let query = sqlx::query(
        "UPDATE ring_pools SET former_version = NULL, \
         former_until_ms = $1 + former_lifetime_ms + $3 WHERE former_version <= $2",
    );
    query.bind(ms(at)).bind(confirmed).bind(ms(margin)).execute(db).await?;
    Ok(())
}
