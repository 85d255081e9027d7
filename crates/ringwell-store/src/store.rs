//! The directory in a database: its contents, and the reports of nodes.
//!
//! Owns the transaction that makes everything read together consistent. Changes are in `change.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt};
use ringwell_config::{Inventory, Site};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPool;
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::change::Change;
use crate::database::{Database, Location};
use crate::numbers::{self, Goal, NumberState, Run};
use crate::pace::Pace;
use crate::pools::{self, Pool, Scope};
use crate::provider::{FileProvider, Provider};
use crate::purchase::Orders;
use crate::row::{Columns, from_db, from_ms, ms, to_db};
use crate::sites;
use crate::tokens::SlowHash;
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

/// All pools that can be served, at one version.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The directory's version.
    pub version: u64,
    /// By id.
    pub pools: Vec<RingPool>,
    /// By key.
    pub sites: Vec<Site>,
}

/// The changes since a version.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// The directory's version now.
    pub version: u64,
    /// New or changed pools in their present form; the latest change is last.
    pub changed: Vec<RingPool>,
    /// Removed pools.
    pub removed: Vec<PoolId>,
    /// All sites, if one has changed.
    pub sites: Option<Vec<Site>>,
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditLine {
    /// The version that the change created.
    pub version: u64,
    /// Its index among the lines of that change.
    pub place: u64,
    /// The time, in milliseconds since 1970.
    pub at: Millis,
    /// The author.
    pub who: String,
    /// The action.
    pub action: String,
    /// The subject, as in `ring_pool 7`.
    pub object: String,
    /// The previous value, if there is one.
    pub before: Option<Value>,
    /// The new value.
    pub after: Option<Value>,
}

/// Consecutive numbers, and their state.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// The numbers.
    pub range: NumberRange,
    /// Their state.
    pub state: NumberState,
    /// The pool that has them, or to which they were promised.
    pub pool: Option<PoolId>,
    /// The next state, if they wait.
    pub goal: Option<Goal>,
    /// The network that may use them; `None` for all.
    pub network: Option<String>,
    /// The time after which no visitor can hold them; `None` while nodes have not confirmed that
    /// they are out of rotation. In the past for most.
    pub ready: Option<Millis>,
}

impl Store {
    /// The largest difference between the clocks of nodes plus the longest transport of an answer.
    /// It is added to every lockout before a number goes elsewhere.
    pub const MARGIN: Millis = Millis(60_000);

    /// Opens the database, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::Database`], or [`StoreError::NewerSchema`].
    pub async fn open(location: &Location) -> Result<Self, StoreError> {
        let database = Database::open(location, &schema::DIRECTORY).await?;
        let (inventory, slow_hash) = (Inventory::default(), SlowHash::default());
        Ok(Self { database, margin: Self::MARGIN, inventory, provider: None, slow_hash })
    }

    /// The same directory, with the limits and provider of `inventory`.
    #[must_use]
    pub fn with_inventory(self, inventory: Inventory) -> Self {
        let files = inventory.offers.clone().zip(inventory.purchases.clone());
        let provider = files.map(|(offers, bought)| FileProvider::new(offers, bought));
        let provider = provider.map(|it| Arc::new(it) as Arc<dyn Provider>);
        Self { inventory, provider, ..self }
    }

    /// The same directory, which buys numbers from `provider`.
    #[must_use]
    pub fn with_provider(self, provider: Arc<dyn Provider>) -> Self {
        Self { provider: Some(provider), ..self }
    }

    /// The limits on pools, and the accepted numbers.
    #[must_use]
    pub const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Waits until all operations have ended, and closes it.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// Begins a change by `who`. Waits until other changes have ended.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn change(&self, who: &str, now: Millis) -> Result<Change, StoreError> {
        let orders = Orders::of(self.provider.clone());
        let rules = (self.margin, self.inventory.clone(), orders);
        Change::begin(self.database.write().await?, who, now, rules).await
    }

    /// The network of a pool, even if the pool was removed. `None` if it never existed, or was
    /// removed before schema 6.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn network_of(&self, pool: PoolId) -> Result<Option<String>, StoreError> {
        pools::network_of(&mut *self.database.read().await?, pool).await
    }

    /// The version of the last change.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn version(&self) -> Result<u64, StoreError> {
        version(&mut *self.database.read().await?).await
    }

    /// All pools, including those without a number in rotation. Rows are converted to pools while
    /// they are read.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a pool breaks a rule.
    pub async fn load_all(&self) -> Result<Loaded, StoreError> {
        let mut tx = self.database.read().await?;
        let version = version(&mut tx).await?;
        let query = "SELECT pool, first_number, last_number FROM numbers \
             WHERE state = 'available' ORDER BY first_number";
        let mut rotations = rotations(sqlx::query(query).fetch(&mut *tx), None).await?;
        let query = concat!("SELECT ", pools::columns!(), " FROM ring_pools ORDER BY id");
        let mut rows = sqlx::query(query).fetch(&mut *tx);
        let mut pools = Vec::with_capacity(rotations.len());
        while let Some(row) = rows.try_next().await? {
            let pool = Pool::from_row(&row)?;
            let ranges = rotations.remove(&pool.id).unwrap_or_default();
            pools.push(pool.ring_pool(ranges)?);
        }
        drop(rows);
        Ok(Loaded { version, pools, sites: sites::all(&mut tx).await? })
    }

    /// The changes after `version`; 0 for everything. The cost depends on the count of changed
    /// pools, not of all pools.
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
        // One query for all pools, with pauses, because an import changes 10,000 of them.
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
        delta.sites = sites::changed_since(&mut tx, since).await?;
        Ok(delta)
    }

    /// Records that a node has served `version` since `at`. A node confirms before it hands out its
    /// first number, and after it has applied each new version. It returns to an older one only if
    /// the database itself has gone back.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn confirm(&self, node: &str, version: u64, at: Millis) -> Result<(), StoreError> {
        let mut tx = self.database.write().await?;
        let query = sqlx::query(
            "INSERT INTO nodes (name, applied_version, at_ms) \
             VALUES ($1, $2, $3) \
             ON CONFLICT (name) DO UPDATE SET applied_version = $2, at_ms = $3",
        );
        let query = query.bind(node.to_owned()).bind(to_db(version, "a version")?);
        query.bind(ms(at)).execute(&mut *tx).await?;
        settle(&mut tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Records that a node is permanently gone: numbers no longer wait for it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn forget_node(&self, node: &str, now: Millis) -> Result<(), StoreError> {
        let mut change = self.change("operator", now).await?;
        let query = sqlx::query("DELETE FROM nodes WHERE name = $1").bind(node.to_owned());
        if query.execute(&mut *change.tx).await?.rows_affected() > 0 {
            settle_at(&mut change.tx, now).await?;
            change.log("forget", &format!("node {node}"), None, None).await?;
        }
        change.commit().await?;
        Ok(())
    }

    /// Moves promised numbers that have become free. Returns the version, if anything was changed.
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

    /// The pool `id`, if it exists.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pool(&self, id: PoolId) -> Result<Option<Pool>, StoreError> {
        pools::by_id(&mut *self.database.read().await?, id).await
    }

    /// The pool with the id `id` in `network`.
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

    /// The pools of one campaign, by id.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pools_of(&self, scope: &Scope) -> Result<Vec<Pool>, StoreError> {
        pools::of_scope(&mut *self.database.read().await?, scope).await
    }

    /// At most `limit` pools with ids above `after`, of one network or of all.
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

    /// The numbers of `pool` in order: its rotation, quarantined and waiting ones.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn numbers_of(&self, pool: PoolId) -> Result<Vec<Numbers>, StoreError> {
        let runs = numbers::of_pool(&mut *self.database.read().await?, pool).await?;
        runs.into_iter().map(Numbers::new).collect()
    }

    /// The state of `number`; `None` if it is unknown.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn number(&self, number: PromoNumber) -> Result<Option<Numbers>, StoreError> {
        let run = numbers::holding(&mut *self.database.read().await?, number).await?;
        run.map(Numbers::new).transpose()
    }

    /// At most `limit` runs of numbers that begin above `after`, in the order of numbers.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn numbers(
        &self,
        after: Option<PromoNumber>,
        limit: u32,
    ) -> Result<Vec<Numbers>, StoreError> {
        let after = after.map_or(0, crate::row::digits);
        let runs = numbers::page(&mut *self.database.read().await?, after, limit).await?;
        runs.into_iter().map(Numbers::new).collect()
    }

    /// The page tag of a destination number.
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

    /// At most `limit` lines of the audit log before `version`, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn audit_log(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<AuditLine>, StoreError> {
        let query = sqlx::query(
            "SELECT version, place, at_ms, who, action, object, \
             before_change, after_change FROM audit_log WHERE version < $1 \
             ORDER BY version DESC, place DESC LIMIT $2",
        );
        let before = before.map_or(Ok(i64::MAX), |version| to_db(version, "a version"))?;
        let query = query.bind(before).bind(i64::from(limit));
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

/// Numbers in rotation, by their pools; read with pauses while other requests are served.
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

/// Applies nodes' confirmations: numbers that left with a version confirmed by all cannot have gone
/// out since the last confirmation.
async fn settle(db: &mut AnyConnection) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT MAX(at_ms) FROM nodes").fetch_one(&mut *db).await?;
    let at = row.try_get::<Option<i64>, _>(0)?.map_or(Millis::ZERO, from_ms);
    settle_at(db, at).await
}

async fn settle_at(db: &mut AnyConnection, at: Millis) -> Result<(), StoreError> {
    let query = sqlx::query("SELECT MIN(applied_version) FROM nodes");
    // Without nodes, everything is confirmed.
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
    query.bind(ms(at)).bind(confirmed).bind(ms(Store::MARGIN)).execute(db).await?;
    Ok(())
}
