//! The limits on the count of numbers in one pool, and in all pools of a network together.
//!
//! Owns these limits, which are called ceilings. Automatic changes never exceed a ceiling. If a
//! ceiling is lowered, numbers that are already promised to pools stay promised. Source:
//! docs/spec/directory.md, "Limits of pools and networks".

use ringwell_core::PoolId;
use serde_json::json;
use sqlx::{AnyConnection, Row};

use crate::change::{Change, check_length};
use crate::room::Room;
use crate::row::{Columns, from_db, to_db};
use crate::store::Store;
use crate::{Refusal, StoreError};

/// A network and the count of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its id.
    pub id: String,
    /// The count of numbers in its pools, including promised and quarantined numbers.
    pub numbers: u64,
    /// The maximum of `numbers`, or `None` if there is no limit.
    pub ceiling: Option<u64>,
    /// Whether `ceiling` was set for this network; otherwise it is the default for all networks.
    pub is_own: bool,
}

/// Counts the numbers in the pools of network `$1`.
const USED: &str = "SELECT CAST((SELECT COALESCE(SUM(last_number - first_number + 1), 0) \
     FROM numbers WHERE pool IN (SELECT id FROM ring_pools WHERE network = $1)) \
     + (SELECT COUNT(DISTINCT overflow_number) FROM ring_pools WHERE network = $1) AS BIGINT)";

impl Change {
    /// Returns the count of numbers that the pools of `network` may still add, or `None` if there
    /// is no limit.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn room(&mut self, network: &str) -> Result<Option<u64>, StoreError> {
        // Counting takes time, so it is skipped if there is no ceiling.
        let Some(most) = self.ceiling(network).await? else { return Ok(None) };
        Ok(Some(most.saturating_sub(used(&mut self.tx, network).await?)))
    }

    /// Sets or removes the ceiling of `network`. If the network now exceeds its ceiling, its pools
    /// keep their numbers.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn set_ceiling(
        &mut self,
        network: &str,
        most: Option<u64>,
    ) -> Result<(), StoreError> {
        check_length(network)?;
        let before = own_ceiling(&mut self.tx, network).await?;
        if before == most {
            return Ok(());
        }
        let query = sqlx::query(
            "INSERT INTO networks (id, numbers_max) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET numbers_max = $2",
        );
        self.room = None;
        let value = most.map(|most| to_db(most, "a ceiling")).transpose()?;
        query.bind(network.to_owned()).bind(value).execute(&mut *self.tx).await?;
        let as_json = |most: Option<u64>| Some(json!({ "numbers_max": most }));
        let object = format!("network {network}");
        self.log("set limit", &object, as_json(before), as_json(most)).await
    }

    pub(crate) fn check_pool_ceiling(&self, size: u32, before: u32) -> Result<(), StoreError> {
        let most = self.inventory.pool_numbers_max;
        // If the ceiling was lowered, a pool that exceeds it may still be changed, as long as its
        // maximum size does not grow.
        if size > most && size > before {
            return Err(Refusal::PoolCeiling(most).into());
        }
        Ok(())
    }

    /// Returns the count of numbers that the network of `pool` may still add. Does not count
    /// numbers again if the result is known.
    pub(crate) async fn known_room(&mut self, pool: PoolId) -> Result<Room, StoreError> {
        let network = self.pool(pool).await?.settings.scope.network;
        if let Some(room) = self.room.take().filter(|room| room.network == network) {
            return Ok(room);
        }
        let ceiling = match self.ceiling(&network).await? {
            None => None,
            Some(most) => Some((most, most.saturating_sub(used(&mut self.tx, &network).await?))),
        };
        Ok(Room { network, ceiling })
    }

    /// Refuses the `count` numbers that a pool has just received if `room` allows fewer. Otherwise
    /// records how many numbers the network may still add. `room` must have been determined before
    /// the pool received the numbers.
    pub(crate) fn use_room(&mut self, room: Room, count: u64) -> Result<(), StoreError> {
        let Room { network, ceiling } = room;
        let ceiling = match ceiling {
            None => None,
            Some((most, left)) => match left.checked_sub(count) {
                Some(left) => Some((most, left)),
                None => return Err(Refusal::NetworkCeiling { network, most }.into()),
            },
        };
        self.room = Some(Room { network, ceiling });
        Ok(())
    }

    /// Refuses the numbers that `pool` has just received if its network now has too many. Always
    /// counts all numbers.
    pub(crate) async fn check_network_ceiling(&mut self, pool: PoolId) -> Result<(), StoreError> {
        let network = self.pool(pool).await?.settings.scope.network;
        let Some(most) = self.ceiling(&network).await? else { return Ok(()) };
        if used(&mut self.tx, &network).await? > most {
            return Err(Refusal::NetworkCeiling { network, most }.into());
        }
        Ok(())
    }

    async fn ceiling(&mut self, network: &str) -> Result<Option<u64>, StoreError> {
        let own = own_ceiling(&mut self.tx, network).await?;
        Ok(own.or(self.inventory.network_numbers_max))
    }
}

impl Store {
    /// Returns the network with the id `id`, or `None` if no such network was ever created.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn network(&self, id: &str) -> Result<Option<Network>, StoreError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query("SELECT id FROM networks WHERE id = $1").bind(id.to_owned());
        if query.fetch_optional(&mut *tx).await?.is_none() {
            return Ok(None);
        }
        let own = own_ceiling(&mut tx, id).await?;
        let numbers = used(&mut tx, id).await?;
        let ceiling = own.or(self.inventory.network_numbers_max);
        Ok(Some(Network { id: id.to_owned(), numbers, ceiling, is_own: own.is_some() }))
    }

    /// Returns at most `limit` networks whose ids follow `after`, ordered by id.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn networks(&self, after: &str, limit: u32) -> Result<Vec<Network>, StoreError> {
        let mut tx = self.database.read().await?;
        let query = sqlx::query("SELECT id FROM networks WHERE id > $1 ORDER BY id LIMIT $2");
        let query = query.bind(after.to_owned()).bind(i64::from(limit));
        let ids = query.fetch_all(&mut *tx).await?;
        drop(tx);
        let mut networks = Vec::with_capacity(ids.len());
        for row in ids {
            networks.extend(self.network(&Columns::of(&row).take::<String>()?).await?);
        }
        Ok(networks)
    }
}

async fn used(db: &mut AnyConnection, network: &str) -> Result<u64, StoreError> {
    let row = sqlx::query(USED).bind(network.to_owned()).fetch_one(db).await?;
    from_db(row.try_get(0)?, "a count of numbers")
}

async fn own_ceiling(db: &mut AnyConnection, network: &str) -> Result<Option<u64>, StoreError> {
    let query = sqlx::query("SELECT numbers_max FROM networks WHERE id = $1");
    let Some(row) = query.bind(network.to_owned()).fetch_optional(db).await? else {
        return Ok(None);
    };
    let most: Option<i64> = row.try_get(0)?;
    most.map(|most| from_db(most, "a ceiling")).transpose()
}
