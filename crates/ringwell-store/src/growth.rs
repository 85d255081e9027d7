//! Lets busy pools grow, and returns unused numbers to the inventory.
//!
//! Determines how many numbers a pool gains in one step. Only the shards record which pools are
//! busy and which numbers are unused, so both are passed in as arguments. The time is an argument
//! too. Each kind of automatic change has its own author in the audit log. With `dry_run`, the
//! changes are not applied.

use ringwell_core::{Millis, NumberRange, PoolId};

use crate::fill::{first_size, last_of};
use crate::{Change, Leave, Store, StoreError, pools};

/// The rules for the growth of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The growth of a busy pool in one step, as a percentage of the pool's size. The pool grows by
    /// at least one number.
    pub percent: u32,
    /// The maximum count of numbers that a pool gets in one step.
    pub step_max: u32,
    /// Whether the changes are only planned and not applied.
    pub dry_run: bool,
}

/// A change to one pool's size, applied or only planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// The pool.
    pub pool: PoolId,
    /// The count of the pool's numbers before the change.
    pub before: u64,
    /// The count of the pool's numbers after the change. Equal to `before` if the inventory has no
    /// suitable number, or if no number could be returned.
    pub after: u64,
}

impl Store {
    /// Lets each of the `busy` pools grow by one step, up to its maximum size, with numbers from
    /// the inventory. Pools that are full or do not exist are skipped. Must be called every five
    /// minutes, as the published API describes. Returns the directory's version and the changes.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn grow(
        &self,
        now: Millis,
        growth: Growth,
        busy: &[PoolId],
    ) -> Result<(u64, Vec<Resized>), StoreError> {
        let mut change = self.change("ringwell: growth", now).await?;
        let mut resized = Vec::new();
        for id in busy {
            let Some(pool) = change.find_pool(*id).await? else { continue };
            let before = change.size(*id).await?.total();
            let most = u64::from(pool.settings.max_pool_size);
            if before >= most {
                continue;
            }
            let step = (before * u64::from(growth.percent)).div_ceil(100);
            let step = step.clamp(1, u64::from(growth.step_max).max(1));
            // A pool grows at least to its initial size, even if this exceeds the largest step.
            let target = (before + step).max(first_size(&pool.settings)).min(most);
            let after = before + change.fill(*id, target).await?;
            resized.push(Resized { pool: *id, before, after });
        }
        Ok((end(change, growth.dry_run).await?, resized))
    }

    /// Gives numbers to pools that are below their initial size. A pool stays below this size if
    /// the inventory contains too few numbers, or no local numbers for a pool that waits for them.
    /// Should be called from time to time. Returns the directory's version and the changes. Pools
    /// that still get no number are not listed.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn fill_short(
        &self,
        now: Millis,
        dry_run: bool,
    ) -> Result<(u64, Vec<Resized>), StoreError> {
        let short = pools::short(&mut *self.database.read().await?).await?;
        let mut change = self.change("ringwell: filling", now).await?;
        let mut resized = Vec::new();
        for id in short {
            let Some(pool) = change.find_pool(id).await? else { continue };
            let before = change.size(id).await?.total();
            let drawn = change.fill(id, first_size(&pool.settings)).await?;
            if drawn > 0 {
                resized.push(Resized { pool: id, before, after: before + drawn });
            }
        }
        Ok((end(change, dry_run).await?, resized))
    }

    /// Moves `unused` numbers from a pool to the inventory until the pool has its initial size.
    /// According to the published API, this happens at the end of a month. The least preferred
    /// numbers go first. Numbers that are not in the pool's rotation are ignored. `who` is the
    /// author of the change.
    ///
    /// # Errors
    /// [`crate::Refusal::UnknownPool`].
    pub async fn give_back_unused(
        &self,
        who: &str,
        now: Millis,
        pool: PoolId,
        unused: &[NumberRange],
        dry_run: bool,
    ) -> Result<(u64, Resized), StoreError> {
        let mut change = self.change(who, now).await?;
        let owner = change.pool(pool).await?;
        let before = change.size(pool).await?.total();
        let mut left = before.saturating_sub(first_size(&owner.settings));
        let mut parts = Vec::new();
        for range in unused {
            parts.extend(change.in_rotation(pool, *range).await?);
        }
        let mut gone = Vec::new();
        for part in change.taste(&owner).least_wanted(parts) {
            let count = u32::try_from(left.min(part.count().into())).unwrap_or(u32::MAX);
            left -= u64::from(count);
            gone.extend(last_of(part, count));
        }
        let after = before - change.take_out(&gone, Leave::Inventory).await?;
        Ok((end(change, dry_run).await?, Resized { pool, before, after }))
    }
}

async fn end(change: Change, dry_run: bool) -> Result<u64, StoreError> {
    if dry_run { Ok(change.version() - 1) } else { change.commit().await }
}
