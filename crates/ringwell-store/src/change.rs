//! One change to the directory, which is applied as a whole or not at all.
//!
//! Owns the version, the audit log and the changes to pools. Changes to numbers are in
//! `rotation.rs`. Invariants: each change has its own version, and each changed pool gets this
//! version. A change is committed together with its lines in the audit log. Dropping a change
//! without committing it rolls it back. A trial run is a change that is never committed.

use std::collections::BTreeSet;

use ringwell_config::Inventory;
use ringwell_core::{Millis, NumberRange, PoolId};
use ringwell_directory::RingPoolKey;
use serde_json::{Value, json};
use sqlx::{Any, AnyConnection, Row, Transaction};

use crate::numbers::{self, NumberState};
use crate::orders::Orders;
use crate::pools::{self, Former, Pool, PoolSettings, Scope};
use crate::room::Room;
use crate::row::{from_db, ms, to_db};
use crate::{Refusal, StoreError};

/// A change in progress. Other changes wait until this one is committed or dropped.
///
/// A step that fails may have been applied in part. After a failure, drop the change or go back to
/// a save point.
pub struct Change {
    pub(crate) tx: Transaction<'static, Any>,
    pub(crate) version: u64,
    pub(crate) now: Millis,
    /// The largest difference between the clocks of nodes, which is added to every lockout.
    pub(crate) margin: Millis,
    pub(crate) inventory: Inventory,
    pub(crate) orders: Orders,
    /// The count of numbers that one network may still add, if it is already known.
    pub(crate) room: Option<Room>,
    /// The scope that was created last, cached because most lines of a list of pools have the same
    /// scope.
    scope: Option<Scope>,
    /// The value of `room` at the save point.
    saved_room: Option<Room>,
    who: String,
    /// The only network that the author may access, if the author's token is limited to one.
    pub(crate) only: Option<String>,
    touched: BTreeSet<PoolId>,
    /// The count of lines written to the audit log so far.
    lines: i64,
}

impl Change {
    pub(crate) async fn begin(
        mut tx: Transaction<'static, Any>,
        who: &str,
        now: Millis,
        (margin, inventory, orders): (Millis, Inventory, Orders),
    ) -> Result<Self, StoreError> {
        // This statement runs first, because with PostgreSQL its lock on the row makes other
        // writers wait here.
        let query = sqlx::query("UPDATE directory SET version = version + 1 RETURNING version");
        let row = query.fetch_one(&mut *tx).await?;
        let version = from_db(row.try_get(0)?, "the version")?;
        Ok(Self {
            tx,
            version,
            now,
            margin,
            inventory,
            orders,
            room: None,
            scope: None,
            saved_room: None,
            who: who.to_owned(),
            only: None,
            touched: BTreeSet::new(),
            lines: 0,
        })
    }

    /// Records that the change's author may only access `network`, if `network` is given. A pool
    /// then cannot get the id of another network's pool, and refusals do not describe other
    /// networks' numbers.
    #[must_use]
    pub fn limited_to(self, network: Option<&str>) -> Self {
        Self { only: network.map(str::to_owned), ..self }
    }

    /// The version that the directory has once this change is committed.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Checks every changed pool, orders the recorded purchases from the provider, and commits the
    /// change. Returns the version that the directory then has. The version stays the same if
    /// nothing was changed.
    ///
    /// # Errors
    /// [`Refusal::Pool`] if a changed pool breaks a rule, or [`StoreError::Provider`] if a purchase
    /// fails. In both cases nothing has been changed.
    pub async fn commit(mut self) -> Result<u64, StoreError> {
        if self.lines == 0 {
            return Ok(self.version - 1);
        }
        self.check().await?;
        self.orders.place().await?;
        self.tx.commit().await?;
        Ok(self.version)
    }

    /// Checks that every changed pool obeys the rules, as [`Change::commit`] requires.
    ///
    /// # Errors
    /// [`Refusal::Pool`] for the first pool that breaks a rule.
    pub async fn check(&mut self) -> Result<(), StoreError> {
        for id in std::mem::take(&mut self.touched) {
            let Some(pool) = pools::by_id(&mut self.tx, id).await? else { continue };
            let runs = numbers::of_pool(&mut self.tx, id).await?;
            let rotation = runs.iter().filter(|run| run.state == NumberState::Available);
            let mut ranges = rotation.map(numbers::Run::range).collect::<Result<Vec<_>, _>>()?;
            let mut pool = pool;
            if ranges.is_empty() {
                // A pool may be without numbers until it gets its first one, but all other rules
                // already apply to it.
                ranges.extend(NumberRange::new(PLACEHOLDER, 1));
                pool.overflow = None;
            }
            pool.ring_pool(ranges)?;
        }
        Ok(())
    }

    /// Creates a save point before a step that may fail without ending the whole change.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn save_point(&mut self) -> Result<(), StoreError> {
        sqlx::query("SAVEPOINT step").execute(&mut *self.tx).await?;
        self.saved_room.clone_from(&self.room);
        Ok(())
    }

    /// Undoes everything since [`Change::save_point`] was called.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn back_to_save_point(&mut self) -> Result<(), StoreError> {
        sqlx::query("ROLLBACK TO SAVEPOINT step").execute(&mut *self.tx).await?;
        self.room = self.saved_room.take();
        self.scope = None;
        self.release_save_point().await
    }

    /// Drops the save point, and keeps the changes that were made since.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn release_save_point(&mut self) -> Result<(), StoreError> {
        sqlx::query("RELEASE SAVEPOINT step").execute(&mut *self.tx).await?;
        Ok(())
    }

    /// Returns the pool `id`, as this change has left it so far.
    ///
    /// # Errors
    /// [`Refusal::UnknownPool`].
    pub async fn pool(&mut self, id: PoolId) -> Result<Pool, StoreError> {
        let pool = pools::by_id(&mut self.tx, id).await?;
        Ok(pool.ok_or(Refusal::UnknownPool(id))?)
    }

    /// Returns the pool `id`, if it exists.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn find_pool(&mut self, id: PoolId) -> Result<Option<Pool>, StoreError> {
        pools::by_id(&mut self.tx, id).await
    }

    /// Returns the pool with the id `id` in `network`, if it exists.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn pool_of_network(
        &mut self,
        network: &str,
        id: &str,
    ) -> Result<Option<Pool>, StoreError> {
        pools::by_network_id(&mut self.tx, network, id).await
    }

    /// Creates a pool without numbers. Creates its network, advertiser and campaign too if they are
    /// new. If `id` is not given, the pool gets the next id that no pool has ever had.
    ///
    /// # Errors
    /// [`Refusal::PoolExists`], [`Refusal::PoolIdUnusable`], [`Refusal::IdTaken`],
    /// [`Refusal::PoolCeiling`].
    pub async fn create_pool(
        &mut self,
        mut settings: PoolSettings,
        id: Option<PoolId>,
        key: RingPoolKey,
    ) -> Result<PoolId, StoreError> {
        let id = match id {
            Some(id) => id,
            None => self.next_id().await?,
        };
        if pools::by_id(&mut self.tx, id).await?.is_some() {
            return Err(Refusal::PoolExists(id).into());
        }
        settings.trim_name();
        self.check_pool_ceiling(settings.max_pool_size, 0)?;
        self.reserve_id(id).await?;
        self.check_network_id(&settings, id).await?;
        self.put_scope(&settings.scope).await?;
        let version = self.version;
        let pool =
            Pool { id, version, settings, key, next_key: None, overflow: None, former: None };
        pool.put(&mut self.tx).await?;
        self.forget_former_pool(id).await?;
        self.touched.insert(id);
        self.log("create", &object(id), None, Some(pool.to_json())).await?;
        Ok(id)
    }

    /// Changes the settings of a pool.
    ///
    /// # Errors
    /// [`Refusal::UnknownPool`], [`Refusal::IdTaken`], [`Refusal::OverflowIsFixed`],
    /// [`Refusal::PoolCeiling`].
    pub async fn update_pool(
        &mut self,
        id: PoolId,
        mut settings: PoolSettings,
    ) -> Result<(), StoreError> {
        let before = self.pool(id).await?;
        settings.trim_name();
        if settings.allow_overflow != before.settings.allow_overflow {
            return Err(Refusal::OverflowIsFixed.into());
        }
        if settings == before.settings {
            return Ok(());
        }
        self.check_pool_ceiling(settings.max_pool_size, before.settings.max_pool_size)?;
        self.check_network_id(&settings, id).await?;
        self.put_scope(&settings.scope).await?;
        let lockout = before.lockout(self.now);
        let mut after = Pool { settings, ..before.clone() };
        if after.settings.lifetime < before.settings.lifetime {
            let until = match self.first_unconfirmed().await? {
                Some(_) => Millis::ZERO,
                None => self.now + lockout + self.margin,
            };
            let version = self.first_unconfirmed().await?;
            after.former = Some(Former { lifetime: lockout, version, until });
        }
        self.put_pool(&before, after, "update").await
    }

    /// Removes the pool. Its numbers go to the inventory and keep their lockouts. Returns `false`
    /// if the pool does not exist.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn remove_pool(&mut self, id: PoolId) -> Result<bool, StoreError> {
        let Some(pool) = pools::by_id(&mut self.tx, id).await? else { return Ok(false) };
        self.empty_pool(&pool).await?;
        let db_id = to_db(id.0, "a pool's id")?;
        let query = sqlx::query("DELETE FROM ring_pools WHERE id = $1");
        query.bind(db_id).execute(&mut *self.tx).await?;
        let query = sqlx::query(
            "INSERT INTO removed_pools (id, version, network) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET version = $2, network = $3",
        );
        let query = query.bind(db_id).bind(to_db(self.version, "a version")?);
        query.bind(pool.settings.scope.network.clone()).execute(&mut *self.tx).await?;
        self.touched.remove(&id);
        self.room = None;
        self.log("remove", &object(id), Some(pool.to_json()), None).await?;
        Ok(true)
    }

    /// Adds a second key to the pool. The first key stays valid until [`Change::end_key_overlap`]
    /// is called.
    ///
    /// # Errors
    /// [`Refusal::TwoKeys`], and the errors of [`Change::replace_key`].
    pub async fn rotate_key(&mut self, id: PoolId, next: RingPoolKey) -> Result<(), StoreError> {
        let has_two = self.pool(id).await?.next_key.is_some_and(|key| key != next);
        if has_two {
            return Err(Refusal::TwoKeys(id).into());
        }
        self.replace_key(id, next).await
    }

    /// Sets the pool's second key. If the pool already has a second key, that key is replaced and
    /// no longer valid.
    ///
    /// # Errors
    /// [`Refusal::UnknownPool`]. If the key equals the first key, the commit fails with
    /// [`Refusal::Pool`].
    pub async fn replace_key(&mut self, id: PoolId, next: RingPoolKey) -> Result<(), StoreError> {
        let before = self.pool(id).await?;
        if before.next_key == Some(next) {
            return Ok(());
        }
        let after = Pool { next_key: Some(next), ..before.clone() };
        self.put_pool(&before, after, "rotate key").await
    }

    /// Removes the first key, so that the second key is the only one. Returns `false` if there is
    /// no second key.
    ///
    /// # Errors
    /// [`Refusal::UnknownPool`].
    pub async fn end_key_overlap(&mut self, id: PoolId) -> Result<bool, StoreError> {
        let before = self.pool(id).await?;
        let Some(key) = before.next_key else { return Ok(false) };
        let after = Pool { key, next_key: None, ..before.clone() };
        self.put_pool(&before, after, "end key overlap").await?;
        Ok(true)
    }

    /// Stores the id of the JavaScript tag for a destination's telephone number.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn put_destination(
        &mut self,
        network: &str,
        phone_number: &str,
        tag: &str,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO destinations (network, phone_number, \
             obfuscated_tag_id) VALUES ($1, $2, $3) \
             ON CONFLICT (network, phone_number) DO UPDATE SET obfuscated_tag_id = $3",
        );
        let query = query.bind(network.to_owned()).bind(phone_number.to_owned());
        query.bind(tag.to_owned()).execute(&mut *self.tx).await?;
        let after = json!({ "obfuscated_tag_id": tag });
        self.log("put", &format!("destination {network}/{phone_number}"), None, Some(after)).await
    }

    /// Stores an existing pool, with the version of this change.
    pub(crate) async fn put_pool(
        &mut self,
        before: &Pool,
        mut after: Pool,
        action: &str,
    ) -> Result<(), StoreError> {
        after.version = self.version;
        after.put(&mut self.tx).await?;
        let counted = |pool: &Pool| (pool.overflow, pool.settings.scope.network.clone());
        if counted(before) != counted(&after) {
            self.room = None;
        }
        self.touched.insert(after.id);
        self.log(action, &object(after.id), Some(before.to_json()), Some(after.to_json())).await
    }

    /// Records that the pool's numbers have changed.
    pub(crate) async fn touch(&mut self, id: PoolId) -> Result<(), StoreError> {
        self.room = None;
        let query = sqlx::query("UPDATE ring_pools SET version = $1 WHERE id = $2");
        let version = to_db(self.version, "a version")?;
        query.bind(version).bind(to_db(id.0, "a pool's id")?).execute(&mut *self.tx).await?;
        self.touched.insert(id);
        Ok(())
    }

    /// Returns the version of this change, or `None` if there are no nodes that must confirm it.
    pub(crate) async fn first_unconfirmed(&mut self) -> Result<Option<u64>, StoreError> {
        let query = sqlx::query("SELECT COUNT(*) FROM nodes");
        let nodes: i64 = query.fetch_one(&mut *self.tx).await?.try_get(0)?;
        Ok((nodes > 0).then_some(self.version))
    }

    /// The count of lines that this change has written to the audit log. It grows with each
    /// modification.
    #[must_use]
    pub const fn modifications(&self) -> i64 {
        self.lines
    }

    /// Writes one line to the audit log.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn log(
        &mut self,
        action: &str,
        object: &str,
        before: Option<Value>,
        after: Option<Value>,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO audit_log (version, place, at_ms, who, action, \
             object, before_change, after_change) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        );
        query
            .bind(to_db(self.version, "a version")?)
            .bind(self.lines)
            .bind(ms(self.now))
            .bind(self.who.clone())
            .bind(action.to_owned())
            .bind(object.to_owned())
            .bind(before.map(|value| value.to_string()))
            .bind(after.map(|value| value.to_string()))
            .execute(&mut *self.tx)
            .await?;
        self.lines += 1;
        Ok(())
    }

    /// Returns the id that the next new pool gets, unless another id is requested for it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn next_id(&mut self) -> Result<PoolId, StoreError> {
        let query = sqlx::query("SELECT next_pool_id FROM directory");
        let id: i64 = query.fetch_one(&mut *self.tx).await?.try_get(0)?;
        Ok(PoolId(from_db(id, "a pool's id")?))
    }

    async fn put_scope(&mut self, scope: &Scope) -> Result<(), StoreError> {
        if self.scope.as_ref() != Some(scope) {
            put_scope(&mut self.tx, scope).await?;
            self.scope = Some(scope.clone());
        }
        Ok(())
    }

    /// Ensures that no pool created later gets `id` or a lower id. An id of [`FAR`] or more is
    /// reserved only if it is the next id. If every such id were reserved, a single one would use
    /// up all lower ids.
    pub(crate) async fn reserve_id(&mut self, id: PoolId) -> Result<(), StoreError> {
        let Ok(next) = i64::try_from(id.0.saturating_add(1)) else { return Ok(()) };
        let query = sqlx::query(
            "UPDATE directory SET next_pool_id = $1 \
             WHERE next_pool_id = $1 - 1 OR (next_pool_id < $1 AND $2 = 1)",
        );
        let is_near = i64::from(id.0 < FAR);
        query.bind(next).bind(is_near).execute(&mut *self.tx).await?;
        Ok(())
    }

    /// Prepares for a new pool with the id of a removed pool. The new pool does not have the
    /// removed pool's lockouts. The removed pool's numbers must therefore wait before they enter
    /// the new pool, as for any other pool. Sites may still refer to the removed pool. An author
    /// limited to one network can therefore only reuse ids that belonged to that network.
    async fn forget_former_pool(&mut self, id: PoolId) -> Result<(), StoreError> {
        let db_id = to_db(id.0, "a pool's id")?;
        let query = sqlx::query("DELETE FROM removed_pools WHERE id = $1 RETURNING network");
        let removed = query.bind(db_id).fetch_optional(&mut *self.tx).await?;
        let Some(removed) = removed else { return Ok(()) };
        let network: Option<String> = removed.try_get(0)?;
        if self.only.is_some() && self.only != network {
            return Err(Refusal::PoolIdUnusable(id).into());
        }
        let query = sqlx::query("UPDATE numbers SET left_pool = NULL WHERE left_pool = $1");
        query.bind(db_id).execute(&mut *self.tx).await?;
        Ok(())
    }

    async fn check_network_id(
        &mut self,
        settings: &PoolSettings,
        id: PoolId,
    ) -> Result<(), StoreError> {
        let taken = &settings.id_from_network;
        check_length(taken)?;
        let other = pools::by_network_id(&mut self.tx, &settings.scope.network, taken).await?;
        match other {
            Some(other) if other.id != id => Err(Refusal::IdTaken(taken.clone()).into()),
            _ => Ok(()),
        }
    }
}

/// Ids of this size or more are never assigned in sequence, because no directory has this many
/// pools.
pub(crate) const FAR: u64 = 1 << 53;

/// An index contains at most three ids per row, and PostgreSQL limits such a row to 2,704 bytes.
const ID_BYTES_MAX: usize = 512;

/// Refuses ids that are too long for PostgreSQL.
pub(crate) fn check_length(id: &str) -> Result<(), StoreError> {
    let fits = id.len() <= ID_BYTES_MAX;
    if fits { Ok(()) } else { Err(Refusal::LongId(ID_BYTES_MAX).into()) }
}

/// Stands in for the missing number when a pool without numbers is checked. Any valid number would
/// work.
const PLACEHOLDER: ringwell_core::PromoNumber =
    match ringwell_core::PromoNumber::from_e164(12_000_000_000) {
        Some(number) => number,
        None => panic!("the placeholder is not a valid number"),
    };

/// Returns a pool's name in the audit log.
pub(crate) fn object(id: PoolId) -> String {
    format!("ring_pool {id}")
}

/// Creates the network, the advertiser and the campaign of `scope`, unless they already exist.
pub(crate) async fn put_scope(db: &mut AnyConnection, scope: &Scope) -> Result<(), StoreError> {
    let Scope { network, advertiser, campaign } = scope.clone();
    for id in [&network, &advertiser, &campaign] {
        check_length(id)?;
    }
    let query = sqlx::query("INSERT INTO networks (id) VALUES ($1) ON CONFLICT DO NOTHING");
    query.bind(network.clone()).execute(&mut *db).await?;
    let query = sqlx::query(
        "INSERT INTO advertisers (network, id) VALUES ($1, $2) \
         ON CONFLICT DO NOTHING",
    );
    query.bind(network.clone()).bind(advertiser.clone()).execute(&mut *db).await?;
    let query = sqlx::query(
        "INSERT INTO campaigns (network, advertiser, id) \
         VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    );
    query.bind(network).bind(advertiser).bind(campaign).execute(db).await?;
    Ok(())
}
